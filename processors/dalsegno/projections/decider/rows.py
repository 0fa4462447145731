"""The rows of the projection ``decider``: what decisions of one session depend on, and nothing else. Pure.

Ids are domain ids (``plan.1/t2/c0``). Phases have the lifecycle's names. A row holds what its operation needs; what is
done with is deleted, but the items of the context, of which there are as many as a model may still be shown.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from msgspec import Struct, field

from dalsegno.model.payloads import Risk, ToolEffect

HEAD: Final = ()

# First members of row ids; the second is the domain id (of a stage: its name; of a pin: its kind).
PIN: Final = "pin"
PENDING: Final = "pending"
STAGE: Final = "stage"
INFERENCE: Final = "inference"
CALL: Final = "call"
APPROVAL: Final = "approval"
GRANT: Final = "grant"
REQUEST: Final = "request"
VALIDATION: Final = "validation"
COMPRESSION: Final = "compression"
GUARD: Final = "guard"
ITEM: Final = "item"
PACKED: Final = "packed"

LISTED: Final = 64
"""Members of a list from outside that a row keeps. Documents with longer ones are not pinned, and an answer with more
calls is taken for a failed one, so that only a foreign log passes it: what lies above is then not decided on."""
TEXT: Final = 500
"""Characters of a text from outside that a row keeps."""
STEPS: Final = 8
ASKED_IN_STEP: Final = 16
"""Steps of an obligation, and who is asked in one."""


class DeciderRow(Struct, array_like=True, tag=True):
    """Base of all of them; the first member in the log's encoding is the class's name."""


class Stop(Struct, array_like=True):
    """Why work ends early. ``what``: CANCEL, TERMINATE (a denial said so) or LIMIT."""

    what: str
    by: str | None = None
    reason: str | None = None


class Head(DeciderRow):
    """The session, one row. ``turn``, ``stage``: in progress, else empty. ``turns``, ``tool_calls``, ``tokens``,
    ``cost_usd_micros``, ``items``, ``windows``: counted over the session (of a fork: with its prefix).
    """

    session: str = ""
    """The session's id; of a fork: its root's, so that a fork is shown what its parent was."""
    status: str = "CREATED"
    profile: str = ""
    workflow: str = ""
    goal: bytes | None = None
    labels: list[tuple[str, str]] = field(default_factory=list)
    clock_start: int | None = None
    started_at: int = 0
    """Writer's time of SessionStarted, microseconds: the clock port counts wall time from it. No decision reads it."""
    seed: int | None = None
    # Stage.
    moved: bool = True
    """No transition is due: one was taken, or a stage is in progress."""
    to_stage: str = ""
    transition_id: str | None = None
    stage: str = ""
    stage_name: str = ""
    stage_attempt: int = 0
    stage_phase: str = ""
    stage_turns: int = 0
    stage_calls: int = 0
    last_stage: str = ""
    """Name of the stage that ended last."""
    # Turn.
    turn: str = ""
    turn_ordinal: int = 0
    packs: int = 0
    """Packs built in this turn: the second one has another id than the first."""
    stale: bool = False
    """A compression was done since the last pack of this turn."""
    pack_id: str | None = None
    """The session's last pack, of which the next one is a difference."""
    fits: bool = True
    request_digest: bytes | None = None
    tools_digest: bytes | None = None
    inference: str = ""
    """The agent inference of this turn that was asked for last."""
    calls: int = 0
    """Tool calls that its answer asks for."""
    abort: str = ""
    """Why the turn ends early, or did: its stage attempt then fails."""
    # After a turn.
    answered: bool = False
    """The last turn ended with an answer and no calls: the stage's validators are due."""
    answer: bytes | None = None
    """Digest of that answer's text."""
    rejected: bool = False
    """A validator did not pass it."""
    validations: list[str] = field(default_factory=list)
    """Ids of the validations of that answer."""
    requests: list[str] = field(default_factory=list)
    """Ids of the retrievals and questions of this stage attempt."""
    failed_rules: list[str] = field(default_factory=list)
    """Compression rules that gave nothing in this turn."""
    windows: int = 0
    compression: str | None = None
    """The compression done last."""
    compressing: str = ""
    """The compression in progress."""
    # Counters and limits.
    turns: int = 0
    tool_calls: int = 0
    tokens: int = 0
    cost_usd_micros: int = 0
    items: int = 0
    timers: list[str] = field(default_factory=list)
    """Timers that fired and were not answered yet."""
    warned: list[str] = field(default_factory=list)
    """Limits that were reached with WARN."""
    stop: Stop | None = None
    forks: int = 0
    """Standing grants of before a fork are over."""
    commands: list[str] = field(default_factory=list)
    """Inbox commands taken last, the newest last: a command that is read again is known by its id."""


class Pin(DeciderRow):
    """A document in force, or one that will be (``effective`` NEXT_TURN or NEXT_STAGE)."""

    name: str
    version: str | None
    digest: bytes | None
    effective: str


class StageState(DeciderRow):
    """The last attempt of a stage. ``failed``: attempts that failed, by which retries are limited."""

    attempt: int
    status: str
    failed: int = 0
    outputs: bytes | None = None
    error_class: str | None = None
    error_message: str | None = None


class InferenceState(DeciderRow):
    """``failed``: attempts that failed by themselves; one that a recovery ended is in ``attempt`` only."""

    purpose: str
    subject_id: str | None
    attempt: int
    phase: str
    request_digest: bytes | None
    failed: int = 0
    error_class: str = ""
    error_message: str = ""
    retryable: bool = False
    retry_after_ms: int | None = None
    delay_ms: int | None = None
    """How long the port waits before this attempt."""
    text: bytes | None = None
    """Digest of the answer's text."""
    calls: list[tuple[str, str | None, str, bytes]] = field(default_factory=list)
    """Id, provider's id, name, digest of the arguments."""


class CallState(DeciderRow):
    """A tool call. ``decision``...: the policy's last word on it; ``step``: of the obligation's escalation."""

    name: str
    ordinal: int
    turn_ordinal: int
    effect: ToolEffect
    risk: Risk
    phase: str
    arguments: bytes
    """Digest of what the model asked for."""
    effective: bytes
    """Digest of what will run: changed by the policy or by an approver."""
    decision_id: str = ""
    decision: str = ""
    rule_ids: list[str] = field(default_factory=list)
    evaluations: int = 0
    to: list[list[str]] = field(default_factory=list)
    ttl_ms: int | None = None
    on_expiry: str = "DENY"
    explanation: str | None = None
    approval: str = ""
    approvals: int = 0
    answer: str = ""
    """GRANTED, MODIFIED (granted with other arguments, not evaluated yet), DENIED or EXPIRED."""
    attempt: int = 0
    failed: int = 0
    delay_ms: int | None = None
    reason: str = ""
    safe: bool = False
    """An attempt with an unknown outcome may be repeated."""
    simulate: bool = False
    child: str = ""


class ApprovalState(DeciderRow):
    """An approval that was asked for in this turn. ``requested_at``: writer's time, microseconds."""

    call_id: str
    phase: str
    requested_at: int
    arguments: bytes | None
    addressed_to: list[str] = field(default_factory=list)
    ttl_ms: int | None = None


class Grant(DeciderRow):
    """A standing grant. ``scope`` SESSION: calls of that tool; RULE: calls that the same rules decided."""

    scope: str
    tool: str
    rule_ids: list[str]
    forks: int


class RequestState(DeciderRow):
    """A question to a person (``kind`` INPUT) or to a retriever, before a stage attempt's first turn."""

    kind: str
    phase: str
    requested_at: int
    ttl_ms: int | None = None


class ValidationState(DeciderRow):
    """``verdict``: decided; ``reported``...: what was reported from outside, until it is decided."""

    validator: str
    phase: str
    verdict: str = ""
    reported: str = ""
    score: str | None = None
    label: str | None = None
    evidence: list[bytes] = field(default_factory=list)


class CompressionState(DeciderRow):
    """A compression for which a model is asked. Its scope is the items that name it (``Item.compressing``)."""

    rule_id: str
    phase: str
    rule_digest: bytes | None
    input_digest: bytes | None
    tokens_before: int | None


class Item(DeciderRow):
    """What a model may be shown. ``place``: turn in the session, phase in the turn, index there: the order in packs."""

    id: str
    seq: int
    place: tuple[int, int, int]
    stage_id: str
    kind: str
    name: str
    digest: bytes
    """SHA-256 of the rendered bytes."""
    size: int
    """Rendered bytes."""
    mode: str = "FULL"
    compression_id: str = ""
    compressing: str = ""
    """The last compression that asked a model about this item."""


class Packed(DeciderRow):
    """An item of the session's last pack."""

    digest: bytes
    mode: str


class GuardState(DeciderRow):
    """Of the stage that ended last (second member of the row's id: its name), until a transition is taken. ``failed``:
    transitions whose guards could not be evaluated, which was recorded."""

    failed: list[str]


Row: TypeAlias = (
    Head
    | Pin
    | StageState
    | InferenceState
    | CallState
    | ApprovalState
    | Grant
    | RequestState
    | ValidationState
    | CompressionState
    | Item
    | Packed
    | GuardState
)

ROW: Any = Row
"""The union, as the shard decodes it."""

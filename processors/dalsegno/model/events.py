"""Classes with which a producer writes events: frozen, without meta, which the session's writer adds.

Generated from the .avsc files by schemas/generate.py; change those and run it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar, TypeAlias

import msgspec

from dalsegno.model.naming import ByName
from dalsegno.model.payloads import (
    AmendmentAction,
    ApprovalScope,
    AuthorizationBasis,
    CacheUse,
    CheckpointKind,
    CompressionEffect,
    CompressionMethod,
    CompressionTrigger,
    ConfigKind,
    DenialEffect,
    Effective,
    ForkPurpose,
    InferencePurpose,
    InputOutcome,
    LimitAction,
    LimitKind,
    MessageRole,
    NondeterminismKind,
    OnExpiry,
    OperationKind,
    PackItemKind,
    PackItemMode,
    PartKind,
    PolicyDecision,
    PolicySubject,
    Profile,
    ReceiptStatus,
    RejectionBasis,
    RejectionSource,
    Relation,
    Resolution,
    RetrievalKind,
    Risk,
    SessionOutcome,
    SubSessionOutcome,
    ToolEffect,
    ToolFailureReason,
    TurnAbortReason,
    ValidationBasis,
    Verdict,
)

Timestamp: TypeAlias = int | datetime
"""An instant: microseconds since 1970 UTC, or an aware datetime (a naive one is refused)."""


class Value(msgspec.Struct, frozen=True, kw_only=True, metaclass=ByName):
    """Base of the records inside events."""


class NewEvent(msgspec.Struct, frozen=True, kw_only=True, metaclass=ByName):
    """Base of all events to append."""

    TYPE: ClassVar[str]
    VERSION: ClassVar[int]
    CLASS: ClassVar[str]
    """X a fact from outside, D a decision, L an intent or frame, C a control event."""


def to_record(event: NewEvent) -> dict[str, Any]:
    """The event as the dict that the codec takes, without ``meta``; values are passed on as they are."""
    return {name: _plain(getattr(event, name)) for name in event.__struct_fields__}


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


class Blob(Value, frozen=True, kw_only=True):
    """Content as it was received, byte for byte: inline, or by reference."""

    digest: bytes  # SHA-256 of the whole content.
    size: int  # Bytes of the whole content.
    media_type: str
    uri: str | None = None  # Where the content lies when it is not inline: a content-addressed object.
    inline: bytes | None = None  # The content itself, at most 64 KiB.


class ErrorInfo(Value, frozen=True, kw_only=True):
    error_class: str  # A short name by which errors are grouped.
    retryable: bool | None = None
    message: str = ""  # Text for people.
    detail: Blob | None = None


class Origin(Value, frozen=True, kw_only=True):
    """Where an imported, concluded or inbox-made event comes from."""

    importer: str  # Format and mapping version, or 'inbox'.
    native_ref: str  # file#line, JSON pointer or command id.
    native_digest: bytes | None = None
    synthesized: bool = False  # True: the recording did not hold this event, it was concluded.


class Redaction(Value, frozen=True, kw_only=True):
    pointer: str  # JSON pointer into this event.
    reason: str
    digest: bytes | None = None  # Only where the content cannot be guessed from it.


class Part(Value, frozen=True, kw_only=True):
    """One part of a message or of a model's output."""

    kind: PartKind
    call_id: str | None = None
    name: str | None = None
    text: str | None = None
    blob: Blob | None = None


class Ref(Value, frozen=True, kw_only=True):
    """Another event of the same session (or of the session named beside it)."""

    seq: int
    hash: bytes | None = None
    event_id: str | None = None


class SeqRange(Value, frozen=True, kw_only=True):
    """A range of seqs of the same session."""

    first: int
    last: int  # Inclusive.


class Usage(Value, frozen=True, kw_only=True):
    """Tokens, as the provider reported them."""

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_creation: int | None = None
    reasoning: int | None = None


class StateDigest(Value, frozen=True, kw_only=True):
    projection: str  # name@version
    digest: bytes


class PackItem(Value, frozen=True, kw_only=True):
    item_id: str
    kind: PackItemKind
    mode: PackItemMode
    position: int  # Index in the pack that results, from 0.
    tokens: int | None = None
    digest: bytes | None = None
    compression_id: str | None = None


class PackDrop(Value, frozen=True, kw_only=True):
    item_id: str
    rule_id: str | None = None
    reason: str | None = None


class AmendmentTarget(Value, frozen=True, kw_only=True):
    seq: int
    epoch: int
    hash: bytes
    prev_hash: bytes | None = None
    type: str


class RequestedCall(Value, frozen=True, kw_only=True):
    tool_call_id: str
    name: str
    arguments_digest: bytes | None = None


class Obligation(Value, frozen=True, kw_only=True):
    ttl_ms: int | None = None
    on_expiry: OnExpiry
    to: Sequence[Sequence[str]] = ()  # Whom to ask, one list an escalation step.


class Label(Value, frozen=True, kw_only=True):
    key: str
    value: str


class InFlight(Value, frozen=True, kw_only=True):
    kind: OperationKind
    resolution: Resolution
    id: str  # Domain id of the operation.


class Truncation(Value, frozen=True, kw_only=True):
    original_bytes: int | None = None
    kept_bytes: int


class ExternalId(Value, frozen=True, kw_only=True):
    key: str
    value: str


class SideEffect(Value, frozen=True, kw_only=True):
    kind: str
    resource: str
    before: bytes | None = None
    after: bytes | None = None


class GuardInput(Value, frozen=True, kw_only=True):
    name: str
    digest: bytes


class Finding(Value, frozen=True, kw_only=True):
    code: str
    severity: str
    location: str | None = None
    message: str = ""


class ApprovalDenied(NewEvent, frozen=True, kw_only=True):
    """Leave was refused."""

    TYPE: ClassVar[str] = "ApprovalDenied"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    approval_id: str
    effect: DenialEffect = "CONTINUE"
    rejection_source: RejectionSource = "UNKNOWN"
    explanation: str | None = None


class ApprovalExpired(NewEvent, frozen=True, kw_only=True):
    """Nobody answered in time. Never concluded from a clock at replay."""

    TYPE: ClassVar[str] = "ApprovalExpired"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    approval_id: str


class ApprovalGranted(NewEvent, frozen=True, kw_only=True):
    """Leave was given; the actor is the approver."""

    TYPE: ClassVar[str] = "ApprovalGranted"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    approval_id: str
    scope: ApprovalScope = "ONCE"
    arguments_digest: bytes | None = None
    explanation: str | None = None
    modified_arguments: Blob | None = None


class ApprovalRequested(NewEvent, frozen=True, kw_only=True):
    """Somebody is asked for leave."""

    TYPE: ClassVar[str] = "ApprovalRequested"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    approval_id: str
    subject: PolicySubject
    subject_id: str
    decision_id: str | None = None
    arguments_digest: bytes | None = None  # Binds the answer to what was shown.
    ttl_ms: int | None = None
    on_expiry: OnExpiry | None = None
    escalated_from: str | None = None
    addressed_to: Sequence[str] = ()
    options: Sequence[str] = ()
    view: Blob | None = None  # What the approver is shown.


class ApprovalWithdrawn(NewEvent, frozen=True, kw_only=True):
    """The question is no longer asked."""

    TYPE: ClassVar[str] = "ApprovalWithdrawn"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    approval_id: str
    reason: str | None = None


class ArtifactRecorded(NewEvent, frozen=True, kw_only=True):
    """Something the session made."""

    TYPE: ClassVar[str] = "ArtifactRecorded"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    artifact_id: str
    path: str | None = None
    produced_by: Ref | None = None
    blob: Blob | None = None


class CancelRequested(NewEvent, frozen=True, kw_only=True):
    """Somebody wants the session cancelled."""

    TYPE: ClassVar[str] = "CancelRequested"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    requested_by: str | None = None
    reason: str | None = None


class CheckpointMarked(NewEvent, frozen=True, kw_only=True):
    """A place to resume from."""

    TYPE: ClassVar[str] = "CheckpointMarked"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "L"
    checkpoint_id: str
    kind: CheckpointKind
    state_digests: Sequence[StateDigest] = ()


class CompressionCompleted(NewEvent, frozen=True, kw_only=True):
    """Items of the context were replaced by less. Reused by (rule_id, rule_digest, input_digest)."""

    TYPE: ClassVar[str] = "CompressionCompleted"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    compression_id: str
    method: CompressionMethod
    effect: CompressionEffect  # MARKER_ONLY: that it happened is known, what it did is not.
    rule_id: str | None = None
    rule_digest: bytes | None = None
    input_digest: bytes | None = None
    output_digest: bytes | None = None
    inference_id: str | None = None
    prev_compression_id: str | None = None
    window_number: int | None = None
    insert_at: int | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
    forgotten: Sequence[str] = ()  # Item ids.
    summary: Blob | None = None
    replacement: Blob | None = None


class CompressionFailed(NewEvent, frozen=True, kw_only=True):
    """A started compression gave nothing."""

    TYPE: ClassVar[str] = "CompressionFailed"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    compression_id: str
    error: ErrorInfo


class CompressionStarted(NewEvent, frozen=True, kw_only=True):
    """A compression for which a model is asked began."""

    TYPE: ClassVar[str] = "CompressionStarted"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    compression_id: str
    trigger: CompressionTrigger
    rule_id: str | None = None
    rule_digest: bytes | None = None  # Of that one rule with its model and template.
    input_digest: bytes | None = None
    tokens_before: int | None = None
    scope: Sequence[str] = ()  # Item ids.


class ConfigPinned(NewEvent, frozen=True, kw_only=True):
    """A configuration document that decisions of this session depend on."""

    TYPE: ClassVar[str] = "ConfigPinned"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    kind: ConfigKind
    effective: Effective = "NOW"  # When it comes into force; NOW only before SessionStarted.
    name: str
    version: str | None = None
    supersedes: str | None = None  # Version that this one replaces.
    digest: bytes | None = None  # SHA-256 of the document.
    content: Blob | None = None


class ContextItemRetrieved(NewEvent, frozen=True, kw_only=True):
    """What the model sees that came from no other event."""

    TYPE: ClassVar[str] = "ContextItemRetrieved"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    item_id: str
    source_uri: str | None = None
    content: Blob | None = None


class ContextPackBuilt(NewEvent, frozen=True, kw_only=True):
    """What a model is about to be shown, as a difference to an earlier pack."""

    TYPE: ClassVar[str] = "ContextPackBuilt"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    pack_id: str
    base_pack_id: str | None = None
    builder_version: str
    fits: bool = True  # False: LimitReached(CONTEXT) follows.
    token_total: int | None = None
    token_budget: int | None = None
    tokenizer: str | None = None
    template_digest: bytes | None = None
    tools_digest: bytes | None = None
    request_digest: bytes | None = None
    removed: Sequence[str] = ()  # Item ids of the base pack that are left out.
    added: Sequence[PackItem] = ()
    dropped: Sequence[PackDrop] = ()


class ErrorRecorded(NewEvent, frozen=True, kw_only=True):
    """An error that ended nothing."""

    TYPE: ClassVar[str] = "ErrorRecorded"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    error: ErrorInfo


class FeedbackRecorded(NewEvent, frozen=True, kw_only=True):
    """A person's or a program's opinion; allowed after the end."""

    TYPE: ClassVar[str] = "FeedbackRecorded"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    kind: str
    value: str | None = None
    target: Ref | None = None  # Null: the session as a whole.
    comment: Blob | None = None


class HistoryAmended(NewEvent, frozen=True, kw_only=True):
    """Control event outside the chain (seq 0): puts a stub in the place of each target."""

    TYPE: ClassVar[str] = "HistoryAmended"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "C"
    request_id: str  # Equal in all chunks of one request and in the admin audit.
    action: AmendmentAction
    whole_session: bool = False  # True: targets is empty and everything of the session is meant.
    reason: str
    targets: Sequence[AmendmentTarget] = ()


class InferenceCompleted(NewEvent, frozen=True, kw_only=True):
    """A model answered. The recorded artifact that replays rest on."""

    TYPE: ClassVar[str] = "InferenceCompleted"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    inference_id: str
    attempt: int = 1  # From 1.
    complete: bool = True  # False: the response was cut off.
    cache: CacheUse = "UNKNOWN"
    usage: Usage = Usage()
    cost_usd_micros: int | None = None
    latency_ms: int | None = None
    ttft_ms: int | None = None
    model: str | None = None
    response_id: str | None = None
    output_digest: bytes | None = None
    finish_reasons: Sequence[str] = ()
    tool_calls: Sequence[RequestedCall] = ()
    output: Sequence[Part] = ()
    raw: Blob | None = None  # The response as received.


class InferenceFailed(NewEvent, frozen=True, kw_only=True):
    """A model gave no answer."""

    TYPE: ClassVar[str] = "InferenceFailed"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    inference_id: str
    attempt: int = 1  # From 1.
    http_status: int | None = None
    retry_after_ms: int | None = None
    error: ErrorInfo


class InferenceRequested(NewEvent, frozen=True, kw_only=True):
    """A model is asked."""

    TYPE: ClassVar[str] = "InferenceRequested"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    inference_id: str
    attempt: int = 1  # From 1.
    purpose: InferencePurpose
    provider: str | None = None
    model: str | None = None
    pack_id: str | None = None
    subject_id: str | None = None  # What a COMPRESSION or VALIDATION is about.
    delay_ms: int | None = None
    request_digest: bytes | None = None
    tools_digest: bytes | None = None
    params: Blob | None = None


class InputProvided(NewEvent, frozen=True, kw_only=True):
    """The answer to an InputRequested."""

    TYPE: ClassVar[str] = "InputProvided"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    request_id: str
    outcome: InputOutcome
    content: Blob | None = None


class InputRequested(NewEvent, frozen=True, kw_only=True):
    """A person is asked for input."""

    TYPE: ClassVar[str] = "InputRequested"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    request_id: str
    ttl_ms: int | None = None
    on_expiry: str | None = None
    prompt: Blob | None = None
    schema: Blob | None = None


class LimitReached(NewEvent, frozen=True, kw_only=True):
    """A limit of the session was reached. The two times follow a TimerFired."""

    TYPE: ClassVar[str] = "LimitReached"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    limit: LimitKind
    action: LimitAction
    limit_value: str | None = None  # Decimal.
    observed: str | None = None  # Decimal.


class MessageReceived(NewEvent, frozen=True, kw_only=True):
    """Somebody outside the session said something."""

    TYPE: ClassVar[str] = "MessageReceived"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    message_id: str
    role: MessageRole
    channel: str | None = None
    parts: Sequence[Part] = ()


class NondeterminismRecorded(NewEvent, frozen=True, kw_only=True):
    """A value that a foreign harness read from outside. Written by importers only."""

    TYPE: ClassVar[str] = "NondeterminismRecorded"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    kind: NondeterminismKind
    key: str
    value: Blob | None = None


class NoteRecorded(NewEvent, frozen=True, kw_only=True):
    """Anything worth keeping that no fold needs. Its meta.ignorable is always true."""

    TYPE: ClassVar[str] = "NoteRecorded"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    kind: str
    data: Blob | None = None


class PolicyAnswered(NewEvent, frozen=True, kw_only=True):
    """What a remote policy engine said; the PolicyEvaluated that follows cites it."""

    TYPE: ClassVar[str] = "PolicyAnswered"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    decision_id: str
    answer: Blob


class PolicyEvaluated(NewEvent, frozen=True, kw_only=True):
    """A policy was applied to something."""

    TYPE: ClassVar[str] = "PolicyEvaluated"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    decision_id: str
    subject: PolicySubject
    subject_id: str | None = None
    decision: PolicyDecision
    engine: str | None = None
    policy_digest: bytes | None = None
    input_digest: bytes | None = None
    rule_ids: Sequence[str] = ()
    obligation: Obligation | None = None
    explanation: str | None = None
    input: Blob | None = None
    modified: Blob | None = None


class RetrievalRequested(NewEvent, frozen=True, kw_only=True):
    """Something is to be fetched for the context."""

    TYPE: ClassVar[str] = "RetrievalRequested"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    item_id: str
    kind: RetrievalKind
    query: Blob | None = None


class SessionCancelled(NewEvent, frozen=True, kw_only=True):
    """The session was ended from outside."""

    TYPE: ClassVar[str] = "SessionCancelled"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    requested_by: str | None = None
    reason: str | None = None
    open_ops: Sequence[str] = ()  # Domain ids of the operations still open, sorted.


class SessionCompleted(NewEvent, frozen=True, kw_only=True):
    """The session ended by itself."""

    TYPE: ClassVar[str] = "SessionCompleted"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    outcome: SessionOutcome
    open_ops: Sequence[str] = ()  # Domain ids of the operations still open, sorted.
    result: Blob | None = None


class SessionCreated(NewEvent, frozen=True, kw_only=True):
    """A session begins. Always seq 1."""

    TYPE: ClassVar[str] = "SessionCreated"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "L"
    profile: Profile  # Which lifecycle rules hold.
    relation: Relation = "NONE"
    workflow_name: str
    parent_session: str | None = None
    parent_at: Ref | None = None  # Event of the parent session that this one goes out from.
    initial_state_digest: bytes | None = None
    labels: Sequence[Label] = ()  # Sorted by key.
    goal: Blob | None = None


class SessionFailed(NewEvent, frozen=True, kw_only=True):
    """The session ended with an error."""

    TYPE: ClassVar[str] = "SessionFailed"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    open_ops: Sequence[str] = ()  # Domain ids of the operations still open, sorted.
    error: ErrorInfo


class SessionForked(NewEvent, frozen=True, kw_only=True):
    """This session continues a prefix of another. Always seq 2; standing grants of the parent end here."""

    TYPE: ClassVar[str] = "SessionForked"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "L"
    parent_session: str
    parent_at: Ref  # The event before a TurnStarted; its hash is never null.
    purpose: ForkPurpose


class SessionPaused(NewEvent, frozen=True, kw_only=True):
    """The session waits."""

    TYPE: ClassVar[str] = "SessionPaused"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "L"
    by_limit: bool = False
    reason: str | None = None


class SessionRecovered(NewEvent, frozen=True, kw_only=True):
    """A writer took the session over; raises the epoch and settles every open operation."""

    TYPE: ClassVar[str] = "SessionRecovered"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "L"
    last_good: Ref  # The event from which the writer goes on; its hash is never null.
    crashed_instance: str | None = None
    snapshot_id: str | None = None
    in_flight: Sequence[InFlight] = ()  # Every open operation, once, sorted by kind and id.


class SessionResumed(NewEvent, frozen=True, kw_only=True):
    """A paused session goes on."""

    TYPE: ClassVar[str] = "SessionResumed"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "L"
    by_limit: bool = False
    reason: str | None = None


class SessionStarted(NewEvent, frozen=True, kw_only=True):
    """The session is ready to work."""

    TYPE: ClassVar[str] = "SessionStarted"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "L"
    config_set_digest: bytes | None = None  # SHA-256 of the sorted kind:name:digest lines of what is pinned.
    clock_start: Timestamp | None = None  # The session's own notion of now.
    seed: int | None = None


class StageCancelled(NewEvent, frozen=True, kw_only=True):
    """A stage attempt was stopped from outside."""

    TYPE: ClassVar[str] = "StageCancelled"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    stage_id: str
    reason: str | None = None


class StageCompleted(NewEvent, frozen=True, kw_only=True):
    """A stage attempt succeeded."""

    TYPE: ClassVar[str] = "StageCompleted"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    stage_id: str
    outputs_digest: bytes | None = None
    outputs: Blob | None = None


class StageFailed(NewEvent, frozen=True, kw_only=True):
    """A stage attempt failed."""

    TYPE: ClassVar[str] = "StageFailed"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    stage_id: str
    error: ErrorInfo


class StageScheduled(NewEvent, frozen=True, kw_only=True):
    """A stage attempt is to be worked on."""

    TYPE: ClassVar[str] = "StageScheduled"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    stage_id: str  # <stage name>.<attempt>
    stage_name: str
    attempt: int = 1  # From 1.
    transition_id: str | None = None
    inputs_digest: bytes | None = None
    depends_on: Sequence[str] = ()


class StageSkipped(NewEvent, frozen=True, kw_only=True):
    """A stage attempt will not be worked on."""

    TYPE: ClassVar[str] = "StageSkipped"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    stage_id: str
    reason: str | None = None


class StageStarted(NewEvent, frozen=True, kw_only=True):
    """Work on a stage attempt began."""

    TYPE: ClassVar[str] = "StageStarted"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "L"
    stage_id: str
    worker: str | None = None


class StatePatched(NewEvent, frozen=True, kw_only=True):
    """A foreign harness changed its own state. Written by importers only."""

    TYPE: ClassVar[str] = "StatePatched"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    namespace: str
    state_digest_after: bytes | None = None
    patch: Blob | None = None  # RFC 6902.


class SubSessionEnded(NewEvent, frozen=True, kw_only=True):
    """A delegated session ended; closes the call that started it, no receipt beside it."""

    TYPE: ClassVar[str] = "SubSessionEnded"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    child_session: str
    tool_call_id: str | None = None  # The call whose ToolCallStarted names the child.
    outcome: SubSessionOutcome
    child_final_hash: bytes | None = None
    result: Blob | None = None


class TimerFired(NewEvent, frozen=True, kw_only=True):
    """The only way wall time enters a session."""

    TYPE: ClassVar[str] = "TimerFired"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    timer: str


class ToolCallAuthorized(NewEvent, frozen=True, kw_only=True):
    """The call may run, and why."""

    TYPE: ClassVar[str] = "ToolCallAuthorized"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    tool_call_id: str
    basis: AuthorizationBasis
    decision_id: str | None = None
    approval_id: str | None = None
    effective_arguments_digest: bytes | None = None


class ToolCallFailed(NewEvent, frozen=True, kw_only=True):
    """No receipt will come of this attempt."""

    TYPE: ClassVar[str] = "ToolCallFailed"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    tool_call_id: str
    attempt: int = 1  # From 1.
    reason: ToolFailureReason
    not_started: bool = False  # True: it surely had no effect.
    error: ErrorInfo | None = None


class ToolCallRejected(NewEvent, frozen=True, kw_only=True):
    """The call may not run, and why."""

    TYPE: ClassVar[str] = "ToolCallRejected"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    tool_call_id: str
    basis: RejectionBasis
    cites: str | None = None  # Domain id of the decision or approval.
    message: str | None = None


class ToolCallRequested(NewEvent, frozen=True, kw_only=True):
    """A model wants a tool to run."""

    TYPE: ClassVar[str] = "ToolCallRequested"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    tool_call_id: str  # Domain id, ours.
    name: str
    effect: ToolEffect = "UNKNOWN"
    risk: Risk = "UNKNOWN"
    inference_id: str | None = None
    native_call_id: str | None = None  # The provider's id of the call; may repeat.
    tool_version: str | None = None
    arguments_digest: bytes | None = None  # SHA-256 of the bytes received.
    arguments: Blob | None = None


class ToolCallStarted(NewEvent, frozen=True, kw_only=True):
    """The tool is about to run: written before, so that a crash is visible."""

    TYPE: ClassVar[str] = "ToolCallStarted"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "L"
    tool_call_id: str
    attempt: int = 1  # From 1.
    executor: str | None = None
    sandbox: str | None = None
    idempotency_key: str | None = None
    child_session: str | None = None


class ToolReceiptRecorded(NewEvent, frozen=True, kw_only=True):
    """The tool ran and this came back; ERROR: it ran and said so."""

    TYPE: ClassVar[str] = "ToolReceiptRecorded"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    tool_call_id: str
    attempt: int = 1  # From 1.
    status: ReceiptStatus
    receipt_id: str
    simulated: bool = False
    exit_code: int | None = None
    started_at: Timestamp | None = None
    ended_at: Timestamp | None = None
    result_digest: bytes | None = None  # SHA-256 of the bytes received.
    truncated: Truncation | None = None
    external_ids: Sequence[ExternalId] = ()
    side_effects: Sequence[SideEffect] = ()
    result: Blob | None = None


class ToolRetryDecided(NewEvent, frozen=True, kw_only=True):
    """What follows from a failed attempt."""

    TYPE: ClassVar[str] = "ToolRetryDecided"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    tool_call_id: str
    attempt: int  # The attempt that failed.
    retry: bool
    delay_ms: int | None = None


class TransitionTaken(NewEvent, frozen=True, kw_only=True):
    """The workflow moved to another stage."""

    TYPE: ClassVar[str] = "TransitionTaken"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    transition_id: str | None = None
    from_stage: str | None = None
    to_stage: str
    guard_id: str | None = None
    guard_result: bool | None = None
    candidates: Sequence[str] = ()
    guard_inputs: Sequence[GuardInput] = ()


class TurnAborted(NewEvent, frozen=True, kw_only=True):
    """An agent's turn was ended early."""

    TYPE: ClassVar[str] = "TurnAborted"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    turn_id: str
    reason: TurnAbortReason


class TurnCompleted(NewEvent, frozen=True, kw_only=True):
    """An agent's turn ended by itself."""

    TYPE: ClassVar[str] = "TurnCompleted"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    turn_id: str


class TurnStarted(NewEvent, frozen=True, kw_only=True):
    """An agent's turn began."""

    TYPE: ClassVar[str] = "TurnStarted"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    turn_id: str  # <stage id>/t<n>
    agent: str | None = None


class ValidationAmended(NewEvent, frozen=True, kw_only=True):
    """A verdict was corrected; allowed after the end."""

    TYPE: ClassVar[str] = "ValidationAmended"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    validation_id: str
    verdict: Verdict
    replaces: Ref | None = None
    score: str | None = None  # Decimal.
    reason: str | None = None
    provenance: str | None = None


class ValidationDecided(NewEvent, frozen=True, kw_only=True):
    """Pass or reject; changed only by ValidationAmended."""

    TYPE: ClassVar[str] = "ValidationDecided"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    validation_id: str
    basis: ValidationBasis
    verdict: Verdict
    intermediate: bool = False
    score: str | None = None  # Decimal.
    label: str | None = None
    inference_id: str | None = None
    findings: Sequence[Finding] = ()
    evidence: Sequence[Blob] = ()


class ValidationRequested(NewEvent, frozen=True, kw_only=True):
    """Something is to be judged."""

    TYPE: ClassVar[str] = "ValidationRequested"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "D"
    validation_id: str
    validator: str
    validator_version: str | None = None
    target_id: str | None = None  # Domain id of what is validated.
    target_digest: bytes | None = None
    validator_digest: bytes | None = None
    criteria_digest: bytes | None = None
    target: Ref | None = None  # Recordings of others only; a decision names its target by domain id.


class VerdictReported(NewEvent, frozen=True, kw_only=True):
    """A person's or a test run's verdict."""

    TYPE: ClassVar[str] = "VerdictReported"
    VERSION: ClassVar[int] = 1
    CLASS: ClassVar[str] = "X"
    validation_id: str
    verdict: Verdict
    score: str | None = None  # Decimal.
    label: str | None = None
    evidence: Sequence[Blob] = ()


EVENT_CLASSES: dict[str, type[NewEvent]] = {
    "ApprovalDenied": ApprovalDenied,
    "ApprovalExpired": ApprovalExpired,
    "ApprovalGranted": ApprovalGranted,
    "ApprovalRequested": ApprovalRequested,
    "ApprovalWithdrawn": ApprovalWithdrawn,
    "ArtifactRecorded": ArtifactRecorded,
    "CancelRequested": CancelRequested,
    "CheckpointMarked": CheckpointMarked,
    "CompressionCompleted": CompressionCompleted,
    "CompressionFailed": CompressionFailed,
    "CompressionStarted": CompressionStarted,
    "ConfigPinned": ConfigPinned,
    "ContextItemRetrieved": ContextItemRetrieved,
    "ContextPackBuilt": ContextPackBuilt,
    "ErrorRecorded": ErrorRecorded,
    "FeedbackRecorded": FeedbackRecorded,
    "HistoryAmended": HistoryAmended,
    "InferenceCompleted": InferenceCompleted,
    "InferenceFailed": InferenceFailed,
    "InferenceRequested": InferenceRequested,
    "InputProvided": InputProvided,
    "InputRequested": InputRequested,
    "LimitReached": LimitReached,
    "MessageReceived": MessageReceived,
    "NondeterminismRecorded": NondeterminismRecorded,
    "NoteRecorded": NoteRecorded,
    "PolicyAnswered": PolicyAnswered,
    "PolicyEvaluated": PolicyEvaluated,
    "RetrievalRequested": RetrievalRequested,
    "SessionCancelled": SessionCancelled,
    "SessionCompleted": SessionCompleted,
    "SessionCreated": SessionCreated,
    "SessionFailed": SessionFailed,
    "SessionForked": SessionForked,
    "SessionPaused": SessionPaused,
    "SessionRecovered": SessionRecovered,
    "SessionResumed": SessionResumed,
    "SessionStarted": SessionStarted,
    "StageCancelled": StageCancelled,
    "StageCompleted": StageCompleted,
    "StageFailed": StageFailed,
    "StageScheduled": StageScheduled,
    "StageSkipped": StageSkipped,
    "StageStarted": StageStarted,
    "StatePatched": StatePatched,
    "SubSessionEnded": SubSessionEnded,
    "TimerFired": TimerFired,
    "ToolCallAuthorized": ToolCallAuthorized,
    "ToolCallFailed": ToolCallFailed,
    "ToolCallRejected": ToolCallRejected,
    "ToolCallRequested": ToolCallRequested,
    "ToolCallStarted": ToolCallStarted,
    "ToolReceiptRecorded": ToolReceiptRecorded,
    "ToolRetryDecided": ToolRetryDecided,
    "TransitionTaken": TransitionTaken,
    "TurnAborted": TurnAborted,
    "TurnCompleted": TurnCompleted,
    "TurnStarted": TurnStarted,
    "ValidationAmended": ValidationAmended,
    "ValidationDecided": ValidationDecided,
    "ValidationRequested": ValidationRequested,
    "VerdictReported": VerdictReported,
}

__all__ = [
    "EVENT_CLASSES",
    "AmendmentTarget",
    "ApprovalDenied",
    "ApprovalExpired",
    "ApprovalGranted",
    "ApprovalRequested",
    "ApprovalWithdrawn",
    "ArtifactRecorded",
    "Blob",
    "CancelRequested",
    "CheckpointMarked",
    "CompressionCompleted",
    "CompressionFailed",
    "CompressionStarted",
    "ConfigPinned",
    "ContextItemRetrieved",
    "ContextPackBuilt",
    "ErrorInfo",
    "ErrorRecorded",
    "ExternalId",
    "FeedbackRecorded",
    "Finding",
    "GuardInput",
    "HistoryAmended",
    "InFlight",
    "InferenceCompleted",
    "InferenceFailed",
    "InferenceRequested",
    "InputProvided",
    "InputRequested",
    "Label",
    "LimitReached",
    "MessageReceived",
    "NewEvent",
    "NondeterminismRecorded",
    "NoteRecorded",
    "Obligation",
    "Origin",
    "PackDrop",
    "PackItem",
    "Part",
    "PolicyAnswered",
    "PolicyEvaluated",
    "Redaction",
    "Ref",
    "RequestedCall",
    "RetrievalRequested",
    "SeqRange",
    "SessionCancelled",
    "SessionCompleted",
    "SessionCreated",
    "SessionFailed",
    "SessionForked",
    "SessionPaused",
    "SessionRecovered",
    "SessionResumed",
    "SessionStarted",
    "SideEffect",
    "StageCancelled",
    "StageCompleted",
    "StageFailed",
    "StageScheduled",
    "StageSkipped",
    "StageStarted",
    "StateDigest",
    "StatePatched",
    "SubSessionEnded",
    "TimerFired",
    "Timestamp",
    "ToolCallAuthorized",
    "ToolCallFailed",
    "ToolCallRejected",
    "ToolCallRequested",
    "ToolCallStarted",
    "ToolReceiptRecorded",
    "ToolRetryDecided",
    "TransitionTaken",
    "Truncation",
    "TurnAborted",
    "TurnCompleted",
    "TurnStarted",
    "Usage",
    "ValidationAmended",
    "ValidationDecided",
    "ValidationRequested",
    "Value",
    "VerdictReported",
    "to_record",
]

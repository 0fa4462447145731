"""Structs of the rows of the built-in projections: stored as MessagePack arrays, emitted as Avro.

Generated from the .avsc files by schemas/generate.py; change those and run it again.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

ApprovalStatus: TypeAlias = Literal["UNKNOWN", "OPEN", "GRANTED", "DENIED", "EXPIRED", "WITHDRAWN", "ORPHAN"]
CompressionRowKind: TypeAlias = Literal["UNKNOWN", "COMPRESSION", "FORGOTTEN"]
CompressionStatus: TypeAlias = Literal["UNKNOWN", "STARTED", "COMPLETED", "FAILED", "GIVEN_UP"]
ContextRowKind: TypeAlias = Literal["UNKNOWN", "PACK", "ITEM", "REMOVED", "DROPPED"]
InferenceStatus: TypeAlias = Literal["UNKNOWN", "OPEN", "COMPLETED", "FAILED", "LOST", "ORPHAN"]
InputStatus: TypeAlias = Literal[
    "UNKNOWN", "OPEN", "ACCEPTED", "DECLINED", "CANCELLED", "EXPIRED", "GIVEN_UP", "ORPHAN"
]
SessionStatus: TypeAlias = Literal["UNKNOWN", "NEW", "CREATED", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED"]
SessionProfile: TypeAlias = Literal["UNKNOWN", "STRICT", "OBSERVED", "IMPORTED"]
StageRowKind: TypeAlias = Literal["UNKNOWN", "STAGE", "TRANSITION"]
StageStatus: TypeAlias = Literal["UNKNOWN", "SCHEDULED", "STARTED", "COMPLETED", "FAILED", "SKIPPED", "CANCELLED"]
ToolCallStatus: TypeAlias = Literal[
    "UNKNOWN",
    "REQUESTED",
    "AUTHORIZED",
    "REJECTED",
    "STARTED",
    "OK",
    "ERROR",
    "FAILED",
    "UNKNOWN_OUTCOME",
    "DELEGATED",
    "ORPHAN",
]
ValidationStatus: TypeAlias = Literal["UNKNOWN", "OPEN", "REPORTED", "DECIDED", "AMENDED", "GIVEN_UP", "ORPHAN"]


class ApprovalRow(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """One question for leave, and its answer. Id: approval_id."""

    status: ApprovalStatus = "OPEN"  # ORPHAN: named only by events that broke a rule.
    subject: str = "UNKNOWN"
    subject_id: str | None = None
    decision_id: str | None = None  # Of the policy that wants leave.
    arguments_digest: bytes | None = None  # Of what leave was asked for.
    view_digest: bytes | None = None  # Of what the approver was shown.
    requested_seq: int = 0  # 0: no request of it is on the path.
    requested_at: int | None = None
    addressed_to: list[str] = []  # The first 8.
    addressed_to_more: int = 0  # And so many more.
    options: int = 0  # Answers that were offered.
    ttl_ms: int | None = None
    on_expiry: str | None = None
    escalated_from: str | None = None
    ended_seq: int | None = None
    ended_at: int | None = None
    ended_by_kind: str | None = None
    ended_by: str | None = None  # Who answered; for an expiry or a withdrawal, who recorded it.
    scope: str | None = None
    answered_digest: bytes | None = None  # Of the arguments that the grant names.
    modified_digest: bytes | None = None  # Of the arguments that the approver put in their place.
    denial_effect: str | None = None
    rejection_source: str | None = None
    explanation: str | None = None  # Or the reason of a withdrawal; its first 500 characters.
    answers: int = 0  # Grants and denials; above 1: the newest is shown.
    refused: int = 0  # Events of it that broke a rule that holds.


class AuditLink(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """One event, and what it says about the call."""

    seq: int = 0
    type: str = ""
    at: int | None = None
    actor_kind: str = "UNKNOWN"
    actor_id: str | None = None
    says: str | None = None  # Its decision, basis, scope, status, reason or resolution, or the model that answered.
    digest: bytes | None = None
    policy_digest: bytes | None = None
    rule_ids: list[str] = []  # The first 8.
    attempt: int | None = None
    inference_id: str | None = None
    asked_seq: int | None = None  # Of an answer: where the model was asked.
    pack_id: str | None = None  # Of an answer: what the model was shown.
    pack_seq: int | None = None  # Where that was built; null: not on the path.
    decision_id: str | None = None
    approval_id: str | None = None
    of_call: str | None = None  # Of a standing grant: the call for which it was given.
    violations: list[str] = []  # Rules that it broke, so that it had no effect.
    findings: list[str] = []  # Rules that it broke and that do not hold here.
    event_id: str | None = None
    causation_id: str | None = None


class AuditRow(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """The events that bear on one tool call. Id: tool_call_id."""

    links: list[AuditLink] = []
    more: int = 0  # Links that are not kept.


class CompressionRow(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """A compression, or an item forgotten by it. Ids: [compression_id], [compression_id, 'forgotten', n]."""

    kind: CompressionRowKind = "COMPRESSION"
    item_id: str | None = None  # Of a FORGOTTEN one, which holds nothing else.
    status: CompressionStatus | None = None  # GIVEN_UP: by a recovery.
    trigger: str | None = None  # Null: it was not started by an event of its own.
    rule_id: str | None = None
    rule_digest: bytes | None = None
    input_digest: bytes | None = None  # With rule_id and rule_digest: the key under which it is used again.
    output_digest: bytes | None = None
    scope: int | None = None  # How many items it was started for; null: not started.
    forgotten: int = 0  # Rows 'forgotten'.
    method: str | None = None
    effect: str | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
    window_number: int | None = None
    insert_at: int | None = None
    prev_compression_id: str | None = None
    inference_id: str | None = None
    summary_digest: bytes | None = None
    replacement_digest: bytes | None = None
    stage_id: str | None = None
    turn_id: str | None = None
    started_seq: int | None = None
    started_at: int | None = None
    ended_seq: int | None = None
    ended_at: int | None = None
    error_class: str | None = None
    error_message: str | None = None  # Its first 500 characters.


class ContextPackRow(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """A pack, or a member of its difference. Ids: [pack_id], [pack_id, 'item'|'removed'|'dropped', n]."""

    kind: ContextRowKind = "PACK"
    item_id: str | None = None  # Of a member, as all up to source_uri; REMOVED holds nothing else.
    rule_id: str | None = None  # Of a DROPPED one.
    reason: str | None = None  # Of a DROPPED one: the first 500 characters.
    item_kind: str | None = None
    mode: str | None = None
    position: int | None = None  # Index in the pack that results.
    tokens: int | None = None
    digest: bytes | None = None
    compression_id: str | None = None
    source_type: str | None = None  # Type of the newest event before the pack that the item's id names.
    source_seq: int | None = None  # Its seq; null: no such event in this session.
    source_uri: str | None = None  # Of a retrieved one.
    seq: int | None = None  # Of a pack, as all that follows.
    built_at: int | None = None
    stage_id: str | None = None
    turn_id: str | None = None
    base_pack_id: str | None = None
    items: int | None = None  # The base pack's less removed plus added; null: the base is not known here.
    added: int = 0  # Rows 'item'.
    removed: int = 0  # Rows 'removed'.
    dropped: int = 0  # Rows 'dropped'.
    compressed: int = 0  # Of the added ones: those with a compression_id.
    compressions: list[str] = []  # Which: the first 8.
    more_compressions: int = 0  # How many more.
    token_total: int | None = None
    token_budget: int | None = None
    fits: bool | None = None
    builder_version: str | None = None
    tokenizer: str | None = None
    template_digest: bytes | None = None
    tools_digest: bytes | None = None
    request_digest: bytes | None = None


class ItemSource(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """The newest event that gave an item. Id: item_id. Not public."""

    type: str
    seq: int
    uri: str | None = None


class InferenceRow(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """One inference, all its attempts. Id: inference_id."""

    status: InferenceStatus = "OPEN"
    purpose: str = "UNKNOWN"
    provider: str | None = None
    model: str | None = None  # The one that answered, else the one that was asked.
    pack_id: str | None = None
    subject_id: str | None = None
    stage_id: str | None = None
    turn_id: str | None = None
    attempts: int = 0
    failed_attempts: int = 0
    lost_attempts: int = 0
    refused: int = 0  # Events of it that broke a rule that holds.
    requested_seq: int = 0  # Of the newest attempt; 0: no request of it is on the path.
    requested_at: int | None = None
    ended_seq: int | None = None
    ended_at: int | None = None
    request_digest: bytes | None = None
    output_digest: bytes | None = None
    response_id: str | None = None
    tool_calls: int = 0  # That the answer asks for.
    finish_reasons: list[str] = []  # The first 8.
    complete: bool = False  # The answer was not cut off.
    cache: str = "UNKNOWN"
    input_tokens: int | None = None  # Null, here and below: not said.
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_creation_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd_micros: int | None = None
    latency_ms: int | None = None
    ttft_ms: int | None = None
    http_status: int | None = None  # Of the newest failure, as the two below.
    error_class: str | None = None
    error_message: str | None = None  # Its first 500 characters.


class InputRow(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """One question to a person, and its answer. Id: request_id."""

    status: InputStatus = "OPEN"  # GIVEN_UP: by a recovery. ORPHAN: named only by events that broke a rule.
    prompt: str | None = None  # Its first 500 characters, where the event itself holds it as text.
    prompt_digest: bytes | None = None
    schema_digest: bytes | None = None  # Of the JSON Schema that the answer must fit.
    stage_id: str | None = None
    turn_id: str | None = None
    requested_seq: int = 0  # 0: no request of it is on the path.
    requested_at: int | None = None
    ttl_ms: int | None = None
    on_expiry: str | None = None
    ended_seq: int | None = None
    ended_at: int | None = None
    ended_by_kind: str | None = None
    ended_by: str | None = None
    content_digest: bytes | None = None  # Of the answer.
    refused: int = 0  # Events of it that broke a rule that holds.


class MessageRow(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """A message from outside the session. Id: seq of the event."""

    message_id: str = ""
    role: str = "UNKNOWN"
    channel: str | None = None
    received_at: int | None = None
    stage_id: str | None = None
    turn_id: str | None = None
    text_parts: int = 0
    reasoning_parts: int = 0
    tool_call_parts: int = 0
    tool_result_parts: int = 0
    media_parts: int = 0
    other_parts: int = 0  # OTHER and UNKNOWN.
    characters: int = 0  # Of all parts' texts.
    blob_bytes: int = 0  # Of all parts' blobs, as they say.
    text: str = ""  # The first 200 characters of the TEXT parts, one line each.
    digest: bytes | None = None  # SHA-256 of the JSON [[kind, call_id, name, text, blob digest in hex], ...].


class OutcomeRow(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """Sums by the day (UTC) of sessions' first events. Key: [partition, day, workflow, status, verdict]."""

    sessions: int = 0
    inferences: int = 0
    tool_calls: int = 0  # Requested.
    failed_tool_calls: int = 0  # Ended with an error, a failure or a rejection.
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd_micros: int = 0
    duration_micros: int = 0
    timed: int = 0  # Sessions whose duration is in duration_micros.


class OutcomeOf(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """Under which key the session counts. Not public."""

    started_at: int | None = None
    workflow: str = ""
    status: str = "NEW"
    verdict: str | None = None


class SessionRow(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """One session. Id: none."""

    status: SessionStatus = "NEW"
    profile: SessionProfile = "UNKNOWN"
    workflow_name: str = ""
    agent: str | None = None  # Of the newest turn.
    model: str | None = None  # Of the newest inference.
    stage_id: str | None = None  # Of the newest stage attempt that started, or in which a turn did.
    started_at: int | None = None  # Clock of the first event.
    last_event_at: int | None = None
    last_seq: int = 0  # Of the path; 0: nothing of it yet.
    head_hash: bytes | None = None
    epoch: int = 0
    events: int = 0  # On the path.
    turns: int = 0
    inferences: int = 0
    tool_calls: int = 0  # Requested.
    failed_tool_calls: int = 0  # Ended with an error, a failure or a rejection.
    operations_open: int = 0  # All that a recovery would have to resolve; approvals and inputs are among them.
    approvals_open: int = 0
    inputs_open: int = 0
    messages: int = 0
    compressions: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_creation_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd_micros: int = 0
    verdict: str | None = None  # Of the newest final validation.
    score: str | None = None
    violations: int = 0  # Events that broke a rule that holds.
    findings: int = 0  # Rules broken that do not hold in this profile.
    held_reason: str | None = None
    held_seq: int | None = None  # First seq that cannot be folded.
    superseded: int = 0  # Records that are not on the path.
    stubs: int = 0  # Events that an amendment replaced.
    relation: str = "NONE"  # To parent_session, as SessionCreated says it.
    parent_session: str | None = None
    forked_from: str | None = None
    forked_at_seq: int | None = None
    goal_digest: bytes | None = None
    outcome: str | None = None  # Of a COMPLETED one.
    error_class: str | None = None
    error_message: str | None = None  # Its first 500 characters.


class StageRow(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """A stage attempt, or a transition. Ids: ['stage', stage_id] and ['transition', its seq]."""

    kind: StageRowKind = "STAGE"
    status: StageStatus | None = None  # Of a stage.
    stage_name: str | None = None  # Null: its schedule is not known here.
    attempt: int | None = None
    transition_id: str | None = None  # Its own, or that of the transition that scheduled the stage.
    transition_seq: int | None = None  # Of the newest TransitionTaken with the stage's transition_id.
    depends_on: list[str] = []  # The first 16.
    more_depends_on: int = 0  # How many more.
    scheduled_seq: int | None = None
    scheduled_at: int | None = None
    started_seq: int | None = None
    started_at: int | None = None
    ended_seq: int | None = None
    ended_at: int | None = None
    worker: str | None = None
    inputs_digest: bytes | None = None
    outputs_digest: bytes | None = None
    error_class: str | None = None
    reason: str | None = None  # Why it failed, was skipped or cancelled: the first 500 characters.
    taken_at: int | None = None  # Of a transition, as all that follows.
    from_stage: str | None = None
    to_stage: str | None = None
    guard_id: str | None = None
    guard_result: bool | None = None
    candidates: list[str] = []  # The first 16.
    more_candidates: int = 0  # How many more.
    guard_inputs: list[str] = []  # Names of the first 16.
    guard_digests: list[bytes] = []  # Of guard_inputs, one each.
    more_guard_inputs: int = 0  # How many more.


class TransitionPlace(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """Where a transition was taken last. Id: transition_id. Not public."""

    seq: int


class ToolCallRow(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """One tool call. Id: tool_call_id."""

    status: ToolCallStatus = "REQUESTED"  # ORPHAN: named only by events that broke a rule.
    name: str = ""
    effect: str = "UNKNOWN"
    risk: str = "UNKNOWN"
    requested_seq: int = 0  # 0: no request of it is on the path.
    requested_at: int | None = None
    requests: int = 0  # Above 1: its id was used again; the newest is shown.
    inference_id: str | None = None
    native_call_id: str | None = None  # The provider's; may repeat.
    stage_id: str | None = None
    turn_id: str | None = None
    arguments_digest: bytes | None = None
    effective_arguments_digest: bytes | None = None
    decision_id: str | None = None
    decision: str | None = None
    approval_id: str | None = None
    approval: str | None = None  # OPEN, GRANTED, DENIED, EXPIRED or WITHDRAWN.
    approver: str | None = None
    basis: str | None = None  # Of the authorization or rejection.
    attempts: int = 0
    in_doubt: int = 0  # Attempts that may have had an effect of which no receipt tells.
    started_at: int | None = None
    ended_at: int | None = None
    ended_seq: int | None = None
    receipts: int = 0  # All of them, late ones too.
    late_receipts: int = 0  # Those that came after its end.
    refused: int = 0  # Events of it that broke a rule that holds.
    exit_code: int | None = None
    result_digest: bytes | None = None
    simulated: bool = False
    child_session: str | None = None
    error_class: str | None = None


class NameOfCall(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """Which call another id leads to. Id: [APPROVAL, approval_id] while open, [SUBSESSION, child_session]. Not
    public.
    """

    tool_call_id: str


class UsageRow(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """Sums of a partition, day (UTC), workflow, provider and model. Key: [partition, day, workflow, provider,
    model].
    """

    inferences: int = 0  # Completed.
    failed_inferences: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_creation_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd_micros: int = 0
    latency_ms: int = 0


class UsageNote(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """The session's workflow (id: none), or what an open inference was asked of (id: inference_id). Not public."""

    workflow: str = ""
    provider: str | None = None
    model: str | None = None


class ValidationRow(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """One validation. Id: validation_id."""

    status: ValidationStatus = "OPEN"
    validator: str = ""
    validator_version: str | None = None
    validator_digest: bytes | None = None
    target_id: str | None = None
    target_seq: int | None = None
    target_digest: bytes | None = None
    criteria_digest: bytes | None = None
    requested_seq: int = 0  # 0: no request of it is on the path.
    requested_at: int | None = None
    verdict: str | None = None  # As decided, or as amended since.
    score: str | None = None  # Decimal; belongs to verdict.
    decided_verdict: str | None = None  # As first decided, whatever was amended.
    decided_score: str | None = None
    decided_seq: int | None = None
    decided_at: int | None = None
    basis: str | None = None
    label: str | None = None  # Of the decision, else of the newest report.
    inference_id: str | None = None
    intermediate: bool = False
    findings: int = 0  # That the decision lists.
    reports: int = 0  # Verdicts from outside.
    reported_verdict: str | None = None  # Of the newest report, as the three below.
    reported_score: str | None = None
    reported_by: str | None = None
    reported_seq: int | None = None
    amendments: int = 0
    amended_seq: int | None = None  # Of the newest amendment, as the four below.
    amended_by: str | None = None
    replaces_seq: int | None = None
    reason: str | None = None
    provenance: str | None = None
    refused: int = 0  # Events of it that broke a rule that holds.

"""Typed dicts of decoded events, as folds see them: raw values, times in microseconds UTC.

Generated from the .avsc files by schemas/generate.py; change those and run it again.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

ActorKind: TypeAlias = Literal[
    "UNKNOWN", "USER", "AGENT", "MODEL", "TOOL", "POLICY", "VALIDATOR", "HARNESS", "SCHEDULER", "OPERATOR", "IMPORTER"
]
OnExpiry: TypeAlias = Literal["UNKNOWN", "DENY", "ESCALATE"]
OperationKind: TypeAlias = Literal[
    "UNKNOWN", "INFERENCE", "TOOL", "APPROVAL", "INPUT", "COMPRESSION", "VALIDATION", "SUBSESSION", "RETRIEVAL"
]
PartKind: TypeAlias = Literal["UNKNOWN", "TEXT", "REASONING", "TOOL_CALL", "TOOL_RESULT", "MEDIA", "OTHER"]
PolicySubject: TypeAlias = Literal["UNKNOWN", "TOOL_CALL", "TRANSITION", "INPUT", "OUTPUT", "CONTEXT", "INFERENCE"]
RetrievalKind: TypeAlias = Literal["UNKNOWN", "RETRIEVED", "FILE", "MEMORY"]
Verdict: TypeAlias = Literal["UNKNOWN", "PASS", "REJECT", "INCONCLUSIVE", "ERROR"]
DenialEffect: TypeAlias = Literal["UNKNOWN", "CONTINUE", "ABORT_TURN", "TERMINATE_SESSION"]
RejectionSource: TypeAlias = Literal["UNKNOWN", "USER", "HOOK", "POLICY"]
ApprovalScope: TypeAlias = Literal["UNKNOWN", "ONCE", "SESSION", "RULE"]
CheckpointKind: TypeAlias = Literal["UNKNOWN", "STABLE", "ANCHOR"]
CompressionMethod: TypeAlias = Literal[
    "UNKNOWN", "SUMMARY", "TRIM", "MASK", "EDIT", "DEDUP", "TRUNCATE", "REPLACE_HISTORY"
]
CompressionEffect: TypeAlias = Literal["UNKNOWN", "REAPPLIABLE", "MARKER_ONLY"]
CompressionTrigger: TypeAlias = Literal["UNKNOWN", "THRESHOLD", "MANUAL", "OVERFLOW_ERROR", "STAGE_BOUNDARY"]
ConfigKind: TypeAlias = Literal[
    "UNKNOWN",
    "WORKFLOW",
    "POLICY",
    "COMPRESSION_RULES",
    "TOOL_CATALOG",
    "PROMPT_TEMPLATE",
    "MODEL_PARAMS",
    "VALIDATORS",
    "REDACTION",
    "HARNESS_BUILD",
    "TOKENIZER",
]
Effective: TypeAlias = Literal["UNKNOWN", "NOW", "NEXT_TURN", "NEXT_STAGE"]
PackItemKind: TypeAlias = Literal[
    "UNKNOWN", "SYSTEM", "MESSAGE", "TOOL_RESULT", "SUMMARY", "RETRIEVED", "FILE", "MEMORY", "TOOL_DEFS"
]
PackItemMode: TypeAlias = Literal["UNKNOWN", "FULL", "COMPRESSED", "SUMMARY", "REFERENCE"]
AmendmentAction: TypeAlias = Literal["UNKNOWN", "ERASED", "SKIPPED", "LOST"]
CacheUse: TypeAlias = Literal["UNKNOWN", "NONE", "READ", "WRITE"]
InferencePurpose: TypeAlias = Literal["UNKNOWN", "AGENT", "COMPRESSION", "VALIDATION", "POLICY", "OTHER"]
InputOutcome: TypeAlias = Literal["UNKNOWN", "ACCEPTED", "DECLINED", "CANCELLED", "EXPIRED"]
LimitKind: TypeAlias = Literal[
    "UNKNOWN", "TOKENS", "COST", "TURNS", "TOOL_CALLS", "CONTEXT", "WALL_TIME", "WORKING_TIME"
]
LimitAction: TypeAlias = Literal["UNKNOWN", "STOP", "PAUSE", "COMPRESS", "WARN"]
MessageRole: TypeAlias = Literal["UNKNOWN", "SYSTEM", "DEVELOPER", "USER", "EXTERNAL_AGENT"]
NondeterminismKind: TypeAlias = Literal["UNKNOWN", "CLOCK", "RANDOM", "UUID", "ENV", "EXTERNAL_READ", "FLAG"]
PolicyDecision: TypeAlias = Literal["UNKNOWN", "ALLOW", "DENY", "REQUIRE_APPROVAL", "MODIFY", "SIMULATE"]
SessionOutcome: TypeAlias = Literal["UNKNOWN", "SUCCESS", "PARTIAL", "GIVEN_UP"]
Profile: TypeAlias = Literal["UNKNOWN", "STRICT", "OBSERVED", "IMPORTED"]
Relation: TypeAlias = Literal["UNKNOWN", "NONE", "FORK", "CHILD", "CONTINUATION", "RETRY"]
ForkPurpose: TypeAlias = Literal["UNKNOWN", "DEBUG", "DATASET", "WHAT_IF", "RETRY", "RECOVERY"]
Resolution: TypeAlias = Literal[
    "UNKNOWN", "RETRY", "FAILED", "AWAIT_RECEIPT", "UNKNOWN_OUTCOME", "ABANDONED", "KEEP_WAITING"
]
SubSessionOutcome: TypeAlias = Literal["UNKNOWN", "SUCCESS", "PARTIAL", "GIVEN_UP", "FAILED", "CANCELLED"]
AuthorizationBasis: TypeAlias = Literal[
    "UNKNOWN", "POLICY_ALLOW", "APPROVAL", "STANDING_GRANT", "SIMULATED", "UNRECORDED_IMPORT"
]
ToolFailureReason: TypeAlias = Literal["UNKNOWN", "TIMEOUT", "CANCELLED", "EXECUTOR_CRASH", "UNKNOWN_OUTCOME", "INFRA"]
RejectionBasis: TypeAlias = Literal[
    "UNKNOWN", "POLICY_DENY", "APPROVAL_DENIED", "APPROVAL_EXPIRED", "INVALID_ARGUMENTS", "UNKNOWN_TOOL", "LIMIT"
]
ToolEffect: TypeAlias = Literal["UNKNOWN", "READ", "WRITE", "DESTRUCTIVE", "EXTERNAL"]
Risk: TypeAlias = Literal["UNKNOWN", "LOW", "MEDIUM", "HIGH"]
ReceiptStatus: TypeAlias = Literal["UNKNOWN", "OK", "ERROR"]
TurnAbortReason: TypeAlias = Literal["UNKNOWN", "INTERRUPTED", "REPLACED", "LIMIT", "DENIED", "CANCELLED"]
ValidationBasis: TypeAlias = Literal["UNKNOWN", "PURE", "INFERENCE", "REPORTED"]


class Blob(TypedDict):
    """Content as it was received, byte for byte: inline, or by reference."""

    digest: bytes  # SHA-256 of the whole content.
    size: int  # Bytes of the whole content.
    media_type: str
    uri: str | None  # Where the content lies when it is not inline: a content-addressed object.
    inline: bytes | None  # The content itself, at most 64 KiB.


class ErrorInfo(TypedDict):
    error_class: str  # A short name by which errors are grouped.
    retryable: bool | None
    message: str  # Text for people.
    detail: Blob | None


class Origin(TypedDict):
    """Where an imported, concluded or inbox-made event comes from."""

    importer: str  # Format and mapping version, or 'inbox'.
    native_ref: str  # file#line, JSON pointer or command id.
    native_digest: bytes | None
    synthesized: bool  # True: the recording did not hold this event, it was concluded.


class Redaction(TypedDict):
    pointer: str  # JSON pointer into this event.
    reason: str
    digest: bytes | None  # Only where the content cannot be guessed from it.


class Meta(TypedDict):
    """The envelope: first field of every event. Its first four fields place a record."""

    session_id: str  # Up to 200 bytes; '~' only in fork ids.
    seq: int  # From 1, contiguous; the only order. Control events: 0.
    epoch: int  # Fencing number of the writer, raised by each recovery.
    prev_hash: bytes | None  # Hash of the predecessor; null if and only if seq is 0 or 1.
    ignorable: bool  # True: a reader that does not know the type steps over the event.
    recorded_at: int  # Writer's clock, never before the predecessor's.
    occurred_at: int | None  # Producer's clock; may be missing or regress; never an input to a decision.
    event_id: str  # A UUID; data only, nothing is keyed by it.
    actor_kind: ActorKind
    actor_id: str
    writer: str  # name/version/instance
    causation_id: str | None  # event_id of the event that directly caused this one.
    turn_id: str | None
    stage_id: str | None  # Stage attempt that owns the event.
    origin: Origin | None
    redactions: list[Redaction]


class Part(TypedDict):
    """One part of a message or of a model's output."""

    kind: PartKind
    call_id: str | None
    name: str | None
    text: str | None
    blob: Blob | None


class Ref(TypedDict):
    """Another event of the same session (or of the session named beside it)."""

    seq: int
    hash: bytes | None
    event_id: str | None


class SeqRange(TypedDict):
    """A range of seqs of the same session."""

    first: int
    last: int  # Inclusive.


class Usage(TypedDict):
    """Tokens, as the provider reported them."""

    input: int | None
    output: int | None
    cache_read: int | None
    cache_creation: int | None
    reasoning: int | None


class ApprovalDenied(TypedDict):
    """Leave was refused."""

    meta: Meta
    approval_id: str
    effect: DenialEffect
    rejection_source: RejectionSource
    explanation: str | None


class ApprovalExpired(TypedDict):
    """Nobody answered in time. Never concluded from a clock at replay."""

    meta: Meta
    approval_id: str


class ApprovalGranted(TypedDict):
    """Leave was given; the actor is the approver."""

    meta: Meta
    approval_id: str
    scope: ApprovalScope
    arguments_digest: bytes | None
    explanation: str | None
    modified_arguments: Blob | None


class ApprovalRequested(TypedDict):
    """Somebody is asked for leave."""

    meta: Meta
    approval_id: str
    subject: PolicySubject
    subject_id: str
    decision_id: str | None
    arguments_digest: bytes | None  # Binds the answer to what was shown.
    ttl_ms: int | None
    on_expiry: OnExpiry | None
    escalated_from: str | None
    addressed_to: list[str]
    options: list[str]
    view: Blob | None  # What the approver is shown.


class ApprovalWithdrawn(TypedDict):
    """The question is no longer asked."""

    meta: Meta
    approval_id: str
    reason: str | None


class ArtifactRecorded(TypedDict):
    """Something the session made."""

    meta: Meta
    artifact_id: str
    path: str | None
    produced_by: Ref | None
    blob: Blob | None


class CancelRequested(TypedDict):
    """Somebody wants the session cancelled."""

    meta: Meta
    requested_by: str | None
    reason: str | None


class StateDigest(TypedDict):
    projection: str  # name@version
    digest: bytes


class CheckpointMarked(TypedDict):
    """A place to resume from."""

    meta: Meta
    checkpoint_id: str
    kind: CheckpointKind
    state_digests: list[StateDigest]


class CompressionCompleted(TypedDict):
    """Items of the context were replaced by less. Reused by (rule_id, rule_digest, input_digest)."""

    meta: Meta
    compression_id: str
    method: CompressionMethod
    effect: CompressionEffect  # MARKER_ONLY: that it happened is known, what it did is not.
    rule_id: str | None
    rule_digest: bytes | None
    input_digest: bytes | None
    output_digest: bytes | None
    inference_id: str | None
    prev_compression_id: str | None
    window_number: int | None
    insert_at: int | None
    tokens_before: int | None
    tokens_after: int | None
    forgotten: list[str]  # Item ids.
    summary: Blob | None
    replacement: Blob | None


class CompressionFailed(TypedDict):
    """A started compression gave nothing."""

    meta: Meta
    compression_id: str
    error: ErrorInfo


class CompressionStarted(TypedDict):
    """A compression for which a model is asked began."""

    meta: Meta
    compression_id: str
    trigger: CompressionTrigger
    rule_id: str | None
    rule_digest: bytes | None  # Of that one rule with its model and template.
    input_digest: bytes | None
    tokens_before: int | None
    scope: list[str]  # Item ids.


class ConfigPinned(TypedDict):
    """A configuration document that decisions of this session depend on."""

    meta: Meta
    kind: ConfigKind
    effective: Effective  # When it comes into force; NOW only before SessionStarted.
    name: str
    version: str | None
    supersedes: str | None  # Version that this one replaces.
    digest: bytes | None  # SHA-256 of the document.
    content: Blob | None


class ContextItemRetrieved(TypedDict):
    """What the model sees that came from no other event."""

    meta: Meta
    item_id: str
    source_uri: str | None
    content: Blob | None


class PackItem(TypedDict):
    item_id: str
    kind: PackItemKind
    mode: PackItemMode
    position: int  # Index in the pack that results, from 0.
    tokens: int | None
    digest: bytes | None
    compression_id: str | None


class PackDrop(TypedDict):
    item_id: str
    rule_id: str | None
    reason: str | None


class ContextPackBuilt(TypedDict):
    """What a model is about to be shown, as a difference to an earlier pack."""

    meta: Meta
    pack_id: str
    base_pack_id: str | None
    builder_version: str
    fits: bool  # False: LimitReached(CONTEXT) follows.
    token_total: int | None
    token_budget: int | None
    tokenizer: str | None
    template_digest: bytes | None
    tools_digest: bytes | None
    request_digest: bytes | None
    removed: list[str]  # Item ids of the base pack that are left out.
    added: list[PackItem]
    dropped: list[PackDrop]


class ErrorRecorded(TypedDict):
    """An error that ended nothing."""

    meta: Meta
    error: ErrorInfo


class FeedbackRecorded(TypedDict):
    """A person's or a program's opinion; allowed after the end."""

    meta: Meta
    kind: str
    value: str | None
    target: Ref | None  # Null: the session as a whole.
    comment: Blob | None


class AmendmentTarget(TypedDict):
    seq: int
    epoch: int
    hash: bytes
    prev_hash: bytes | None
    type: str


class HistoryAmended(TypedDict):
    """Control event outside the chain (seq 0): puts a stub in the place of each target."""

    meta: Meta
    request_id: str  # Equal in all chunks of one request and in the admin audit.
    action: AmendmentAction
    whole_session: bool  # True: targets is empty and everything of the session is meant.
    reason: str
    targets: list[AmendmentTarget]


class RequestedCall(TypedDict):
    tool_call_id: str
    name: str
    arguments_digest: bytes | None


class InferenceCompleted(TypedDict):
    """A model answered. The recorded artifact that replays rest on."""

    meta: Meta
    inference_id: str
    attempt: int  # From 1.
    complete: bool  # False: the response was cut off.
    cache: CacheUse
    usage: Usage
    cost_usd_micros: int | None
    latency_ms: int | None
    ttft_ms: int | None
    model: str | None
    response_id: str | None
    output_digest: bytes | None
    finish_reasons: list[str]
    tool_calls: list[RequestedCall]
    output: list[Part]
    raw: Blob | None  # The response as received.


class InferenceFailed(TypedDict):
    """A model gave no answer."""

    meta: Meta
    inference_id: str
    attempt: int  # From 1.
    http_status: int | None
    retry_after_ms: int | None
    error: ErrorInfo


class InferenceRequested(TypedDict):
    """A model is asked."""

    meta: Meta
    inference_id: str
    attempt: int  # From 1.
    purpose: InferencePurpose
    provider: str | None
    model: str | None
    pack_id: str | None
    subject_id: str | None  # What a COMPRESSION or VALIDATION is about.
    delay_ms: int | None
    request_digest: bytes | None
    tools_digest: bytes | None
    params: Blob | None


class InputProvided(TypedDict):
    """The answer to an InputRequested."""

    meta: Meta
    request_id: str
    outcome: InputOutcome
    content: Blob | None


class InputRequested(TypedDict):
    """A person is asked for input."""

    meta: Meta
    request_id: str
    ttl_ms: int | None
    on_expiry: str | None
    prompt: Blob | None
    schema: Blob | None


class LimitReached(TypedDict):
    """A limit of the session was reached. The two times follow a TimerFired."""

    meta: Meta
    limit: LimitKind
    action: LimitAction
    limit_value: str | None  # Decimal.
    observed: str | None  # Decimal.


class MessageReceived(TypedDict):
    """Somebody outside the session said something."""

    meta: Meta
    message_id: str
    role: MessageRole
    channel: str | None
    parts: list[Part]


class NondeterminismRecorded(TypedDict):
    """A value that a foreign harness read from outside. Written by importers only."""

    meta: Meta
    kind: NondeterminismKind
    key: str
    value: Blob | None


class NoteRecorded(TypedDict):
    """Anything worth keeping that no fold needs. Its meta.ignorable is always true."""

    meta: Meta
    kind: str
    data: Blob | None


class PolicyAnswered(TypedDict):
    """What a remote policy engine said; the PolicyEvaluated that follows cites it."""

    meta: Meta
    decision_id: str
    answer: Blob


class Obligation(TypedDict):
    ttl_ms: int | None
    on_expiry: OnExpiry
    to: list[list[str]]  # Whom to ask, one list an escalation step.


class PolicyEvaluated(TypedDict):
    """A policy was applied to something."""

    meta: Meta
    decision_id: str
    subject: PolicySubject
    subject_id: str | None
    decision: PolicyDecision
    engine: str | None
    policy_digest: bytes | None
    input_digest: bytes | None
    rule_ids: list[str]
    obligation: Obligation | None
    explanation: str | None
    input: Blob | None
    modified: Blob | None


class RetrievalRequested(TypedDict):
    """Something is to be fetched for the context."""

    meta: Meta
    item_id: str
    kind: RetrievalKind
    query: Blob | None


class SessionCancelled(TypedDict):
    """The session was ended from outside."""

    meta: Meta
    requested_by: str | None
    reason: str | None
    open_ops: list[str]  # Domain ids of the operations still open, sorted.


class SessionCompleted(TypedDict):
    """The session ended by itself."""

    meta: Meta
    outcome: SessionOutcome
    open_ops: list[str]  # Domain ids of the operations still open, sorted.
    result: Blob | None


class Label(TypedDict):
    key: str
    value: str


class SessionCreated(TypedDict):
    """A session begins. Always seq 1."""

    meta: Meta
    profile: Profile  # Which lifecycle rules hold.
    relation: Relation
    workflow_name: str
    parent_session: str | None
    parent_at: Ref | None  # Event of the parent session that this one goes out from.
    initial_state_digest: bytes | None
    labels: list[Label]  # Sorted by key.
    goal: Blob | None


class SessionFailed(TypedDict):
    """The session ended with an error."""

    meta: Meta
    open_ops: list[str]  # Domain ids of the operations still open, sorted.
    error: ErrorInfo


class SessionForked(TypedDict):
    """This session continues a prefix of another. Always seq 2; standing grants of the parent end here."""

    meta: Meta
    parent_session: str
    parent_at: Ref  # The event before a TurnStarted; its hash is never null.
    purpose: ForkPurpose


class SessionPaused(TypedDict):
    """The session waits."""

    meta: Meta
    by_limit: bool
    reason: str | None


class InFlight(TypedDict):
    kind: OperationKind
    resolution: Resolution
    id: str  # Domain id of the operation.


class SessionRecovered(TypedDict):
    """A writer took the session over; raises the epoch and settles every open operation."""

    meta: Meta
    last_good: Ref  # The event from which the writer goes on; its hash is never null.
    crashed_instance: str | None
    snapshot_id: str | None
    in_flight: list[InFlight]  # Every open operation, once, sorted by kind and id.


class SessionResumed(TypedDict):
    """A paused session goes on."""

    meta: Meta
    by_limit: bool
    reason: str | None


class SessionStarted(TypedDict):
    """The session is ready to work."""

    meta: Meta
    config_set_digest: bytes | None  # SHA-256 of the sorted kind:name:digest lines of what is pinned.
    clock_start: int | None  # The session's own notion of now.
    seed: int | None


class StageCancelled(TypedDict):
    """A stage attempt was stopped from outside."""

    meta: Meta
    stage_id: str
    reason: str | None


class StageCompleted(TypedDict):
    """A stage attempt succeeded."""

    meta: Meta
    stage_id: str
    outputs_digest: bytes | None
    outputs: Blob | None


class StageFailed(TypedDict):
    """A stage attempt failed."""

    meta: Meta
    stage_id: str
    error: ErrorInfo


class StageScheduled(TypedDict):
    """A stage attempt is to be worked on."""

    meta: Meta
    stage_id: str  # <stage name>.<attempt>
    stage_name: str
    attempt: int  # From 1.
    transition_id: str | None
    inputs_digest: bytes | None
    depends_on: list[str]


class StageSkipped(TypedDict):
    """A stage attempt will not be worked on."""

    meta: Meta
    stage_id: str
    reason: str | None


class StageStarted(TypedDict):
    """Work on a stage attempt began."""

    meta: Meta
    stage_id: str
    worker: str | None


class StatePatched(TypedDict):
    """A foreign harness changed its own state. Written by importers only."""

    meta: Meta
    namespace: str
    state_digest_after: bytes | None
    patch: Blob | None  # RFC 6902.


class SubSessionEnded(TypedDict):
    """A delegated session ended; closes the call that started it, no receipt beside it."""

    meta: Meta
    child_session: str
    tool_call_id: str | None  # The call whose ToolCallStarted names the child.
    outcome: SubSessionOutcome
    child_final_hash: bytes | None
    result: Blob | None


class TimerFired(TypedDict):
    """The only way wall time enters a session."""

    meta: Meta
    timer: str


class ToolCallAuthorized(TypedDict):
    """The call may run, and why."""

    meta: Meta
    tool_call_id: str
    basis: AuthorizationBasis
    decision_id: str | None
    approval_id: str | None
    effective_arguments_digest: bytes | None


class ToolCallFailed(TypedDict):
    """No receipt will come of this attempt."""

    meta: Meta
    tool_call_id: str
    attempt: int  # From 1.
    reason: ToolFailureReason
    not_started: bool  # True: it surely had no effect.
    error: ErrorInfo | None


class ToolCallRejected(TypedDict):
    """The call may not run, and why."""

    meta: Meta
    tool_call_id: str
    basis: RejectionBasis
    cites: str | None  # Domain id of the decision or approval.
    message: str | None


class ToolCallRequested(TypedDict):
    """A model wants a tool to run."""

    meta: Meta
    tool_call_id: str  # Domain id, ours.
    name: str
    effect: ToolEffect
    risk: Risk
    inference_id: str | None
    native_call_id: str | None  # The provider's id of the call; may repeat.
    tool_version: str | None
    arguments_digest: bytes | None  # SHA-256 of the bytes received.
    arguments: Blob | None


class ToolCallStarted(TypedDict):
    """The tool is about to run: written before, so that a crash is visible."""

    meta: Meta
    tool_call_id: str
    attempt: int  # From 1.
    executor: str | None
    sandbox: str | None
    idempotency_key: str | None
    child_session: str | None


class Truncation(TypedDict):
    original_bytes: int | None
    kept_bytes: int


class ExternalId(TypedDict):
    key: str
    value: str


class SideEffect(TypedDict):
    kind: str
    resource: str
    before: bytes | None
    after: bytes | None


class ToolReceiptRecorded(TypedDict):
    """The tool ran and this came back; ERROR: it ran and said so."""

    meta: Meta
    tool_call_id: str
    attempt: int  # From 1.
    status: ReceiptStatus
    receipt_id: str
    simulated: bool
    exit_code: int | None
    started_at: int | None
    ended_at: int | None
    result_digest: bytes | None  # SHA-256 of the bytes received.
    truncated: Truncation | None
    external_ids: list[ExternalId]
    side_effects: list[SideEffect]
    result: Blob | None


class ToolRetryDecided(TypedDict):
    """What follows from a failed attempt."""

    meta: Meta
    tool_call_id: str
    attempt: int  # The attempt that failed.
    retry: bool
    delay_ms: int | None


class GuardInput(TypedDict):
    name: str
    digest: bytes


class TransitionTaken(TypedDict):
    """The workflow moved to another stage."""

    meta: Meta
    transition_id: str | None
    from_stage: str | None
    to_stage: str
    guard_id: str | None
    guard_result: bool | None
    candidates: list[str]
    guard_inputs: list[GuardInput]


class TurnAborted(TypedDict):
    """An agent's turn was ended early."""

    meta: Meta
    turn_id: str
    reason: TurnAbortReason


class TurnCompleted(TypedDict):
    """An agent's turn ended by itself."""

    meta: Meta
    turn_id: str


class TurnStarted(TypedDict):
    """An agent's turn began."""

    meta: Meta
    turn_id: str  # <stage id>/t<n>
    agent: str | None


class ValidationAmended(TypedDict):
    """A verdict was corrected; allowed after the end."""

    meta: Meta
    validation_id: str
    verdict: Verdict
    replaces: Ref | None
    score: str | None  # Decimal.
    reason: str | None
    provenance: str | None


class Finding(TypedDict):
    code: str
    severity: str
    location: str | None
    message: str


class ValidationDecided(TypedDict):
    """Pass or reject; changed only by ValidationAmended."""

    meta: Meta
    validation_id: str
    basis: ValidationBasis
    verdict: Verdict
    intermediate: bool
    score: str | None  # Decimal.
    label: str | None
    inference_id: str | None
    findings: list[Finding]
    evidence: list[Blob]


class ValidationRequested(TypedDict):
    """Something is to be judged."""

    meta: Meta
    validation_id: str
    validator: str
    validator_version: str | None
    target_id: str | None  # Domain id of what is validated.
    target_digest: bytes | None
    validator_digest: bytes | None
    criteria_digest: bytes | None
    target: Ref | None  # Recordings of others only; a decision names its target by domain id.


class VerdictReported(TypedDict):
    """A person's or a test run's verdict."""

    meta: Meta
    validation_id: str
    verdict: Verdict
    score: str | None  # Decimal.
    label: str | None
    evidence: list[Blob]

"""The lifecycle as data: which events may come when, and how each moves its operation. Pure.

Rule ids are those of ``schemas/README.md``, section "Lifecycle". E, S, I, U, V and pairing (P1: what opens an operation
does so once; P2: what goes on with it or ends it finds it open; K2 for compressions) are judged here. E1: a control
event stands outside the chain. F1: in STRICT, the digests, times and ids that a recording may leave out are there. Not
judged, because it would need an index of all events: whether ``causation_id`` names an event on the path.
"""

from __future__ import annotations

from typing import NamedTuple

from dalsegno.model.lifecycle import state as s


class Step(NamedTuple):
    """How an event moves one operation: found in a phase of ``before``, left in ``after``; else ``rule`` is broken."""

    kind: str
    id_field: str
    before: frozenset[str]
    after: str
    rule: str


def _step(kind: str, id_field: str, before: tuple[str, ...], after: str, rule: str) -> Step:
    return Step(kind, id_field, frozenset(before), after, rule)


_NEW = (s.ABSENT,)
_OPEN = (s.OPEN,)
_ENDED_INFERENCE = (s.ABSENT, s.DONE, s.ATTEMPT_FAILED)
_STAGE_OPEN = (s.SCHEDULED, s.ACTIVE)

STEPS: dict[str, Step] = {
    "InferenceRequested": _step(s.INFERENCE, "inference_id", _ENDED_INFERENCE, s.OPEN, "I1"),
    "InferenceCompleted": _step(s.INFERENCE, "inference_id", _OPEN, s.DONE, "I2"),
    "InferenceFailed": _step(s.INFERENCE, "inference_id", _OPEN, s.ATTEMPT_FAILED, "I2"),
    "ToolCallRequested": _step(s.TOOL, "tool_call_id", _NEW, s.REQUESTED, "P1"),
    "ToolCallAuthorized": _step(s.TOOL, "tool_call_id", (s.REQUESTED,), s.AUTHORIZED, "U2"),
    "ToolCallRejected": _step(s.TOOL, "tool_call_id", (s.REQUESTED,), s.REJECTED, "U2"),
    "ToolCallStarted": _step(s.TOOL, "tool_call_id", (s.AUTHORIZED, s.ATTEMPT_FAILED, s.UNRESOLVED), s.STARTED, "U3"),
    "ToolRetryDecided": _step(s.TOOL, "tool_call_id", (s.ATTEMPT_FAILED, s.UNRESOLVED), s.AUTHORIZED, "P2"),
    # The first receipt of any attempt closes the call, even where a failure of that attempt was recorded before.
    "ToolReceiptRecorded": _step(
        s.TOOL, "tool_call_id", (s.STARTED, s.UNRESOLVED, s.AUTHORIZED, s.ATTEMPT_FAILED), s.DONE, "U4"
    ),
    "ToolCallFailed": _step(s.TOOL, "tool_call_id", (s.STARTED, s.AUTHORIZED), s.ATTEMPT_FAILED, "U4"),
    "SubSessionEnded": _step(s.TOOL, "tool_call_id", (s.STARTED, s.UNRESOLVED, s.ATTEMPT_FAILED), s.DONE, "U4"),
    "ApprovalRequested": _step(s.APPROVAL, "approval_id", _NEW, s.OPEN, "P1"),
    "ApprovalGranted": _step(s.APPROVAL, "approval_id", _OPEN, s.GRANTED, "P2"),
    "ApprovalDenied": _step(s.APPROVAL, "approval_id", _OPEN, s.DENIED, "P2"),
    "ApprovalExpired": _step(s.APPROVAL, "approval_id", _OPEN, s.EXPIRED, "P2"),
    "ApprovalWithdrawn": _step(s.APPROVAL, "approval_id", _OPEN, s.WITHDRAWN, "P2"),
    "InputRequested": _step(s.INPUT, "request_id", _NEW, s.OPEN, "P1"),
    "InputProvided": _step(s.INPUT, "request_id", _OPEN, s.DONE, "P2"),
    "RetrievalRequested": _step(s.RETRIEVAL, "item_id", _NEW, s.OPEN, "P1"),
    "ContextItemRetrieved": _step(s.RETRIEVAL, "item_id", _OPEN, s.DONE, "P2"),
    "CompressionStarted": _step(s.COMPRESSION, "compression_id", _NEW, s.OPEN, "P1"),
    # Only a compression that asks a model is started by an event of its own.
    "CompressionCompleted": _step(s.COMPRESSION, "compression_id", (s.ABSENT, s.OPEN), s.DONE, "K2"),
    "CompressionFailed": _step(s.COMPRESSION, "compression_id", _OPEN, s.ATTEMPT_FAILED, "K2"),
    "ValidationRequested": _step(s.VALIDATION, "validation_id", _NEW, s.OPEN, "P1"),
    "VerdictReported": _step(s.VALIDATION, "validation_id", _OPEN, s.OPEN, "P2"),
    "ValidationDecided": _step(s.VALIDATION, "validation_id", _OPEN, s.DONE, "V2"),
    "ValidationAmended": _step(s.VALIDATION, "validation_id", (s.DONE,), s.DONE, "P2"),
    "TurnStarted": _step(s.TURN, "turn_id", _NEW, s.OPEN, "P1"),
    "TurnCompleted": _step(s.TURN, "turn_id", _OPEN, s.DONE, "P2"),
    "TurnAborted": _step(s.TURN, "turn_id", _OPEN, s.DONE, "P2"),
    "StageScheduled": _step(s.STAGE, "stage_id", _NEW, s.SCHEDULED, "P1"),
    "StageStarted": _step(s.STAGE, "stage_id", (s.SCHEDULED,), s.ACTIVE, "P2"),
    "StageCompleted": _step(s.STAGE, "stage_id", (s.ACTIVE,), s.DONE, "P2"),
    "StageFailed": _step(s.STAGE, "stage_id", _STAGE_OPEN, s.ATTEMPT_FAILED, "P2"),
    "StageSkipped": _step(s.STAGE, "stage_id", _STAGE_OPEN, s.DONE, "P2"),
    "StageCancelled": _step(s.STAGE, "stage_id", _STAGE_OPEN, s.DONE, "P2"),
    "PolicyEvaluated": _step(s.DECISION, "decision_id", _NEW, s.KNOWN, "P1"),
    "ContextPackBuilt": _step(s.PACK, "pack_id", _NEW, s.KNOWN, "P1"),
    "ArtifactRecorded": _step(s.ARTIFACT, "artifact_id", (s.ABSENT, s.KNOWN), s.KNOWN, "P1"),
    "MessageReceived": _step(s.MESSAGE, "message_id", (s.ABSENT, s.KNOWN), s.KNOWN, "P1"),
}

ALONE_IN_IMPORTS = frozenset({"ContextItemRetrieved", "VerdictReported"})
"""May come without the event that asks for them where the profile is IMPORTED."""

# --- the session's own states ---------------------------------------------------------------------------------------

STATUS_AFTER = {
    "SessionCreated": s.CREATED,
    "SessionStarted": s.RUNNING,
    "SessionPaused": s.PAUSED,
    "SessionResumed": s.RUNNING,
    "SessionCompleted": s.COMPLETED,
    "SessionFailed": s.FAILED,
    "SessionCancelled": s.CANCELLED,
}

STATUS_BEFORE: dict[str, tuple[frozenset[str], str]] = {
    "SessionStarted": (frozenset({s.CREATED}), "S2"),
    "SessionPaused": (frozenset({s.RUNNING}), "P1"),
    "SessionResumed": (frozenset({s.PAUSED}), "P2"),
}
"""What the session's state must be, and the rule that is broken else."""

BEFORE_START = frozenset(
    {"SessionStarted", "ConfigPinned", "SessionForked", "SessionRecovered", "NoteRecorded", "MessageReceived"}
)
"""S3: all that may stand between SessionCreated and SessionStarted."""

AFTER_END = frozenset(
    {
        "ValidationRequested", "ValidationDecided", "ValidationAmended", "VerdictReported", "FeedbackRecorded",
        "NoteRecorded", "ArtifactRecorded", "SessionRecovered",
    }
)  # fmt: skip
"""S4: all that may stand after the session's end, besides RESULTS_AFTER_END."""

RESULTS_AFTER_END = frozenset({"ToolReceiptRecorded", "SubSessionEnded"})
"""S4: results of calls that were open at the session's end."""

PINNED_AT_START = frozenset(
    {
        "WORKFLOW", "POLICY", "COMPRESSION_RULES", "TOOL_CATALOG", "HARNESS_BUILD", "PROMPT_TEMPLATE", "TOKENIZER",
        "VALIDATORS",
    }
)  # fmt: skip
"""S2: kinds of configuration without which a session may not start; an explicit empty document counts."""

CONFIG_KINDS = PINNED_AT_START | {"MODEL_PARAMS", "REDACTION"}

# --- recovery -------------------------------------------------------------------------------------------------------

RESOLUTIONS = frozenset({"RETRY", "FAILED", "AWAIT_RECEIPT", "UNKNOWN_OUTCOME", "ABANDONED", "KEEP_WAITING"})

_GIVES_UP = ("FAILED", "ABANDONED")

RECOVERED_PHASE: dict[tuple[str, str, str], str] = {
    # An inference is asked anew; nobody will ever hand in the answer of the lost attempt.
    **{(s.INFERENCE, s.OPEN, how): s.ATTEMPT_FAILED for how in ("RETRY", "UNKNOWN_OUTCOME", *_GIVES_UP)},
    (s.TOOL, s.STARTED, "RETRY"): s.AUTHORIZED,
    (s.TOOL, s.UNRESOLVED, "RETRY"): s.AUTHORIZED,
    (s.TOOL, s.STARTED, "AWAIT_RECEIPT"): s.UNRESOLVED,
    (s.TOOL, s.STARTED, "UNKNOWN_OUTCOME"): s.UNRESOLVED,
    **{
        (s.TOOL, phase, how): s.GIVEN_UP
        for phase in (s.REQUESTED, s.AUTHORIZED, s.STARTED, s.UNRESOLVED)
        for how in _GIVES_UP
    },
    **{(s.APPROVAL, s.OPEN, how): s.WITHDRAWN for how in _GIVES_UP},
    **{
        (kind, s.OPEN, how): s.GIVEN_UP
        for kind in (s.INPUT, s.RETRIEVAL, s.COMPRESSION, s.VALIDATION)
        for how in _GIVES_UP
    },
}
"""(kind, phase, resolution) -> phase after a recovery; what is not named stays as it is."""

# --- profiles -------------------------------------------------------------------------------------------------------

STRICT = "STRICT"
OBSERVED = "OBSERVED"
IMPORTED = "IMPORTED"

_HOLD_ALWAYS = frozenset({"E1", "E5", "S1", "S3", "S4", "S5", "S6", "I2", "K2", "U1", "U3", "U4", "V2"})

HOLDING: dict[str, frozenset[str]] = {OBSERVED: _HOLD_ALWAYS, IMPORTED: _HOLD_ALWAYS}
"""Rules whose breach is a violation; the others' is a finding. A profile that is not named here holds all of them."""

REQUIRED_IN_STRICT: dict[str, tuple[str, ...]] = {
    "ApprovalRequested": ("decision_id", "arguments_digest"),
    "ApprovalGranted": ("arguments_digest",),
    "CompressionStarted": ("rule_id", "rule_digest", "input_digest"),
    "CompressionCompleted": ("rule_id", "rule_digest", "input_digest", "output_digest"),
    "ConfigPinned": ("version", "digest"),
    "ContextPackBuilt": ("template_digest", "request_digest"),
    "InferenceRequested": ("provider", "model", "request_digest"),
    "InferenceCompleted": ("model", "output_digest"),
    "PolicyEvaluated": ("subject_id", "policy_digest", "input_digest", "engine"),
    "SessionStarted": ("clock_start",),
    "StageScheduled": ("inputs_digest",),
    "StageCompleted": ("outputs_digest",),
    "SubSessionEnded": ("child_final_hash",),
    "ToolCallRequested": ("arguments_digest",),
    "ToolCallAuthorized": ("effective_arguments_digest",),
    "ToolReceiptRecorded": ("result_digest", "started_at", "ended_at"),
    "ValidationRequested": ("validator_version", "validator_digest", "criteria_digest", "target_id"),
}
"""F1: fields that only a recording of another harness may leave out."""

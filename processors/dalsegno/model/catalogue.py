"""The table of event types.

Generated from the .avsc files by schemas/generate.py; change those and run it again.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple


class EventType(NamedTuple):
    """What is true of all events of one type."""

    name: str
    version: int
    """The newest version that this build knows."""
    cls: Literal["X", "D", "L", "C"]
    """X a fact from outside, D a decision, L an intent or frame, C a control event."""
    ignorable: bool
    """True: events of this type always say ``meta.ignorable``."""
    fields: frozenset[str]
    """Names of the fields of the newest version, ``meta`` among them."""


CATALOGUE: Final[dict[str, EventType]] = {
    "ApprovalDenied": EventType(
        "ApprovalDenied",
        1,
        "X",
        False,
        frozenset({"meta", "approval_id", "effect", "rejection_source", "explanation"}),
    ),
    "ApprovalExpired": EventType("ApprovalExpired", 1, "X", False, frozenset({"meta", "approval_id"})),
    "ApprovalGranted": EventType(
        "ApprovalGranted",
        1,
        "X",
        False,
        frozenset({"meta", "approval_id", "scope", "arguments_digest", "explanation", "modified_arguments"}),
    ),
    "ApprovalRequested": EventType(
        "ApprovalRequested",
        1,
        "D",
        False,
        frozenset(
            {
                "meta",
                "approval_id",
                "subject",
                "subject_id",
                "decision_id",
                "arguments_digest",
                "ttl_ms",
                "on_expiry",
                "escalated_from",
                "addressed_to",
                "options",
                "view",
            }
        ),
    ),
    "ApprovalWithdrawn": EventType("ApprovalWithdrawn", 1, "D", False, frozenset({"meta", "approval_id", "reason"})),
    "ArtifactRecorded": EventType(
        "ArtifactRecorded",
        1,
        "X",
        False,
        frozenset({"meta", "artifact_id", "path", "produced_by", "blob"}),
    ),
    "CancelRequested": EventType("CancelRequested", 1, "X", False, frozenset({"meta", "requested_by", "reason"})),
    "CheckpointMarked": EventType(
        "CheckpointMarked",
        1,
        "L",
        False,
        frozenset({"meta", "checkpoint_id", "kind", "state_digests"}),
    ),
    "CompressionCompleted": EventType(
        "CompressionCompleted",
        1,
        "D",
        False,
        frozenset(
            {
                "meta",
                "compression_id",
                "method",
                "effect",
                "rule_id",
                "rule_digest",
                "input_digest",
                "output_digest",
                "inference_id",
                "prev_compression_id",
                "window_number",
                "insert_at",
                "tokens_before",
                "tokens_after",
                "forgotten",
                "summary",
                "replacement",
            }
        ),
    ),
    "CompressionFailed": EventType("CompressionFailed", 1, "D", False, frozenset({"meta", "compression_id", "error"})),
    "CompressionStarted": EventType(
        "CompressionStarted",
        1,
        "D",
        False,
        frozenset(
            {"meta", "compression_id", "trigger", "rule_id", "rule_digest", "input_digest", "tokens_before", "scope"}
        ),
    ),
    "ConfigPinned": EventType(
        "ConfigPinned",
        1,
        "X",
        False,
        frozenset({"meta", "kind", "effective", "name", "version", "supersedes", "digest", "content"}),
    ),
    "ContextItemRetrieved": EventType(
        "ContextItemRetrieved",
        1,
        "X",
        False,
        frozenset({"meta", "item_id", "source_uri", "content"}),
    ),
    "ContextPackBuilt": EventType(
        "ContextPackBuilt",
        1,
        "D",
        False,
        frozenset(
            {
                "meta",
                "pack_id",
                "base_pack_id",
                "builder_version",
                "fits",
                "token_total",
                "token_budget",
                "tokenizer",
                "template_digest",
                "tools_digest",
                "request_digest",
                "removed",
                "added",
                "dropped",
            }
        ),
    ),
    "ErrorRecorded": EventType("ErrorRecorded", 1, "X", False, frozenset({"meta", "error"})),
    "FeedbackRecorded": EventType(
        "FeedbackRecorded",
        1,
        "X",
        False,
        frozenset({"meta", "kind", "value", "target", "comment"}),
    ),
    "HistoryAmended": EventType(
        "HistoryAmended",
        1,
        "C",
        False,
        frozenset({"meta", "request_id", "action", "whole_session", "reason", "targets"}),
    ),
    "InferenceCompleted": EventType(
        "InferenceCompleted",
        1,
        "X",
        False,
        frozenset(
            {
                "meta",
                "inference_id",
                "attempt",
                "complete",
                "cache",
                "usage",
                "cost_usd_micros",
                "latency_ms",
                "ttft_ms",
                "model",
                "response_id",
                "output_digest",
                "finish_reasons",
                "tool_calls",
                "output",
                "raw",
            }
        ),
    ),
    "InferenceFailed": EventType(
        "InferenceFailed",
        1,
        "X",
        False,
        frozenset({"meta", "inference_id", "attempt", "http_status", "retry_after_ms", "error"}),
    ),
    "InferenceRequested": EventType(
        "InferenceRequested",
        1,
        "D",
        False,
        frozenset(
            {
                "meta",
                "inference_id",
                "attempt",
                "purpose",
                "provider",
                "model",
                "pack_id",
                "subject_id",
                "delay_ms",
                "request_digest",
                "tools_digest",
                "params",
            }
        ),
    ),
    "InputProvided": EventType("InputProvided", 1, "X", False, frozenset({"meta", "request_id", "outcome", "content"})),
    "InputRequested": EventType(
        "InputRequested",
        1,
        "D",
        False,
        frozenset({"meta", "request_id", "ttl_ms", "on_expiry", "prompt", "schema"}),
    ),
    "LimitReached": EventType(
        "LimitReached",
        1,
        "D",
        False,
        frozenset({"meta", "limit", "action", "limit_value", "observed"}),
    ),
    "MessageReceived": EventType(
        "MessageReceived",
        1,
        "X",
        False,
        frozenset({"meta", "message_id", "role", "channel", "parts"}),
    ),
    "NondeterminismRecorded": EventType(
        "NondeterminismRecorded",
        1,
        "X",
        False,
        frozenset({"meta", "kind", "key", "value"}),
    ),
    "NoteRecorded": EventType("NoteRecorded", 1, "X", True, frozenset({"meta", "kind", "data"})),
    "PolicyAnswered": EventType("PolicyAnswered", 1, "X", False, frozenset({"meta", "decision_id", "answer"})),
    "PolicyEvaluated": EventType(
        "PolicyEvaluated",
        1,
        "D",
        False,
        frozenset(
            {
                "meta",
                "decision_id",
                "subject",
                "subject_id",
                "decision",
                "engine",
                "policy_digest",
                "input_digest",
                "rule_ids",
                "obligation",
                "explanation",
                "input",
                "modified",
            }
        ),
    ),
    "RetrievalRequested": EventType(
        "RetrievalRequested",
        1,
        "D",
        False,
        frozenset({"meta", "item_id", "kind", "query"}),
    ),
    "SessionCancelled": EventType(
        "SessionCancelled",
        1,
        "D",
        False,
        frozenset({"meta", "requested_by", "reason", "open_ops"}),
    ),
    "SessionCompleted": EventType(
        "SessionCompleted",
        1,
        "D",
        False,
        frozenset({"meta", "outcome", "open_ops", "result"}),
    ),
    "SessionCreated": EventType(
        "SessionCreated",
        1,
        "L",
        False,
        frozenset(
            {
                "meta",
                "profile",
                "relation",
                "workflow_name",
                "parent_session",
                "parent_at",
                "initial_state_digest",
                "labels",
                "goal",
            }
        ),
    ),
    "SessionFailed": EventType("SessionFailed", 1, "D", False, frozenset({"meta", "open_ops", "error"})),
    "SessionForked": EventType(
        "SessionForked",
        1,
        "L",
        False,
        frozenset({"meta", "parent_session", "parent_at", "purpose"}),
    ),
    "SessionPaused": EventType("SessionPaused", 1, "L", False, frozenset({"meta", "by_limit", "reason"})),
    "SessionRecovered": EventType(
        "SessionRecovered",
        1,
        "L",
        False,
        frozenset({"meta", "last_good", "crashed_instance", "snapshot_id", "in_flight"}),
    ),
    "SessionResumed": EventType("SessionResumed", 1, "L", False, frozenset({"meta", "by_limit", "reason"})),
    "SessionStarted": EventType(
        "SessionStarted",
        1,
        "L",
        False,
        frozenset({"meta", "config_set_digest", "clock_start", "seed"}),
    ),
    "StageCancelled": EventType("StageCancelled", 1, "D", False, frozenset({"meta", "stage_id", "reason"})),
    "StageCompleted": EventType(
        "StageCompleted",
        1,
        "D",
        False,
        frozenset({"meta", "stage_id", "outputs_digest", "outputs"}),
    ),
    "StageFailed": EventType("StageFailed", 1, "D", False, frozenset({"meta", "stage_id", "error"})),
    "StageScheduled": EventType(
        "StageScheduled",
        1,
        "D",
        False,
        frozenset({"meta", "stage_id", "stage_name", "attempt", "transition_id", "inputs_digest", "depends_on"}),
    ),
    "StageSkipped": EventType("StageSkipped", 1, "D", False, frozenset({"meta", "stage_id", "reason"})),
    "StageStarted": EventType("StageStarted", 1, "L", False, frozenset({"meta", "stage_id", "worker"})),
    "StatePatched": EventType(
        "StatePatched",
        1,
        "X",
        False,
        frozenset({"meta", "namespace", "state_digest_after", "patch"}),
    ),
    "SubSessionEnded": EventType(
        "SubSessionEnded",
        1,
        "X",
        False,
        frozenset({"meta", "child_session", "tool_call_id", "outcome", "child_final_hash", "result"}),
    ),
    "TimerFired": EventType("TimerFired", 1, "X", False, frozenset({"meta", "timer"})),
    "ToolCallAuthorized": EventType(
        "ToolCallAuthorized",
        1,
        "D",
        False,
        frozenset({"meta", "tool_call_id", "basis", "decision_id", "approval_id", "effective_arguments_digest"}),
    ),
    "ToolCallFailed": EventType(
        "ToolCallFailed",
        1,
        "X",
        False,
        frozenset({"meta", "tool_call_id", "attempt", "reason", "not_started", "error"}),
    ),
    "ToolCallRejected": EventType(
        "ToolCallRejected",
        1,
        "D",
        False,
        frozenset({"meta", "tool_call_id", "basis", "cites", "message"}),
    ),
    "ToolCallRequested": EventType(
        "ToolCallRequested",
        1,
        "D",
        False,
        frozenset(
            {
                "meta",
                "tool_call_id",
                "name",
                "effect",
                "risk",
                "inference_id",
                "native_call_id",
                "tool_version",
                "arguments_digest",
                "arguments",
            }
        ),
    ),
    "ToolCallStarted": EventType(
        "ToolCallStarted",
        1,
        "L",
        False,
        frozenset({"meta", "tool_call_id", "attempt", "executor", "sandbox", "idempotency_key", "child_session"}),
    ),
    "ToolReceiptRecorded": EventType(
        "ToolReceiptRecorded",
        1,
        "X",
        False,
        frozenset(
            {
                "meta",
                "tool_call_id",
                "attempt",
                "status",
                "receipt_id",
                "simulated",
                "exit_code",
                "started_at",
                "ended_at",
                "result_digest",
                "truncated",
                "external_ids",
                "side_effects",
                "result",
            }
        ),
    ),
    "ToolRetryDecided": EventType(
        "ToolRetryDecided",
        1,
        "D",
        False,
        frozenset({"meta", "tool_call_id", "attempt", "retry", "delay_ms"}),
    ),
    "TransitionTaken": EventType(
        "TransitionTaken",
        1,
        "D",
        False,
        frozenset(
            {
                "meta",
                "transition_id",
                "from_stage",
                "to_stage",
                "guard_id",
                "guard_result",
                "candidates",
                "guard_inputs",
            }
        ),
    ),
    "TurnAborted": EventType("TurnAborted", 1, "D", False, frozenset({"meta", "turn_id", "reason"})),
    "TurnCompleted": EventType("TurnCompleted", 1, "D", False, frozenset({"meta", "turn_id"})),
    "TurnStarted": EventType("TurnStarted", 1, "D", False, frozenset({"meta", "turn_id", "agent"})),
    "ValidationAmended": EventType(
        "ValidationAmended",
        1,
        "X",
        False,
        frozenset({"meta", "validation_id", "verdict", "replaces", "score", "reason", "provenance"}),
    ),
    "ValidationDecided": EventType(
        "ValidationDecided",
        1,
        "D",
        False,
        frozenset(
            {
                "meta",
                "validation_id",
                "basis",
                "verdict",
                "intermediate",
                "score",
                "label",
                "inference_id",
                "findings",
                "evidence",
            }
        ),
    ),
    "ValidationRequested": EventType(
        "ValidationRequested",
        1,
        "D",
        False,
        frozenset(
            {
                "meta",
                "validation_id",
                "validator",
                "validator_version",
                "target_id",
                "target_digest",
                "validator_digest",
                "criteria_digest",
                "target",
            }
        ),
    ),
    "VerdictReported": EventType(
        "VerdictReported",
        1,
        "X",
        False,
        frozenset({"meta", "validation_id", "verdict", "score", "label", "evidence"}),
    ),
}

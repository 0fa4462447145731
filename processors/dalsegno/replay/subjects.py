"""What an event of a decider's session is about: the subject by which decisions of two runs are compared. Pure."""

from __future__ import annotations

from typing import Final

from dalsegno.model.records import Event

FIELD: Final[dict[str, str]] = {
    "LimitReached": "limit",
    "TransitionTaken": "from_stage",
    "StageScheduled": "stage_id",
    "StageCompleted": "stage_id",
    "StageFailed": "stage_id",
    "StageSkipped": "stage_id",
    "StageCancelled": "stage_id",
    "TurnStarted": "turn_id",
    "TurnCompleted": "turn_id",
    "TurnAborted": "turn_id",
    "RetrievalRequested": "item_id",
    "InputRequested": "request_id",
    "CompressionStarted": "compression_id",
    "CompressionCompleted": "compression_id",
    "CompressionFailed": "compression_id",
    "ContextPackBuilt": "pack_id",
    "InferenceRequested": "inference_id",
    "ToolCallRequested": "tool_call_id",
    "PolicyEvaluated": "decision_id",
    "ApprovalRequested": "approval_id",
    "ApprovalWithdrawn": "approval_id",
    "ToolCallAuthorized": "tool_call_id",
    "ToolCallRejected": "tool_call_id",
    "ToolRetryDecided": "tool_call_id",
    "ValidationRequested": "validation_id",
    "ValidationDecided": "validation_id",
    "SessionCompleted": "",
    "SessionFailed": "",
    "SessionCancelled": "",
}
"""Of each type of decision, the field that holds its subject; "" where it is about the session."""


def subject(event: Event) -> str:
    """The subject of a decision, as ``Due.subject``."""
    field = FIELD.get(event.type)
    return (event.body[field] or "") if field else ""

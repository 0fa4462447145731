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


FACT: Final[dict[str, str]] = {
    "StageStarted": "stage_id",
    "ToolCallStarted": "tool_call_id",
    "InferenceCompleted": "inference_id",
    "InferenceFailed": "inference_id",
    "ToolReceiptRecorded": "tool_call_id",
    "ToolCallFailed": "tool_call_id",
    "SubSessionEnded": "tool_call_id",
    "ApprovalGranted": "approval_id",
    "ApprovalDenied": "approval_id",
    "ApprovalExpired": "approval_id",
    "InputProvided": "request_id",
    "ContextItemRetrieved": "item_id",
    "VerdictReported": "validation_id",
}
"""Of each type of fact that something was waiting for, the field that holds what was waited for."""
BEGINNINGS: Final = frozenset({"StageStarted", "ToolCallStarted"})
"""That something was begun: waited for as a fact is, and no answer to anything."""


def subject(event: Event) -> str:
    """The subject of a decision, as ``Due.subject``."""
    field = FIELD.get(event.type)
    return (event.body[field] or "") if field else ""


def fact_subject(event: Event) -> str:
    """What such a fact answers, or begins."""
    return event.body[FACT[event.type]] or ""


def identity(event: Event) -> tuple[str, str] | None:
    """What two runs of the same session have in common with this event: a decision by its type and subject; a fact by
    what it answers, however it does. None: of what comes by itself, and of the session's frame."""
    if event.type in FIELD:
        return event.type, subject(event)
    if event.type in FACT:
        return event.type if event.type in BEGINNINGS else FACT[event.type], fact_subject(event)
    return None

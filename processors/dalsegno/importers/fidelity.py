"""What imported sessions cannot say, and which replays they allow in consequence. Pure.

Both follow from the events alone, so that every format is measured by the same rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from dalsegno.model.events import (
    CompressionCompleted,
    InferenceCompleted,
    InferenceFailed,
    InferenceRequested,
    NewEvent,
    SessionCancelled,
    SessionCompleted,
    SessionFailed,
    SessionStarted,
    SubSessionEnded,
    ToolCallAuthorized,
    ToolCallFailed,
    ToolCallRejected,
    ToolCallRequested,
    ToolReceiptRecorded,
    Usage,
)

REQUEST = "what a model was asked"
ANSWER = "what a model answered"
TOKENS = "tokens of a model call"
COST = "cost of a model call"
LEAVE = "who let a tool call run"
OUTCOME = "what became of a tool call"
COMPRESSION = "what a compression did"
TIME = "when an event happened"
START = "when a session began"
END = "how a session ended"

_ENDS = (SessionCompleted, SessionFailed, SessionCancelled)


def lacks_of(events: Iterable[NewEvent]) -> Counter[str]:
    """What one whole session does not say, with how often."""
    lacks: Counter[str] = Counter()
    inferences: set[tuple[str, int]] = set()
    calls: set[str] = set()
    ended = False
    for event in events:
        if isinstance(event, SessionStarted):
            lacks[START] += event.clock_start is None
        elif isinstance(event, InferenceRequested):
            inferences.add((event.inference_id, event.attempt))
            lacks[REQUEST] += event.request_digest is None
        elif isinstance(event, InferenceCompleted):
            inferences.discard((event.inference_id, event.attempt))
            lacks[TOKENS] += event.usage == Usage()
            lacks[COST] += event.cost_usd_micros is None
        elif isinstance(event, InferenceFailed):
            inferences.discard((event.inference_id, event.attempt))
        elif isinstance(event, ToolCallRequested):
            calls.add(event.tool_call_id)
        elif isinstance(event, ToolCallAuthorized):
            lacks[LEAVE] += event.basis == "UNRECORDED_IMPORT"
        elif isinstance(event, ToolReceiptRecorded | ToolCallFailed | ToolCallRejected):
            calls.discard(event.tool_call_id)
        elif isinstance(event, SubSessionEnded):
            calls.discard(event.tool_call_id or "")
        elif isinstance(event, CompressionCompleted):
            lacks[COMPRESSION] += event.effect == "MARKER_ONLY"
        elif isinstance(event, _ENDS):
            ended = True
    lacks[ANSWER], lacks[OUTCOME], lacks[END] = len(inferences), len(calls), 0 if ended else 1
    return +lacks


def replay_modes(events: Mapping[str, int], lacks: Mapping[str, int]) -> dict[str, str]:
    """For each replay mode whether the sessions with these events allow it, and why not."""
    inferences = events.get("InferenceRequested", 0)
    unanswered = lacks.get(ANSWER, 0)
    if not inferences:
        skipping = "nothing to skip: the recording holds no model calls"
    elif unanswered:
        skipping = f"up to the first of {unanswered} model calls without a recorded answer"
    else:
        skipping = "yes: payloads of decisions are compared where their inputs were recorded"
    marked = lacks.get(COMPRESSION, 0)
    packs = events.get("ContextPackBuilt", 0)
    full = "yes" if packs else "recorded results only: the log holds no context packs to ask a model with"
    if marked:
        full += f"; across {marked} compressions the context is not reconstructable"
    return {
        "projection-only": "yes",
        "inference-skipping": skipping,
        "full": full,
        "simulation": "not comparable: workflow and policies of the recording are not ours",
    }

"""What sessions lack and which replays they allow follows from their events."""

from __future__ import annotations

from collections import Counter

from dalsegno.importers.fidelity import (
    ANSWER,
    COMPRESSION,
    COST,
    END,
    LEAVE,
    OUTCOME,
    REQUEST,
    START,
    TOKENS,
    lacks_of,
    replay_modes,
)
from dalsegno.model.events import (
    CompressionCompleted,
    ErrorInfo,
    InferenceCompleted,
    InferenceFailed,
    InferenceRequested,
    SessionCompleted,
    SessionStarted,
    SubSessionEnded,
    ToolCallAuthorized,
    ToolCallRequested,
    ToolReceiptRecorded,
    Usage,
)

DIGEST = bytes(32)


def test_a_session_that_says_all_lacks_nothing() -> None:
    events = [
        SessionStarted(clock_start=5),
        InferenceRequested(inference_id="i", purpose="AGENT", request_digest=DIGEST),
        InferenceCompleted(inference_id="i", usage=Usage(input=1), cost_usd_micros=0),
        ToolCallRequested(tool_call_id="c", name="f"),
        ToolCallAuthorized(tool_call_id="c", basis="POLICY_ALLOW"),
        ToolReceiptRecorded(tool_call_id="c", status="OK", receipt_id="r"),
        SessionCompleted(outcome="SUCCESS"),
    ]
    assert lacks_of(events) == Counter()


def test_each_gap_is_counted() -> None:
    failed = InferenceFailed(inference_id="j", error=ErrorInfo(error_class="x"))
    events = [
        SessionStarted(),
        InferenceRequested(inference_id="i", purpose="AGENT"),
        InferenceCompleted(inference_id="i"),
        InferenceRequested(inference_id="j", purpose="AGENT", request_digest=DIGEST),
        failed,
        InferenceRequested(inference_id="j", purpose="AGENT", request_digest=DIGEST, attempt=2),
        *(ToolCallRequested(tool_call_id=id_, name="f") for id_ in "abc"),
        ToolCallAuthorized(tool_call_id="a", basis="UNRECORDED_IMPORT"),
        SubSessionEnded(child_session="s", tool_call_id="a", outcome="SUCCESS"),
        CompressionCompleted(compression_id="k", method="TRIM", effect="MARKER_ONLY"),
        CompressionCompleted(compression_id="l", method="TRIM", effect="REAPPLIABLE"),
    ]
    assert lacks_of(events) == {
        START: 1, REQUEST: 1, TOKENS: 1, COST: 1, ANSWER: 1, LEAVE: 1, OUTCOME: 2, COMPRESSION: 1, END: 1
    }  # fmt: skip


def test_the_modes_that_sessions_allow() -> None:
    modes = replay_modes({"InferenceRequested": 2}, {})
    assert modes["projection-only"] == "yes"
    assert modes["inference-skipping"].startswith("yes")
    assert modes["full"].startswith("recorded results only")
    assert modes["simulation"].startswith("not comparable")
    assert replay_modes({}, {})["inference-skipping"].startswith("nothing to skip")
    told = replay_modes({"InferenceRequested": 2, "ContextPackBuilt": 1}, {ANSWER: 1, COMPRESSION: 3})
    assert told["inference-skipping"] == "up to the first of 1 model calls without a recorded answer"
    assert told["full"] == "yes; across 3 compressions the context is not reconstructable"

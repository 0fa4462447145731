"""When a tool call counts as failed: the same in a session's row and in the sums over sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dalsegno.projections.outcomes import Outcomes
from dalsegno.projections.sessions import Sessions
from dalsegno.testing.builder import SessionBuilder, Written
from shard_lab import folded, reads


def failed_calls(builder: SessionBuilder, *more: Written) -> int:
    reader = reads(folded([*builder.records, *more], projections=[Sessions(), Outcomes()]))
    ((_, sums),) = reader.rollups("outcomes")
    row = reader.row("sessions", builder.session_id)
    assert row.failed_tool_calls == sums.failed_tool_calls
    return sums.failed_tool_calls  # type: ignore[no-any-return]


def request(builder: SessionBuilder, id: str = "c") -> None:
    builder.append("ToolCallRequested", tool_call_id=id, name="n")


def start(builder: SessionBuilder, id: str = "c", attempt: int = 1, **fields: Any) -> Written:
    if attempt == 1:
        request(builder, id)
        builder.append("ToolCallAuthorized", tool_call_id=id, basis="SIMULATED")
    named = {"tool_call_id": id, "attempt": attempt, "idempotency_key": "k", **fields}
    return builder.append("ToolCallStarted", **named)


def fail(builder: SessionBuilder, attempt: int = 1, reason: str = "TIMEOUT") -> Written:
    return builder.append("ToolCallFailed", tool_call_id="c", attempt=attempt, reason=reason, not_started=False)


def receive(builder: SessionBuilder, status: str = "OK", attempt: int = 1) -> None:
    builder.append("ToolReceiptRecorded", tool_call_id="c", attempt=attempt, status=status, receipt_id="r")


def retry(builder: SessionBuilder, yes: bool) -> None:
    builder.append("ToolRetryDecided", tool_call_id="c", attempt=1, retry=yes)


def child_ended(builder: SessionBuilder, outcome: str) -> None:
    builder.append("SubSessionEnded", child_session="s2", tool_call_id="c", outcome=outcome)


def reject(builder: SessionBuilder, id: str) -> None:
    request(builder, id)
    builder.append("ToolCallRejected", tool_call_id=id, basis="LIMIT")


@pytest.mark.parametrize(
    ("act", "failed"),
    [
        (lambda b: start(b), 0),
        (lambda b: (start(b), receive(b)), 0),
        (lambda b: (start(b), receive(b, "ERROR")), 1),
        (lambda b: (reject(b, "c1"), reject(b, "c2")), 2),
        (lambda b: (start(b), fail(b)), 1),
        # Not known to have failed, and so not ended.
        (lambda b: (start(b), fail(b, reason="UNKNOWN_OUTCOME")), 0),
        (lambda b: (start(b), fail(b, reason="UNKNOWN_OUTCOME"), retry(b, False)), 1),
        (lambda b: (start(b), fail(b, reason="UNKNOWN_OUTCOME"), receive(b, "ERROR")), 1),
        (lambda b: (start(b), fail(b), retry(b, False)), 1),
        (lambda b: (reject(b, "c0"), start(b), fail(b), retry(b, True)), 1),
        (lambda b: (reject(b, "c0"), start(b), fail(b), start(b, attempt=2)), 1),
        (lambda b: (start(b), fail(b), start(b, attempt=2), receive(b, attempt=2)), 0),
        (lambda b: (start(b), fail(b), start(b, attempt=2), fail(b, 2)), 1),
        (lambda b: (reject(b, "c0"), start(b), fail(b), receive(b)), 1),
        (lambda b: (start(b), fail(b), receive(b, "ERROR")), 1),
        (lambda b: (start(b), b.recover("ABANDONED")), 1),
        (lambda b: (start(b), b.recover("RETRY")), 0),
        (lambda b: (start(b), b.append("InferenceRequested", inference_id="i", attempt=1), b.recover("FAILED")), 1),
        *[
            (lambda b, outcome=outcome: (start(b, child_session="s2"), child_ended(b, outcome)), failed)
            for outcome, failed in [("SUCCESS", 0), ("PARTIAL", 0), ("FAILED", 1), ("CANCELLED", 1), ("GIVEN_UP", 1)]
        ],
        (lambda b: (reject(b, "c0"), start(b, child_session="s2"), fail(b), child_ended(b, "SUCCESS")), 1),
    ],
)
def test_a_call_is_failed_once_it_has_ended_badly(act: Callable[[SessionBuilder], Any], failed: int) -> None:
    builder = SessionBuilder("s", profile="OBSERVED").begin()
    act(builder)
    assert not any(verdict.violations for verdict in builder.verdicts)
    assert failed_calls(builder) == failed


@pytest.mark.parametrize("act", [receive, lambda b: start(b, attempt=2)])
def test_what_an_erased_failure_would_have_counted_is_not_taken_back(act: Callable[[SessionBuilder], Any]) -> None:
    builder = SessionBuilder("s", profile="OBSERVED").begin()
    start(builder)
    failure = fail(builder)
    act(builder)
    assert failed_calls(builder, builder.amend([failure])) == 0

"""The projection ``tools``, rule by rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dalsegno.model.lifecycle.state import bounded
from dalsegno.projections.rows import ToolCallRow
from dalsegno.projections.tools import Tools
from dalsegno.testing.builder import START_MICROS, SessionBuilder, Written, blob, digest_of
from projection_lab import rows_of


def row_of(builder: SessionBuilder, *more: Written) -> ToolCallRow:
    return rows_of(Tools(), builder, [*builder.records, *more])["c",]  # type: ignore[no-any-return]


@pytest.fixture
def builder() -> SessionBuilder:
    return SessionBuilder("s", profile="OBSERVED").begin()


def request(builder: SessionBuilder, **fields: Any) -> Written:
    return builder.append("ToolCallRequested", **{"tool_call_id": "c", "name": "shell", **fields})


def authorize(builder: SessionBuilder, **fields: Any) -> Written:
    return builder.append("ToolCallAuthorized", **{"tool_call_id": "c", "basis": "SIMULATED", **fields})


def start(builder: SessionBuilder, attempt: int = 1, **fields: Any) -> Written:
    named = {"tool_call_id": "c", "attempt": attempt, "idempotency_key": "k", **fields}
    return builder.append("ToolCallStarted", **named)


def fail(builder: SessionBuilder, attempt: int = 1, reason: str = "TIMEOUT", **fields: Any) -> Written:
    named = {"tool_call_id": "c", "attempt": attempt, "reason": reason, "not_started": False, **fields}
    return builder.append("ToolCallFailed", **named)


def receive(builder: SessionBuilder, attempt: int = 1, status: str = "OK", **fields: Any) -> Written:
    named = {"tool_call_id": "c", "attempt": attempt, "status": status, "receipt_id": "r", **fields}
    return builder.append("ToolReceiptRecorded", **named)


def retry(builder: SessionBuilder, attempt: int = 1, yes: bool = True) -> Written:
    return builder.append("ToolRetryDecided", tool_call_id="c", attempt=attempt, retry=yes)


def running(builder: SessionBuilder, **fields: Any) -> SessionBuilder:
    request(builder)
    authorize(builder)
    start(builder, **fields)
    return builder


def unbroken(builder: SessionBuilder) -> bool:
    return not any(verdict.violations for verdict in builder.verdicts)


# --- the way of a call ------------------------------------------------------------------------------------------------


def test_a_request_shows_who_asked_for_what(builder: SessionBuilder) -> None:
    calls = [{"tool_call_id": "c", "name": "shell", "arguments_digest": None}]
    builder.append("InferenceRequested", inference_id="i", attempt=1, purpose="OTHER")
    builder.append("InferenceCompleted", inference_id="i", attempt=1, complete=True, usage={}, tool_calls=calls)
    request(
        builder, inference_id="i", native_call_id="call_1", effect="WRITE", risk="HIGH",
        arguments_digest=digest_of("args"), meta={"stage_id": "st", "turn_id": "t"},
    )  # fmt: skip
    event = builder.events[-1]
    assert row_of(builder) == ToolCallRow(
        status="REQUESTED", name="shell", effect="WRITE", risk="HIGH", requested_seq=event.seq,
        requested_at=event.meta["recorded_at"], requests=1, inference_id="i", native_call_id="call_1", stage_id="st",
        turn_id="t", arguments_digest=digest_of("args"),
    )  # fmt: skip


def test_what_a_recording_does_not_say_stays_unsaid(builder: SessionBuilder) -> None:
    request(builder)
    authorize(builder)
    start(builder, idempotency_key=None)
    receive(builder)
    row = row_of(builder)
    assert (row.inference_id, row.native_call_id, row.arguments_digest, row.effective_arguments_digest) == (None,) * 4
    assert (row.decision, row.approval, row.exit_code, row.result_digest) == (None,) * 4
    assert (row.started_at, row.ended_at) == tuple(event.meta["recorded_at"] for event in builder.events[-2:])


@pytest.mark.parametrize(
    ("act", "status"),
    [
        (lambda b: request(b), "REQUESTED"),
        (lambda b: (request(b), authorize(b)), "AUTHORIZED"),
        (lambda b: (request(b), b.append("ToolCallRejected", tool_call_id="c", basis="LIMIT")), "REJECTED"),
        (lambda b: running(b), "STARTED"),
        (lambda b: running(b, child_session="s2"), "DELEGATED"),
        (lambda b: receive(running(b)), "OK"),
        (lambda b: receive(running(b), status="ERROR"), "ERROR"),
        (lambda b: fail(running(b)), "FAILED"),
        (lambda b: fail(running(b), reason="UNKNOWN_OUTCOME"), "UNKNOWN_OUTCOME"),
        (lambda b: (fail(running(b)), retry(b)), "AUTHORIZED"),
        (lambda b: (fail(running(b)), retry(b, yes=False)), "FAILED"),
        (lambda b: (fail(running(b)), start(b, 2)), "STARTED"),
    ],
)
def test_statuses(builder: SessionBuilder, act: Callable[[SessionBuilder], Any], status: str) -> None:
    act(builder)
    assert unbroken(builder)
    row = row_of(builder)
    ended = status in ("REJECTED", "OK", "ERROR", "FAILED", "UNKNOWN_OUTCOME")
    assert (row.status, row.ended_at is not None, row.refused) == (status, ended, 0)


def test_a_receipt_shows_what_came_back(builder: SessionBuilder) -> None:
    running(builder)
    receive(
        builder, status="ERROR", exit_code=3, started_at=START_MICROS, ended_at=START_MICROS + 5,
        result_digest=digest_of("result"), simulated=True,
    )  # fmt: skip
    row = row_of(builder)
    assert (row.exit_code, row.started_at, row.ended_at) == (3, START_MICROS, START_MICROS + 5)
    assert (row.result_digest, row.simulated, row.attempts) == (digest_of("result"), True, 1)
    assert (row.ended_seq, row.receipts, row.late_receipts) == (builder.events[-1].seq, 1, 0)


def test_a_failure_says_why_and_a_new_attempt_forgets_it(builder: SessionBuilder) -> None:
    running(builder)
    fail(builder, error={"error_class": "Lost", "message": "m", "retryable": None, "detail": None})
    assert row_of(builder).error_class == "Lost"
    start(builder, 2)
    fail(builder, 2)
    row = row_of(builder)
    assert (row.error_class, row.attempts) == ("TIMEOUT", 2)
    start(builder, 3)
    assert row_of(builder).error_class is None


def test_decision_approval_and_authorization_show_why_it_may_run(builder: SessionBuilder) -> None:
    request(builder)
    about: dict[str, Any] = {"subject": "TOOL_CALL", "subject_id": "c"}
    builder.append("PolicyEvaluated", decision_id="d", decision="REQUIRE_APPROVAL", **about)
    builder.append("ApprovalRequested", approval_id="a", decision_id="d", **about)
    row = row_of(builder)
    assert (row.decision_id, row.decision, row.approval_id, row.approval) == ("d", "REQUIRE_APPROVAL", "a", "OPEN")
    builder.append("ApprovalGranted", approval_id="a", scope="ONCE", meta={"actor_id": "maria"})
    authorize(builder, basis="APPROVAL", approval_id="a", effective_arguments_digest=digest_of("args"))
    row = row_of(builder)
    assert (row.approval, row.approver, row.basis) == ("GRANTED", "maria", "APPROVAL")
    assert row.effective_arguments_digest == digest_of("args")


@pytest.mark.parametrize(
    ("type_", "fields", "outcome", "approver"),
    [
        ("ApprovalDenied", {"effect": "CONTINUE", "rejection_source": "USER"}, "DENIED", "builder"),
        ("ApprovalExpired", {}, "EXPIRED", None),
        ("ApprovalWithdrawn", {}, "WITHDRAWN", None),
    ],
)
def test_approvals_end(builder: SessionBuilder, type_: str, fields: Any, outcome: str, approver: str | None) -> None:
    request(builder)
    builder.append("ApprovalRequested", approval_id="a", subject="TOOL_CALL", subject_id="c")
    builder.append(type_, approval_id="a", **fields)
    row = row_of(builder)
    assert (row.approval, row.approver) == (outcome, approver)


def test_only_the_newest_approval_of_a_call_is_shown(builder: SessionBuilder) -> None:
    request(builder)
    for id in ("a1", "a2"):
        builder.append("ApprovalRequested", approval_id=id, subject="TOOL_CALL", subject_id="c")
    builder.append("ApprovalExpired", approval_id="a1")
    row = row_of(builder)
    assert (row.approval_id, row.approval) == ("a2", "OPEN")


def test_decisions_about_something_else_are_not_the_calls(builder: SessionBuilder) -> None:
    request(builder)
    about: dict[str, Any] = {"subject": "INFERENCE", "subject_id": "c"}
    builder.append("PolicyEvaluated", decision_id="d", decision="DENY", **about)
    builder.append("ApprovalRequested", approval_id="a", **about)
    row = row_of(builder)
    assert (row.decision, row.approval) == (None, None)


# --- ids that come again ----------------------------------------------------------------------------------------------


def test_a_native_id_may_come_again_in_another_turn(builder: SessionBuilder) -> None:
    for turn in ("t1", "t2"):
        builder.append("ToolCallRequested", tool_call_id=f"{turn}/c", name="n", native_call_id="call_0")
        builder.append("ToolCallAuthorized", tool_call_id=f"{turn}/c", basis="SIMULATED")
    builder.append("ToolCallStarted", tool_call_id="t2/c", attempt=1)
    rows = rows_of(Tools(), builder)
    assert {id: (row.native_call_id, row.status) for (id,), row in rows.items()} == {
        "t1/c": ("call_0", "AUTHORIZED"), "t2/c": ("call_0", "STARTED"),
    }  # fmt: skip


def test_where_the_rules_let_an_id_of_ours_be_used_again_its_newest_use_is_shown(builder: SessionBuilder) -> None:
    running(builder)
    receive(builder, result_digest=digest_of("old"))
    request(builder, name="other")
    assert builder.verdicts[-1].findings == ("P1",)
    row = row_of(builder)
    assert (row.requests, row.status, row.name) == (2, "REQUESTED", "other")
    assert (row.result_digest, row.receipts, row.attempts) == (None, 1, 0)


def test_where_they_do_not_the_first_use_stays() -> None:
    builder = SessionBuilder("s").begin()
    request(builder)
    request(builder, name="other")
    row = row_of(builder)
    assert (row.name, row.requests, row.refused) == ("shell", 1, 1)


# --- late, unknown and orphaned ---------------------------------------------------------------------------------------


def test_the_first_receipt_of_any_attempt_counts_and_each_late_one_is_counted(builder: SessionBuilder) -> None:
    running(builder)
    fail(builder)
    start(builder, 2)
    receive(builder, attempt=1, result_digest=digest_of("first"))
    assert unbroken(builder)
    for number in (2, 3):
        receive(builder, attempt=2, result_digest=digest_of("late"))
        assert builder.verdicts[-1].violations
        row = row_of(builder)
        assert (row.receipts, row.late_receipts, row.refused) == (number, number - 1, number - 1)
    assert (row.status, row.result_digest) == ("OK", digest_of("first"))


def test_a_receipt_of_a_call_that_was_given_up_is_late(builder: SessionBuilder) -> None:
    fail(running(builder))
    retry(builder, yes=False)
    receive(builder)
    row = row_of(builder)
    assert (row.status, row.receipts, row.late_receipts, row.in_doubt) == ("FAILED", 1, 1, 1)


@pytest.mark.parametrize(
    ("act", "in_doubt"),
    [
        (lambda b: receive(running(b)), 0),
        (lambda b: fail(running(b), reason="UNKNOWN_OUTCOME"), 1),
        (lambda b: fail(running(b), reason="EXECUTOR_CRASH"), 1),
        (lambda b: fail(running(b), not_started=True), 0),
        # It was tried again, and may have had an effect twice.
        (lambda b: (fail(running(b)), start(b, 2), receive(b, 2)), 1),
        # The receipt is the first attempt's; the second still ran when the call was closed.
        (lambda b: (fail(running(b)), start(b, 2), receive(b, 1)), 1),
        (lambda b: (fail(running(b)), receive(b, 1)), 0),
        (lambda b: (fail(running(b)), start(b, 2), fail(b, 2), receive(b, 1)), 1),
        (lambda b: (fail(running(b)), retry(b), receive(b, 1)), 0),
        (lambda b: (running(b).recover("AWAIT_RECEIPT"), receive(b, 1)), 0),
    ],
)
def test_attempts_of_which_no_receipt_tells(
    builder: SessionBuilder, act: Callable[[SessionBuilder], Any], in_doubt: int
) -> None:
    act(builder)
    assert unbroken(builder)
    assert row_of(builder).in_doubt == in_doubt


@pytest.mark.parametrize("child", [None, "s2"])
@pytest.mark.parametrize(
    ("resolution", "status"),
    [
        ("RETRY", "AUTHORIZED"),
        ("AWAIT_RECEIPT", "UNKNOWN_OUTCOME"),
        ("UNKNOWN_OUTCOME", "UNKNOWN_OUTCOME"),
        ("FAILED", "FAILED"),
        ("ABANDONED", "FAILED"),
    ],
)
def test_a_recovery_leaves_a_started_call_in_doubt(
    builder: SessionBuilder, resolution: str, status: str, child: str | None
) -> None:
    running(builder, child_session=child)
    builder.epoch += 1
    tip = builder.events[-1]
    # A delegated call may be named by its child.
    named = {"kind": "TOOL", "id": "c"} if child is None else {"kind": "SUBSESSION", "id": child}
    builder.append(
        "SessionRecovered",
        last_good={"seq": tip.seq, "hash": tip.hash, "event_id": None},
        in_flight=[named | {"resolution": resolution}],
    )
    assert unbroken(builder)
    row = row_of(builder)
    assert (row.status, row.in_doubt) == (status, 1)


def test_a_recovery_leaves_a_call_that_did_not_start_as_it_is(builder: SessionBuilder) -> None:
    request(builder)
    authorize(builder)
    builder.append("ApprovalRequested", approval_id="a", subject="TOOL_CALL", subject_id="c")
    builder.recover("RETRY")
    row = row_of(builder)
    assert (row.status, row.in_doubt, row.approval) == ("AUTHORIZED", 0, "OPEN")
    builder.recover("ABANDONED")
    row = row_of(builder)
    assert (row.status, row.in_doubt, row.approval, row.approver) == ("FAILED", 0, "WITHDRAWN", None)


@pytest.mark.parametrize("profile", ["STRICT", "OBSERVED", "IMPORTED"])
@pytest.mark.parametrize("act", [receive, fail, start])
def test_what_nothing_requested_is_an_orphan(profile: str, act: Callable[[SessionBuilder], Any]) -> None:
    builder = SessionBuilder("s", profile=profile).begin()
    act(builder)
    assert builder.verdicts[-1].violations
    row = row_of(builder)
    assert (row.status, row.requests, row.requested_seq, row.refused) == ("ORPHAN", 0, 0, 1)
    assert (row.receipts, row.late_receipts) == ((1, 0) if act is receive else (0, 0))
    request(builder)
    row = row_of(builder)
    assert (row.status, row.requests, row.refused) == ("REQUESTED", 1, 1)


def test_what_is_about_a_call_whose_request_was_erased_is_shown_without_it(builder: SessionBuilder) -> None:
    asked = request(builder)
    authorize(builder)
    start(builder)
    receive(builder)
    row = row_of(builder, builder.amend([asked]))
    assert (row.status, row.requests, row.requested_seq, row.name, row.receipts) == ("OK", 0, 0, "", 1)


# --- delegation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "status"),
    [("SUCCESS", "OK"), ("PARTIAL", "OK"), ("FAILED", "ERROR"), ("CANCELLED", "ERROR"), ("GIVEN_UP", "ERROR")],
)
@pytest.mark.parametrize("named", ["c", None])
@pytest.mark.parametrize("failed_before", [False, True])
def test_a_child_session_ends_its_call(
    builder: SessionBuilder, outcome: str, status: str, named: str | None, failed_before: bool
) -> None:
    running(builder, child_session="s2")
    if failed_before:
        fail(builder)
    builder.append("SubSessionEnded", child_session="s2", tool_call_id=named, outcome=outcome, result=blob(b"done"))
    assert unbroken(builder)
    row = row_of(builder)
    assert (row.status, row.child_session, row.result_digest) == (status, "s2", blob(b"done")["digest"])
    assert (row.ended_seq, row.receipts, row.in_doubt) == (builder.events[-1].seq, 0, 0)


def test_a_childs_second_end_is_refused_and_counted(builder: SessionBuilder) -> None:
    running(builder, child_session="s2")
    for outcome in ("SUCCESS", "FAILED"):
        builder.append("SubSessionEnded", child_session="s2", tool_call_id=None, outcome=outcome)
    row = row_of(builder)
    assert (row.status, row.result_digest, row.refused) == ("OK", None, 1)


def test_no_row_grows_with_what_comes_from_outside(builder: SessionBuilder) -> None:
    long = "x" * 5000
    request(builder, tool_call_id=long, name=long, native_call_id=long)
    authorize(builder, tool_call_id=long, decision_id=long, approval_id=long)
    start(builder, tool_call_id=long, child_session=long)
    builder.append("SubSessionEnded", child_session=long, tool_call_id=None, outcome="SUCCESS")
    ((row_id, row),) = rows_of(Tools(), builder).items()
    assert (row_id, row.status) == ((bounded(long),), "OK")
    assert (row.native_call_id, row.decision_id, row.approval_id, row.child_session) == (bounded(long),) * 4
    assert len(row.name) == 500

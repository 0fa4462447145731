"""The projection ``approvals``, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.model.lifecycle.state import bounded
from dalsegno.projections.approvals import Approvals
from dalsegno.projections.rows import ApprovalRow
from dalsegno.testing.builder import SessionBuilder, Written, blob, digest_of
from projection_lab import rows_of


def row_of(builder: SessionBuilder, *more: Written) -> ApprovalRow:
    return rows_of(Approvals(), builder, [*builder.records, *more])["a",]  # type: ignore[no-any-return]


@pytest.fixture
def builder() -> SessionBuilder:
    return SessionBuilder("s", profile="OBSERVED").begin()


def ask(builder: SessionBuilder, **fields: Any) -> Written:
    return builder.append(
        "ApprovalRequested", **{"approval_id": "a", "subject": "TOOL_CALL", "subject_id": "c", **fields}
    )


def answer(builder: SessionBuilder, type_: str, **fields: Any) -> Written:
    meta = {"actor_id": "maria", "actor_kind": "USER"}
    return builder.append(type_, approval_id="a", meta=meta, **fields)


def test_an_open_question_shows_who_is_asked_for_what(builder: SessionBuilder) -> None:
    ask(
        builder, decision_id="d", arguments_digest=digest_of("args"), view=blob(b"seen"),
        addressed_to=["maria", "otto"], options=["yes", "no"], ttl_ms=5000, on_expiry="ESCALATE", escalated_from="a0",
    )  # fmt: skip
    event = builder.events[-1]
    assert row_of(builder) == ApprovalRow(
        status="OPEN", subject="TOOL_CALL", subject_id="c", decision_id="d", arguments_digest=digest_of("args"),
        view_digest=blob(b"seen")["digest"], requested_seq=event.seq, requested_at=event.meta["recorded_at"],
        addressed_to=["maria", "otto"], options=2, ttl_ms=5000, on_expiry="ESCALATE", escalated_from="a0",
    )  # fmt: skip


def test_a_grant_says_by_whom_and_for_which_arguments(builder: SessionBuilder) -> None:
    ask(builder, arguments_digest=digest_of("args"))
    answer(
        builder, "ApprovalGranted", scope="RULE", arguments_digest=digest_of("args"),
        modified_arguments=blob(b"other"), explanation="e" * 600,
    )  # fmt: skip
    row = row_of(builder)
    assert (row.status, row.scope, row.ended_by_kind, row.ended_by) == ("GRANTED", "RULE", "USER", "maria")
    assert (row.arguments_digest, row.answered_digest) == (digest_of("args"), digest_of("args"))
    assert (row.modified_digest, row.explanation) == (blob(b"other")["digest"], "e" * 500)
    assert (row.ended_seq, row.ended_at) == (builder.events[-1].seq, builder.events[-1].meta["recorded_at"])
    assert (row.answers, row.denial_effect) == (1, None)


def test_a_denial_says_what_follows_and_where_it_came_from(builder: SessionBuilder) -> None:
    ask(builder)
    answer(builder, "ApprovalDenied", effect="ABORT_TURN", rejection_source="HOOK", explanation="no")
    row = row_of(builder)
    assert (row.status, row.denial_effect, row.rejection_source) == ("DENIED", "ABORT_TURN", "HOOK")
    assert (row.explanation, row.ended_by, row.answers, row.scope) == ("no", "maria", 1, None)


def test_nobody_answered(builder: SessionBuilder) -> None:
    ask(builder)
    answer(builder, "ApprovalExpired")
    row = row_of(builder)
    assert (row.status, row.answers, row.explanation) == ("EXPIRED", 0, None)


def test_a_question_is_taken_back(builder: SessionBuilder) -> None:
    ask(builder)
    answer(builder, "ApprovalWithdrawn", reason="too late")
    row = row_of(builder)
    assert (row.status, row.answers, row.explanation) == ("WITHDRAWN", 0, "too late")


@pytest.mark.parametrize(("resolution", "status"), [("ABANDONED", "WITHDRAWN"), ("KEEP_WAITING", "OPEN")])
def test_a_recovery_may_give_it_up(builder: SessionBuilder, resolution: str, status: str) -> None:
    ask(builder)
    builder.recover(resolution)
    row = row_of(builder)
    assert (row.status, row.subject_id) == (status, "c")
    assert row.ended_seq == (builder.events[-1].seq if status == "WITHDRAWN" else None)


def test_what_a_recording_does_not_say_stays_unsaid() -> None:
    builder = SessionBuilder("s", profile="IMPORTED").begin()
    ask(builder)
    answer(builder, "ApprovalGranted", scope="ONCE")
    row = row_of(builder)
    assert (row.decision_id, row.arguments_digest, row.view_digest, row.answered_digest) == (None,) * 4
    assert (row.ttl_ms, row.on_expiry, row.escalated_from, row.explanation) == (None,) * 4


def test_an_answer_may_stand_alone_in_a_recording() -> None:
    builder = SessionBuilder("s", profile="IMPORTED").begin()
    answer(builder, "ApprovalGranted", scope="ONCE")
    assert builder.verdicts[-1].findings == ("P2",)
    row = row_of(builder)
    assert (row.status, row.requested_seq, row.subject, row.subject_id) == ("GRANTED", 0, "UNKNOWN", None)


def test_where_the_rules_let_a_second_answer_count_it_is_shown_and_counted(builder: SessionBuilder) -> None:
    ask(builder)
    answer(builder, "ApprovalDenied", effect="CONTINUE", rejection_source="USER", explanation="no")
    answer(builder, "ApprovalGranted", scope="ONCE")
    row = row_of(builder)
    assert (row.status, row.answers, row.scope) == ("GRANTED", 2, "ONCE")
    assert (row.denial_effect, row.rejection_source, row.explanation) == (None, None, None)


def test_where_they_do_not_it_is_refused_and_counted() -> None:
    builder = SessionBuilder("s").begin()
    ask(builder)
    answer(builder, "ApprovalDenied", effect="CONTINUE", rejection_source="USER")
    answer(builder, "ApprovalGranted", scope="ONCE")
    assert builder.verdicts[-1].violations == ("P2",)
    row = row_of(builder)
    assert (row.status, row.answers, row.refused) == ("DENIED", 1, 1)


def test_an_answer_to_nothing_is_an_orphan_where_the_rules_hold() -> None:
    builder = SessionBuilder("s").begin()
    answer(builder, "ApprovalGranted", scope="ONCE")
    assert row_of(builder) == ApprovalRow(status="ORPHAN", refused=1)
    ask(builder)
    row = row_of(builder)
    assert (row.status, row.refused, row.subject_id) == ("OPEN", 1, "c")


def test_an_answer_whose_question_was_erased_is_shown_without_it(builder: SessionBuilder) -> None:
    asked = ask(builder)
    answer(builder, "ApprovalGranted", scope="ONCE")
    row = row_of(builder, builder.amend([asked]))
    assert (row.status, row.requested_seq, row.ended_by) == ("GRANTED", 0, "maria")


def test_no_row_grows_with_what_comes_from_outside(builder: SessionBuilder) -> None:
    ask(builder, addressed_to=["x" * 5000, *map(str, range(20))], subject_id="y" * 5000, options=["o"] * 50)
    row = row_of(builder)
    assert row.addressed_to == [bounded("x" * 5000), *map(str, range(7))]
    assert (row.addressed_to_more, row.subject_id, row.options) == (13, bounded("y" * 5000), 50)

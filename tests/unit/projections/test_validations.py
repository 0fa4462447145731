"""The projection ``validations``, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.projections.rows import ValidationRow
from dalsegno.projections.validations import Validations
from dalsegno.testing.builder import SessionBuilder, Written, digest_of
from projection_lab import rows_of


def row_of(builder: SessionBuilder, *more: Written) -> ValidationRow:
    return rows_of(Validations(), builder, [*builder.records, *more])["v",]  # type: ignore[no-any-return]


@pytest.fixture
def builder() -> SessionBuilder:
    return SessionBuilder("s", profile="OBSERVED").begin()


def request(builder: SessionBuilder, **fields: Any) -> Written:
    return builder.append("ValidationRequested", **{"validation_id": "v", "validator": "tests", **fields})


def report(builder: SessionBuilder, verdict: str, **fields: Any) -> Written:
    return builder.append("VerdictReported", validation_id="v", verdict=verdict, meta={"actor_id": "maria"}, **fields)


def decide(builder: SessionBuilder, verdict: str = "PASS", **fields: Any) -> Written:
    return builder.append(
        "ValidationDecided",
        **{"validation_id": "v", "verdict": verdict, "basis": "PURE", "intermediate": False, **fields},
    )


def amend(builder: SessionBuilder, verdict: str, **fields: Any) -> Written:
    return builder.append("ValidationAmended", validation_id="v", verdict=verdict, meta={"actor_id": "otto"}, **fields)


def test_an_open_validation_shows_what_is_to_be_judged_and_how(builder: SessionBuilder) -> None:
    builder.append("MessageReceived", message_id="m", role="USER")
    target = {"seq": builder.events[-1].seq, "hash": None, "event_id": None}
    request(
        builder, validator_version="2", validator_digest=digest_of("d"), criteria_digest=digest_of("c"),
        target_id="m", target_digest=digest_of("t"), target=target,
    )  # fmt: skip
    event = builder.events[-1]
    assert row_of(builder) == ValidationRow(
        status="OPEN", validator="tests", validator_version="2", validator_digest=digest_of("d"),
        criteria_digest=digest_of("c"), target_id="m", target_digest=digest_of("t"), target_seq=target["seq"],
        requested_seq=event.seq, requested_at=event.meta["recorded_at"],
    )  # fmt: skip


def test_a_decision_is_the_verdict(builder: SessionBuilder) -> None:
    request(builder)
    finding = {"code": "E1", "severity": "high", "location": None, "message": "x"}
    decide(builder, "REJECT", score="0.25", label="bad", findings=[finding] * 3, intermediate=True)
    row = row_of(builder)
    assert (row.status, row.verdict, row.score, row.label) == ("DECIDED", "REJECT", "0.25", "bad")
    assert (row.decided_verdict, row.decided_score) == ("REJECT", "0.25")
    assert (row.basis, row.findings, row.intermediate) == ("PURE", 3, True)
    assert (row.decided_seq, row.decided_at) == (builder.events[-1].seq, builder.events[-1].meta["recorded_at"])


def test_a_decision_by_a_model_cites_it(builder: SessionBuilder) -> None:
    request(builder)
    builder.append("InferenceRequested", inference_id="i", attempt=1, purpose="VALIDATION", subject_id="v")
    builder.append("InferenceCompleted", inference_id="i", attempt=1, complete=True, usage={})
    decide(builder, basis="INFERENCE", inference_id="i")
    assert not builder.verdicts[-1].violations
    row = row_of(builder)
    assert (row.basis, row.inference_id, row.verdict) == ("INFERENCE", "i", "PASS")


def test_a_report_is_not_yet_a_decision(builder: SessionBuilder) -> None:
    request(builder)
    report(builder, "REJECT", score="1", label="first")
    report(builder, "PASS", score="2", label="second")
    row = row_of(builder)
    assert (row.status, row.verdict, row.reports) == ("REPORTED", None, 2)
    assert (row.reported_verdict, row.reported_score, row.label) == ("PASS", "2", "second")
    assert (row.reported_by, row.reported_seq) == ("maria", builder.events[-1].seq)
    decide(builder, "REJECT", basis="REPORTED")
    row = row_of(builder)
    assert (row.status, row.verdict, row.reported_verdict, row.label) == ("DECIDED", "REJECT", "PASS", "second")


def test_a_verdict_may_stand_alone_in_a_recording() -> None:
    builder = SessionBuilder("s", profile="IMPORTED").begin()
    report(builder, "PASS")
    assert not builder.verdicts[-1].violations
    row = row_of(builder)
    assert (row.status, row.requested_seq, row.reported_verdict, row.verdict) == ("REPORTED", 0, "PASS", None)
    assert (row.validator, row.reported_score, row.basis) == ("", None, None)


def test_amendments_leave_the_decision_readable(builder: SessionBuilder) -> None:
    request(builder)
    decide(builder, "PASS", score="0.9")
    decided = builder.events[-1]
    replaces = {"seq": decided.seq, "hash": decided.hash, "event_id": None}
    amend(builder, "REJECT", score="0.1", reason="r" * 600, provenance="review", replaces=replaces)
    row = row_of(builder)
    assert (row.status, row.verdict, row.score) == ("AMENDED", "REJECT", "0.1")
    assert (row.decided_verdict, row.decided_score, row.decided_seq) == ("PASS", "0.9", decided.seq)
    assert (row.amendments, row.amended_by, row.amended_seq) == (1, "otto", builder.events[-1].seq)
    assert (row.reason, row.provenance, row.replaces_seq) == ("r" * 500, "review", decided.seq)
    amend(builder, "INCONCLUSIVE")
    row = row_of(builder)
    assert (row.verdict, row.score, row.amendments, row.reason) == ("INCONCLUSIVE", None, 2, None)
    assert (row.decided_verdict, row.decided_score, row.replaces_seq) == ("PASS", "0.9", None)


def test_a_report_after_an_amendment_does_not_take_it_back() -> None:
    builder = SessionBuilder("s", profile="OBSERVED").begin()
    request(builder)
    decide(builder)
    amend(builder, "REJECT")
    report(builder, "PASS")
    row = row_of(builder)
    assert (row.status, row.verdict, row.reported_verdict) == ("AMENDED", "REJECT", "PASS")


def test_an_amendment_without_a_decision_invents_none() -> None:
    builder = SessionBuilder("s", profile="IMPORTED").begin()
    amend(builder, "REJECT")
    assert builder.verdicts[-1].findings == ("P2",)
    row = row_of(builder)
    assert (row.status, row.verdict, row.decided_verdict, row.decided_seq) == ("AMENDED", "REJECT", None, None)


@pytest.mark.parametrize(("resolution", "status"), [("ABANDONED", "GIVEN_UP"), ("RETRY", "OPEN")])
def test_a_recovery_may_give_it_up(builder: SessionBuilder, resolution: str, status: str) -> None:
    request(builder)
    builder.recover(resolution)
    assert row_of(builder).status == status


def test_what_breaks_a_rule_is_counted_and_changes_nothing(builder: SessionBuilder) -> None:
    request(builder)
    decide(builder, "PASS")
    decide(builder, "REJECT")
    assert builder.verdicts[-1].violations == ("V2",)
    row = row_of(builder)
    assert (row.verdict, row.refused) == ("PASS", 1)


def test_a_decision_that_nothing_asked_for_is_an_orphan(builder: SessionBuilder) -> None:
    decide(builder)
    assert row_of(builder) == ValidationRow(status="ORPHAN", refused=1)
    request(builder)
    row = row_of(builder)
    assert (row.status, row.refused) == ("OPEN", 1)


def test_a_decision_whose_request_was_erased_is_shown_without_it(builder: SessionBuilder) -> None:
    asked = request(builder)
    decide(builder, "PASS")
    row = row_of(builder, builder.amend([asked]))
    assert (row.status, row.verdict, row.requested_seq, row.validator) == ("DECIDED", "PASS", 0, "")

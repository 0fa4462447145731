"""The rollup ``outcomes``, rule by rule."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dalsegno.model.lifecycle.state import bounded
from dalsegno.projections.outcomes import Outcomes
from dalsegno.projections.rows import OutcomeRow, SessionRow
from dalsegno.projections.sessions import Sessions
from dalsegno.projections.usage import day_of
from dalsegno.testing.builder import STEP_MICROS, SessionBuilder, Written
from dalsegno.testing.strategies import History, histories
from examples import examples
from shard_lab import Lab, apply, apply_in_batches, folded, reads

DAY = "2026-01-01"


def sums_of(*builders: SessionBuilder, more: list[Written] | None = None) -> dict[Any, OutcomeRow]:
    """By day, workflow, status and verdict: the builder's partition is 0."""
    records = [record for builder in builders for record in builder.records]
    found = dict(reads(folded([*records, *(more or [])], projections=[Outcomes()])).rollups("outcomes"))
    assert {key[0] for key in found} <= {0}
    return {key[1:]: row for key, row in found.items()}


def session(name: str = "s", workflow: str = "w") -> SessionBuilder:
    return SessionBuilder(name, profile="OBSERVED").begin(workflow)


def spend(builder: SessionBuilder) -> None:
    """One inference of 3 and 4 tokens and a cost of 5, one call that ends with an error."""
    builder.append("InferenceRequested", inference_id="i", attempt=1, purpose="OTHER")
    usage = {"input": 3, "output": 4}
    builder.append("InferenceCompleted", inference_id="i", attempt=1, complete=True, usage=usage, cost_usd_micros=5)
    builder.append("ToolCallRequested", tool_call_id="c", name="n")
    builder.append("ToolCallAuthorized", tool_call_id="c", basis="SIMULATED")
    builder.append("ToolCallStarted", tool_call_id="c", attempt=1)
    builder.append("ToolReceiptRecorded", tool_call_id="c", attempt=1, status="ERROR", receipt_id="r")


SPENT = {"inferences": 1, "tool_calls": 1, "failed_tool_calls": 1, "input_tokens": 3, "output_tokens": 4}
SPENT |= {"cost_usd_micros": 5}


def validate(builder: SessionBuilder, id: str, verdict: str, **fields: Any) -> None:
    builder.append("ValidationRequested", validation_id=id, validator="v")
    named = {"validation_id": id, "verdict": verdict, "basis": "PURE", "intermediate": False, **fields}
    builder.append("ValidationDecided", **named)


@pytest.mark.parametrize(
    ("acts", "status"),
    [
        ([], "RUNNING"),
        ([("SessionPaused", {})], "PAUSED"),
        ([("SessionPaused", {}), ("SessionResumed", {})], "RUNNING"),
        ([("SessionCompleted", {"outcome": "SUCCESS"})], "COMPLETED"),
        ([("SessionFailed", {})], "FAILED"),
        ([("SessionCancelled", {})], "CANCELLED"),
    ],
)
def test_a_session_counts_once_under_the_status_it_has(acts: list[tuple[str, Any]], status: str) -> None:
    builder = session()
    spend(builder)
    for type_, fields in acts:
        builder.append(type_, **fields)
    assert not any(verdict.violations for verdict in builder.verdicts)
    ended = status in ("COMPLETED", "FAILED", "CANCELLED")
    lasted = (builder.events[-1].seq - 1) * STEP_MICROS if ended else 0
    wanted = OutcomeRow(sessions=1, duration_micros=lasted, timed=int(ended), **SPENT)
    assert sums_of(builder) == {(DAY, "w", status, ""): wanted}


def test_before_its_start_it_is_created() -> None:
    builder = SessionBuilder("s", profile="OBSERVED")
    builder.append("SessionCreated", profile="OBSERVED", relation="NONE", workflow_name="w")
    assert sums_of(builder) == {(DAY, "w", "CREATED", ""): OutcomeRow(sessions=1)}


def test_the_newest_final_verdict_counts_and_takes_all_with_it() -> None:
    builder = session()
    spend(builder)
    validate(builder, "v1", "REJECT", intermediate=True)
    assert list(sums_of(builder)) == [(DAY, "w", "RUNNING", "")]
    validate(builder, "v2", "PASS")
    assert sums_of(builder) == {(DAY, "w", "RUNNING", "PASS"): OutcomeRow(sessions=1, **SPENT)}
    builder.append("SessionCompleted", outcome="SUCCESS")
    lasted = (builder.events[-1].seq - 1) * STEP_MICROS
    builder.append("ValidationAmended", validation_id="v2", verdict="REJECT")
    assert sums_of(builder) == {
        (DAY, "w", "COMPLETED", "REJECT"): OutcomeRow(sessions=1, duration_micros=lasted, timed=1, **SPENT)
    }


def test_what_comes_after_a_move_is_added_where_the_session_is() -> None:
    builder = session()
    validate(builder, "v", "PASS")
    spend(builder)
    assert sums_of(builder) == {(DAY, "w", "RUNNING", "PASS"): OutcomeRow(sessions=1, **SPENT)}


def test_what_a_recording_does_not_say_adds_nothing() -> None:
    builder = session()
    builder.append("InferenceRequested", inference_id="i", attempt=1, purpose="OTHER")
    builder.append("InferenceCompleted", inference_id="i", attempt=1, complete=True, usage={})
    assert sums_of(builder) == {(DAY, "w", "RUNNING", ""): OutcomeRow(sessions=1, inferences=1)}


def test_nothing_is_remembered_but_in_rows() -> None:
    builder = session()
    spend(builder)
    validate(builder, "v", "PASS")
    builder.append("SessionCompleted", outcome="SUCCESS")
    lab = Lab()
    for record in builder.records:
        apply(lab.open([Outcomes()], cached_rows=0), [record])
    found = dict(reads(lab.open([Outcomes()])).rollups("outcomes"))
    assert {key[1:]: row for key, row in found.items()} == sums_of(builder)


def test_a_report_is_no_verdict() -> None:
    builder = SessionBuilder("s", profile="IMPORTED").begin("w")
    builder.append("VerdictReported", validation_id="v", verdict="PASS")
    assert list(sums_of(builder)) == [(DAY, "w", "RUNNING", "")]


def test_sessions_of_one_key_add_up() -> None:
    builders = [session("s1"), session("s2"), session("s3", "other")]
    spend(builders[0])
    assert sums_of(*builders) == {
        (DAY, "w", "RUNNING", ""): OutcomeRow(sessions=2, **SPENT),
        (DAY, "other", "RUNNING", ""): OutcomeRow(sessions=1),
    }


def test_the_day_is_that_of_the_first_event_however_long_it_lasts() -> None:
    builder = SessionBuilder("s", profile="OBSERVED")
    early, late = {"occurred_at": 0}, {"occurred_at": 3 * 86_400 * 1_000_000}
    builder.append("SessionCreated", meta=early, profile="OBSERVED", relation="NONE", workflow_name="w")
    builder.start()
    builder.append("SessionCompleted", meta=late, outcome="SUCCESS")
    wanted = OutcomeRow(sessions=1, duration_micros=3 * 86_400 * 1_000_000, timed=1)
    assert sums_of(builder) == {("1970-01-01", "w", "COMPLETED", ""): wanted}


def test_a_clock_that_went_back_leaves_the_duration_unknown() -> None:
    # case C50
    builders = [session("backwards"), session("forwards")]
    for builder, after in zip(builders, (-7, 7), strict=True):
        at = builder.events[0].meta["occurred_at"] + after
        builder.append("SessionCompleted", meta={"occurred_at": at}, outcome="SUCCESS")
    row = sums_of(*builders)[DAY, "w", "COMPLETED", ""]
    assert (row.sessions, row.timed, row.duration_micros) == (2, 1, 7)


def test_a_fork_counts_for_itself() -> None:
    builder = session("p")
    child = builder.fork(builder.events[-1].seq, "f")
    assert sums_of(builder, child) == {
        (DAY, "w", "RUNNING", ""): OutcomeRow(sessions=1),
        (DAY, "demo", "RUNNING", ""): OutcomeRow(sessions=1),
    }


def test_a_session_whose_first_event_was_taken_has_no_day_and_no_workflow() -> None:
    builder = session()
    builder.append("SessionCompleted", outcome="SUCCESS")
    amendment = builder.amend([builder.records[0]])
    assert sums_of(builder, more=[amendment]) == {("UNKNOWN", "", "COMPLETED", ""): OutcomeRow(sessions=1)}


def test_a_stub_still_says_what_the_session_came_to() -> None:
    builder = session()
    end = builder.append("SessionCompleted", outcome="SUCCESS")
    assert list(sums_of(builder, more=[builder.amend([end])])) == [(DAY, "w", "COMPLETED", "")]


def test_a_session_of_nothing_but_violations_counts_as_new() -> None:
    builder = SessionBuilder("s")
    builder.append("NoteRecorded", kind="k")
    assert builder.verdicts[-1].violations
    assert sums_of(builder) == {(DAY, "", "NEW", ""): OutcomeRow(sessions=1)}


def test_an_erased_session_is_taken_back_to_nothing() -> None:
    builder = session()
    spend(builder)
    builder.append("SessionFailed")
    shard = folded(builder.records, projections=[Outcomes()])
    item = shard.outbox(1)[0]
    assert shard.current(item)[1] is not None
    apply(shard, [builder.amend(whole_session=True)])
    assert list(reads(shard).rollups("outcomes")) == []
    assert shard.current(item)[1] is None


def test_absurd_amounts_move_and_are_taken_back_exactly() -> None:
    builder = session()
    for number in range(3):
        asked = {"inference_id": f"i{number}", "attempt": 1}
        builder.append("InferenceRequested", purpose="OTHER", **asked)
        usage = {"input": -(2**63), "output": 2**63 - 1}
        builder.append("InferenceCompleted", complete=True, usage=usage, **asked)
    builder.append("SessionCompleted", outcome="SUCCESS")
    ((key, row),) = sums_of(builder).items()
    assert (key[2], row.sessions, row.inferences) == ("COMPLETED", 1, 3)
    assert (row.input_tokens, row.output_tokens) == (-(2**63), 2**63 - 3)
    assert sums_of(builder, more=[builder.amend(whole_session=True)]) == {}


def test_no_key_grows_with_what_comes_from_outside() -> None:
    assert list(sums_of(session(workflow="x" * 5000))) == [(DAY, bounded("x" * 5000), "RUNNING", "")]


SUMMED = ("inferences", "tool_calls", "failed_tool_calls", "input_tokens", "output_tokens", "cost_usd_micros")


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=examples(100))
@given(histories(), st.randoms(use_true_random=False))
def test_the_sums_are_those_of_the_sessions_rows(history: History, rnd: Any) -> None:
    """Whatever came and in whatever order: every session with a path counts once, under what its row says."""
    lab = Lab()
    projections = [Sessions(), Outcomes()]
    shard = apply_in_batches(lab, lab.open(projections), history.arrivals(rnd), rnd, reopen=False)
    wanted: Counter[tuple[str, str, str]] = Counter()
    rows: list[SessionRow] = [row for _, _, row in reads(shard).all_rows("sessions") if row.last_seq]
    for row in rows:
        for field in SUMMED:
            wanted[row.status, row.verdict or "", field] += getattr(row, field)
        wanted[row.status, row.verdict or "", "sessions"] += 1
    found: Counter[tuple[str, str, str]] = Counter()
    days = set()
    for (_, day, _, status, verdict), sums in reads(shard).rollups("outcomes"):
        days.add(day)
        for field in (*SUMMED, "sessions"):
            found[status, verdict, field] += getattr(sums, field)
    assert {key: sum_ for key, sum_ in found.items() if sum_} == {key: sum_ for key, sum_ in wanted.items() if sum_}
    assert days <= {"UNKNOWN", *(day_of(row.started_at) for row in rows)}

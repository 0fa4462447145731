"""The rows of ``stages``, event by event."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.model.lifecycle.state import bounded
from dalsegno.projections.rows import StageRow
from dalsegno.projections.stages import LISTED, Stages
from dalsegno.testing.builder import START_MICROS, STEP_MICROS, SessionBuilder, digest_of
from projection_lab import rows_of

A = "a.1"
ERROR = {"error_class": "Lost", "message": "m" * 600, "retryable": True}


@pytest.fixture
def strict() -> SessionBuilder:
    return SessionBuilder("s-1").begin()


def at(seq: int) -> int:
    return START_MICROS + seq * STEP_MICROS


def stage(builder: SessionBuilder, stage_id: str = A) -> StageRow:
    row: StageRow = rows_of(Stages(), builder)["stage", stage_id]
    return row


def schedule(builder: SessionBuilder, stage_id: str = A, **fields: Any) -> None:
    builder.append("StageScheduled", stage_id=stage_id, stage_name="a", **fields)


def test_a_schedule(strict: SessionBuilder) -> None:
    schedule(strict, attempt=3, depends_on=["b", "c"], inputs_digest=digest_of("in"))
    seq = strict.events[-1].seq
    assert stage(strict) == StageRow(
        status="SCHEDULED", stage_name="a", attempt=3, depends_on=["b", "c"], inputs_digest=digest_of("in"),
        scheduled_seq=seq, scheduled_at=at(seq),
    )  # fmt: skip


def test_a_start(strict: SessionBuilder) -> None:
    schedule(strict)
    strict.append("StageStarted", stage_id=A, worker="w")
    row = stage(strict)
    seq = strict.events[-1].seq
    assert (row.status, row.worker, row.started_seq, row.started_at) == ("STARTED", "w", seq, at(seq))
    assert (row.scheduled_seq, row.ended_seq, row.ended_at) == (seq - 1, None, None)


@pytest.mark.parametrize(
    ("type_", "fields", "status", "wanted"),
    [
        ("StageCompleted", {"outputs_digest": digest_of("out")}, "COMPLETED", (digest_of("out"), None, None)),
        ("StageFailed", {"error": ERROR}, "FAILED", (None, "Lost", "m" * 500)),
        ("StageSkipped", {"reason": "r" * 600}, "SKIPPED", (None, None, "r" * 500)),
        ("StageCancelled", {"reason": "stop"}, "CANCELLED", (None, None, "stop")),
        ("StageCancelled", {"reason": None}, "CANCELLED", (None, None, None)),
    ],
)
def test_ends(strict: SessionBuilder, type_: str, fields: dict[str, Any], status: str, wanted: tuple[Any, ...]) -> None:
    schedule(strict)
    strict.append("StageStarted", stage_id=A)
    strict.append(type_, stage_id=A, **fields)
    row, seq = stage(strict), strict.events[-1].seq
    assert (row.status, row.ended_seq, row.ended_at) == (status, seq, at(seq))
    assert (row.outputs_digest, row.error_class, row.reason) == wanted
    assert (row.started_seq, row.worker) == (seq - 1, None)


def test_what_a_recording_leaves_out() -> None:
    builder = SessionBuilder("s-1", profile="IMPORTED").begin()
    schedule(builder, inputs_digest=None, transition_id=None)
    builder.append("StageStarted", stage_id=A, worker=None)
    builder.append("StageCompleted", stage_id=A, outputs_digest=None)
    row = stage(builder)
    assert (row.status, row.inputs_digest, row.outputs_digest, row.worker) == ("COMPLETED", None, None, None)
    assert (row.transition_id, row.transition_seq, row.depends_on) == (None, None, [])


def test_a_second_start_takes_the_end_back() -> None:
    builder = SessionBuilder("s-1", profile="OBSERVED").begin()
    schedule(builder)
    builder.append("StageFailed", stage_id=A, error=ERROR)
    builder.append("StageStarted", stage_id=A, worker="w2")
    row = stage(builder)
    assert (row.status, row.worker, row.ended_seq, row.ended_at) == ("STARTED", "w2", None, None)
    assert (row.error_class, row.reason) == (None, None)
    schedule(builder, attempt=2)
    assert stage(builder).attempt == 2
    assert (stage(builder).status, stage(builder).started_seq) == ("SCHEDULED", None)


def test_a_violation_changes_nothing(strict: SessionBuilder) -> None:
    schedule(strict)
    strict.append("StageCompleted", stage_id=A)
    assert strict.verdicts[-1].violations == ("P2",)
    assert stage(strict).status == "SCHEDULED"
    assert stage(strict).outputs_digest is None


def test_a_transition_with_its_guard(strict: SessionBuilder) -> None:
    guards = [{"name": name, "digest": digest_of(name)} for name in ("x", "y")]
    strict.append(
        "TransitionTaken", transition_id="t", from_stage="z", to_stage="a", guard_id="g", guard_result=True,
        candidates=["a", "b"], guard_inputs=guards,
    )  # fmt: skip
    seq = strict.events[-1].seq
    assert rows_of(Stages(), strict) == {
        ("transition", seq): StageRow(
            kind="TRANSITION", transition_id="t", taken_at=at(seq), from_stage="z", to_stage="a", guard_id="g",
            guard_result=True, candidates=["a", "b"], guard_inputs=["x", "y"],
            guard_digests=[digest_of("x"), digest_of("y")],
        )
    }  # fmt: skip


def test_a_transition_that_says_only_where_to(strict: SessionBuilder) -> None:
    strict.append("TransitionTaken", to_stage="a")
    seq = strict.events[-1].seq
    row = rows_of(Stages(), strict)["transition", seq]
    assert row == StageRow(kind="TRANSITION", to_stage="a", taken_at=at(seq))


def test_a_stage_knows_the_newest_transition_of_its_id(strict: SessionBuilder) -> None:
    for _ in range(2):
        strict.append("TransitionTaken", transition_id="again", from_stage="a", to_stage="a")
    schedule(strict, transition_id="again")
    schedule(strict, "a.2", transition_id="never taken")
    assert (stage(strict).transition_id, stage(strict).transition_seq) == ("again", strict.events[-1].seq - 2)
    assert (stage(strict, "a.2").transition_id, stage(strict, "a.2").transition_seq) == ("never taken", None)


def test_lists_have_limits_and_what_is_beyond_is_counted(strict: SessionBuilder) -> None:
    names = [f"{n}" for n in range(LISTED + 3)]
    guards = [{"name": name, "digest": digest_of(name)} for name in names]
    strict.append("TransitionTaken", to_stage="a", candidates=names[:-1], guard_inputs=guards)
    schedule(strict, depends_on=names[:-2])
    row = rows_of(Stages(), strict)["transition", strict.events[-2].seq]
    assert (row.candidates, row.more_candidates) == (names[:LISTED], 2)
    assert (row.guard_inputs, row.more_guard_inputs) == (names[:LISTED], 3)
    assert row.guard_digests == [digest_of(name) for name in names[:LISTED]]
    assert (stage(strict).depends_on, stage(strict).more_depends_on) == (names[:LISTED], 1)


def test_texts_of_any_length_are_bounded(strict: SessionBuilder) -> None:
    long = "x" * 70_000
    guards = [{"name": long, "digest": digest_of("x")}]
    strict.append(
        "TransitionTaken", transition_id=long, from_stage=long, to_stage=long, guard_id=long, candidates=[long],
        guard_inputs=guards,
    )  # fmt: skip
    strict.append("StageScheduled", stage_id=long, stage_name=long, transition_id=long, depends_on=[long])
    strict.append("StageStarted", stage_id=long, worker=long)
    row = rows_of(Stages(), strict)["transition", strict.events[-3].seq]
    for kept in (row.transition_id, row.from_stage, row.to_stage, row.guard_id, *row.candidates, *row.guard_inputs):
        assert kept == bounded(long)
    found = stage(strict, bounded(long))
    assert (found.transition_id, found.transition_seq) == (bounded(long), strict.events[-3].seq)
    assert (found.stage_name, found.depends_on, found.worker) == (bounded(long), [bounded(long)], "x" * 500)


def test_a_fork_goes_on_in_a_stage_of_its_parent(strict: SessionBuilder) -> None:
    schedule(strict)
    strict.append("StageStarted", stage_id=A, worker="w")
    child = strict.fork(strict.events[-1].seq, "child")
    child.append("StageCompleted", stage_id=A, outputs_digest=digest_of("out"))
    assert child.verdicts[-1].violations == ()
    row = rows_of(Stages(), child, [*strict.records, *child.records])["stage", A]
    assert (row.status, row.outputs_digest, row.ended_seq) == ("COMPLETED", digest_of("out"), 3)
    assert (row.stage_name, row.attempt, row.scheduled_seq, row.started_seq) == (None, None, None, None)


def test_an_erased_schedule_leaves_what_others_say(strict: SessionBuilder) -> None:
    schedule(strict)
    scheduled = strict.records[-1]
    strict.append("StageStarted", stage_id=A, worker="w")
    row = rows_of(Stages(), strict, [*strict.records, strict.amend([scheduled])])["stage", A]
    assert (row.status, row.worker, row.stage_name, row.scheduled_seq) == ("STARTED", "w", None, None)

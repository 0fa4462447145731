"""The rollup ``usage``, rule by rule."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from dalsegno.model.lifecycle.state import bounded
from dalsegno.projections.rows import UsageRow
from dalsegno.projections.usage import day_of
from dalsegno.testing.builder import START_MICROS, SessionBuilder, Written
from shard_lab import apply, folded, reads

DAY_MICROS = 86_400 * 1_000_000
EPOCH = date(1970, 1, 1).toordinal()
MORNING = "2026-01-01"


def sums_of(*builders: SessionBuilder, more: list[Written] | None = None) -> dict[Any, UsageRow]:
    """By day, workflow, provider and model: the builder's partition is 0."""
    records = [record for builder in builders for record in builder.records]
    found = dict(reads(folded([*records, *(more or [])])).rollups("usage"))
    assert {key[0] for key in found} <= {0}
    return {key[1:]: row for key, row in found.items()}


def session(name: str = "s", workflow: str = "w") -> SessionBuilder:
    return SessionBuilder(name, profile="OBSERVED").begin(workflow)


def ask(builder: SessionBuilder, id: str = "i", attempt: int = 1, **fields: Any) -> Written:
    named = {"inference_id": id, "attempt": attempt, "purpose": "OTHER", "provider": "acme", "model": "m", **fields}
    return builder.append("InferenceRequested", **named)


def answer(builder: SessionBuilder, id: str = "i", attempt: int = 1, **fields: Any) -> Written:
    named = {"inference_id": id, "attempt": attempt, "complete": True, "usage": {"input": 1}, **fields}
    return builder.append("InferenceCompleted", **named)


def fail(builder: SessionBuilder, id: str = "i", attempt: int = 1, **fields: Any) -> Written:
    return builder.append("InferenceFailed", inference_id=id, attempt=attempt, **fields)


def test_every_amount_is_added_under_its_key() -> None:
    builder = session()
    ask(builder)
    usage = {"input": 1, "output": 2, "cache_read": 3, "cache_creation": 4, "reasoning": 5}
    answer(builder, usage=usage, cost_usd_micros=6, latency_ms=7)
    assert sums_of(builder) == {
        (MORNING, "w", "acme", "m"): UsageRow(
            inferences=1, input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_creation_tokens=4,
            reasoning_tokens=5, cost_usd_micros=6, latency_ms=7,
        )
    }  # fmt: skip


def test_a_duration_below_zero_is_unknown_and_adds_nothing() -> None:
    # case C50
    builder = session()
    for latency_ms in (-600_000, 7):
        ask(builder)
        answer(builder, latency_ms=latency_ms)
    (row,) = sums_of(builder).values()
    assert (row.inferences, row.latency_ms) == (2, 7)


def test_what_is_not_said_adds_nothing_and_stands_under_no_name() -> None:
    builder = session(workflow="")
    ask(builder, provider=None, model=None)
    answer(builder, usage={})
    assert sums_of(builder) == {(MORNING, "", "", ""): UsageRow(inferences=1)}


def test_the_model_that_answered_counts() -> None:
    builder = session()
    ask(builder)
    answer(builder, model="m-2")
    ask(builder, attempt=2)
    fail(builder, attempt=2)
    assert sums_of(builder) == {
        (MORNING, "w", "acme", "m-2"): UsageRow(inferences=1, input_tokens=1),
        (MORNING, "w", "acme", "m"): UsageRow(failed_inferences=1),
    }


def test_workflows_of_sessions_are_told_apart_and_their_sessions_are_not() -> None:
    builders = [session("s1", "one"), session("s2", "one"), session("s3", "two")]
    for builder in builders:
        ask(builder)
        answer(builder)
    assert sums_of(*builders) == {
        (MORNING, "one", "acme", "m"): UsageRow(inferences=2, input_tokens=2),
        (MORNING, "two", "acme", "m"): UsageRow(inferences=1, input_tokens=1),
    }


@pytest.mark.parametrize(
    ("occurred", "recorded", "day"),
    [(START_MICROS + DAY_MICROS, START_MICROS, "2026-01-02"), (None, START_MICROS + 2 * DAY_MICROS, "2026-01-03")],
)
def test_the_day_is_the_producers_else_the_writers(occurred: int | None, recorded: int, day: str) -> None:
    builder = session()
    ask(builder)
    answer(builder, meta={"occurred_at": occurred, "recorded_at": recorded})
    assert list(sums_of(builder)) == [(day, "w", "acme", "m")]


def test_an_attempt_that_a_recovery_closed_adds_nothing_and_is_asked_anew() -> None:
    builder = session()
    ask(builder)
    builder.recover("RETRY")
    assert sums_of(builder) == {}
    ask(builder, attempt=2, provider="other")
    answer(builder, attempt=2)
    assert list(sums_of(builder)) == [(MORNING, "w", "other", "m")]


def test_an_answer_of_an_erased_request_has_only_its_own_names() -> None:
    builder = session()
    asked = ask(builder)
    answer(builder, model="m-2")
    assert list(sums_of(builder, more=[builder.amend([asked])])) == [(MORNING, "w", "", "m-2")]
    assert list(sums_of(builder, more=[builder.amend([builder.records[0]])])) == [(MORNING, "", "acme", "m-2")]


def test_an_erased_session_is_taken_back_to_nothing() -> None:
    builder, other = session("s1"), session("s2")
    for each in (builder, other):
        ask(each)
        answer(each)
    shard = folded([*builder.records, *other.records])
    apply(shard, [builder.amend(whole_session=True)])
    assert dict(reads(shard).rollups("usage")) == {
        (0, MORNING, "w", "acme", "m"): UsageRow(inferences=1, input_tokens=1)
    }
    apply(shard, [other.amend(whole_session=True)])
    assert dict(reads(shard).rollups("usage")) == {}


def test_no_key_grows_with_what_comes_from_outside() -> None:
    long = "x" * 5000
    builder = session(workflow=long)
    ask(builder, provider=long, model=long)
    answer(builder)
    assert list(sums_of(builder)) == [(MORNING, bounded(long), bounded(long), bounded(long))]


def test_days_are_utc_and_total() -> None:
    assert day_of(0) == "1970-01-01"
    assert day_of(-1) == "1969-12-31"
    assert day_of(1_767_225_599_999_999) == "2025-12-31"
    assert day_of(1_767_225_600_000_000) == "2026-01-01"
    first, last = date.min.toordinal() - EPOCH, date.max.toordinal() - EPOCH
    assert (day_of(first * DAY_MICROS), day_of(first * DAY_MICROS - 1)) == ("0001-01-01", "UNKNOWN")
    assert (day_of((last + 1) * DAY_MICROS - 1), day_of((last + 1) * DAY_MICROS)) == ("9999-12-31", "UNKNOWN")
    assert day_of(None) == day_of(2**63 - 1) == day_of(-(2**63)) == "UNKNOWN"

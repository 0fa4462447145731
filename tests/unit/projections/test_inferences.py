"""The projection ``inferences``, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.model.lifecycle.state import bounded
from dalsegno.projections.inferences import Inferences
from dalsegno.projections.rows import InferenceRow
from dalsegno.testing.builder import STEP_MICROS, SessionBuilder, Written, digest_of
from projection_lab import rows_of

ASKED = {"inference_id": "i", "attempt": 1, "purpose": "OTHER"}
USAGE = {"input": None, "output": None, "cache_read": None, "cache_creation": None, "reasoning": None}


def row_of(builder: SessionBuilder, *more: Written) -> InferenceRow:
    return rows_of(Inferences(), builder, [*builder.records, *more])["i",]  # type: ignore[no-any-return]


@pytest.fixture
def builder() -> SessionBuilder:
    return SessionBuilder("s", profile="OBSERVED").begin()


def answer(builder: SessionBuilder, **fields: Any) -> Written:
    return builder.append(
        "InferenceCompleted", **{"inference_id": "i", "attempt": 1, "complete": True, "usage": USAGE, **fields}
    )


def test_an_open_inference_shows_what_was_asked(builder: SessionBuilder) -> None:
    builder.append(
        "InferenceRequested",
        inference_id="i",
        attempt=1,
        purpose="COMPRESSION",
        provider="acme",
        model="m",
        pack_id="p",
        subject_id="c",
        request_digest=digest_of("q"),
        meta={"stage_id": "st", "turn_id": "t"},
    )
    event = builder.events[-1]
    assert row_of(builder) == InferenceRow(
        status="OPEN", purpose="COMPRESSION", provider="acme", model="m", pack_id="p", subject_id="c", stage_id="st",
        turn_id="t", attempts=1, requested_seq=event.seq, requested_at=event.meta["recorded_at"],
        request_digest=digest_of("q"),
    )  # fmt: skip


def test_durations_below_zero_are_unknown(builder: SessionBuilder) -> None:
    # case C50
    builder.append("InferenceRequested", **ASKED)
    answer(builder, latency_ms=-8, ttft_ms=-9)
    assert (row_of(builder).status, row_of(builder).latency_ms, row_of(builder).ttft_ms) == ("COMPLETED", None, None)


def test_an_answer_shows_what_came(builder: SessionBuilder) -> None:
    builder.append("InferenceRequested", **ASKED, model="asked")
    usage = {"input": 5, "output": 4, "cache_read": 3, "cache_creation": 2, "reasoning": 1}
    calls = [{"tool_call_id": id, "name": "t", "arguments_digest": None} for id in ("c1", "c2")]
    answer(
        builder, model="answered", usage=usage, tool_calls=calls, finish_reasons=["stop"], output_digest=digest_of("o"),
        response_id="r", cache="READ", cost_usd_micros=7, latency_ms=8, ttft_ms=9, complete=False,
    )  # fmt: skip
    row = row_of(builder)
    assert (row.status, row.model, row.tool_calls, row.finish_reasons) == ("COMPLETED", "answered", 2, ["stop"])
    tokens = row.input_tokens, row.output_tokens, row.cache_read_tokens, row.cache_creation_tokens, row.reasoning_tokens
    assert tokens == (5, 4, 3, 2, 1)
    assert (row.cost_usd_micros, row.latency_ms, row.ttft_ms, row.complete, row.cache) == (7, 8, 9, False, "READ")
    assert (row.output_digest, row.response_id, row.ended_seq) == (digest_of("o"), "r", builder.events[-1].seq)
    assert row.ended_at == (row.requested_at or 0) + STEP_MICROS


def test_what_a_recording_does_not_say_stays_unsaid(builder: SessionBuilder) -> None:
    builder.append("InferenceRequested", **ASKED)
    answer(builder)
    row = row_of(builder)
    assert (row.provider, row.model, row.pack_id, row.request_digest, row.output_digest) == (None,) * 5
    assert (row.input_tokens, row.output_tokens, row.reasoning_tokens, row.cost_usd_micros) == (None,) * 4
    assert (row.latency_ms, row.ttft_ms, row.http_status, row.error_class) == (None,) * 4
    assert row.complete


def test_a_failure_is_kept_when_a_later_attempt_succeeds(builder: SessionBuilder) -> None:
    builder.append("InferenceRequested", **ASKED)
    error = {"error_class": "Busy", "message": "m" * 600, "retryable": True, "detail": None}
    builder.append("InferenceFailed", inference_id="i", attempt=1, http_status=529, error=error)
    row = row_of(builder)
    assert (row.status, row.failed_attempts, row.ended_seq) == ("FAILED", 1, builder.events[-1].seq)
    builder.append("InferenceRequested", **ASKED | {"attempt": 2})
    row = row_of(builder)
    assert (row.status, row.attempts, row.ended_seq) == ("OPEN", 2, None)
    answer(builder, attempt=2)
    row = row_of(builder)
    assert (row.status, row.attempts, row.failed_attempts, row.http_status) == ("COMPLETED", 2, 1, 529)
    assert (row.error_class, row.error_message) == ("Busy", "m" * 500)


@pytest.mark.parametrize(("resolution", "status", "lost"), [("RETRY", "LOST", 1), ("KEEP_WAITING", "OPEN", 0)])
def test_a_recovery_loses_the_open_attempt(builder: SessionBuilder, resolution: str, status: str, lost: int) -> None:
    builder.append("InferenceRequested", **ASKED)
    builder.recover(resolution)
    row = row_of(builder)
    assert (row.status, row.lost_attempts, row.failed_attempts) == (status, lost, 0)
    assert row.ended_seq == (builder.events[-1].seq if lost else None)
    if lost:
        builder.append("InferenceRequested", **ASKED | {"attempt": 2})
        answer(builder, attempt=2)
        row = row_of(builder)
        assert (row.status, row.attempts, row.lost_attempts) == ("COMPLETED", 2, 1)


def test_asked_again_after_an_answer_the_old_answer_is_not_shown(builder: SessionBuilder) -> None:
    builder.append("InferenceRequested", **ASKED)
    answer(builder, output_digest=digest_of("o"), usage=USAGE | {"input": 5}, finish_reasons=["stop"])
    builder.append("InferenceRequested", **ASKED | {"attempt": 2})
    row = row_of(builder)
    assert (row.status, row.output_digest, row.input_tokens, row.finish_reasons) == ("OPEN", None, None, [])


@pytest.mark.parametrize("profile", ["STRICT", "OBSERVED", "IMPORTED"])
def test_an_answer_that_nothing_asked_for_is_an_orphan(profile: str) -> None:
    builder = SessionBuilder("s", profile=profile).begin()
    answer(builder)
    assert "I2" in builder.verdicts[-1].violations
    assert row_of(builder) == InferenceRow(status="ORPHAN", refused=1)
    if profile != "STRICT":
        builder.append("InferenceRequested", **ASKED)
        row = row_of(builder)
        assert (row.status, row.refused, row.attempts) == ("OPEN", 1, 1)


def test_a_second_answer_is_refused_and_counted(builder: SessionBuilder) -> None:
    builder.append("InferenceRequested", **ASKED)
    answer(builder, model="first")
    answer(builder, model="second")
    row = row_of(builder)
    assert (row.status, row.model, row.refused) == ("COMPLETED", "first", 1)


def test_an_answer_whose_request_was_erased_is_shown_without_it(builder: SessionBuilder) -> None:
    request = builder.append("InferenceRequested", **ASKED)
    answer(builder, model="m")
    row = row_of(builder, builder.amend([request]))
    assert (row.status, row.requested_seq, row.model, row.purpose) == ("COMPLETED", 0, "m", "UNKNOWN")


def test_no_row_grows_with_what_comes_from_outside(builder: SessionBuilder) -> None:
    long = "x" * 5000
    builder.append("InferenceRequested", **ASKED | {"inference_id": long}, provider=long, model=long, pack_id=long)
    answer(builder, inference_id=long, finish_reasons=[long] * 20, response_id=long)
    ((row_id, row),) = rows_of(Inferences(), builder).items()
    assert row_id == (bounded(long),)
    assert row.pack_id == bounded(long)
    assert (len(row.provider or ""), len(row.model or ""), len(row.response_id or "")) == (500, 500, 500)
    assert [len(reason) for reason in row.finish_reasons] == [100] * 8

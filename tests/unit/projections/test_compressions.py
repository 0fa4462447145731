"""The rows of ``compressions``, event by event."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.model.lifecycle.state import bounded
from dalsegno.projections.compressions import Compressions
from dalsegno.projections.rows import CompressionRow
from dalsegno.testing.builder import START_MICROS, STEP_MICROS, SessionBuilder, blob, digest_of
from projection_lab import rows_of

KEY = {"rule_id": "rule", "rule_digest": digest_of("rule"), "input_digest": digest_of("input")}


@pytest.fixture
def strict() -> SessionBuilder:
    return SessionBuilder("s-1").begin()


def at(seq: int) -> int:
    return START_MICROS + seq * STEP_MICROS


def only(builder: SessionBuilder, id: str = "k") -> CompressionRow:
    row: CompressionRow = rows_of(Compressions(), builder)[(id,)]
    return row


def forgotten(builder: SessionBuilder, id: str = "k") -> list[str | None]:
    rows = rows_of(Compressions(), builder)
    found = {row_id[2]: row for row_id, row in rows.items() if row_id[:2] == (id, "forgotten")}
    assert all(row == CompressionRow(kind="FORGOTTEN", item_id=row.item_id) for row in found.values())
    return [found[n].item_id for n in range(len(found))]


def start(builder: SessionBuilder, **fields: Any) -> None:
    builder.append("CompressionStarted", **{"compression_id": "k", "trigger": "THRESHOLD", **KEY, **fields})


def complete(builder: SessionBuilder, **fields: Any) -> None:
    given = {"compression_id": "k", "method": "SUMMARY", "effect": "REAPPLIABLE", **fields}
    builder.append("CompressionCompleted", **given)


def test_a_start(strict: SessionBuilder) -> None:
    strict.append("StageScheduled", stage_id="a.1", stage_name="a")
    strict.append("StageStarted", stage_id="a.1")
    strict.append("TurnStarted", turn_id="a.1/t1")
    start(strict, scope=["m1", "m2"], tokens_before=90)
    seq = strict.events[-1].seq
    assert rows_of(Compressions(), strict) == {
        ("k",): CompressionRow(
            status="STARTED", trigger="THRESHOLD", **KEY, scope=2, tokens_before=90, started_seq=seq,
            started_at=at(seq), stage_id="a.1", turn_id="a.1/t1",
        )  # type: ignore[arg-type]
    }  # fmt: skip


def test_a_completion(strict: SessionBuilder) -> None:
    start(strict, scope=["m1", "m2"], tokens_before=90)
    complete(
        strict, **KEY, output_digest=digest_of("out"), inference_id="k/i", prev_compression_id="k0", window_number=2,
        insert_at=1, tokens_before=91, tokens_after=9, forgotten=["m1", "m2"], summary=blob(b"short"),
        replacement=blob(b"[]"),
    )  # fmt: skip
    seq = strict.events[-1].seq
    assert only(strict) == CompressionRow(
        status="COMPLETED", trigger="THRESHOLD", **KEY, scope=2, forgotten=2, method="SUMMARY", effect="REAPPLIABLE",
        output_digest=digest_of("out"), inference_id="k/i", prev_compression_id="k0", window_number=2, insert_at=1,
        tokens_before=91, tokens_after=9, summary_digest=blob(b"short")["digest"],
        replacement_digest=blob(b"[]")["digest"], started_seq=seq - 1, started_at=at(seq - 1), ended_seq=seq,
        ended_at=at(seq),
    )  # type: ignore[arg-type]  # fmt: skip
    assert forgotten(strict) == ["m1", "m2"]


def test_one_that_asked_no_model_has_no_start(strict: SessionBuilder) -> None:
    complete(strict, **KEY, method="TRIM", forgotten=["m1"])
    row = only(strict)
    assert (row.status, row.method, row.forgotten) == ("COMPLETED", "TRIM", 1)
    assert (row.trigger, row.scope, row.started_seq, row.started_at) == (None, None, None, None)
    assert (row.rule_id, row.rule_digest, row.input_digest) == tuple(KEY.values())


def test_a_failure(strict: SessionBuilder) -> None:
    start(strict)
    strict.append(
        "CompressionFailed",
        compression_id="k",
        error={"error_class": "TooLong", "message": "m" * 600, "retryable": False},
    )
    row, seq = only(strict), strict.events[-1].seq
    assert (row.status, row.error_class, row.error_message) == ("FAILED", "TooLong", "m" * 500)
    assert (row.ended_seq, row.ended_at, row.started_seq, row.method) == (seq, at(seq), seq - 1, None)
    assert forgotten(strict) == []


@pytest.mark.parametrize(
    ("resolution", "status"),
    [("ABANDONED", "GIVEN_UP"), ("FAILED", "GIVEN_UP"), ("KEEP_WAITING", "STARTED"), ("RETRY", "STARTED")],
)
def test_a_recovery(strict: SessionBuilder, resolution: str, status: str) -> None:
    start(strict)
    strict.append("InputRequested", request_id="other", prompt=blob(b"?"))
    strict.recover(resolution)
    assert strict.verdicts[-1].violations == ()
    seq = strict.events[-1].seq if status == "GIVEN_UP" else None
    assert (only(strict).status, only(strict).ended_seq) == (status, seq)


def test_what_a_recording_leaves_out() -> None:
    builder = SessionBuilder("s-1", profile="IMPORTED").begin()
    complete(builder, effect="MARKER_ONLY", method="REPLACE_HISTORY")
    row, seq = only(builder), builder.events[-1].seq
    assert row == CompressionRow(
        status="COMPLETED", method="REPLACE_HISTORY", effect="MARKER_ONLY", ended_seq=seq, ended_at=at(seq)
    )


def test_what_the_end_leaves_out_the_start_has_said() -> None:
    builder = SessionBuilder("s-1", profile="OBSERVED").begin()
    start(builder, tokens_before=90)
    complete(builder)
    row = only(builder)
    assert (row.rule_id, row.rule_digest, row.input_digest, row.tokens_before) == (*KEY.values(), 90)


def test_what_the_end_says_counts_more_than_its_start(strict: SessionBuilder) -> None:
    start(strict, tokens_before=90)
    other = {"rule_id": "other", "rule_digest": digest_of("o"), "input_digest": digest_of("i")}
    complete(strict, **other, tokens_before=0)
    row = only(strict)
    assert (row.rule_id, row.rule_digest, row.input_digest, row.tokens_before) == (*other.values(), 0)


def test_a_failure_of_what_nobody_started() -> None:
    """Its start was erased."""
    builder = SessionBuilder("s-1", profile="OBSERVED").begin()
    start(builder)
    started = builder.records[-1]
    builder.append(
        "CompressionFailed", compression_id="k", error={"error_class": "X", "message": "m", "retryable": False}
    )
    rows = rows_of(Compressions(), builder, [*builder.records, builder.amend([started])])
    assert (rows[("k",)].status, rows[("k",)].started_seq, rows[("k",)].rule_id) == ("FAILED", None, None)


def test_an_id_used_again_leaves_nothing_of_the_first() -> None:
    builder = SessionBuilder("s-1", profile="OBSERVED").begin()
    complete(builder, forgotten=["m1", "m2", "m3"])
    start(builder, scope=["m4"])
    row = only(builder)
    assert (row.status, row.scope, row.method, row.forgotten) == ("STARTED", 1, None, 3)
    complete(builder, forgotten=["m4"])
    assert (only(builder).status, only(builder).forgotten) == ("COMPLETED", 1)
    assert forgotten(builder) == ["m4"]


def test_a_violation_changes_nothing(strict: SessionBuilder) -> None:
    complete(strict, **KEY, forgotten=["m1"])
    complete(strict, **KEY, method="TRIM", forgotten=["m2", "m3"])
    assert strict.verdicts[-1].violations == ("K2",)
    assert only(strict).method == "SUMMARY"
    assert forgotten(strict) == ["m1"]


def test_no_row_grows_with_what_is_forgotten(strict: SessionBuilder) -> None:
    items = [f"item {n}" for n in range(1_000)]
    complete(strict, **KEY, forgotten=[*items, "x" * 300])
    assert forgotten(strict) == [*items, bounded("x" * 300)]
    assert only(strict).forgotten == 1_001

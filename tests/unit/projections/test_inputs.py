"""The projection ``inputs``, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.projections.inputs import Inputs
from dalsegno.projections.rows import InputRow
from dalsegno.testing.builder import SessionBuilder, Written, blob
from projection_lab import rows_of


@pytest.fixture
def builder() -> SessionBuilder:
    return SessionBuilder("s", profile="OBSERVED").begin()


def row_of(builder: SessionBuilder, *more: Written) -> InputRow:
    return rows_of(Inputs(), builder, [*builder.records, *more])["q",]  # type: ignore[no-any-return]


def ask(builder: SessionBuilder, **fields: Any) -> Written:
    meta = {"stage_id": "plan.1", "turn_id": "plan.1/t1"}
    return builder.append("InputRequested", **{"request_id": "q", "prompt": blob(b"which?"), "meta": meta, **fields})


def answer(builder: SessionBuilder, outcome: str, content: bytes | None = None) -> Written:
    given = None if content is None else blob(content)
    meta = {"actor_id": "maria", "actor_kind": "USER"}
    return builder.append("InputProvided", request_id="q", outcome=outcome, content=given, meta=meta)


def test_an_open_question_shows_what_is_asked_and_for_how_long(builder: SessionBuilder) -> None:
    ask(builder, schema=blob(b"{}"), ttl_ms=5000, on_expiry="default")
    event = builder.events[-1]
    assert row_of(builder) == InputRow(
        status="OPEN", prompt="which?", prompt_digest=blob(b"which?")["digest"], schema_digest=blob(b"{}")["digest"],
        stage_id="plan.1", turn_id="plan.1/t1", requested_seq=event.seq, requested_at=event.meta["recorded_at"],
        ttl_ms=5000, on_expiry="default",
    )  # fmt: skip


@pytest.mark.parametrize("outcome", ["ACCEPTED", "DECLINED", "CANCELLED", "EXPIRED"])
def test_an_answer_says_how_by_whom_and_what(builder: SessionBuilder, outcome: str) -> None:
    ask(builder)
    answer(builder, outcome, b"this")
    row, event = row_of(builder), builder.events[-1]
    assert (row.status, row.ended_by_kind, row.ended_by) == (outcome, "USER", "maria")
    assert (row.ended_seq, row.ended_at) == (event.seq, event.meta["recorded_at"])
    assert (row.content_digest, row.prompt) == (blob(b"this")["digest"], "which?")


@pytest.mark.parametrize(("resolution", "status"), [("ABANDONED", "GIVEN_UP"), ("KEEP_WAITING", "OPEN")])
def test_a_recovery_may_give_it_up(builder: SessionBuilder, resolution: str, status: str) -> None:
    ask(builder)
    builder.recover(resolution)
    row = row_of(builder)
    assert (row.status, row.prompt) == (status, "which?")
    assert row.ended_seq == (builder.events[-1].seq if status == "GIVEN_UP" else None)


def test_only_text_that_the_event_holds_is_shown(builder: SessionBuilder) -> None:
    ask(builder, prompt=blob(b"x" * 600))
    assert row_of(builder).prompt == "x" * 500
    builder.append("InputRequested", request_id="bytes", prompt=blob(b"\xff"))
    builder.append("InputRequested", request_id="none", prompt=None)
    builder.append("InputRequested", request_id="away", prompt={**blob(b"y"), "inline": None, "uri": "blob:y"})
    rows = rows_of(Inputs(), builder)
    assert [rows[name,].prompt for name in ("bytes", "none", "away")] == [None] * 3
    assert rows["away",].prompt_digest == blob(b"y")["digest"]


def test_an_answer_whose_question_was_erased_is_shown_without_it(builder: SessionBuilder) -> None:
    asked = ask(builder)
    answer(builder, "ACCEPTED")
    row = row_of(builder, builder.amend([asked]))
    assert (row.status, row.requested_seq, row.prompt, row.ended_by) == ("ACCEPTED", 0, None, "maria")


def test_what_breaks_a_rule_is_counted_and_has_no_other_effect() -> None:
    builder = SessionBuilder("s").begin()
    answer(builder, "ACCEPTED")
    assert row_of(builder) == InputRow(status="ORPHAN", refused=1)
    ask(builder)
    answer(builder, "DECLINED")
    answer(builder, "ACCEPTED")
    row = row_of(builder)
    assert (row.status, row.refused, row.prompt) == ("DECLINED", 2, "which?")

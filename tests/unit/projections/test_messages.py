"""The rows of ``messages``."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest

from dalsegno.model.lifecycle.state import bounded
from dalsegno.projections.messages import TEXT_SHOWN, Messages, parts_digest
from dalsegno.projections.rows import MessageRow
from dalsegno.testing.builder import START_MICROS, STEP_MICROS, SessionBuilder, blob
from projection_lab import rows_of

NO_PARTS = sha256(b"[]").digest()


@pytest.fixture
def builder() -> SessionBuilder:
    return SessionBuilder("s-1").begin()


def said(builder: SessionBuilder, *parts: dict[str, Any], **fields: Any) -> MessageRow:
    builder.append("MessageReceived", **{"message_id": "m", "role": "USER", "parts": list(parts), **fields})
    row: MessageRow = rows_of(Messages(), builder)[(builder.events[-1].seq,)]
    return row


def test_a_message_in_a_turn(builder: SessionBuilder) -> None:
    builder.append("StageScheduled", stage_id="a.1", stage_name="a")
    builder.append("StageStarted", stage_id="a.1")
    builder.append("TurnStarted", turn_id="a.1/t1")
    row = said(builder, {"kind": "TEXT", "text": "Hello"}, channel="chat")
    assert row == MessageRow(
        message_id="m", role="USER", channel="chat", received_at=START_MICROS + builder.events[-1].seq * STEP_MICROS,
        stage_id="a.1", turn_id="a.1/t1", text_parts=1, characters=5, text="Hello",
        digest=sha256(b'[["TEXT",null,null,"Hello",null]]').digest(),
    )  # fmt: skip


def test_what_a_message_may_leave_out(builder: SessionBuilder) -> None:
    row = said(builder, channel=None)
    assert row == MessageRow(message_id="m", role="USER", received_at=row.received_at, digest=NO_PARTS)


@pytest.mark.parametrize("role", ["SYSTEM", "DEVELOPER", "USER", "EXTERNAL_AGENT"])
def test_roles(builder: SessionBuilder, role: str) -> None:
    assert said(builder, role=role).role == role


@pytest.mark.parametrize(
    ("kind", "counted"),
    [
        ("TEXT", "text_parts"),
        ("REASONING", "reasoning_parts"),
        ("TOOL_CALL", "tool_call_parts"),
        ("TOOL_RESULT", "tool_result_parts"),
        ("MEDIA", "media_parts"),
        ("OTHER", "other_parts"),
    ],
)
def test_parts_are_counted_by_kind(builder: SessionBuilder, kind: str, counted: str) -> None:
    row = said(builder, {"kind": kind, "text": "ab"}, {"kind": kind, "call_id": "c", "name": "n"})
    counts = {name: getattr(row, name) for name in MessageRow.__struct_fields__ if name.endswith("_parts")}
    assert counts == dict.fromkeys(counts, 0) | {counted: 2}
    assert (row.characters, row.blob_bytes) == (2, 0)
    assert row.text == ("ab" if kind == "TEXT" else "")


def test_only_the_first_words_are_kept(builder: SessionBuilder) -> None:
    long = "é" * 70_000
    row = said(builder, {"kind": "TEXT", "text": "one"}, {"kind": "TEXT", "text": long}, message_id=long, channel=long)
    assert row.text == ("one\n" + long)[:TEXT_SHOWN]
    assert row.characters == 70_003
    assert (row.message_id, row.channel) == (bounded(long), "é" * 500)


def test_bytes_are_those_that_the_blobs_say(builder: SessionBuilder) -> None:
    huge = {**blob(b""), "inline": None, "uri": "x:y", "size": 2**63 - 1}
    row = said(builder, {"kind": "MEDIA", "blob": blob(b"12345")}, {"kind": "TOOL_RESULT", "blob": blob(b"67")})
    assert row.blob_bytes == 7
    assert said(builder, {"kind": "MEDIA", "blob": huge}, {"kind": "MEDIA", "blob": huge}).blob_bytes == -2


def test_an_id_that_comes_again_is_another_message(builder: SessionBuilder) -> None:
    said(builder, {"kind": "TEXT", "text": "first"})
    said(builder, {"kind": "TEXT", "text": "second"})
    first = builder.events[-2].seq
    assert {id: row.text for id, row in rows_of(Messages(), builder).items()} == {
        (first,): "first",
        (first + 1,): "second",
    }


def test_equal_parts_have_equal_digests_and_no_others() -> None:
    parts = [
        {"kind": "TEXT", "call_id": None, "name": None, "text": 'a"b\n', "blob": None},
        {"kind": "TOOL_RESULT", "call_id": "c", "name": "n", "text": None, "blob": blob(b"x")},
    ]
    plain = [["TEXT", None, None, 'a"b\n', None], ["TOOL_RESULT", "c", "n", None, sha256(b"x").hexdigest()]]
    text = json.dumps(plain, separators=(",", ":"))
    assert parts_digest(parts) == sha256(text.encode()).digest()
    assert parts_digest(parts[::-1]) != parts_digest(parts)
    for field, other in (("kind", "OTHER"), ("call_id", "d"), ("name", "m"), ("text", ""), ("blob", None)):
        assert parts_digest([parts[0], {**parts[1], field: other}]) != parts_digest(parts), field

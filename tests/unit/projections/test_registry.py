"""Projections from other packages, their rows' schemas, and values that nobody would send."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any, Literal

import msgspec
import pytest

from dalsegno.errors import Failed, NotFound
from dalsegno.log.codec import decode_record
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.events import InferenceCompleted, InferenceRequested
from dalsegno.model.lifecycle import Verdict
from dalsegno.model.records import Event
from dalsegno.projections import registry
from dalsegno.projections.base import Projection, Rows, plus
from dalsegno.state.outbox import row_schema
from dalsegno.testing.builder import SessionBuilder
from shard_lab import apply, folded, reads


class Part(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    text: str
    digest: bytes | None = None


class NoteRow(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    kind: str
    at: int | None = None
    seen: list[str] = []
    last: bytes = b""
    mood: Literal["GOOD", "BAD"] = "GOOD"
    open: bool = False
    parts: list[Part] = []
    best: Part | None = None


class Notes(Projection[NoteRow]):
    """A toy: the last note of every kind."""

    name, version, handles, row = "notes", 3, frozenset({"NoteRecorded"}), NoteRow

    def fold(self, rows: Rows[NoteRow], event: Event, _: Verdict) -> None:
        parts = [Part(text="one"), Part(text="two", digest=event.hash)]
        rows.put(
            (event.body["kind"],),
            NoteRow(kind=event.body["kind"], at=event.meta["recorded_at"], last=event.hash, parts=parts, best=parts[1]),
        )


class Floats(Projection[Any]):
    class row(msgspec.Struct):
        score: float

    name, version, handles = "floats", 1, frozenset({"NoteRecorded"})


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    found: list[EntryPoint] = []
    monkeypatch.setattr(registry, "entry_points", lambda group: found if group == registry.GROUP else [])
    return found


def _entry(name: str) -> EntryPoint:
    return EntryPoint("x", f"{__name__}:{name}", registry.GROUP)


def test_a_projection_from_an_entry_point_is_folded_and_emitted(entries: list[EntryPoint]) -> None:
    entries.append(_entry("Notes"))
    projections = registry.chosen()
    assert [projection.name for projection in projections] == sorted(
        ["notes", *(each.name for each in registry.built_in())]
    )
    builder = SessionBuilder("s-1").begin()
    builder.append("NoteRecorded", kind="a")
    shard = folded(builder.records, projections=projections)
    item = next(item for item in shard.outbox(10) if item.projection == "notes")
    key, value = shard.current(item)
    assert key == b'["s-1","a"]'
    schemas = SchemaSet.load()
    for writer in shard.row_writers():
        schemas.add(writer.json)
    name, record = decode_record(value or b"", schemas)
    assert name == "NoteRow"
    assert record["kind"] == "a"
    assert record["last"] == builder.events[-1].hash
    second = {"text": "two", "digest": builder.events[-1].hash}
    assert (record["parts"], record["best"]) == ([{"text": "one", "digest": None}, second], second)
    assert {writer.name for writer in shard.row_writers()} >= {"dalsegno.row.notes.v3.NoteRow"}


def test_wrong_entry_points_are_named(entries: list[EntryPoint]) -> None:
    for wrong in ("NoteRow", "nothing", "Verdict"):
        entries[:] = [_entry(wrong)]
        with pytest.raises(Failed, match=wrong):
            registry.installed()
    entries[:] = [_entry("Notes"), _entry("Notes")]
    with pytest.raises(Failed, match="a second projection 'notes'"):
        registry.installed()
    entries[:] = []
    with pytest.raises(NotFound, match="notes"):
        registry.chosen(["sessions", "notes"])


def test_rows_hold_no_floats() -> None:
    with pytest.raises(Failed, match=r"row\.score"):
        row_schema(Floats(), SchemaSet.load())


def test_absurd_amounts_are_taken_back_exactly() -> None:
    builder = SessionBuilder("s-1", profile="OBSERVED").begin()
    huge = 2**63 - 1
    for number in range(3):
        asked = {"inference_id": f"i{number}", "attempt": 1}
        builder.append(InferenceRequested.TYPE, purpose="OTHER", provider="p" * 300, model=None, **asked)
        usage = {"input": huge, "output": -huge}
        builder.append(InferenceCompleted.TYPE, usage=usage, cost_usd_micros=huge, complete=True, **asked)
    other = SessionBuilder("s-2", profile="OBSERVED").begin()
    shard = folded([*other.records, *builder.records])
    assert sum(1 for _ in reads(shard).rollups("usage")) == 1
    item = next(item for item in shard.outbox(10) if item.projection == "usage")
    assert shard.current(item)[1] is not None
    apply(shard, [builder.amend(whole_session=True)])
    assert list(reads(shard).rollups("usage")) == []
    assert shard.current(item)[1] is None


def test_sums_wrap_around() -> None:
    top = 2**63 - 1
    assert plus(top, 1) == -(2**63)
    assert plus(plus(top, top), -top) == top
    assert plus(-(2**63), -1) == top

"""Rows of another version, and rows of another shape: never mixed, always folded again from the journal."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dalsegno.errors import BatchOutOfPlace, Failed, NotFound, SnapshotIncompatible, StoreDamaged
from dalsegno.model.lifecycle import Verdict
from dalsegno.model.records import Event
from dalsegno.projections.base import ALL, Projection, Rollup, Rows
from dalsegno.projections.registry import built_in
from dalsegno.state import rebuild
from dalsegno.state.keys import ROW, session_row_key
from dalsegno.state.kv import STATE
from dalsegno.state.ladder import mark_of
from dalsegno.state.reads import ShardReads
from dalsegno.testing.builder import SessionBuilder, shipped_schemas
from golden_session import golden_session
from shard_lab import Lab, apply, folded, reads


class LastTypes(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    types: list[str]


class Renamed(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    newest_first: list[str]
    count: int


class Appends(Projection[LastTypes]):
    name, version, handles, row = "types", 1, ALL, LastTypes

    def fold(self, rows: Rows[LastTypes], event: Event, _: Verdict) -> None:
        before = rows.get() or LastTypes([])
        rows.put((), LastTypes([*before.types, event.type][-5:]))


class Prepends(Projection[Renamed]):
    name, version, handles, row = "types", 2, ALL, Renamed

    def fold(self, rows: Rows[Renamed], event: Event, _: Verdict) -> None:
        before = rows.get() or Renamed([], 0)
        rows.put((), Renamed([event.type, *before.newest_first][:5], before.count + 1))


class Total(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    events: int = 0
    seqs: int = 0


class ByType(Rollup[Total]):
    name, version, handles, row = "by_type", 1, ALL, Total

    def fold(self, rows: Rows[Total], event: Event, _: Verdict) -> None:
        rows.add((event.type,), Total(1, event.seq))


class ByActor(ByType):
    version = 2

    def fold(self, rows: Rows[Total], event: Event, _: Verdict) -> None:
        rows.add((event.meta["actor_id"],), Total(1, event.seq))


@pytest.fixture
def builder() -> SessionBuilder:
    return SessionBuilder("s-1").begin()


@pytest.mark.parametrize("where", ["memory", "disk"])
@pytest.mark.parametrize(
    ("old", "new"), [(Appends, Prepends), (Prepends, Appends), (ByType, ByActor), (ByActor, ByType)]
)
def test_another_version_is_folded_again_in_both_directions(
    where: str, old: Any, new: Any, builder: SessionBuilder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # case C19
    lab = Lab(tmp_path / "shard" if where == "disk" else None)
    shard = lab.open([*built_in(), old()])
    apply(shard, builder.records[:6])
    untouched = shard.digests()["tools"]
    shard.close()
    with caplog.at_level(logging.WARNING):
        shard = lab.open([*built_in(), new()])
    assert "projections_folded_again" in caplog.text
    pure = folded(builder.records[:6], projections=[*built_in(), new()])
    assert shard.digests() == pure.digests() == shard.recompute_digests()
    assert shard.digests()["tools"] == untouched
    assert shard.cursor.next_offset == 6
    announced = {item.key for item in shard.outbox(100) if item.projection == new.name}
    assert len(announced) == len(list(reads(shard).public_rows(new.name)))
    apply(shard, builder.records[6:])
    assert shard.digests() == folded(builder.records, projections=[*built_in(), new()]).digests()
    shard.close()


@pytest.mark.parametrize("projection", built_in(), ids=lambda each: each.name)
def test_a_raised_version_makes_that_projections_rows_anew_and_no_others(projection: Projection[Any]) -> None:
    """From the journal: nothing but the shard's store is at hand."""
    # case C19
    records, name = golden_session().records, projection.name
    lab = Lab()
    shard = lab.open()
    apply(shard, records)
    before, rows = shard.digests(), list(reads(shard).public_rows(name))
    shard.clear_outbox(shard.outbox(1000))
    shard.close()
    newer: Projection[Any] = type("Newer", (type(projection),), {"version": projection.version + 1})()
    projections = [newer if each.name == name else each for each in built_in()]
    shard = lab.open(projections)
    after = shard.digests()
    assert after[name].version == projection.version + 1
    assert {other: each for other, each in after.items() if other != name} == {
        other: each for other, each in before.items() if other != name
    }
    assert list(reads(shard).public_rows(name)) == rows
    assert {item.projection for item in shard.outbox(1000)} == ({name} if rows and projection.public else set())
    assert after == folded(records, projections=projections).digests() == shard.recompute_digests()


def test_a_shard_of_other_versions_is_read_and_not_written(builder: SessionBuilder) -> None:
    # case C19
    lab = Lab()
    apply(lab.open([Appends()]), builder.records[:5])
    shard = lab.open([Prepends()], upgrade=False)
    with pytest.raises(BatchOutOfPlace, match="other versions"):
        apply(shard, builder.records[5:])
    with pytest.raises(SnapshotIncompatible, match="version 1 of types"):
        ShardReads(lab.kv, shipped_schemas(), [Prepends()]).row("types", "s-1")
    assert ShardReads(lab.kv, shipped_schemas(), [Appends()]).row("types", "s-1").types[-1] == "ConfigPinned"
    with pytest.raises(NotFound):
        ShardReads(lab.kv, shipped_schemas(), [Appends()]).row("sessions", "s-1")


def test_a_projection_that_is_no_longer_wanted_is_dropped(builder: SessionBuilder) -> None:
    lab = Lab()
    shard = lab.open([*built_in(), Appends(), ByType()])
    apply(shard, builder.records[:5])
    shard = lab.open()
    assert shard.digests() == folded(builder.records[:5]).digests()
    assert not {item.projection for item in shard.outbox(100)} & {Appends.name, ByType.name}
    with pytest.raises(Failed):
        shard.drop("lifecycle")
    with pytest.raises(Failed):
        shard.refold(["nothing"])


def test_a_crash_while_folding_again_is_begun_again(builder: SessionBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab()
    apply(lab.open([Appends()]), builder.records)

    def crash(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(rebuild, "recompute_digests", crash)
    with pytest.raises(KeyboardInterrupt):
        lab.open([Prepends()])
    monkeypatch.undo()
    with pytest.raises(SnapshotIncompatible, match="folded again"):
        ShardReads(lab.kv, shipped_schemas(), [Prepends()]).row("types", "s-1")
    shard = lab.open([Prepends()])
    assert shard.digests() == folded(builder.records, projections=[Prepends()]).digests()


@pytest.mark.parametrize(
    "bytes_",
    [
        msgspec.msgpack.encode({"types": []}),
        msgspec.msgpack.encode([["a"], 1]),
        msgspec.msgpack.encode([[1]]),
        msgspec.msgpack.encode(None),
        msgspec.msgpack.encode([None]),
        b"\xc1",
        b"",
    ],
)
def test_a_row_of_another_shape_is_refused_by_name(bytes_: bytes, builder: SessionBuilder) -> None:
    # case C47
    lab = Lab()
    shard = lab.open([Appends()])
    apply(shard, builder.records[:5])
    cursor = shard.cursor
    batch = shard.kv.batch()
    batch.put(STATE, session_row_key(ROW, "types", "s-1"), mark_of(0) + bytes_)
    shard.kv.write(batch)
    shard = lab.open([Appends()])
    with pytest.raises(StoreDamaged, match="LastTypes") as caught:
        apply(shard, builder.records[5:])
    assert caught.value.data["type"] == "LastTypes"
    assert caught.value.data["projection"] == "types"
    assert caught.value.data["session"] == "s-1"
    assert shard.cursor == cursor
    with pytest.raises(StoreDamaged, match="LastTypes"):
        reads(shard).row("types", "s-1")
    shard.refold([caught.value.data["projection"]])
    apply(shard, builder.records[5:])
    assert shard.digests() == folded(builder.records, projections=[Appends()]).digests()


def test_a_mark_of_another_shape_names_the_field() -> None:
    # case C47
    lab = Lab()
    lab.open([]).close()
    batch = lab.kv.batch()
    batch.put(STATE, b"mposition", msgspec.msgpack.encode({"format": 1, "cursor": {"next_offset": "7"}}))
    lab.kv.write(batch)
    with pytest.raises(StoreDamaged, match=r"Position.*cursor.next_offset"):
        lab.open([])


def test_another_build_looks_again_at_what_it_could_not_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of a type that only the next build knows is held now, and folded when that build opens the shard."""
    from dalsegno.log.schema_set import SchemaSet
    from dalsegno.testing.strategies import FUTURE, future_event

    builder = SessionBuilder("s-1").begin()
    record = future_event(builder, ignorable=False)
    old = SchemaSet.load()
    old.add(FUTURE.json)
    lab = Lab()
    shard = lab.open(schemas=old)
    apply(shard, [*builder.records, record])
    assert shard.held_sessions == 1
    new = SchemaSet.load()
    new.ship(FUTURE)
    monkeypatch.setattr(rebuild, "catalogue_name", lambda: "another build")
    shard = lab.open(schemas=new)
    assert shard.held_sessions == 0
    head = reads(shard).head("s-1")
    assert head is not None
    assert head.seq == len(builder.records) + 1
    assert shard.counts.waiting == 0

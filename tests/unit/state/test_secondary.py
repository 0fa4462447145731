"""Reading a shard that somebody else holds."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dalsegno.errors import StoreDamaged
from dalsegno.projections.registry import built_in
from dalsegno.state import rocks
from dalsegno.state.keys import STATE_KINDS
from dalsegno.state.kv import STATE
from dalsegno.state.reads import ShardReads
from dalsegno.state.rebuild import adopt, read_marks
from dalsegno.state.rocks import RocksStore, open_secondary
from dalsegno.testing.builder import SessionBuilder, shipped_schemas
from shard_lab import Lab, apply, reads

READ = """
import sys
from pathlib import Path
from dalsegno.log.schema_set import SchemaSet
from dalsegno.projections.registry import built_in
from dalsegno.state.reads import ShardReads
from dalsegno.state.rocks import open_secondary
for line in sys.stdin:
    kv = open_secondary(Path(sys.argv[1]), Path(sys.argv[2]))
    reads = ShardReads(kv, SchemaSet.load(), built_in())
    events = list(reads.path("s-1"))
    assert reads.digests() == reads.recompute_digests()
    print(reads.position().cursor.next_offset, len(events), reads.row("sessions", "s-1").events, flush=True)
    kv.close()
"""


def test_another_process_sees_whole_batches(tmp_path: Path) -> None:
    builder = SessionBuilder("s-1").begin()
    lab = Lab(tmp_path / "shard")
    shard = lab.open()
    apply(shard, builder.records[:2])
    command = [sys.executable, "-c", READ, str(tmp_path / "shard"), str(tmp_path / "scratch" / "r")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        for number in range(2, len(builder.records) + 1):
            reader.stdin.write("look\n")
            reader.stdin.flush()
            assert reader.stdout.readline().split() == [str(number)] * 3
            apply(shard, builder.records[number : number + 1])
        reader.stdin.close()
        assert reader.wait(30) == 0
    shard.close()


def test_a_secondary_shows_one_moment(tmp_path: Path) -> None:
    builder = SessionBuilder("s-1").begin()
    shard = Lab(tmp_path / "shard").open()
    apply(shard, builder.records[:4])
    kv = open_secondary(tmp_path / "shard", tmp_path / "scratch")
    reader = ShardReads(kv, shipped_schemas(), built_in())
    apply(shard, builder.records[4:])
    assert reader.position().cursor.next_offset == 4
    assert len(list(reader.path("s-1"))) == 4
    kv.close()
    kv = open_secondary(tmp_path / "shard", tmp_path / "scratch")
    reader = ShardReads(kv, shipped_schemas(), built_in())
    assert reader.position().cursor.next_offset == len(builder.records)
    assert [event.hash for event in reader.path("s-1")] == [event.hash for event in builder.events]
    assert [event.seq for event in reader.path("s-1", after=3, limit=2)] == [4, 5]
    assert reader.journal(4) == builder.events[4]
    assert reader.journal(10_000) is None
    kv.close()
    shard.close()


def test_a_look_during_a_flush_is_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was flushed between the list of tables and the logs is in neither: such a look must not count."""
    builder = SessionBuilder("s-1").begin()
    shard = Lab(tmp_path / "shard").open()
    apply(shard, builder.records[:4])
    opening, openings = rocks._open_secondary, itertools.count()

    def flushed_meanwhile(*arguments: Any) -> Any:
        opened = opening(*arguments)
        if not next(openings):
            apply(shard, builder.records[4:])
            shard.kv.checkpoint(tmp_path / "copy")
        return opened

    monkeypatch.setattr(rocks, "_open_secondary", flushed_meanwhile)
    kv = open_secondary(tmp_path / "shard", tmp_path / "scratch")
    assert ShardReads(kv, shipped_schemas(), built_in()).position().cursor.next_offset == len(builder.records)
    kv.close()
    shard.close()


def test_flushes_without_a_pause_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = Lab(tmp_path / "shard").open()
    count = itertools.count()
    monkeypatch.setattr(rocks, "_files", lambda _: next(count))
    with pytest.raises(StoreDamaged, match="flushed by its owner"):
        open_secondary(tmp_path / "shard", tmp_path / "scratch")
    shard.close()


def test_sessions_come_in_pages(tmp_path: Path) -> None:
    shard = Lab(tmp_path / "shard").open()
    for number in range(7):
        apply(shard, SessionBuilder(f"s-{number}").begin().records[:1])
    reader = reads(shard)
    first = reader.sessions(limit=3)
    second = reader.sessions(after=first[-1][0], limit=10)
    assert [name for name, _ in first + second] == [f"s-{number}" for number in range(7)]
    assert reader.sessions(after="s-6") == []
    shard.close()


def test_a_copy_becomes_another_generation(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "shard")
    shard = lab.open()
    apply(shard, SessionBuilder("s-1").begin().records)
    digests = shard.digests()
    shard.kv.checkpoint(tmp_path / "copy")
    shard.close()
    store = RocksStore.open(tmp_path / "copy")
    adopt(store, "copy", "new", "snapshot-1")
    store.close()
    store = RocksStore.open(tmp_path / "copy", create=False)
    marks = read_marks(store, "copy")
    assert (marks.identity.generation, marks.identity.base, marks.identity.topic) == (
        "new",
        "snapshot-1",
        "test.events",
    )
    assert marks.position.cursor.next_offset == 10
    assert ShardReads(store, shipped_schemas(), built_in()).digests() == digests
    assert {key[:1] for key, _ in store.scan(STATE)} <= STATE_KINDS
    store.close()

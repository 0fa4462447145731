"""What a switch tells the topics: the same as a comparison in memory would say, without holding the rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dalsegno.errors import DiskFull
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.record import Batch, LogRecord
from dalsegno.model.ids import Offset
from dalsegno.projections.base import Projection
from dalsegno.projections.registry import built_in
from dalsegno.state.differences import add_differences, clear_all, note_emitted
from dalsegno.state.generations import PartitionFolder
from dalsegno.state.keys import ROW, family_prefix, session_row_key, topic_key
from dalsegno.state.kv import STATE
from dalsegno.state.memory import MemoryStore
from dalsegno.state.rocks import RocksStore
from dalsegno.state.shard import Shard
from dalsegno.streams import switch as room
from dalsegno.streams.config import WorkerConfig, no_fault
from dalsegno.streams.partition import Partition
from dalsegno.streams.switch import EMITTED, Switch
from dalsegno.testing.builder import SessionBuilder
from dalsegno.testing.moves import play
from examples import examples
from shard_lab import folded

PUBLIC = [each for each in built_in() if each.public]
STRANGE = [
    b"", b"no json", b"[]", b"{}", b'["s", 1]', b"[1.0]", b"[true]", b'["\\ud800"]', b"[" * 100_000,
    b"[" + b"9" * 30 + b"]", b'["s-0",' + b"9" * 30 + b"]", b'[["s-0"]]', b"null",
]  # fmt: skip


def shard_of(moves: Sequence[Sequence[int]]) -> Shard:
    records = []
    for number, each in enumerate(moves):
        builder = SessionBuilder(f"s-{number}").begin().start()
        play(builder, each)
        records += builder.records
    return folded(records)


def topic_of(shard: Shard, projection: Projection[Any]) -> list[tuple[bytes, bytes | None]]:
    """The topic of somebody who has emitted all of this shard's rows."""
    name, forms = projection.name, shard.forms
    return [(forms.topic_key(key), forms.value(name, row)) for key, row in forms.public_rows(shard.kv, name)]


def in_memory(shard: Shard, projection: Projection[Any], topic: dict[bytes, bytes]) -> set[bytes]:
    """The reference: topic keys of what differs, found with the whole topic in a dictionary."""
    mine = dict(topic_of(shard, projection))
    return {key for key in mine.keys() | topic.keys() if mine.get(key) != topic.get(key)}


def log_of(rows: Sequence[tuple[bytes | None, bytes | None]]) -> list[LogRecord]:
    return [LogRecord(Offset(n), key, value, 0, 0) for n, (key, value) in enumerate(rows)]


def told(shard: Shard) -> dict[str, set[bytes]]:
    found: dict[str, set[bytes]] = {}
    for item in shard.outbox(1_000_000):
        found.setdefault(item.projection, set()).add(shard.current(item)[0])
    return found


MOVES = st.lists(st.lists(st.integers(0, 2**16 - 1), max_size=12), max_size=4)


@settings(max_examples=examples(60))
@given(MOVES, MOVES, st.data())
def test_the_same_rows_are_told_as_by_a_comparison_in_memory(
    mine: list[list[int]], theirs: list[list[int]], data: st.DataObject
) -> None:
    shard, other = shard_of(mine), shard_of(theirs)
    clear_all(shard.kv)
    wanted: dict[str, set[bytes]] = {}
    emitted = MemoryStore()
    for projection in PUBLIC:
        rows: list[tuple[bytes | None, bytes | None]] = [*topic_of(shard, projection), *topic_of(other, projection)]
        if rows:
            rows = data.draw(st.lists(st.sampled_from(rows), max_size=3 * len(rows)))
            gone = data.draw(st.lists(st.sampled_from([key for key, _ in rows]), max_size=3)) if rows else []
            rows += [(key, None) for key in gone]
        topic = {key: value for key, value in dict(rows).items() if key is not None and value is not None}
        strange: list[tuple[bytes | None, bytes | None]] = [(key, b"v") for key in (None, *STRANGE)]
        at = data.draw(st.integers(0, len(rows)))
        note_emitted(emitted, projection, log_of(rows[:at] + strange))
        note_emitted(emitted, projection, log_of(rows[at:]))
        differing = in_memory(shard, projection, topic)
        if differing:
            wanted[projection.name] = differing
        assert add_differences(shard.kv, shard.forms, projection, emitted) == len(differing)
    assert told(shard) == wanted


class Counted:
    """Rows of one side while they are looked at: how many there are at once."""

    alive = most = 0

    def __init__(self, key: bytes) -> None:
        self.key = key
        Counted.alive += 1
        Counted.most = max(Counted.most, Counted.alive)

    def __del__(self) -> None:
        Counted.alive -= 1


def test_no_more_rows_are_held_than_one_of_the_shard_and_a_part_of_the_outbox() -> None:
    rows = 50_000
    (sessions,) = [each for each in PUBLIC if each.name == "sessions"]
    held: list[int] = []

    class Store(MemoryStore):
        def write(self, batch: Any) -> None:
            held.append(len(batch.changes))
            super().write(batch)

    def public_rows(*_: Any) -> Iterator[tuple[bytes, Counted]]:
        for n in range(rows):
            key = session_row_key(ROW, "sessions", f"{n:06}")
            yield key, Counted(key)

    forms: Any = SimpleNamespace(public_rows=public_rows, value=lambda _, row: row.key)
    emitted, shard = MemoryStore(), Store()
    note_emitted(emitted, sessions, log_of([(topic_key((f"{n:06}",)), b"other") for n in range(0, rows + 9, 2)]))
    assert add_differences(shard, forms, sessions, emitted) == rows + 5
    assert Counted.most <= 2
    assert max(held) <= 10_000
    assert sum(held) == rows + 5


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    made = Partition(0, PartitionFolder(tmp_path, "0" * 32, 0), no_fault)
    made.shard = shard_of([[1, 2, 3]])
    return made


def switch(tmp_path: Path) -> Switch:
    config = WorkerConfig(KafkaConfig("127.0.0.1:1"), "p", tmp_path / "data", tmp_path / "store")
    return Switch(config, None, PUBLIC, lambda: None)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("ends", ["well", "badly", "taken away"])
def test_what_is_sorted_on_disk_is_gone_afterwards_and_what_a_crash_left_does_not_count(
    partition: Partition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    shard = partition.shard
    assert shard is not None
    clear_all(shard.kv)
    rows = {each.name: topic_of(shard, each) for each in PUBLIC}
    left = RocksStore.open(partition.folder.path / f"{EMITTED}.tmp")
    batch = left.batch()
    batch.put(STATE, family_prefix(ROW, "sessions") + b"left", b"x" * 16)
    left.write(batch)
    left.close()

    def read_range(_: Any, topic: str, __: int) -> Iterator[Batch]:
        assert (partition.folder.path / f"{EMITTED}.tmp").is_dir()
        if ends == "badly":
            raise DiskFull("full")
        partition.closing = ends == "taken away"
        found = log_of(rows[topic.split(".")[-2]])
        yield Batch(Offset(0), found[:-1], Offset(len(found) - 1))
        yield Batch(Offset(len(found) - 1), found[-1:], Offset(len(found)))

    monkeypatch.setattr(room, "read_range", read_range)
    try:
        changed = switch(tmp_path)._fill_outbox(partition, shard)
    except DiskFull:
        changed = -1
    assert changed == {"well": 0, "badly": -1, "taken away": None}[ends]
    assert list(partition.folder.path.iterdir()) == []
    assert json.dumps(sorted(told(shard))) == "[]"


def test_what_a_crash_left_is_swept_at_the_next_assignment(tmp_path: Path) -> None:
    folder = PartitionFolder(tmp_path, "0" * 32, 0)
    RocksStore.open(folder.temporary(EMITTED)).close()
    folder.sweep()
    assert list(folder.path.iterdir()) == []

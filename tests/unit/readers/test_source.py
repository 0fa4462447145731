"""What a writer is given of its session: the nearest state, and the tail of the log over it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno.errors import StoreDamaged
from dalsegno.log import admin
from dalsegno.log.admin import TopicFacts
from dalsegno.log.history import SessionRecords
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.ids import Offset
from dalsegno.model.records import Event, Unreadable
from dalsegno.readers import source
from dalsegno.readers.local import LocalReader
from dalsegno.readers.source import ShardSource
from dalsegno.state.keys import journal_key
from dalsegno.state.kv import JOURNAL
from dalsegno.testing.builder import SessionBuilder, Written, tombstone
from dalsegno.testing.memory_log import MemoryLog, MemoryTransport
from dalsegno.testing.strategies import FUTURE, future_event
from reader_lab import PREFIX, TOPIC_ID, House, put

TOPIC = f"{PREFIX}.events"


class World:
    """A machine with one partition, a log in memory, and the connections that were made to it."""

    def __init__(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        self.house, self.log = house, MemoryLog(1)
        self.made: list[MemoryTransport] = []
        monkeypatch.setattr(source, "KafkaTransport", self._connect)
        monkeypatch.setattr(admin, "topic_facts", lambda *_: TopicFacts(TOPIC_ID, 1, 1))
        monkeypatch.setattr(LocalReader, "learn_schemas", lambda reader: self._learn(reader))

    def _connect(self, _: KafkaConfig) -> MemoryTransport:
        self.made.append(MemoryTransport(self.log))
        return self.made[-1]

    def _learn(self, reader: LocalReader) -> int:
        return self.made[-1].refresh_schemas(PREFIX, reader._schemas, 1.0)

    def append(self, *records: Written) -> None:
        for record in records:
            self.log.put(TOPIC, 0, record.key, record.value)

    def read(self, session_id: str = "s-1") -> SessionRecords:
        there = ShardSource(self.house.data, PREFIX, self.house.store, KafkaConfig("nowhere:1"))
        return there.read(session_id, Offset(self.log.part(TOPIC, 0).high))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with House(tmp_path) as house:
        yield World(house, monkeypatch)


def seqs(found: SessionRecords, kind: Any = Event) -> list[int]:
    return sorted(key.seq for key, placed in found.placed.items() if isinstance(placed, kind))


def test_the_tail_is_read_over_the_state_and_every_connection_is_closed(world: World) -> None:
    session = SessionBuilder("s-1").begin()
    known = len(session.records)
    world.append(*session.records)
    world.house.shard(session.records)
    found = world.read()
    assert (seqs(found), found.records_read) == ([*range(1, known + 1)], 0)
    assert found.anchor == (known - 1, session.records[-1].key)
    world.append(session.append("TurnStarted", turn_id="t"))
    found = world.read()
    assert (seqs(found), found.records_read, found.anchor) == ([*range(1, known + 2)], 1, None)
    assert all(transport._closed for transport in world.made)
    assert len(world.made) == 2


def test_without_a_state_the_log_is_read_and_the_connection_closed(world: World) -> None:
    session = SessionBuilder("s-1").begin()
    world.append(*session.records)
    assert len(seqs(world.read())) == len(session.records)
    assert all(transport._closed for transport in world.made)


def test_what_the_tail_takes_away_is_gone_and_proves_that_the_log_goes_on(world: World) -> None:
    session = SessionBuilder("s-1").begin()
    *_, before, last = session.records
    world.append(*session.records)
    world.house.shard(session.records)
    world.append(tombstone(last), before._replace(value=b"none of ours"))
    found = world.read()
    assert seqs(found) == [*range(1, len(session.records) - 1)]
    world.log.compact(TOPIC)
    assert found.anchor is None, "compaction may have taken the record that the state knows as its newest"


@pytest.mark.parametrize("in_state", [True, False])
def test_a_schema_that_only_the_log_knows_is_asked_for_once(world: World, in_state: bool) -> None:
    session = SessionBuilder("s-1").begin()
    later = future_event(session, ignorable=True)
    records = [*session.records, later]
    world.append(*records)
    world.house.shard(records if in_state else session.records)
    last = len(records)
    assert seqs(world.read(), Unreadable) == [last]
    world.log.schemas[FUTURE.schema_hash] = FUTURE
    assert SchemaSet.load().by_hash(FUTURE.schema_hash) is None
    assert seqs(world.read(), Unreadable) == []
    assert seqs(world.read())[-1] == last


def test_a_state_that_lacks_a_record_is_damaged_not_a_shorter_history(world: World) -> None:
    session = SessionBuilder("s-1").begin()
    world.append(*session.records)
    shard = world.house.shard(session.records)
    put(shard.kv, {(JOURNAL, journal_key(len(session.records) - 1)): None})
    with pytest.raises(StoreDamaged, match=f"seq {len(session.records)} of session s-1"):
        world.read()

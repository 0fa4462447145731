"""Shards for tests: both stores, random batches, and a fold that shares no code with the incremental one."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from dalsegno.log.record import LogRecord
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.ids import Offset
from dalsegno.projections.base import Projection
from dalsegno.projections.registry import built_in
from dalsegno.state.kv import KeyValue
from dalsegno.state.memory import MemoryStore
from dalsegno.state.reads import ShardReads
from dalsegno.state.rocks import RocksStore
from dalsegno.state.shard import Applied, Shard, ShardIdentity
from dalsegno.testing.builder import Written, shipped_schemas

FEW_EVENTS = 4
"""Of a window of the ladder: with as many as the product's no history of a test would ever pass a rung. A module that
wants all its shards so uses the fixture ``small_windows``."""
DEFAULTS: dict[str, Any] = {}
"""Of ``Shard.open``, for the tests of a module."""

IDENTITY = ShardIdentity(
    topic="test.events", cluster_id="cluster", topic_id="0" * 32, partition=0, partitions=1, generation="g", base="-"
)


class Lab:
    """Opens and reopens one shard, in memory or on disk."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._memory = MemoryStore()
        self.kv: KeyValue = self._memory

    def store(self) -> KeyValue:
        self.kv = self._memory if self.folder is None else RocksStore.open(self.folder)
        return self.kv

    def open(
        self,
        projections: Sequence[Projection[Any]] | None = None,
        schemas: SchemaSet | None = None,
        **options: Any,
    ) -> Shard:
        return Shard.open(
            self.store(),
            identity=IDENTITY,
            schemas=schemas or shipped_schemas(),
            projections=built_in() if projections is None else projections,
            **{**DEFAULTS, **options},
        )

    def wipe(self) -> None:
        self._memory = MemoryStore()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def interleaved(sessions: Iterable[Iterable[Written]], rnd: Random) -> list[Written]:
    """The records of some sessions, each in its order, mixed."""
    rows = [list(records) for records in sessions]
    mixed = []
    while any(rows):
        mixed.append(rnd.choice([row for row in rows if row]).pop(0))
    return mixed


def log_of(records: Iterable[Written], start: int = 0) -> list[LogRecord]:
    return [
        LogRecord(Offset(offset), record.key, record.value, 1_767_225_600_000 + offset, 0)
        for offset, record in enumerate(records, start)
    ]


def apply(shard: Shard, records: Iterable[Written]) -> Applied:
    start = shard.cursor.next_offset
    log = log_of(records, start)
    return shard.apply(shard.generation, start, start + len(log), log)


def folded(records: Iterable[Written], **options: Any) -> Shard:
    """A new shard in memory that took the records in one batch."""
    shard = Lab().open(**options)
    apply(shard, records)
    return shard


def apply_in_batches(
    lab: Lab, shard: Shard, records: Sequence[Written], rnd: Random, *, reopen: bool = True, **options: Any
) -> Shard:
    """The records in batches of random sizes, with the shard reopened now and then, with these options."""
    at = 0
    while at < len(records):
        size = rnd.choice([1, 1, 2, 3, 7, 20, 100])
        apply(shard, records[at : at + size])
        at += size
        if reopen and rnd.random() < 0.2:
            shard.close()
            shard = lab.open(schemas=shard._work.schemas, cached_rows=rnd.choice([0, 10, 100_000]), **options)
    return shard


def reads(shard: Shard) -> ShardReads:
    work = shard._work
    projections = [tables.projection for tables in work.tables]
    return ShardReads(shard.kv, work.schemas, projections, window_events=work.window_events)


def paths(shard: Shard) -> dict[str, tuple[Any, ...]]:
    """Per session: the head and the hashes of its path."""
    reader = reads(shard)
    return {
        session_id: (head, tuple((event.seq, event.hash, event.stub) for event in reader.path(session_id)))
        for session_id, head in reader.sessions()
    }

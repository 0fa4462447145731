"""What the tests of public cases share: compaction forced on a real broker, and the views where no worker runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from dalsegno.log.kafka import producer, shared_admin
from dalsegno.log.reader import read_range
from dalsegno.log.record import LogRecord
from dalsegno.model.cursor import Cursor
from dalsegno.snapshots.folders import RocksFolders
from dalsegno.state.generations import current_shards
from dalsegno.state.kv import STATE
from dalsegno.state.layout import POSITION_KEY, decode_position, encode_meta
from dalsegno.state.rocks import RocksStore
from dalsegno.testing.builder import SessionBuilder, Written
from harness_worker import Rows, World

# Small segments that are cleaned at once; tombstones go with the second cleaning that sees them.
CLEAN_AT_ONCE = {
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "100",
    "delete.retention.ms": "0",
}
CLEANING_SECONDS = 90.0
CLOSING = SessionBuilder("closing").begin().records[0]
"""A record of a session of its own, to be sent before anything is compared."""


def send(world: World, *records: Written, partition: int = 0) -> None:
    """Write records as they are, tombstones too."""
    writer = producer(world.config, {"acks": "all"})
    for record in records:
        writer.produce(world.events, key=record.key, value=record.value, partition=partition)
    assert writer.flush(30) == 0


def log_of(world: World, partition: int = 0) -> list[LogRecord]:
    """Everything that the broker still holds of a partition of the events topic."""
    return [record for batch in read_range(world.config, world.events, partition) for record in batch.records]


def set_topic(world: World, settings: Mapping[str, str]) -> None:
    """Change settings of the events topic."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, world.events, incremental_configs=entries)
    for done in shared_admin(world.config).incremental_alter_configs([resource]).values():
        done.result(30)


def settings_of(world: World, names: Mapping[str, str]) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, world.events)
    (found,) = (done.result(30) for done in shared_admin(world.config).describe_configs([resource]).values())
    return {name: found[name].value for name in names}


def compact(world: World, is_clean: Callable[[list[LogRecord]], bool]) -> None:
    """Have the broker clean partition 0 until what it holds looks so; then the topic has its settings again.

    The active segment is never cleaned. What closes it, again and again, is ``CLOSING``, which changes no state once
    it was sent before, and is cleaned away like any repeat.
    """
    before = settings_of(world, CLEAN_AT_ONCE)
    count = len(log_of(world))
    set_topic(world, CLEAN_AT_ONCE)
    deadline = time.monotonic() + CLEANING_SECONDS
    try:
        while True:
            send(world, CLOSING)
            records = log_of(world)
            if is_clean(records):
                return
            assert time.monotonic() < deadline, f"not cleaned: {len(records)} of {count} records are there"
    finally:
        set_topic(world, before)


def keys(records: list[Written]) -> set[bytes]:
    return {record.key for record in records}


def standing(world: World, data: str) -> tuple[Rows, dict[int, dict[str, str]]]:
    """Rows and digests of the shards that are read in a data folder which no worker has open."""
    rows: Rows = {}
    digests = {}
    for shard in current_shards(world.folder / data, world.prefix, world.topic_id()):
        rows.update(world.shard_rows(shard.folder))
        marks = RocksFolders().marks(shard.folder)
        digests[shard.partition] = {name: mark.digest for name, mark in marks.projections.items()}
    return rows, digests


def assert_stands(world: World, data: str) -> dict[int, dict[str, str]]:
    """Shards, a straight fold of the log and the projection topics agree. The digests."""
    rows, digests = standing(world, data)
    assert (rows, digests) == world.straight_fold()
    assert world.topic_rows() == rows
    return digests


def edit_cursors(world: World, data: str, change: Callable[[Cursor], Cursor]) -> dict[int, Cursor]:
    """Change the cursors in shards that no worker has open, as if they were of another history. What they were."""
    before = {}
    for shard in current_shards(world.folder / data, world.prefix):
        store = RocksStore.open(shard.folder, create=False)
        position = decode_position(store.get(STATE, POSITION_KEY) or b"", "")
        before[shard.partition] = position.cursor
        position.cursor = change(position.cursor)
        batch = store.batch()
        batch.put(STATE, POSITION_KEY, encode_meta(position))
        store.write(batch)
        store.close()
    return before


def built(world: World, data: str = "a") -> None:
    """Have a worker bring the shards to the log's end, and stop."""
    worker = world.start(data, until=world.ends())
    assert worker.wait_dead() == 0, worker.tail()

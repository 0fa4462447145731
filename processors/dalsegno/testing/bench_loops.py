"""The loops that ``dalsegno bench`` times, from the bare reading of the log to a shard with everything in it.

All of them read the same topic in the same way: ``consume(10_000)``, all partitions, one thread. The clock starts when
the first messages are there, so that joining and the first fetch are nobody's cost.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import fastavro
from confluent_kafka import Consumer, Message, TopicPartition

from dalsegno.errors import Usage, WaitTimeout
from dalsegno.log.kafka import KafkaConfig, consumer, kafka_errors
from dalsegno.log.reader import to_record
from dalsegno.log.record import LogRecord
from dalsegno.log.schema_set import SchemaSet
from dalsegno.projections.base import Projection
from dalsegno.projections.registry import built_in
from dalsegno.state.kv import WriteBatch
from dalsegno.state.ladder import WINDOW_EVENTS
from dalsegno.state.rocks import RocksStore
from dalsegno.state.shard import Shard, ShardIdentity
from dalsegno.streams.reader import READ_AHEAD

BATCH_RECORDS = 10_000
STALL_SECONDS = 60.0
GENERATION = "bench"


class Timed(NamedTuple):
    """``seconds`` by the clock, ``cpu_seconds`` of all threads of the process."""

    events: int
    seconds: float
    cpu_seconds: float


class LogReading:
    """All that a topic holds up to ``ends`` (partition -> end offset), as lists of messages without gaps."""

    def __init__(self, kafka: KafkaConfig, topic: str, ends: dict[int, int]) -> None:
        self.partitions = len(ends)
        self.total = sum(ends.values())
        self._topic = topic
        self._began = self._began_cpu = 0.0
        self._consumer: Consumer = consumer(
            kafka,
            {
                "group.id": "dalsegno-bench",
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                **READ_AHEAD,  # as a worker does; else the baseline would wait for the client
            },
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number, end in ends.items() if end])

    def __iter__(self) -> Iterator[list[Message]]:
        count, limit = 0, perf_counter() + STALL_SECONDS
        while count < self.total:
            with kafka_errors(f"read {self._topic}"):
                messages = self._consumer.consume(BATCH_RECORDS, 0.1)
                for message in messages:
                    if message.error() is not None:
                        raise WaitTimeout(f"reading {self._topic}: {message.error()}", todo="run the benchmark again")
            if not messages:
                if perf_counter() > limit:
                    raise WaitTimeout(f"{self._topic} gave {count} of {self.total} events", todo="look at the broker")
                continue
            if not count:
                self._began, self._began_cpu = perf_counter(), process_time()
            count, limit = count + len(messages), perf_counter() + STALL_SECONDS
            yield messages

    def done(self) -> Timed:
        """To be called when the work on the last message is done."""
        timed = Timed(self.total, perf_counter() - self._began, process_time() - self._began_cpu)
        self._consumer.close()
        return timed


def scan(log: LogReading, _folder: Path) -> Timed:
    """Reading alone."""
    for messages in log:
        len(messages)
    return log.done()


def decode(log: LogReading, _folder: Path) -> Timed:
    """The baseline of every ratio: reading, and fastavro's plain reader. Nothing is checked and nothing kept."""
    read = fastavro.schemaless_reader
    writers = {writer.frame_id: writer.raw for writer in SchemaSet.load()}
    for messages in log:
        for message in messages:
            value: Any = message.value()
            read(BytesIO(value[10:]), writers[value[2:10]], None)
    return log.done()


def fold(log: LogReading, folder: Path, projections: Sequence[Projection[Any]], *, digests: bool, keep: bool) -> Timed:
    """One shard per partition, in this thread. Without ``keep`` nothing is stored, without ``digests`` none hashed."""
    schemas = SchemaSet.load()
    shards = [
        Shard.open(
            RocksStore.open(folder / str(number)) if keep else Nowhere(),
            identity=_identity(number, log.partitions),
            schemas=schemas,
            projections=projections,
            cached_rows=None if keep else sys.maxsize,
            window_events=WINDOW_EVENTS if keep else sys.maxsize,  # where nothing is stored, nothing can be left behind
        )
        for number in range(log.partitions)
    ]
    if not digests:
        _without_digests(shards)
    for messages in log:
        for number, records in _by_partition(messages).items():
            shard = shards[number]
            shard.apply(GENERATION, shard.cursor.next_offset, records[-1].offset + 1, records)
    timed = log.done()
    for shard in shards:
        shard.close()
    return timed


def _by_partition(messages: Sequence[Message]) -> dict[int, list[LogRecord]]:
    found: dict[int, list[LogRecord]] = {}
    for message in messages:
        number: Any = message.partition()
        found.setdefault(number, []).append(to_record(message))
    return found


def _identity(number: int, partitions: int) -> ShardIdentity:
    return ShardIdentity(
        topic="bench.events",
        cluster_id="bench",
        topic_id="0" * 32,
        partition=number,
        partitions=partitions,
        generation=GENERATION,
        base="-",
    )


def _without_digests(shards: Sequence[Shard]) -> None:
    """Every row counts as changed, and none is hashed."""
    number = itertools.count()
    for shard in shards:
        for spec in shard.specs():
            spec.summand = lambda _key, _row: next(number)


def _sessions() -> list[Projection[Any]]:
    return [projection for projection in built_in() if projection.name == "sessions"]


LOOPS: dict[str, Callable[[LogReading, Path], Timed]] = {
    "scan": scan,
    "decode": decode,
    "path": lambda log, folder: fold(log, folder, [], digests=False, keep=False),
    "rows": lambda log, folder: fold(log, folder, _sessions(), digests=False, keep=False),
    "digests": lambda log, folder: fold(log, folder, _sessions(), digests=True, keep=False),
    "journal": lambda log, folder: fold(log, folder, _sessions(), digests=True, keep=True),
    "all": lambda log, folder: fold(log, folder, built_in(), digests=True, keep=True),
}
"""By the name of the stage."""


# --- a store that keeps nothing ---------------------------------------------------------------------------------------


class Nowhere:
    """Takes every write and keeps only the shard's marks; for shards whose rows all stay in memory."""

    def __init__(self) -> None:
        self.marks: dict[bytes, bytes] = {}

    def get(self, _family: str, key: bytes) -> bytes | None:
        return self.marks.get(key)

    def multi_get(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(family, key) for key in keys]

    def scan(
        self, _family: str, _start: bytes = b"", _end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        if reverse:
            raise Usage("nothing is kept here, so nothing is scanned backwards")
        return iter(())

    def close(self) -> None:
        self.marks.clear()

    def batch(self) -> WriteBatch:
        return _Dropped(self.marks)

    def write(self, batch: WriteBatch) -> None:
        """Its marks were kept when they were put."""

    def checkpoint(self, folder: Path) -> None:
        raise Usage(f"nothing is kept here that could go to {folder}")

    def flush(self) -> None:
        """Nothing is on its way."""


class _Dropped:
    size_bytes = 0

    def __init__(self, marks: dict[bytes, bytes]) -> None:
        self._marks = marks

    def put(self, _family: str, key: bytes, value: bytes) -> None:
        if key[:1] == b"m":
            self._marks[key] = value

    def putter(self, _family: str) -> Callable[[bytes, bytes], None]:
        return _drop

    def delete(self, _family: str, _key: bytes) -> None:
        """Nothing is there."""

    def delete_range(self, _family: str, _start: bytes, _end: bytes) -> None:
        """Nothing is there."""


def _drop(_key: bytes, _value: bytes) -> None:
    """What a put costs where nothing is kept."""

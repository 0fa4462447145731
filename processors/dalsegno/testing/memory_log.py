"""A log in memory: the second filling of the transport, under the same contract tests as Kafka's.

    log = MemoryLog(partitions=4)
    with Publisher(log.connect(), prefix="t") as publisher: ...

It keeps offsets, tombstones and compaction as Kafka does, and reports as Kafka does: from another thread, in order.
What a broker does badly can be asked of a connection: ``hold`` keeps reports back, ``fail_next`` refuses a record for
good, ``lose_next`` stores a record whose report is lost.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from dalsegno.errors import DalsegnoError, KafkaRefused, LogHole, OtherHistory, TopicMissing, Unavailable, WaitTimeout
from dalsegno.log.reader import Bounds
from dalsegno.log.record import Batch, LogRecord
from dalsegno.log.schema_set import SchemaSet, WriterSchema
from dalsegno.log.transport import Done, Headers
from dalsegno.model.ids import Offset

_BATCH = 10_000


@dataclass
class _Partition:
    records: list[LogRecord] = field(default_factory=list)
    headers: dict[Offset, Headers] = field(default_factory=dict)
    low: int = 0
    high: int = 0

    def append(self, key: bytes | None, value: bytes | None, headers: Headers | None = None) -> Offset:
        offset = Offset(self.high)
        if headers:
            self.headers[offset] = headers
        self.records.append(LogRecord(offset, key, value, time.time_ns() // 1_000_000, 0))
        self.high += 1
        return offset


class MemoryLog:
    """Topics of ``partitions`` partitions each, made when first named; or those in ``topics`` only."""

    def __init__(self, partitions: int = 4, topics: Iterable[str] | None = None) -> None:
        self._count = partitions
        self._known = None if topics is None else set(topics)
        self._topics: dict[str, list[_Partition]] = {}
        self.lock = threading.RLock()
        self.schemas: dict[bytes, WriterSchema] = {}
        self.records_given = 0
        """How many records were read: the cost of reading."""

    def connect(self) -> MemoryTransport:
        """What one publisher has of the log."""
        return MemoryTransport(self)

    def part(self, topic: str, partition: int) -> _Partition:
        return self.parts(topic)[partition]

    def parts(self, topic: str) -> list[_Partition]:
        if self._known is not None and topic not in self._known:
            raise TopicMissing(f"topic {topic} does not exist", todo="name it at the start", topic=topic)
        with self.lock:
            return self._topics.setdefault(topic, [_Partition() for _ in range(self._count)])

    def put(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> Offset:
        """A record of somebody else, past every check."""
        with self.lock:
            return self.part(topic, partition).append(key, value)

    def records(self, topic: str, partition: int | None = None) -> list[LogRecord]:
        """What the log holds, of one partition or of all in their order."""
        with self.lock:
            parts = self.parts(topic) if partition is None else [self.part(topic, partition)]
            return [record for part in parts for record in part.records]

    def headers(self, topic: str, partition: int, offset: Offset) -> dict[str, bytes]:
        """What stands beside a record, for people's tools."""
        with self.lock:
            return dict(self.part(topic, partition).headers.get(offset, ()))

    def compact(self, topic: str, *, drop_tombstones: bool = False) -> None:
        """Keep only the last record of each key; then, if asked, expire tombstones too. Offsets stay."""
        with self.lock:
            for part in self.parts(topic):
                last = {record.key: record.offset for record in part.records}
                part.records = [
                    record
                    for record in part.records
                    if last[record.key] == record.offset and not (drop_tombstones and record.value is None)
                ]

    def truncate(self, topic: str, partition: int, low: int) -> None:
        """Delete the records below an offset, as delete-records does."""
        with self.lock:
            part = self.part(topic, partition)
            part.low = low
            part.records = [record for record in part.records if record.offset >= low]


class _Report(NamedTuple):
    done: Done
    offset: Offset | None
    error: DalsegnoError | None


class MemoryTransport:
    """One publisher's connection to a ``MemoryLog``."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self._reports: queue.SimpleQueue[_Report | None] = queue.SimpleQueue()
        self._idle = threading.Condition(log.lock)
        self._outstanding = 0
        self._held: list[_Report] | None = None
        self._failures: list[DalsegnoError] = []
        self._lost = 0
        self._fatal = False
        self._closed = False
        self._server = threading.Thread(target=self._serve, name="memory-log", daemon=True)
        self._server.start()

    def hold(self) -> None:
        """Keep reports back from now on, until ``release``."""
        with self.log.lock:
            self._held = [] if self._held is None else self._held

    def release(self) -> None:
        with self.log.lock:
            held, self._held = self._held or [], None
            for report in held:
                self._reports.put(report)

    def fail_next(self, error: DalsegnoError | None = None) -> None:
        """Refuse the next record for good: it is not stored, and nothing behind it is until ``ready``."""
        with self.log.lock:
            self._failures.append(error or KafkaRefused("could not store a record: refused", code="TEST"))

    def lose_next(self) -> None:
        """Store the next record and report a time-out for it."""
        with self.log.lock:
            self._lost += 1

    # --- Transport ---------------------------------------------------------------------------------------------------

    def send(self, topic: str, partition: int, key: bytes, value: bytes | None, headers: Headers, done: Done) -> None:
        with self.log.lock:
            if self._closed:
                raise Unavailable("could not send a record: the publisher is closed", todo="make a new publisher")
            if self._fatal:
                raise KafkaRefused("could not send a record: one before it was refused", todo="resume")
            report = _Report(done, *self._store(self.log.part(topic, partition), key, value, headers))
            self._outstanding += 1
            if self._held is not None:
                self._held.append(report)
            else:
                self._reports.put(report)

    def _store(
        self, part: _Partition, key: bytes, value: bytes | None, headers: Headers
    ) -> tuple[Offset | None, DalsegnoError | None]:
        if self._failures:
            self._fatal = True
            return None, self._failures.pop(0)
        offset = part.append(key, value, headers)
        if self._lost:
            self._lost -= 1
            return None, WaitTimeout("could not store a record: no acknowledgement in time", todo="resume")
        return offset, None

    def ready(self) -> None:
        if self._fatal:
            self.flush(10.0)
            self._fatal = False

    def flush(self, timeout: float) -> int:
        with self._idle:
            self._idle.wait_for(lambda: self._outstanding == 0, timeout)
            return self._outstanding

    def close(self) -> None:
        with self.log.lock:
            if self._closed:
                return
            self._closed = True
            for report in self._held or []:
                error = Unavailable("could not store a record: given up", todo="send it again")
                self._reports.put(report._replace(offset=None, error=error))
            self._reports.put(None)
        self._server.join(10.0)

    def partitions(self, topic: str) -> int:
        return len(self.log.parts(topic))

    def bounds(self, topic: str, partition: int) -> Bounds:
        with self.log.lock:
            part = self.log.part(topic, partition)
            return Bounds(Offset(part.low), Offset(part.high))

    def read(
        self, topic: str, partition: int, start: Offset | None, end: Offset, stall_seconds: float
    ) -> Iterator[Batch]:
        with self.log.lock:
            part = self.log.part(topic, partition)
            position = part.low if start is None else int(start)
            if position < part.low:
                found = f"{topic}-{partition} starts at {part.low}, the cursor is at {position}"
                raise LogHole(found, cursor=position, log_start=part.low, hole=part.low - position)
            if position > part.high:
                raise OtherHistory(f"{topic}-{partition} ends at {part.high}, the cursor stands at {position}")
            if end > part.high:
                raise WaitTimeout(f"{topic}-{partition} ends at {part.high}: nothing came for {stall_seconds:g} s")
            records, high = [record for record in part.records if record.offset >= position], part.high
        while position < end:
            # As Kafka does, the last batch may bring records from behind the bound.
            some, records = records[:_BATCH], records[_BATCH:]
            after = some[-1].offset + 1 if records else high
            self.log.records_given += len(some)
            yield Batch(Offset(position), some, Offset(after))
            position = after

    def publish_schemas(self, prefix: str, schemas: Iterable[WriterSchema], timeout: float) -> None:
        del prefix, timeout
        with self.log.lock:
            for writer in schemas:
                self.log.schemas.setdefault(writer.schema_hash, writer)

    def refresh_schemas(self, prefix: str, schemas: SchemaSet, timeout: float) -> int:
        del prefix, timeout
        before = len(schemas)
        for writer in list(self.log.schemas.values()):
            schemas.add(writer.json)
        return len(schemas) - before

    def _serve(self) -> None:
        while (report := self._reports.get()) is not None:
            report.done(report.offset, report.error)
            with self._idle:
                self._outstanding -= 1
                self._idle.notify_all()

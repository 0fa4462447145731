"""Reading partitions in batches up to an end bound, without ever calling a part the whole.

The rules (each was seen to lose or to invent records when broken):

1. The bound is the high watermark *read uncommitted* at the start. The reader itself reads committed. A read-committed
   watermark is the last stable offset: an open transaction would end the reading early and call it success.
2. Done is when a record or a partition EOF at or past the bound was seen. Offsets have gaps (compaction, transaction
   markers), so the last record's offset never says it.
3. The next offset is the last record's + 1 or the EOF's own offset. The client's ``position()`` is not used.
4. Out of range is an error: ``auto.offset.reset=error``, and the bounds are compared before the first read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from dalsegno.errors import BrokerUnavailable, LogHole, OtherHistory, TopicMissing, WaitTimeout
from dalsegno.log.kafka import KafkaConfig, consumer, forget_shared_admin, kafka_errors, shared_admin, translate
from dalsegno.log.record import Batch, LogRecord
from dalsegno.model.ids import Offset

log = logging.getLogger("dalsegno.log")

REQUEST_TIMEOUT_SECONDS = 30.0
STALL_TIMEOUT_SECONDS = 60.0
# How long to wait for a first message. `consume(n, timeout)` would wait so long for the last of n as well.
POLL_SECONDS = 0.1

_CONSUMER = {
    # A consumer must name a group; with `assign` it never joins it, and nothing is committed.
    "group.id": "dalsegno-reader",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    # Short, so that the end of a partition is noticed soon.
    "fetch.wait.max.ms": 50,
}

LEADER_RETRY_SECONDS = 0.1
_LEADER_MOVES = {"NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH"}

_T = TypeVar("_T")
_AWAY = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)


class Bounds(NamedTuple):
    """What a partition holds: ``low`` the first offset, ``high`` the one behind the last (read uncommitted)."""

    low: Offset
    high: Offset


class Polled(NamedTuple):
    """What one ``consume`` gave for one partition. ``eof`` is the EOF's own offset if one was among it."""

    records: list[LogRecord]
    eof: Offset | None
    errors: list[KafkaError]


def split(messages: Iterable[Message]) -> Polled:
    """Sort what one ``consume`` of one partition gave into records, end of partition, and errors."""
    records: list[LogRecord] = []
    eof: Offset | None = None
    errors: list[KafkaError] = []
    for message in messages:
        error = message.error()
        if error is None:
            records.append(to_record(message))
        elif error.code() == KafkaError._PARTITION_EOF:
            eof = Offset(int(message.offset() or 0))
        else:
            errors.append(error)
    return Polled(records, eof, errors)


def reconnects(error: KafkaError) -> bool:
    """Whether the client goes on by itself after this error, for ever: the caller ends a wait that is in vain."""
    return bool(error.retriable()) or error.code() in _AWAY


def to_record(message: Message) -> LogRecord:
    leader_epoch = message.leader_epoch()
    return LogRecord(
        message.offset(),  # type: ignore[arg-type]
        message.key(),
        message.value(),
        message.timestamp()[1],
        -1 if leader_epoch is None else leader_epoch,
    )


def partitions_of(cfg: KafkaConfig, topic: str, timeout: float = REQUEST_TIMEOUT_SECONDS) -> int:
    """How many partitions the topic has. Raises TopicMissing."""
    with kafka_errors(f"look up topic {topic}", topic=topic):
        found = shared_admin(cfg).list_topics(topic, timeout=timeout).topics.get(topic)
    if found is None:
        raise TopicMissing(f"topic {topic} does not exist", todo="dalsegno topic apply", topic=topic)
    if found.error is not None:
        raise translate(found.error, f"look up topic {topic}", topic=topic)
    return len(found.partitions)


def bounds(
    cfg: KafkaConfig, topic: str, partitions: Iterable[int], timeout: float = REQUEST_TIMEOUT_SECONDS
) -> dict[int, Bounds]:
    """Log start and high watermark (read uncommitted) of each partition.

    A partition whose leader has just been chosen or has moved refuses the question for a moment: it is asked again
    until ``timeout``.
    """
    return _of_leader(cfg, timeout, lambda: _bounds(cfg, topic, partitions, timeout))


def _of_leader(cfg: KafkaConfig, timeout: float, ask: Callable[[], _T]) -> _T:
    """What ``ask`` answers; asked again, by a new client, while the leader is said to be another."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return ask()
        except BrokerUnavailable as error:
            if error.data.get("code") not in _LEADER_MOVES:
                raise
            forget_shared_admin(cfg)
            if time.monotonic() >= deadline:
                raise
        time.sleep(LEADER_RETRY_SECONDS)


def _bounds(cfg: KafkaConfig, topic: str, partitions: Iterable[int], timeout: float) -> dict[int, Bounds]:
    client = shared_admin(cfg)
    wanted = sorted(set(partitions))

    def ask(spec: Any) -> dict[int, Offset]:
        futures = client.list_offsets(
            {TopicPartition(topic, p): spec for p in wanted},
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=timeout,
        )
        return {tp.partition: Offset(future.result(timeout + 5.0).offset) for tp, future in futures.items()}

    with kafka_errors(f"look up the bounds of {topic}", topic=topic):
        # The start first: a log start that moves in between then cannot stand behind the high watermark read after it.
        low = ask(OffsetSpec.earliest())
        high = ask(OffsetSpec.latest())
    return {p: Bounds(low[p], high[p]) for p in wanted}


def stable_offset(cfg: KafkaConfig, topic: str, partition: int, timeout: float = REQUEST_TIMEOUT_SECONDS) -> Offset:
    """The last stable offset: where the first open transaction begins, else the high watermark."""
    tp = TopicPartition(topic, partition)

    def ask() -> Offset:
        with kafka_errors(f"look up the last stable offset of {topic}-{partition}", topic=topic, partition=partition):
            latest = OffsetSpec.latest()
            client = shared_admin(cfg)
            futures = client.list_offsets(
                {tp: latest}, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=timeout
            )
            return Offset(futures[tp].result(timeout + 5.0).offset)

    return _of_leader(cfg, timeout, ask)


def read_range(
    cfg: KafkaConfig,
    topic: str,
    partition: int,
    start: Offset | int | None = None,
    end_bound: Offset | int | None = None,
    *,
    batch: int = 10_000,
    stall_seconds: float = STALL_TIMEOUT_SECONDS,
) -> Iterator[Batch]:
    """Read one partition, committed records only, from ``start`` (None: the log start) until ``end_bound`` was passed.

    ``end_bound`` None is the high watermark (read uncommitted) at the call. Yields batches of at most ``batch`` records
    in offset order; each starts where the one before ended, and records at or past the bound may be among the last. A
    batch without records is yielded only where it moves the position.

    Raises LogHole (records between ``start`` and the log start are gone: ``data`` has cursor, log_start, hole),
    OtherHistory (``start`` lies behind the end of the log), WaitTimeout (``stall_seconds`` without progress, an open
    transaction below the bound is named), BrokerUnavailable, TopicMissing.
    """
    now = bounds(cfg, topic, [partition])[partition]
    position = now.low if start is None else Offset(int(start))
    bound = now.high if end_bound is None else Offset(int(end_bound))
    _check_start(topic, partition, position, now)
    if position >= bound:
        return
    reader = consumer(cfg, _CONSUMER)
    try:
        with kafka_errors(f"read {topic}-{partition}", topic=topic, partition=partition):
            reader.assign([TopicPartition(topic, partition, position)])
        watch = _Stall(cfg, topic, partition, bound, stall_seconds)
        while position < bound:
            polled = _poll(cfg, reader, topic, partition, position, batch)
            after = position
            if polled.records:
                after = Offset(polled.records[-1].offset + 1)
            if polled.eof is not None and polled.eof > after:
                after = polled.eof
            if after == position:
                watch.check(position)
                continue
            yield Batch(position, polled.records, after)
            position = after
            watch.progress()
    finally:
        reader.close()


def read_compacted(
    cfg: KafkaConfig, topic: str, timeout: float = STALL_TIMEOUT_SECONDS, *, stall_seconds: float | None = None
) -> dict[bytes, bytes]:
    """A compacted topic as a table: the last value of every key, up to the end at the call; tombstones take keys away.

    All partitions are read. Records without a key are left out. ``timeout`` limits the whole reading (WaitTimeout).
    """
    deadline = time.monotonic() + timeout
    table: dict[bytes, bytes] = {}
    for partition in range(partitions_of(cfg, topic, timeout)):
        stall = stall_seconds if stall_seconds is not None else timeout
        for part in read_range(cfg, topic, partition, stall_seconds=stall):
            for record in part.records:
                if record.key is None:
                    continue
                # Taken out first, so that the table's order is that of the last write.
                table.pop(record.key, None)
                if record.value is not None:
                    table[record.key] = record.value
            if time.monotonic() > deadline:
                raise WaitTimeout(
                    f"reading {topic} took longer than {timeout:g} s", todo="try again with a longer limit", topic=topic
                )
    return table


def _check_start(topic: str, partition: int, position: Offset, now: Bounds) -> None:
    if position < now.low:
        raise _hole(topic, partition, position, now.low)
    if position > now.high:
        raise OtherHistory(
            f"{topic}-{partition} ends at offset {now.high}, the cursor stands at {position}",
            wanted="a cursor of this log",
            todo="restore a snapshot of this log, or rebuild from its start",
            topic=topic, partition=partition, cursor=position, log_end=now.high,
        )  # fmt: skip


def _hole(topic: str, partition: int, position: Offset, low: Offset) -> LogHole:
    return LogHole(
        f"{topic}-{partition} starts at offset {low}, the cursor is at {position}: {low - position} offsets are gone",
        wanted="every record from the cursor on",
        todo="restore a newer snapshot, or accept the hole by name",
        topic=topic, partition=partition, cursor=position, log_start=low, hole=low - position,
    )  # fmt: skip


def _poll(cfg: KafkaConfig, reader: Consumer, topic: str, partition: int, position: Offset, batch: int) -> Polled:
    """One ``consume``. The client says "out of range" once and is silent ever after, so an error is raised at once;
    what came with it is dropped, and since the position has not moved, nothing is skipped."""
    with kafka_errors(f"read {topic}-{partition}", topic=topic, partition=partition):
        messages = reader.consume(1, POLL_SECONDS)
        if messages and batch > 1:
            messages += reader.consume(batch - 1, 0.0)
        polled = split(messages)
    for error in polled.errors:
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            now = bounds(cfg, topic, [partition])[partition]
            _check_start(topic, partition, position, now)
            raise translate(error, f"read {topic}-{partition}", topic=topic, partition=partition, cursor=position)
        if reconnects(error):
            continue  # the stall limit ends a wait that is in vain
        raise translate(error, f"read {topic}-{partition}", topic=topic, partition=partition, cursor=position)
    return polled


class _Stall:
    """Watches that reading goes on, says once why it does not, and ends the wait at its limit."""

    def __init__(self, cfg: KafkaConfig, topic: str, partition: int, bound: Offset, limit_seconds: float) -> None:
        self._cfg, self._topic, self._partition = cfg, topic, partition
        self._bound, self._limit = bound, limit_seconds
        self._said = False
        self._since = time.monotonic()

    def progress(self) -> None:
        self._since = time.monotonic()

    def check(self, position: Offset) -> None:
        waited = time.monotonic() - self._since
        if waited > 1.0 and not self._said:
            self._said = True
            log.warning("read_waits", extra=self._facts(position) | {"reason": self._reason(position)})
        if waited <= self._limit:
            return
        reason = self._reason(position)
        raise WaitTimeout(
            f"{self._topic}-{self._partition} is read up to {position} of {self._bound}, "
            f"no further for {self._limit:g} s: {reason}",
            wanted=f"all records below {self._bound}",
            todo="try again when the transaction has ended" if "transaction" in reason else "check the broker",
            reason=reason, **self._facts(position),
        )  # fmt: skip

    def _facts(self, position: Offset) -> dict[str, Any]:
        return {"topic": self._topic, "partition": self._partition, "position": position, "end_bound": self._bound}

    def _reason(self, position: Offset) -> str:
        try:
            stable = stable_offset(self._cfg, self._topic, self._partition, timeout=5.0)
        except (BrokerUnavailable, WaitTimeout):
            return "the broker does not answer"
        if stable < self._bound:
            return f"an open transaction begins at offset {stable}, below the end bound {self._bound}"
        return f"the broker sends nothing at {position}"

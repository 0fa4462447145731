"""The one consumer of the worker, and the only thread that touches it.

Rules that a real broker taught:

- ``consumer_group_metadata()`` is taken here after each ``consume()``: from another thread it deadlocks with a
  rebalance callback. A transaction uses what was current when its rows were chosen.
- ``on_revoke`` waits for the transaction in flight before a partition is given up: Kafka fences a worker that left the
  group, not one that stayed and lost only this partition. ``on_lost`` does not wait: that worker is fenced already.
- A partition that the group gave to this worker is given to the client only when its shard stands, at the shard's
  cursor: a long restore keeps nobody in the callback, and nothing is fetched in vain. Holding it takes it back from the
  client, not from the group.
- Never a seek. While the client still asks the broker where a partition ends, a seek succeeds, but half a second later
  the client asks again and goes on at the end, past all that was not read yet.
- ``position()`` and ``commit()`` without arguments are never used: a position is the last record's offset + 1, or the
  offset of the partition's end.
- ``auto.offset.reset=error`` says it once and is silent afterwards, so one such error stops the partition.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from dalsegno.log.kafka import consumer as make_consumer
from dalsegno.log.kafka import kafka_errors, translate
from dalsegno.log.reader import to_record
from dalsegno.streams.config import WorkerConfig
from dalsegno.streams.partition import Fetched, Partition

log = logging.getLogger("dalsegno.streams")

# `consume` waits for a full batch or this long: how late a single record is seen, against the cost of an idle worker.
POLL_SECONDS = 0.05
READ_AHEAD = {
    # About a batch; the client takes several times this much memory for it.
    "queued.max.messages.kbytes": 4_096,
    # A full queue puts the next fetch off by this much; by default a second, in which the queue runs dry.
    "fetch.queue.backoff.ms": 10,
}
"""Options of the client: what it fetches before it is asked for."""
BATCH_BYTES = 32 * 1024 * 1024
"""About what a batch may hold: `consume` has a limit of records alone. Two batches wait and one is applied, so a worker
holds a few times this much."""
# Refusals that the client would go on repeating for ever, while nothing is read: they end the worker.
_REFUSED = {
    KafkaError.INVALID_SESSION_TIMEOUT,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    KafkaError.INVALID_GROUP_ID,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError._AUTHENTICATION,
}
EARLIER_LIFE_SECONDS = 30.0
"""How long all partitions of an assignment together may keep the rebalance callback waiting; then they are red, and
tried again. The group throws a member out that does not come back for 300 s."""
DRAIN_ROUNDS = 100
"""Of fetching at a stop; what was fetched is dropped at the first, so there are callbacks alone behind it."""
# A rebalance callback waits this much longer than a transaction can last.
REVOKE_MARGIN_SECONDS = 5.0


class Assigner(Protocol):
    """Who decides what a new partition goes on from. Called in the reader's thread."""

    def assigned(self, consumer: Consumer, partitions: Sequence[Partition], patience_seconds: float) -> None: ...

    def make(self, number: int) -> Partition: ...

    def revoked(self, partition: Partition) -> None: ...


class LogConsumer:
    """The consumer of the events topic. All methods but ``ask``, ``hold`` and ``release`` belong to one thread."""

    def __init__(
        self,
        config: WorkerConfig,
        instance_id: str,
        table: dict[int, Partition],
        transactions: threading.Lock,
        assigner: Assigner,
    ) -> None:
        self._config = config
        self._topic = config.names.events
        self._table = table
        self._transactions = transactions
        self._assigner = assigner
        self._positions: dict[int, tuple[int, int]] = {}
        """Of every partition that the client reads: the assignment's number, and the next offset to come."""
        self._asked: deque[Callable[[Consumer], None]] = deque()
        self._closing = False
        self._wanted = config.records_per_batch
        """How many records the next batch is asked for: fewer where they are large."""
        self.group_metadata: Any = None
        """Opaque proof of membership for a transaction, as of the last ``consume``."""
        session_ms = int(config.session_timeout_seconds * 1000)
        self._consumer = make_consumer(
            config.kafka,
            {
                "group.id": config.names.group,
                "group.instance.id": instance_id,
                "client.id": instance_id,
                "group.protocol": "classic",
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": session_ms,
                "heartbeat.interval.ms": max(500, min(3000, session_ms // 4)),
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
                **READ_AHEAD,
            },
        )

    # --- from any thread -------------------------------------------------------------------------------------------

    def ask(self, request: Callable[[Consumer], None]) -> None:
        """Run this in the reader's thread before the next ``consume``."""
        self._asked.append(request)

    def hold(self, partition: Partition) -> None:
        """Fetch no more of this partition; what is on its way is dropped."""
        partition.new_assignment()
        self.ask(lambda consumer: self._hold(consumer, partition))

    def assign_again(self, partition: Partition) -> None:
        """Open the partition anew, as at assignment."""
        self.ask(lambda consumer: self._assign_again(consumer, partition))

    def release(self, partition: Partition) -> None:
        """Read this partition from its shard's cursor on."""
        self.ask(lambda consumer: self._release(consumer, partition))

    # --- the reader's thread ---------------------------------------------------------------------------------------

    def open(self) -> None:
        with kafka_errors(f"join group {self._config.names.group}", topic=self._topic):
            self._consumer.subscribe(
                [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )

    def step(self) -> list[Fetched]:
        """One round: do what was asked, fetch, take the group's metadata. Raises what ends the worker."""
        with kafka_errors(f"read {self._topic}", topic=self._topic):
            for _ in range(len(self._asked)):
                self._asked.popleft()(self._consumer)
            messages = self._consumer.consume(self._wanted, POLL_SECONDS)
            self.group_metadata = self._consumer.consumer_group_metadata()
        return self._split(messages)

    def close(self) -> None:
        """Leave. A static member stays known to the group until its session time-out, so a restart is no rebalance.

        Callbacks that wait behind messages are run before: in a client that closes, the answer to one is the last call
        that comes back (see ``_take_away``).
        """
        self._closing = True
        self._asked.clear()
        with ExitStack() as last:
            last.callback(self._give_up_all)
            last.callback(self._consumer.close)
            read = [TopicPartition(self._topic, number) for number in self._positions]
            self._positions.clear()
            self._consumer.incremental_unassign(read)
            for _ in range(DRAIN_ROUNDS):
                if not self._consumer.consume(self._config.records_per_batch, 0):
                    break

    # --- positions -------------------------------------------------------------------------------------------------

    def _assign_again(self, consumer: Consumer, partition: Partition) -> None:
        """Not for a partition that was taken away meanwhile: its commit is another's now."""
        if self._table.get(partition.number) is partition:
            self._assigner.assigned(consumer, [partition], 0.0)

    def _hold(self, consumer: Consumer, partition: Partition) -> None:
        if self._table.get(partition.number) is partition:
            self._stop_reading(consumer, partition.number)

    def _stop_reading(self, consumer: Consumer, number: int) -> None:
        if self._positions.pop(number, None) is not None:
            consumer.incremental_unassign([TopicPartition(self._topic, number)])

    def _release(self, consumer: Consumer, partition: Partition) -> None:
        if partition.switching:
            return  # the switch releases it when it is done
        if not partition.lock.acquire(blocking=False):
            self.release(partition)  # whoever works on this shard keeps the others from being read else
            return
        try:
            cursor = partition.cursor
            if self._table.get(partition.number) is not partition or cursor is None or partition.error is not None:
                return
            number = partition.new_assignment()
        finally:
            partition.lock.release()
        self._stop_reading(consumer, partition.number)
        consumer.incremental_assign([TopicPartition(self._topic, partition.number, cursor)])
        self._positions[partition.number] = (number, cursor)

    def _split(self, messages: Sequence[Message]) -> list[Fetched]:
        records: dict[int, list[Message]] = {}
        ends: dict[int, int] = {}
        for message in messages:
            number = int(message.partition() if message.partition() is not None else -1)  # type: ignore[arg-type]
            error = message.error()
            if error is None:
                records.setdefault(number, []).append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[number] = int(message.offset() or 0)
            else:
                self._failed(number, error)
        self._adapt([len(message) for each in records.values() for message in each])
        return [
            batch
            for number in records.keys() | ends.keys()
            if (batch := self._batch(number, records.get(number, []), ends.get(number))) is not None
        ]

    def _adapt(self, sizes: Sequence[int]) -> None:
        """Ask for as many records as fit into a batch if they are like these."""
        if sizes:
            mean = max(1, sum(sizes) // len(sizes))
            self._wanted = max(1, min(self._config.records_per_batch, BATCH_BYTES // mean))

    def _batch(self, number: int, messages: list[Message], eof: int | None) -> Fetched | None:
        place = self._positions.get(number)
        partition = self._table.get(number)
        if place is None or partition is None:
            return None
        assignment, start = place
        if partition.assignment != assignment:
            self._stop_reading(self._consumer, number)  # it stopped: what follows would be fetched in vain
            return None
        end = int(messages[-1].offset() or 0) + 1 if messages else start
        if eof is not None:
            end = max(end, eof)
            partition.end = max(partition.end, eof)
        if end == start:
            return None
        self._positions[number] = (assignment, end)
        return Fetched(number, assignment, start, end, [to_record(message) for message in messages])

    def _failed(self, number: int, error: KafkaError) -> None:
        """An error among the messages: of one partition, of the connection (the client goes on by itself), or fatal."""
        facts: dict[str, Any] = {"topic": self._topic, "partition": number, "code": error.name()}
        if error.fatal() or error.code() in _REFUSED:
            raise translate(error, f"be a member of group {self._config.names.group}", **facts)
        known = number in self._positions and number in self._table
        if known and error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            partition = self._table[number]
            position = self._positions[number][1]
            self.hold(partition)
            cause = translate(error, f"read {self._topic}-{number} at offset {position}", **facts)
            partition.stop(cause, offset=position)
            return
        log.warning("reader_error", extra=facts | {"error": error.str()})

    # --- rebalances ------------------------------------------------------------------------------------------------

    def _on_assign(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        if self._closing:
            consumer.incremental_assign([])
            return
        fresh = [self._assigner.make(tp.partition) for tp in given]
        for partition in fresh:
            self._table[partition.number] = partition
        consumer.incremental_assign([])  # else the binding gives all of them to the client
        if fresh:
            log.info("partitions_assigned", extra={"partitions": [partition.number for partition in fresh]})
            self._assigner.assigned(consumer, fresh, EARLIER_LIFE_SECONDS)

    def _on_revoke(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        limit = self._config.transaction_timeout_seconds + REVOKE_MARGIN_SECONDS
        waited = self._transactions.acquire(timeout=limit)
        try:
            if not waited:
                log.error("revoke_did_not_wait", extra={"limit_seconds": limit})
            self._take_away(consumer, taken, "partitions_revoked")
        finally:
            if waited:
                self._transactions.release()

    def _on_lost(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        self._take_away(consumer, taken, "partitions_lost")

    def _take_away(self, consumer: Consumer, taken: list[TopicPartition], event: str) -> None:
        read = [TopicPartition(self._topic, tp.partition) for tp in taken if tp.partition in self._positions]
        try:
            for tp in taken:
                partition = self._table.get(tp.partition)
                if partition is not None:
                    self._give_up(partition)
        finally:
            # Once and at the end: it tells the client that this is done. While it closes, it answers no second call,
            # which then never returns. And always: else the binding takes all of them from the client, read or not.
            consumer.incremental_unassign(read)
        if taken:
            log.info(event, extra={"partitions": [tp.partition for tp in taken]})

    def _give_up_all(self) -> None:
        for partition in list(self._table.values()):
            self._give_up(partition)

    def _give_up(self, partition: Partition) -> None:
        partition.closing = True
        self._positions.pop(partition.number, None)
        self._table.pop(partition.number, None)
        self._assigner.revoked(partition)

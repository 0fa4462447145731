"""Sending what changed to the projection topics, together with the position it is true at.

Protocol *emit*, one transaction per tick, under the lock that ``on_revoke`` waits for:

1. per partition that may emit: the current state of the keys in its outbox, and its cursor, were taken at one moment;
2. the rows were produced (the transaction is open);
3. the cursors were sent with the group's metadata of step 1's time: the broker checks here that we are still a member;
4. the transaction is committed: rows and offsets appear together;
5. the outbox rows are deleted, those whose token is unchanged.

A crash before 4 leaves nothing visible; after 4 and before 5 the same values are sent again. So the group's committed
offset means "emitted up to here".

A partition is silent until its cursor has reached its bound (the commit found at assignment, or the point of the
switch): else an older shard that comes back would send the topic backwards. A partition whose outbox is larger than a
transaction may be stands still while several carry it; only the last of them moves the committed offset.

A row that Kafka does not take (too large, its topic missing or closed to us) fails the whole transaction. Its partition
stops, keeps its outbox and is tried again later; the next transaction is without it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from dalsegno.errors import DalsegnoError
from dalsegno.log.kafka import kafka_errors
from dalsegno.log.kafka import producer as make_producer
from dalsegno.model.cursor import Commit, format_metadata
from dalsegno.state.shard import OutboxItem
from dalsegno.streams.config import WorkerConfig
from dalsegno.streams.partition import Partition
from dalsegno.streams.refusals import Refusals

log = logging.getLogger("dalsegno.streams")

# The calls of a transaction block at most this long; the transaction's own time-out ends what hangs.
CALL_SECONDS = 10.0
# A topic that was made this much earlier is known to every broker: one that is not there then is missing.
TOPIC_SPREAD_SECONDS = 3.0
HANG_SECONDS = 120.0
"""A transaction that takes longer than all of its calls may has met one that does not keep its limit."""
# Failures after which the same producer goes on: the group is changing, or nothing was sent yet.
_PASSING = {KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS, KafkaError._QUEUE_FULL}


class Chosen(NamedTuple):
    """What one partition puts into a transaction. ``whole``: nothing stays in its outbox.

    ``reports``: how many of the rows are for the quarantine.
    """

    partition: Partition
    items: list[OutboxItem]
    rows: list[tuple[str, bytes, bytes | None]]
    commit: Commit
    whole: bool
    reports: int
    changes: int


class Emitter:
    """The worker's transactional producer. ``tick`` belongs to one thread."""

    def __init__(
        self,
        config: WorkerConfig,
        transactional_id: str,
        worker_id: str,
        table: dict[int, Partition],
        transactions: threading.Lock,
        metadata: Callable[[], Any],
        topic_of: Callable[[str], str],
    ) -> None:
        self._config = config
        self._transactional_id = transactional_id
        self._worker_id = worker_id
        self._table = table
        self._transactions = transactions
        self._metadata = metadata
        self._topic_of = topic_of
        self._refusals = Refusals(config.kafka)
        self._producer: Producer | None = None
        self.failing: str | None = None
        """Why the last transaction failed; None once one went through, or when there is nothing to send."""
        self.failing_since: float | None = None
        """When that began, in seconds since 1970."""
        self.sending_since: float | None = None
        """When the transaction at hand began (monotonic); None between two of them."""

    def open(self) -> None:
        """Make the producer. Ends a transaction that an earlier life of this slot left open. Raises as ``kafka_errors``
        does."""
        with kafka_errors("begin transactions", transactional_id=self._transactional_id):
            made = make_producer(
                self._config.kafka,
                {
                    "transactional.id": self._transactional_id,
                    "transaction.timeout.ms": int(self._config.transaction_timeout_seconds * 1000),
                    "client.id": self._transactional_id,
                    "compression.type": "zstd",
                    "linger.ms": 20,
                    "topic.metadata.propagation.max.ms": int(TOPIC_SPREAD_SECONDS * 1000),
                    "on_delivery": self._refusals.delivered,
                    "delivery.report.only.error": True,
                    "queue.buffering.max.messages": max(100_000, 2 * self._config.rows_per_transaction),
                },
            )
            made.init_transactions(self._config.commit_read_seconds)
        self._producer = made

    def close(self) -> None:
        """Drop the producer; every transaction was ended by the tick that began it."""
        self._producer = None

    def tick(self) -> bool:
        """One transaction, if anything changed. True when rows are left for another one at once."""
        chosen: list[Chosen] = []
        with self._transactions:
            try:
                if self._producer is None:
                    self.open()
                metadata = self._metadata()
                chosen = [] if metadata is None else self._choose()
                if not chosen:
                    self._fails(None)
                    return False
                self._config.fault("emit.1")
                self.sending_since = time.monotonic()
                self._send(chosen, metadata)
            except KafkaException as error:
                return self._failed(error.args[0], chosen)
            except DalsegnoError as error:  # no new producer yet
                log.warning("emit_failed", extra={"error": str(error)})
                self._fails(str(error))
                return False
            finally:
                self.sending_since = None
            self._sent(chosen)
            self._config.fault("emit.5")
        return any(not part.whole for part in chosen)

    # --- the steps -------------------------------------------------------------------------------------------------

    def _choose(self) -> list[Chosen]:
        """Whole partitions until the limit is reached; the rest is for the next transaction."""
        left = self._config.rows_per_transaction
        chosen: list[Chosen] = []
        for partition in sorted(self._table.values(), key=lambda each: not each.draining):
            if left <= 0:
                break
            if partition.outbox_failed and partition.error is not None:
                continue
            try:
                part = self._choose_from(partition, left, first=not chosen)
            except Exception as error:
                # A shard that cannot be read keeps its own rows back, and nobody else's. It is said once per retry.
                self._outbox_fails(partition, error)
                continue
            if part is None:
                partition.outbox_failed = False
            else:
                chosen.append(part)
                left -= len(part.rows)
        return chosen

    def _choose_from(self, partition: Partition, limit: int, *, first: bool) -> Chosen | None:
        if not partition.may_emit:
            return None  # seen before waiting for the lock: a build holds it for long
        with partition.lock:
            shard = partition.shard
            if shard is None or not partition.may_emit:
                return None
            items = [] if partition.outbox_is_empty else shard.outbox(limit + 1)
            whole = len(items) <= limit
            if not whole and not first:
                return None  # it does not fit beside the others, but perhaps alone
            items = items[:limit]
            now = Commit(shard.cursor.next_offset, partition.generation, partition.base, partition.emitter)
            before = Commit(partition.opened_at) if partition.committed is None else partition.committed
            commit = now if whole else now._replace(offset=before.offset)
            reports = list(partition.reports)
            if not items:
                partition.clean_at = partition.changes
                if not reports and commit == partition.committed:
                    return None
            partition.draining = not whole
            rows: list[tuple[str, bytes, bytes | None]] = []
            for item in items:
                key, value = shard.current(item)
                rows.append((self._topic_of(item.projection), key, value))
            rows += [
                (self._config.names.quarantine, *report.encode(partition.number, self._worker_id)) for report in reports
            ]
            return Chosen(partition, items, rows, commit, whole, len(reports), partition.changes)

    def _send(self, chosen: list[Chosen], metadata: Any) -> None:
        producer = self._producer
        assert producer is not None
        self._refusals.clear()
        try:
            producer.begin_transaction()
            for part in chosen:
                for topic, key, value in part.rows:
                    self._refusals.produce(producer, topic, part.partition.number, key, value)
            producer.flush(CALL_SECONDS)
            if self._refusals:
                raise KafkaException(KafkaError(KafkaError._INCONSISTENT, "a row was refused"))
            self._config.fault("emit.2")
            topic = self._config.names.events
            offsets = [
                TopicPartition(
                    topic,
                    part.partition.number,
                    part.commit.offset,
                    metadata=format_metadata(str(part.commit.generation), part.commit.base, part.commit.emitter),
                )
                for part in chosen
            ]
            producer.send_offsets_to_transaction(offsets, metadata, CALL_SECONDS)
            self._config.fault("emit.3")
            producer.commit_transaction(CALL_SECONDS)
            self._config.fault("emit.4")
        except BufferError as error:
            self._abort(producer)
            raise KafkaException(KafkaError(KafkaError._QUEUE_FULL, str(error))) from error
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() != KafkaError._FENCED and not cause.fatal():
                self._abort(producer)
            if cause.code() not in _PASSING:
                # The next tick makes a new one. An old one may be of no more use, or believe itself ready and then
                # wait without end: after a broker lost its last writes, `send_offsets_to_transaction` never comes back.
                self._producer = None
            raise

    def _abort(self, producer: Producer) -> None:
        try:
            producer.abort_transaction(CALL_SECONDS)
        except KafkaException as error:
            # A producer whose transaction cannot even be aborted is of no more use; a new one ends it by its id.
            log.warning("abort_failed", extra={"code": error.args[0].name(), "error": error.args[0].str()})
            self._producer = None

    def _sent(self, chosen: list[Chosen]) -> None:
        self._fails(None)
        for part in chosen:
            partition = part.partition
            with partition.lock:
                partition.committed = part.commit
                try:
                    if partition.shard is not None:
                        partition.shard.clear_outbox(part.items)
                except Exception as error:
                    self._outbox_fails(partition, error)  # what stays there is sent once more: the same values
                    continue
                partition.outbox_failed = False
                for _ in range(min(part.reports, len(partition.reports))):
                    partition.reports.popleft()
                if part.whole:
                    partition.clean_at = part.changes
                    partition.draining = False
                    partition.drained.notify_all()

    def _outbox_fails(self, partition: Partition, error: Exception) -> None:
        """Send nothing of it until it is retried: the same rows would go out, or be refused, at every tick."""
        partition.outbox_failed = True
        if partition.error is None:
            partition.stop(error)

    def _failed(self, cause: KafkaError, chosen: list[Chosen]) -> bool:
        """Nothing of the transaction is visible; the outbox still has everything, so the next tick sends it: at once
        (True) without the partitions whose rows were refused."""
        refused = [(part.partition, error) for part in chosen if (error := self._refusals.of(part.partition.number))]
        if refused:
            for partition, error in refused:
                self._outbox_fails(partition, error)
            self._fails(None)
            return True
        facts = {"code": cause.name(), "error": cause.str(), "fatal": cause.fatal()}
        if cause.code() == KafkaError.ILLEGAL_GENERATION:
            log.info("emit_during_rebalance", extra=facts)  # normal while the group changes
        else:
            log.warning("emit_failed", extra=facts)
        self._fails(f"{cause.name()}: {cause.str()}")
        return False

    def _fails(self, why: str | None) -> None:
        self.failing_since = None if why is None else self.failing_since or time.time()
        self.failing = why

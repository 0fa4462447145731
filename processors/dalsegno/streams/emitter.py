"""Sending what changed to the projection topics, together with the position it is true at.

Protocol *emit*, one transaction per tick, under the lock that ``on_revoke`` waits for:

1. per partition that may emit: the current state of the keys in its outbox, and its cursor, were taken at one moment
   (``dalsegno.streams.choosing``);
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
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from dalsegno.errors import DalsegnoError
from dalsegno.log.kafka import kafka_errors
from dalsegno.log.kafka import producer as make_producer
from dalsegno.model.cursor import format_metadata
from dalsegno.streams.choosing import PATIENCE_SECONDS, Chooser, Chosen, outbox_fails, outbox_is_well
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
        self._transactions = transactions
        self._metadata = metadata
        self._chooser = Chooser(config, worker_id, table, topic_of)
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

    def tick(self, patience_seconds: float = PATIENCE_SECONDS) -> bool:
        """One transaction, if anything changed. True when rows are left for another one at once.

        ``patience_seconds``: how long to wait for partitions that are worked on, before these are left out.
        """
        chosen: list[Chosen] = []
        with self._transactions:
            try:
                if self._producer is None:
                    self.open()
                metadata = self._metadata()
                chosen = [] if metadata is None else self._chooser.choose(patience_seconds)
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
        return self._chooser.left_over

    # --- the steps -------------------------------------------------------------------------------------------------

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
            # Waits as long as it takes: what is committed must be noted before anything else is chosen from it. A
            # rebalance that waits for this has a limit of its own.
            with partition.lock:
                partition.committed = part.commit
                try:
                    if partition.shard is not None:
                        partition.shard.clear_outbox(part.items)
                except Exception as error:
                    outbox_fails(partition, error)  # what stays there is sent once more: the same values
                    continue
                outbox_is_well(partition)
                for _ in range(min(part.reports, len(partition.reports))):
                    partition.reports.popleft()
                if part.whole:
                    partition.clean_at = part.changes
                    partition.draining = False
                    partition.drained.notify_all()

    def _failed(self, cause: KafkaError, chosen: list[Chosen]) -> bool:
        """Nothing of the transaction is visible; the outbox still has everything, so the next tick sends it: at once
        (True) without the partitions whose rows were refused."""
        refused = [(part.partition, error) for part in chosen if (error := self._refusals.of(part.partition.number))]
        if refused:
            for partition, error in refused:
                outbox_fails(partition, error)
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

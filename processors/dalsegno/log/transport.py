"""What a publisher and a resuming session need of a log, and Kafka's filling of it.

The seam is small so that the log can be a list in memory (``dalsegno.testing.memory_log``) under the same tests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from dalsegno.errors import DalsegnoError, Unavailable
from dalsegno.log import reader, schema_topic
from dalsegno.log.kafka import KafkaConfig, client_log, kafka_errors, producer, translate
from dalsegno.log.reader import Bounds
from dalsegno.log.record import Batch
from dalsegno.log.schema_set import SchemaSet, WriterSchema
from dalsegno.model.ids import Offset

Done: TypeAlias = Callable[[Offset | None, DalsegnoError | None], None]
"""Told once per record sent: its offset, or why it was not acknowledged. Must be quick and must not raise."""
Headers: TypeAlias = "list[tuple[str, bytes]]"

DELIVERY_TIMEOUT_SECONDS = 120.0
QUEUE_TIMEOUT_SECONDS = 30.0
# After a purge every report is there to be served: this bounds a thread that does not come, nothing else.
CLOSE_TIMEOUT_SECONDS = 3.0
_POLL_SECONDS = 0.05
_FLUSH_SECONDS = 1.0


class Transport(Protocol):
    """A log of topics. Sending is asynchronous, in order per partition; reading is bounded and read committed."""

    def send(self, topic: str, partition: int, key: bytes, value: bytes | None, headers: Headers, done: Done) -> None:
        """Queue a record; ``done`` is told what became of it. Raises if it was not queued (then ``done`` is not)."""
        ...

    def ready(self) -> None:
        """Be able to send again after a fatal error; every record sent before has been told its end by then."""
        ...

    def flush(self, timeout: float) -> int:
        """Wait until every record was told its end; how many were not, at the limit."""
        ...

    def close(self) -> None:
        """Send no more. Records that were not told their end are told that they were given up."""
        ...

    def partitions(self, topic: str) -> int: ...

    def bounds(self, topic: str, partition: int) -> Bounds: ...

    def read(
        self, topic: str, partition: int, start: Offset | None, end: Offset, stall_seconds: float
    ) -> Iterator[Batch]: ...

    def publish_schemas(self, prefix: str, schemas: Iterable[WriterSchema], timeout: float) -> None: ...

    def refresh_schemas(self, prefix: str, schemas: SchemaSet, timeout: float) -> int: ...


class KafkaTransport:
    """Kafka: one idempotent producer whose reports are served by a thread of its own.

    It is made when something is sent: who only reads may have no right to write, and needs neither of the two.
    """

    def __init__(self, cfg: KafkaConfig, *, delivery_timeout_seconds: float = DELIVERY_TIMEOUT_SECONDS) -> None:
        self._cfg = cfg
        self._timeout_ms = max(1, int(delivery_timeout_seconds * 1000))
        self._lock = threading.Lock()
        self._fatal = False
        self._closed = False
        self._producer: Producer | None = None
        self._poller = threading.Thread(target=self._poll, name="dalsegno-publisher", daemon=True)

    def send(self, topic: str, partition: int, key: bytes, value: bytes | None, headers: Headers, done: Done) -> None:
        def report(error: KafkaError | None, message: Message) -> None:
            if error is None:
                done(Offset(int(message.offset() or 0)), None)
                return
            if error.fatal() or error.code() in (KafkaError._FATAL, KafkaError._GAPLESS_GUARANTEE):
                self._fatal = True
            facts = {"topic": topic, "partition": partition}
            doing = f"store a record in {topic}-{partition}"
            done(None, translate(error, doing, time.monotonic() - begun, **facts))

        doing = f"send a record to {topic}-{partition}"
        begun = time.monotonic()
        deadline = begun + QUEUE_TIMEOUT_SECONDS
        while True:
            if self._closed:
                raise Unavailable(f"could not {doing}: the publisher is closed", todo="make a new publisher")
            try:
                with kafka_errors(doing, topic=topic, partition=partition):
                    self._produce(topic, partition, key, value, headers, report)
                return
            except Unavailable as error:
                full = isinstance(error.__cause__, BufferError)
                if not full or time.monotonic() > deadline:
                    raise
                self._serve(self._sender(), _POLL_SECONDS)

    def _produce(
        self,
        topic: str,
        partition: int,
        key: bytes,
        value: bytes | None,
        headers: Headers,
        report: Callable[[KafkaError | None, Message], None],
    ) -> None:
        try:
            self._sender().produce(
                topic, partition=partition, key=key, value=value, headers=list(headers), on_delivery=report
            )
        except KafkaException as error:
            if error.args[0].code() == KafkaError._FATAL:
                self._fatal = True
            raise

    def ready(self) -> None:
        """A producer that met a fatal error (a gap would have come) sends no more: take a new one, once every record
        of the old one was told its end, so that nothing is sent behind a record that was not stored."""
        if not self._fatal:
            return
        with self._lock:
            if not self._fatal or self._closed:
                return
            old = self._producer
            if old is not None:
                old.purge()
                self._drain(old, QUEUE_TIMEOUT_SECONDS)
                self._producer = self._make()
            self._fatal = False

    def flush(self, timeout: float) -> int:
        return 0 if self._producer is None else self._drain(self._producer, timeout)

    def close(self) -> None:
        """What is still queued or under way is given up: reported as purged, which for a record under way means that
        its outcome is unknown."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._producer is None:
            return
        self._producer.purge()
        self._drain(self._producer, CLOSE_TIMEOUT_SECONDS)
        self._poller.join(CLOSE_TIMEOUT_SECONDS)

    def partitions(self, topic: str) -> int:
        return reader.partitions_of(self._cfg, topic)

    def bounds(self, topic: str, partition: int) -> Bounds:
        return reader.bounds(self._cfg, topic, [partition])[partition]

    def read(
        self, topic: str, partition: int, start: Offset | None, end: Offset, stall_seconds: float
    ) -> Iterator[Batch]:
        return reader.read_range(self._cfg, topic, partition, start, end, stall_seconds=stall_seconds)

    def publish_schemas(self, prefix: str, schemas: Iterable[WriterSchema], timeout: float) -> None:
        schema_topic.publish_schemas(self._cfg, prefix, schemas, timeout)

    def refresh_schemas(self, prefix: str, schemas: SchemaSet, timeout: float) -> int:
        return schema_topic.refresh(schemas, self._cfg, prefix, timeout)

    def _sender(self) -> Producer:
        found = self._producer
        if found is not None:
            return found
        with self._lock:
            if self._closed:
                raise Unavailable("the publisher is closed", todo="make a new publisher")
            if self._producer is None:
                self._producer = self._make()
                self._poller.start()
            return self._producer

    def _make(self) -> Producer:
        return producer(
            self._cfg,
            {
                "enable.idempotence": True,
                "enable.gapless.guarantee": True,
                "acks": "all",
                "compression.type": "zstd",
                "linger.ms": 20,
                "message.timeout.ms": self._timeout_ms,
                "error_cb": self._on_error,
            },
        )

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = True
        client_log.warning("producer_error", extra={"code": error.name(), "reason": error.str()})

    def _poll(self) -> None:
        while not self._closed:
            self._serve(self._sender(), _POLL_SECONDS)

    def _serve(self, client: Producer, seconds: float) -> None:
        """Serve reports. A fatal error is raised here, once, by whichever call serves it, and the reports come after
        it: it must not end the serving."""
        try:
            client.poll(seconds)
        except KafkaException as error:
            self._fatal = True
            client_log.error("producer_fatal", extra={"reason": str(error.args[0])})

    def _drain(self, client: Producer, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while (left := len(client)) and (seconds := deadline - time.monotonic()) > 0:
            try:
                client.flush(min(seconds, _FLUSH_SECONDS))
            except KafkaException as error:
                self._fatal = True
                client_log.error("producer_fatal", extra={"reason": str(error.args[0])})
        return left

"""Sending events to the log, and telling of each what became of it; nothing that was taken is lost silently.

It is idempotent and gapless: the client repeats a lost record by itself, without doubling it and without sending
anything past it. One of it serves many sessions and threads.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import socket
import sys
import threading
import weakref
from collections.abc import Iterable
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from dalsegno.errors import (
    DalsegnoError,
    KafkaForbidden,
    SessionOpen,
    TopicDrift,
    TopicMissing,
    Unavailable,
    Unsent,
    Usage,
)
from dalsegno.log.history import SCHEMA_TIMEOUT_SECONDS, PartitionSource
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.receipts import CLOSE_TIMEOUT_SECONDS, Pending, close_behind, unsent
from dalsegno.log.schema_set import SchemaSet, WriterSchema
from dalsegno.log.stored import check_stored
from dalsegno.log.topics import BESIDE, EVENTS, topic_name
from dalsegno.log.transport import DELIVERY_TIMEOUT_SECONDS, Headers, KafkaTransport, Transport
from dalsegno.model.ids import EventKey, Offset, partition_of

if TYPE_CHECKING:
    from dalsegno.log.redaction import Redactor
    from dalsegno.storage.blobs import Blobs

_W = TypeVar("_W")


def default_writer() -> str:
    """name/version/instance, as the envelope says who wrote an event."""
    from dalsegno import __version__

    return f"dalsegno/{__version__}/{socket.gethostname()}-{os.getpid()}"


class Sender:
    """The sending half of a publisher; see ``Publisher`` for what the arguments mean.

    Raises TopicMissing or an Unavailable at the first use, not here.
    """

    def __init__(
        self,
        kafka: KafkaConfig | Transport,
        *,
        prefix: str = "dalsegno",
        writer: str | None = None,
        delivery_timeout_seconds: float = DELIVERY_TIMEOUT_SECONDS,
        blobs: Blobs | None = None,
        redact: Redactor | None = None,
    ) -> None:
        if isinstance(kafka, str):
            raise Usage(f"Publisher({kafka!r})", wanted=f"a KafkaConfig({kafka!r})", todo="import it from dalsegno")
        self.prefix = prefix
        self.blobs = blobs
        self.redact = redact
        self.topic = topic_name(prefix, EVENTS)
        self.writer = writer or default_writer()
        self.schemas = SchemaSet.load()
        self.transport: Transport = (
            KafkaTransport(kafka, delivery_timeout_seconds=delivery_timeout_seconds)
            if isinstance(kafka, KafkaConfig)
            else kafka
        )
        self._acknowledged: set[bytes] = set()
        self._schema_lock = threading.Lock()
        self._unsettled: dict[int, Pending] = {}
        self._failed: dict[EventKey, Pending] = {}
        # Who writes a session here. A session that nobody holds any more cannot append, so it is open no longer.
        self._open: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        self._closed = False
        atexit.register(self._close_at_exit)

    @cached_property
    def partitions(self) -> int:
        """How many partitions the events topic has: fixed for life.

        Raises TopicDrift where it has grown: sessions that are written already would go on in another partition.
        """
        found = self.transport.partitions(self.topic)
        beside = topic_name(self.prefix, BESIDE)
        try:
            made_with = self.transport.partitions(beside)
        except (TopicMissing, KafkaForbidden):
            return found  # whoever may see no other topic cannot compare
        if found != made_with:
            raise TopicDrift(
                f"{self.topic} has {found} partitions, {beside} has {made_with}",
                wanted="the number that both were made with: a session's partition follows from it",
                todo="partitions cannot be taken back: make the topics of another prefix and import into them",
                topic=self.topic,
                partitions=found,
                made_with=made_with,
            )
        return found

    def opened(self, session_id: str, writer: object) -> None:
        """Somebody writes a session here. Raises SessionOpen where another one does already."""
        with self._lock:
            if session_id in self._open:
                raise SessionOpen(
                    f"session {session_id} is open in this process already",
                    wanted="one writer of a session",
                    todo="use the session that is open, or close it; another session needs another id",
                    session_id=session_id,
                )
            self._open[session_id] = writer

    def now_written_by(self, session_id: str, writer: _W) -> _W | None:
        """A session was resumed: its writer is the one that is open. Returns the one that was, if it was another."""
        with self._lock:
            before, self._open[session_id] = self._open.get(session_id), writer
        return None if before is writer else before

    def let_go(self, session_id: str, writer: object) -> None:
        """A session was closed."""
        with self._lock:
            if self._open.get(session_id) is writer:
                del self._open[session_id]

    def send(self, key: EventKey | bytes | None, value: bytes | None) -> Pending:
        """Send stored bytes, as importers and repeats do; ``value`` None is a tombstone. Encodes nothing.

        Raises InvalidEvent if the bytes are no event under this key, SchemaUnknown if their schema is not this build's.
        An amendment is never tombstoned: an erased event would come back with an older snapshot.
        """
        parsed = check_stored(self.schemas, key, value)
        if value is not None:
            writer = self.schemas.by_frame(value[2:10])
            assert writer is not None
            self.acknowledge_schemas([writer])
        return self.send_checked(Pending(parsed, value, self.partition_of(parsed.session_id)))

    def resend(self, unsent: Unsent) -> list[Pending]:
        """Send again what another publisher gave up: the same bytes under the same keys, so nothing is doubled."""
        return [self.send(pending.key, pending.value) for pending in unsent.data["pending"]]

    def partition_of(self, session_id: str) -> int:
        return partition_of(session_id, self.partitions)

    def high(self, session_id: str) -> Offset:
        """The high watermark of the session's partition, read uncommitted."""
        return self.transport.bounds(self.topic, self.partition_of(session_id)).high

    def log_source(self) -> PartitionSource:
        """Where a session's records come from if nothing but the log is at hand: its partition, read from the start."""
        return PartitionSource(self.transport, self.prefix, self.topic, self.partitions, self.schemas)

    def acknowledge_schemas(self, writers: Iterable[WriterSchema], timeout: float = SCHEMA_TIMEOUT_SECONDS) -> None:
        """Make sure that the log explains itself: these schemas are stored in it before this returns.

        The first call puts the whole catalogue there, so that no later append waits for a schema.
        """
        if all(writer.schema_hash in self._acknowledged for writer in writers):
            return
        with self._schema_lock:
            wanted = {writer.schema_hash: writer for writer in (*self._events(), *writers)}
            missing = [writer for hash_, writer in wanted.items() if hash_ not in self._acknowledged]
            if missing:
                self.transport.publish_schemas(self.prefix, missing, timeout)
                self._acknowledged.update(wanted)

    def prepare(self) -> None:
        """Do now what the first append would wait for: ask for the topic, and store the schemas."""
        _ = self.partitions
        self.acknowledge_schemas(self._events())

    def send_checked(self, pending: Pending, headers: Headers | None = None) -> Pending:
        """Send what is known to be an event in its place; the core of ``send`` and of ``Session.append``."""
        if self._closed:
            raise Unavailable("the publisher is closed", todo="make a new publisher")
        with self._lock:
            self._unsettled[id(pending)] = pending

        def done(offset: Offset | None, error: DalsegnoError | None) -> None:
            with self._lock:
                self._unsettled.pop(id(pending), None)
                if error is not None:
                    self._failed[pending.key] = pending
                else:
                    self._failed.pop(pending.key, None)
            pending.settle(offset, error)

        try:
            self.transport.send(self.topic, pending.partition, pending.key.encode(), pending.value, headers or [], done)
        except BaseException:
            with self._lock:
                self._unsettled.pop(id(pending), None)
            raise
        return pending

    def unacknowledged(self, key: EventKey) -> Pending | None:
        """What was sent under this key and has no good report: it is to come, or says why there is none. None: the log
        has it, or it was not sent here."""
        with self._lock:
            under_way = (pending for pending in self._unsettled.values() if pending.key == key)
            return self._failed.get(key) or next(under_way, None)

    def found_in_log(self, keys: Iterable[EventKey]) -> None:
        """These events were read in the log: their missing reports no longer count as unsent."""
        with self._lock:
            for key in keys:
                self._failed.pop(key, None)

    def has_failed(self, session_id: str) -> bool:
        """Whether events of the session have no report, and will get none."""
        with self._lock:
            return any(key.session_id == session_id for key in self._failed)

    def flush(self, timeout: float = CLOSE_TIMEOUT_SECONDS) -> int:
        """Wait until every event has its report; how many have none at the limit (they are still under way)."""
        return self.transport.flush(timeout)

    def close(self, timeout: float = CLOSE_TIMEOUT_SECONDS) -> None:
        """Send what is queued, within the limit, and end. Raises Unsent if any event was never acknowledged.

        ``data['keys']`` lists them, ``data['pending']`` holds their bytes (``resend``). An unsent event was not
        acknowledged; whether the log has it is unknown, and sending it again is harmless.
        """
        if self._closed:
            return
        try:
            self.transport.flush(timeout)
        finally:
            self._closed = True
            atexit.unregister(self._close_at_exit)
            with self._lock:
                late = list(self._unsettled.values())
            self.transport.close()
        error = unsent([*self._failed.values(), *(each for each in late if each.error() or not each.done())])
        if error is not None:
            raise error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        close_behind(self.close, error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await asyncio.to_thread(close_behind, self.close, error)

    def _close_at_exit(self) -> None:
        """A program ended without closing: send what is queued, and say on stderr what was not acknowledged.

        Too late for the exit code: close the publisher, or use ``with``, for that.
        """
        try:
            self.close()
        except DalsegnoError as error:
            print(f"error: {error}", *error.data.get("keys", ()), sep="\n  ", file=sys.stderr)

    def _events(self) -> list[WriterSchema]:
        return [writer for writer in self.schemas if writer.is_event and self.schemas.newest(writer) is writer]

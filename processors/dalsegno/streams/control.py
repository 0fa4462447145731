"""Requests to running workers from ``<prefix>.control``: take a snapshot, drain.

Only requests made after this worker started to listen count; the topic is read without a group, by every worker. The
answer goes to the same topic under the request's id, one record per partition.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_END, TopicPartition

from dalsegno.errors import DalsegnoError, RecordDamaged
from dalsegno.log.codec import decode_record, encode_record
from dalsegno.log.kafka import consumer as make_consumer
from dalsegno.log.kafka import kafka_errors
from dalsegno.log.service_records import write_records
from dalsegno.streams.config import WorkerConfig
from dalsegno.streams.partition import Partition
from dalsegno.streams.snapshotter import Snapshotter

log = logging.getLogger("dalsegno.streams")

POLL_SECONDS = 0.2
TELL_EVERY_SECONDS = 60.0


class ControlListener:
    """Reads requests and answers them. ``step`` belongs to one thread; answers come from the house's."""

    def __init__(
        self,
        config: WorkerConfig,
        worker_id: str,
        table: Mapping[int, Partition],
        snapshotter: Snapshotter,
        drain: Callable[[str], None],
    ) -> None:
        self._config = config
        self._worker_id = worker_id
        self._table = table
        self._snapshotter = snapshotter
        self._drain = drain
        self._unreadable = 0
        self._tell_at = 0.0
        # Where the topic's records went while nobody asked for anything, only what comes next counts.
        options = {"group.id": f"{config.names.group}.control", "auto.offset.reset": "latest"}
        self._consumer = make_consumer(config.kafka, options)
        with kafka_errors("listen for requests", topic=config.names.control):
            self._consumer.assign([TopicPartition(config.names.control, 0, OFFSET_END)])

    def step(self) -> bool:
        """Wait a moment for a request and take it. Always False: there is a wait in it already."""
        message = self._consumer.poll(POLL_SECONDS)
        if message is None:
            return False
        error = message.error()
        if error is not None:
            log.warning("control_read_error", extra={"code": error.name(), "error": error.str()})
            return False
        value = message.value()
        if value is not None:
            self._take(value)
        return False

    def close(self) -> None:
        self._consumer.close()

    def _take(self, value: bytes) -> None:
        try:
            kind, request = decode_record(value)
        except RecordDamaged as error:
            self._tell_unreadable(error)
            return
        if kind != "ControlRequest" or request["worker_id"] not in (None, self._worker_id):
            return
        late = time.time() * 1000 > request["requested_at"] / 1000 + request["timeout_ms"]
        if late:
            log.info("request_too_late", extra={"request_id": request["request_id"]})
            return
        log.info("request_taken", extra={"request_id": request["request_id"], "kind": request["kind"]})
        if request["kind"] == "SNAPSHOT":
            self._snapshot(request)
        elif request["kind"] == "DRAIN":
            self._answer(request, None, None, None)
            self._drain(f"asked by {request['requested_by']}: {request['reason']}")

    def _tell_unreadable(self, error: RecordDamaged) -> None:
        """At most one line a minute, however much somebody writes here."""
        self._unreadable += 1
        now = time.monotonic()
        if now >= self._tell_at:
            log.warning("control_records_unreadable", extra={"records": self._unreadable, "error": str(error)})
            self._unreadable, self._tell_at = 0, now + TELL_EVERY_SECONDS

    def _snapshot(self, request: Mapping[str, Any]) -> None:
        wanted = set(request["partitions"])
        for number, partition in list(self._table.items()):
            if not wanted or number in wanted:
                answer = partial(self._answer_for, request)
                self._snapshotter.ask(partition, request["reason"], answer)

    def _answer_for(
        self, request: Mapping[str, Any], partition: Partition, snapshot_id: str | None, problem: str | None
    ) -> None:
        self._answer(request, partition.number, snapshot_id, problem)

    def _answer(
        self, request: Mapping[str, Any], partition: int | None, snapshot_id: str | None, problem: str | None
    ) -> None:
        record = {
            "request_id": request["request_id"],
            "worker_id": self._worker_id,
            "partition": partition,
            "ok": problem is None,
            "answered_at": int(time.time() * 1_000_000),
            "shard_snapshot_id": snapshot_id,
            "error": problem,
        }
        try:
            write_records(
                self._config.kafka, self._config.names.control,
                [(request["request_id"], encode_record("ControlAnswer", record))],
            )  # fmt: skip
        except DalsegnoError as error:
            log.warning("answer_not_sent", extra={"request_id": request["request_id"], "error": str(error)})

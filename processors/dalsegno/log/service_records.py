"""Small records of the service topics: written one by one and acknowledged; the requests to workers among them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from dalsegno.errors import DalsegnoError, WaitTimeout
from dalsegno.log.codec import encode_record
from dalsegno.log.kafka import KafkaConfig, kafka_errors, producer, translate
from dalsegno.log.topics import topic_name

WRITE_TIMEOUT_SECONDS = 30.0


class RecordWriter:
    """Writes (key, value) pairs to partition 0 of one topic, over one producer, which is made at the first."""

    def __init__(self, cfg: KafkaConfig, topic: str, *, timeout_seconds: float = WRITE_TIMEOUT_SECONDS) -> None:
        self._cfg, self._topic, self._timeout_seconds = cfg, topic, timeout_seconds

    @cached_property
    def _client(self) -> Producer:
        return producer(
            self._cfg,
            {
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "delivery.timeout.ms": int(self._timeout_seconds * 1000),
                "socket.timeout.ms": min(int(self._timeout_seconds * 1000), 60_000),
            },
        )

    def write(self, records: Iterable[tuple[str, bytes | None]]) -> None:
        """Write, and wait until each is acknowledged; a value of None is a tombstone. Raises WaitTimeout (the outcome
        is then unknown), TopicMissing, BrokerUnavailable, KafkaRefused."""
        topic, client = self._topic, self._client
        failed: list[DalsegnoError] = []
        waiting = 0

        def report(error: KafkaError | None, _: Message) -> None:
            nonlocal waiting
            waiting -= 1
            if error is not None:
                failed.append(translate(error, f"write to {topic}", topic=topic))

        with kafka_errors(f"write to {topic}", topic=topic):
            for key, value in records:
                waiting += 1
                client.produce(topic, key=key.encode(), value=value, partition=0, on_delivery=report)
            client.flush(self._timeout_seconds)
        if failed:
            raise failed[0]
        if waiting:
            raise WaitTimeout(
                f"{waiting} records to {topic} were not acknowledged within {self._timeout_seconds:g} s",
                wanted="an acknowledgement of each",
                todo="check the broker, then look whether they are there before trying again",
                topic=topic,
            )


def write_records(
    cfg: KafkaConfig,
    topic: str,
    records: Iterable[tuple[str, bytes | None]],
    *,
    timeout_seconds: float = WRITE_TIMEOUT_SECONDS,
) -> None:
    """As ``RecordWriter.write``, once."""
    RecordWriter(cfg, topic, timeout_seconds=timeout_seconds).write(records)


def write_request(
    cfg: KafkaConfig,
    prefix: str,
    kind: str,
    *,
    request_id: str,
    by: str,
    reason: str,
    timeout_seconds: float,
    **whom: Any,
) -> None:
    """Ask running workers for something, which after ``timeout_seconds`` nobody does any more. ``whom``: the
    ``worker_id`` or ``partitions`` that are asked; without either, all. Raises WaitTimeout, TopicMissing,
    BrokerUnavailable."""
    request = {
        "request_id": request_id,
        "kind": kind,
        "requested_at": time.time_ns() // 1000,
        "requested_by": by,
        "timeout_ms": int(timeout_seconds * 1000),
        "reason": reason,
        **whom,
    }
    pair = (request_id, encode_record("ControlRequest", request))
    write_records(cfg, topic_name(prefix, "control"), [pair], timeout_seconds=timeout_seconds)

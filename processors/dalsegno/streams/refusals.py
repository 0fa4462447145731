"""Rows that Kafka did not take, and whose partition has to stop for it: the others' rows go out without them."""

from __future__ import annotations

import time
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from dalsegno.errors import DalsegnoError, KafkaRefused
from dalsegno.log.kafka import KafkaConfig, translate
from dalsegno.log.topics import message_limit

QUEUE_SECONDS = 30.0
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
# What concerns a record or its topic. Anything else (a broker that is away, a producer that is fenced) concerns all.
_OF_A_ROW = _TOO_LARGE | {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.INVALID_RECORD,
    KafkaError.POLICY_VIOLATION,
}
KEY_SHOWN = 300
CLIENT_LIMIT = "message.max.bytes"
CLIENT_LIMIT_BYTES = 1_000_000
"""What the client sends at most unless an option says otherwise."""


class _Refused(NamedTuple):
    error: KafkaError
    topic: str
    key: bytes
    size_bytes: int
    by_client: bool


class Refusals:
    """Of the transaction at hand: for each partition the largest row that was refused. Used by the emitter's thread
    alone."""

    def __init__(self, cfg: KafkaConfig) -> None:
        self._cfg = cfg
        self._found: dict[int, _Refused] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def clear(self) -> None:
        self._found.clear()

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """The delivery report of a record."""
        if error is not None:
            key = message.key() or b""
            partition = message.partition()
            size = len(key) + len(message)
            self._note(-1 if partition is None else partition, _Refused(error, str(message.topic()), key, size, False))

    def produce(self, producer: Producer, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        """Queue a record, and wait for room. Raises BufferError, and KafkaException where the client refuses it."""
        deadline = time.monotonic() + QUEUE_SECONDS
        while True:
            try:
                producer.produce(topic, value, key, partition)
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise
                producer.poll(0.1)
            except KafkaException as error:
                size = len(key) + len(value or b"")
                self._note(partition, _Refused(error.args[0], topic, key, size, True))
                raise

    def of(self, partition: int) -> DalsegnoError | None:
        """What stops this partition: names the row, its size, the limit and what to do."""
        found = self._found.get(partition)
        if found is None:
            return None
        row = found.key[:KEY_SHOWN].decode("utf-8", "replace")
        doing = f"emit row {row} of partition {partition} ({found.size_bytes} bytes) to {found.topic}"
        facts = {"topic": found.topic, "partition": partition, "key": row, "size_bytes": found.size_bytes}
        if found.error.code() not in _TOO_LARGE:
            return translate(found.error, doing, **facts)
        option, limit = self._limit(found)
        return KafkaRefused(
            f"could not {doing}: {found.error.str()} ({found.error.name()})",
            wanted=f"at most {limit} bytes, by {option}",
            todo=f"raise {option}; until then this partition keeps its rows and tries again",
            code=found.error.name(), limit=limit, **facts,
        )  # fmt: skip

    def _note(self, partition: int, refused: _Refused) -> None:
        before = self._found.get(partition)
        if refused.error.code() in _OF_A_ROW and (before is None or before.size_bytes < refused.size_bytes):
            self._found[partition] = refused

    def _limit(self, found: _Refused) -> tuple[str, object]:
        if found.by_client:
            limit = self._cfg.options.get(CLIENT_LIMIT, CLIENT_LIMIT_BYTES)
            return f"the Kafka option {CLIENT_LIMIT} of this worker", limit
        option = f"max.message.bytes of {found.topic}"
        try:
            return option, message_limit(self._cfg, found.topic)
        except DalsegnoError as error:
            return option, f"an unknown number of ({error.found})"

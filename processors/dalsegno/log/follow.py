"""Following partitions past their end: what comes, as it comes, for as long as somebody asks."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from confluent_kafka import KafkaError, TopicPartition

from dalsegno.log.kafka import KafkaConfig, consumer, kafka_errors, translate
from dalsegno.log.reader import bounds, reconnects, to_record
from dalsegno.log.record import LogRecord
from dalsegno.model.ids import Offset

BROKER_TIMEOUT_SECONDS = 30.0
"""How long a broker may be away before following ends with an error."""
_BATCH = 1_000

_CONSUMER = {
    # A consumer must name a group; with `assign` it never joins it, and nothing is committed.
    "group.id": "dalsegno-follower",
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
}


class Follower:
    """A consumer of some partitions, each from its offset on; a context manager. Commits nothing."""

    def __init__(self, cfg: KafkaConfig, topic: str, starts: Mapping[int, Offset]) -> None:
        self._cfg, self._topic, self._starts = cfg, topic, starts
        self._consumer = consumer(cfg, _CONSUMER)
        with kafka_errors(f"follow {topic}", topic=topic):
            self._consumer.assign([TopicPartition(topic, number, offset) for number, offset in starts.items()])

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._consumer.close()

    def poll(self, seconds: float) -> list[tuple[int, LogRecord]]:
        """Partition and record of what came within ``seconds``; empty if nothing did.

        Raises LogHole where the log was cut, BrokerUnavailable or WaitTimeout where no broker answers any more.
        """
        with kafka_errors(f"follow {self._topic}", topic=self._topic):
            messages = self._consumer.consume(1, seconds)
            if messages:
                messages += self._consumer.consume(_BATCH - 1, 0.0)
        found: list[tuple[int, LogRecord]] = []
        for message in messages:
            error = message.error()
            if error is None:
                found.append((int(message.partition() or 0), to_record(message)))
            else:
                self._judge(error)
        return found

    def _judge(self, error: KafkaError) -> None:
        """Whether there is still a broker, only a question says."""
        if reconnects(error):
            bounds(self._cfg, self._topic, self._starts, BROKER_TIMEOUT_SECONDS)
            return
        raise translate(error, f"follow {self._topic}", topic=self._topic)

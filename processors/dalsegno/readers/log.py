"""The topics that verifying reads, on a real broker."""

from __future__ import annotations

from collections.abc import Iterator

from dalsegno.log import admin
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.reader import read_range
from dalsegno.log.record import Batch
from dalsegno.log.schema_topic import read_schemas
from dalsegno.log.topics import EVENTS, topic_name
from dalsegno.model.cursor import LogFacts


class KafkaLog:
    """The events topic of a prefix. Its facts are those of the moment when this was made."""

    def __init__(self, kafka: KafkaConfig, prefix: str) -> None:
        """Raises TopicMissing, BrokerUnavailable, WaitTimeout."""
        self._kafka, self._prefix = kafka, prefix
        self._topic = topic_name(prefix, EVENTS)
        self._cluster_id = admin.cluster_facts(kafka).cluster_id
        self._facts = admin.topic_facts(kafka, self._topic)
        self._marks = admin.watermarks(kafka, self._topic)
        self._schemas: list[str] | None = None

    def facts(self, partition: int) -> LogFacts:
        low, high = self._marks.get(partition, (0, 0))
        return LogFacts(self._cluster_id, self._facts.topic_id, partition, self._facts.partitions, low, high)

    def read(self, partition: int, start: int, end: int | None) -> Iterator[Batch]:
        return read_range(self._kafka, self._topic, partition, start, end)

    def schemas(self) -> list[str]:
        if self._schemas is None:
            self._schemas = read_schemas(self._kafka, self._prefix)
        return self._schemas

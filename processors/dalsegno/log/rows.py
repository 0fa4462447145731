"""Rows of projection topics, for programs that consume them with a Kafka client of their own."""

from __future__ import annotations

from typing import Any

from dalsegno.log.codec import FRAME_BYTES, MARKER, decode_record
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.schema_set import SchemaSet
from dalsegno.log.schema_topic import DEFAULT_TIMEOUT_SECONDS, refresh


class RowDecoder:
    """Reads rows by the schemas that the topic ``<prefix>.schemas`` holds, and by no others.

    Workers put a row's schema there before the first row that uses it, so a consumer needs no schema files, and reads
    the rows of projections that it has never heard of.
    """

    def __init__(
        self, kafka: KafkaConfig, *, prefix: str = "dalsegno", timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    ) -> None:
        self._kafka = kafka
        self._prefix = prefix
        self._timeout_seconds = timeout_seconds
        self._schemas = SchemaSet()

    def decode(self, value: bytes | None) -> dict[str, Any] | None:
        """One record's value as field -> raw value; None for a tombstone, which says that the row is gone.

        Times are microseconds since 1970 in UTC, digests are bytes. Reads the schema topic to its end when a schema is
        not known yet. Raises RecordDamaged (no row, or its schema is not there), WaitTimeout, BrokerUnavailable,
        TopicMissing.
        """
        if value is None:
            return None
        if value[:2] == MARKER and self._schemas.by_frame(value[2:FRAME_BYTES]) is None:
            refresh(self._schemas, self._kafka, self._prefix, self._timeout_seconds)
        return decode_record(value, self._schemas)[1]

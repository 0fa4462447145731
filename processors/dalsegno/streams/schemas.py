"""The writer schemas that this worker knows, and finding those that it does not know yet."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from dalsegno.errors import DalsegnoError
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.schema_set import SchemaSet
from dalsegno.log.schema_topic import publish_schemas, refresh
from dalsegno.projections.base import Projection
from dalsegno.state.outbox import row_schema
from dalsegno.streams.partition import Partition

log = logging.getLogger("dalsegno.streams")

TOPIC_SECONDS = 60.0
# A schema is acknowledged before the first event that uses it, so one look is enough; unless somebody mends the topic.
LOOK_AGAIN_SECONDS = 60.0


class KnownSchemas:
    """Shared by all shards of the worker. ``known`` may grow while folds use it."""

    def __init__(self, cfg: KafkaConfig, prefix: str) -> None:
        self.known = SchemaSet.load()
        self._cfg = cfg
        self._prefix = prefix
        self._looked_for: frozenset[bytes] = frozenset()
        self._look_again_at = 0.0

    def open(self, projections: Iterable[Projection[Any]]) -> None:
        """Publish what this build writes (rows included), and take what others have written. Raises as the log does."""
        rows = [row_schema(each, self.known) for each in projections if each.public]
        publish_schemas(self._cfg, self._prefix, [*self.known, *rows], TOPIC_SECONDS)
        refresh(self.known, self._cfg, self._prefix, TOPIC_SECONDS)

    def look_for_missing(self, table: Mapping[int, Partition]) -> None:
        """When a record named an unknown schema: read the topic to its end once, and retry the sessions it holds."""
        missing = frozenset(self.known.unknown)
        now = time.monotonic()
        if not missing or (missing <= self._looked_for and now < self._look_again_at):
            return
        self._looked_for, self._look_again_at = missing, now + LOOK_AGAIN_SECONDS
        try:
            refresh(self.known, self._cfg, self._prefix, TOPIC_SECONDS)
        except DalsegnoError as error:
            log.warning("schemas_not_read", extra={"error": str(error)})
            return
        found = missing - self.known.unknown
        log.info("schemas_looked_for", extra={"missing": len(missing), "found": len(found)})
        if found:
            for partition in list(table.values()):
                retry_held(partition)


def retry_held(partition: Partition) -> None:
    """Fold what has become readable in this partition. A failure turns it red, like one in a batch."""
    with partition.lock:
        if partition.closing or partition.shard is None:
            return
        partition.changes += 1
        try:
            freed = partition.shard.retry_held()
        except Exception as error:
            partition.stop(error)
            log.exception("partition_stopped", extra={"partition": partition.number})
            return
    if freed:
        log.info("held_records_retried", extra={"partition": partition.number, "records": freed})

"""The writer schemas that this worker knows, and finding those that it does not know yet."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from dalsegno.errors import DalsegnoError
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.schema_set import SchemaSet
from dalsegno.log.schema_topic import publish_schemas, refresh
from dalsegno.projections.base import Projection
from dalsegno.state.outbox import row_schema
from dalsegno.streams.house import Job
from dalsegno.streams.partition import Partition

log = logging.getLogger("dalsegno.streams")

TOPIC_SECONDS = 60.0
LOOK_SECONDS = 10.0
"""The limit of one look at the topic while the worker runs; it is looked again."""
TOPIC_JOBS = -1
"""Stands for the topic where jobs are given by partition."""
# A schema is acknowledged before the first event that uses it, so one look is enough; unless somebody mends the topic.
LOOK_AGAIN_SECONDS = 60.0
# Anybody may invent fingerprints: however many come, the topic is not read more often.
LOOK_EVERY_SECONDS = 1.0


class KnownSchemas:
    """Shared by all shards of the worker. ``known`` may grow while folds use it."""

    def __init__(self, cfg: KafkaConfig, prefix: str) -> None:
        self.known = SchemaSet.load()
        self._cfg = cfg
        self._prefix = prefix
        self._looked_for: frozenset[bytes] = frozenset()
        self._look_at = self._look_again_at = 0.0
        self._looking = False

    def open(self, projections: Iterable[Projection[Any]]) -> None:
        """Publish what this build writes (rows included), and take what others have written. Raises as the log does."""
        rows = [row_schema(each, self.known) for each in projections if each.public]
        publish_schemas(self._cfg, self._prefix, [*self.known, *rows], TOPIC_SECONDS)
        refresh(self.known, self._cfg, self._prefix, TOPIC_SECONDS)

    def look_for_missing(self, table: Mapping[int, Partition], give: Callable[[int, Job], None]) -> None:
        """When a record named an unknown schema: read the topic to its end once. And retry the sessions that are held
        for one in every partition that has not seen the newest schemas, whoever found them: this, another partition's
        record, or a start after the schema was published. Nothing is waited for here: both are jobs for ``give``."""
        if self._look_is_due():
            give(TOPIC_JOBS, self._look)
        known = len(self.known)
        for partition in list(table.values()):
            if partition.schemas_seen != known and partition.shard is not None and partition.error is None:
                partition.schemas_seen = known
                give(partition.number, partial(retry_held, partition))

    def _look_is_due(self) -> bool:
        missing = frozenset(self.known.unknown)
        now = time.monotonic()
        waits = missing <= self._looked_for and now < self._look_again_at
        if self._looking or not missing or now < self._look_at or waits:
            return False
        self._looking = True
        self._looked_for, self._look_again_at = missing, now + LOOK_AGAIN_SECONDS
        return True

    def _look(self) -> None:
        try:
            found = refresh(self.known, self._cfg, self._prefix, LOOK_SECONDS)
        except DalsegnoError as error:
            log.warning("schemas_not_read", extra={"error": str(error)})
            return
        finally:
            self._look_at = time.monotonic() + LOOK_EVERY_SECONDS
            self._looking = False
        log.info("schemas_looked_for", extra={"missing": len(self._looked_for), "found": found})


def retry_held(partition: Partition) -> None:
    """Fold what has become readable in this partition. A failure turns it red, like one in a batch."""
    # Under the lock, since a batch that did not know a schema yet may be on its way into the shard.
    with partition.lock:
        if partition.closing or partition.shard is None or not partition.shard.counts.waiting:
            return
        partition.changes += 1
        try:
            freed = partition.shard.retry_held()
        except Exception as error:
            partition.stop(error)
            partition.schemas_seen = 0
            return
    if freed:
        log.info("held_records_retried", extra={"partition": partition.number, "records": freed})

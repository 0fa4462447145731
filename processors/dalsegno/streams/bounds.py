"""When a worker that was given end bounds is done: every partition has reached its own, whoever holds it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from dalsegno.errors import DalsegnoError
from dalsegno.log.admin import group_offsets
from dalsegno.model.cursor import parse_metadata
from dalsegno.streams.config import WorkerConfig
from dalsegno.streams.partition import Partition

log = logging.getLogger("dalsegno.streams")

OTHERS_EVERY_SECONDS = 1.0


class Bounds:
    """Partition -> end bound, an offset. Belongs to one thread."""

    def __init__(self, config: WorkerConfig, table: Mapping[int, Partition], until: Mapping[int, int]) -> None:
        self._config = config
        self._table = table
        self._until = dict(until)
        self._others_at = 0.0

    def are_reached(self) -> bool:
        others: dict[int, int] = {}
        for number, bound in self._until.items():
            partition = self._table.get(number)
            if partition is None:
                others[number] = bound
            elif not partition.reached(bound):
                return False
        return not others or self._others_have(others)

    def _others_have(self, bounds: Mapping[int, int]) -> bool:
        """Whether partitions that are not ours are committed up to their bounds, in a generation of ours."""
        now = time.monotonic()
        if now - self._others_at < OTHERS_EVERY_SECONDS:
            return False
        self._others_at = now
        topic = self._config.names.events
        try:
            committed = group_offsets(self._config.kafka, self._config.names.group)
        except DalsegnoError as error:
            log.warning("offsets_not_read", extra={"error": str(error)})
            return False
        for number, bound in bounds.items():
            found = committed.get((topic, number))
            if found is None or found.offset < bound or parse_metadata(found.metadata) is None:
                return False
        return True

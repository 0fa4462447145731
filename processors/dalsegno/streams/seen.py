"""What a worker tells of itself: a status file for this machine, a record in Kafka for the others."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dalsegno.errors import DalsegnoError
from dalsegno.state.slot import Slot
from dalsegno.streams import roster
from dalsegno.streams.config import WorkerConfig
from dalsegno.streams.partition import Partition

log = logging.getLogger("dalsegno.streams")


class Facts(NamedTuple):
    """How the worker as a whole is. ``emitter``: why nothing was sent last; ``emitter_failing_since``: seconds since
    1970."""

    state: str
    error: str | None
    emitter: str | None
    emitter_failing_since: float | None


class Seen:
    """``started_at``: seconds since 1970. ``facts`` is asked each time."""

    def __init__(
        self,
        config: WorkerConfig,
        slot: Slot,
        table: Mapping[int, Partition],
        started_at: float,
        facts: Callable[[], Facts],
    ) -> None:
        self._config, self._slot, self._table = config, slot, table
        self._started_at, self._facts = started_at, facts
        self._tell_at = 0.0
        self._told: tuple[str, dict[str, str]] | None = None
        """State of the worker and of its partitions, as other machines were last told."""
        self._problem: int | None = None

    def write_status(self) -> None:
        """For this machine."""
        try:
            self._slot.write_status(self._status())
            self._problem = None
        except OSError as error:  # no reason to stop working, and said once, not five times a second
            if error.errno != self._problem:
                log.warning("status_not_written", extra={"error": str(error)})
            self._problem = error.errno

    def announce(self) -> None:
        """For the other machines: what is new at once, all of it now and then. No reason to stop working if that
        fails."""
        status, now = self._status(), time.monotonic()
        states = (status["state"], {number: part.get("state", "") for number, part in status["partitions"].items()})
        if states == self._told and now < self._tell_at:
            return
        self._told, self._tell_at = states, now + roster.EVERY_SECONDS
        try:
            roster.tell(self._config.kafka, self._config.prefix, status)
        except DalsegnoError as error:
            log.warning("not_announced", extra={"error": str(error)})

    def _status(self) -> dict[str, Any]:
        partitions = sorted(self._table.values(), key=lambda each: each.number)
        return {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "slot": self._slot.number,
            "worker_id": self._slot.id,
            "prefix": self._config.prefix,
            "group": self._config.names.group,
            **self._facts()._asdict(),
            "started_at": self._started_at,
            "updated_at": time.time(),
            "partitions": {str(each.number): each.status() for each in partitions},
        }

"""Snapshots of the shards that this worker holds: which are due, taking them, and restoring from the catalogue.

A snapshot is due after so many records or seconds, when somebody asks for one, and at once when a partition has no
snapshot of its generation yet: after a switch or a first build, else every take-over would build again. A shard that is
still being built is never snapshotted: every snapshot is, with its outbox, all that its generation has emitted.

The protocols *snapshot* and *restore* stand in ``dalsegno.snapshots.take`` and ``dalsegno.snapshots.restore``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dalsegno.errors import DalsegnoError, Unavailable
from dalsegno.model.choose import ShardSnapshot
from dalsegno.model.cursor import Cursor
from dalsegno.snapshots.catalog import TopicIdentity, publish_pointer, read_catalog
from dalsegno.snapshots.folders import RocksFolders
from dalsegno.snapshots.restore import restore
from dalsegno.snapshots.take import Origin, Taken, freeze, upload
from dalsegno.state.slot import Slot
from dalsegno.streams.config import WorkerConfig
from dalsegno.streams.house import House
from dalsegno.streams.partition import Partition, describe
from dalsegno.streams.schemas import KnownSchemas

log = logging.getLogger("dalsegno.streams")

RETRY_SECONDS = 10.0
PERIODIC, FIRST = "periodic", "first of its generation"
Answer = Callable[[Partition, str | None, str | None], None]
"""Called with the partition and either the snapshot's id or the error."""


class Snapshotter:
    """Takes and restores shard snapshots for one worker."""

    def __init__(
        self,
        config: WorkerConfig,
        slot: Slot,
        table: Mapping[int, Partition],
        house: House,
        schemas: KnownSchemas,
    ) -> None:
        self._config = config
        self._slot = slot
        self._table = table
        self._house = house
        self._schemas = schemas
        self.states = RocksFolders()
        self._store = config.store
        self._asked: dict[Partition, list[Answer]] = {}
        """Who waits for a snapshot that is not begun yet."""
        self._asking = threading.Lock()
        self._cursors: Mapping[str, Cursor] = {}
        """Where each snapshot stands, as the catalogue last said."""

    def catalogue(self, identity: TopicIdentity) -> list[ShardSnapshot]:
        """All shard snapshots of this prefix; those of another log are marked unusable. Raises as ``read_catalog``."""
        catalog = read_catalog(self._config.kafka, self._config.prefix)
        self._cursors = {name: pointer.cursor for name, pointer in catalog.pointers.items()}
        return catalog.entries(identity)

    def restore(self, snapshot_id: str, folder: Path, generation: str, base: str) -> None:
        """Make ``folder`` the shard of this snapshot. Raises SnapshotDamaged, NotPermitted, DiskFull."""
        restore(
            snapshot_id, self._store, self._config.prefix, folder, self.states,
            generation=generation, base=base, cursor=self._cursors.get(snapshot_id), fault=self._config.fault,
        )  # fmt: skip

    # --- which are due ---------------------------------------------------------------------------------------------

    def take_what_is_due(self) -> None:
        """Give a job to the house for every shard whose snapshot is due. Called again and again."""
        now = time.monotonic()
        for partition in list(self._table.values()):
            reason = self._due(partition, now)
            if reason is not None:
                partition.snapshot_running = True
                self._house.give(partition.number, partial(self._take, partition, reason, None))

    def ask(self, partition: Partition, reason: str, answer: Answer) -> None:
        """Take one because somebody asked; ``answer`` is called in any case. Requests that come before it is begun
        share one; a snapshot that is under way may stand before what a later request is about."""
        with self._asking:
            waiting = self._asked.setdefault(partition, [])
            waiting.append(answer)
            first = len(waiting) == 1
        if first:
            self._house.give(partition.number, partial(self._take_asked, partition, reason))

    def _due(self, partition: Partition, now: float) -> str | None:
        if partition.snapshot_running or partition.error is not None or not partition.may_emit:
            return None
        if partition.snapshot_missing:
            # Not before the first build has caught up: an early one would save nobody the work.
            caught_up = (partition.cursor or 0) >= partition.end_at_assignment
            return FIRST if caught_up and now >= partition.snapshot_retry_at else None
        if partition.records_since_snapshot == 0 or now < partition.snapshot_retry_at:
            return None
        often = partition.records_since_snapshot >= self._config.snapshot_every_events
        long_ago = now - partition.snapshot_at >= self._config.snapshot_every_seconds
        return PERIODIC if often or long_ago else None

    # --- taking, on a thread of the house --------------------------------------------------------------------------

    def _take_asked(self, partition: Partition, reason: str) -> None:
        with self._asking:
            answers = self._asked.pop(partition)

        def tell(*told: Any) -> None:
            for answer in answers:
                answer(*told)

        self._take(partition, reason, tell)

    def _take(self, partition: Partition, reason: str, answer: Answer | None) -> None:
        snapshot_id: str | None = None
        problem: str | None = None
        try:
            snapshot_id = self._take_one(partition, reason)
        except Exception as error:
            expected = isinstance(error, DalsegnoError)
            problem = str(error) if expected else describe(error)
            # A partition that goes to another worker is everyday; its snapshot is due there too.
            level = logging.INFO if partition.closing else logging.WARNING
            facts = {"partition": partition.number, "error": problem}
            log.log(level, "snapshot_failed", extra=facts, exc_info=not expected)
            partition.snapshot_retry_at = time.monotonic() + RETRY_SECONDS
        finally:
            partition.snapshot_running = False
            if answer is not None:
                answer(partition, snapshot_id, problem or (None if snapshot_id else "the snapshot was not taken"))

    def _take_one(self, partition: Partition, reason: str) -> str:
        folder = partition.folder.path / "snapshot.tmp"
        with partition.lock:
            shard = partition.shard
            if partition.closing:
                raise Unavailable(
                    f"this worker is giving partition {partition.number} up",
                    wanted="a partition that stays",
                    todo="ask again when 'dalsegno worker status' says LIVE",
                )
            if shard is None or partition.building:
                raise Unavailable(
                    f"partition {partition.number} is {partition.state.value.lower()}",
                    wanted="a shard that is read, not one that is being built",
                    todo="ask again when 'dalsegno worker status' says LIVE",
                )
            marks = freeze(shard.kv.checkpoint, folder, self.states, fault=self._config.fault)
            records = partition.records_since_snapshot
        origin = Origin(
            self._config.names.events, self._slot.id, reason, schemas=[each.schema_hash for each in self._schemas.known]
        )
        taken = upload(
            folder, marks, self._store, self._config.prefix, origin,
            now=time.time, publish=self._publish, fault=self._config.fault,
        )  # fmt: skip
        with partition.lock:
            partition.records_since_snapshot -= records
            partition.snapshot_at = time.monotonic()
            partition.snapshot_missing = False
        return taken.id

    def _publish(self, taken: Taken, reason: str) -> None:
        publish_pointer(self._config.kafka, self._config.prefix, taken, reason)

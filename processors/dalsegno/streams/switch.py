"""Going over from the shard that is read to the one that was built beside it.

Protocol *switch*, when the new cursor has reached the bound = max(the old shard's cursor, the log's end at assignment);
tried at assignment too, for a quiet topic brings no further batch:

1. reading of this partition is held, and the shard stands still;
2. the new shard's outbox was replaced by what differs from the projection topics: changed keys, and vanished ones as
   tombstones;
3. the pointer was renamed: readers see the new shard from now on, and the emitter may speak;
4. the old folder is deleted; reading goes on, and a snapshot is due, since there is none of this generation yet.

A crash before 3 leaves a build that is not finished: it goes on at the next assignment and does all of this again.
After 3 the new shard is current, with its outbox; the old folder is deleted at the next assignment.

What the topics hold is read from the topics themselves (this partition, committed records, to the end): the local old
shard need not be the last emitter's, for another worker may have held the partition in between. It is sorted on disk,
in a temporary folder beside the shards, which a crash leaves to the next assignment to delete.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dalsegno.log import admin
from dalsegno.log.reader import read_range
from dalsegno.log.topics import projection_topic
from dalsegno.projections.base import Projection
from dalsegno.state.differences import add_differences, clear_all, note_emitted
from dalsegno.state.rocks import RocksStore
from dalsegno.state.shard import Shard
from dalsegno.streams.config import WorkerConfig
from dalsegno.streams.house import House
from dalsegno.streams.partition import Partition
from dalsegno.streams.reader import LogConsumer

log = logging.getLogger("dalsegno.streams")

EMITTED = "emitted"
"""The temporary folder with what the topics hold."""


class Switch:
    """Finishes builds."""

    def __init__(
        self,
        config: WorkerConfig,
        house: House,
        projections: Sequence[Projection[Any]],
        reader: Callable[[], LogConsumer],
    ) -> None:
        self._config = config
        self._house = house
        self._topics = [
            (each, projection_topic(config.prefix, each.name, each.version)) for each in projections if each.public
        ]
        self._reader = reader

    def try_at(self, partition: Partition) -> None:
        """Begin the switch if the build has reached its bound. Called after each batch and at assignment."""
        with partition.lock:
            if not partition.building or partition.switching or partition.closing or not partition.at_bound:
                return
            partition.switching = True
        self._reader().hold(partition)
        self._house.give(partition.number, partial(self._run, partition))

    def nothing_was_emitted(self, partition: int) -> bool:
        """Whether this partition of every projection topic never held a record."""
        return all(admin.watermarks(self._config.kafka, topic)[partition].high == 0 for _, topic in self._topics)

    def _run(self, partition: Partition) -> None:
        try:
            with partition.lock:
                if partition.closing or partition.shard is None:
                    return
                self._config.fault("switch.1")
                changed = self._fill_outbox(partition, partition.shard)
                if changed is None:
                    return
                self._config.fault("switch.2")
                self._point(partition)
                log.info(
                    "partition_switched",
                    extra={
                        "partition": partition.number,
                        "generation": partition.generation,
                        "offset": partition.cursor,
                        "changed_rows": changed,
                    },
                )
        except Exception as error:
            partition.stop(error)
            return
        finally:
            partition.switching = False
        self._reader().release(partition)

    def _fill_outbox(self, partition: Partition, shard: Shard) -> int | None:
        """Step 2. The number of rows that differ; None when the partition was taken away meanwhile."""
        partition.changes += 1
        clear_all(shard.kv)
        count = 0
        folder = partition.folder.temporary(EMITTED)
        emitted = RocksStore.open(folder)
        try:
            for projection, topic in self._topics:
                for batch in read_range(self._config.kafka, topic, partition.number):
                    if partition.closing:
                        return None
                    note_emitted(emitted, projection, batch.records)
                count += add_differences(shard.kv, shard.forms, projection, emitted)
        finally:
            emitted.close()
            shutil.rmtree(folder, ignore_errors=True)
        return count

    def _point(self, partition: Partition) -> None:
        """Steps 3 and 4."""
        folder = partition.folder
        old = folder.current()
        assert partition.name is not None
        folder.point_to(partition.name)
        partition.building = False
        self._config.fault("switch.3")
        if old is not None and old != partition.name:
            folder.delete(old)
        self._config.fault("switch.4")

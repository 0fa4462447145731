"""This machine's view of the partitions: the furthest shard of each, else its newest snapshot.

A shard is opened as a RocksDB secondary, so a worker that holds it goes on undisturbed, and one that was killed is no
obstacle. A partition is opened when it is first asked for. Every answer is true at the position of the shard it came
from.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dalsegno.errors import (
    DalsegnoError,
    NotFound,
    NotPermitted,
    SnapshotDamaged,
    SnapshotIncompatible,
    StoreDamaged,
    TopicMissing,
    Unavailable,
)
from dalsegno.log import admin
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.schema_set import SchemaSet
from dalsegno.log.schema_topic import refresh
from dalsegno.log.topics import EVENTS, topic_name
from dalsegno.model.choose import newest_usable
from dalsegno.model.cursor import Cursor
from dalsegno.model.ids import partition_of
from dalsegno.projections.base import Projection
from dalsegno.readers.cache import SnapshotCache
from dalsegno.readers.learning import going_on, once_more
from dalsegno.snapshots.catalog import Catalog, TopicIdentity, read_catalog
from dalsegno.snapshots.ports import manifests_prefix
from dalsegno.state.generations import CurrentShard, PartitionFolder, current_shards
from dalsegno.state.reads import ShardReads
from dalsegno.state.rocks import open_secondary
from dalsegno.storage.object_store import Store, os_errors

T = TypeVar("T")
log = logging.getLogger("dalsegno.readers")

SNAPSHOT = "snapshot"
"""What the ``source`` of a view begins with that is no worker's shard."""
OPEN_ATTEMPTS = 3


class View(NamedTuple):
    """One partition as it can be read here. ``source`` says from where, ``cursor`` up to where."""

    partition: int
    reads: ShardReads
    cursor: Cursor
    source: str
    folder: Path

    @property
    def position(self) -> str:
        """``<partition>@<next offset>``: what the answer is true at."""
        return f"{self.partition}@{self.cursor.next_offset}"


class LocalReader:
    """Opens what is here; a context manager. ``kafka`` is asked only for what this machine does not know."""

    def __init__(
        self,
        data: Path,
        prefix: str,
        store: Store,
        kafka: Callable[[], KafkaConfig],
        projections: Sequence[Projection[Any]],
    ) -> None:
        self._data = data
        self.prefix = prefix
        self._store = store
        self._cache = SnapshotCache(data, prefix, store)
        self._kafka = kafka
        self._projections = projections
        self._schemas = SchemaSet.load()
        self._closing = ExitStack()
        self._opened: dict[int, View | None] = {}
        self._unreadable: dict[int, DalsegnoError] = {}
        self._unanswered: Unavailable | None = None
        self._partitions = 0

    def __enter__(self) -> LocalReader:
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.close()

    # --- questions ---------------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> int:
        """Number of partitions of the log. Raises NotFound if nothing here says it."""
        return self._count("")

    def views(self) -> dict[int, View]:
        """Every partition that can be read here, by number. Raises NotFound if there is none at all."""
        views = {number: view for number in range(self.partitions) if (view := self._open(number)) is not None}
        if not views:
            raise self._nothing()
        return views

    def missing(self) -> list[int]:
        """Partitions that neither a shard nor a snapshot of this machine shows."""
        views = self.views()
        return [number for number in range(self.partitions) if number not in views]

    @property
    def unreadable(self) -> dict[int, DalsegnoError]:
        """Partitions with a shard here that cannot be read, and why."""
        self.views()
        return self._unreadable

    def of_session(self, session_id: str) -> View:
        """The partition that holds a session; no other is opened. Raises NotFound, or why it could not be read."""
        number = partition_of(session_id, self._count(session_id))
        view = self._open(number)
        if view is None:
            # That it cannot be read, or nobody could be asked, is not that it is not there.
            if (why := self._unreadable.get(number) or self._unanswered) is not None:
                raise why
            raise NotFound(
                f"partition {number}, which holds session {session_id}, is neither here nor in a snapshot",
                todo="run a worker here, or take a snapshot where one runs",
                partition=number,
                session=session_id,
            )
        return view

    def learn_schemas(self) -> int:
        """Ask the log for schemas that this build does not have; how many were new. Raises BrokerUnavailable."""
        return refresh(self._schemas, self._kafka(), self.prefix)

    def reading(self, read: Callable[[], T]) -> T:
        """``once_more`` with the schemas of the log's schema topic; only where it needs them is a broker asked."""
        return once_more(read, self.learn_schemas)

    def reading_on(self, read: Callable[[int], Iterator[T]]) -> Iterator[T]:
        """``going_on`` with the schemas of the log's schema topic."""
        return going_on(read, self.learn_schemas)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _count(self, session_id: str) -> int:
        """Number of partitions: what can be read here says it, else the broker. First that which the session is in if
        the highest partition here is the log's last."""
        if not self._partitions:
            likely = partition_of(session_id, max(self._shards, default=0) + 1)
            for number in sorted(self._shards, key=lambda number: number != likely):
                view = self._open(number)
                if view is not None:
                    self._partitions = view.reads.identity().partitions
                    break
            else:
                if self._snapshots is None:
                    raise self._nothing()
                self._partitions = self._snapshots[0].partitions
        return self._partitions

    def _open(self, partition: int) -> View | None:
        if partition not in self._opened:
            self._opened[partition] = self._furthest(partition) or self._newest(partition)
        return self._opened[partition]

    def _nothing(self) -> DalsegnoError:
        if self._unanswered is not None:
            return self._unanswered
        if self._unreadable:
            return next(iter(self._unreadable.values()))
        return NotFound(
            f"no state of prefix {self.prefix} in {self._data.absolute()}, "
            f"and no snapshot of it in {self._store.location}",
            wanted="a worker's shard or a snapshot",
            todo="run 'dalsegno worker run' here, or name the folders of a worker with --data (and DALSEGNO_STORE)",
        )

    def _identity(self) -> TopicIdentity:
        config = self._kafka()
        facts = admin.topic_facts(config, topic_name(self.prefix, EVENTS))
        return TopicIdentity(admin.cluster_facts(config).cluster_id, facts.topic_id, facts.partitions)

    # --- shards ------------------------------------------------------------------------------------------------------

    @cached_property
    def _shards(self) -> dict[int, list[CurrentShard]]:
        """The shards here, by partition."""
        with os_errors(f"look for shards in {self._data}"):
            shards = list(current_shards(self._data, self.prefix))
        if len({shard.topic_id for shard in shards}) > 1:
            # The topic was made again: only the broker knows which is the one of today.
            today = self._identity().topic_id
            shards = [shard for shard in shards if shard.topic_id == today]
        found: dict[int, list[CurrentShard]] = {}
        for shard in shards:
            found.setdefault(shard.partition, []).append(shard)
        return found

    def _furthest(self, partition: int) -> View | None:
        """The furthest shard of a partition; one that cannot be read is left out with a warning."""
        best: View | None = None
        for shard in self._shards.get(partition, []):
            try:
                view = self._of_shard(shard)
            except NotPermitted:
                raise
            except DalsegnoError as error:
                log.warning("shard_unreadable", extra={"partition": partition, "reason": str(error)})
                self._unreadable[partition] = error
                continue
            if best is None or view.cursor.next_offset > best.cursor.next_offset:
                best = view
        return best

    def _of_shard(self, shard: CurrentShard) -> View:
        """A worker may compact files away, or switch to another generation, between our look at its pointer and the
        opening: then the pointer is looked at again."""
        folder, source = shard.folder, f"slot {shard.slot.name}"
        for attempt in range(OPEN_ATTEMPTS):
            try:
                view = self._view(shard.partition, folder, source)
            except NotPermitted:
                raise
            except DalsegnoError:
                if attempt + 1 == OPEN_ATTEMPTS:
                    raise
                pointed = PartitionFolder(shard.slot, shard.topic_id, shard.partition)
                folder = pointed.path / (pointed.current() or folder.name)
            else:
                break
        cursor = view.cursor
        if (cursor.partition, cursor.topic_id) != (shard.partition, shard.topic_id):
            raise StoreDamaged(
                f"{folder} holds partition {cursor.partition} of topic {cursor.topic_id}",
                wanted=f"partition {shard.partition} of topic {shard.topic_id}",
                todo="set the folder aside; the shard is built again from a snapshot or from the log",
            )
        return view

    # --- snapshots ---------------------------------------------------------------------------------------------------

    @cached_property
    def _snapshots(self) -> tuple[TopicIdentity, Catalog] | None:
        """The log that snapshots must be of, and which there are. Without a broker: None, with a warning; it is an
        error only if that leaves nothing at all."""
        if next(self._store.list(manifests_prefix(self.prefix)), None) is None:
            return None
        try:
            return self._identity(), read_catalog(self._kafka(), self.prefix)
        except TopicMissing:
            return None
        except Unavailable as error:
            self._unanswered = error
            log.warning("snapshots_not_looked_at", extra={"reason": str(error)})
            return None

    def _newest(self, partition: int) -> View | None:
        """The newest good snapshot of a partition that is not here."""
        if self._snapshots is None:
            return None
        identity, catalog = self._snapshots
        bad: dict[str, str] = {}
        while (newest := newest_usable(catalog.entries(identity, partition=partition, bad=bad))) is not None:
            try:
                folder = self._cache.restored(partition, newest.id, catalog.pointers[newest.id].cursor)
                return self._view(partition, folder, f"{SNAPSHOT} {newest.id[:12]}")
            except (SnapshotDamaged, SnapshotIncompatible, StoreDamaged) as error:
                bad[newest.id] = error.found
                self._cache.forget(partition, newest.id)
                log.warning("snapshot_passed_over", extra={"snapshot_id": newest.id, "reason": error.found})
        return None

    def _view(self, partition: int, folder: Path, source: str) -> View:
        scratch = Path(self._closing.enter_context(tempfile.TemporaryDirectory(prefix="dalsegno-read-")))
        kv = open_secondary(folder, scratch)
        self._closing.callback(kv.close)
        reads = ShardReads(kv, self._schemas, self._projections, str(folder))
        return View(partition, reads, reads.position().cursor, source, folder)

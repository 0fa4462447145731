"""This machine's view of the partitions: the furthest shard of each, else its newest snapshot.

A shard is opened as a RocksDB secondary, so a worker that holds it goes on undisturbed, and one that was killed is no
obstacle. Every answer is true at the position of the shard it came from.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

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
from dalsegno.snapshots.catalog import Catalog, TopicIdentity, read_catalog
from dalsegno.snapshots.folders import RocksFolders
from dalsegno.snapshots.ports import manifests_prefix
from dalsegno.snapshots.restore import check_state, fetch, read_manifest
from dalsegno.state.generations import CurrentShard, PartitionFolder, current_shards
from dalsegno.state.reads import ShardReads
from dalsegno.state.rocks import open_secondary
from dalsegno.storage.files import sync_tree
from dalsegno.storage.object_store import TEMPORARY_MAX_AGE_SECONDS, FolderStore, os_errors

log = logging.getLogger("dalsegno.readers")

CACHE = "snapshot-cache"
SNAPSHOT = "snapshot"
"""What the ``source`` of a view begins with that is no worker's shard."""
OPEN_ATTEMPTS = 3
_PART = ".tmp"


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
        store: Path,
        kafka: Callable[[], KafkaConfig],
        projections: Sequence[Projection[Any]],
    ) -> None:
        self._data = data
        self.prefix = prefix
        self._store = store
        self._kafka = kafka
        self._projections = projections
        self._schemas = SchemaSet.load()
        self._closing = ExitStack()
        self._views: dict[int, View] | None = None
        self._unreadable: dict[int, DalsegnoError] = {}
        self._partitions = 0

    def __enter__(self) -> LocalReader:
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.close()

    # --- questions ---------------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> int:
        """Number of partitions of the log."""
        self.views()
        return self._partitions

    def views(self) -> dict[int, View]:
        """Every partition that can be read here, by number. Raises NotFound if there is none at all."""
        if self._views is None:
            self._views = dict(sorted(self._open().items()))
        return self._views

    def missing(self) -> list[int]:
        """Partitions that neither a shard nor a snapshot of this machine shows."""
        return [number for number in range(self.partitions) if number not in self.views()]

    @property
    def unreadable(self) -> dict[int, DalsegnoError]:
        """Partitions with a shard here that cannot be read, and why."""
        self.views()
        return self._unreadable

    def of_session(self, session_id: str) -> View:
        """The partition that holds a session. Raises NotFound."""
        number = partition_of(session_id, self.partitions)
        view = self.views().get(number)
        if view is None:
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

    # --- inside ------------------------------------------------------------------------------------------------------

    def _open(self) -> dict[int, View]:
        with os_errors(f"look for shards in {self._data}"):
            shards = list(current_shards(self._data, self.prefix))
        if len({shard.topic_id for shard in shards}) > 1:
            # The topic was made again: only the broker knows which is the one of today.
            today = self._identity().topic_id
            shards = [shard for shard in shards if shard.topic_id == today]
        views = self._of_shards(shards)
        self._partitions = max((view.reads.identity().partitions for view in views.values()), default=0)
        if not self._partitions or self._not_among(views):
            views |= self._of_snapshots(views)
        if not views:
            raise self._nothing()
        return views

    def _not_among(self, views: dict[int, View]) -> list[int]:
        return [number for number in range(self._partitions) if number not in views]

    def _nothing(self) -> DalsegnoError:
        if self._unreadable:
            return next(iter(self._unreadable.values()))
        return NotFound(
            f"no state of prefix {self.prefix} in {self._data}, and no snapshot of it in {self._store}",
            wanted="a worker's shard or a snapshot",
            todo="run 'dalsegno worker run' here, or name the folders of a worker with --data (and DALSEGNO_STORE)",
        )

    def _identity(self) -> TopicIdentity:
        config = self._kafka()
        facts = admin.topic_facts(config, topic_name(self.prefix, EVENTS))
        return TopicIdentity(admin.cluster_facts(config).cluster_id, facts.topic_id, facts.partitions)

    # --- shards ------------------------------------------------------------------------------------------------------

    def _of_shards(self, shards: list[CurrentShard]) -> dict[int, View]:
        """The furthest shard of each partition; one that cannot be read is left out with a warning."""
        best: dict[int, View] = {}
        for shard in shards:
            try:
                view = self._of_shard(shard)
            except NotPermitted:
                raise
            except DalsegnoError as error:
                log.warning("shard_unreadable", extra={"partition": shard.partition, "reason": str(error)})
                self._unreadable[shard.partition] = error
                continue
            other = best.get(shard.partition)
            if other is None or view.cursor.next_offset > other.cursor.next_offset:
                best[shard.partition] = view
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

    def _of_snapshots(self, here: dict[int, View]) -> dict[int, View]:
        """The newest good snapshot of each partition that is not here. Without a broker: none, with a warning, unless
        that leaves nothing at all."""
        if not (self._store / manifests_prefix(self.prefix)).is_dir():
            return {}
        try:
            identity = self._identity()
            catalog = read_catalog(self._kafka(), self.prefix)
        except TopicMissing:
            return {}
        except Unavailable as error:
            if not here:
                raise
            log.warning("snapshots_not_looked_at", extra={"reason": str(error)})
            return {}
        self._partitions = identity.partitions
        found: dict[int, View] = {}
        for number in self._not_among(here):
            view = self._of_newest(catalog, identity, number)
            if view is not None:
                found[number] = view
        return found

    def _of_newest(self, catalog: Catalog, identity: TopicIdentity, partition: int) -> View | None:
        bad: dict[str, str] = {}
        while (newest := newest_usable(catalog.entries(identity, partition=partition, bad=bad))) is not None:
            try:
                folder = self._restored(partition, newest.id, catalog.pointers[newest.id].cursor)
                return self._view(partition, folder, f"{SNAPSHOT} {newest.id[:12]}")
            except (SnapshotDamaged, SnapshotIncompatible, StoreDamaged) as error:
                bad[newest.id] = error.found
                # What a crash tore is fetched again the next time.
                shutil.rmtree(self._cached(partition, newest.id), ignore_errors=True)
                log.warning("snapshot_passed_over", extra={"snapshot_id": newest.id, "reason": error.found})
        return None

    def _restored(self, partition: int, snapshot_id: str, cursor: Cursor) -> Path:
        """The snapshot's files in a folder of the data folder, fetched once and proved; one snapshot a partition."""
        folder = self._cached(partition, snapshot_id)
        if folder.is_dir():
            return folder
        with os_errors(f"fetch snapshot {snapshot_id}"):
            folder.parent.mkdir(parents=True, exist_ok=True)
            part = Path(tempfile.mkdtemp(prefix=f"{snapshot_id}.", suffix=_PART, dir=folder.parent))
            try:
                store = FolderStore(self._store)
                manifest = read_manifest(snapshot_id, store, self.prefix, cursor)
                fetch(snapshot_id, manifest, store, self.prefix, part / "shard")
                check_state(snapshot_id, manifest, part / "shard", RocksFolders())
                sync_tree(part / "shard")
                _settle(part / "shard", folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        _remove_others(folder)
        return folder

    def _cached(self, partition: int, snapshot_id: str) -> Path:
        return self._data / self.prefix / CACHE / str(partition) / snapshot_id

    def _view(self, partition: int, folder: Path, source: str) -> View:
        scratch = Path(self._closing.enter_context(tempfile.TemporaryDirectory(prefix="dalsegno-read-")))
        kv = open_secondary(folder, scratch)
        self._closing.callback(kv.close)
        reads = ShardReads(kv, self._schemas, self._projections, str(folder))
        return View(partition, reads, reads.position().cursor, source, folder)


def _remove_others(folder: Path) -> None:
    """Older snapshots of the partition, and what readers that were killed left half fetched."""
    for other in folder.parent.iterdir():
        with suppress(FileNotFoundError):  # another reader does the same
            half = other.suffix == _PART and time.time() - other.stat().st_mtime < TEMPORARY_MAX_AGE_SECONDS
            if other != folder and not half:
                # A reader that has it open keeps its files.
                shutil.rmtree(other, ignore_errors=True)


def _settle(part: Path, folder: Path) -> None:
    """Give a fetched snapshot its name, unless another reader was faster."""
    try:
        part.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise

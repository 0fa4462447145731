"""This machine's view of the partitions: the furthest shard of each, else its newest snapshot.

A shard is opened as a RocksDB secondary, so a worker that holds it goes on undisturbed, and one that was killed is no
obstacle. Every answer is true at the position of the shard it came from.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from dalsegno.errors import DalsegnoError, NotFound, NotPermitted, SnapshotDamaged, SnapshotIncompatible
from dalsegno.log import admin
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.schema_set import SchemaSet
from dalsegno.log.topics import EVENTS, topic_name
from dalsegno.model.choose import newest_usable
from dalsegno.model.cursor import Cursor
from dalsegno.model.ids import partition_of
from dalsegno.projections.base import Projection
from dalsegno.snapshots.catalog import TopicIdentity, read_catalog
from dalsegno.snapshots.folders import RocksFolders
from dalsegno.snapshots.restore import check_state, fetch, read_manifest
from dalsegno.state.generations import CurrentShard, current_shards
from dalsegno.state.reads import ShardReads
from dalsegno.state.rocks import open_secondary
from dalsegno.storage.object_store import FolderStore

log = logging.getLogger("dalsegno.readers")


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
            self._views = self._open()
        return self._views

    def missing(self) -> list[int]:
        """Partitions that neither a shard nor a snapshot of this machine shows."""
        return [number for number in range(self.partitions) if number not in self.views()]

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

    # --- inside ------------------------------------------------------------------------------------------------------

    def _open(self) -> dict[int, View]:
        shards = list(current_shards(self._data, self.prefix))
        views: dict[int, View] = {}
        if len({shard.topic_id for shard in shards}) == 1:
            views = self._of_shards(shards)
            counts = {view.reads.identity().partitions for view in views.values()}
            if len(counts) == 1 and len(views) == next(iter(counts)):
                self._partitions = next(iter(counts))
                return views
        identity = self._identity()
        self._partitions = identity.partitions
        ours = [shard for shard in shards if shard.topic_id == identity.topic_id]
        views = self._of_shards(ours) if not views or ours != shards else views
        missing = [number for number in range(identity.partitions) if number not in views]
        views |= {view.partition: view for view in self._of_snapshots(identity, missing)}
        if not views:
            raise NotFound(
                f"no state of prefix {self.prefix} in {self._data}, and no snapshot of it in {self._store}",
                todo="run 'dalsegno worker run'",
            )
        return dict(sorted(views.items()))

    def _identity(self) -> TopicIdentity:
        config = self._kafka()
        facts = admin.topic_facts(config, topic_name(self.prefix, EVENTS))
        return TopicIdentity(admin.cluster_facts(config).cluster_id, facts.topic_id, facts.partitions)

    def _of_shards(self, shards: list[CurrentShard]) -> dict[int, View]:
        """The furthest shard of each partition; one that cannot be read is left out with a warning."""
        best: dict[int, View] = {}
        for shard in shards:
            try:
                view = self._view(shard.partition, shard.folder, f"slot {shard.slot.name}")
            except NotPermitted:
                raise
            except DalsegnoError as error:
                # A worker may switch generations between our look at its pointer and the opening.
                log.warning("shard_unreadable", extra={"partition": shard.partition, "reason": str(error)})
                continue
            other = best.get(shard.partition)
            if other is None or view.cursor.next_offset > other.cursor.next_offset:
                best[shard.partition] = view
        return best

    def _of_snapshots(self, identity: TopicIdentity, partitions: list[int]) -> Iterator[View]:
        if not partitions:
            return
        catalog = read_catalog(self._kafka(), self.prefix)
        for number in partitions:
            bad: dict[str, str] = {}
            while (newest := newest_usable(catalog.entries(identity, partition=number, bad=bad))) is not None:
                try:
                    folder = self._restored(number, newest.id)
                except (SnapshotDamaged, SnapshotIncompatible) as error:
                    bad[newest.id] = error.found
                    log.warning("snapshot_passed_over", extra={"snapshot_id": newest.id, "reason": error.found})
                    continue
                yield self._view(number, folder, f"snapshot {newest.id[:12]}")
                break

    def _restored(self, partition: int, snapshot_id: str) -> Path:
        """The snapshot's files in a folder of the data folder, fetched once and proved; one snapshot a partition."""
        folder = self._data / self.prefix / "snapshot-cache" / str(partition) / snapshot_id
        if folder.is_dir():
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f"{snapshot_id}.", suffix=".tmp", dir=folder.parent))
        try:
            store = FolderStore(self._store)
            manifest = read_manifest(snapshot_id, store, self.prefix)
            fetch(snapshot_id, manifest, store, self.prefix, part / "shard")
            check_state(snapshot_id, manifest, part / "shard", RocksFolders())
            if not folder.exists():
                os.rename(part / "shard", folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        for older in folder.parent.iterdir():
            if older != folder and older.suffix != ".tmp":
                # A reader that has it open keeps its files.
                shutil.rmtree(older, ignore_errors=True)
        return folder

    def _view(self, partition: int, folder: Path, source: str) -> View:
        scratch = Path(self._closing.enter_context(tempfile.TemporaryDirectory(prefix="dalsegno-read-")))
        kv = open_secondary(folder, scratch)
        self._closing.callback(kv.close)
        reads = ShardReads(kv, self._schemas, self._projections, str(folder))
        return View(partition, reads, reads.position().cursor, source, folder)

"""Snapshots restored to be read: one a partition, in a folder of the data folder."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from dalsegno.model.cursor import Cursor
from dalsegno.snapshots.folders import RocksFolders
from dalsegno.snapshots.restore import check_state, fetch, read_manifest
from dalsegno.storage.files import sync_tree
from dalsegno.storage.object_store import TEMPORARY_MAX_AGE_SECONDS, Store, os_errors

CACHE = "snapshot-cache"
_PART = ".tmp"


class SnapshotCache:
    """The restored snapshots of one prefix. Several readers may use it at the same time."""

    def __init__(self, data: Path, prefix: str, store: Store) -> None:
        self._folder, self._prefix, self._store = data / prefix / CACHE, prefix, store

    def restored(self, partition: int, snapshot_id: str, cursor: Cursor) -> Path:
        """The folder with the snapshot's files, fetched once and proved; older ones of the partition are removed.

        Raises SnapshotDamaged, SnapshotIncompatible, StoreDamaged.
        """
        folder = self._path(partition, snapshot_id)
        if folder.is_dir():
            return folder
        with os_errors(f"fetch snapshot {snapshot_id}"):
            folder.parent.mkdir(parents=True, exist_ok=True)
            part = Path(tempfile.mkdtemp(prefix=f"{snapshot_id}.", suffix=_PART, dir=folder.parent))
            try:
                manifest = read_manifest(snapshot_id, self._store, self._prefix, cursor)
                fetch(snapshot_id, manifest, self._store, self._prefix, part / "shard")
                check_state(snapshot_id, manifest, part / "shard", RocksFolders())
                sync_tree(part / "shard")
                _settle(part / "shard", folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        _remove_others(folder)
        return folder

    def forget(self, partition: int, snapshot_id: str) -> None:
        """What a crash tore is fetched again the next time."""
        shutil.rmtree(self._path(partition, snapshot_id), ignore_errors=True)

    def _path(self, partition: int, snapshot_id: str) -> Path:
        return self._folder / str(partition) / snapshot_id


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

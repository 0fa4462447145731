"""Proving that snapshots are what they say: every byte, and the state inside."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from dalsegno.errors import SnapshotDamaged, SnapshotIncompatible
from dalsegno.snapshots.catalog import Pointer
from dalsegno.snapshots.ports import StateFolders
from dalsegno.snapshots.restore import check_state, fetch, read_manifest
from dalsegno.snapshots.take import remove_folder
from dalsegno.storage.object_store import Store, os_errors


class Verdict(NamedTuple):
    """Whether one shard snapshot would restore; ``reason`` says why not."""

    id: str
    partition: int
    next_offset: int
    good: bool
    reason: str


def verify(pointer: Pointer, store: Store, prefix: str, states: StateFolders, scratch: Path) -> Verdict:
    """Restore the snapshot into ``scratch`` and compare all of it: files, cursor, digests, and the pointer to it.

    Raises NotPermitted and DiskFull, which say nothing about the snapshot.
    """
    part = scratch / f"verify-{pointer.id[:16]}"
    try:
        with os_errors(f"verify snapshot {pointer.id}"):
            remove_folder(part)
            manifest = read_manifest(pointer.id, store, prefix)
            if manifest.cursor.cursor() != pointer.cursor or manifest.generation != pointer.generation:
                return _bad(pointer, "its pointer names another cursor or generation than its manifest")
            fetch(pointer.id, manifest, store, prefix, part)
            check_state(pointer.id, manifest, part, states)
    except (SnapshotDamaged, SnapshotIncompatible) as error:
        return _bad(pointer, error.found)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return Verdict(pointer.id, pointer.partition, pointer.cursor.next_offset, True, "")


def _bad(pointer: Pointer, reason: str) -> Verdict:
    return Verdict(pointer.id, pointer.partition, pointer.cursor.next_offset, False, reason)

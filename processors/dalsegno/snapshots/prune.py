"""Removing snapshots that nobody needs, and the files that only they named.

Protocol *prune*:

1. the pointers that fall out of retention are tombstoned in the catalogue, so nobody chooses them any more;
2. their manifests, and those that were never pointed to and are older than a day, are deleted;
3. the manifests that are left were read again, and every file that none of them names and that is older than a day is
   deleted.

A crash after 1 or 2 leaves manifests or files that the next run removes. An upload that goes on meanwhile is safe: what
it wrote is younger than a day, and what it reuses it puts again when that is older than half a day.

Where a manifest cannot be read, nobody knows which files it names, so no file is deleted at all: a wrong mode or a
newer release's format must not cost a snapshot.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from dalsegno.errors import NotFound, SnapshotDamaged, SnapshotIncompatible, Usage
from dalsegno.snapshots.catalog import Catalog, Pointer, TopicIdentity
from dalsegno.snapshots.manifest import Manifest
from dalsegno.snapshots.ports import Fault, files_prefix, manifest_key, manifests_prefix, no_fault
from dalsegno.snapshots.restore import read_manifest
from dalsegno.snapshots.take import MICROS
from dalsegno.storage.object_store import Store, Stored, os_errors

log = logging.getLogger("dalsegno.snapshots")

KEEP_SECONDS = 24 * 3600.0
DEFAULT_KEEP = 3


class Pruning(NamedTuple):
    """What a run removes, or would remove. ``unreadable``: manifests (id -> reason) that keep every file where it
    is."""

    pointers: tuple[str, ...]
    manifests: tuple[str, ...]
    files: tuple[Stored, ...]
    kept: int
    unreadable: dict[str, str]

    @property
    def freed_bytes(self) -> int:
        return sum(file.size for file in self.files)


def plan_pruning(
    catalog: Catalog,
    identity: TopicIdentity,
    store: Store,
    prefix: str,
    *,
    keep: int,
    protected: Collection[str],
    now: float,
    older_than_seconds: float = 0.0,
    drop: Collection[str] = (),
) -> Pruning:
    """What to remove: all but the newest ``keep`` shard snapshots of each partition, and of those that are beyond that
    number only what is older than ``older_than_seconds``.

    Kept besides: ``protected`` ones (bases of committed generations, stored plans) and those that a named snapshot
    lists, unless its id is in ``drop``. Pointers of another topic are of no use here and go when they are older than a
    day. Nothing is changed. Raises Usage, NotFound, NotPermitted.
    """
    if keep < 1:
        raise Usage(f"--keep {keep}", wanted="at least 1: the newest good snapshot is never removed", todo="raise it")
    missing = sorted(name for name in drop if name not in catalog.named)
    if missing:
        raise NotFound(
            f"there is no snapshot {missing[0]}", wanted="ids of snapshots", todo="see 'dalsegno snapshot list'"
        )
    pointers = _beyond_retention(
        catalog, identity, keep, {*protected, *_listed(catalog, drop)}, now, older_than_seconds
    )
    left, unreadable, orphans = _manifests(catalog, identity, store, prefix, set(pointers), now)
    files: tuple[Stored, ...] = ()
    if not unreadable:
        files = _unnamed(left, store, prefix, now)
    return Pruning(tuple(pointers), tuple(orphans), files, len(catalog.pointers) - len(pointers), unreadable)


def prune(
    planned: Pruning,
    store: Store,
    prefix: str,
    *,
    forget: Callable[[Sequence[str]], None],
    now: Callable[[], float],
    fault: Fault = no_fault,
) -> Pruning:
    """Carry out a pruning. ``forget`` tombstones pointers and waits for it. Returns what was removed."""
    forget(planned.pointers)
    fault("prune.1")
    with os_errors("remove the manifest of a snapshot"):
        for name in (*planned.pointers, *planned.manifests):
            store.delete(manifest_key(prefix, name))
    fault("prune.2")
    files: tuple[Stored, ...] = ()
    if not planned.unreadable:
        # Read again: a snapshot that was taken since the plan may name one of the files.
        left, unreadable = _read_all(store, prefix, set())
        if not unreadable:
            planned_files = set(planned.files)
            files = tuple(file for file in _unnamed(left.values(), store, prefix, now()) if file in planned_files)
            with os_errors("remove the files of a snapshot"):
                for file in files:
                    store.delete(file.key)
    fault("prune.3")
    done = planned._replace(files=files)
    log.info(
        "snapshots_pruned",
        extra={"pointers": len(done.pointers), "files": len(files), "freed_bytes": done.freed_bytes},
    )
    return done


def _listed(catalog: Catalog, drop: Collection[str]) -> set[str]:
    """Shard snapshots that a named snapshot lists."""
    return {
        shard.shard_snapshot_id
        for snapshot in catalog.named.values()
        if snapshot.id not in drop
        for shard in snapshot.shards
    }


def _beyond_retention(
    catalog: Catalog, identity: TopicIdentity, keep: int, protected: set[str], now: float, older_than_seconds: float
) -> list[str]:
    by_partition: dict[int, list[Pointer]] = defaultdict(list)
    gone: list[str] = []
    for pointer in catalog.pointers.values():  # in the order of writing
        ours = (pointer.cursor.cluster_id, pointer.cursor.topic_id) == (identity.cluster_id, identity.topic_id)
        if ours:
            by_partition[pointer.partition].append(pointer)
        elif pointer.id not in protected and now - pointer.taken_at / MICROS >= KEEP_SECONDS:
            gone.append(pointer.id)
    for pointers in by_partition.values():
        gone += [
            pointer.id
            for pointer in pointers[:-keep]
            if pointer.id not in protected and now - pointer.taken_at / MICROS >= older_than_seconds
        ]
    return gone


def _manifests(
    catalog: Catalog, identity: TopicIdentity, store: Store, prefix: str, gone: set[str], now: float
) -> tuple[list[Manifest], dict[str, str], list[str]]:
    """The manifests that stay, those that cannot be read, and those that nobody was ever pointed to."""
    found, unreadable = _read_all(store, prefix, gone)
    missing = catalog.pointers.keys() - gone - found.keys() - unreadable.keys()
    unreadable.update(dict.fromkeys(sorted(missing), "its manifest is missing"))
    orphans = []
    for name, manifest in list(found.items()):
        ours = (manifest.cursor.cluster_id, manifest.cursor.topic_id) == (identity.cluster_id, identity.topic_id)
        if ours and name not in catalog.pointers and now - manifest.taken_at / MICROS >= KEEP_SECONDS:
            orphans.append(name)
            del found[name]
    return list(found.values()), unreadable, orphans


def _read_all(store: Store, prefix: str, gone: set[str]) -> tuple[dict[str, Manifest], dict[str, str]]:
    """Every manifest of the store but those in ``gone``. Raises NotPermitted."""
    found: dict[str, Manifest] = {}
    unreadable: dict[str, str] = {}
    folder = manifests_prefix(prefix)
    with os_errors("list the manifests of snapshots"):
        names = [stored.key.removeprefix(folder).removesuffix(".json") for stored in store.list(folder)]
    for name in names:
        if name in gone:
            continue
        try:
            found[name] = read_manifest(name, store, prefix)
        except (SnapshotDamaged, SnapshotIncompatible) as error:
            unreadable[name] = error.found
    return found, unreadable


def _unnamed(manifests: Collection[Manifest], store: Store, prefix: str, now: float) -> tuple[Stored, ...]:
    named = {file.sha256 for manifest in manifests for file in manifest.files}
    folder = files_prefix(prefix)
    with os_errors("list the files of snapshots"):
        return tuple(
            stored
            for stored in store.list(folder)
            if stored.key.removeprefix(folder) not in named and now - stored.modified >= KEEP_SECONDS
        )

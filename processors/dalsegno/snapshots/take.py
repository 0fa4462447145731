"""Taking a snapshot of one shard.

Protocol *snapshot*:

1. a checkpoint of the shard was made beside it (hard links, between two batches) and its own cursor and digests were
   read;
2. every file of it lies in the store under its SHA-256;
3. the manifest lies in the store under its own SHA-256;
4. the pointer record is acknowledged in ``<prefix>.snapshots``;
5. the checkpoint folder is gone.

A crash after 1 leaves a temporary folder, which the next snapshot of this shard removes. After 2: files that no
manifest names; the next snapshot uses them, or ``prune`` removes them when they are older than a day. After 3: a
manifest that nobody is pointed to, which ``prune`` removes likewise. After 4 only the temporary folder is left.

Two rules keep a pruner and a taker from hurting each other without a lock: ``prune`` removes only files that no
manifest names and that are older than a day, and an upload puts again what it would reuse if that is older than half a
day.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from dalsegno.snapshots.manifest import FORMAT, CursorMark, Manifest, ManifestFile, Marks, encode, id_of
from dalsegno.snapshots.ports import Fault, StateFolders, file_key, manifest_key, no_fault, sha256_of
from dalsegno.storage.object_store import Store, os_errors

log = logging.getLogger("dalsegno.snapshots")

REUSE_LIMIT_SECONDS = 12 * 3600.0
MICROS = 1_000_000


class Taken(NamedTuple):
    """A snapshot that is in the store: its id, its manifest, and how many of its bytes had to be sent."""

    id: str
    manifest: Manifest
    sent_bytes: int


class Origin(NamedTuple):
    """Who takes a snapshot, of what, and why. ``schemas`` are hashes of writer schemas."""

    topic: str
    worker: str
    reason: str
    schemas: Iterable[bytes] = ()
    configuration: Mapping[str, str] = {}
    parent: str | None = None


def freeze(checkpoint: Callable[[Path], None], folder: Path, states: StateFolders, *, fault: Fault = no_fault) -> Marks:
    """Step 1. Call it while no batch is being applied; it takes milliseconds.

    ``checkpoint`` is the shard's store's own. The cursor is read from the checkpoint, never from the shard, so both are
    of one moment. Raises DiskFull, NotPermitted, StoreDamaged; the folder is then gone.
    """
    try:
        with os_errors("make a checkpoint"):
            remove_folder(folder)
            folder.parent.mkdir(parents=True, exist_ok=True)
            checkpoint(folder)
        marks = states.marks(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    fault("snapshot.1")
    return marks


def upload(
    folder: Path,
    marks: Marks,
    store: Store,
    prefix: str,
    origin: Origin,
    *,
    now: Callable[[], float],
    publish: Callable[[Taken, str], None],
    fault: Fault = no_fault,
) -> Taken:
    """Steps 2 to 5, on any thread. ``now`` is seconds since 1970; ``publish`` writes the pointer and waits for it.

    Raises DiskFull, NotPermitted, and what ``publish`` raises. Whatever happens, the checkpoint folder is removed; the
    catalogue is touched only by step 4, so the newest good snapshot stays what it was until then.
    """
    try:
        files, sent = _put_files(folder, store, prefix, now)
        fault("snapshot.2")
        manifest = _manifest(marks, origin, files, int(now() * MICROS))
        content = encode(manifest)
        snapshot_id = id_of(content)
        with os_errors("store the manifest of a snapshot"):
            store.put_if_absent(manifest_key(prefix, snapshot_id), content)
        fault("snapshot.3")
        taken = Taken(snapshot_id, manifest, sent)
        publish(taken, origin.reason)
        fault("snapshot.4")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    fault("snapshot.5")
    log.info(
        "snapshot_taken",
        extra={
            "snapshot_id": snapshot_id,
            "partition": manifest.partition,
            "generation": manifest.generation,
            "offset": manifest.cursor.next_offset,
            "size_bytes": manifest.size_bytes,
            "sent_bytes": sent,
        },
    )
    return taken


def _put_files(folder: Path, store: Store, prefix: str, now: Callable[[], float]) -> tuple[list[ManifestFile], int]:
    files, sent = [], 0
    with os_errors("store the files of a snapshot"):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            sha256, size = sha256_of(path)
            files.append(ManifestFile(path.relative_to(folder).as_posix(), sha256, size))
            key = file_key(prefix, sha256)
            there = store.info(key)
            if there is None:
                store.put_if_absent(key, path)
                sent += size
            elif there.size != size or now() - there.modified >= REUSE_LIMIT_SECONDS:
                # Half a day old: a pruner may be about to take it. Another size: a torn file that must not be reused.
                store.put(key, path)
                sent += size
    return files, sent


def _manifest(marks: Marks, origin: Origin, files: list[ManifestFile], taken_at: int) -> Manifest:
    return Manifest(
        format=FORMAT,
        topic=origin.topic,
        generation=marks.generation,
        base=marks.base,
        parent=origin.parent,
        cursor=CursorMark.of(marks.cursor),
        projections=dict(sorted(marks.projections.items())),
        schemas=sorted(schema.hex() for schema in set(origin.schemas)),
        configuration=dict(sorted(origin.configuration.items())),
        files=files,
        taken_at=taken_at,
        worker=origin.worker,
    )


def remove_folder(folder: Path) -> None:
    """Remove a temporary folder that a crash may have left."""
    if folder.exists():
        shutil.rmtree(folder)

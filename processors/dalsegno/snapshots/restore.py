"""Restoring a shard from a snapshot.

Protocol *restore*:

1. the manifest was read, and hashes to its id;
2. every file lies in ``<folder>.tmp``, and its size and SHA-256 are the manifest's;
3. the state in it was opened, and its own cursor and digests are the manifest's;
4. it carries the new generation and base, and is on the disk;
5. ``<folder>.tmp`` was renamed to ``<folder>``: from now on it is a shard.

A crash before 5 leaves a ``.tmp`` folder, which is worthless and removed at the next attempt.

A damaged snapshot gives way to the next older good one, with a warning. A refusal of the operating system is no damage:
it stops, and nothing is deleted, for a wrong mode must not cost a snapshot.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from dalsegno.errors import SnapshotDamaged, SnapshotIncompatible, StoreDamaged
from dalsegno.model.choose import Action, Choice
from dalsegno.model.cursor import Cursor
from dalsegno.snapshots.manifest import Manifest, check_marks, decode
from dalsegno.snapshots.ports import Fault, StateFolders, file_key, manifest_key, no_fault, sha256_of
from dalsegno.snapshots.take import remove_folder
from dalsegno.storage.files import sync_folder, sync_tree
from dalsegno.storage.object_store import Store, os_errors

log = logging.getLogger("dalsegno.snapshots")


def read_manifest(snapshot_id: str, store: Store, prefix: str, cursor: Cursor | None = None) -> Manifest:
    """Step 1. ``cursor``: where the catalogue says that it stands; a pointer that names another place, or another
    partition or log, is as bad as a damaged manifest.

    Raises SnapshotDamaged (missing, changed, or not what the catalogue says), SnapshotIncompatible, NotPermitted.
    """
    with os_errors(f"read the manifest of snapshot {snapshot_id}"):
        content = store.read(manifest_key(prefix, snapshot_id))
    if content is None:
        raise _damaged(snapshot_id, "its manifest is missing")
    manifest = decode(snapshot_id, content)
    if cursor is not None and manifest.cursor.cursor() != cursor:
        raise _damaged(snapshot_id, f"its manifest stands at {manifest.cursor.cursor()}, the catalogue says {cursor}")
    return manifest


def restore(
    snapshot_id: str,
    store: Store,
    prefix: str,
    folder: Path,
    states: StateFolders,
    *,
    generation: str,
    base: str,
    cursor: Cursor | None = None,
    fault: Fault = no_fault,
) -> Manifest:
    """Make ``folder``, which must not exist, the shard of this snapshot, in this generation. ``cursor`` as of
    ``read_manifest``.

    Raises SnapshotDamaged, SnapshotIncompatible, NotPermitted, DiskFull. Whatever happens, ``<folder>.tmp`` is removed.
    """
    part = folder.with_name(folder.name + ".tmp")
    try:
        with os_errors(f"restore snapshot {snapshot_id}"):
            remove_folder(part)
            manifest = read_manifest(snapshot_id, store, prefix, cursor)
            fault("restore.1")
            fetch(snapshot_id, manifest, store, prefix, part)
            fault("restore.2")
            check_state(snapshot_id, manifest, part, states)
            fault("restore.3")
            states.adopt(part, generation, base)
            sync_tree(part)
            fault("restore.4")
            part.rename(folder)
            sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    fault("restore.5")
    log.info(
        "snapshot_restored",
        extra={
            "snapshot_id": snapshot_id,
            "partition": manifest.partition,
            "generation": generation,
            "offset": manifest.cursor.next_offset,
            "size_bytes": manifest.size_bytes,
        },
    )
    return manifest


def fetch(snapshot_id: str, manifest: Manifest, store: Store, prefix: str, part: Path) -> None:
    """Step 2: fill the folder, proving every file."""
    part.mkdir(parents=True)
    for file in manifest.files:
        target = part / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not store.download(file_key(prefix, file.sha256), target):
            raise _damaged(snapshot_id, f"its file {file.name} ({file.sha256}) is missing", file=file.name)
        found, size = sha256_of(target)
        if (found, size) != (file.sha256, file.size):
            what = f"its file {file.name} has {size} bytes with SHA-256 {found}, not {file.size} with {file.sha256}"
            raise _damaged(snapshot_id, what, file=file.name)


def check_state(snapshot_id: str, manifest: Manifest, part: Path, states: StateFolders) -> None:
    """Step 3: the state says the same of itself as its manifest does."""
    try:
        found = states.marks(part)
    except StoreDamaged as error:
        raise _damaged(snapshot_id, f"its state cannot be opened: {error.found}") from error
    check_marks(snapshot_id, manifest, found)


def restore_or_older(
    choice: Choice, again: Callable[[dict[str, str]], Choice], restore_one: Callable[[Choice], None]
) -> Choice:
    """Carry out a RESTORE choice; where its snapshot is damaged, the next older good one, and so on.

    ``again`` chooses once more with these snapshots (id -> reason) taken for unusable; it raises NotReconstructable
    when nothing usable reaches the log's start. ``restore_one`` restores ``choice.snapshot``. Returns the choice that
    holds: another action than RESTORE is the caller's to carry out. Permission errors and a full disk are not damage
    and pass.
    """
    bad: dict[str, str] = {}
    while choice.action is Action.RESTORE and choice.snapshot is not None:
        try:
            restore_one(choice)
        except (SnapshotDamaged, SnapshotIncompatible) as error:
            bad[choice.snapshot.id] = error.found
            log.warning(
                "snapshot_passed_over",
                extra={
                    "snapshot_id": choice.snapshot.id,
                    "partition": choice.snapshot.partition,
                    "reason": error.found,
                    "todo": "an older one is tried",
                },
            )
            choice = again(bad)
        else:
            break
    return choice


def _damaged(snapshot_id: str, what: str, **data: object) -> SnapshotDamaged:
    return SnapshotDamaged(
        f"snapshot {snapshot_id} is damaged: {what}",
        wanted="every file that its manifest names, as it was written",
        todo="an older good one is used where there is one; 'dalsegno snapshot verify' says which are good",
        snapshot=snapshot_id,
        **data,
    )

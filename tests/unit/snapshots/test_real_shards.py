"""Snapshots of real shards in a real folder: equal digests after a restore, damage, wrong modes, a full disk."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dalsegno.errors import DiskFull, NotPermitted, SnapshotDamaged
from dalsegno.snapshots.manifest import ProjectionMark
from dalsegno.snapshots.ports import manifest_key
from dalsegno.snapshots.restore import restore
from dalsegno.snapshots.take import Taken, freeze, upload
from dalsegno.storage.object_store import FolderStore
from shard_lab import apply, folded
from snapshot_machine import EVENTS, ORIGIN, PREFIX, STATES, Machine

# An account that owns nothing here.
NOBODY = 65534


@pytest.fixture
def tmp_path(open_tmp_path: Path) -> Path:
    return open_tmp_path


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path)
    yield found
    found.shard.close()


def test_a_snapshot_and_its_tail_equal_a_straight_fold(machine: Machine) -> None:
    # case C25: batches go on while the snapshot is being sent
    half = len(EVENTS) // 2
    apply(machine.shard, EVENTS[:half])
    taken = machine.take(meanwhile=lambda: apply(machine.shard, EVENTS[half : half + 100]) and None)
    assert taken.manifest.cursor.next_offset == half
    shard = machine.restored(taken)
    try:
        assert shard.digests() == folded(EVENTS[:half]).digests()
        assert {name: mark.digest for name, mark in taken.manifest.projections.items()} == {
            name: found.digest for name, found in shard.digests().items()
        }
        assert shard.recompute_digests() == shard.digests()
        apply(shard, EVENTS[half:])
        assert shard.digests() == folded(EVENTS).digests()
    finally:
        shard.close()


def test_incremental_snapshots_send_the_data_about_once(machine: Machine) -> None:
    step, sent, biggest = 40, 0, 0
    for at in range(0, len(EVENTS), step):
        apply(machine.shard, EVENTS[at : at + step])
        taken = machine.take()
        sent, biggest = sent + taken.sent_bytes, max(biggest, taken.manifest.size_bytes)
    assert len(machine.published) > 5
    assert sent < 4 * biggest


@pytest.mark.parametrize("suffix", [".sst", "CURRENT", ".log"])
def test_one_flipped_byte_in_any_kind_of_file_is_found(machine: Machine, suffix: str) -> None:
    # case C20, part 1
    apply(machine.shard, EVENTS)
    machine.shard.kv.flush()
    taken = machine.take()
    if not any(file.name.endswith(suffix) and file.size for file in taken.manifest.files):
        suffix = taken.manifest.files[-1].name
    path = machine.stored(taken, suffix)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(SnapshotDamaged):
        machine.restored(taken)
    assert not (machine.folder / "restored").exists()
    assert not (machine.folder / "restored.tmp").exists()
    assert path.exists()


@pytest.mark.parametrize("craft", ["older state", "another digest"])
def test_a_snapshot_whose_state_is_of_another_moment_is_refused(machine: Machine, craft: str) -> None:
    # case C25: every file has its right hash, but the state is older than the cursor that is listed
    apply(machine.shard, EVENTS[:100])
    older = freeze(machine.shard.kv.checkpoint, machine.folder / "older", STATES)
    apply(machine.shard, EVENTS[100:])
    marks = freeze(machine.shard.kv.checkpoint, machine.folder / "newer", STATES)
    assert older.cursor != marks.cursor
    if craft == "another digest":
        marks = marks._replace(projections={**marks.projections, "tools": ProjectionMark(1, "00" * 32)})
    folder = machine.folder / ("older" if craft == "older state" else "newer")
    taken = upload(folder, marks, machine.store, PREFIX, ORIGIN, now=time.time, publish=lambda *_: None)
    with pytest.raises(SnapshotDamaged) as caught:
        machine.restored(taken)
    assert caught.value.data["difference"] == ("cursor" if craft == "older state" else "tools")


def test_a_folder_that_is_no_shard_is_damage(machine: Machine) -> None:
    apply(machine.shard, EVENTS[:50])
    marks = freeze(machine.shard.kv.checkpoint, machine.folder / "checkpoint", STATES)
    (machine.folder / "checkpoint" / "CURRENT").unlink()
    taken = upload(
        machine.folder / "checkpoint", marks, machine.store, PREFIX, ORIGIN, now=time.time, publish=lambda *_: None
    )
    with pytest.raises(SnapshotDamaged, match="cannot be opened"):
        machine.restored(taken)


# --- wrong modes ----------------------------------------------------------------------------------------------------

_CHILD = f"""
import os, sys
from pathlib import Path
from dalsegno.errors import DalsegnoError
from dalsegno.snapshots.catalog import Catalog, TopicIdentity
from dalsegno.snapshots.folders import RocksFolders
from dalsegno.snapshots.prune import plan_pruning
from dalsegno.snapshots.restore import restore
from dalsegno.storage.object_store import FolderStore
if os.getuid() == 0:
    # after the imports, for the interpreter may lie where only root can read
    os.setgid({NOBODY}); os.setuid({NOBODY})
what, store, target, name = sys.argv[1:]
try:
    if what == "restore":
        restore(name, FolderStore(store), "p", Path(target) / "out", RocksFolders(), generation="g", base="-")
    else:
        identity = TopicIdentity("cluster", "0" * 32, 1)
        catalog = Catalog({{}}, {{}})
        found = plan_pruning(catalog, identity, FolderStore(store), "p", keep=1, protected=[], now=4e9)
        print(len(found.files))
except DalsegnoError as error:
    print(type(error).__name__)
"""


def as_nobody(what: str, machine: Machine, taken: Taken, target: Path) -> str:
    # root ignores modes, so the child gives its rights up first
    for parent in (target, *target.parents):
        if str(parent).startswith(str(machine.folder.parent.parent.parent)):
            parent.chmod(parent.stat().st_mode | 0o055)
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, what, str(machine.store.root), str(target), taken.id],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("closed", ["manifests", "files"])
def test_a_wrong_mode_stops_a_restore_and_a_pruning_and_costs_nothing(machine: Machine, closed: str) -> None:
    # case C20, part 3
    apply(machine.shard, EVENTS[:50])
    taken = machine.take()
    target = machine.folder / "target"
    target.mkdir(mode=0o777)
    target.chmod(0o777)
    before = sorted(path for path in machine.store.root.rglob("*") if path.is_file())
    folder = machine.store.root / PREFIX / closed
    assert as_nobody("prune", machine, taken, target).isdecimal(), "with right modes it works"
    folder.chmod(0o000)
    try:
        assert as_nobody("restore", machine, taken, target) == NotPermitted.__name__
        assert as_nobody("prune", machine, taken, target) == NotPermitted.__name__
    finally:
        folder.chmod(0o755)
    assert sorted(path for path in machine.store.root.rglob("*") if path.is_file()) == before
    assert list(target.iterdir()) == []
    machine.restored(taken).close()


# --- a full disk ----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MB; skipped where this user may not mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", str(folder).encode(), b"tmpfs", 0, b"size=16m") != 0:
        pytest.skip(f"cannot mount a small disk here: {os.strerror(ctypes.get_errno())}")
    try:
        yield folder
    finally:
        libc.umount2(str(folder).encode(), 2)


def test_a_full_disk_says_so_leaves_nothing_half_and_recovers(machine: Machine, small_disk: Path) -> None:
    # case C23: the store's disk has 16 MB, and the snapshot needs more
    store = FolderStore(small_disk / "store")
    apply(machine.shard, EVENTS[:50])
    good = machine.take(store=store)
    filler = small_disk / "filler"
    filler.write_bytes(os.urandom(shutil.disk_usage(small_disk).free - 4096))
    apply(machine.shard, EVENTS[50:])
    with pytest.raises(DiskFull):
        machine.take(store=store)
    assert not (machine.folder / "checkpoint").exists()
    assert machine.published == [good.id]
    assert list((store.root / ".tmp").iterdir()) == []
    restore(good.id, store, PREFIX, machine.folder / "again", STATES, generation="g", base="-")
    filler.unlink()
    second = machine.take(store=store)
    assert machine.published == [good.id, second.id]
    restore(second.id, store, PREFIX, machine.folder / "second", STATES, generation="g", base="-")
    assert STATES.marks(machine.folder / "second").cursor == machine.shard.cursor


def test_a_full_disk_during_a_restore_leaves_no_shard(machine: Machine, small_disk: Path) -> None:
    # case C23
    apply(machine.shard, EVENTS)
    taken = machine.take()
    filler = small_disk / "filler"
    filler.write_bytes(os.urandom(shutil.disk_usage(small_disk).free - taken.manifest.size_bytes // 2))
    with pytest.raises(DiskFull):
        restore(taken.id, machine.store, PREFIX, small_disk / "shard", STATES, generation="g", base="-")
    assert sorted(path.name for path in small_disk.iterdir()) == ["filler"]
    filler.unlink()
    restore(taken.id, machine.store, PREFIX, small_disk / "shard", STATES, generation="g", base="-")
    assert (machine.store.root / manifest_key(PREFIX, taken.id)).exists()

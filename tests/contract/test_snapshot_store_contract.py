"""Snapshots of real shards in every kind of store: whole, incremental, pruned, and each prefix for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dalsegno.errors import SnapshotDamaged
from dalsegno.snapshots.catalog import TopicIdentity, parse_catalog, pointer_record
from dalsegno.snapshots.ports import file_key, files_prefix
from dalsegno.snapshots.prune import plan_pruning, prune
from dalsegno.snapshots.take import Taken
from dalsegno.storage.object_store import FolderStore, Store
from s3_lab import S3Server
from shard_lab import IDENTITY, apply, folded
from snapshot_machine import EVENTS, Machine

IN_TWO_DAYS = 4e9


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return FolderStore(tmp_path / "store")
    server: S3Server = request.getfixturevalue("server")
    return server.store()


@pytest.fixture
def machine(store: Store, tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path / "machine", store)
    yield found
    found.shard.close()


def sizes(store: Store, prefix: str) -> dict[str, int]:
    return {stored.key: stored.size for stored in store.list(files_prefix(prefix))}


def pruned(store: Store, prefix: str, taken: list[Taken], keep: int) -> int:
    """Prune as if every snapshot were old; how many files went."""
    table = dict(pointer_record(prefix, each, "test") for each in taken)
    catalog = parse_catalog({key.encode(): value for key, value in table.items()})
    identity = TopicIdentity(IDENTITY.cluster_id, IDENTITY.topic_id, IDENTITY.partitions)
    planned = plan_pruning(catalog, identity, store, prefix, keep=keep, protected=[], now=IN_TWO_DAYS)
    return len(prune(planned, store, prefix, forget=lambda _: None, now=lambda: IN_TWO_DAYS).files)


def test_a_snapshot_comes_back_with_equal_digests_and_goes_on(machine: Machine) -> None:
    half = len(EVENTS) // 2
    apply(machine.shard, EVENTS[:half])
    taken = machine.take()
    shard = machine.restored(taken)
    try:
        assert shard.digests() == shard.recompute_digests() == machine.shard.digests()
        apply(shard, EVENTS[half:])
        assert shard.digests() == folded(EVENTS).digests()
    finally:
        shard.close()


def test_the_next_snapshot_sends_only_what_is_new(machine: Machine, store: Store) -> None:
    apply(machine.shard, EVENTS[:-5])
    machine.take()
    before = sizes(store, machine.prefix)
    again = machine.take()
    files = {file_key(machine.prefix, file.sha256): file.size for file in again.manifest.files}
    small = {"CURRENT", "MANIFEST", "OPTIONS", "IDENTITY"}  # the database's own books, new in every checkpoint
    news = {file.name for file in again.manifest.files if file_key(machine.prefix, file.sha256) not in before}
    assert {name.partition("-")[0] for name in news} <= small
    assert sizes(store, machine.prefix) == {**before, **files}
    apply(machine.shard, EVENTS[-5:])
    grown = machine.take()
    reused = [file for file in grown.manifest.files if file_key(machine.prefix, file.sha256) in before]
    assert sum(file.size for file in reused) > sum(file.size for file in grown.manifest.files) / 2


def test_pruning_leaves_what_the_newest_needs(machine: Machine, store: Store) -> None:
    taken = []
    for part in range(4):
        apply(machine.shard, EVENTS[part * 20 : (part + 1) * 20])
        taken.append(machine.take())
    assert pruned(store, machine.prefix, taken, keep=1) > 0
    assert sizes(store, machine.prefix) == {
        file_key(machine.prefix, file.sha256): file.size for file in taken[-1].manifest.files
    }
    shard = machine.restored(taken[-1])
    assert shard.digests() == machine.shard.digests()
    shard.close()
    with pytest.raises(SnapshotDamaged):
        machine.restored(taken[0], "gone")


def test_another_prefix_in_the_same_place_is_never_touched(store: Store, tmp_path: Path) -> None:
    """``p`` begins the name of ``p-2``, and both hold files with the same content."""
    machines = [Machine(tmp_path / prefix, store, prefix) for prefix in ("p", "p-2")]
    taken = []
    for machine in machines:
        apply(machine.shard, EVENTS[:40])
        taken.append([machine.take()])
        apply(machine.shard, EVENTS[40:60])
        taken[-1].append(machine.take())
    before = sizes(store, "p-2")
    assert before
    assert pruned(store, "p", taken[0], keep=1) > 0
    assert sizes(store, "p-2") == before
    for name, each in enumerate(taken[1]):
        machines[1].restored(each, f"restored-{name}").close()
    for machine in machines:
        machine.shard.close()


@pytest.mark.parametrize(
    "damage",
    [lambda store, key: store.delete(key), lambda store, key: store.put(key, b"other bytes")],
    ids=["missing", "changed"],
)
def test_a_damaged_file_is_named(machine: Machine, store: Store, damage: Callable[[Store, str], None]) -> None:
    apply(machine.shard, EVENTS[:40])
    taken = machine.take()
    file = next(file for file in taken.manifest.files if file.name.endswith(".sst"))
    damage(store, file_key(machine.prefix, file.sha256))
    with pytest.raises(SnapshotDamaged, match=file.name.rpartition("/")[2]):
        machine.restored(taken)

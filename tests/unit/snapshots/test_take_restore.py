"""Taking and restoring, step by step, over a store in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dalsegno.errors import DiskFull, NotPermitted, NotReconstructable, SnapshotDamaged
from dalsegno.model.choose import Action, Choice, ShardSnapshot, choose
from dalsegno.model.cursor import Commit
from dalsegno.snapshots.manifest import Manifest, decode
from dalsegno.snapshots.ports import file_key, files_prefix, manifest_key, manifests_prefix
from dalsegno.snapshots.restore import restore, restore_or_older
from dalsegno.snapshots.take import Origin, Taken, freeze, upload
from snapshot_fakes import PREFIX, FakeFolders, FakeShard, FakeStore

STATES = FakeFolders()
ORIGIN = Origin("p.events", "worker-1", "test", schemas=[b"\x01" * 32, b"\x00" * 32])


class Killed(BaseException):
    """What ends a process at a numbered step."""


def kill_at(step: str) -> Callable[[str], None]:
    def fault(done: str) -> None:
        if done == step:
            raise Killed(step)

    return fault


class Catalogue:
    """What was published, in order, and a look at the store at that moment."""

    def __init__(self, store: FakeStore) -> None:
        self.store = store
        self.taken: list[Taken] = []

    def publish(self, taken: Taken, reason: str) -> None:
        assert reason == "test"
        assert manifest_key(PREFIX, taken.id) in self.store.objects
        self.taken.append(taken)


def take(
    shard: FakeShard,
    store: FakeStore,
    catalogue: Catalogue,
    folder: Path,
    fault: Callable[[str], None] = lambda _: None,
) -> Taken:
    marks = freeze(shard.checkpoint, folder, STATES, fault=fault)
    return upload(folder, marks, store, PREFIX, ORIGIN, now=lambda: store.clock, publish=catalogue.publish, fault=fault)


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def catalogue(store: FakeStore) -> Catalogue:
    return Catalogue(store)


def read(store: FakeStore, taken: Taken) -> Manifest:
    return decode(taken.id, store.objects[manifest_key(PREFIX, taken.id)])


def test_files_come_first_then_the_manifest_then_the_pointer(
    store: FakeStore, catalogue: Catalogue, tmp_path: Path
) -> None:
    steps: list[str] = []
    taken = take(FakeShard(), store, catalogue, tmp_path / "c", steps.append)
    assert steps == [f"snapshot.{n}" for n in range(1, 6)]
    assert store.order[-1] == manifest_key(PREFIX, taken.id)
    assert all(key.startswith(files_prefix(PREFIX)) for key in store.order[:-1])
    assert [published.id for published in catalogue.taken] == [taken.id]
    manifest = read(store, taken)
    assert manifest == taken.manifest
    assert {file.name for file in manifest.files} == {"state.json", "000001.sst", "sub/000002.sst"}
    assert manifest.schemas == ["00" * 32, "01" * 32]
    assert not (tmp_path / "c").exists()


def test_a_second_snapshot_sends_only_what_is_new(store: FakeStore, catalogue: Catalogue, tmp_path: Path) -> None:
    first = take(FakeShard(100), store, catalogue, tmp_path / "c")
    second = take(FakeShard(101), store, catalogue, tmp_path / "c")
    assert first.sent_bytes == first.manifest.size_bytes
    shared = len(FakeShard().tables["000001.sst"])
    assert second.sent_bytes == second.manifest.size_bytes - shared


@pytest.mark.parametrize(("age_hours", "again"), [(11.9, False), (12.1, True)])
def test_what_is_reused_is_put_again_when_it_is_old(
    store: FakeStore, catalogue: Catalogue, tmp_path: Path, age_hours: float, again: bool
) -> None:
    old = take(FakeShard(100), store, catalogue, tmp_path / "c")
    table = next(file for file in old.manifest.files if file.name == "000001.sst")
    store.clock += age_hours * 3600
    take(FakeShard(101), store, catalogue, tmp_path / "c")
    assert (store.modified[file_key(PREFIX, table.sha256)] == store.clock) is again


def test_a_torn_file_in_the_store_is_not_reused(store: FakeStore, catalogue: Catalogue, tmp_path: Path) -> None:
    taken = take(FakeShard(100), store, catalogue, tmp_path / "c")
    table = next(file for file in taken.manifest.files if file.name == "000001.sst")
    store.objects[file_key(PREFIX, table.sha256)] = b"torn"
    later = take(FakeShard(101), store, catalogue, tmp_path / "c")
    restore(later.id, store, PREFIX, tmp_path / "shard", STATES, generation="g", base="-")


def test_the_cursor_is_the_checkpoints_own(store: FakeStore, catalogue: Catalogue, tmp_path: Path) -> None:
    # case C25: writes that go on while the snapshot is taken do not get into it
    shard = FakeShard(100)
    marks = freeze(shard.checkpoint, tmp_path / "c", STATES)
    shard.cursor = FakeShard(400).cursor
    taken = upload(tmp_path / "c", marks, store, PREFIX, ORIGIN, now=lambda: store.clock, publish=catalogue.publish)
    assert taken.manifest.cursor.next_offset == 100
    manifest = restore(taken.id, store, PREFIX, tmp_path / "shard", STATES, generation="g", base=taken.id)
    found = STATES.marks(tmp_path / "shard")
    assert (found.cursor, found.projections) == (manifest.cursor.cursor(), manifest.projections)
    assert (found.generation, found.base) == ("g", taken.id)


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_a_crash_after_each_step_leaves_what_the_protocol_says(
    store: FakeStore, catalogue: Catalogue, tmp_path: Path, step: int
) -> None:
    with pytest.raises(Killed):
        take(FakeShard(100), store, catalogue, tmp_path / "c", kill_at(f"snapshot.{step}"))
    files = [key for key in store.objects if key.startswith(files_prefix(PREFIX))]
    manifests = [key for key in store.objects if key.startswith(manifests_prefix(PREFIX))]
    assert (len(files), len(manifests), len(catalogue.taken)) == (3 * (step >= 2), step >= 3, step >= 4)
    # The next one is whole, whatever the folder of the one before left.
    (tmp_path / "c").mkdir(exist_ok=True)
    taken = take(FakeShard(100), store, catalogue, tmp_path / "c")
    restore(taken.id, store, PREFIX, tmp_path / "shard", STATES, generation="g", base="-")


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_a_restore_that_ends_early_is_no_shard(
    store: FakeStore, catalogue: Catalogue, tmp_path: Path, step: int
) -> None:
    taken = take(FakeShard(100), store, catalogue, tmp_path / "c")
    with pytest.raises(Killed):
        restore(
            taken.id,
            store,
            PREFIX,
            tmp_path / "shard",
            STATES,
            generation="g",
            base="-",
            fault=kill_at(f"restore.{step}"),
        )
    assert (tmp_path / "shard").exists() is (step == 5)
    if step < 5:
        (tmp_path / "shard.tmp").mkdir(exist_ok=True)  # what a real crash leaves
        (tmp_path / "shard.tmp" / "000001.sst").write_bytes(b"half")
        restore(taken.id, store, PREFIX, tmp_path / "shard", STATES, generation="g", base="-")
    assert STATES.marks(tmp_path / "shard").generation == "g"
    assert not (tmp_path / "shard.tmp").exists()


def test_a_full_disk_leaves_the_newest_good_snapshot_in_place(
    store: FakeStore, catalogue: Catalogue, tmp_path: Path
) -> None:
    # case C23
    good = take(FakeShard(100), store, catalogue, tmp_path / "c")
    full = sum(map(len, store.objects.values()))
    failures = 0
    for room in range(full, 2 * full + 1000, 97):
        store.room = room
        try:
            take(FakeShard(200), store, catalogue, tmp_path / "c")
        except DiskFull:
            failures += 1
        else:
            break
        assert not (tmp_path / "c").exists()
        assert [taken.id for taken in catalogue.taken] == [good.id]
        restore(good.id, store, PREFIX, tmp_path / f"shard-{room}", STATES, generation="g", base="-")
    assert failures > 3
    assert len(catalogue.taken) == 2, "with room enough the second one succeeds without more ado"
    restore(catalogue.taken[-1].id, store, PREFIX, tmp_path / "new", STATES, generation="g", base="-")


# --- damage ---------------------------------------------------------------------------------------------------------


def entry(taken: Taken) -> ShardSnapshot:
    return taken.manifest.entry(taken.id)


class Machine:
    """A worker's choice and restore over two snapshots, the newer of which may be damaged."""

    def __init__(self, store: FakeStore, catalogue: Catalogue, folder: Path, log_start: int = 0) -> None:
        self.store, self.folder, self.log_start = store, folder, log_start
        self.older = take(FakeShard(100), store, catalogue, folder / "c")
        self.newer = take(FakeShard(200), store, catalogue, folder / "c")
        self.tried: list[str] = []

    def choose(self, bad: dict[str, str]) -> Choice:
        entries = [entry(self.older), entry(self.newer)]
        entries = [e._replace(usable=False, reason=bad[e.id]) if e.id in bad else e for e in entries]
        return choose(Commit(250, "first", "-"), [], entries, "first", "new", 0, self.log_start)

    def restore_one(self, choice: Choice) -> None:
        assert choice.snapshot is not None
        self.tried.append(choice.snapshot.id)
        restore(
            choice.snapshot.id,
            self.store,
            PREFIX,
            self.folder / "shard",
            STATES,
            generation=choice.generation,
            base=choice.base,
        )

    def run(self) -> Choice:
        return restore_or_older(self.choose({}), self.choose, self.restore_one)

    def file_of(self, taken: Taken, name: str) -> str:
        return file_key(PREFIX, next(file.sha256 for file in taken.manifest.files if file.name == name))


@pytest.fixture
def machine(store: FakeStore, catalogue: Catalogue, tmp_path: Path) -> Machine:
    return Machine(store, catalogue, tmp_path)


def flip(store: FakeStore, key: str) -> None:
    content = bytearray(store.objects[key])
    content[len(content) // 2] ^= 1
    store.objects[key] = bytes(content)


# case C20, parts 1 and 2
@pytest.mark.parametrize("what", ["table", "missing", "manifest", "no manifest", "state", "torn"])
def test_a_damaged_snapshot_gives_way_to_the_next_older_one(
    machine: Machine, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    store, newer = machine.store, machine.newer
    match what:
        case "table":
            flip(store, machine.file_of(newer, "sub/000002.sst"))
        case "missing":
            del store.objects[machine.file_of(newer, "sub/000002.sst")]
        case "manifest":
            flip(store, manifest_key(PREFIX, newer.id))
        case "no manifest":
            del store.objects[manifest_key(PREFIX, newer.id)]
        case "state":
            flip(store, machine.file_of(newer, "state.json"))
        case "torn":
            key = machine.file_of(newer, "sub/000002.sst")
            store.objects[key] = store.objects[key][:-1]
    before = set(store.objects)
    choice = machine.run()
    assert choice.snapshot is not None
    assert machine.tried == [newer.id, machine.older.id]
    assert STATES.marks(machine.folder / "shard").cursor == FakeShard(100).cursor
    assert set(store.objects) == before, "what is damaged is left for a person to look at"
    warning = next(record for record in caplog.records if record.message == "snapshot_passed_over")
    assert warning.__dict__["snapshot_id"] == newer.id


def test_a_wrong_mode_stops_and_costs_no_snapshot(machine: Machine) -> None:
    # case C20, part 3
    machine.store.forbidden = set(machine.store.objects)
    before = dict(machine.store.objects)
    with pytest.raises(NotPermitted) as caught:
        machine.run()
    assert "nothing was changed" in caught.value.todo
    assert machine.store.objects == before
    assert machine.tried == [machine.newer.id], "an older one is not tried: nothing is known to be damaged"
    assert not (machine.folder / "shard").exists()


def test_all_bad_and_the_logs_beginning_gone_stops(store: FakeStore, catalogue: Catalogue, tmp_path: Path) -> None:
    # case C20, part 4
    machine = Machine(store, catalogue, tmp_path, log_start=50)
    for taken in (machine.older, machine.newer):
        flip(store, manifest_key(PREFIX, taken.id))
    with pytest.raises(NotReconstructable):
        machine.run()
    assert not (tmp_path / "shard").exists()


def test_all_bad_and_the_whole_log_there_rebuilds_from_zero(machine: Machine) -> None:
    for taken in (machine.older, machine.newer):
        flip(machine.store, manifest_key(PREFIX, taken.id))
    assert machine.run().action is Action.EMPTY


# case C25: a snapshot crafted from parts of different moments, each file with its right hash
@pytest.mark.parametrize("craft", ["old state", "one projection behind"])
def test_a_snapshot_of_parts_from_different_moments_is_refused(
    store: FakeStore, catalogue: Catalogue, tmp_path: Path, craft: str
) -> None:
    listed = FakeShard(400)
    real = FakeShard(100 if craft == "old state" else 400)
    if craft == "one projection behind":
        real.projections["tools"] = FakeShard(100).projections["tools"]
    marks = freeze(listed.checkpoint, tmp_path / "c", STATES)
    (tmp_path / "c" / "state.json").write_text(json.dumps(real.state()))
    taken = upload(tmp_path / "c", marks, store, PREFIX, ORIGIN, now=lambda: store.clock, publish=catalogue.publish)
    with pytest.raises(SnapshotDamaged) as caught:
        restore(taken.id, store, PREFIX, tmp_path / "shard", STATES, generation="g", base="-")
    assert caught.value.data["difference"] == ("cursor" if craft == "old state" else "tools")
    assert not (tmp_path / "shard").exists()
    assert not (tmp_path / "shard.tmp").exists()


@pytest.mark.parametrize("change", [{"partition": 3}, {"cluster_id": "c9"}, {"topic_id": "t9"}, {"next_offset": 10**6}])
def test_a_pointer_to_something_else_is_damage_and_leaves_no_shard(
    store: FakeStore, catalogue: Catalogue, tmp_path: Path, change: dict[str, Any]
) -> None:
    """The manifest is good, but not what the catalogue said: restored, it would stop its partition for good."""
    taken = take(FakeShard(100), store, catalogue, tmp_path / "c")
    told = msgspec.structs.replace(taken.manifest.cursor.cursor(), **change)
    with pytest.raises(SnapshotDamaged, match="the catalogue says"):
        restore(taken.id, store, PREFIX, tmp_path / "shard", STATES, generation="g", base="-", cursor=told)
    assert not (tmp_path / "shard").exists()
    assert not (tmp_path / "shard.tmp").exists()

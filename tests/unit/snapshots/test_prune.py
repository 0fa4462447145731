"""Pruning removes what nobody needs, and never a file that somebody may still name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dalsegno.errors import NotFound, NotPermitted, Usage
from dalsegno.snapshots.catalog import Catalog, NamedShard, NamedSnapshot, TopicIdentity, named_record, parse_catalog
from dalsegno.snapshots.catalog import pointer_record as make_pointer_record
from dalsegno.snapshots.ports import file_key, manifest_key
from dalsegno.snapshots.prune import KEEP_SECONDS, Pruning, plan_pruning, prune
from dalsegno.snapshots.restore import restore
from dalsegno.snapshots.take import Origin, Taken, freeze, upload
from snapshot_fakes import PREFIX, FakeFolders, FakeShard, FakeStore

STATES = FakeFolders()
OURS = TopicIdentity("c1", "t1", 4)
DAY = 24 * 3600.0


class Lab:
    """A store and a catalogue; snapshots are taken a minute apart."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = FakeStore()
        self.table: dict[bytes, bytes] = {}

    def take(self, shard: FakeShard, *, pointed: bool = True) -> Taken:
        marks = freeze(shard.checkpoint, self.folder / "c", STATES)
        self.store.clock += 60

        def publish(taken: Taken, reason: str) -> None:
            if pointed:
                key, value = make_pointer_record(PREFIX, taken, reason)
                self.table[key.encode()] = value

        return upload(
            self.folder / "c",
            marks,
            self.store,
            PREFIX,
            Origin("p.events", "w", "test"),
            now=lambda: self.store.clock,
            publish=publish,
        )

    def name(self, snapshot_id: str, *taken: Taken) -> None:
        shards = tuple(NamedShard(t.manifest.partition, t.id, t.manifest.generation, 0) for t in taken)
        key, value = named_record(NamedSnapshot(snapshot_id, 4, False, 0, "me", "test", shards))
        self.table[key.encode()] = value

    @property
    def catalog(self) -> Catalog:
        return parse_catalog(self.table)

    def plan(
        self,
        keep: int,
        protected: Sequence[str] = (),
        drop: Sequence[str] = (),
        identity: TopicIdentity = OURS,
        older_than_seconds: float = 0.0,
    ) -> Pruning:
        return plan_pruning(
            self.catalog, identity, self.store, PREFIX, keep=keep, protected=protected, now=self.store.clock,
            older_than_seconds=older_than_seconds, drop=drop,
        )  # fmt: skip

    def prune(self, keep: int, fault: Callable[[str], None] = lambda _: None, protected: Sequence[str] = ()) -> Pruning:
        return self.carry_out(self.plan(keep, protected), fault)

    def carry_out(self, planned: Pruning, fault: Callable[[str], None] = lambda _: None) -> Pruning:
        def forget(pointers: Sequence[str]) -> None:
            for name in pointers:
                del self.table[f"shard:{name}".encode()]

        return prune(planned, self.store, PREFIX, forget=forget, now=lambda: self.store.clock, fault=fault)

    def restores(self, taken: Taken, name: str) -> bool:
        restore(taken.id, self.store, PREFIX, self.folder / name, STATES, generation="g", base="-")
        return STATES.marks(self.folder / name).cursor == taken.manifest.cursor.cursor()

    def file_keys(self, taken: Taken) -> set[str]:
        return {file_key(PREFIX, file.sha256) for file in taken.manifest.files}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_the_newest_of_each_partition_are_kept(lab: Lab) -> None:
    taken = [lab.take(FakeShard(offset, partition)) for offset in (100, 200, 300) for partition in (0, 1)]
    lab.store.clock += 2 * DAY
    done = lab.prune(2)
    assert set(done.pointers) == {taken[0].id, taken[1].id}
    assert set(lab.catalog.pointers) == {each.id for each in taken[2:]}
    assert all(lab.restores(each, f"r{n}") for n, each in enumerate(taken[2:]))
    left = {key for key in lab.store.objects if "/files/" in key}
    assert left == set().union(*(lab.file_keys(each) for each in taken[2:]))
    assert done.freed_bytes > 0


def test_age_and_number_must_both_be_beyond_retention(lab: Lab) -> None:
    """Taken a minute apart: of the four that are too many, two are old enough."""
    taken = [lab.take(FakeShard(offset)) for offset in (100, 200, 300, 400, 500)]
    planned = lab.plan(1, older_than_seconds=3 * 60)
    assert set(planned.pointers) == {taken[0].id, taken[1].id}
    assert lab.plan(1, older_than_seconds=3 * 60 + 1).pointers == (taken[0].id,)
    assert lab.plan(5, older_than_seconds=0).pointers == ()
    assert set(lab.plan(1).pointers) == {each.id for each in taken[:-1]}


def test_a_dry_run_changes_nothing(lab: Lab) -> None:
    for offset in (100, 200, 300):
        lab.take(FakeShard(offset))
    lab.store.clock += 2 * DAY
    before, table = dict(lab.store.objects), dict(lab.table)
    planned = lab.plan(1)
    assert len(planned.pointers) == 2
    # What only pruned manifests name would go; it is known before anything is touched.
    assert {file.key for file in planned.files} <= {key for key in before if "/files/" in key}
    assert (lab.store.objects, lab.table) == (before, table)


@pytest.mark.parametrize(("age", "gone"), [(KEEP_SECONDS - 1, False), (KEEP_SECONDS + 1, True)])
def test_a_file_that_no_manifest_names_goes_after_a_day(lab: Lab, age: float, gone: bool) -> None:
    kept = lab.take(FakeShard(100))
    lab.store.put(file_key(PREFIX, "ee" * 32), b"left by a crash")
    lab.store.clock += age
    lab.prune(1)
    assert (file_key(PREFIX, "ee" * 32) not in lab.store.objects) is gone
    assert lab.file_keys(kept) <= set(lab.store.objects)


@pytest.mark.parametrize(("age", "gone"), [(KEEP_SECONDS - 61, False), (KEEP_SECONDS + 1, True)])
def test_a_manifest_that_nobody_was_pointed_to_goes_after_a_day(lab: Lab, age: float, gone: bool) -> None:
    lost = lab.take(FakeShard(100), pointed=False)
    kept = lab.take(FakeShard(200))
    lab.store.clock += age
    lab.prune(1)
    assert (manifest_key(PREFIX, lost.id) not in lab.store.objects) is gone
    assert lab.restores(kept, "r")


def test_a_manifest_of_another_log_in_the_same_store_is_left_alone(lab: Lab) -> None:
    theirs = lab.take(FakeShard(100), pointed=False)
    lab.store.clock += 30 * DAY
    done = lab.carry_out(lab.plan(1, identity=TopicIdentity("c2", "t9", 4)))
    assert (done.pointers, done.manifests, done.files) == ((), (), ())
    assert lab.restores(theirs, "r")


def test_pointers_of_a_topic_that_is_no_more_go_after_a_day(lab: Lab) -> None:
    taken = lab.take(FakeShard(100))
    made_again = TopicIdentity("c1", "t2", 4)
    assert lab.plan(1, identity=made_again).pointers == ()
    lab.store.clock += 2 * DAY
    assert lab.plan(1, identity=made_again).pointers == (taken.id,)
    assert lab.plan(1, [taken.id], identity=made_again).pointers == ()


def test_bases_and_named_snapshots_are_kept(lab: Lab) -> None:
    base, named, third, newest = (lab.take(FakeShard(offset)) for offset in (100, 200, 300, 400))
    lab.name("before-upgrade", named)
    lab.store.clock += 2 * DAY
    done = lab.prune(1, protected=[base.id])
    assert done.pointers == (third.id,)
    assert all(lab.restores(each, each.id[:8]) for each in (base, named, newest))
    assert set(lab.plan(1, drop=["before-upgrade"]).pointers) == {base.id, named.id}


def test_the_last_one_can_never_be_pruned(lab: Lab) -> None:
    with pytest.raises(Usage):
        lab.plan(0)
    with pytest.raises(NotFound, match="no snapshot nothing"):
        lab.plan(1, drop=["nothing"])


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_crash_after_each_step_harms_no_kept_snapshot_and_the_next_run_ends_it(lab: Lab, step: int) -> None:
    old, new = lab.take(FakeShard(100)), lab.take(FakeShard(200))
    lab.store.clock += 2 * DAY

    class Killed(BaseException):
        pass

    def fault(done: str) -> None:
        if done == f"prune.{step}":
            raise Killed

    with pytest.raises(Killed):
        lab.prune(1, fault)
    assert lab.restores(new, "r1")
    lab.prune(1)
    assert lab.restores(new, "r2")
    assert manifest_key(PREFIX, old.id) not in lab.store.objects
    assert {key for key in lab.store.objects if "/files/" in key} == lab.file_keys(new)


def test_a_snapshot_taken_between_plan_and_run_keeps_the_files_it_reuses(lab: Lab) -> None:
    lab.take(FakeShard(100))
    lab.take(FakeShard(200, partition=1))
    lab.take(FakeShard(300))
    lab.store.clock += 2 * DAY
    planned = lab.plan(1)
    # The state of offset 100 once more: its files are among those that the plan wants to remove.
    again = lab.take(FakeShard(100))
    assert lab.file_keys(again) & {file.key for file in planned.files}
    lab.carry_out(planned)
    assert lab.restores(again, "r")


def test_an_upload_of_more_than_a_day_that_ends_between_plan_and_run_keeps_its_files(lab: Lab) -> None:
    """Its files were young when it looked at them, so it did not put them again; now they are old, and named."""
    lab.take(FakeShard(100))
    lab.take(FakeShard(200, partition=1))
    lab.take(FakeShard(300))
    lab.store.clock += 2 * DAY
    planned, modified = lab.plan(1), dict(lab.store.modified)
    again = lab.take(FakeShard(100))
    lab.store.modified.update({key: modified[key] for key in lab.file_keys(again) if key in modified})
    lab.carry_out(planned)
    assert lab.restores(again, "r")


def test_an_upload_that_goes_on_during_a_pruning_loses_nothing(lab: Lab) -> None:
    """Between its files and its manifest nobody names what an upload wrote or reuses."""
    lab.take(FakeShard(100))
    lab.take(FakeShard(200))
    lab.store.clock += 2 * DAY
    shard = FakeShard(100)
    marks = freeze(shard.checkpoint, lab.folder / "c", STATES)

    def fault(done: str) -> None:
        if done == "snapshot.2":
            lab.prune(1)

    taken = upload(
        lab.folder / "c",
        marks,
        lab.store,
        PREFIX,
        Origin("p.events", "w", "test"),
        now=lambda: lab.store.clock,
        publish=lambda _taken, _reason: None,
        fault=fault,
    )
    assert lab.restores(taken, "r")


# case C20, part 3: what cannot be read is never taken for unneeded
@pytest.mark.parametrize("how", ["damaged", "newer format", "missing"])
def test_a_manifest_that_cannot_be_read_keeps_every_file(lab: Lab, how: str) -> None:
    old, new = lab.take(FakeShard(100)), lab.take(FakeShard(200))
    lab.store.clock += 2 * DAY
    lab.store.put(file_key(PREFIX, "ee" * 32), b"unnamed")
    lab.store.modified[file_key(PREFIX, "ee" * 32)] -= 2 * DAY
    key = manifest_key(PREFIX, new.id)
    if how == "missing":
        del lab.store.objects[key]
    else:
        lab.store.objects[key] = b"torn" if how == "damaged" else b'{"format":2}'
    files = {key for key in lab.store.objects if "/files/" in key}
    assert lab.plan(1).files == ()
    done = lab.prune(1)
    assert list(done.unreadable) == [new.id]
    assert done.files == ()
    assert {key for key in lab.store.objects if "/files/" in key} == files
    assert done.pointers == (old.id,)


def test_a_wrong_mode_stops_before_anything_is_removed(lab: Lab) -> None:
    for offset in (100, 200):
        lab.take(FakeShard(offset))
    lab.store.clock += 2 * DAY
    lab.store.forbidden = set(lab.store.objects)
    before, table = dict(lab.store.objects), dict(lab.table)
    with pytest.raises(NotPermitted):
        lab.prune(1)
    assert (lab.store.objects, lab.table) == (before, table)

"""The rules of ``choose``, one example each."""

from __future__ import annotations

import pytest

from dalsegno.errors import NotReconstructable
from dalsegno.model.choose import Action, Choice, LocalShard, ShardSnapshot, choose
from dalsegno.model.cursor import Commit

OLD = ShardSnapshot("old", 0, "first", "-", 100)
NEW = ShardSnapshot("new", 0, "first", "-", 400)
OTHER = ShardSnapshot("other", 0, "g2", "old", 300)


def pick(
    commit: Commit | None,
    locals: tuple[LocalShard, ...] = (),
    snapshots: tuple[ShardSnapshot, ...] = (OLD, NEW, OTHER),
    log_start: int = 0,
) -> Choice:
    return choose(commit, locals, snapshots, "first", "foreign", 50, log_start)


def test_offsets_that_expired_start_nothing_again() -> None:
    # case C17: the start position comes from the stored state's own cursor
    choice = pick(None, (LocalShard("first.1", "first", "-", 90, True),))
    assert (choice.action, choice.folder, choice.next_offset) == (Action.KEEP, "first.1", 90)


def test_a_new_worker_takes_the_newest_snapshot() -> None:
    choice = pick(None)
    assert (choice.action, choice.snapshot, choice.generation, choice.base) == (Action.RESTORE, NEW, "first", "new")


def test_a_first_build_that_was_cut_off_goes_on() -> None:
    choice = pick(None, (LocalShard("first.1", "first", "-", 380, False),))
    assert (choice.action, choice.folder) == (Action.KEEP, "first.1")
    far = pick(None, (LocalShard("first.1", "first", "-", 20, False),))
    assert (far.action, far.snapshot, far.delete) == (Action.RESTORE, NEW, ())


def test_nothing_at_all_begins_empty() -> None:
    choice = pick(None, (), ())
    assert (choice.action, choice.generation, choice.base, choice.next_offset) == (Action.EMPTY, "first", "-", 0)


def test_an_unfinished_build_of_the_committed_generation_is_resumed_and_the_current_shard_stays() -> None:
    current = LocalShard("first.1", "first", "-", 500, True)
    building = LocalShard("g2.2", "g2", "old", 290, False)
    stranger = LocalShard("g9.3", "g9", "-", 900, False)
    choice = pick(Commit(100, "g2", "old"), (current, building, stranger))
    assert (choice.action, choice.folder, choice.next_offset) == (Action.KEEP, "g2.2", 290)
    assert choice.delete == ("g9.3",)


def test_a_folder_far_behind_a_snapshot_of_its_generation_gives_way() -> None:
    building = LocalShard("g2.2", "g2", "old", 249, False)
    choice = pick(Commit(100, "g2", "old"), (building,))
    assert (choice.action, choice.snapshot, choice.base) == (Action.RESTORE, OTHER, "old")
    assert choice.delete == ()


def test_a_generation_that_is_not_here_comes_from_its_snapshot_then_its_base_then_zero() -> None:
    assert pick(Commit(100, "g2", "old")).snapshot == OTHER
    assert pick(Commit(100, "g2", "old"), snapshots=(OLD, NEW)).snapshot == OLD
    assert pick(Commit(100, "g2", "gone"), snapshots=(OLD, NEW)).action is Action.EMPTY
    assert pick(Commit(100, "g2", "-"), snapshots=(OLD, NEW)).action is Action.EMPTY


def test_a_damaged_base_gives_way_to_an_older_good_one() -> None:
    damaged = NEW._replace(usable=False, reason="damaged")
    choice = pick(Commit(400, "g3", "new"), snapshots=(OLD, damaged, OTHER))
    assert (choice.snapshot, choice.base) == (OTHER, "new")


def test_among_snapshots_at_the_bases_offset_the_base_itself_is_taken() -> None:
    twin = ShardSnapshot("zz", 0, "first", "-", 100)
    assert pick(Commit(100, "g3", "old"), snapshots=(OLD, twin)).snapshot == OLD


@pytest.mark.parametrize(("offset", "expected"), [(0, None), (99, None), (100, OLD), (399, OTHER), (9_999, NEW)])
def test_somebodys_reset_rebuilds_from_the_newest_snapshot_at_or_below(
    offset: int, expected: ShardSnapshot | None
) -> None:
    current = LocalShard("first.1", "first", "-", 500, True)
    choice = pick(Commit(offset), (current,))
    assert choice.snapshot == expected
    assert choice.commit_first == Commit(
        expected.next_offset if expected else 0, "foreign", expected.id if expected else "-"
    )
    assert choice.delete == ()


def test_an_empty_state_is_never_served_where_the_logs_beginning_is_gone() -> None:
    # case C20, part 4: all snapshots bad and the log starts above zero
    bad = tuple(entry._replace(usable=False) for entry in (OLD, NEW))
    for commit in (None, Commit(0), Commit(500), Commit(400, "first", "-"), Commit(400, "g2", "old")):
        with pytest.raises(NotReconstructable) as caught:
            pick(commit, snapshots=bad, log_start=1)
        assert caught.value.data["log_start"] == 1


def test_a_snapshot_below_the_log_start_is_not_taken() -> None:
    assert pick(Commit(100, "g3", "new"), log_start=400).snapshot == NEW
    with pytest.raises(NotReconstructable):
        pick(Commit(100, "g3", "old"), log_start=101)


def test_an_accepted_hole_lets_a_base_below_the_log_start_stand() -> None:
    # case C13: the explicit way past a hole travels with the generation
    choice = pick(Commit(500, "g3", "old@500"), log_start=500)
    assert (choice.snapshot, choice.hole_to, choice.base) == (OLD, 500, "old@500")
    empty = pick(Commit(500, "g3", "-@500"), log_start=500)
    assert (empty.action, empty.hole_to) == (Action.EMPTY, 500)
    with pytest.raises(NotReconstructable):
        pick(Commit(500, "g3", "-@500"), log_start=501)

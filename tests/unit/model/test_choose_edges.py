"""The edges of ``choose`` and of a cursor's check: exactly at a limit, and just beyond it."""

from __future__ import annotations

import pytest

from dalsegno.errors import OtherHistory
from dalsegno.model.choose import Action, Choice, LocalShard, ShardSnapshot, choose
from dalsegno.model.cursor import Commit, Cursor, FoundRecord, LogFacts, check

SNAPSHOT = ShardSnapshot("snap", 0, "g", "-", 100)


def pick(commit: Commit | None, locals: list[LocalShard], snapshots: list[ShardSnapshot], log_start: int = 0) -> Choice:
    return choose(commit, locals, snapshots, "first", "new", 50, log_start)


@pytest.mark.parametrize(("stands_at", "action"), [(50, Action.KEEP), (49, Action.RESTORE)])
@pytest.mark.parametrize("commit", [None, Commit(0, "first", "-")])
def test_a_folder_may_be_as_far_behind_as_the_limit(commit: Commit | None, stands_at: int, action: Action) -> None:
    here = LocalShard("first.1", "first", "-", stands_at, False)
    assert pick(commit, [here], [SNAPSHOT._replace(generation="first")]).action is action


def test_without_a_commit_an_unfinished_build_of_a_later_generation_is_no_start() -> None:
    stranger = LocalShard("g.1", "g", "-", 90, False)
    choice = pick(None, [stranger], [])
    assert (choice.action, choice.generation, choice.delete) == (Action.EMPTY, "first", ("g.1",))
    assert pick(None, [stranger], [SNAPSHOT]).action is Action.RESTORE


def test_a_folder_that_is_further_than_the_current_one_does_not_take_its_place_without_a_commit() -> None:
    current, other = LocalShard("a.1", "a", "-", 10, True), LocalShard("b.1", "b", "-", 90, False)
    assert pick(None, [other, current], []).folder == "a.1"


@pytest.mark.parametrize("stands_at", [0, 1, 2])
def test_a_base_that_the_catalogue_does_not_know_is_followed_by_no_other_snapshot(stands_at: int) -> None:
    others = [SNAPSHOT._replace(next_offset=stands_at)]
    choice = pick(Commit(7, "elsewhere", "gone"), [], others)
    assert (choice.action, choice.snapshot) == (Action.EMPTY, None)


def test_the_log_line_says_whether_the_base_itself_was_taken() -> None:
    older = ShardSnapshot("older", 0, "x", "-", 20)
    assert pick(Commit(7, "g2", "snap"), [], [older, SNAPSHOT]).because.endswith("its base")
    damaged = pick(Commit(7, "g2", "snap"), [], [older, SNAPSHOT._replace(usable=False)])
    assert damaged.snapshot == older
    assert damaged.because.endswith("which is not usable")


CURSOR = Cursor(10, "c", "t", 0, 4, 0, 9, b"key")
FACTS = LogFacts("c", "t", 0, 4, 0, 20, FoundRecord(b"key", 0))


@pytest.mark.parametrize(
    ("mine", "theirs", "other"),
    [(0, 0, False), (0, 1, True), (1, 0, True), (3, 3, False), (-1, 0, False), (0, -1, False), (-1, -1, False)],
)
def test_leader_epochs_are_compared_where_both_are_known(mine: int, theirs: int, other: bool) -> None:
    cursor = Cursor(10, "c", "t", 0, 4, mine, 9, b"key")
    facts = FACTS._replace(last=FoundRecord(b"key", theirs))
    if not other:
        check(cursor, facts)
        return
    with pytest.raises(OtherHistory, match="written again by a later leader"):
        check(cursor, facts)


@pytest.mark.parametrize(
    ("facts", "difference", "words"),
    [
        (FACTS._replace(cluster_id="x"), "cluster_id", "the cluster_id differs"),
        (FACTS._replace(topic_id="x"), "topic_id", "the topic_id differs"),
        (
            FACTS._replace(partitions=5),
            "partitions",
            "number of partitions changed, which is fixed for life: the state",
        ),
        (FACTS._replace(high=9), "end", "the state is ahead of the log's end: the state"),
        (
            FACTS._replace(last=FoundRecord(b"other", 0)),
            "last_key",
            "the log holds another record at offset 9: the state",
        ),
    ],
)
def test_another_history_is_told_by_its_difference(facts: LogFacts, difference: str, words: str) -> None:
    with pytest.raises(OtherHistory) as caught:
        check(CURSOR, facts)
    assert caught.value.data["difference"] == difference
    assert words in str(caught.value)


def test_a_cursor_at_the_logs_end_has_nothing_to_fear() -> None:
    check(CURSOR, FACTS._replace(high=10))
    check(Cursor(10, "c", "t", 0, 4), FACTS)
    assert Cursor(10, "c", "t", 0, 4).leader_epoch == FoundRecord(b"key").leader_epoch == -1


def test_a_snapshot_of_nothing_is_as_good_as_any_where_a_hole_was_accepted() -> None:
    empty = SNAPSHOT._replace(next_offset=0)
    choice = pick(Commit(0, "g", "-@9"), [], [empty], log_start=9)
    assert (choice.action, choice.snapshot, choice.hole_to) == (Action.RESTORE, empty, 9)

"""The edges of a plan: what it passes over and says so, the start of the log, holes, staleness."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.errors import NotFound, PlanStale, Usage
from dalsegno.model.choose import ShardSnapshot, choose, newest_usable
from dalsegno.replay.plan import PartitionWorld, ReplayPlan, World, plan
from dalsegno.replay.stale import check_fresh
from dalsegno.replay.target import Hole, Target, TargetKind, parse_target


def snapshot(name: str, offset: int, **more: Any) -> ShardSnapshot:
    return ShardSnapshot(name, 0, "g", "-", offset, **more)


def world(*snapshots: ShardSnapshot, low: int = 0, named: dict[str, dict[int, str]] | None = None) -> World:
    parts = {0: PartitionWorld(0, low, 500, 450, None, 460, snapshots), 1: PartitionWorld(1, 0, 60)}
    return World("g", "c", "t.events", "t", parts, (), {"sessions": 1}, named or {})


def made(text: str, now: World, *holes: Hole) -> ReplayPlan:
    return plan("r", parse_target(text), now, holes)


def rejected(stored: ReplayPlan) -> list[tuple[str, str]]:
    return [(each.snapshot, each.reason) for each in stored.parts[0].rejected]


A, DAMAGED, B = snapshot("a", 100), snapshot("d", 200, usable=False, reason="a file is missing"), snapshot("b", 300)


def test_what_stands_between_the_start_and_the_target_is_told() -> None:
    stored = made("offset:0=250", world(A, DAMAGED, B))
    assert (stored.parts[0].snapshot, rejected(stored)) == ("a", [("d", "a file is missing")])
    assert rejected(made("latest-snapshot", world(A, DAMAGED, B))) == []


def test_the_snapshot_that_was_meant_is_told_also_where_another_stands_at_its_place() -> None:
    stored = made("snapshot:d", world(A, DAMAGED, snapshot("e", 200), snapshot("f", 200, usable=False)))
    assert (stored.parts[0].snapshot, rejected(stored)) == ("e", [("d", "a file is missing")])


def test_the_newest_that_was_passed_over_is_told_first() -> None:
    bad = [snapshot(name, offset, usable=False) for name, offset in (("x", 100), ("z", 200), ("y", 200), ("w", 300))]
    assert [name for name, _ in rejected(made("latest-snapshot", world(*bad)))] == ["w", "y", "z", "x"]


@pytest.mark.parametrize("stands_at", [0, 1, 2])
def test_where_nothing_is_usable_every_one_below_the_target_is_told(stands_at: int) -> None:
    stored = made("offset:0=5", world(snapshot("d", stands_at, usable=False)))
    assert (stored.parts[0].start_offset, rejected(stored)) == (0, [("d", "not usable")])


def test_earliest_is_an_empty_state_or_one_that_stands_exactly_at_the_logs_start() -> None:
    assert made("earliest", world(snapshot("zero", 0))).parts[0].snapshot is None
    stored = made("earliest", world(snapshot("one", 1), low=1))
    assert (stored.parts[0].snapshot, stored.parts[0].start_offset) == ("one", 1)
    below = made("earliest", world(A, low=150), Hole(0, 0, 150))
    assert (below.parts[0].snapshot, rejected(below)) == (None, [("a", "below the log's start 150")])


def test_a_partition_in_which_nothing_happened_begins_from_its_snapshot_as_the_others_do() -> None:
    part = made("snapshot:zero", world(snapshot("zero", 0), snapshot("one", 1))).parts[0]
    assert (part.snapshot, part.start_offset) == ("zero", 0)


def test_holes_of_a_plan_are_those_that_were_accepted() -> None:
    assert made("earliest", world()).holes == []
    assert made("earliest", world(low=9), Hole(0, 0, 9)).holes == [Hole(0, 0, 9)]
    with pytest.raises(Usage, match="partition 0 has two accepted holes"):
        made("earliest", world(low=9), Hole(0, 0, 9), Hole(0, 0, 9))


def test_partitions_that_a_snapshot_does_not_list_are_named() -> None:
    with pytest.raises(NotFound, match="no shard snapshot for partition 1;"):
        made("snapshot:half", world(A, named={"half": {0: "a"}}))
    with pytest.raises(NotFound, match="no shard snapshot for partitions 0, 1"):
        made("snapshot:none", world(A, named={"none": {}}))


def test_only_a_stale_plan_is_refused() -> None:
    now = world(A)
    stored = made("latest-snapshot", now)
    check_fresh(stored, now)
    with pytest.raises(PlanStale, match="is stale") as caught:
        check_fresh(stored, now._replace(topic_id="other"))
    assert caught.value.data["changes"] == ["the topic id was t and is other"]


def test_a_log_starts_at_zero_unless_it_is_said_otherwise() -> None:
    assert choose(None, [], [], "first", "new", 0).next_offset == 0
    assert newest_usable([snapshot("zero", 0)]) == snapshot("zero", 0)
    assert Target(TargetKind.EARLIEST).seq == 0

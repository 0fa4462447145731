"""A plan says what would be rebuilt from where, and what moved since."""

from __future__ import annotations

import pytest

from dalsegno.errors import LogHole, NotFound, OtherHistory, Usage
from dalsegno.model.choose import ShardSnapshot
from dalsegno.model.cursor import parse_metadata
from dalsegno.replay.plan import PartitionWorld, ReplayPlan, World, plan
from dalsegno.replay.stale import changes
from dalsegno.replay.target import Hole, Target, TargetKind, parse_hole, parse_target

A0 = ShardSnapshot("a0", 0, "first", "-", 100)
A1 = ShardSnapshot("a1", 1, "first", "-", 40)
B0 = ShardSnapshot("b0", 0, "first", "-", 300)
DAMAGED = ShardSnapshot("d0", 0, "first", "-", 200, usable=False, reason="a file is missing")

WORLD = World(
    group="p.worker",
    cluster_id="c1",
    topic="p.events",
    topic_id="t1",
    partitions={
        0: PartitionWorld(0, 0, 500, 450, "ds1:first:-", 460, (A0, DAMAGED, B0)),
        1: PartitionWorld(1, 0, 60, None, None, None, (A1,)),
    },
    members=(),
    projections={"sessions": 1, "tools": 2},
    named={"named": {0: "a0", 1: "a1"}, "half": {0: "a0"}, "damaged": {0: "d0", 1: "a1"}, "pruned": {0: "x0", 1: "a1"}},
)


def made(text: str, world: World = WORLD, holes: tuple[Hole, ...] = ()) -> ReplayPlan:
    return plan("r1", parse_target(text), world, holes)


def starts(stored: ReplayPlan) -> dict[int, tuple[int, str | None]]:
    return {part.partition: (part.start_offset, part.snapshot) for part in stored.parts}


def test_earliest_begins_with_an_empty_state() -> None:
    stored = made("earliest")
    assert starts(stored) == {0: (0, None), 1: (0, None)}
    assert [part.records for part in stored.parts] == [500, 60]
    assert [part.base for part in stored.parts] == ["-", "-"]


def test_latest_snapshot_takes_the_newest_good_one_of_each_partition() -> None:
    stored = made("latest-snapshot")
    assert starts(stored) == {0: (300, "b0"), 1: (40, "a1")}
    assert [part.records for part in stored.parts] == [200, 20]
    assert parse_metadata(stored.metadata(stored.parts[0])) == ("r1", "b0")


def test_without_any_snapshot_the_log_start_is_left() -> None:
    world = WORLD._replace(partitions={0: WORLD.partitions[0]._replace(snapshots=(DAMAGED,))})
    stored = made("latest-snapshot", world)
    assert starts(stored) == {0: (0, None)}
    assert [(r.snapshot, r.reason) for r in stored.parts[0].rejected] == [("d0", "a file is missing")]


def test_a_named_snapshot_gives_each_partition_its_own_cursor() -> None:
    assert starts(made("snapshot:named")) == {0: (100, "a0"), 1: (40, "a1")}


def test_a_damaged_one_gives_way_to_an_older_one_and_the_plan_says_so() -> None:
    stored = made("snapshot:damaged")
    assert starts(stored) == {0: (100, "a0"), 1: (40, "a1")}
    assert [(r.snapshot, r.next_offset) for r in stored.parts[0].rejected] == [("d0", 200)]


def test_a_shard_snapshot_is_of_its_partition_alone() -> None:
    assert starts(made("snapshot:a1")) == {1: (40, "a1")}


@pytest.mark.parametrize("name", ["half", "pruned"])
def test_a_snapshot_without_every_partition_is_refused_naming_them(name: str) -> None:
    with pytest.raises(NotFound) as caught:
        made(f"snapshot:{name}")
    assert caught.value.data["partitions"] == ([1] if name == "half" else [0])


def test_a_snapshot_that_does_not_exist_is_not_found() -> None:
    with pytest.raises(NotFound, match="no snapshot nothing"):
        made("snapshot:nothing")


def test_an_offset_resolves_to_the_snapshot_below_it() -> None:
    stored = made("offset:0=299")
    assert starts(stored) == {0: (100, "a0")}
    assert [r.snapshot for r in stored.parts[0].rejected] == ["d0"]
    assert starts(made("offset:0=99,1=40")) == {0: (0, None), 1: (40, "a1")}


def test_an_offset_above_the_states_cursor_is_refused() -> None:
    made("offset:0=460")
    with pytest.raises(Usage) as caught:
        made("offset:0=461")
    assert caught.value.data["cursor"] == 460
    # Where no state is known, the log's end is the limit.
    made("offset:1=60")
    with pytest.raises(Usage):
        made("offset:1=61")


def test_a_session_resolves_by_the_offset_of_its_event() -> None:
    world = WORLD._replace(session_at=(0, 350))
    assert starts(made("session:s-1@7", world)) == {0: (300, "b0")}
    with pytest.raises(NotFound):
        made("session:s-1@7")


def test_a_partition_that_does_not_exist_is_refused() -> None:
    with pytest.raises(Usage, match="partition 7 does not exist"):
        made("offset:7=1")
    with pytest.raises(Usage, match="partition 7 does not exist"):
        made("earliest", holes=(Hole(7, 0, 5),))


# case C13: the log's start moved; neither a jump nor a quiet start at 250
def late(low: int) -> World:
    return WORLD._replace(partitions={0: WORLD.partitions[0]._replace(low=low)})


def test_a_start_below_the_log_start_names_the_hole() -> None:
    with pytest.raises(LogHole) as caught:
        made("earliest", late(250))
    assert (caught.value.data["cursor"], caught.value.data["log_start"], caught.value.data["hole"]) == (0, 250, 250)
    assert "--accept-hole 0=0..250" in str(caught.value)
    with pytest.raises(LogHole) as caught:
        made("snapshot:a0", late(250))
    # a0 is below the log's start, but it leaves the smallest hole: that one can be accepted.
    assert (caught.value.data["cursor"], caught.value.data["hole"]) == (100, 150)
    assert "--accept-hole 0=100..250" in str(caught.value)


def test_an_accepted_hole_is_part_of_the_plan_and_of_the_base() -> None:
    stored = made("snapshot:a0", late(250), (parse_hole("0=100..250"),))
    part = stored.parts[0]
    assert (part.start_offset, part.snapshot, part.base) == (100, "a0", "a0@250")
    assert part.records == 250
    assert stored.holes == [Hole(0, 100, 250)]
    empty = made("earliest", late(250), (parse_hole("0=0..250"),)).parts[0]
    assert (empty.start_offset, empty.snapshot, empty.base) == (0, None, "-@250")


@pytest.mark.parametrize("hole", ["0=100..249", "0=100..251", "0=0..250", "0=101..250"])
def test_only_exactly_the_hole_that_is_there_can_be_accepted(hole: str) -> None:
    with pytest.raises(LogHole):
        made("snapshot:a0", late(250), (parse_hole(hole),))


def test_a_hole_where_there_is_none_is_refused() -> None:
    with pytest.raises(Usage, match="has no hole"):
        made("latest-snapshot", late(250), (parse_hole("0=0..250"),))
    with pytest.raises(Usage, match="does not touch"):
        made("offset:0=300", holes=(parse_hole("1=0..1"),))


def test_earliest_takes_a_snapshot_that_stands_exactly_at_the_log_start() -> None:
    assert starts(made("earliest", late(300))) == {0: (300, "b0")}


def test_a_snapshot_ahead_of_the_log_is_refused() -> None:
    # case C26: the log was emptied or lost while a later snapshot remained
    with pytest.raises(OtherHistory) as caught:
        made("latest-snapshot", WORLD._replace(partitions={0: WORLD.partitions[0]._replace(high=299)}))
    assert (caught.value.data["state"], caught.value.data["log"]) == (300, 299)


def test_an_unchanged_world_leaves_a_plan_fresh() -> None:
    stored = made("latest-snapshot")
    assert changes(stored, WORLD) == []
    grown = {n: part._replace(high=part.high + 50) for n, part in WORLD.partitions.items()}
    assert changes(stored, WORLD._replace(partitions=grown)) == []


def part0(**changed: object) -> World:
    return WORLD._replace(partitions=WORLD.partitions | {0: WORLD.partitions[0]._replace(**changed)})


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (part0(committed_offset=451), "partition 0: the committed offset was 450"),
        (part0(committed_offset=None, committed_metadata=None), "and is none"),
        (part0(committed_metadata="ds1:other:-"), "generation first and is 450 in generation other"),
        (part0(low=301), "the log now starts at 301, above the plan's start 300"),
        (part0(snapshots=(A0,)), "snapshot b0 is gone"),
        (part0(snapshots=(B0._replace(usable=False, reason="torn"),)), "no longer usable: torn"),
        (WORLD._replace(members=("w-1",)), "member w-1 joined"),
        (WORLD._replace(topic_id="t2"), "the topic id was t1 and is t2"),
        (WORLD._replace(cluster_id="c2"), "the cluster was c1 and is c2"),
        (WORLD._replace(projections={"sessions": 2, "tools": 2}), "projection sessions was version 1 and is version 2"),
        (WORLD._replace(projections={"sessions": 1}), "projection tools was version 2 and is absent"),
        (WORLD._replace(partitions=WORLD.partitions | {2: PartitionWorld(2, 0, 0)}), "number of partitions was 2"),
    ],
)
def test_a_stale_plan_names_what_changed(now: World, told: str) -> None:
    found = changes(made("latest-snapshot"), now)
    assert len(found) == 1
    assert told in found[0]


def test_a_plan_that_was_begun_can_be_gone_on_with() -> None:
    stored = made("latest-snapshot")
    begun = part0(committed_offset=333, committed_metadata="ds1:r1:b0", snapshots=())
    assert changes(stored, begun) == []
    assert changes(stored, begun._replace(topic_id="t2")) == ["the topic id was t1 and is t2"]


def test_a_plan_made_while_workers_run_can_be_carried_out_when_they_have_left() -> None:
    stored = made("earliest", WORLD._replace(members=("w-1", "w-2")))
    assert changes(stored, WORLD) == []
    assert changes(stored, WORLD._replace(members=("w-2", "w-3"))) == ["member w-3 joined"]
    (moved,) = changes(stored, part0(committed_offset=460))
    assert "the committed offset was 450" in moved, "what they did before they left counts"


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("earliest", Target(TargetKind.EARLIEST)),
        ("latest-snapshot", Target(TargetKind.LATEST_SNAPSHOT)),
        ("snapshot:abc", Target(TargetKind.SNAPSHOT, "abc")),
        ("offset:1=5,0=7", Target(TargetKind.OFFSET, offsets=((0, 7), (1, 5)))),
        ("session:a:b@c@12", Target(TargetKind.SESSION, "a:b@c", seq=12)),
    ],
)
def test_targets_are_read_and_written(text: str, target: Target) -> None:
    assert parse_target(text) == target
    assert parse_target(str(target)) == target


@pytest.mark.parametrize(
    "text",
    [
        "",
        "latest",
        "snapshot:",
        "offset:",
        "offset:1",
        "offset:1=2,1=3",
        "offset:-1=2",
        "session:a",
        "session:@3",
        "session:a@0",
        "earliest:",
    ],
)
def test_other_targets_are_refused(text: str) -> None:
    with pytest.raises(Usage):
        parse_target(text)


@pytest.mark.parametrize("text", ["", "0=1", "0=5..5", "0=6..5", "x=1..2", "0=1...2"])
def test_other_holes_are_refused(text: str) -> None:
    with pytest.raises(Usage):
        parse_hole(text)

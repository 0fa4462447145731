"""Whatever was snapshotted, committed and deleted: a plan skips no record that it does not name as lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dalsegno.errors import LogHole, NotReconstructable, Usage
from dalsegno.model.choose import Action, LocalShard, ShardSnapshot, choose
from dalsegno.model.cursor import Commit, parse_metadata
from dalsegno.replay.plan import PartitionWorld, ReplayPlan, World, plan
from dalsegno.replay.stale import changes
from dalsegno.replay.target import Hole, Target, TargetKind

OFFSETS = st.integers(0, 30)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    partitions = {}
    for partition in range(draw(st.integers(1, 3))):
        low = draw(st.integers(0, 12))
        high = draw(st.integers(low, 30))
        snapshots = tuple(
            ShardSnapshot(
                f"s{partition}{n}",
                partition,
                draw(st.sampled_from("ab")),
                "-",
                draw(st.integers(0, high)),
                draw(st.booleans()),
            )
            for n in range(draw(st.integers(0, 4)))
        )
        committed = draw(st.one_of(st.none(), st.integers(0, high)))
        partitions[partition] = PartitionWorld(
            partition, low, high, committed, None, draw(st.one_of(st.none(), OFFSETS)), snapshots
        )
    return World("g", "c", "t.events", "t", partitions, (), {"sessions": 1}, {})


@st.composite
def targets(draw: st.DrawFn) -> Target:
    kind = draw(st.sampled_from((TargetKind.EARLIEST, TargetKind.LATEST_SNAPSHOT, TargetKind.OFFSET)))
    if kind is TargetKind.OFFSET:
        numbers = draw(st.lists(st.integers(0, 3), min_size=1, unique=True))
        return Target(kind, offsets=tuple((number, draw(OFFSETS)) for number in sorted(numbers)))
    return Target(kind)


def attempt(target: Target, world: World) -> ReplayPlan | None:
    """The plan, with every hole accepted that it asks for; None where the target is refused."""
    holes: list[Hole] = []
    for _ in range(2 * len(world.partitions) + 1):
        try:
            return plan("r", target, world, holes)
        except LogHole as hole:
            # A hole that is accepted may bring an older snapshot into reach, which leaves a smaller one.
            partition, first = hole.data["partition"], hole.data["cursor"]
            holes = [h for h in holes if h.partition != partition] + [Hole(partition, first, hole.data["log_start"])]
        except Usage:
            return None
    raise AssertionError("accepting the named hole must be enough")


@given(targets(), worlds())
def test_a_plan_starts_at_or_below_its_target_and_skips_nothing(target: Target, world: World) -> None:
    stored = attempt(target, world)
    if stored is None:
        return
    for part in stored.parts:
        now = world.partitions[part.partition]
        if part.target_offset is not None:
            assert part.start_offset <= part.target_offset
        if part.snapshot is not None:
            chosen = next(s for s in now.snapshots if s.id == part.snapshot)
            assert chosen.usable
            assert chosen.next_offset == part.start_offset
        else:
            assert part.start_offset == 0
        # Everything between the start and what is read first is either in the log or named as an accepted hole.
        if part.start_offset < now.low:
            assert part.hole == Hole(part.partition, part.start_offset, now.low)
        else:
            assert part.hole is None
        assert part.records == now.high - max(part.start_offset, now.low)


@given(targets(), worlds())
def test_nothing_better_was_passed_over_without_a_word(target: Target, world: World) -> None:
    stored = attempt(target, world)
    if stored is None:
        return
    for part in stored.parts:
        now = world.partitions[part.partition]
        told = {rejected.snapshot for rejected in part.rejected}
        for entry in now.snapshots:
            within = part.target_offset is None or entry.next_offset <= part.target_offset
            if within and entry.next_offset > part.start_offset:
                assert entry.id in told
                assert not entry.usable or entry.next_offset < now.low
        assert part.snapshot not in told


@given(targets(), worlds())
def test_a_fresh_plan_is_not_stale_and_a_moved_commit_makes_it_so(target: Target, world: World) -> None:
    stored = attempt(target, world)
    if stored is None:
        return
    assert changes(stored, world) == []
    for part in stored.parts:
        now = world.partitions[part.partition]
        moved = now._replace(committed_offset=(now.committed_offset or 0) + 1)
        assert changes(stored, world._replace(partitions={**world.partitions, part.partition: moved}))


@given(targets(), worlds(), st.lists(st.tuples(st.sampled_from("abr"), OFFSETS, st.booleans()), max_size=3))
def test_a_worker_that_finds_the_plans_commit_builds_what_was_planned(
    target: Target, world: World, folders: list[tuple[str, int, bool]]
) -> None:
    """The plan and ``choose`` agree: a worker without this generation begins at the plan's start, from the plan's
    base."""
    stored = attempt(target, world)
    if stored is None:
        return
    for part in stored.parts:
        now = world.partitions[part.partition]
        parsed = parse_metadata(stored.metadata(part))
        assert parsed is not None
        commit = Commit(part.start_offset, *parsed)
        locals = [LocalShard(f"{g}.{n}", g, "-", offset, False) for n, (g, offset, _) in enumerate(folders) if g != "r"]
        choice = choose(commit, locals, now.snapshots, "a", "new", 0, now.low)
        assert choice.generation == "r"
        assert choice.next_offset == part.start_offset
        assert (choice.snapshot.id if choice.snapshot else None) == part.snapshot
        assert (choice.action is Action.EMPTY) == (part.snapshot is None)
        assert choice.hole_to == (part.hole.end if part.hole else None)


@given(targets(), worlds())
def test_a_log_that_loses_more_than_was_accepted_stops_the_worker(target: Target, world: World) -> None:
    stored = attempt(target, world)
    if stored is None:
        return
    for part in stored.parts:
        parsed = parse_metadata(stored.metadata(part))
        assert parsed is not None
        low = max(part.start_offset, part.hole.end if part.hole else 0) + 1
        moved = world.partitions[part.partition]._replace(low=low)
        assert changes(stored, world._replace(partitions={**world.partitions, part.partition: moved}))
        try:
            choice = choose(Commit(part.start_offset, *parsed), [], moved.snapshots, "a", "new", 0, low)
        except NotReconstructable:
            continue
        raise AssertionError(f"chose {choice}")

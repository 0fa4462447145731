"""What a replay would do, worked out before anything is touched. Pure.

A target is a position to rebuild *from*. Per partition it resolves to the newest usable snapshot at or below it, else
to the start of the log; the plan says which, what was passed over and why, and how many offsets are read again. A plan
is carried out only as long as the world it was made in stands (``dalsegno.replay.stale``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from dalsegno.errors import LogHole, NotFound, OtherHistory, Usage
from dalsegno.model.choose import ShardSnapshot, newest_usable
from dalsegno.model.cursor import format_base, format_metadata
from dalsegno.replay.target import Hole, Target, TargetKind

FORMAT = 1


class Rejected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A snapshot at or below the target that was not taken, and why."""

    snapshot: str
    next_offset: int
    reason: str


class PartitionWorld(NamedTuple):
    """One partition as it is now.

    ``low`` and ``high`` bound the log (high watermark read uncommitted). ``committed_offset`` None: no commit.
    ``state_cursor`` is the furthest state known (local shard, commit, snapshot); None: none is known.
    """

    partition: int
    low: int
    high: int
    committed_offset: int | None = None
    committed_metadata: str | None = None
    state_cursor: int | None = None
    snapshots: tuple[ShardSnapshot, ...] = ()


class World(NamedTuple):
    """Everything that a plan depends on. ``named`` maps a snapshot's id to its shard snapshot per partition;
    ``session_at`` is the partition and offset that a SESSION target was found at; ``projections`` are this build's."""

    group: str
    cluster_id: str
    topic: str
    topic_id: str
    partitions: Mapping[int, PartitionWorld]
    members: tuple[str, ...]
    projections: Mapping[str, int]
    named: Mapping[str, Mapping[int, str]]
    session_at: tuple[int, int] | None = None


class PlanPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One partition of a plan: rebuild from ``start_offset`` (the cursor of ``snapshot``, or the start of the log).

    ``records`` counts the offsets that are read again, up to ``end_offset``; offsets that compaction emptied are among
    them.
    """

    partition: int
    target_offset: int | None
    start_offset: int
    end_offset: int
    records: int
    snapshot: str | None
    base: str
    committed_offset: int | None
    committed_metadata: str | None
    rejected: list[Rejected]
    hole: Hole | None


class ReplayPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stored plan. ``id`` becomes the new generation of every partition in it."""

    format: int
    id: str
    mode: str
    group: str
    cluster_id: str
    topic: str
    topic_id: str
    partitions: int
    start: str
    members: list[str]
    projections: dict[str, int]
    parts: list[PlanPart]

    def metadata(self, part: PlanPart) -> str:
        """The commit metadata that starts this partition's new generation."""
        return format_metadata(self.id, part.base)

    @property
    def holes(self) -> list[Hole]:
        return [part.hole for part in self.parts if part.hole is not None]


def plan(replay_id: str, target: Target, world: World, holes: Sequence[Hole] = ()) -> ReplayPlan:
    """Work out the replay.

    Raises OtherHistory (a snapshot ahead of the log's end), Usage (a partition that does not exist, a target above the
    state's cursor, a hole that is none), NotFound (a snapshot that does not exist or does not list every partition),
    LogHole (records that would be missing).
    """
    by_partition = _holes_by_partition(holes, world)
    targets = _targets(target, world)
    parts = [
        _part(world.partitions[partition], limit, wanted, target, by_partition.pop(partition, None))
        for partition, (limit, wanted) in sorted(targets.items())
    ]
    if by_partition:
        raise Usage(
            f"a hole is accepted in partition {min(by_partition)}, which this replay does not touch",
            wanted="holes of partitions that are replayed",
            todo="leave it out",
        )
    return ReplayPlan(
        format=FORMAT,
        id=replay_id,
        mode="projection-only",
        group=world.group,
        cluster_id=world.cluster_id,
        topic=world.topic,
        topic_id=world.topic_id,
        partitions=len(world.partitions),
        start=str(target),
        members=sorted(world.members),
        projections=dict(sorted(world.projections.items())),
        parts=parts,
    )


def _holes_by_partition(holes: Sequence[Hole], world: World) -> dict[int, Hole]:
    found: dict[int, Hole] = {}
    for hole in holes:
        _known(hole.partition, world)
        if hole.partition in found:
            raise Usage(f"partition {hole.partition} has two accepted holes", wanted="at most one", todo="give one")
        found[hole.partition] = hole
    return found


def _known(partition: int, world: World) -> PartitionWorld:
    part = world.partitions.get(partition)
    if part is None:
        raise Usage(
            f"partition {partition} does not exist",
            wanted=f"a partition of {world.topic}: 0 to {len(world.partitions) - 1}",
            todo="correct the partition",
        )
    return part


def _targets(target: Target, world: World) -> dict[int, tuple[int | None, str | None]]:
    """Partition -> (greatest offset to rebuild from, None = no limit; the snapshot that is meant, if one is)."""
    match target.kind:
        case TargetKind.EARLIEST:
            return {partition: (part.low, None) for partition, part in world.partitions.items()}
        case TargetKind.LATEST_SNAPSHOT:
            return dict.fromkeys(world.partitions, (None, None))
        case TargetKind.OFFSET:
            return {partition: (_below_state(_known(partition, world), n), None) for partition, n in target.offsets}
        case TargetKind.SESSION:
            if world.session_at is None:
                raise NotFound(
                    f"session {target.name} has no event {target.seq} in the state of this machine",
                    wanted="an event that this machine's shards or snapshots hold",
                    todo="see 'dalsegno session list', or give an offset",
                )
            partition, offset = world.session_at
            return {partition: (_below_state(_known(partition, world), offset), None)}
        case TargetKind.SNAPSHOT:
            return _snapshot_targets(target.name, world)


def _below_state(part: PartitionWorld, offset: int) -> int:
    limit = part.high if part.state_cursor is None else min(part.high, part.state_cursor)
    if offset > limit:
        raise Usage(
            f"offset {offset} of partition {part.partition} is above the state's cursor {limit}",
            wanted="a position that the state has passed: a replay rebuilds from it, and skips nothing",
            todo=f"give an offset of at most {limit}",
            partition=part.partition,
            offset=offset,
            cursor=limit,
        )
    return offset


def _snapshot_targets(name: str, world: World) -> dict[int, tuple[int | None, str | None]]:
    known = {entry.id: entry for part in world.partitions.values() for entry in part.snapshots}
    if name in known:  # a shard snapshot: its partition alone
        return {known[name].partition: (known[name].next_offset, name)}
    listed = world.named.get(name)
    if listed is None:
        raise NotFound(f"there is no snapshot {name}", wanted="a snapshot id", todo="see 'dalsegno snapshot list'")
    missing = sorted(p for p in world.partitions if p not in listed or listed[p] not in known)
    if missing:
        raise NotFound(
            f"snapshot {name} has no shard snapshot for {_partitions(missing)}",
            wanted="a snapshot that lists every partition",
            todo="use a complete one ('dalsegno snapshot list'), latest-snapshot, or offset:P=N for single partitions",
            partitions=missing,
        )
    return {partition: (known[listed[partition]].next_offset, listed[partition]) for partition in world.partitions}


def _partitions(numbers: Sequence[int]) -> str:
    return ("partition " if len(numbers) == 1 else "partitions ") + ", ".join(map(str, numbers))


def _part(
    part: PartitionWorld, limit: int | None, wanted: str | None, target: Target, accepted: Hole | None
) -> PlanPart:
    # "earliest" means an empty state, or one that stands exactly at the log's start. Everywhere else the snapshot that
    # stands furthest is meant, also below the log's start: then it leaves the smallest hole, which must be accepted.
    reach = part.low if target.kind is TargetKind.EARLIEST else 0
    if target.kind is TargetKind.EARLIEST and part.low == 0:
        chosen = None
    else:
        chosen = newest_usable(part.snapshots, at_or_below=limit, log_start=reach, prefer=wanted)
    start = 0 if chosen is None else chosen.next_offset
    if chosen is not None and start > part.high:
        raise OtherHistory(
            f"partition {part.partition}: snapshot {chosen.id} stands at {start}, but the log ends at {part.high}",
            wanted="the log that the snapshot was taken of",
            todo="find out where the log's end went before anything is appended to it; see 'dalsegno snapshot show'",
            difference="end",
            partition=part.partition,
            state=start,
            log=part.high,
        )
    hole = _check_hole(part, start, chosen, accepted)
    return PlanPart(
        partition=part.partition,
        target_offset=limit,
        start_offset=start,
        end_offset=part.high,
        records=part.high - max(start, part.low),
        snapshot=None if chosen is None else chosen.id,
        base=format_base(None if chosen is None else chosen.id, None if hole is None else hole.end),
        committed_offset=part.committed_offset,
        committed_metadata=part.committed_metadata,
        rejected=_rejected(part, limit, wanted, chosen, reach),
        hole=hole,
    )


def _check_hole(part: PartitionWorld, start: int, chosen: ShardSnapshot | None, accepted: Hole | None) -> Hole | None:
    """The hole that this start leaves, if it was accepted exactly; None where there is none."""
    if start >= part.low:
        if accepted is not None:
            raise Usage(
                f"partition {part.partition} has no hole: the log starts at {part.low}, the replay at {start}",
                wanted="no --accept-hole for this partition",
                todo="leave it out",
                partition=part.partition,
            )
        return None
    if accepted == Hole(part.partition, start, part.low):
        return accepted
    what = "an empty state" if chosen is None else f"snapshot {chosen.id}"
    raise LogHole(
        f"partition {part.partition}: {what} goes on at offset {start}, but the log starts at {part.low}: "
        f"a hole of {part.low - start} offsets",
        wanted="a usable snapshot at or above the log's start",
        todo=f"choose a newer snapshot, or accept the loss with '--accept-hole {part.partition}={start}..{part.low}'",
        partition=part.partition,
        cursor=start,
        log_start=part.low,
        hole=part.low - start,
    )


def _rejected(
    part: PartitionWorld, limit: int | None, wanted: str | None, chosen: ShardSnapshot | None, reach: int
) -> list[Rejected]:
    """The snapshots that stand at or below the target and further than the chosen one, newest first."""
    start = -1 if chosen is None else chosen.next_offset
    passed = []
    for entry in sorted(part.snapshots, key=lambda entry: (-entry.next_offset, entry.id)):
        fits = limit is None or entry.next_offset <= limit
        if not fits or (entry.next_offset <= start and entry.id != wanted) or entry == chosen:
            continue
        if not entry.usable:
            passed.append(Rejected(entry.id, entry.next_offset, entry.reason or "not usable"))
        elif entry.next_offset < reach:
            passed.append(Rejected(entry.id, entry.next_offset, f"below the log's start {reach}"))
    return passed

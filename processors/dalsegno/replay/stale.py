"""Whether a plan may still be carried out: what moved in the world since it was made. Pure."""

from __future__ import annotations

from dalsegno.errors import PlanStale
from dalsegno.model.cursor import parse_metadata
from dalsegno.replay.plan import PartitionWorld, PlanPart, ReplayPlan, World


def check_fresh(stored: ReplayPlan, world: World) -> None:
    """Raises PlanStale naming every change."""
    moved = changes(stored, world)
    if moved:
        raise PlanStale(
            f"plan {stored.id} is stale: {'; '.join(moved)}",
            wanted="the world that the plan was made in",
            todo="make a new plan: 'dalsegno replay plan --from ...'",
            changes=moved,
            replay_id=stored.id,
        )


def changes(stored: ReplayPlan, world: World) -> list[str]:
    """What moved since the plan was made, in words; empty: it may be carried out, or gone on with.

    A log that grew is no change, and neither is a partition that this very plan has reset already, nor a member that
    left: nobody may be in the group when a plan is carried out, and what it did until it left, its commits say.
    """
    moved = [
        f"the {name} was {was} and is {now}"
        for name, was, now in (
            ("cluster", stored.cluster_id, world.cluster_id),
            ("topic id", stored.topic_id, world.topic_id),
            ("number of partitions", stored.partitions, len(world.partitions)),
        )
        if was != now
    ]
    moved += [f"member {name} joined" for name in sorted(set(world.members) - set(stored.members))]
    for name in sorted({*stored.projections, *world.projections}):
        was, now = stored.projections.get(name), world.projections.get(name)
        if was != now:
            moved.append(f"projection {name} was {_version(was)} and is {_version(now)}")
    for part in stored.parts:
        if part.partition in world.partitions:
            moved += _changed_part(stored.id, part, world.partitions[part.partition])
    return moved


def _version(number: int | None) -> str:
    return "absent" if number is None else f"version {number}"


def is_reset(replay_id: str, now: PartitionWorld) -> bool:
    """Whether the partition's commit is of this replay's generation: it was reset, and a worker may have gone on."""
    ours = parse_metadata(now.committed_metadata) if now.committed_offset is not None else None
    return ours is not None and ours[0] == replay_id


def _changed_part(stored_id: str, part: PlanPart, now: PartitionWorld) -> list[str]:
    moved = []
    was_commit = (part.committed_offset, part.committed_metadata or None)
    now_commit = (now.committed_offset, now.committed_metadata or None)
    where = f"partition {part.partition}: "
    if is_reset(stored_id, now):
        return []  # this very plan was begun: what it builds from is no longer of concern
    if was_commit != now_commit:
        moved.append(f"{where}the committed offset was {_commit(*was_commit)} and is {_commit(*now_commit)}")
    readable_from = part.start_offset if part.hole is None else part.hole.end
    if now.low > readable_from:
        moved.append(f"{where}the log now starts at {now.low}, above the plan's start {readable_from}")
    if part.snapshot is not None:
        entry = next((entry for entry in now.snapshots if entry.id == part.snapshot), None)
        if entry is None:
            moved.append(f"{where}snapshot {part.snapshot} is gone")
        elif not entry.usable:
            moved.append(f"{where}snapshot {part.snapshot} is no longer usable: {entry.reason or 'damaged'}")
    return moved


def _commit(offset: int | None, metadata: str | None) -> str:
    if offset is None:
        return "none"
    ours = parse_metadata(metadata)
    return str(offset) + ("" if ours is None else f" in generation {ours[0]}")

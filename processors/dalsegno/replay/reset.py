"""Moving a group's offsets to where a plan begins.

Protocol *reset*:

1. the group is empty: dynamic members have left, static ones have run into their session time-out;
2. the world is the plan's, looked at again after 1 (``PlanStale`` else);
3. the run is recorded, with the holes that were accepted;
4. every partition of the plan is committed at its base's cursor, with the new generation in the metadata;
5. the commits were read back and are those of the plan.

A crash after 3 leaves a run that began and changed nothing. One within 4 leaves some partitions in the new generation:
the same plan is gone on with (``dalsegno replay run ID``), or cancelled. After 5 whichever worker starts builds it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from dalsegno.errors import GroupNotEmpty, KafkaRefused
from dalsegno.log import admin
from dalsegno.log.admin import Committed, Member
from dalsegno.log.kafka import KafkaConfig
from dalsegno.model.cursor import format_metadata
from dalsegno.replay.plan import ReplayPlan, World
from dalsegno.replay.stale import is_reset
from dalsegno.snapshots.ports import Fault, no_fault
from dalsegno.state.slot import is_held, slot_folders

log = logging.getLogger("dalsegno.replay")

# Kafka expires members on a timer of its own; what a static member takes beyond its session time-out.
_EXPIRY_SLACK_SECONDS = 5.0


def wait_until_empty(
    cfg: KafkaConfig,
    group: str,
    *,
    static_wait_seconds: float,
    running: Collection[str] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Step 1. Static members stay in the group for their session time-out after a clean stop: they are waited for.

    ``running``: instance ids of workers that are known to run; they are not waited for. Raises GroupNotEmpty naming the
    members, at once for dynamic ones, else at the limit.
    """
    deadline = time.monotonic() + static_wait_seconds + _EXPIRY_SLACK_SECONDS
    told = False
    while True:
        members = admin.describe_group(cfg, group).members
        if not members:
            return
        lasting = [member for member in members if member.instance_id is None or member.instance_id in running]
        if lasting or time.monotonic() >= deadline:
            raise _not_empty(group, members)
        if not told:
            told = True
            names = ", ".join(str(member.instance_id) for member in members)
            tell(f"waiting up to {static_wait_seconds:.0f} s: Kafka keeps {names} in the group until it times out")
        for _ in until(min(deadline, time.monotonic() + 0.5)):
            pass


def _not_empty(group: str, members: Sequence[Member]) -> GroupNotEmpty:
    count = f"{len(members)} member{'s' if len(members) != 1 else ''}"
    return GroupNotEmpty(
        f"group {group} has {count}: {', '.join(map(str, members))}",
        wanted="an empty group: Kafka moves the offsets of a group only while nobody is in it",
        todo="stop these workers, then try again (a stopped one counts until it times out); no offset was changed",
        group=group,
        members=[member.member_id for member in members],
        names=[str(member) for member in members],
    )


def running_here(data: Path, prefix: str, group: str) -> set[str]:
    """Instance ids of the workers that run on this machine now."""
    return {name for name, held in _instances_here(data, prefix, group) if held}


def stopped_here(data: Path, prefix: str, group: str) -> set[str]:
    """Instance ids of this machine's workers that do not run, though Kafka may keep them in the group for a while."""
    return {name for name, held in _instances_here(data, prefix, group) if not held}


def _instances_here(data: Path, prefix: str, group: str) -> list[tuple[str, bool]]:
    return [
        (f"{group}.{(folder / 'id').read_text('ascii').strip()}", is_held(folder))
        for folder in slot_folders(data, prefix)
        if (folder / "id").exists()
    ]


def targets_of(plan: ReplayPlan, world: World) -> dict[tuple[str, int], Committed]:
    """What step 4 commits: the partitions of the plan that are not in its generation yet."""
    return {
        (plan.topic, part.partition): Committed(part.start_offset, plan.metadata(part))
        for part in plan.parts
        if not is_reset(plan.id, world.partitions[part.partition])
    }


def apply_offsets(
    cfg: KafkaConfig, group: str, wanted: Mapping[tuple[str, int], Committed], *, fault: Fault = no_fault
) -> None:
    """Steps 4 and 5. Raises GroupNotEmpty (somebody joined meanwhile), KafkaRefused, BrokerUnavailable, WaitTimeout."""
    if not wanted:
        return
    admin.alter_group_offsets(cfg, group, wanted)
    fault("reset.4")
    found = admin.group_offsets(cfg, group)
    wrong = [
        f"{topic}:{number} is at {_shown(found.get((topic, number)))}, not {_shown(place)}"
        for (topic, number), place in sorted(wanted.items())
        if not _same(found.get((topic, number)), place)
    ]
    if wrong:
        raise KafkaRefused(
            f"the offsets of group {group} do not read back as they were set: {'; '.join(wrong)}",
            wanted="the offsets of the plan",
            todo="see who else moves this group's offsets, then run the plan again",
            group=group,
            differences=wrong,
        )
    fault("reset.5")
    log.info("group_reset", extra={"group": group, "partitions": len(wanted)})


def _same(found: Committed | None, wanted: Committed) -> bool:
    return found is not None and (found.offset, found.metadata or None) == (wanted.offset, wanted.metadata or None)


def _shown(place: Committed | None) -> str:
    return "no offset" if place is None else f"{place.offset} ({place.metadata or 'no metadata'})"


def undo_targets(plan: ReplayPlan, world: World) -> dict[tuple[str, int], Committed]:
    """What a cancel commits: where the partitions of this replay stood before it."""
    before = {}
    for part in plan.parts:
        if not is_reset(plan.id, world.partitions[part.partition]):
            continue
        if part.committed_offset is None:
            # Kafka cannot take a commit back through this client; the first generation from zero says the same.
            place = Committed(0, format_metadata(plan.topic_id, "-"))
        else:
            place = Committed(part.committed_offset, part.committed_metadata)
        before[plan.topic, part.partition] = place
    return before


def until(deadline: float, step_seconds: float = 0.2) -> Iterator[float]:
    """The seconds left, again and again until the deadline (monotonic), with a pause between."""
    while (left := deadline - time.monotonic()) > 0:
        yield left
        time.sleep(min(step_seconds, left))

"""Carrying out a replay: from a stored plan to a new generation that readers see.

Beginning a run is the protocol *reset* (``dalsegno.replay.reset``); then any worker of the group builds the generation
beside what is read, and switches. A run has come to its end when every partition's commit is of the plan's generation
and at the end bound: the high watermark, read uncommitted, when the run began.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from dalsegno.errors import Conflict, DalsegnoError, WaitTimeout
from dalsegno.log import admin, topics
from dalsegno.log.reader import stable_offset
from dalsegno.model.cursor import parse_metadata
from dalsegno.projections.registry import chosen
from dalsegno.replay.plan import ReplayPlan, plan
from dalsegno.replay.reset import apply_offsets, running_here, targets_of, undo_targets, until, wait_until_empty
from dalsegno.replay.stale import check_fresh
from dalsegno.replay.store import (
    CANCELLED,
    COMPLETED,
    FAILED,
    PLANNED,
    RUNNING,
    STARTED,
    Run,
    RunPart,
    StoredReplay,
    digest,
    save_plan,
    save_run,
)
from dalsegno.replay.target import Hole, Target
from dalsegno.replay.world import Place, gather
from dalsegno.snapshots.ports import Fault, no_fault
from dalsegno.snapshots.take import MICROS
from dalsegno.state.slot import read_status, slot_folders
from dalsegno.storage.object_store import Store

_LOOK_AGAIN_SECONDS = 0.5
WORKER_TODO = "start one ('dalsegno worker run')"


class Progress(NamedTuple):
    """One partition of a run: from ``start`` over ``position`` to ``bound``. ``done``: built, switched, emitted."""

    partition: int
    start: int
    position: int
    bound: int
    done: bool


@dataclass(frozen=True)
class Conductor:
    """Everything that carrying out replays needs. ``tell`` shows a step to a person; ``by`` names who asked."""

    place: Place
    store: Store
    by: str
    session_timeout_seconds: float
    tell: Callable[[str], None] = lambda _: None
    fault: Fault = no_fault

    # --- planning ---------------------------------------------------------------------------------------------------

    def plan(self, target: Target, holes: list[Hole], reason: str = "") -> StoredReplay:
        """Work out a plan and keep it. Raises what ``dalsegno.replay.plan.plan`` raises, and TopicDrift."""
        self._check_topics()
        made = plan(new_replay_id(), target, gather(self.place, target), holes)
        return save_plan(
            self.place.kafka, self.place.prefix, self.store, made, created_at=_now(), by=self.by, reason=reason
        )

    def _check_topics(self) -> None:
        """Before anything is moved: no worker would start on topics that drifted."""
        public = [(each.name, each.version) for each in chosen() if each.public]
        topics.check(self.place.kafka, self.place.prefix, projections=public)

    # --- beginning --------------------------------------------------------------------------------------------------

    def begin(self, stored: StoredReplay) -> StoredReplay:
        """The protocol *reset*, steps 1 to 5; a run that was begun before is gone on with.

        Raises Conflict (the replay is over), TopicDrift, GroupNotEmpty, PlanStale, KafkaRefused, BrokerUnavailable,
        WaitTimeout.
        """
        if stored.state in (COMPLETED, CANCELLED):
            raise Conflict(
                f"replay {stored.plan.id} is {stored.state.lower()}",
                wanted="a plan that was not carried out yet",
                todo="make a new plan: 'dalsegno replay plan --from ...'",
                replay_id=stored.plan.id,
            )
        self._check_topics()
        self.wait_until_empty()
        self.fault("reset.1")
        world = gather(self.place)
        check_fresh(stored.plan, world)
        self.fault("reset.2")
        bounds = {part.partition: world.partitions[part.partition].high for part in stored.plan.parts}
        stored = self._record(stored, STARTED, bounds)
        self.fault("reset.3")
        apply_offsets(self.place.kafka, stored.plan.group, targets_of(stored.plan, world), fault=self.fault)
        return self._record(stored, RUNNING, bounds)

    def wait_until_empty(self) -> None:
        """Step 1 alone, before a plan is made that is to be carried out at once. Raises GroupNotEmpty."""
        group = self.place.group
        wait_until_empty(
            self.place.kafka,
            group,
            static_wait_seconds=self.session_timeout_seconds,
            running=running_here(self.place.data, self.place.prefix, group),
            tell=self.tell,
        )

    # --- following and ending ---------------------------------------------------------------------------------------

    def progress(self, stored: StoredReplay) -> list[Progress]:
        """How far each partition of a begun run is, by the group's commits and by this machine's workers."""
        commits = admin.group_offsets(self.place.kafka, stored.plan.group)
        built = self._built_here(stored.plan.id)
        ends = bounds_of(stored)
        found = []
        for part in stored.plan.parts:
            commit = commits.get((stored.plan.topic, part.partition))
            ours = parse_metadata(commit.metadata) if commit is not None else None
            begun = commit is not None and ours is not None and ours[0] == stored.plan.id
            at = commit.offset if commit is not None and begun else part.start_offset
            bound = ends.get(part.partition, part.end_offset)
            position = max(at, built.get(part.partition, 0), part.start_offset)
            found.append(Progress(part.partition, part.start_offset, position, bound, begun and at >= bound))
        return found

    def _built_here(self, generation: str) -> dict[int, int]:
        found: dict[int, int] = {}
        for folder in slot_folders(self.place.data, self.place.prefix):
            try:
                status = read_status(folder) or {}
            except DalsegnoError:
                continue
            for number, part in status.get("partitions", {}).items():
                if part.get("generation") == generation and part.get("cursor") is not None:
                    found[int(number)] = max(part["cursor"], found.get(int(number), 0))
        return found

    def pinned(self, parts: Iterable[Progress]) -> dict[int, str]:
        """Partitions that nobody can bring further now, and why: a transaction that is still open below their bound
        hides what lies behind it. It ends by its writer, or by the broker at its own time-out."""
        found = {}
        for part in parts:
            if part.position >= part.bound:
                continue
            stable = stable_offset(self.place.kafka, self.place.events, part.partition)
            if part.position >= stable:
                found[part.partition] = (
                    f"an open transaction begins at offset {stable}, below the end bound {part.bound}"
                )
        return found

    def follow(
        self, stored: StoredReplay, *, timeout_seconds: float, show: Callable[[list[Progress]], None]
    ) -> StoredReplay:
        """Wait until workers have brought the run to its end, and record that. Raises WaitTimeout naming who is
        behind."""
        deadline = time.monotonic() + timeout_seconds
        for _ in until(deadline, _LOOK_AGAIN_SECONDS):
            now = self.progress(stored)
            show(now)
            if all(part.done for part in now):
                return self.complete(stored)
        behind = [part for part in self.progress(stored) if not part.done]
        if not behind:
            return self.complete(stored)
        pinned = self.pinned(behind)
        where = ", ".join(
            f"{part.partition} at {part.position} of {part.bound}"
            + (f" ({pinned[part.partition]})" if part.partition in pinned else "")
            for part in behind
        )
        raise WaitTimeout(
            f"replay {stored.plan.id} has not come to its end within {timeout_seconds:g} s: partitions {where}",
            wanted="the end of these transactions" if pinned else "a worker that builds it",
            todo=f"{'wait' if pinned else WORKER_TODO} and look again: 'dalsegno replay show {stored.plan.id}'",
            replay_id=stored.plan.id,
        )

    def complete(self, stored: StoredReplay) -> StoredReplay:
        """Record the end of a run, if it is at its end; else the run stays what it was."""
        if stored.state in (PLANNED, COMPLETED, CANCELLED) or not all(part.done for part in self.progress(stored)):
            return stored
        return self._record(stored, COMPLETED, bounds_of(stored))

    def fail(self, stored: StoredReplay, error: Exception) -> StoredReplay:
        """Record why a run stopped. It can be gone on with."""
        return self._record(stored, FAILED, bounds_of(stored), error=str(error))

    def cancel(self, stored: StoredReplay) -> StoredReplay:
        """Go back to where the group stood: the new generation's folders are deleted at the next assignment.

        Readers saw the old generation all the time. A partition that has switched already is built again from the old
        generation's newest snapshot. Raises Conflict (nothing to cancel), GroupNotEmpty.
        """
        stored = self.complete(stored)
        if stored.state in (COMPLETED, CANCELLED):
            raise Conflict(
                f"replay {stored.plan.id} is {stored.state.lower()}",
                wanted="a replay that was planned or is running",
                todo="see 'dalsegno replay list'",
                replay_id=stored.plan.id,
            )
        if stored.state != PLANNED:
            self.wait_until_empty()
            back = undo_targets(stored.plan, gather(self.place))
            apply_offsets(self.place.kafka, stored.plan.group, back, fault=self.fault)
        return self._record(stored, CANCELLED, bounds_of(stored))

    def _record(
        self, stored: StoredReplay, state: str, bounds: Mapping[int, int], *, error: str | None = None
    ) -> StoredReplay:
        now = self.progress(stored) if stored.runs else []
        at = {part.partition: part for part in now}
        parts = tuple(
            RunPart(
                part.partition,
                stored.plan.id,
                at[part.partition].position if part.partition in at else part.start_offset,
                bounds.get(part.partition, part.end_offset),
                at[part.partition].done if part.partition in at else False,
            )
            for part in stored.plan.parts
        )
        run = Run(
            replay_id=stored.plan.id,
            state=state,
            plan_digest=digest(stored.plan),
            updated_at=_now(),
            by=self.by,
            records=sum(max(0, part.next_offset - _read_from(stored.plan, part.partition)) for part in parts),
            parts=parts,
            accepted_holes=tuple(stored.plan.holes),
            error=error,
        )
        return save_run(self.place.kafka, self.place.prefix, stored, run)


def bounds_of(stored: StoredReplay) -> dict[int, int]:
    """Partition -> end bound of the newest run, else of the plan."""
    if stored.runs:
        return {part.partition: part.end_offset for part in stored.runs[-1].parts}
    return {part.partition: part.end_offset for part in stored.plan.parts}


def _read_from(made: ReplayPlan, partition: int) -> int:
    part = next(part for part in made.parts if part.partition == partition)
    return part.start_offset if part.hole is None else part.hole.end


def new_replay_id() -> str:
    """A name that sorts by time and that no other replay has; it becomes the name of a generation."""
    return f"r{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def _now() -> int:
    return int(time.time() * MICROS)

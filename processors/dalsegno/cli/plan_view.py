"""Plans and runs as people and programs see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from dalsegno.cli.common import partition_ranges
from dalsegno.cli.context import Context
from dalsegno.cli.output import emit, note
from dalsegno.cli.times import iso
from dalsegno.model.cursor import parse_metadata
from dalsegno.replay.plan import PlanPart, ReplayPlan
from dalsegno.replay.store import StoredReplay
from dalsegno.replay.target import Hole

# Kafka's own tool prints the first five under these names; LOG-END and RECORDS say what the move costs.
COLUMNS = (
    "group", "topic", "partition", "current_offset", "new_offset", "log_end", "records", "snapshot",
)  # fmt: skip


def rows(plan: ReplayPlan) -> list[dict[str, Any]]:
    return [_row(plan, part) for part in plan.parts]


def _row(plan: ReplayPlan, part: PlanPart) -> dict[str, Any]:
    ours = parse_metadata(part.committed_metadata)
    return {
        "group": plan.group,
        "topic": plan.topic,
        "partition": part.partition,
        "current_offset": part.committed_offset,
        "new_offset": part.start_offset,
        "log_end": part.end_offset,
        "records": part.records,
        "snapshot": part.snapshot,
        "current_generation": None if ours is None else ours[0],
        "target_offset": part.target_offset,
        "rejected": [
            {"snapshot": each.snapshot, "next_offset": each.next_offset, "reason": each.reason}
            for each in part.rejected
        ],
        "accepted_hole": None if part.hole is None else f"{part.hole.first}..{part.hole.end}",
    }


def show_plan(ctx: Context, plan: ReplayPlan) -> None:
    """The plan's table, and on stderr what a person should not miss."""
    emit(ctx, rows(plan), COLUMNS)
    explain(plan)


def explain(plan: ReplayPlan) -> None:
    said: dict[str, list[int]] = {}
    for part in plan.parts:
        texts = [
            f"snapshot {each.snapshot[:16]} at {each.next_offset} is passed over: {each.reason}"
            for each in part.rejected
        ]
        if part.snapshot is None:
            texts.append("no usable snapshot at or below the target; built from the log start")
        if part.hole is not None:
            texts.append(f"offsets {part.hole.first}..{part.hole.end} are accepted as lost")
        for text in texts:
            said.setdefault(text, []).append(part.partition)
    for text, partitions in said.items():
        note(f"{partition_ranges(partitions)}: {text}")
    if plan.members:
        count = len(plan.members)
        note(
            f"group {plan.group} has {count} member{'s' * (count != 1)}: stop the workers before the plan is run. "
            "Kafka keeps the place of one that has stopped for its session time-out, and 'replay run' waits for that"
        )


def csv(plan: ReplayPlan) -> str:
    """The new offsets as Kafka's own ``--from-file`` reads them: topic,partition,offset."""
    return "".join(f"{plan.topic},{part.partition},{part.start_offset}\n" for part in plan.parts)


def document(stored: StoredReplay) -> dict[str, Any]:
    """A replay for programs."""
    last = stored.runs[-1] if stored.runs else None
    return {
        "id": stored.plan.id,
        "state": stored.state,
        "mode": stored.plan.mode,
        "from": stored.plan.start,
        "created": iso(stored.created_at),
        "by": stored.created_by,
        "reason": stored.reason,
        "records": sum(part.records for part in stored.plan.parts),
        "projections": {name: f"v{version}" for name, version in stored.plan.projections.items()},
        "members": stored.plan.members,
        "parts": rows(stored.plan),
        "accepted_holes": _holes(stored.plan.holes),
        "runs": [
            {
                "state": run.state,
                "at": iso(run.updated_at),
                "by": run.by,
                "records": run.records,
                "accepted_holes": _holes(run.accepted_holes),
                "error": run.error,
            }
            for run in stored.runs
        ],
        "updated": None if last is None else iso(last.updated_at),
    }


def _holes(holes: Iterable[Hole]) -> list[str]:
    return [f"{hole.partition}={hole.first}..{hole.end}" for hole in holes]


def summary(stored: StoredReplay) -> dict[str, Any]:
    """One line of a list of replays."""
    whole = document(stored)
    return {name: whole[name] for name in ("id", "state", "from", "records", "created", "by", "reason")}


def print_id(ctx: Context, plan: ReplayPlan) -> None:
    """The id of a plan on stdout, below its table."""
    if ctx.output == "text":
        click.echo(f"plan {plan.id}")

"""``dalsegno group``: consumer groups and their offsets, in the words of Kafka's own tool."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from dalsegno.cli.common import conductor_of, full_target
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.output import emit, note
from dalsegno.cli.plan_view import csv, document, explain, print_id, show_plan
from dalsegno.cli.times import micros_of
from dalsegno.errors import NotFound, Usage
from dalsegno.log import admin
from dalsegno.log.topics import EVENTS, topic_name, worker_group
from dalsegno.model.cursor import parse_metadata
from dalsegno.replay.target import Target, TargetKind, parse_hole, parse_offsets
from dalsegno.replay.world import gather

_DESCRIBE = (
    "group", "topic", "partition", "current_offset", "log_end_offset", "lag", "consumer_id", "host", "client_id",
    "generation",
)  # fmt: skip


@click.group(epilog="Example: dalsegno group describe")
def command() -> None:
    """List and describe consumer groups, and move the offsets of dalsegno's own one."""


@command.command("list", epilog="Example: dalsegno group list")
@pass_context
def list_(ctx: Context) -> None:
    """List the consumer groups of the cluster."""
    own = _own(ctx)
    rows = [{**each._asdict(), "own": each.group == own} for each in admin.list_groups(ctx.kafka)]
    emit(ctx, rows, ("group", "state", "protocol", "own"))


@command.command(epilog="Example: dalsegno group describe")
@click.argument("group", required=False)
@pass_context
def describe(ctx: Context, group: str | None) -> None:
    """Show members, offsets and lag of a group (default: the workers of this prefix)."""
    name = group or _own(ctx)
    facts = admin.describe_group(ctx.kafka, name)
    commits = admin.group_offsets(ctx.kafka, name)
    if not commits and not facts.members:
        raise NotFound(
            f"there is no group {name}", wanted="a group that has members or offsets", todo="see 'group list'"
        )
    rows = _describe_rows(ctx, facts, commits)
    if ctx.output == "text":
        emit(ctx, rows, _DESCRIBE)
        note(f"group {name} is {facts.state.lower()} with {len(facts.members)} members")
    else:
        members = [
            {"member": each.member_id, "instance": each.instance_id, "client": each.client_id, "host": each.host}
            for each in facts.members
        ]
        emit(
            ctx, {"group": name, "state": facts.state, "protocol": facts.protocol, "members": members, "offsets": rows}
        )


def _describe_rows(
    ctx: Context, facts: admin.GroupFacts, commits: dict[tuple[str, int], admin.Committed]
) -> list[dict[str, Any]]:
    owners = {place: member for member in facts.members for place in member.partitions}
    ends = {topic: admin.watermarks(ctx.kafka, topic) for topic in {topic for topic, _ in (*commits, *owners)}}
    rows = []
    for topic, number in sorted({*commits, *owners}):
        commit, owner = commits.get((topic, number)), owners.get((topic, number))
        end = ends[topic][number].high if number in ends[topic] else None
        ours = parse_metadata(commit.metadata) if commit is not None else None
        rows.append(
            {
                "group": facts.group,
                "topic": topic,
                "partition": number,
                "current_offset": None if commit is None else commit.offset,
                "log_end_offset": end,
                "lag": None if commit is None or end is None else max(0, end - commit.offset),
                "consumer_id": None if owner is None else owner.member_id,
                "host": None if owner is None else owner.host,
                "client_id": None if owner is None else owner.client_id,
                "generation": None if ours is None else ours[0],
                "base": None if ours is None else ours[1],
            }
        )
    return rows


@command.command(epilog="Example: dalsegno group reset --to-snapshot 20261129-193000-1a2b --dry-run")
@click.argument("group", required=False)
@click.option("--to-snapshot", metavar="ID", help="The cursors of a snapshot; the beginning of its id is enough.")
@click.option("--to-earliest", is_flag=True, help="The start of the log.")
@click.option("--to-datetime", metavar="ISO", help="The newest snapshots at or below this time (with a zone).")
@click.option("--to-offset", metavar="P=N[,P=N]", help="The newest snapshots at or below these offsets.")
@click.option(
    "--from-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="CSV of topic,partition,offset, as --export writes it.",
)
@click.option("--accept-hole", "holes", multiple=True, metavar="P=FROM..TO", help="As for 'replay run'.")
@click.option("--dry-run", is_flag=True, help="Show what would be set.")
@click.option("--execute", is_flag=True, help="Set it.")
@click.option("--export", is_flag=True, help="With --dry-run: print the new offsets as CSV instead of a table.")
@pass_context
def reset(
    ctx: Context,
    group: str | None,
    to_snapshot: str | None,
    to_earliest: bool,
    to_datetime: str | None,
    to_offset: str | None,
    from_file: Path | None,
    holes: tuple[str, ...],
    dry_run: bool,
    execute: bool,
    export: bool,
) -> None:
    """Move the worker group's offsets, so that the next workers build the projections anew from there.

    A target is a position to rebuild from: each partition starts at the newest usable snapshot at or below it, else at
    the start of the log. Nothing is skipped. The group must be empty.
    """
    if dry_run == execute:
        raise Usage(
            "both --dry-run and --execute" if dry_run else "neither --dry-run nor --execute",
            wanted="exactly one of them",
            todo="begin with --dry-run",
        )
    if export and execute:
        raise Usage("--export with --execute", wanted="--export with --dry-run", todo="export first")
    target = _target(ctx, to_snapshot, to_earliest, to_datetime, to_offset, from_file)
    if group is not None and group != _own(ctx):
        raise _foreign(ctx, group, to_earliest, to_datetime, to_offset, from_file)
    conductor = conductor_of(ctx)
    if execute:
        conductor.wait_until_empty()
    stored = conductor.plan(target, [parse_hole(hole) for hole in holes], "group reset")
    if execute:
        stored = conductor.begin(stored)
    if export:
        click.echo(csv(stored.plan), nl=False)
        explain(stored.plan)
    elif ctx.output == "text":
        show_plan(ctx, stored.plan)
        print_id(ctx, stored.plan)
    else:
        emit(ctx, document(stored))
        explain(stored.plan)
    if execute:
        note(
            f"the offsets are set; 'dalsegno worker run' builds, 'dalsegno replay show {stored.plan.id}' tells how far"
        )
    else:
        note(f"nothing was changed; to do it: dalsegno replay run {stored.plan.id} --no-worker")


def _own(ctx: Context) -> str:
    return worker_group(ctx.prefix)


def _target(
    ctx: Context,
    to_snapshot: str | None,
    to_earliest: bool,
    to_datetime: str | None,
    to_offset: str | None,
    from_file: Path | None,
) -> Target:
    given = [to_snapshot, to_earliest or None, to_datetime, to_offset, from_file]
    if sum(each is not None for each in given) != 1:
        raise Usage(
            "no target" if not any(given) else "more than one target",
            wanted="one of --to-snapshot, --to-earliest, --to-datetime, --to-offset, --from-file",
            todo="give one",
        )
    if to_snapshot is not None:
        return full_target(ctx, Target(TargetKind.SNAPSHOT, name=to_snapshot))
    if to_datetime is not None:
        return Target(TargetKind.OFFSET, offsets=_offsets_at(ctx, parse_time(to_datetime)))
    if to_offset is not None:
        return Target(TargetKind.OFFSET, offsets=parse_offsets(to_offset))
    if from_file is not None:
        return Target(TargetKind.OFFSET, offsets=read_csv(from_file, topic_name(ctx.prefix, EVENTS)))
    return Target(TargetKind.EARLIEST)


def parse_time(text: str) -> int:
    """Milliseconds since 1970 of an ISO time with a zone. Raises Usage."""
    return micros_of(text) // 1000


def _offsets_at(ctx: Context, timestamp_ms: int) -> tuple[tuple[int, int], ...]:
    """The first offset of that time in each partition, but never above what the state has passed."""
    world = gather(conductor_of(ctx).place)
    found = admin.offsets_at(ctx.kafka, topic_name(ctx.prefix, EVENTS), timestamp_ms)
    limited = []
    for number, part in sorted(world.partitions.items()):
        limit = part.high if part.state_cursor is None else min(part.high, part.state_cursor)
        offset = found.get(number)
        limited.append((number, limit if offset is None else min(offset, limit)))
    return tuple(limited)


def read_csv(path: Path, topic: str) -> tuple[tuple[int, int], ...]:
    """The offsets of this topic in a CSV of topic,partition,offset. Raises Usage naming the line."""
    found: dict[int, int] = {}
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        parts = [part.strip() for part in line.split(",")]
        good = len(parts) == 3 and parts[0] == topic and parts[1].isdecimal() and parts[2].isdecimal()
        if not good or int(parts[1]) in found:
            raise Usage(
                f"{path}, line {number}: {line.strip()!r}",
                wanted=f"{topic},PARTITION,OFFSET, each partition once",
                todo="correct the file, or write it anew with --export",
            )
        found[int(parts[1])] = int(parts[2])
    if not found:
        raise Usage(f"{path} holds no offsets", wanted=f"lines of {topic},PARTITION,OFFSET", todo="see --export")
    return tuple(sorted(found.items()))


def _lines(path: Path) -> Iterable[str]:
    try:
        return path.read_text("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise Usage(
            f"{path} is not text: {error}", wanted="CSV in UTF-8", todo="write it anew with --export"
        ) from error


def _foreign(
    ctx: Context,
    group: str,
    to_earliest: bool,
    to_datetime: str | None,
    to_offset: str | None,
    from_file: Path | None,
) -> Usage:
    """Other groups are not ours to move; Kafka's own tool does it."""
    how = "--to-earliest" if to_earliest else ""
    if to_datetime:
        how = f"--to-datetime {to_datetime}"
    elif to_offset:
        how = "--to-offset N --topic TOPIC:P"
    elif from_file:
        how = f"--from-file {from_file}"
    servers = ctx.kafka.bootstrap_servers
    return Usage(
        f"group {group} is not dalsegno's own ({_own(ctx)})",
        wanted="this prefix's own group: others may be listed and described",
        todo=f"kafka-consumer-groups --bootstrap-server {servers} --group {group} --reset-offsets {how} --dry-run",
        group=group,
    )

"""``dalsegno session``: which sessions there are, and what happened in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, get_args

import click

from dalsegno.cli.answers import row_values, say_position, say_positions
from dalsegno.cli.common import open_reader, some
from dalsegno.cli.completion import complete_session
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.output import cell, dumps, emit, emit_with, note, visible
from dalsegno.cli.run import resume
from dalsegno.cli.session_amend import amend
from dalsegno.cli.session_at import TIME_RULE, At, AtType, show_at
from dalsegno.cli.session_cancel import cancel
from dalsegno.cli.session_diff import diff
from dalsegno.cli.session_export import export
from dalsegno.cli.session_fork import fork, parse_label
from dalsegno.cli.session_lines import WORDS_CHARACTERS, beginning, json_event, json_step, mark, step_line
from dalsegno.cli.session_step import step
from dalsegno.cli.session_tail import tail
from dalsegno.cli.session_verify import verify
from dalsegno.cli.times import moment
from dalsegno.errors import Usage
from dalsegno.model.lifecycle import RULES
from dalsegno.model.records import Event
from dalsegno.projections.rows import SessionRow, SessionStatus
from dalsegno.readers.datasets.choosing import Wanted, chosen, fits
from dalsegno.readers.lineage import ancestors, forks_of
from dalsegno.readers.sessions import (
    Found,
    Step,
    Superseded,
    amendments,
    find_session,
    newest,
    steps,
    superseded,
)

_LIST = (
    "session", "status", "workflow", "last_event", "events", "turns", "tool_calls", "failed", "approvals_open",
    "tokens", "verdict", "held",
)  # fmt: skip
_LIST_OF_FORKS = (
    "session", "forked_from", "forked_at_seq", "status", "last_event", "events", "turns", "tool_calls", "tokens",
    "verdict", "held",
)  # fmt: skip
_HAS: dict[str, Callable[[SessionRow], bool]] = {
    "held": lambda row: row.held_reason is not None,
    "violation": lambda row: row.violations > 0,
    "approval": lambda row: row.approvals_open > 0,
    "error": lambda row: row.error_class is not None or row.failed_tool_calls > 0,
    "superseded": lambda row: row.superseded > 0,
    "fork": lambda row: row.forked_from is not None,
}
_SEQS_NAMED = 8
_FORKS_NAMED = 8


@click.group(epilog="Example: dalsegno session list")
def command() -> None:
    """Look at sessions: answered from this machine's shards, else from snapshots, each with its position."""


@command.command("list", epilog="Example: dalsegno session list --status RUNNING --has approval")
@click.option("--status", type=click.Choice(get_args(SessionStatus)), help="Only sessions in this state.")
@click.option("--workflow", metavar="NAME", help="Only sessions of this workflow.")
@click.option(
    "--label", "labels", metavar="KEY=VALUE", multiple=True, help="Only sessions with this label; repeatable."
)
@click.option("--has", type=click.Choice(list(_HAS)), multiple=True, help="Only sessions that have this; repeatable.")
@click.option("--forks-of", "origin", metavar="SESSION", help="Only forks of this session, and forks of those.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="How many at most.")
@pass_context
def list_(
    ctx: Context,
    status: str | None,
    workflow: str | None,
    labels: tuple[str, ...],
    has: tuple[str, ...],
    origin: str | None,
    limit: int,
) -> None:
    """List sessions, those with the newest event first."""
    pairs = tuple((label.key, label.value) for label in map(parse_label, labels))
    wanted = Wanted(status=status, workflow=workflow, labels=pairs)
    with open_reader(ctx) as reader:
        if origin is None:
            fitting = chosen(reader, wanted)
        else:
            forks = (fork for fork, _ in forks_of(find_session(reader, origin)))
            fitting = (fork for fork in forks if fits(reader, fork, wanted))
        found = newest((each for each in fitting if all(_HAS[name](each.row) for name in has)), limit)
        emit(ctx, [_list_row(each) for each in found], _LIST if origin is None else _LIST_OF_FORKS)
        say_positions(reader)
        if len(found) == limit:
            note(f"the newest {limit}; --limit shows more")


@command.command(epilog="Example: dalsegno session show last --detailed")
@click.argument("session", shell_complete=complete_session)
@click.option("--detailed", is_flag=True, help="Print every field of every event.")
@click.option("--reverse", is_flag=True, help="The last event first.")
@click.option("--at", type=AtType(), help=f"As it was at this event, and what it changed. {TIME_RULE}")
@pass_context
def show(ctx: Context, session: str, detailed: bool, reverse: bool, at: At | None) -> None:
    """Show a session and its events in order. SESSION is an id, the beginning of one, or 'last'."""
    if at is not None and reverse:
        raise Usage("--at and --reverse", wanted="one of them: --at shows one event")
    with open_reader(ctx) as reader:
        found = find_session(reader, session)
        if at is not None:
            show_at(ctx, reader, found, at.of(reader, found), detailed=detailed)
            say_position(reader, found)
            return
        shown: Iterator[Step] = steps(reader, found)
        if reverse:
            shown = iter(list(shown)[::-1])
        if ctx.output == "text":
            _print(ctx, found, shown, detailed)
        else:
            head = {
                "session": _full_row(found),
                "amendments": list(map(json_event, amendments(found))),
                "superseded": list(map(_json_superseded, superseded(found))),
            }
            emit_with(ctx, head, "events", map(json_step, shown))
        say_position(reader, found)


def _print(ctx: Context, found: Found, shown: Iterator[Step], detailed: bool) -> None:
    row = {name: value for name, value in _full_row(found).items() if value not in (None, 0, "", [])}
    for name in ("ancestors", "forks"):
        if name in row:
            row[name] = some([f"{each['session']}@{each['seq']}" for each in row[name]], _FORKS_NAMED)
    emit(ctx, row)
    click.echo()
    for event in amendments(found):
        click.echo(_amendment_line(event))
        if detailed:
            click.echo(f"        {dumps(event.body)}")
    broken: set[str] = set()
    for each in shown:
        click.echo(step_line(each))
        broken.update(each.verdict.violations, each.verdict.findings)
        if detailed:
            click.echo(f"        {dumps(each.event.body)}")
    for lost in superseded(found):
        event, there = lost.event, f"{lost.on_path.hex()[:12]} is" if lost.on_path else "nothing is"
        text = f"{event.seq:>6}  SUPERSEDED {event.type} {event.hash.hex()[:12]}: {there} on the path there"
        click.echo(mark(visible(text)))
        if detailed:
            click.echo(f"        {dumps(event.body)}")
    if found.row.held_reason is not None:
        click.echo(mark(f"HELD at seq {found.row.held_seq}: {found.row.held_reason}"))
    for rule in sorted(broken):
        note(f"{rule}: {RULES[rule]}")


def _list_row(found: Found) -> dict[str, Any]:
    row = found.row
    return {
        "session": found.session_id,
        "status": row.status,
        "workflow": row.workflow_name,
        "last_event": moment(row.last_event_at),
        "events": row.events,
        "turns": row.turns,
        "tool_calls": row.tool_calls,
        "failed": row.failed_tool_calls,
        "approvals_open": row.approvals_open,
        "tokens": row.input_tokens + row.output_tokens,
        "verdict": row.verdict,
        "held": None if row.held_reason is None else f"{row.held_reason} at {row.held_seq}",
        "forked_from": row.forked_from,
        "forked_at_seq": row.forked_at_seq,
    }


def _full_row(found: Found) -> dict[str, Any]:
    return {
        "session": found.session_id,
        **row_values(found.row),
        "ancestors": [each._asdict() for each in ancestors(found)],
        "forks": [{"session": fork.session_id, "seq": seq} for fork, seq in forks_of(found)],
        "position": found.view.position,
    }


def _amendment_line(event: Event) -> str:
    """What was taken out of the history, by whom, and why."""
    body, meta = event.body, event.meta
    seqs = sorted(target["seq"] for target in body["targets"])
    what = "the whole session" if body["whole_session"] else f"seq {some(seqs, _SEQS_NAMED)}" if seqs else "nothing"
    who = f"by {meta['actor_kind']} {meta['actor_id']}, request {body['request_id']}"
    words = (cell(body["reason"], WORDS_CHARACTERS), cell(who, WORDS_CHARACTERS))
    return "  ".join((*beginning(event), mark(f"{body['action']} {what}"), *words))


def _json_superseded(lost: Superseded) -> dict[str, Any]:
    return {**json_event(lost.event), "on_path": lost.on_path}


for each in (export, verify, amend, tail, fork, diff, step, cancel, resume):
    command.add_command(each)

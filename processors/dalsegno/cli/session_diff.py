"""``dalsegno session diff``: where two sessions differ, the first difference first."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from dalsegno.cli.answers import say_position
from dalsegno.cli.bisect_exit import Judged, bisect_exit
from dalsegno.cli.common import open_reader
from dalsegno.cli.completion import complete_session
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.divergence_text import ancestor_lines, field_lines
from dalsegno.cli.output import cell, emit_with, note, visible
from dalsegno.cli.session_lines import mark
from dalsegno.errors import NegativeVerdict
from dalsegno.readers.lineage import history_events
from dalsegno.readers.sessions import Found, find_session
from dalsegno.replay.session_diff import At, Change, SessionDiff, diff_histories

_SIGNS = {"changed": "~", "only-a": "-", "only-b": "+"}
_POINTER_CHARACTERS = 60


@click.command(epilog="Example: dalsegno session diff review-1 review-2 --limit 50")
@click.argument("a", shell_complete=complete_session)
@click.argument("b", shell_complete=complete_session)
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="How many differences to print."
)
@bisect_exit
@pass_context
def diff(ctx: Context, a: str, b: str, limit: int) -> None:
    """Compare two sessions step by step. A and B are ids, beginnings of them, or 'last'; a fork is its whole history.

    Steps are aligned by what they are, so that an inserted one is one difference. Times, uuids, hashes and seqs are
    not compared. Exit code 0: the same · 3: they differ.
    """
    with open_reader(ctx) as reader:
        found = find_session(reader, a), find_session(reader, b)
        history_a, history_b = (partial(history_events, reader, each.session_id) for each in found)
        compared = diff_histories(history_a, history_b, limit)
        if ctx.output == "text":
            _print(found, compared)
        else:
            emit_with(ctx, _head(found, compared), "changes", (each.to_json() for each in compared.changes))
        for each in found:
            if each.row.held_reason is not None:
                note(f"{each.session_id} is held at {each.row.held_seq}: {each.row.held_reason}; compared up to there")
        say_position(reader, *found)
    # What is the same up to where a session is held may differ behind it.
    is_whole = all(each.row.held_reason is None for each in found)
    if compared.differences:
        raise Judged(differs=True, code=NegativeVerdict.exit_code)
    raise Judged(differs=False if is_whole else None, code=0)


def _head(found: tuple[Found, Found], compared: SessionDiff) -> dict[str, Any]:
    sides = {
        side: {
            "session": each.session_id,
            "status": each.row.status,
            "events": events,
            "forked_from": each.row.forked_from,
            "forked_at_seq": each.row.forked_at_seq,
            "held": each.row.held_reason,
            "position": each.view.position,
        }
        for side, each, events in zip("ab", found, compared.events, strict=True)
    }
    last = compared.last_common
    return {
        **sides,
        "identical": not compared.differences,
        "same": compared.same,
        **{kind.replace("-", "_"): number for kind, number in compared.kinds.items()},
        "causes": compared.causes,
        "last_common": None if last is None else {"a": last[0]._asdict(), "b": last[1]._asdict()},
        "led_to_first": [each._asdict() for each in compared.led_to_first],
    }


def _print(found: tuple[Found, Found], compared: SessionDiff) -> None:
    for side, each, events in zip("AB", found, compared.events, strict=True):
        row = each.row
        origin = f", fork of {row.forked_from} at {row.forked_at_seq}" if row.forked_from is not None else ""
        click.echo(visible(f"{side}  {each.session_id}  {row.status}, {events} events compared{origin}"))
    kinds = ", ".join(f"{number} {kind.replace('-', ' ')}" for kind, number in compared.kinds.items() if number)
    click.echo(f"   {compared.same} the same{f', {kinds}' if kinds else ', nothing else'}")
    if not compared.changes:
        return
    causes = ", ".join(f"{number} {cause}" for cause, number in compared.causes.items() if number)
    click.echo(f"   about: {causes}")
    first, *more = compared.changes
    click.echo()
    last = compared.last_common
    click.echo("the first difference" + ("" if last is None else f", behind {_places(*last, found)}"))
    click.echo(mark(_line(first, found)))
    for line in (*field_lines(first.fields), *ancestor_lines(compared.led_to_first)):
        click.echo(line)
    if more:
        click.echo()
        for change in more:
            click.echo(_line(change, found))
    rest = compared.differences - len(compared.changes)
    if rest:
        note(f"and {rest} more differences; --limit shows more")


def _line(change: Change, found: tuple[Found, Found]) -> str:
    """Sign, places, type and class, what it is about, the cause, and the fields' pointers."""
    type_, stage, name = change.identity
    about = " ".join(part for part in (f"in {stage}" if stage else "", name) if part)
    pointers = cell(", ".join(field.pointer for field in change.fields), _POINTER_CHARACTERS) if change.fields else ""
    what = f"{type_} ({change.event_class})" if change.event_class else type_
    parts = (
        f"{_SIGNS[change.kind]} {_places(change.a, change.b, found):<11}",
        f"{cell(what):<26}",
        cell(about) if about else "",
        change.cause.name.lower(),
        pointers,
    )
    return "  ".join(part for part in parts if part).rstrip()


def _places(a: At | None, b: At | None, found: tuple[Found, Found]) -> str:
    """``A 12 B 14``; of a record that a fork took over, with the session that it lies in."""
    sides = zip("AB", (a, b), found, strict=True)
    return " ".join(
        f"{side} {at.seq}" if at.session == of.session_id else f"{side} {visible(at.session)}@{at.seq}"
        for side, at, of in sides
        if at is not None
    )

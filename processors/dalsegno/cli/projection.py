"""``dalsegno projection``: which projections there are, and their rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import click

from dalsegno.cli.answers import row_values, say_position, say_positions
from dalsegno.cli.common import one_match, open_reader
from dalsegno.cli.completion import complete_projection, complete_session
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.output import emit, note
from dalsegno.errors import NotFound, Usage
from dalsegno.log.topics import projection_topic
from dalsegno.projections import registry
from dalsegno.projections.base import Projection, RowId
from dalsegno.readers.local import LocalReader
from dalsegno.readers.rows import rollup_rows, session_rows
from dalsegno.readers.sessions import find_session

_COLUMNS = ("projection", "version", "kind", "public", "handles", "topic")
_EVERY_TYPE = "every event type"


@click.group(epilog="Example: dalsegno projection list")
def command() -> None:
    """Look at projections: answered from this machine's shards, else from snapshots, each with its position."""


@command.command("list", epilog="Example: dalsegno projection list -o json")
@pass_context
def list_(ctx: Context) -> None:
    """Every projection of this installation: its version, the event types it takes, and the topic of its rows."""
    emit(ctx, [_listed(ctx, each) for each in registry.chosen()], _COLUMNS)


@command.command(epilog="Example: dalsegno projection get tools last")
@click.argument("name", shell_complete=complete_projection)
@click.argument("session", required=False, shell_complete=complete_session)
@click.argument("row_id", metavar="[ID]...", nargs=-1)
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=1_000, show_default=True, help="How many at most.")
@pass_context
def get(ctx: Context, name: str, session: str | None, row_id: tuple[str, ...], limit: int) -> None:
    """Print rows of the projection NAME.

    Of a projection with rows per session: those of SESSION (an id, the beginning of one, or 'last'), and with ID only
    the row of that id. Of a rollup: its sums over all partitions that can be read here.
    """
    projection = registry.chosen([one_match(name, list(registry.installed()), "projection")])[0]
    if projection.rollup != (session is None):
        what = "is a rollup: its sums are of no session" if projection.rollup else "has rows per session"
        wanted = "no SESSION" if projection.rollup else "a SESSION: an id, the beginning of one, or 'last'"
        raise Usage(f"projection {projection.name} {what}", wanted=wanted, todo="see 'dalsegno projection get --help'")
    with open_reader(ctx) as reader:
        rows = _sums(reader, projection) if session is None else _of_session(reader, projection, session, row_id)
        shown = [_shown(ctx, *row) for row in islice(rows, limit + 1)]
        emit(ctx, shown[:limit], _columns(shown))
        if session is None:
            say_positions(reader)
        if len(shown) > limit:
            note(f"the first {limit}; --limit shows more")


def _listed(ctx: Context, projection: Projection[Any]) -> dict[str, Any]:
    every = "*" in projection.handles
    handles: Any = sorted(projection.handles)
    if ctx.output == "text":
        handles = _EVERY_TYPE if every else f"{len(handles)} event types"
    return {
        "projection": projection.name,
        "version": projection.version,
        "kind": "rollup" if projection.rollup else "rows per session",
        "public": projection.public,
        "handles": handles,
        "topic": projection_topic(ctx.prefix, projection.name, projection.version) if projection.public else None,
    }


def _of_session(
    reader: LocalReader, projection: Projection[Any], session: str, row_id: tuple[str, ...]
) -> Iterator[tuple[RowId, Any]]:
    found = find_session(reader, session)
    say_position(reader, found)
    wanted = [str(part) for part in row_id]
    rows = (row for row in session_rows(found, projection.name) if not wanted or list(map(str, row[0])) == wanted)
    first = next(rows, None)
    if first is None and wanted:
        raise NotFound(
            f"session {found.session_id} has no row {' '.join(wanted)} in {projection.name}",
            todo=f"see 'dalsegno projection get {projection.name} {found.session_id}'",
            session=found.session_id,
        )
    return chain([] if first is None else [first], rows)


def _sums(reader: LocalReader, projection: Projection[Any]) -> Iterator[tuple[RowId, Any]]:
    return iter(sorted(rollup_rows(reader, projection.name).items()))


def _shown(ctx: Context, row_id: RowId, row: Any) -> dict[str, Any]:
    values = row_values(row)
    values.pop("id", None)  # of a row that says its own, which is the last part of this one
    return {"id": " ".join(map(str, row_id)) if ctx.output == "text" else list(row_id), **values}


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    """Those that hold something in any of these rows, which may have different ones."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if any(row.get(name) not in (None, "", 0, False) for row in rows)]

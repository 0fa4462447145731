"""``dalsegno session show --at``: a session as it was at one of its events."""

from __future__ import annotations

from typing import Any

import click

from dalsegno.cli.answers import row_values
from dalsegno.cli.context import Context
from dalsegno.cli.output import cell, dumps, emit
from dalsegno.cli.session_lines import json_step, step_line
from dalsegno.readers.at import session_at
from dalsegno.readers.local import LocalReader
from dalsegno.readers.sessions import SESSIONS, Found, Step
from dalsegno.state.at import SessionAt


def show_at(ctx: Context, reader: LocalReader, found: Found, seq: int, *, detailed: bool) -> None:
    """The session's row as it was then, what was open, the event, and the rows that it changed."""
    then = session_at(reader, found, seq)
    row = then.row(SESSIONS)
    session = {"session": found.session_id, **({} if row is None else row_values(row)), "position": found.view.position}
    if ctx.output == "text":
        _print(ctx, then, session, detailed)
    else:
        emit(
            ctx,
            {
                "session": session,
                "at": seq,
                "open": [{"kind": kind, "id": id} for kind, id in then.open()],
                "event": json_step(Step(then.event, then.verdict)),
                "rows": {
                    name: [{"id": list(row_id), "row": _values(then.row(name, row_id))} for row_id in ids]
                    for name, ids in then.changed.items()
                },
            },
        )


def _print(ctx: Context, then: SessionAt, session: dict[str, Any], detailed: bool) -> None:
    emit(ctx, {name: value for name, value in session.items() if value not in (None, 0, "")})
    click.echo()
    for kind, id in then.open():
        click.echo(f"  open  {kind:<12}  {cell(id)}")
    click.echo(step_line(Step(then.event, then.verdict)))
    if detailed:
        click.echo(f"        {dumps(then.event.body)}")
    for name, ids in then.changed.items():
        for row_id in ids:
            gone = "" if then.row(name, row_id) is not None else "  (gone)"
            click.echo(f"  changed  {name}  {cell(' '.join(map(str, row_id)) or then.session_id)}{gone}")


def _values(row: Any) -> dict[str, Any] | None:
    return None if row is None else row_values(row)

"""``--at SEQ|TIME``: a session as it was at one of its events, or at a time."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import click

from dalsegno.cli.answers import row_values
from dalsegno.cli.context import Context
from dalsegno.cli.numbers import seq_in
from dalsegno.cli.output import cell, dumps, emit, note
from dalsegno.cli.session_lines import json_step, step_line
from dalsegno.cli.times import micros_of, moment
from dalsegno.model.ids import SEQ_MAX
from dalsegno.model.records import FIRST_SEQ
from dalsegno.readers.at import seq_at, session_at
from dalsegno.readers.local import LocalReader
from dalsegno.readers.sessions import SESSIONS, Found, Step
from dalsegno.state.at import SessionAt

TIME_RULE: Final = "A TIME (ISO 8601, with a zone) is the last event before the first one recorded after it."


class At(NamedTuple):
    """One of them. ``micros``: since 1970."""

    seq: int | None
    micros: int | None

    def of(self, reader: LocalReader, found: Found) -> int:
        """The seq. Raises NotFound where the session began after the time."""
        if self.micros is None:
            assert self.seq is not None
            return self.seq
        seq = seq_at(reader, found, self.micros)
        note(f"at {moment(self.micros)}: seq {seq}, the last event before the first that was recorded after that time")
        return seq


class AtType(click.ParamType):
    """A seq, or a time in ISO 8601 with a zone."""

    name = "SEQ|TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> At:
        if isinstance(value, At):
            return value
        text = str(value)
        if not (text.isascii() and text.isdigit()):
            return At(None, micros_of(text))
        seq = seq_in(text)
        if seq is None:
            self.fail(f"{text} is not between {FIRST_SEQ} and {SEQ_MAX}", param, ctx)
        return At(seq, None)


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

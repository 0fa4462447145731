"""``dalsegno session tail``: records as the log has them, and as they come."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any

import click

from dalsegno.cli.common import open_reader, view_of_log, whole_id
from dalsegno.cli.completion import complete_session
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.group import parse_time
from dalsegno.cli.output import dumps, note, visible
from dalsegno.cli.session_lines import event_line, json_event, mark
from dalsegno.cli.times import in_column
from dalsegno.errors import NotFound, Usage
from dalsegno.log import admin
from dalsegno.log.follow import Follower
from dalsegno.log.topics import EVENTS, topic_name
from dalsegno.log.transport import KafkaTransport
from dalsegno.model.ids import EventKey, parse_key
from dalsegno.model.records import Event, SetAside, Tombstone, Unreadable
from dalsegno.readers.tail import BEGINNING, END, LAST, SEQ, TIME, From, Tail, Tailed

POLL_SECONDS = 0.5
_TIME_MARK = "s@"


def parse_from(text: str) -> From:
    """``beginning``, ``end``, ``-N``, a seq, or ``s@`` and a time. Raises Usage."""
    if text in (BEGINNING, END):
        return From(text)
    if text.startswith(_TIME_MARK):
        return From(TIME, parse_time(text[len(_TIME_MARK) :]))
    if re.fullmatch(r"-?[1-9][0-9]{0,17}", text):
        number = int(text)
        return From(LAST, -number) if number < 0 else From(SEQ, number)
    raise Usage(f"--from {text}", wanted="beginning, end, -N, a seq, or s@TIME", todo="correct it")


@click.command(epilog="Example: dalsegno session tail --from -20 -c 5")
@click.argument("session", required=False, shell_complete=complete_session)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until you stop it.")
@click.option(
    "--from",
    "from_",
    metavar="PLACE",
    default="-10",
    show_default=True,
    help="beginning, end, -N (the last N), a seq (of SESSION), or s@TIME (ISO 8601 with a zone).",
)
@click.option("-c", "--count", type=click.IntRange(1), help="End after so many records.")
@click.option("-e", "--exit-at-end", is_flag=True, help="End at the end of the log as it is now; without --follow: so.")
@pass_context
def tail(ctx: Context, session: str | None, follow: bool, from_: str, count: int | None, exit_at_end: bool) -> None:
    """Print the records of SESSION (its whole id), or of all sessions, straight from the log.

    A line a record, as they come, also with -o json. Nothing is committed, no group is joined.
    """
    if follow and exit_at_end:
        raise Usage("--follow and --exit-at-end", wanted="one of them", todo="leave one out")
    start = parse_from(from_)
    whole_id(session or "")
    with closing(KafkaTransport(ctx.kafka)) as transport:
        reading = _Reading(ctx, transport, session, start)
        found = reading.tailed(follow)
        printed = 0
        for each in islice(found, count):
            printed += 1
            if ctx.output != "none":
                click.echo(_text(each, session is None) if ctx.output == "text" else dumps(_json(each)))
    if session is not None and not printed and not follow and start.kind in (BEGINNING, LAST, SEQ):
        behind = f" from seq {start.number} on" if start.kind == SEQ else ""
        raise NotFound(
            f"the log holds no record of session {session}{behind}",
            wanted=f"the whole id of a session of {reading.tail.topic}",
            todo="see 'dalsegno session list'",
            session=session,
        )


class _Reading:
    def __init__(self, ctx: Context, transport: KafkaTransport, session: str | None, start: From) -> None:
        self._ctx = ctx
        with open_reader(ctx) as reader:
            by_session = session is not None and start.kind in (BEGINNING, LAST, SEQ)
            view = view_of_log(ctx, reader, str(session)) if by_session else None
            offsets_at = partial(admin.offsets_at, ctx.kafka, topic_name(ctx.prefix, EVENTS))
            self.tail = Tail(transport, ctx.prefix, session, start, offsets_at=offsets_at, view=view)

    def tailed(self, follow: bool) -> Iterator[Tailed]:
        yield from self.tail.until_now()
        if not follow:
            return
        note("following; Ctrl-C ends it")
        with Follower(self._ctx.kafka, self.tail.topic, self.tail.positions) as follower:
            while True:
                yield from self.tail.take(follower.poll(POLL_SECONDS))


def _text(found: Tailed, with_session: bool) -> str:
    key, placed = _key(found), found.placed
    session = f"{visible(key.session_id) if key is not None else '-'}  " if with_session else ""
    if isinstance(placed, Event):
        return session + event_line(placed)
    when = in_column(found.record.timestamp_ms * 1000)
    seq = "-" if key is None else str(key.seq)
    return f"{session}{seq:>6}  {when}  {mark(_what(found))}"


def _what(found: Tailed) -> str:
    placed, place = found.placed, f"{found.partition}@{found.record.offset}"
    if isinstance(placed, Tombstone):
        return f"TOMBSTONE of {placed.key.hash.hex()[:12]} ({place})"
    if isinstance(placed, Unreadable):
        return f"{placed.reason} {placed.key.hash.hex()[:12]} ({place})"
    assert isinstance(placed, SetAside)
    return f"SET ASIDE {placed.reason} ({place})"


def _json(found: Tailed) -> dict[str, Any]:
    key, placed, record = _key(found), found.placed, found.record
    where = {"partition": found.partition, "offset": record.offset, "timestamp": record.timestamp_ms}
    named = {"session": None, "seq": None, "hash": None} if key is None else key._asdict()
    if isinstance(placed, Event):
        return {**where, "session": placed.session_id, **json_event(placed)}
    if key is not None:
        named = {"session": key.session_id, "seq": key.seq, "hash": key.hash}
    return {**where, **named, "type": None, "what": _what(found).rpartition(" (")[0]}


def _key(found: Tailed) -> EventKey | None:
    return None if found.record.key is None else parse_key(found.record.key)

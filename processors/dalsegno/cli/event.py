"""``dalsegno event``: publish events from lines, and look at one."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from typing import Any

import click

from dalsegno.cli.answers import say_position
from dalsegno.cli.common import lines_of, open_reader, shard_source, view_of_log
from dalsegno.cli.completion import complete_session
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.event_text import content_at, text_lines
from dalsegno.cli.interrupts import Interrupts
from dalsegno.cli.output import emit, note, visible_lines
from dalsegno.log.line_events import Nearest, publish_lines
from dalsegno.log.publisher import Publisher
from dalsegno.model.ids import Offset
from dalsegno.readers.events import FoundEvent, find_event
from dalsegno.readers.local import LocalReader
from dalsegno.readers.sessions import find_session
from dalsegno.readers.take_back import take_back
from dalsegno.storage.blobs import Blobs

_PUBLISHED = ("session_id", "events", "first_seq", "last_seq", "resumed", "violations")
_TAKEN = ("session_id", "records", "schemas", "partition", "amendments")


@click.group(epilog="Example: dalsegno event show last 1")
def command() -> None:
    """Publish events, and look at one."""


@command.command(epilog="Example: dalsegno event publish events.jsonl")
@click.argument("file", metavar="FILE|-")
@click.option("--records", is_flag=True, help="FILE is an export of records: publish its bytes as they are.")
@pass_context
def publish(ctx: Context, file: str, records: bool) -> None:
    """Publish the lines of FILE; '-' is stdin. Each is {"type": ..., "session_id": ..., "fields": {...}}.

    A session begins with its SessionCreated; one that is in the log already is taken over. A line that is refused ends
    the command, which says what was acknowledged before it.
    """
    with lines_of(file) as lines, open_reader(ctx) as reader, _publisher(ctx) as publisher:
        nearest = partial(_nearest, ctx, reader)
        if not records:
            source = shard_source(ctx)
            with Interrupts().caught() as interrupts:
                done = publish_lines(
                    publisher, lines, file, source=source, nearest=nearest, tell=note, whole=interrupts.whole
                )
            emit(ctx, [asdict(each) for each in done], _PUBLISHED)
            if not done:
                note(f"no line in {file}: nothing was published")
            return
        taken = take_back(publisher, lines, file, source=shard_source(ctx), nearest=nearest)
    emit(ctx, [asdict(each) for each in taken], _TAKEN)
    amended = sum(each.amendments for each in taken)
    if amended:
        note(f"{amended} of the records are amendments, whose requests are in the audit of the prefix they come from")


def _publisher(ctx: Context) -> Publisher:
    return Publisher(ctx.kafka, prefix=ctx.prefix, blobs=Blobs(ctx.store))


def _nearest(ctx: Context, reader: LocalReader, session_id: str) -> Nearest | None:
    """The session's partition as it is known here, if that is of this log."""
    view = view_of_log(ctx, reader, session_id)
    if view is None:
        return None
    return Nearest(Offset(view.cursor.next_offset), lambda each: view.reads.head(each) is not None)


@command.command(epilog="Example: dalsegno event show last 1 -o json")
@click.argument("session", shell_complete=complete_session)
@click.argument("event", metavar="SEQ|HASH")
@click.option(
    "--content", metavar="FIELD", help="Write only the bytes of this content, such as result or parts.0.blob."
)
@pass_context
def show(ctx: Context, session: str, event: str, content: str | None) -> None:
    """Show one event whole: SESSION is an id, the beginning of one, or 'last'; SEQ is of its path, HASH (or at least
    six characters of it) of any of its records. Seq 0 is its amendment, if it has one."""
    with open_reader(ctx) as reader:
        found = find_session(reader, session)
        shown = find_event(reader, found, event)
        if content is not None:
            _write(content_at(shown.event.body, content, Blobs(ctx.store)))
        elif ctx.output == "text":
            click.echo("\n".join(text_lines(_lines(shown))))
        else:
            emit(ctx, _whole(shown))
        say_position(reader, found)


def _whole(found: FoundEvent) -> dict[str, Any]:
    event = found.event
    return {
        "session": event.session_id,
        "seq": event.seq,
        "type": event.type,
        "hash": event.hash,
        "prev_hash": event.prev_hash,
        "epoch": event.epoch,
        "place": found.place,
        "stub": event.stub,
        "schema": found.schema,
        "schema_hash": found.schema_hash,
        "partition": found.partition,
        "offset": found.offset,
        "event": event.body,
    }


def _write(content: bytes) -> None:
    """As it is; on a terminal, which it must not act on, as text."""
    if sys.stdout.isatty():
        click.echo(visible_lines(content.decode("utf-8", "replace")))
    else:
        click.get_binary_stream("stdout").write(content)


def _lines(found: FoundEvent) -> dict[str, Any]:
    """What is known of the record, its envelope, and its payload."""
    row = _whole(found)
    body = row.pop("event")
    meta = {name: value for name, value in body.get("meta", {}).items() if name not in _PLACING}
    return {**row, "meta": meta, **{name: value for name, value in body.items() if name != "meta"}}


_PLACING = frozenset({"session_id", "seq", "epoch", "prev_hash"})

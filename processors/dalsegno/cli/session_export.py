"""``dalsegno session export``: a session as lines, to keep, to prove, to publish elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from dalsegno.cli.answers import say_position
from dalsegno.cli.common import open_reader
from dalsegno.cli.completion import complete_session
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.output import dumps, note
from dalsegno.errors import Usage
from dalsegno.log.line_events import OF_THE_LIBRARY
from dalsegno.readers.export import export_lines
from dalsegno.readers.local import LocalReader
from dalsegno.readers.sessions import Found, find_session, steps
from dalsegno.storage.object_store import os_errors

RECORDS = "records"


@click.command(epilog="Example: dalsegno session export last --format json --output session.jsonl")
@click.argument("session", shell_complete=complete_session)
@click.option(
    "--format",
    "format_",
    type=click.Choice([RECORDS, "json"]),
    default=RECORDS,
    show_default=True,
    help="records: keys and bytes as the log has them, with their schemas; json: the events of the path, for new ones.",
)
@click.option("--output", metavar="FILE", default="-", show_default=True, help="Where to; '-' is stdout.")
@pass_context
def export(ctx: Context, session: str, format_: str, output: str) -> None:
    """Export a session as JSON lines. SESSION is an id, the beginning of one, or 'last'.

    What comes out as records can be proved ('dalsegno session verify --records') and goes back byte for byte
    ('dalsegno event publish --records'); what comes out as json is what 'dalsegno event publish' makes new events of.
    """
    with open_reader(ctx) as reader:
        found = find_session(reader, session)
        lines = export_lines(reader, found.view, found.session_id) if format_ == RECORDS else _events(reader, found)
        with _sink(output) as sink:
            for line in lines:
                sink.write(line.encode("utf-8"))
        say_position(reader, found)


def _events(reader: LocalReader, found: Found) -> Iterator[str]:
    """The events of the path without their envelopes; without those that the library writes by itself."""
    left_out: dict[str, int] = {}
    for event, _ in steps(reader, found):
        if event.stub is not None or event.type in OF_THE_LIBRARY or not event.known:
            what = f"amended ({event.stub})" if event.stub is not None else event.type
            left_out[what] = left_out.get(what, 0) + 1
            continue
        fields = {name: value for name, value in event.body.items() if name != "meta"}
        yield dumps({"type": event.type, "session_id": found.session_id, "fields": fields}) + "\n"
    if left_out:
        note(f"left out: {', '.join(f'{count} {what}' for what, count in sorted(left_out.items()))}")


@contextmanager
def _sink(output: str) -> Iterator[BinaryIO]:
    """A file appears under its name only when it is whole; a pipe or a device is written to."""
    if output == "-":
        if sys.stdout is None:  # the shell's >&-
            raise Usage("stdout is closed", wanted="a place for the lines", todo="name a file: --output FILE")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(output)
    part = path.with_name(f"{path.name}.part")
    with os_errors(f"write {output}"):
        if path.exists() and not path.is_file():
            with path.open("wb") as sink:
                yield sink
            return
        try:
            with part.open("wb") as sink:
                yield sink
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

"""``dalsegno golden``: what was decided, in a file to review and to keep, and whether it is decided so still."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click

from dalsegno.cli.bisect_exit import Judged, bisect_exit
from dalsegno.cli.common import confirm
from dalsegno.cli.completion import complete_session
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.golden_source import Decided, Source, decided, from_source, session_option
from dalsegno.cli.output import cell, dumps, emit, note, visible
from dalsegno.errors import Conflict, Failed, NegativeVerdict, NotFound, Usage
from dalsegno.replay.golden import GoldenDifference, Line, compare, read, written
from dalsegno.storage.files import write_atomically
from dalsegno.storage.object_store import os_errors

_LINES_SHOWN: Final = 40
_LINE_CHARACTERS: Final = 240

_file = click.argument("file", type=click.Path(path_type=Path))


@click.group(epilog="Example: dalsegno golden record s-1 --output triage.jsonl")
def command() -> None:
    """Keep what a session decided in a file, and find out by which change it is decided otherwise: no model is asked,
    and no tool runs but a simulation's with --execute."""


@command.command("record", epilog="Example: dalsegno golden record s-1 --output triage.jsonl")
@click.argument("session", required=False, shell_complete=complete_session)
@click.option("--output", required=True, type=click.Path(path_type=Path), metavar="FILE", help="Where to; a new file.")
@from_source
@pass_context
def record(ctx: Context, source: Source, output: Path) -> None:
    """Write down the decisions of SESSION (an id, the beginning of one, or 'last'), or of a simulation (--workflow).

    Refused are sessions that no decider of dalsegno decided, that are held or amended, whose compressions say only that
    they happened, and replays in which results were served inexactly.
    """
    if output.exists():
        raise Conflict(
            f"{output} is there already",
            wanted="a new file",
            todo=f"'dalsegno golden update {output}' shows what changes",
        )
    found = decided(ctx, source, None)
    lines = found.lines if found.recorded is None else found.recorded
    _write(output, lines, found.session)
    _say(ctx, {"file": str(output), "session": found.session, "decisions": _decisions(lines), "written": True})
    if found.recorded is not None and (other := compare(found.recorded, found.lines)) is not None:
        note(f"this build decides it otherwise already: {other}")


@command.command("check", epilog="Example: dalsegno golden check triage.jsonl --session s-1")
@_file
@session_option
@from_source
@bisect_exit
@pass_context
def check(ctx: Context, source: Source, file: Path) -> None:
    """Decide again what FILE was recorded of, with this build, and compare the decisions with it.

    A session is decided from its recorded facts, found on this machine; --workflow simulates one without any log.
    Exit code 0: the same · 3: another one; the first that differs is named.
    """
    expected = _read(file)
    found = decided(ctx, source, expected[0].get("session"))
    difference = compare(expected, found.lines)
    _say(ctx, _answer(file, found, difference))
    if ctx.output == "text" and difference is not None:
        _print(difference)
    raise Judged(differs=difference is not None, code=0 if difference is None else NegativeVerdict.exit_code)


@command.command("update", epilog="Example: dalsegno golden update triage.jsonl --session s-1 --yes")
@_file
@session_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@from_source
@pass_context
def update(ctx: Context, source: Source, file: Path, yes: bool) -> None:
    """Write FILE anew, with what this build decides, after showing what changes in it (on stderr) and asking."""
    before = _read(file)
    found = decided(ctx, source, before[0].get("session"))
    difference = compare(before, found.lines)
    answer = {**_answer(file, found, difference), "written": difference is not None}
    if difference is None:
        _say(ctx, answer)
        return
    for line in _changes(before, found.lines):
        note(line)
    confirm(f"Write {file} anew?", name=file.name, records=0, yes=yes)
    _write(file, found.lines, found.session)
    _say(ctx, answer)


# --- files ------------------------------------------------------------------------------------------------------------


def _read(file: Path) -> list[Line]:
    try:
        return read(file.read_bytes(), str(file))
    except FileNotFoundError:
        raise NotFound(f"there is no file {file}", todo="'dalsegno golden record' writes one") from None
    except OSError as error:
        raise Failed(f"could not read {file}: {error.strerror}", todo="name a file that can be read") from error


def _write(file: Path, lines: list[Line], session: str | None) -> None:
    head = lines[0] if session is None else {**lines[0], "session": session}
    if not file.parent.is_dir():
        raise Usage(
            f"there is no folder {file.parent}", wanted="a folder that is there", todo="make it, or name another"
        )
    with os_errors(f"write {file}"):
        write_atomically(file, written([head, *lines[1:]]))


# --- telling ----------------------------------------------------------------------------------------------------------


def _decisions(lines: list[Line]) -> int:
    return int(lines[-1]["end"])


def _answer(file: Path, found: Decided, difference: GoldenDifference | None) -> dict[str, Any]:
    return {
        "file": str(file),
        "session": found.session,
        "decisions": _decisions(found.lines),
        "same": difference is None,
        "stopped": found.stopped,
        "difference": None if difference is None else _data(difference),
    }


def _data(difference: GoldenDifference) -> dict[str, Any]:
    led_to = difference.led_to
    return {**difference._asdict(), "led_to": None if led_to is None else _data(led_to)}


def _say(ctx: Context, answer: dict[str, Any]) -> None:
    if ctx.output == "text":
        shown = {name: value for name, value in answer.items() if name != "difference" and value is not None}
        emit(ctx, shown)
    else:
        emit(ctx, answer)


def _print(difference: GoldenDifference) -> None:
    for each in (difference, difference.led_to):
        if each is not None:
            click.echo(visible(f"line {each.line}: {each.what}"))
    if difference.more:
        click.echo(f"and {difference.more} more lines differ")


def _changes(before: list[Line], after: list[Line]) -> Iterator[str]:
    """Lines that go and lines that come, as a review of the file would show them; how many more."""
    old, new = ([dumps({**lines[0], "session": None}), *map(dumps, lines[1:])] for lines in (before, after))
    changes = [line for line in unified_diff(old, new, lineterm="", n=0) if line[:2] in ("-{", "+{")]
    for line in islice(changes, _LINES_SHOWN):
        yield cell(line, _LINE_CHARACTERS)
    if len(changes) > _LINES_SHOWN:
        yield f"and {len(changes) - _LINES_SHOWN} more lines"

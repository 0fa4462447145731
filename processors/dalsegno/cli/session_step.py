"""``dalsegno session step``: a session stepped through in a terminal, or by commands from a pipe."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import click

from dalsegno.cli.answers import say_position
from dalsegno.cli.common import lines_of, open_reader
from dalsegno.cli.completion import complete_session
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.output import dumps, note
from dalsegno.cli.session_at import TIME_RULE, At, AtType
from dalsegno.cli.step_views import VIEWS, View, breakpoints_view, moved_view, pack_view
from dalsegno.errors import DalsegnoError, Usage
from dalsegno.model.records import FIRST_SEQ
from dalsegno.readers.breakpoints import parse_breakpoint
from dalsegno.readers.sessions import find_session
from dalsegno.readers.stepping import Step, Stepper, open_stepper

_HELP = """\
n [COUNT]          the next event             b [COUNT]          the one before
: SEQ              to a seq                   t TYPE  T TYPE     to the next, the previous event of a type
c                  on to a breakpoint         C                  back to a breakpoint
break type TYPE | tool NAME | seq N | when CEL                   set one; 'break' alone lists them
clear [N]          take one breakpoint away, or all
event  state  pack  validations                                  show what is so here
help  q            an empty line repeats the last move"""
_MOVES = frozenset({"n", "b", "t", "T", "c", "C"})
_END = "q"


class _Command(NamedTuple):
    text: str
    name: str
    rest: str


def parse_command(line: str) -> _Command:
    """The word in front, and the rest; ``:12`` is ``: 12``."""
    text = line.strip()
    if text.startswith(":"):
        return _Command(text, ":", text[1:].strip())
    name, _, rest = text.partition(" ")
    return _Command(text, name, rest.strip())


class Session:
    """Carries out commands on a stepper, and gives what each has to show."""

    def __init__(self, stepper: Stepper) -> None:
        self.stepper = stepper

    def do(self, command: _Command) -> View:
        """Raises Usage, NotFound; then it stands where it stood."""
        name, rest, stepper = command.name, command.rest, self.stepper
        if name in ("n", "b"):
            return self._by(_number(command, rest or "1") * (1 if name == "n" else -1))
        if name == ":":
            return moved_view(stepper.to(_number(command, rest)), moved=True)
        if name in ("t", "T"):
            if not rest:
                raise Usage(f"{name} without a type", wanted=f"{name} TYPE, such as {name} ToolCallRequested")
            return self._moved((stepper.to_next if name == "t" else stepper.to_previous)(rest))
        if rest and name not in ("break", "clear"):
            raise Usage(f"{command.text!r}", wanted=f"'{name}' alone", todo="see 'help'")
        if name in ("c", "C"):
            if not stepper.breakpoints:
                raise Usage(f"{name} without a breakpoint", wanted="one at least", todo="set one: break type TYPE")
            return self._moved(stepper.continue_(backwards=name == "C"))
        if name in ("break", "clear"):
            return self._breakpoints(command)
        if name == "help":
            return View({"help": _HELP}, _HELP.split("\n"))
        if name == "pack":
            return pack_view(stepper.step, stepper.pack())
        view = VIEWS.get(name)
        if view is None:
            raise Usage(f"no command {name!r}", wanted="n b : t T c C break clear event state pack validations help q")
        return view(stepper.step)

    def _moved(self, step: Step | None) -> View:
        return moved_view(step or self.stepper.step, moved=step is not None, told=_untold(self.stepper))

    def _by(self, count: int) -> View:
        """So many events on, or as far as the path goes."""
        stepper = self.stepper
        seq = min(max(stepper.seq + count, FIRST_SEQ), stepper.end)
        moved = seq != stepper.seq
        return moved_view(stepper.to(seq), moved=moved)

    def _breakpoints(self, command: _Command) -> View:
        known, rest = self.stepper.breakpoints, command.rest
        if command.name == "break" and rest:
            known.append(parse_breakpoint(rest))
        elif command.name == "clear":
            number = _number(command, rest) if rest else None
            if number is not None and not 1 <= number <= len(known):
                raise Usage(f"no breakpoint {number}", wanted=f"1 to {len(known)}" if known else "one that was set")
            del known[slice(None) if number is None else slice(number - 1, number)]
        return breakpoints_view(self.stepper.step, known)


def _number(command: _Command, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise Usage(f"{command.text!r}", wanted=f"{command.name} and a whole number", todo="see 'help'")
    return int(text)


def _untold(stepper: Stepper) -> list[str]:
    """What breakpoints could not tell since they were asked last."""
    found = []
    for each in stepper.breakpoints:
        found += [f"{each.text}: {why} (at {count} events)" for why, count in each.errors.items()]
        each.errors.clear()
    return found


@click.command(epilog="Example: dalsegno session step last --commands 't ToolCallRequested;pack;b'")
@click.argument("session", shell_complete=complete_session)
@click.option("--at", type=AtType(), default="1", show_default=True, help=f"Begin at this event. {TIME_RULE}")
@click.option("--commands", metavar="'C;C;...'", help="Carry these out, and end; without it they come from stdin.")
@pass_context
def step(ctx: Context, session: str, at: At, commands: str | None) -> None:
    """Step through SESSION (an id, the beginning of one, or 'last') event by event, forward and back.

    In a terminal it asks for commands; 'help' lists them. From a pipe it takes a command a line, and with -o json it
    prints an object a line, one per command. There a command that fails ends it.
    """
    with open_reader(ctx) as reader:
        found = find_session(reader, session)
        stepping = Session(open_stepper(reader, found, at.of(reader, found)))
        if commands is None and sys.stdin is not None and sys.stdin.isatty():
            _converse(ctx, stepping)
        else:
            given = _piped() if commands is None else iter(commands.split(";"))
            for command in _until_end(given):
                _show(ctx, command, stepping.do(command))
        say_position(reader, found)


def _piped() -> Iterator[str]:
    with lines_of("-") as lines:
        for line in lines:
            yield line.decode("utf-8", "replace")


def _until_end(lines: Iterator[str]) -> Iterator[_Command]:
    for line in lines:
        command = parse_command(line)
        if command.name == _END:
            return
        if command.text:
            yield command


def _converse(ctx: Context, stepping: Session) -> None:
    """A failure is said, and the next command asked for."""
    _show(ctx, parse_command(""), moved_view(stepping.stepper.step, moved=False))
    last = parse_command("n")
    while True:
        click.echo(f"{stepping.stepper.seq}/{stepping.stepper.end}> ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            click.echo(err=True)
            return
        command = parse_command(line) if line.strip() else last
        if command.name == _END:
            return
        try:
            _show(ctx, command, stepping.do(command))
        except DalsegnoError as error:
            note(str(error))
        else:
            last = command if command.name in _MOVES else last


def _show(ctx: Context, command: _Command, view: View) -> None:
    if ctx.output == "text":
        for line in view.lines:
            click.echo(line)
    elif ctx.output != "none":
        data: dict[str, Any] = {"command": command.text, **view.data}
        click.echo(dumps(data))

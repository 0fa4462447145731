"""Where ``dalsegno golden`` takes the decisions from that it records or checks: a recorded session, or a simulation."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from dalsegno.cli.answers import say_position
from dalsegno.cli.common import open_reader
from dalsegno.cli.completion import complete_session
from dalsegno.cli.context import Context
from dalsegno.cli.output import note
from dalsegno.cli.session_fork import parse_label
from dalsegno.errors import Usage
from dalsegno.harness.opening import Options, open_ports
from dalsegno.harness.past import StoredContents
from dalsegno.harness.performing import PROVIDER_DEFAULT
from dalsegno.model.events import ApprovalDenied, ApprovalGranted, NewEvent
from dalsegno.orchestration.decider import World
from dalsegno.projections.decider.rows import APPROVAL
from dalsegno.readers.golden_source import golden_history
from dalsegno.readers.sessions import find_session
from dalsegno.replay.again import decide_again
from dalsegno.replay.golden import Line, lines_of
from dalsegno.storage.blobs import Blobs
from dalsegno.testing.simulation import simulate

_SIMULATION: Final = (
    click.option("--workflow", metavar="FILE", type=click.Path(path_type=Path), help="Simulate this workflow."),
    click.option("--goal", metavar="TEXT", help="Of the simulated session."),
    click.option(
        "--script", metavar="FILE", type=click.Path(path_type=Path), help="What its models answer, as scripted:FILE."
    ),
    click.option("--tools", multiple=True, metavar="CODE", help="A Python file, or module:name; repeatable."),
    click.option(
        "--execute", is_flag=True, help="Run the tools' code, here, with its effects; else their simulations answer."
    ),
    click.option(
        "--reporter", "reporters", multiple=True, metavar="NAME=KIND:VALUE", help="As of 'dalsegno run'; repeatable."
    ),
    click.option("--files", type=click.Path(path_type=Path), help="The folder that stages fetch files from."),
    click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Of the simulated session; repeatable."),
    click.option(
        "--approvals",
        type=click.Choice(["grant", "deny"]),
        help="What people answer (default: nothing; with --execute: deny).",
    ),
)


class Source(NamedTuple):
    """A session's id (None: the one that the file names), or a simulation's options."""

    session: str | None
    allow_tainted: bool
    workflow: Path | None
    goal: str | None
    script: Path | None
    tools: tuple[str, ...]
    execute: bool
    reporters: tuple[str, ...]
    files: Path | None
    labels: tuple[str, ...]
    approvals: str | None

    @property
    def simulated(self) -> bool:
        return self.workflow is not None


class Decided(NamedTuple):
    """``lines`` of what this build decides; ``recorded`` of what the session did, None of a simulation; ``session``:
    where they are from; ``stopped``: why there was no end."""

    lines: list[Line]
    recorded: list[Line] | None
    session: str | None
    stopped: str | None


def from_source(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options; the command, which must have a parameter ``session``, is given one ``source`` for all."""

    @wraps(command)
    def with_source(*arguments: Any, **options: Any) -> Any:
        source = Source(**{name: options.pop(name) for name in Source._fields})
        return command(*arguments, source=source, **options)

    made: Callable[..., Any] = with_source
    for option in reversed(_SIMULATION):
        made = option(made)
    return click.option("--allow-tainted", is_flag=True, help="Also a replay in which results were served inexactly.")(
        made
    )


session_option = click.option(
    "--session",
    metavar="ID",
    shell_complete=complete_session,
    help="Decide this one again (default: the recorded one).",
)


def decided(ctx: Context, source: Source, hint: str | None) -> Decided:
    """``hint``: the session that a reference was recorded of. Raises Usage, Conflict, NotFound, InvalidDocument,
    and what simulated code raises."""
    _check(source)
    if source.simulated:
        return _simulated(source)
    name = source.session or hint
    if name is None:
        raise Usage(
            "nothing is named that could be decided",
            wanted="a session, or --workflow with --script and --goal",
            todo="add --session ID",
        )
    with open_reader(ctx) as reader:
        found = find_session(reader, name)
        history = golden_history(reader, found, allow_tainted=source.allow_tainted)
        events, run = decide_again(history, StoredContents(Blobs(ctx.store)))
        say_position(reader, found)
    return Decided(lines_of(events), lines_of(history), found.session_id, run.stopped)


def _check(source: Source) -> None:
    if source.simulated:
        missing = [f"--{name}" for name in ("goal", "script") if getattr(source, name) is None]
        if missing:
            raise Usage(f"--workflow without {' and '.join(missing)}", wanted="both", todo="add it")
        if source.session is not None:
            raise Usage("--workflow and a session", wanted="one of them", todo="leave one out")
        return
    given = [name for name in Source._fields[3:] if getattr(source, name)]
    if given:
        raise Usage(f"{', '.join(given)} without --workflow", wanted="a simulation", todo="add --workflow FILE")


def _simulated(source: Source) -> Decided:
    assert source.workflow is not None
    assert source.goal is not None
    opened = open_ports(
        Options(
            tools=source.tools,
            providers=[f"scripted:{source.script}"],
            reporters=source.reporters,
            files=source.files,
        )
    )
    simulation = simulate(
        source.workflow,
        goal=source.goal,
        script=opened.ports.providers[PROVIDER_DEFAULT],
        tools=opened.tools,
        people=_ANSWERS[source.approvals],
        reporters=opened.ports.reporters,
        retriever=opened.ports.retriever,
        labels={label.key: label.value for label in map(parse_label, source.labels)},
        execute=source.execute,
    )
    if simulation.stopped is not None:
        note(f"the simulation stopped before the session's end: {simulation.stopped}")
    return Decided(lines_of(simulation.events), None, None, simulation.stopped)


def _granting(world: World) -> NewEvent | None:
    for id, approval in _open_approvals(world):
        return ApprovalGranted(approval_id=id, scope="ONCE", arguments_digest=approval.arguments)
    return None


def _denying(world: World) -> NewEvent | None:
    for id, _ in _open_approvals(world):
        return ApprovalDenied(approval_id=id, effect="CONTINUE", rejection_source="USER")
    return None


def _open_approvals(world: World) -> list[tuple[str, Any]]:
    return [(id, each) for id, each in sorted(world.rows.family(APPROVAL).items()) if each.phase == "OPEN"]


_ANSWERS: Final = {"grant": _granting, "deny": _denying, None: None}

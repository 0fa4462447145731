"""``dalsegno run`` and ``dalsegno session resume``: sessions that are decided and carried out here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from dalsegno.cli.common import whole_id
from dalsegno.cli.completion import complete_session
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.numbers import Amount
from dalsegno.cli.session_fork import parse_label

_PORT_OPTIONS = (
    click.option("--tools", multiple=True, metavar="CODE", help="Tools: a Python file, or module:name; repeatable."),
    click.option(
        "--provider",
        "providers",
        multiple=True,
        metavar="[NAME=]KIND:VALUE",
        help="Who answers agents of provider NAME (without it: all others): scripted:FILE, openai:URL, or KIND:FILE of "
        "settings; repeatable.",
    ),
    click.option(
        "--reporter",
        "reporters",
        multiple=True,
        metavar="NAME=KIND:VALUE",
        help="Who reports verdicts as NAME: program:COMMAND, FILE.py:function, or KIND:FILE of settings; repeatable.",
    ),
    click.option(
        "--files",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="The folder that stages fetch files from.",
    ),
    click.option("--workflow", "workflows", multiple=True, metavar="NAME=FILE", help="Of sub-sessions; repeatable."),
    click.option(
        "--wait",
        "wait_seconds",
        type=Amount(0),
        metavar="SECONDS",
        help="How long to wait for people where nothing else is left to do (default: for ever); then exit code 6.",
    ),
    click.option(
        "--act-in-fork",
        is_flag=True,
        help="Go on also with a fork in which something is tried (debug, dataset, what-if): its tools really run.",
    ),
)
"""What carries out a session's decisions; the same for a new one and for one that goes on."""


def port_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_PORT_OPTIONS):
        command = option(command)
    return command


@click.command(
    epilog="Example: dalsegno run examples/triage/workflow.yaml --goal 'clear the desk' "
    "--tools examples/triage/tools.py --provider scripted:examples/triage/script.yaml"
)
@click.argument("workflow", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--goal", required=True, help="What the session is for; agents are told.")
@click.option("--session", "session_id", help="The session's id (default: a new one). One that is there goes on.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label of the session; repeatable.")
@click.option(
    "--seed", type=click.IntRange(-(2**63), 2**63 - 1), metavar="NUMBER", help="Recorded as the session's seed."
)
@port_options
@pass_context
def command(
    ctx: Context,
    /,
    workflow: Path,
    goal: str,
    session_id: str | None,
    labels: tuple[str, ...],
    seed: int | None,
    wait_seconds: float | None,
    act_in_fork: bool,
    **ports: Any,
) -> int:
    """Run WORKFLOW (a YAML file) as a session: decide, append, act, append, until it ends.

    What happens is told on stderr, a line each; how it ended is the data on stdout. A session that is in the log
    already goes on where it was, with the configuration that it was begun with.

    Exit code 0: it succeeded; 1: it failed; 3: it gave up, or was cancelled; 6: it waits for people; 130: interrupted.
    The first Ctrl-C (or SIGTERM) begins nothing more and waits for what is under way, the second one does not wait.
    """
    from dalsegno.cli.running import run_workflow

    named = [parse_label(each) for each in labels]
    given = None if session_id is None else whole_id(session_id)
    return run_workflow(ctx, workflow, goal, given, named, seed, wait_seconds, ports, act_in_fork=act_in_fork)


@click.command(
    epilog="Example: dalsegno session resume s-1 --tools tools.py --provider openai:http://localhost:8000/v1"
)
@click.argument("session", shell_complete=complete_session)
@port_options
@pass_context
def resume(ctx: Context, /, session: str, wait_seconds: float | None, act_in_fork: bool, **ports: Any) -> int:
    """Go on with SESSION (its whole id), whose harness has ended: as 'dalsegno run', with the configuration in its log.

    What was under way is resolved once: models are asked again; a tool that may have had an effect, and honours no
    idempotency key, is not run again: its outcome is unknown until somebody hands in its receipt by
    'dalsegno tool receipt'.

    A fork in which something is tried, such as 'dalsegno replay run --mode full' writes, is refused: with
    --act-in-fork its tools and models really run.
    """
    from dalsegno.cli.running import resume_session

    return resume_session(ctx, whole_id(session), wait_seconds, ports, act_in_fork=act_in_fork)

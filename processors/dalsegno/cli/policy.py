"""``dalsegno policy``: what policies would have done to recorded tool calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import click

from dalsegno.cli.answers import say_positions
from dalsegno.cli.choosing import choosing
from dalsegno.cli.common import open_reader
from dalsegno.cli.completion import complete_session
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.output import emit, note, visible
from dalsegno.errors import NegativeVerdict
from dalsegno.harness.files import load_policy
from dalsegno.orchestration.policy_effects import (
    APPROVAL_ADDED,
    APPROVAL_SAVED,
    DECISIONS,
    INTRODUCED_BLOCK,
    REMOVED_BLOCK,
    Backtest,
    Coverage,
    Difference,
)
from dalsegno.orchestration.policy_history import RecordedCall
from dalsegno.readers.datasets.choosing import Wanted
from dalsegno.readers.policy_calls import RecordedCalls
from dalsegno.storage.blobs import Blobs

_TELL_EVERY = 1_000
_DEFAULT = "(default)"
_DIGEST_CHARACTERS = 12
_PHRASES = {
    INTRODUCED_BLOCK: ("introduced block", "introduced blocks"),
    REMOVED_BLOCK: ("removed block", "removed blocks"),
    APPROVAL_SAVED: ("approval saved", "approvals saved"),
    APPROVAL_ADDED: ("approval added", "approvals added"),
}

_file = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
_sessions = click.argument("sessions", nargs=-1, shell_complete=complete_session)
_examples = click.option(
    "--limit-examples", type=click.IntRange(0, 1_000), default=3, show_default=True, help="Calls to name of each kind."
)


class Tally(Protocol):
    def add(self, call: RecordedCall) -> None: ...

    def as_data(self) -> dict[str, Any]: ...


@click.group(epilog="Example: dalsegno policy backtest policy.yaml --workflow triage")
def command() -> None:
    """Try policies on the tool calls of recorded sessions: no model is asked, no tool runs, nothing is written."""


@command.command("backtest", epilog="Example: dalsegno policy backtest policy.yaml --status COMPLETED -o json")
@_file
@_sessions
@choosing
@_examples
@pass_context
def backtest(ctx: Context, wanted: Wanted, file: Path, limit_examples: int) -> None:
    """What each rule of FILE would have matched and decided in SESSIONS, or in all that the options choose, and what
    would be other than it was."""
    _try_on(ctx, wanted, Backtest(load_policy(file), limit_examples), ("rules", "cells"), _print_backtest)


@command.command("diff", epilog="Example: dalsegno policy diff policy.yaml stricter.yaml --limit 100")
@_file
@click.argument("other", metavar="OTHER", type=click.Path(path_type=Path))
@_sessions
@choosing
@_examples
@pass_context
def diff(ctx: Context, wanted: Wanted, file: Path, other: Path, limit_examples: int) -> None:
    """Which recorded calls the policies FILE and OTHER decide differently, and by which rule of each.

    Exit code 0: none · 3: some.
    """
    difference = Difference(load_policy(file), load_policy(other), limit_examples)
    _try_on(ctx, wanted, difference, ("groups",), _print_difference)
    if difference.different:
        raise click.exceptions.Exit(NegativeVerdict.exit_code)


@command.command("coverage", epilog="Example: dalsegno policy coverage policy.yaml --label team=support")
@_file
@_sessions
@choosing
@_examples
@pass_context
def coverage(ctx: Context, wanted: Wanted, file: Path, limit_examples: int) -> None:
    """How many recorded calls no rule of FILE decides, by tool, and which rules match no call."""
    _try_on(ctx, wanted, Coverage(load_policy(file), limit_examples), ("tools", "never_matched"), _print_coverage)


def _try_on(
    ctx: Context,
    wanted: Wanted,
    tally: Tally,
    lists: Sequence[str],
    show: Callable[[Context, Mapping[str, Any]], None],
) -> None:
    def tell(done: int) -> None:
        if done % _TELL_EVERY == 0:
            note(f"{done} sessions")

    with open_reader(ctx) as reader:
        calls = RecordedCalls(reader, Blobs(ctx.store), wanted, tell)
        for call in calls:
            tally.add(call)
        data = {"sessions": calls.sessions, "held": calls.held, **tally.as_data()}
        if ctx.output == "text":
            show(ctx, data)
        elif ctx.output == "jsonl":
            head = {name: value for name, value in data.items() if name not in lists}
            emit(ctx, [{"of": "summary", **head}, *({"of": name, **each} for name in lists for each in data[name])])
        else:
            emit(ctx, data)
        if calls.held:
            note(f"{calls.held} sessions are held: read up to there")
        say_positions(reader)


# --- for people -------------------------------------------------------------------------------------------------------


def _print_backtest(ctx: Context, data: Mapping[str, Any]) -> None:
    _print_head(data, "policy")
    recorded = data["recorded"]
    if recorded["same"] or recorded["other"]:
        others = _counted(data["recorded_other"])
        click.echo(
            f"as recorded: {recorded['same']} decisions, otherwise: {recorded['other']}"
            + (f" ({others})" if others else "")
        )
    if recorded["inputs_same"] or recorded["inputs_other"]:
        click.echo(f"inputs as recorded: {recorded['inputs_same']}, others: {recorded['inputs_other']}")
    click.echo(", ".join(_change(name, number) for name, number in data["changes"].items()))
    click.echo()
    rules = [
        {"rule": _rule(each), "matched": each["matched"], **each["decided"], "errors": each["errors"]}
        for each in data["rules"]
    ]
    emit(ctx, rules, ["rule", "matched", *DECISIONS, "errors"])
    for each in data["cells"]:
        named = "" if each["change"] is None else f": {_PHRASES[each['change']][0]}"
        _print_cell(f"{each['then']}, now {each['now']}{named}", each)


def _print_difference(_: Context, data: Mapping[str, Any]) -> None:
    _print_head(data, "a", "b")
    click.echo(f"{data['different']} decided differently")
    for each in data["groups"]:
        a, b = (f"{each[side]} by {_rule(each, f'rule_{side}')}" for side in "ab")
        what = "" if each["differs"] == "decision" else f": another {each['differs']}"
        _print_cell(f"{a} -> {b}{what}", each)


def _print_coverage(ctx: Context, data: Mapping[str, Any]) -> None:
    _print_head(data, "policy")
    percent = "" if data["uncovered_percent"] is None else f" ({data['uncovered_percent']} %)"
    click.echo(f"{data['uncovered']} calls{percent} are decided by the default")
    click.echo()
    emit(ctx, data["tools"], ["tool", "calls", "uncovered", "uncovered_percent"])
    for each in data["tools"]:
        if each["examples"]:
            _print_cell(f"{each['tool']}, by the default", {**each, "calls": each["uncovered"]})
    if data["never_matched"]:
        click.echo()
        click.echo("rules that match no call")
        emit(ctx, data["never_matched"], ["rule", "looked_at", "errors"])


def _print_head(data: Mapping[str, Any], *policies: str) -> None:
    for name in policies:
        of = data[name]
        title = "policy" if name == "policy" else f"policy {name.upper()}"
        digest = of["digest"][:_DIGEST_CHARACTERS]
        click.echo(visible(f"{title}  {of['name']} {of['version']}, {of['rules']} rules, sha256 {digest}"))
    apart = _counted(data["not_evaluated"])
    click.echo(
        f"{data['calls']} calls of {data['sessions']} sessions" + (f"; not for a policy: {apart}" if apart else "")
    )
    missing = ", ".join(f"{name} of {number}" for name, number in data["missing"].items() if number)
    if missing:
        click.echo(f"not recorded, so empty or UNKNOWN: {missing}")


def _print_cell(title: str, cell: Mapping[str, Any]) -> None:
    click.echo()
    click.echo(visible(f"{cell['calls']}  {title}"))
    for each in cell["examples"]:
        place = f"{each['session']} @ {each['seq']}"
        click.echo(visible(f"    {place}  {each['call']}  {each['tool']} {each['arguments']}"))


def _change(name: str, number: int) -> str:
    one, more = _PHRASES[name]
    return f"{number} {one if number == 1 else more}"


def _rule(data: Mapping[str, Any], name: str = "rule") -> str:
    return _DEFAULT if data[name] is None else str(data[name])


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items())

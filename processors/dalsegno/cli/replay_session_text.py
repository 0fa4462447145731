"""What a replay of sessions came to, for people: the first divergence, how many more, and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dalsegno.cli.context import Context
from dalsegno.cli.divergence_text import divergence_lines
from dalsegno.cli.output import emit, note, visible
from dalsegno.replay.modes import MODES
from dalsegno.replay.replayed import Replayed


def table() -> str:
    """What each mode does with each class of events, for the help."""
    lines = []
    for mode, actions in MODES.items():
        lines.append(f"{mode}:")
        lines += [f"  {what}: {action}" for what, action in actions.items()]
    return "\n".join(lines)


def show_result(ctx: Context, result: Replayed) -> None:
    if ctx.output == "jsonl":
        emit(ctx, result.as_data())
    if ctx.output != "text":
        return
    click.echo(f"{visible(result.session_id)}  {result.mode}  {result.verdict}  {_said(result)}")
    for line in divergence_lines(result.divergences[0]) if result.divergences else ():
        click.echo(f"  {line}")
    if result.diverged > 1:
        click.echo(f"  and {result.diverged - 1} more")
    if result.unreconstructable is not None:
        seq, why = result.unreconstructable
        click.echo(f"  cannot be reconstructed from seq {seq}, because {visible(why)}")
    for reason, count in sorted(result.not_comparable.items()):
        click.echo(f"  {count} not compared: {visible(reason)}")
    for said in result.what_if:
        click.echo(f"  what if: {visible(said)}")
    if result.stopped is not None:
        click.echo(f"  stopped: {visible(result.stopped)}")
    if result.todo is not None:
        click.echo(f"  to do: {visible(result.todo)}")
    if result.snapped_back:
        click.echo(f"  began {result.snapped_back} events before what was asked for, at the turn's beginning")
    if result.fork is not None:
        click.echo(f"  written as {visible(result.fork)}")
    if result.tainted:
        click.echo(f"  tainted: {result.counts.inexact} recorded facts were served that are not exactly those of then")


def _said(result: Replayed) -> str:
    parts = [f"{result.equal} of {result.compared} decisions equal"]
    if result.derived:
        parts.append(f"{result.derived} derived")
    counts = result.counts
    numbers = (
        ("exact", counts.exact), ("inexact", counts.inexact), ("asked again", counts.rerun),
        ("simulated", counts.simulated), ("compressions reused", counts.reused), ("missed", counts.missed),
        ("left over", result.left_over),
    )  # fmt: skip
    parts += [f"{number} {what}" for what, number in numbers if number]
    return ", ".join(parts)


def show_summary(ctx: Context, results: Sequence[Replayed]) -> None:
    if ctx.output == "text":
        if len(results) == 1 and results[0].identity:
            note(f"identity {results[0].identity}")
        if len(results) > 1:
            verdicts = {each.verdict: 0 for each in results}
            for each in results:
                verdicts[each.verdict] += 1
            note(f"{len(results)} sessions: " + ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()))

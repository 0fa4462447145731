"""``dalsegno workload``: made-up sessions, for trying things out and for measuring."""

from __future__ import annotations

import time

import click

from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.output import emit, note
from dalsegno.log.publisher import Publisher
from dalsegno.testing.publish import publish
from dalsegno.testing.workload import Workload

_LINE_EVERY_SECONDS = 10.0
_COLUMNS = ("sessions", "events", "acknowledged", "value_bytes", "seconds")


@click.command(epilog="Example: dalsegno workload --sessions 200 --seed 1 --active 20")
@click.option("--sessions", type=click.IntRange(1, 10_000_000), default=100, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same events.")
@click.option("--active", type=click.IntRange(1), default=20, show_default=True, help="Sessions that run at a time.")
@click.option("--evenly", is_flag=True, help="Run all sessions at once, one event each in turn.")
@click.option("--mean-events", type=click.IntRange(8), default=100, show_default=True, help="Events of a session.")
@pass_context
def command(ctx: Context, sessions: int, seed: int, active: int, evenly: bool, mean_events: int) -> None:
    """Publish made-up sessions with the skew of real ones, and print a tally of what they hold (all of it: -o json).

    The tally is counted where the sessions are made, so that projections can be checked against it.
    """
    work = Workload(sessions, seed, active, evenly=evenly, mean_events=mean_events)
    last = time.monotonic()

    def progress(sent: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _LINE_EVERY_SECONDS:
            last = time.monotonic()
            note(f"{sent} events sent")

    with Publisher(ctx.kafka, prefix=ctx.prefix, writer="workload/1") as publisher:
        done = publish(publisher, work, progress=progress)
    rate = round(done.sent / done.seconds) if done.seconds else 0
    note(f"{done.acknowledged} events acknowledged in {done.seconds:.1f} s ({rate} per second)")
    emit(ctx, {"acknowledged": done.acknowledged, "seconds": round(done.seconds, 3), **work.tally.as_data()}, _COLUMNS)

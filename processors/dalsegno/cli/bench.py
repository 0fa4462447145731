"""``dalsegno bench``: events per second, stage by stage, and whether the bars are reached."""

from __future__ import annotations

import click

from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.output import emit, note
from dalsegno.errors import Usage
from dalsegno.testing.bench_report import STAGES, Report, run
from dalsegno.testing.bench_world import BenchWorld, Mix

_COLUMNS = ("stage", "what", "events", "seconds", "per_second", "cpu_us", "ratio", "cpu_ratio", "peak_mib", "load")
_VERDICTS = {True: "pass", False: "FAIL", None: "-"}


@click.command(epilog="Example: dalsegno bench --events 300000 --stages scan,decode,journal")
@click.option("--events", type=click.IntRange(1_000, 100_000_000), default=1_000_000, show_default=True)
@click.option("--sessions", type=click.IntRange(1, 10_000_000), default=10_000, show_default=True)
@click.option("--active", type=click.IntRange(1), default=1_000, show_default=True, help="Sessions that run at a time.")
@click.option("--evenly", is_flag=True, help="Run all sessions at once, one event each in turn.")
@click.option("--stages", default=",".join(STAGES), help="Which to measure, by name, with commas between.")
@pass_context
def command(ctx: Context, events: int, sessions: int, active: int, evenly: bool, stages: str) -> None:
    """Measure what an event costs, from bare reading to a whole worker, and compare with the bars.

    The events are published once, under a prefix of their own, and used again when the same ones are asked for. Every
    stage runs in a process of its own. Ratios hold within one run, on a machine that does nothing else.
    """
    chosen = [name.strip() for name in stages.split(",") if name.strip()]
    for name in chosen:
        if name not in STAGES:
            raise Usage(f"no stage {name!r}", wanted=f"some of {', '.join(STAGES)}", todo="correct --stages")
    mix = Mix(events, sessions, min(active, sessions), evenly)
    report = run(BenchWorld(ctx.kafka, ctx.prefix, ctx.data, mix, note), chosen, note)
    if ctx.output == "text":
        _print(ctx, report)
    else:
        emit(ctx, report.as_data())


def _print(ctx: Context, report: Report) -> None:
    for facts in (report.parameters, report.machine):
        click.echo("  ".join(f"{name} {value}" for name, value in facts.items()))
    click.echo()
    data = report.as_data()
    emit(ctx, data["stages"], _COLUMNS)
    click.echo()
    emit(ctx, [{**bar, "passed": _VERDICTS[bar["passed"]]} for bar in data["bars"]])

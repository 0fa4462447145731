"""``dalsegno replay``: build the projections anew from a place in the log, beside what is read, and switch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import click

from dalsegno.cli.bisect_exit import bisect_exit
from dalsegno.cli.common import conductor_of, confirm, full_target, meanwhile, one_match
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.numbers import Amount
from dalsegno.cli.output import emit, note
from dalsegno.cli.plan_view import COLUMNS, document, explain, print_id, rows, show_plan, summary
from dalsegno.cli.progress import bars
from dalsegno.cli.replay_chosen import SESSION_MODES, Chosen, of_sessions
from dalsegno.cli.replay_kept import kept_row, show_kept
from dalsegno.cli.replay_session_text import table
from dalsegno.cli.replay_sessions import plan_sessions, run_sessions
from dalsegno.errors import DalsegnoError, Usage
from dalsegno.log.reader import read_compacted
from dalsegno.replay.execute import Conductor, Progress, bounds_of
from dalsegno.replay.modes import MODES as MODES_TABLE
from dalsegno.replay.session_records import Kept, parse_kept
from dalsegno.replay.store import READ_TIMEOUT_SECONDS, StoredReplay, read_replays, replays_topic
from dalsegno.replay.target import parse_hole, parse_target

MODES = ("projection-only", "partial", *SESSION_MODES)
FOLLOW_TIMEOUT_SECONDS = 3600.0
LOOK_SECONDS = 1.0
EXIT_INTERRUPTED = 130
_LIST = ("id", "state", "from", "records", "created", "by", "reason")

_from: Callable[[Any], Any] = click.option(
    "--from",
    "start",
    metavar="PLACE",
    help="earliest | latest-snapshot | snapshot:ID | offset:P=N[,P=N] | session:ID@SEQ | of one session SEQ (default: "
    "earliest); of a snapshot's id the beginning is enough.",
)
_mode: Callable[[Any], Any] = click.option(
    "--mode",
    type=click.Choice(MODES),
    help="What is replayed; partial needs --from, and is projection-only from there. 'dalsegno replay modes' says what "
    "each mode does with what.",
)
_hole: Callable[[Any], Any] = click.option(
    "--accept-hole",
    "holes",
    multiple=True,
    metavar="P=FROM..TO",
    help="Accept that the log no longer holds these offsets of a partition; it is kept in the record of the run.",
)
_reason: Callable[[Any], Any] = click.option("--reason", default="", help="Kept with the plan.")


F = TypeVar("F", bound=Callable[..., Any])


def with_modes(function: F) -> F:
    """Adds the table of modes to what a command's help is made of."""
    function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n\b\n{table()}"
    return function


@click.group(epilog="Example: dalsegno replay plan --from latest-snapshot")
def command() -> None:
    """Build the projections anew from a place in the log, beside what is read, and switch to them."""


@command.command(epilog="Example: dalsegno replay plan --from snapshot:20261129-193000-1a2b")
@_from
@_mode
@_hole
@_reason
@of_sessions
@pass_context
@with_modes
def plan(
    ctx: Context, start: str | None, mode: str | None, holes: tuple[str, ...], reason: str, chosen_sessions: Chosen
) -> None:
    """Work out and keep a plan: from which snapshot each partition is built, and how many records are read again. Of
    sessions (the other modes) it says what would be looked at and what asking the models again would take.

    Nothing is changed. 'dalsegno replay run ID' carries the plan out, as long as nothing that it depends on has moved.
    """
    if mode in SESSION_MODES:
        plan_sessions(ctx, mode, start, chosen_sessions)
        return
    _no_sessions(chosen_sessions)
    stored = _plan(ctx, conductor_of(ctx), start, mode, holes, reason)
    if ctx.output == "text":
        show_plan(ctx, stored.plan)
        print_id(ctx, stored.plan)
    else:
        emit(ctx, document(stored))
        explain(stored.plan)
    note(f"to carry it out: dalsegno replay run {stored.plan.id}")


@command.command(epilog="Example: dalsegno replay run --from latest-snapshot --yes")
@click.argument("replay_id", metavar="[ID]", required=False)
@_from
@_mode
@_hole
@_reason
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--no-worker", is_flag=True, help="Only move the offsets; workers that are started then do the work.")
@click.option(
    "--timeout-seconds",
    type=Amount(0),
    default=FOLLOW_TIMEOUT_SECONDS,
    show_default=True,
    help="With --no-worker: how long to follow the run; 0 returns at once.",
)
@click.option("--slot", type=click.IntRange(0, 255), help="Slot of the worker (default: the first free one).")
@of_sessions
@click.option(
    "--jobs",
    type=click.IntRange(1),
    metavar="N",
    help="Of sessions: so many processes (default: one for each core, for more than 8 sessions).",
)
@click.option("--record", is_flag=True, help="Of sessions: keep what came of it in the topic of replays.")
@bisect_exit
@pass_context
@with_modes
def run(
    ctx: Context,
    replay_id: str | None,
    start: str | None,
    mode: str | None,
    holes: tuple[str, ...],
    reason: str,
    yes: bool,
    no_worker: bool,
    timeout_seconds: float,
    slot: int | None,
    chosen_sessions: Chosen,
    jobs: int | None,
    record: bool,
) -> int:
    """Carry out a stored plan, or plan, show, ask and carry out in one go. Of sessions (full, inference-skipping,
    simulation): replay their decisions, and show where they differ. Exit code 0: equal · 3: something differs.

    The group must be empty: its members are named if it is not. The offsets are moved to the snapshots' cursors, read
    back and compared; then this process works as a worker of the group until every partition has reached the end of the
    log as it was at the start. What is read stays as it was until a partition switches. Ctrl-C stops at the edge of a
    batch; the same command goes on from there.
    """
    if mode in SESSION_MODES:
        if replay_id is not None or holes or no_worker:
            raise Usage("options of offsets with a mode of sessions", wanted="--session, --workflow or --all")
        run_sessions(ctx, mode, start, chosen_sessions, jobs=jobs, record=record)
    _no_sessions(chosen_sessions)
    conductor = conductor_of(ctx)
    if replay_id is not None:
        if start or mode or holes:
            raise Usage("a stored plan and options of a new one", wanted="either", todo="leave out one of them")
        stored = _find(ctx, conductor, replay_id)
    else:
        # First, for what members commit until they leave would make the plan stale.
        conductor.wait_until_empty()
        stored = _plan(ctx, conductor, start, mode, holes, reason)
    if ctx.output == "text":
        show_plan(ctx, stored.plan)
    records = sum(part.records for part in stored.plan.parts)
    confirm(f"Replay {records} records of {stored.plan.group}?", name=stored.plan.group, records=records, yes=yes)
    stored = conductor.begin(stored)
    if no_worker:
        stored = _follow(conductor, stored, timeout_seconds)
    else:
        stored = _work(ctx, conductor, stored, slot)
    emit(ctx, summary(stored) if ctx.output == "text" else document(stored))
    if stored.state == "COMPLETED":
        return 0
    note(f"to go on: dalsegno replay run {stored.plan.id}")
    return 0 if no_worker else EXIT_INTERRUPTED


def _no_sessions(given: Chosen) -> None:
    if given.named:
        raise Usage("sessions without a mode that replays them", wanted=f"--mode {' | '.join(SESSION_MODES)}")


@command.command("modes", epilog="Example: dalsegno replay modes")
@pass_context
def modes(ctx: Context) -> None:
    """What each mode does with each class of events."""
    if ctx.output == "text":
        click.echo(table())
    else:
        emit(ctx, [{"mode": mode, **actions} for mode, actions in MODES_TABLE.items()])


def _find(ctx: Context, conductor: Conductor, given: str) -> StoredReplay:
    """The one whose id is, or begins with, what was given. Raises NotFound, Usage."""
    found = read_replays(ctx.kafka, ctx.prefix, conductor.store)
    return found[one_match(given, list(reversed(found)), "replay")]


def _plan(
    ctx: Context, conductor: Conductor, start: str | None, mode: str | None, holes: tuple[str, ...], reason: str
) -> StoredReplay:
    if mode == "partial":
        if start is None:
            raise Usage("--mode partial without --from", wanted="a place to start from", todo="add --from PLACE")
        note("partial: projection-only, from the place that was given")
    target = full_target(ctx, parse_target(start or "earliest"))
    return conductor.plan(target, [parse_hole(hole) for hole in holes], reason)


def _follow(conductor: Conductor, stored: StoredReplay, timeout_seconds: float) -> StoredReplay:
    note("the offsets are moved; to do the work: dalsegno worker run")
    if timeout_seconds == 0:
        return conductor.complete(stored)
    with bars(f"replay {stored.plan.id}") as show:
        return conductor.follow(stored, timeout_seconds=timeout_seconds, show=show)


def _work(ctx: Context, conductor: Conductor, stored: StoredReplay, slot: int | None) -> StoredReplay:
    """Be a worker of the group until the end bounds; whatever ends it is recorded."""
    from dalsegno.cli.worker import worker_config
    from dalsegno.streams.app import run_worker

    try:
        with bars(f"replay {stored.plan.id}") as show, _watch(conductor, stored, show):
            run_worker(worker_config(ctx, slot), until=bounds_of(stored))
    except Exception as error:
        with suppress(DalsegnoError):  # the broker may be what failed; that must not hide why
            conductor.fail(stored, error)
        raise
    return conductor.complete(stored)


@contextmanager
def _watch(conductor: Conductor, stored: StoredReplay, show: Callable[[list[Progress]], None]) -> Iterator[None]:
    """Show the progress."""
    before, said = dict[int, int](), dict[int, str]()

    def look() -> None:
        nonlocal before
        # What is wrong with the broker the worker itself says; here it only means that nothing is shown.
        with suppress(DalsegnoError):
            now = conductor.progress(stored)
            show(now)
            still = [part for part in now if before.get(part.partition) == part.position]
            before = {part.partition: part.position for part in now}
            for number, reason in conductor.pinned(still).items():
                if said.get(number) != reason:
                    said[number] = reason
                    note(f"partition {number} waits: {reason}")

    with meanwhile(look, LOOK_SECONDS, "dalsegno-progress"):
        yield


@command.command("list", epilog="Example: dalsegno replay list -o json")
@pass_context
def list_(ctx: Context) -> None:
    """List plans and replays, newest first; those of sessions where they were recorded."""
    conductor = conductor_of(ctx)
    found = read_replays(ctx.kafka, ctx.prefix, conductor.store)
    rows = [summary(conductor.complete(stored)) for stored in found.values()]
    rows += [kept_row(id, kept) for id, kept in _kept(ctx).items()]
    emit(ctx, sorted(rows, key=lambda row: str(row["created"]), reverse=True), _LIST)


def _kept(ctx: Context) -> dict[str, Kept]:
    return parse_kept(read_compacted(ctx.kafka, replays_topic(ctx.prefix), READ_TIMEOUT_SECONDS))


@command.command(epilog="Example: dalsegno replay show r20261129-193000-1a2b3c4d")
@click.argument("replay_id", metavar="ID")
@pass_context
def show(ctx: Context, replay_id: str) -> None:
    """Show a plan, and how far its run has come; of a replay of a session what differed."""
    conductor = conductor_of(ctx)
    plans = read_replays(ctx.kafka, ctx.prefix, conductor.store)
    kept = _kept(ctx)
    name = one_match(replay_id, list(reversed([*plans, *kept])), "replay")
    if name in kept:
        show_kept(ctx, name, kept[name])
        return
    stored = conductor.complete(plans[name])
    whole = document(stored)
    now = conductor.progress(stored) if stored.runs else []
    pinned = conductor.pinned(now)
    progress = [{**part._asdict(), "waits": pinned.get(part.partition)} for part in now]
    if ctx.output != "text":
        emit(ctx, {**whole, "progress": progress})
        return
    emit(ctx, {**summary(stored), "accepted_holes": whole["accepted_holes"], "runs": len(stored.runs)})
    click.echo()
    emit(ctx, rows(stored.plan), COLUMNS)
    if progress:
        click.echo()
        emit(ctx, progress, ("partition", "start", "position", "bound", "done"))
        for number, reason in pinned.items():
            note(f"partition {number} waits: {reason}")
    explain(stored.plan)
    if stored.runs and stored.runs[-1].error:
        note(f"it stopped: {stored.runs[-1].error}")


@command.command(epilog="Example: dalsegno replay cancel r20261129-193000-1a2b3c4d --yes")
@click.argument("replay_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_context
def cancel(ctx: Context, replay_id: str, yes: bool) -> None:
    """Give a replay up: the group goes back to where it stood, and what was built so far is deleted by the workers.

    The group must be empty. What readers see does not change.
    """
    conductor = conductor_of(ctx)
    stored = _find(ctx, conductor, replay_id)
    name = stored.plan.id
    confirm(f"Cancel replay {name} ({stored.state.lower()})?", name=name, records=0, yes=yes)
    emit(ctx, summary(conductor.cancel(stored)))

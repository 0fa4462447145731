"""``dalsegno replay``: the projections built anew from a place in the log, or decisions of sessions made again."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import click

from dalsegno.cli.bisect_exit import bisect_exit
from dalsegno.cli.common import conductor_of, confirm
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.numbers import Amount
from dalsegno.cli.output import emit, note
from dalsegno.cli.plan_view import COLUMNS, document, explain, rows, summary
from dalsegno.cli.replay_chosen import SESSION_MODES, Chosen, of_sessions
from dalsegno.cli.replay_kept import kept_row, show_kept
from dalsegno.cli.replay_plans import make_plan as make_plan_of_sessions
from dalsegno.cli.replay_plans import plan_row, plan_sessions, show_plan_of_sessions, withdraw_plan
from dalsegno.cli.replay_projections import make_plan, plan_projections, run_projections
from dalsegno.cli.replay_session_text import table
from dalsegno.cli.replay_sessions import run_plan, run_sessions
from dalsegno.cli.replay_topic import Topic, read_topic
from dalsegno.errors import Usage
from dalsegno.replay.modes import MODES as MODES_TABLE
from dalsegno.replay.store import StoredReplay

MODES = ("projection-only", "partial", *SESSION_MODES)
FOLLOW_TIMEOUT_SECONDS = 3600.0
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
    """Build the projections anew from a place in the log, beside what is read, and switch to them; or make decisions of
    recorded sessions again, and show where they differ."""


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
    """Work out and keep a plan: from which snapshot each partition is built, and how many records are read again; of
    sessions (the other modes) what would be looked at, and what asking the models again would take.

    Nothing is changed. 'dalsegno replay run ID' carries the plan out, as long as nothing that it depends on has moved.
    """
    if mode in SESSION_MODES:
        plan_sessions(ctx, mode, start, chosen_sessions, reason)
        return
    _no_sessions(mode, chosen_sessions)
    plan_projections(ctx, start, mode, holes, reason)


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
@click.option("--record", is_flag=True, help="Of sessions: keep a plan of it, and what came of each session.")
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
    simulation): replay their decisions, and show where they differ. Exit code 0: equal · 3: something differs. Each
    result of a plan is kept; after Ctrl-C the same command goes on with the sessions that are left.

    Of projections, the group must be empty: its members are named if it is not. The offsets are moved to the snapshots'
    cursors, read back and compared; then this process works as a worker of the group until every partition has reached
    the end of the log as it was at the start. What is read stays as it was until a partition switches. Ctrl-C stops at
    the edge of a batch; the same command goes on from there.
    """
    if mode in SESSION_MODES:
        if replay_id is not None or holes or no_worker:
            raise Usage("options of offsets with a mode of sessions", wanted="--session, --workflow or --all")
        if record:
            stored_plan = make_plan_of_sessions(ctx, mode, start, chosen_sessions, reason)
            note(f"recorded as {stored_plan.plan.id}")
            run_plan(ctx, stored_plan, Topic({}, {}, {}), jobs)
        run_sessions(ctx, mode, start, chosen_sessions, jobs)
    if replay_id is None:
        _no_sessions(mode, chosen_sessions)
    if record:
        raise Usage("--record without a mode of sessions", wanted=f"--mode {' | '.join(SESSION_MODES)}")
    conductor = conductor_of(ctx)
    if replay_id is None:
        # First, for what members commit until they leave would make the plan stale.
        conductor.wait_until_empty()
        stored = make_plan(ctx, conductor, start, mode, holes, reason)
    else:
        if start or mode or holes or chosen_sessions != Chosen():
            raise Usage("a stored plan and options of a new one", wanted="either", todo="leave out one of them")
        topic = read_topic(ctx)
        name = topic.find(replay_id)
        if name in topic.sessions:
            run_plan(ctx, topic.sessions[name], topic, jobs)
        stored = _projections(topic, name)
    return run_projections(
        ctx, conductor, stored, yes=yes, no_worker=no_worker, timeout_seconds=timeout_seconds, slot=slot
    )


def _no_sessions(mode: str | None, given: Chosen) -> None:
    if not given.named:
        return
    of_them = f"--mode {' | '.join(SESSION_MODES)}"
    if mode is None:
        raise Usage("sessions without a mode that replays them", wanted=of_them)
    from_there = "; to begin at the place of a session: --from session:ID@SEQ" if mode == "partial" else ""
    raise Usage(
        f"--mode {mode} with sessions",
        wanted=f"no session: it builds the projections anew for all of them; for decisions of sessions {of_them}",
        todo=f"leave out --session, --workflow, --label and --all{from_there}",
    )


@command.command("modes", epilog="Example: dalsegno replay modes")
@pass_context
def modes(ctx: Context) -> None:
    """What each mode does with each class of events."""
    if ctx.output == "text":
        click.echo(table())
    else:
        emit(ctx, [{"mode": mode, **actions} for mode, actions in MODES_TABLE.items()])


def _projections(topic: Topic, name: str) -> StoredReplay:
    if name not in topic.projections:
        raise Usage(f"{name} is a replay of sessions", wanted="a plan", todo="see 'dalsegno replay show'")
    return topic.projections[name]


@command.command("list", epilog="Example: dalsegno replay list -o json")
@pass_context
def list_(ctx: Context) -> None:
    """List plans and replays, newest first."""
    conductor, topic = conductor_of(ctx), read_topic(ctx)
    rows = [summary(conductor.complete(stored)) for stored in topic.projections.values()]
    rows += [plan_row(stored, topic) for stored in topic.sessions.values()]
    rows += [kept_row(id, kept) for id, kept in topic.kept.items() if not topic.is_of_plan(id)]
    emit(ctx, sorted(rows, key=lambda row: str(row["created"]), reverse=True), _LIST)


@command.command(epilog="Example: dalsegno replay show r20261129-193000-1a2b3c4d")
@click.argument("replay_id", metavar="ID")
@pass_context
def show(ctx: Context, replay_id: str) -> None:
    """Show a plan, and how far its run has come; of one of its sessions (ID.NUMBER) what differed."""
    topic = read_topic(ctx)
    name = topic.find(replay_id)
    if name in topic.kept:
        show_kept(ctx, name, topic.kept[name])
        return
    if name in topic.sessions:
        show_plan_of_sessions(ctx, topic.sessions[name], topic)
        return
    conductor = conductor_of(ctx)
    stored = conductor.complete(topic.projections[name])
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

    Of sessions, a plan that nothing was replayed by yet is taken back; what came of sessions stays.
    """
    topic = read_topic(ctx)
    name = topic.find(replay_id)
    if name in topic.sessions:
        withdraw_plan(ctx, topic.sessions[name], topic, yes=yes)
        return
    if name in topic.kept:
        raise Usage(f"{name} is what came of a session", wanted="a plan", todo="see 'dalsegno replay show'")
    conductor, stored = conductor_of(ctx), topic.projections[name]
    confirm(f"Cancel replay {name} ({stored.state.lower()})?", name=name, records=0, yes=yes)
    emit(ctx, summary(conductor.cancel(stored)))

"""``dalsegno replay plan|run`` of projections: built anew from a place in the log, beside what is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from dalsegno.cli.common import conductor_of, confirm, full_target, meanwhile
from dalsegno.cli.context import Context
from dalsegno.cli.output import emit, note
from dalsegno.cli.plan_view import document, explain, print_id, show_plan, summary
from dalsegno.cli.progress import bars
from dalsegno.errors import DalsegnoError, Usage
from dalsegno.replay.execute import Conductor, Progress, bounds_of
from dalsegno.replay.store import StoredReplay
from dalsegno.replay.target import parse_hole, parse_target

LOOK_SECONDS = 1.0
EXIT_INTERRUPTED = 130


def plan_projections(ctx: Context, start: str | None, mode: str | None, holes: Sequence[str], reason: str) -> None:
    """Make a plan, keep and show it."""
    stored = make_plan(ctx, conductor_of(ctx), start, mode, holes, reason)
    if ctx.output == "text":
        show_plan(ctx, stored.plan)
        print_id(ctx, stored.plan)
    else:
        emit(ctx, document(stored))
        explain(stored.plan)
    note(f"to carry it out: dalsegno replay run {stored.plan.id}")


def make_plan(
    ctx: Context, conductor: Conductor, start: str | None, mode: str | None, holes: Sequence[str], reason: str
) -> StoredReplay:
    if mode == "partial":
        if start is None:
            raise Usage("--mode partial without --from", wanted="a place to start from", todo="add --from PLACE")
        note("partial: projection-only, from the place that was given")
    target = full_target(ctx, parse_target(start or "earliest"))
    return conductor.plan(target, [parse_hole(hole) for hole in holes], reason)


def run_projections(
    ctx: Context,
    conductor: Conductor,
    stored: StoredReplay,
    *,
    yes: bool,
    no_worker: bool,
    timeout_seconds: float,
    slot: int | None,
) -> int:
    """Show the plan, ask, and carry it out; the exit code. Raises as ``Conductor.begin``."""
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

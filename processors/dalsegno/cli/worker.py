"""``dalsegno worker``: run a worker, ask this machine's workers how they are, list and drain those of all machines."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dalsegno.cli.common import meanwhile
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.numbers import Amount
from dalsegno.cli.output import emit, note
from dalsegno.cli.worker_roster import drain, list_
from dalsegno.errors import DalsegnoError
from dalsegno.state.slot import is_held, read_status, slot_folders

if TYPE_CHECKING:
    from dalsegno.streams.config import WorkerConfig

EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_NO_WORKER = 0, 1, 6
# A worker writes its status several times a second; one that did not for so long hangs.
SILENT_SECONDS = 30.0
# Transactions fail for a moment in every rebalance; one that has not gone through for so long is no moment.
NOT_SENDING_SECONDS = 30.0
LOOK_SECONDS = 0.2
_COLUMNS = ("slot", "worker", "partition", "state", "cursor", "committed", "end", "behind", "held", "reason")


@click.group()
def command() -> None:
    """Run a worker, ask how the workers of this machine are, list and drain those of every machine."""


@command.command(epilog="Example: dalsegno worker run --slot 0")
@click.option("--slot", type=click.IntRange(0, 255), help="Slot to take (default: the first free one).")
@pass_context
def run(ctx: Context, slot: int | None) -> None:
    """Keep the projections of the partitions that the group gives to this worker, until SIGTERM or Ctrl-C.

    The first signal ends at the edge of a batch, after sending what changed; the second one ends at once.
    """
    from dalsegno.streams.app import run_worker

    config = worker_config(ctx, slot)
    note(f"worker of group {config.names.group} starts; stop it with Ctrl-C")
    with _tell_when_live(ctx):
        run_worker(config)


@contextmanager
def _tell_when_live(ctx: Context) -> Iterator[None]:
    """Say on a terminal when all partitions are live, and again when they are others, or live again.

    By the status file, which is what others see of it.
    """
    if not sys.stderr.isatty():
        yield
        return
    said: frozenset[str] = frozenset()

    def look() -> None:
        nonlocal said
        states: dict[str, str] = {}
        with suppress(DalsegnoError):  # another slot's status that cannot be read is that worker's
            states = _own_states(ctx.data, ctx.prefix)
        if "STOPPED" in states.values():
            said = frozenset()
        elif set(states.values()) == {"LIVE"} and said != states.keys():
            said = frozenset(states)
            note(f"live: {len(states)} partition{'' if len(states) == 1 else 's'}")

    with meanwhile(look, LOOK_SECONDS, "dalsegno-live"):
        yield


def _own_states(data: Path, prefix: str) -> dict[str, str]:
    """The states of the partitions that this process's worker has; {} before it has a slot."""
    for folder in slot_folders(data, prefix):
        found = read_status(folder) or {}
        if found.get("pid") == os.getpid() and found.get("state") == "RUNNING":
            return {number: part["state"] for number, part in found["partitions"].items()}
    return {}


def worker_config(ctx: Context, slot: int | None) -> WorkerConfig:
    """The worker that this process's settings describe."""
    from dalsegno.streams.config import WorkerConfig
    from dalsegno.streams.faults import fault_from_environment

    set_ = ctx.settings.worker
    return WorkerConfig(
        kafka=ctx.kafka,
        prefix=ctx.prefix,
        data=ctx.data,
        store=ctx.store,
        slot=slot,
        emit_interval_seconds=set_.emit_interval_seconds,
        session_timeout_seconds=set_.session_timeout_seconds,
        transaction_timeout_seconds=set_.transaction_timeout_seconds,
        snapshot_every_events=set_.snapshot_every_events,
        snapshot_every_seconds=set_.snapshot_every_seconds,
        fault=fault_from_environment(),
    )


@command.command(epilog="Example: dalsegno worker status -o json")
@click.option("--slot", type=click.IntRange(0, 255), help="Ask one slot only.")
@click.option(
    "--wait-seconds",
    type=Amount(0),
    default=0.0,
    help="Wait up to so long until every worker is well, has partitions, and all of them are LIVE; else exit code 1.",
)
@pass_context
def status(ctx: Context, slot: int | None, wait_seconds: float) -> int:
    """Tell what the workers of this machine do, from their status files alone (no broker is asked).

    Exit code: 0 every worker is well; 1 one is stopped by an error, hangs, or died, or --wait-seconds went by in vain;
    6 none is running.
    """
    deadline = time.monotonic() + wait_seconds
    while not _is_live(seen := _look_at_all(ctx, slot)) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    if ctx.output == "text":
        emit(ctx, [row for each in seen for row in _rows(each)], _COLUMNS)
        for each in seen:
            if each["problem"]:
                note(f"slot {each['slot']}: {each['problem']}")
        if not any(each["running"] for each in seen):
            note(f"no worker runs on this machine for prefix {ctx.prefix} (data folder {ctx.data})")
    else:
        emit(ctx, seen)
    if wait_seconds and (lacking := _lacking(seen)):
        note(f"not live after {wait_seconds:g} s: {'; '.join(lacking)}")
        return EXIT_UNHEALTHY
    return _exit_code(seen)


def _look_at_all(ctx: Context, slot: int | None) -> list[dict[str, Any]]:
    folders = slot_folders(ctx.data, ctx.prefix)
    return [_look(folder) for folder in folders if slot is None or folder.name == str(slot)]


def _is_live(seen: list[dict[str, Any]]) -> bool:
    """Whether every worker is well, has partitions, and all are folded to the end of the log."""
    return not _lacking(seen) and _exit_code(seen) == EXIT_HEALTHY


def _lacking(seen: list[dict[str, Any]]) -> list[str]:
    """What the running workers lack to be live."""
    lacking = []
    for each in seen:
        states = Counter(part["state"] for part in each["partitions"].values())
        if each["running"] and set(states) != {"LIVE"}:
            waiting = ", ".join(f"{count} {state}" for state, count in sorted(states.items()) if state != "LIVE")
            lacking.append(f"slot {each['slot']}: {waiting or 'no partitions'}")
    return lacking


def _look(folder: Path) -> dict[str, Any]:
    """A slot's status file, with what it cannot say itself: whether its writer is still there."""
    found = read_status(folder) or {}
    running = is_held(folder)
    return {
        **found,
        "slot": int(folder.name),
        "running": running,
        "partitions": found.get("partitions", {}),
        "problem": _problem(found, running, folder),
    }


def _problem(found: dict[str, Any], running: bool, folder: Path) -> str | None:
    if not running:
        if not found or found.get("state") == "STOPPED":
            return None
        if found.get("state") == "FAILED":
            return f"the worker ended with an error: {found.get('error')}"
        return (
            f"its worker (pid {found.get('pid')}) is gone without having stopped; other workers take its partitions; "
            f"to do: start it again with 'dalsegno worker run --slot {folder.name}', or, if none is to take this slot "
            f"again, delete {folder}"
        )
    if not found:
        return "the worker has written no status yet"
    silent = time.time() - float(found.get("updated_at", 0))
    if silent > SILENT_SECONDS:
        return f"the worker (pid {found.get('pid')}) has written nothing for {silent:.0f} s"
    stopped = [number for number, part in found["partitions"].items() if part["state"] == "STOPPED"]
    if stopped:
        reasons = "; ".join(f"partition {number}: {found['partitions'][number]['reason']}" for number in stopped)
        return f"stopped: {reasons}"
    failing_since = found.get("emitter_failing_since")
    if failing_since is not None and time.time() - failing_since > NOT_SENDING_SECONDS:
        return f"sends nothing to the projection topics since {time.time() - failing_since:.0f} s: {found['emitter']}"
    return None


def _rows(seen: dict[str, Any]) -> list[dict[str, Any]]:
    worker = "gone" if not seen["running"] and seen["problem"] else str(seen.get("state", "-")).lower()
    common = {"slot": seen["slot"], "worker": worker}
    if not seen["partitions"] or not seen["running"]:
        return [common]
    return [
        {**common, "partition": number, **part, "held": part["held_sessions"]}
        for number, part in sorted(seen["partitions"].items(), key=lambda item: int(item[0]))
    ]


def _exit_code(seen: list[dict[str, Any]]) -> int:
    if not any(each["running"] for each in seen):
        return EXIT_NO_WORKER
    return EXIT_UNHEALTHY if any(each["problem"] for each in seen) else EXIT_HEALTHY


for each in (list_, drain):
    command.add_command(each)

"""``dalsegno worker list`` and ``drain``: the workers of all machines, by what they tell of themselves in Kafka."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

import click

from dalsegno.cli.common import one_match, who
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.numbers import Amount
from dalsegno.cli.output import emit, note
from dalsegno.cli.times import moment
from dalsegno.errors import Usage, WaitTimeout
from dalsegno.log.service_records import write_request
from dalsegno.streams.roster import DEAD, ENDED, Listed, ends, read_roster

LOOK_SECONDS = 0.5
# An id's beginning that people can type.
ID_CHARACTERS = 12
_LISTED = ("worker", "state", "host", "pid", "slot", "version", "seen", "partitions", "live", "held", "reason")


@click.command("list", epilog="Example: dalsegno worker list")
@click.option("--all", "every", is_flag=True, help="Those that have ended too.")
@pass_context
def list_(ctx: Context, every: bool) -> None:
    """List the workers of the prefix on all machines, as each last told of itself in Kafka (at least every 10 s).

    DEAD: silent for 35 s. One that was killed stands as it last told until then, with partitions that others may have
    taken; who holds which is the group's to say (see 'group describe').
    """
    found = [each for each in read_roster(ctx.kafka, ctx.prefix) if every or each.state not in ENDED]
    if ctx.output == "text":
        emit(ctx, list(map(_listed, found)), _LISTED)
    else:
        emit(ctx, [{**each.record, "state": each.state} for each in found])


def _listed(each: Listed) -> dict[str, Any]:
    record, parts = each.record, each.record["parts"]
    return {
        "worker": each.worker_id[:ID_CHARACTERS],
        "state": each.state,
        "host": record["host"],
        "pid": record["pid"],
        "slot": record["slot"],
        "version": record["version"],
        "seen": moment(record["seen_at"]),
        "partitions": len(parts),
        "live": sum(part["state"] == "LIVE" for part in parts),
        "held": sum(part["held_sessions"] for part in parts),
        "reason": next((f"partition {part['partition']}: {part['error']}" for part in parts if part["error"]), None),
    }


@click.command(epilog="Example: dalsegno worker drain 3f2a --reason 'new release'")
@click.argument("workers", metavar="WORKER...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every worker that runs.")
@click.option(
    "--reason",
    default="asked for on the command line",
    show_default=True,
    help="Stands in the worker's log, at level info.",
)
@click.option("--wait-seconds", type=Amount(1), default=120.0, show_default=True, help="For all of them to end.")
@pass_context
def drain(ctx: Context, workers: tuple[str, ...], every: bool, reason: str, wait_seconds: float) -> None:
    """Let workers end, on whatever machine they run, as SIGTERM does: what changed is sent, then others take over.

    WORKER is an id of 'dalsegno worker list', or its beginning. Returns when every one of them has said that it ended,
    or, RESTARTED, that it was started again since.
    """
    if every == bool(workers):
        raise Usage(
            "no worker is named" if not every else "workers are named beside --all", wanted="WORKER... or --all"
        )
    told = read_roster(ctx.kafka, ctx.prefix)
    running = {each.worker_id: each for each in told if each.state not in ENDED | {DEAD}}
    names = list(running) if every else [one_match(name, list(running), "running worker") for name in workers]
    asked = {name: running[name] for name in names}
    deadline = time.monotonic() + wait_seconds
    for worker_id in asked:
        write_request(
            ctx.kafka, ctx.prefix, "DRAIN", request_id=str(uuid4()), by=who(), reason=reason,
            timeout_seconds=wait_seconds, worker_id=worker_id,
        )  # fmt: skip
        note(f"asked worker {worker_id[:ID_CHARACTERS]} to end")
    ended = _wait_for_ends(ctx, list(asked.values()), deadline, wait_seconds)
    emit(ctx, [{"worker": name, "state": state} for name, state in sorted(ended.items())], ("worker", "state"))


def _wait_for_ends(ctx: Context, asked: list[Listed], deadline: float, wait_seconds: float) -> dict[str, str]:
    """Worker id -> how it ended. Raises WaitTimeout naming those that did not in time."""
    while True:
        ended = ends(asked, read_roster(ctx.kafka, ctx.prefix))
        left = sorted(each.worker_id[:ID_CHARACTERS] for each in asked if each.worker_id not in ended)
        if not left:
            return ended
        if time.monotonic() >= deadline:
            raise WaitTimeout(
                f"{', '.join(left)} did not end within {wait_seconds:g} s",
                wanted="a word of each that it ended",
                todo="see 'dalsegno worker list --all', and the log of those workers",
            )
        time.sleep(LOOK_SECONDS)

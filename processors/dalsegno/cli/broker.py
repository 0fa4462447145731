"""``dalsegno broker``: the embedded broker of the data folder."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.numbers import Amount
from dalsegno.cli.output import emit, note
from dalsegno.errors import Usage
from dalsegno.log import embedded
from dalsegno.log.embedded.broker import READY_LIMIT_SECONDS, STOP_LIMIT_SECONDS

_COLUMNS = ("state", "bootstrap", "pid", "cluster_id", "kafka_version", "folder", "log_file")


@click.group(epilog="Example: dalsegno broker start")
def command() -> None:
    """Start, stop and look at the embedded Kafka broker of the data folder."""


@command.command(epilog="Example: dalsegno broker start --port 9092")
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port on loopback; without it the last one, else a free one."
)
@click.option(
    "--ready-limit-seconds", type=Amount(1), default=READY_LIMIT_SECONDS, show_default=True,
    help="How long to wait until the broker answers.",
)  # fmt: skip
@pass_context
def start(ctx: Context, port: int | None, ready_limit_seconds: float) -> None:
    """Start the broker and wait until it answers. Does nothing where it runs already."""
    if not ctx.embedded:
        raise Usage(
            f"a broker is configured ({ctx.settings.kafka.bootstrap_servers}), so none is started",
            todo="to use the embedded one, take the servers out of environment, flags and profile",
        )
    embedded.start(
        ctx.data,
        port=port,
        java=ctx.settings.java or None,
        ready_limit_seconds=ready_limit_seconds,
        announce=note,
    )
    emit(ctx, _told(ctx), _COLUMNS)


@command.command(epilog="Example: dalsegno broker stop")
@click.option(
    "--limit-seconds", type=Amount(0), default=STOP_LIMIT_SECONDS, show_default=True,
    help="How long to wait for an orderly stop; after it the process is killed (no acknowledged record is lost).",
)  # fmt: skip
@pass_context
def stop(ctx: Context, limit_seconds: float) -> None:
    """Stop the broker. Its data stay."""
    if not embedded.stop(ctx.data, limit_seconds=limit_seconds):
        note("no broker was running")
    emit(ctx, _told(ctx), _COLUMNS)


@command.command(epilog="Example: dalsegno broker status -o json")
@pass_context
def status(ctx: Context) -> None:
    """Say whether the broker runs and answers, and where."""
    emit(ctx, _told(ctx), _COLUMNS)


def _told(ctx: Context) -> dict[str, Any]:
    told = asdict(embedded.status(ctx.data))
    return {**told, "folder": str(told["folder"]), "log_file": str(told["log_file"])}

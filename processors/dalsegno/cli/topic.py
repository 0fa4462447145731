"""``dalsegno topic``: the topics of the prefix, as they are and as they must be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.output import emit
from dalsegno.log import topics
from dalsegno.log.topics import PlannedTopic
from dalsegno.projections.registry import chosen
from dalsegno.settings import source_of

_COLUMNS = ("topic", "action", "partitions", "replication", "differences")
_partitions: Callable[[Any], Any] = click.option(
    "--partitions",
    type=click.IntRange(1, 4096),
    help="Partitions of the events topic, fixed for its life. Without it: what the topic has, else the setting.",
)


@click.group(epilog="Example: dalsegno topic plan")
def command() -> None:
    """Create the topics of the prefix and find what drifted."""


@command.command(epilog="Example: dalsegno topic plan --partitions 64")
@_partitions
@pass_context
def plan(ctx: Context, partitions: int | None) -> None:
    """Show what 'apply' would create, keep, alter or refuse. Changes nothing."""
    emit(ctx, _rows(topics.plan(ctx.kafka, ctx.prefix, **_wanted(ctx, partitions))), _COLUMNS)


@command.command(epilog="Example: dalsegno topic apply")
@_partitions
@click.option("--alter", is_flag=True, help="Also set settings back that differ from those of this release.")
@pass_context
def apply(ctx: Context, partitions: int | None, alter: bool) -> None:
    """Create what is missing. A topic that differs is refused, naming what was found and wanted."""
    done = topics.apply(ctx.kafka, ctx.prefix, alter=alter, **_wanted(ctx, partitions))
    emit(ctx, _rows(done), _COLUMNS)


@command.command(epilog="Example: dalsegno topic check")
@_partitions
@pass_context
def check(ctx: Context, partitions: int | None) -> None:
    """Exit 0 if every topic is as it must be, 4 if one is missing, 5 if one drifted."""
    wanted = _wanted(ctx, partitions)
    emit(ctx, _rows(topics.plan(ctx.kafka, ctx.prefix, **wanted)), _COLUMNS)
    topics.check(ctx.kafka, ctx.prefix, **wanted)


def _wanted(ctx: Context, partitions: int | None) -> dict[str, Any]:
    if partitions is None and source_of("partitions", ctx.settings, ctx.flags) != "default":
        partitions = ctx.settings.partitions
    public = [(each.name, each.version) for each in chosen() if each.public]
    return {"partitions": partitions, "projections": public}


def _rows(planned: Iterable[PlannedTopic]) -> list[dict[str, Any]]:
    return [
        {
            "topic": topic.spec.name,
            "action": str(topic.action),
            "partitions": topic.spec.partitions,
            "replication": topic.spec.replication,
            "differences": [str(difference) for difference in topic.differences],
        }
        for topic in planned
    ]

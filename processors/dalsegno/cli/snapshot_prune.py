"""``dalsegno snapshot prune``: remove old shard snapshots, but none that something still needs."""

from __future__ import annotations

import time
from typing import Any

import click

from dalsegno.cli.common import confirm, one_snapshot, topic_identity
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.numbers import Amount
from dalsegno.cli.output import emit, note
from dalsegno.log import admin
from dalsegno.log.topics import worker_group
from dalsegno.model.cursor import parse_base, parse_metadata
from dalsegno.replay.store import CANCELLED, COMPLETED, read_replays
from dalsegno.snapshots import catalog as catalogue
from dalsegno.snapshots.prune import DEFAULT_KEEP, Pruning, plan_pruning, prune
from dalsegno.storage.object_store import Store


@click.command("prune", epilog="Example: dalsegno snapshot prune --keep 3 --dry-run")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=DEFAULT_KEEP,
    show_default=True,
    help="How many shard snapshots of each partition stay.",
)
@click.option(
    "--older-than",
    "older_than_hours",
    type=Amount(0),
    default=0.0,
    show_default=True,
    metavar="HOURS",
    help="Of the others, remove only what was taken longer ago.",
)
@click.option("--drop", multiple=True, metavar="ID", help="A named snapshot that is no longer needed.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_context
def prune_(ctx: Context, keep: int, older_than_hours: float, drop: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Remove old shard snapshots, and the files that only they named.

    What a named snapshot lists stays (see --drop), and so do the bases of committed generations and of stored plans.
    Files younger than a day stay too: an upload may be about to name them.
    """
    found, store = catalogue.read_catalog(ctx.kafka, ctx.prefix), ctx.store
    names = [one_snapshot(name, found, named=True) for name in drop]
    planned = plan_pruning(
        found, topic_identity(ctx), store, ctx.prefix, keep=keep, protected=_protected(ctx, store), now=time.time(),
        older_than_seconds=older_than_hours * 3600, drop=names,
    )  # fmt: skip
    if dry_run:
        emit(ctx, _pruning_row(planned, names))
        return
    question = f"Remove {len(planned.pointers)} shard snapshots and {len(planned.files)} files?"
    confirm(question, name=ctx.prefix, records=0, yes=yes)

    def forget(pointers: Any) -> None:
        catalogue.remove(ctx.kafka, ctx.prefix, pointers=pointers, named=names)

    emit(ctx, _pruning_row(prune(planned, store, ctx.prefix, forget=forget, now=time.time), names))


def _protected(ctx: Context, store: Store) -> set[str]:
    """Bases of committed generations, and snapshots that a replay which is not over needs."""
    kept = set()
    for commit in admin.group_offsets(ctx.kafka, worker_group(ctx.prefix)).values():
        ours = parse_metadata(commit.metadata)
        if ours is not None:
            kept.add(parse_base(ours[1]).snapshot)
    for stored in read_replays(ctx.kafka, ctx.prefix, store).values():
        if stored.state not in (COMPLETED, CANCELLED):
            kept |= {part.snapshot for part in stored.plan.parts}
    return {name for name in kept if name is not None}


def _pruning_row(done: Pruning, dropped: list[str]) -> dict[str, Any]:
    for name, reason in done.unreadable.items():
        note(f"no file is removed: the manifest of {name} cannot be read ({reason})")
    return {
        "shard_snapshots_removed": list(done.pointers),
        "snapshots_dropped": dropped,
        "files_removed": len(done.files),
        "freed_bytes": done.freed_bytes,
        "shard_snapshots_kept": done.kept,
    }

"""``dalsegno snapshot``: take snapshots of the shards, look at them, prove them, and remove old ones."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from dalsegno.cli.common import one_snapshot, topic_identity
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.output import emit, note
from dalsegno.cli.snapshot_prune import prune_
from dalsegno.cli.snapshot_take import named_row, take
from dalsegno.cli.times import iso
from dalsegno.errors import NegativeVerdict, NotFound
from dalsegno.snapshots import catalog as catalogue
from dalsegno.snapshots.catalog import Catalog, Pointer
from dalsegno.snapshots.folders import RocksFolders
from dalsegno.snapshots.verify import verify as prove

_LIST = ("id", "created", "partitions", "complete", "reason", "by")
_SHARDS = ("partition", "id", "next_offset", "generation", "base", "taken", "size_bytes", "usable", "problem")


@click.group(epilog="Example: dalsegno snapshot list")
def command() -> None:
    """Take snapshots of the shards, look at them, prove them, and remove old ones."""


@command.command("list", epilog="Example: dalsegno snapshot list --shards -o json")
@click.option("--shards", is_flag=True, help="List the shard snapshots instead, also those that workers took.")
@click.option("--partition", type=click.IntRange(min=0), help="Only this partition's shard snapshots.")
@pass_context
def list_(ctx: Context, shards: bool, partition: int | None) -> None:
    """List the snapshots, newest first."""
    found = catalogue.read_catalog(ctx.kafka, ctx.prefix)
    if shards or partition is not None:
        rows = _shard_rows(ctx, found, [p for p in found.pointers.values() if partition in (None, p.partition)])
        emit(ctx, rows[::-1], _SHARDS)
    else:
        emit(ctx, [named_row(named) for named in reversed(list(found.named.values()))], _LIST)
        if not found.named and found.pointers:
            note(f"none is named; workers took {len(found.pointers)} shard snapshots (see --shards)")
    if found.unread:
        note(f"{found.unread} records in the catalogue are of no form that this release reads")


@command.command(epilog="Example: dalsegno snapshot show 20261129-193000-1a2b")
@click.argument("snapshot_id")
@pass_context
def show(ctx: Context, snapshot_id: str) -> None:
    """Show a snapshot, or one shard snapshot; the beginning of an id is enough."""
    found = catalogue.read_catalog(ctx.kafka, ctx.prefix)
    name = one_snapshot(snapshot_id, found)
    if name in found.pointers:
        emit(ctx, _pointer_details(ctx, found, found.pointers[name]))
        return
    named = found.named[name]
    listed = [found.pointers[s.shard_snapshot_id] for s in named.shards if s.shard_snapshot_id in found.pointers]
    rows = _shard_rows(ctx, found, listed)
    if ctx.output == "text":
        emit(ctx, named_row(named))
        click.echo()
        emit(ctx, rows, _SHARDS)
    else:
        emit(ctx, {**named_row(named), "shards": rows})
    gone = [s.shard_snapshot_id for s in named.shards if s.shard_snapshot_id not in found.pointers]
    if gone:
        note(f"{len(gone)} of its shard snapshots are no longer in the catalogue")


@command.command(epilog="Example: dalsegno snapshot verify")
@click.argument("snapshot_id", nargs=-1)
@pass_context
def verify(ctx: Context, snapshot_id: tuple[str, ...]) -> None:
    """Prove snapshots: every file, the cursor and the digests of the state inside. Without an id: all of them.

    Exit code 3 if one is damaged. Nothing is changed or removed.
    """
    found = catalogue.read_catalog(ctx.kafka, ctx.prefix)
    pointers = _chosen(found, snapshot_id)
    store, states = ctx.store, RocksFolders()
    with tempfile.TemporaryDirectory(prefix="dalsegno-verify-") as scratch:
        verdicts = [prove(pointer, store, ctx.prefix, states, Path(scratch)) for pointer in pointers]
    emit(ctx, [verdict._asdict() for verdict in verdicts], ("partition", "id", "next_offset", "good", "reason"))
    bad = [verdict for verdict in verdicts if not verdict.good]
    if bad:
        raise NegativeVerdict(
            f"{len(bad)} of {len(verdicts)} shard snapshots are damaged",
            wanted="snapshots that restore",
            todo="take a new one ('dalsegno snapshot take'); workers pass over the damaged ones by themselves",
            snapshots=[verdict.id for verdict in bad],
        )


def _chosen(found: Catalog, names: tuple[str, ...]) -> list[Pointer]:
    if not names:
        return list(found.pointers.values())
    chosen: dict[str, Pointer] = {}
    for given in names:
        name = one_snapshot(given, found)
        listed = [s.shard_snapshot_id for s in found.named[name].shards] if name in found.named else [name]
        for each in listed:
            if each not in found.pointers:
                raise NotFound(f"shard snapshot {each} of {name} is no longer in the catalogue", todo="take a new one")
            chosen[each] = found.pointers[each]
    return list(chosen.values())


def _shard_rows(ctx: Context, found: Catalog, pointers: list[Pointer]) -> list[dict[str, Any]]:
    usable: Callable[[str], str] = _usability(ctx, found)
    return [
        {
            "partition": pointer.partition,
            "id": pointer.id,
            "next_offset": pointer.cursor.next_offset,
            "generation": pointer.generation,
            "base": pointer.base,
            "taken": iso(pointer.taken_at),
            "size_bytes": pointer.size_bytes,
            "usable": not usable(pointer.id),
            "problem": usable(pointer.id) or None,
            "worker": pointer.worker,
            "reason": pointer.reason,
        }
        for pointer in pointers
    ]


def _usability(ctx: Context, found: Catalog) -> Callable[[str], str]:
    entries = {entry.id: entry for entry in found.entries(topic_identity(ctx))}
    return lambda name: entries[name].reason


def _pointer_details(ctx: Context, found: Catalog, pointer: Pointer) -> dict[str, Any]:
    cursor = pointer.cursor
    return {
        **_shard_rows(ctx, found, [pointer])[0],
        "parent": pointer.parent,
        "files": pointer.files,
        "format": pointer.format,
        "topic": pointer.topic,
        "topic_id": cursor.topic_id,
        "cluster_id": cursor.cluster_id,
        "partitions": cursor.partitions,
        "last_offset": cursor.last_offset,
        "last_key": None if cursor.last_key is None else cursor.last_key.decode("utf-8", "backslashreplace"),
        "projections": {name: f"v{mark.version} {mark.digest}" for name, mark in sorted(pointer.projections.items())},
    }


for each in (take, prune_):
    command.add_command(each)

"""``dalsegno snapshot``: take snapshots of the shards, look at them, prove them, and remove old ones."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from dalsegno.cli.common import confirm, one_snapshot, who
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.numbers import Amount
from dalsegno.cli.output import emit, note
from dalsegno.cli.times import iso
from dalsegno.errors import NegativeVerdict, NotFound, WaitTimeout
from dalsegno.log import admin
from dalsegno.log.topics import EVENTS, topic_name, worker_group
from dalsegno.model.cursor import parse_base, parse_metadata
from dalsegno.replay.reset import stopped_here
from dalsegno.snapshots import catalog as catalogue
from dalsegno.snapshots.catalog import Catalog, NamedShard, NamedSnapshot, Pointer, TopicIdentity
from dalsegno.snapshots.folders import RocksFolders
from dalsegno.snapshots.prune import DEFAULT_KEEP, Pruning, plan_pruning, prune
from dalsegno.snapshots.request import Answers, ask_for_snapshots
from dalsegno.snapshots.take import MICROS, Taken
from dalsegno.snapshots.verify import verify as prove
from dalsegno.storage.object_store import Store

TAKE_TIMEOUT_SECONDS = 60.0
_LIST = ("id", "created", "partitions", "complete", "reason", "by")
_SHARDS = ("partition", "id", "next_offset", "generation", "base", "taken", "size_bytes", "usable", "problem")


@click.group(epilog="Example: dalsegno snapshot list")
def command() -> None:
    """Take snapshots of the shards, look at them, prove them, and remove old ones."""


@command.command(epilog="Example: dalsegno snapshot take --reason 'before the upgrade'")
@click.option("--reason", default="asked for", show_default=True, help="Kept with the snapshot.")
@click.option(
    "--timeout-seconds",
    type=Amount(1),
    default=TAKE_TIMEOUT_SECONDS,
    show_default=True,
    help="How long to wait for the workers' answers.",
)
@pass_context
def take(ctx: Context, reason: str, timeout_seconds: float) -> None:
    """Take a snapshot of every partition: by the running workers, or of this machine's shards where none runs.

    Partitions that did not answer are named, and the exit code is then 6; what was taken is listed all the same.
    """
    identity, snapshot_id = _identity(ctx), _new_id()
    group = worker_group(ctx.prefix)
    # Kafka keeps a worker that stopped in the group until its session times out; it would never answer.
    gone = stopped_here(ctx.data, ctx.prefix, group)
    members = [each for each in admin.describe_group(ctx.kafka, group).members if each.instance_id not in gone]
    numbers = range(identity.partitions)
    if members:
        answers = ask_for_snapshots(
            ctx.kafka,
            ctx.prefix,
            numbers,
            request_id=snapshot_id,
            by=who(),
            reason=reason,
            timeout_seconds=timeout_seconds,
        )
    else:
        answers = _take_here(ctx, identity, reason)
    named = _named(ctx, snapshot_id, identity, answers, reason)
    if named is not None:
        catalogue.publish_named(ctx.kafka, ctx.prefix, named)
        emit(ctx, _named_row(named))
    _complain(answers, here=not members)


def _take_here(ctx: Context, identity: TopicIdentity, reason: str) -> Answers:
    from dalsegno.log.schema_set import SchemaSet
    from dalsegno.snapshots.direct import snapshot_local_shards

    note("no worker is in the group: this machine's shards are taken as they are")

    def publish(taken: Taken, why: str) -> None:
        catalogue.publish_pointer(ctx.kafka, ctx.prefix, taken, why)

    return snapshot_local_shards(
        ctx.data,
        ctx.prefix,
        topic_name(ctx.prefix, EVENTS),
        identity.topic_id,
        ctx.store,
        range(identity.partitions),
        reason=reason,
        schemas=[writer.schema_hash for writer in SchemaSet.load()],
        publish=publish,
    )


def _named(
    ctx: Context, snapshot_id: str, identity: TopicIdentity, answers: Answers, reason: str
) -> NamedSnapshot | None:
    """The snapshot that lists what was taken; None if nothing was."""
    if not answers.taken:
        return None
    pointers = catalogue.read_catalog(ctx.kafka, ctx.prefix).pointers
    shards = tuple(
        NamedShard(number, name, pointers[name].generation, pointers[name].cursor.next_offset)
        for number, name in sorted(answers.taken.items())
        if name in pointers
    )
    return NamedSnapshot(
        id=snapshot_id,
        partitions=identity.partitions,
        complete=len(shards) == identity.partitions,
        created_at=int(time.time() * MICROS),
        requested_by=who(),
        reason=reason,
        shards=shards,
    )


def _complain(answers: Answers, *, here: bool) -> None:
    if not answers.failed and not answers.silent:
        return
    parts = [f"partition {number}: {why}" for number, why in sorted(answers.failed.items())]
    if answers.silent:
        names = ", ".join(map(str, answers.silent))
        parts.append(f"partitions {names}: " + ("no shard on this machine" if here else "no answer"))
    raise WaitTimeout(
        f"the snapshot lacks partitions: {'; '.join(parts)}",
        wanted="a shard snapshot of every partition",
        todo="start workers and take it again" if here else "see 'dalsegno worker status' on each machine, then retry",
        silent=list(answers.silent),
        failed=answers.failed,
    )


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
        emit(ctx, [_named_row(named) for named in reversed(list(found.named.values()))], _LIST)
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
        emit(ctx, _named_row(named))
        click.echo()
        emit(ctx, rows, _SHARDS)
    else:
        emit(ctx, {**_named_row(named), "shards": rows})
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


@command.command("prune", epilog="Example: dalsegno snapshot prune --keep 3 --dry-run")
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
        found, _identity(ctx), store, ctx.prefix, keep=keep, protected=_protected(ctx, store), now=time.time(),
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
    from dalsegno.replay.store import CANCELLED, COMPLETED, read_replays

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


def _identity(ctx: Context) -> TopicIdentity:
    topic = admin.topic_facts(ctx.kafka, topic_name(ctx.prefix, EVENTS))
    return TopicIdentity(admin.cluster_facts(ctx.kafka).cluster_id, topic.topic_id, topic.partitions)


def _new_id() -> str:
    import secrets

    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


def _named_row(named: NamedSnapshot) -> dict[str, Any]:
    return {
        "id": named.id,
        "created": iso(named.created_at),
        "partitions": f"{len(named.shards)}/{named.partitions}",
        "complete": named.complete,
        "reason": named.reason,
        "by": named.requested_by,
    }


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
    entries = {entry.id: entry for entry in found.entries(_identity(ctx))}
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

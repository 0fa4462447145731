"""``dalsegno snapshot take``: by the running workers, or of this machine's shards."""

from __future__ import annotations

import secrets
import time
from typing import Any

import click

from dalsegno.cli.common import topic_identity, who
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.numbers import Amount
from dalsegno.cli.output import emit, note
from dalsegno.cli.times import iso
from dalsegno.errors import WaitTimeout
from dalsegno.log import admin
from dalsegno.log.topics import EVENTS, topic_name, worker_group
from dalsegno.replay.reset import stopped_here
from dalsegno.snapshots import catalog as catalogue
from dalsegno.snapshots.catalog import NamedShard, NamedSnapshot, TopicIdentity
from dalsegno.snapshots.request import Answers, ask_for_snapshots
from dalsegno.snapshots.take import MICROS, Taken

TAKE_TIMEOUT_SECONDS = 60.0


@click.command(epilog="Example: dalsegno snapshot take --reason 'before the upgrade'")
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
    identity, snapshot_id = topic_identity(ctx), _new_id()
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
        emit(ctx, named_row(named))
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


def _new_id() -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


def named_row(named: NamedSnapshot) -> dict[str, Any]:
    """A snapshot as lists show it."""
    return {
        "id": named.id,
        "created": iso(named.created_at),
        "partitions": f"{len(named.shards)}/{named.partitions}",
        "complete": named.complete,
        "reason": named.reason,
        "by": named.requested_by,
    }

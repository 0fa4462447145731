"""The catalogue of snapshots: the compacted topic ``<prefix>.snapshots``.

It holds a pointer for every shard snapshot (``shard:<id>``) and a record for every snapshot that people name
(``snapshot:<id>``), which lists one shard snapshot per partition. The store holds the content; a pointer is written
only when its manifest lies there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dalsegno.errors import RecordDamaged
from dalsegno.log.codec import decode_record, encode_record
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.reader import read_compacted
from dalsegno.log.service_records import write_records
from dalsegno.log.topics import topic_name
from dalsegno.model.choose import ShardSnapshot
from dalsegno.model.cursor import Cursor, format_metadata
from dalsegno.snapshots.manifest import FORMAT, ProjectionMark
from dalsegno.snapshots.ports import manifest_key
from dalsegno.snapshots.take import Taken

READ_TIMEOUT_SECONDS = 30.0
_SHARD, _NAMED = "shard:", "snapshot:"
# Ids become parts of paths, so nothing else is taken for one.
_ID = re.compile(r"[0-9a-f]{64}\Z")


class Pointer(NamedTuple):
    """One shard snapshot. ``taken_at`` is in microseconds since 1970."""

    id: str
    format: int
    topic: str
    generation: str
    base: str
    parent: str | None
    cursor: Cursor
    projections: Mapping[str, ProjectionMark]
    files: int
    size_bytes: int
    taken_at: int
    worker: str
    reason: str

    @property
    def partition(self) -> int:
        return self.cursor.partition


class NamedShard(NamedTuple):
    partition: int
    shard_snapshot_id: str
    generation: str
    next_offset: int


class NamedSnapshot(NamedTuple):
    """A snapshot that people name. ``complete``: it lists every partition. ``created_at`` in microseconds since
    1970."""

    id: str
    partitions: int
    complete: bool
    created_at: int
    requested_by: str
    reason: str
    shards: tuple[NamedShard, ...]


class TopicIdentity(NamedTuple):
    """Which log the snapshots must be of."""

    cluster_id: str
    topic_id: str
    partitions: int


class Catalog(NamedTuple):
    """The topic as a table, in the order of writing. ``unread`` counts records that this build cannot read."""

    pointers: Mapping[str, Pointer]
    named: Mapping[str, NamedSnapshot]
    unread: int = 0

    def entries(
        self, identity: TopicIdentity, *, partition: int | None = None, bad: Mapping[str, str] | None = None
    ) -> list[ShardSnapshot]:
        """The shard snapshots as ``choose`` and ``plan`` take them; those of another log are marked as not usable, and
        so are those in ``bad`` (id -> reason)."""
        return [
            _entry(pointer, identity, (bad or {}).get(pointer.id))
            for pointer in self.pointers.values()
            if partition is None or pointer.partition == partition
        ]


def _entry(pointer: Pointer, identity: TopicIdentity, reason: str | None) -> ShardSnapshot:
    cursor = pointer.cursor
    if reason is None:
        for what, mine, theirs in (
            ("manifest format", FORMAT, pointer.format),
            ("cluster", identity.cluster_id, cursor.cluster_id),
            ("topic id", identity.topic_id, cursor.topic_id),
            ("number of partitions", identity.partitions, cursor.partitions),
        ):
            if mine != theirs:
                reason = f"of another {what}: {theirs}, not {mine}"
                break
    return ShardSnapshot(
        pointer.id,
        pointer.partition,
        pointer.generation,
        pointer.base,
        cursor.next_offset,
        reason is None,
        reason or "",
    )


def read_catalog(cfg: KafkaConfig, prefix: str, *, timeout_seconds: float = READ_TIMEOUT_SECONDS) -> Catalog:
    """The catalogue up to its end at the call. Raises TopicMissing, BrokerUnavailable, WaitTimeout."""
    return parse_catalog(read_compacted(cfg, snapshots_topic(prefix), timeout_seconds))


def snapshots_topic(prefix: str) -> str:
    return topic_name(prefix, "snapshots")


def parse_catalog(table: Mapping[bytes, bytes]) -> Catalog:
    """The catalogue in a table of raw records. One that cannot be read is counted, never taken for something else."""
    pointers: dict[str, Pointer] = {}
    named: dict[str, NamedSnapshot] = {}
    unread = 0
    for key, value in table.items():
        try:
            kind, record = decode_record(value)
        except RecordDamaged:
            unread += 1
            continue
        if kind == "ShardSnapshot" and key == f"{_SHARD}{record['shard_snapshot_id']}".encode() and _is_pointer(record):
            pointers[record["shard_snapshot_id"]] = _to_pointer(record)
        elif kind == "Snapshot" and key == f"{_NAMED}{record['snapshot_id']}".encode():
            named[record["snapshot_id"]] = _to_named(record)
        else:
            unread += 1
    return Catalog(pointers, named, unread)


def _is_pointer(record: Mapping[str, Any]) -> bool:
    """Whether id, generation and base are such as a worker gives; a commit could not carry any other."""
    try:
        format_metadata(record["generation"], record["base"])
    except ValueError:
        return False
    return _ID.match(record["shard_snapshot_id"]) is not None


def publish_pointer(cfg: KafkaConfig, prefix: str, taken: Taken, reason: str) -> None:
    """Step 4 of taking a snapshot: the acknowledged pointer."""
    write_records(cfg, snapshots_topic(prefix), [pointer_record(prefix, taken, reason)])


def pointer_record(prefix: str, taken: Taken, reason: str) -> tuple[str, bytes]:
    """Key and value of the pointer to a shard snapshot."""
    manifest = taken.manifest
    cursor = manifest.cursor.cursor()
    record = {
        "shard_snapshot_id": taken.id,
        "format": manifest.format,
        "partition": cursor.partition,
        "partitions": cursor.partitions,
        "cluster_id": cursor.cluster_id,
        "topic": manifest.topic,
        "topic_id": cursor.topic_id,
        "generation": manifest.generation,
        "base": manifest.base,
        "parent": manifest.parent,
        "next_offset": cursor.next_offset,
        "leader_epoch": cursor.leader_epoch,
        "last_offset": cursor.last_offset,
        "last_key": cursor.last_key,
        "projections": [
            {"name": name, "version": mark.version, "digest": bytes.fromhex(mark.digest)}
            for name, mark in sorted(manifest.projections.items())
        ],
        "manifest": manifest_key(prefix, taken.id),
        "manifest_digest": bytes.fromhex(taken.id),
        "files": len(manifest.files),
        "size_bytes": manifest.size_bytes,
        "taken_at": manifest.taken_at,
        "worker": manifest.worker,
        "reason": reason,
    }
    return f"{_SHARD}{taken.id}", encode_record("ShardSnapshot", record)


def publish_named(cfg: KafkaConfig, prefix: str, snapshot: NamedSnapshot) -> None:
    """Record a snapshot that people name; its shard snapshots are in the catalogue already."""
    write_records(cfg, snapshots_topic(prefix), [named_record(snapshot)])


def named_record(snapshot: NamedSnapshot) -> tuple[str, bytes]:
    """Key and value of a named snapshot."""
    record = {
        "snapshot_id": snapshot.id,
        "partitions": snapshot.partitions,
        "complete": snapshot.complete,
        "created_at": snapshot.created_at,
        "requested_by": snapshot.requested_by,
        "reason": snapshot.reason,
        "shards": [shard._asdict() for shard in snapshot.shards],
    }
    return f"{_NAMED}{snapshot.id}", encode_record("Snapshot", record)


def remove(cfg: KafkaConfig, prefix: str, *, pointers: Iterable[str] = (), named: Sequence[str] = ()) -> None:
    """Take entries out of the catalogue. Their content in the store is not touched."""
    keys = [f"{_SHARD}{name}" for name in pointers] + [f"{_NAMED}{name}" for name in named]
    if keys:
        write_records(cfg, snapshots_topic(prefix), [(key, None) for key in keys])


def _to_pointer(record: Mapping[str, Any]) -> Pointer:
    epoch = record["leader_epoch"]
    cursor = Cursor(
        record["next_offset"],
        record["cluster_id"],
        record["topic_id"],
        record["partition"],
        record["partitions"],
        -1 if epoch is None else epoch,
        record["last_offset"],
        record["last_key"],
    )
    projections = {
        each["name"]: ProjectionMark(each["version"], each["digest"].hex()) for each in record["projections"]
    }
    return Pointer(
        record["shard_snapshot_id"],
        record["format"],
        record["topic"],
        record["generation"],
        record["base"],
        record["parent"],
        cursor,
        projections,
        record["files"],
        record["size_bytes"],
        record["taken_at"],
        record["worker"],
        record["reason"],
    )


def _to_named(record: Mapping[str, Any]) -> NamedSnapshot:
    return NamedSnapshot(
        record["snapshot_id"],
        record["partitions"],
        record["complete"],
        record["created_at"],
        record["requested_by"],
        record["reason"],
        tuple(NamedShard(**shard) for shard in record["shards"]),
    )

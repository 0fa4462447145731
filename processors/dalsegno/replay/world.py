"""Gathering what a plan depends on: the log, the group, the catalogue, and this machine's shards."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dalsegno.errors import DalsegnoError
from dalsegno.log import admin
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.topics import EVENTS, topic_name, worker_group
from dalsegno.model.cursor import parse_metadata
from dalsegno.model.ids import partition_of
from dalsegno.replay.plan import PartitionWorld, World
from dalsegno.replay.target import Target, TargetKind
from dalsegno.snapshots.catalog import Catalog, TopicIdentity, read_catalog
from dalsegno.snapshots.folders import RocksFolders
from dalsegno.state.generations import current_shards
from dalsegno.state.keys import index_prefix
from dalsegno.state.kv import STATE, KeyReader, scan_prefix
from dalsegno.state.layout import IndexEntry
from dalsegno.state.rocks import open_secondary

_SEQ = struct.Struct(">Q")


@dataclass(frozen=True)
class Place:
    """Where a replay happens. ``data`` is the folder of this machine's slots; ``projections`` are this build's."""

    kafka: KafkaConfig
    prefix: str
    data: Path
    projections: Mapping[str, int]

    @property
    def events(self) -> str:
        return topic_name(self.prefix, EVENTS)

    @property
    def group(self) -> str:
        return worker_group(self.prefix)


def gather(place: Place, target: Target | None = None, bad: Mapping[str, str] | None = None) -> World:
    """The world as it is now. ``bad``: snapshots (id -> reason) that were found to be damaged.

    Raises TopicMissing, BrokerUnavailable, WaitTimeout.
    """
    cluster = admin.cluster_facts(place.kafka)
    topic = admin.topic_facts(place.kafka, place.events)
    marks = admin.watermarks(place.kafka, place.events)
    commits = admin.group_offsets(place.kafka, place.group)
    catalog = read_catalog(place.kafka, place.prefix)
    identity = TopicIdentity(cluster.cluster_id, topic.topic_id, topic.partitions)
    cursors = local_cursors(place, topic.topic_id)
    partitions = {
        number: _partition(
            number, marks[number], commits.get((place.events, number)), cursors.get(number), catalog, identity, bad
        )
        for number in range(topic.partitions)
    }
    return World(
        group=place.group,
        cluster_id=cluster.cluster_id,
        topic=place.events,
        topic_id=topic.topic_id,
        partitions=partitions,
        members=tuple(member.member_id for member in admin.describe_group(place.kafka, place.group).members),
        projections=dict(place.projections),
        named={
            name: {shard.partition: shard.shard_snapshot_id for shard in snapshot.shards}
            for name, snapshot in catalog.named.items()
        },
        session_at=_find_event(place, target, topic) if target and target.kind is TargetKind.SESSION else None,
    )


def _partition(
    number: int,
    bounds: admin.Watermarks,
    commit: admin.Committed | None,
    local: int | None,
    catalog: Catalog,
    identity: TopicIdentity,
    bad: Mapping[str, str] | None,
) -> PartitionWorld:
    entries = tuple(catalog.entries(identity, partition=number, bad=bad))
    known = [entry.next_offset for entry in entries if entry.usable]
    if local is not None:
        known.append(local)
    if commit is not None and parse_metadata(commit.metadata) is not None:
        known.append(commit.offset)
    return PartitionWorld(
        partition=number,
        low=bounds.low,
        high=bounds.high,
        committed_offset=None if commit is None else commit.offset,
        committed_metadata=None if commit is None else commit.metadata,
        state_cursor=max(known, default=None),
        snapshots=entries,
    )


def local_cursors(place: Place, topic_id: str) -> dict[int, int]:
    """The furthest cursor of each partition among this machine's shards. A shard that cannot be read counts nothing."""
    states = RocksFolders()
    found: dict[int, int] = {}
    for shard in current_shards(place.data, place.prefix, topic_id):
        try:
            cursor = states.marks(shard.folder).cursor.next_offset
        except DalsegnoError:
            continue
        found[shard.partition] = max(cursor, found.get(shard.partition, 0))
    return found


def _find_event(place: Place, target: Target, topic: admin.TopicFacts) -> tuple[int, int] | None:
    """Partition and lowest offset of the records that stand at this seq of the session, as this machine knows them."""
    partition = partition_of(target.name, topic.partitions)
    offsets = []
    for shard in current_shards(place.data, place.prefix, topic.topic_id):
        if shard.partition != partition:
            continue
        with tempfile.TemporaryDirectory(prefix="dalsegno-look-") as scratch:
            try:
                store = open_secondary(shard.folder, Path(scratch))
            except DalsegnoError:
                continue
            try:
                offsets += _offsets_at(store, target.name, target.seq)
            finally:
                store.close()
    return (partition, min(offsets)) if offsets else None


def _offsets_at(store: KeyReader, session_id: str, seq: int) -> list[int]:
    prefix = index_prefix(session_id) + _SEQ.pack(seq)
    return [IndexEntry.decode(value).offset for _, value in scan_prefix(store, STATE, prefix)]

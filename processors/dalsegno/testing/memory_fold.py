"""A partition of a memory log, folded by the shard that workers use, over the store in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dalsegno.log.schema_set import SchemaSet
from dalsegno.projections.base import Projection, RowId
from dalsegno.state.layout import ShardIdentity
from dalsegno.state.memory import MemoryStore
from dalsegno.state.reads import ShardReads
from dalsegno.state.shard import Shard
from dalsegno.testing.memory_log import MemoryLog


def fold_partition(
    log: MemoryLog,
    topic: str,
    partition: int,
    partitions: int,
    schemas: SchemaSet,
    projections: Sequence[Projection[Any]],
) -> ShardReads:
    """Everything that the partition holds, in one batch."""
    store = MemoryStore()
    identity = ShardIdentity(
        topic=topic, cluster_id="memory", topic_id="0" * 32, partition=partition, partitions=partitions,
        generation="memory", base="-",
    )  # fmt: skip
    shard = Shard.open(store, identity=identity, schemas=schemas, projections=projections)
    records = log.records(topic, partition)
    end = records[-1].offset + 1 if records else 0
    shard.apply(identity.generation, 0, end, records)
    return ShardReads(store, schemas, projections, where=f"{topic}-{partition} in memory")


def rows_of(reads: ShardReads, projection: str, session_id: str | None, *, rollup: bool) -> dict[RowId, Any]:
    """See ``MemoryPublisher.rows``. ``rollup``: the projection has sums, no rows per session."""
    if session_id is not None and not rollup:
        return dict(reads.rows(projection, session_id))
    if rollup:
        return dict(reads.rollups(projection))
    return {(name, *row_id): row for name, row_id, row in reads.all_rows(projection)}

"""What one event costs, stage by stage, in one process and without a broker.

Each stage does all that the one before does, and one thing more: ``scan`` looks at the records, ``decode`` is the
baseline (the value's schema, and fastavro's plain reader), ``place`` proves key, hash and partition, ``path`` keeps
index and journal and judges the lifecycle, ``rows`` folds the projections and writes their rows, ``digests`` hashes
them. ``shard`` is the whole of ``Shard.apply``.
"""

from __future__ import annotations

import gc
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import fastavro

from dalsegno.log.codec import FRAME_BYTES, place
from dalsegno.log.record import LogRecord
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.ids import Offset
from dalsegno.projections.base import Projection
from dalsegno.projections.registry import built_in
from dalsegno.state.kv import KeyValue
from dalsegno.state.memory import MemoryStore
from dalsegno.state.rocks import RocksStore
from dalsegno.state.shard import Shard, ShardIdentity

BATCH_RECORDS = 10_000
IDENTITY = ShardIdentity(
    topic="bench.events", cluster_id="bench", topic_id="0" * 32, partition=0, partitions=1, generation="bench", base="-"
)


class Stage(NamedTuple):
    """``ratio`` is to ``decode`` in the same run; ``seconds`` the best of the repetitions."""

    name: str
    seconds: float
    events_per_second: float
    ratio: float


class Bench(NamedTuple):
    records: int
    value_bytes: float
    stages: tuple[Stage, ...]
    peak_mib: float

    def as_text(self) -> str:
        lines = [f"{self.records} records of {self.value_bytes:.0f} bytes, peak {self.peak_mib:.0f} MiB"]
        lines += [
            f"{each.name:28} {each.events_per_second:10,.0f}/s  {each.seconds / self.records * 1e6:6.1f} us  "
            f"{each.ratio:5.3f}"
            for each in self.stages
        ]
        return "\n".join(lines)


def log_records(pairs: Iterable[tuple[bytes, bytes | None]]) -> list[LogRecord]:
    """Key and value pairs as the records of one partition."""
    return [LogRecord(Offset(offset), key, value, 0, 0) for offset, (key, value) in enumerate(pairs)]


def run_stages(
    records: Sequence[LogRecord],
    *,
    projections: Sequence[Projection[Any]] | None = None,
    folder: Path | None = None,
    repeat: int = 1,
) -> Bench:
    """Time all stages on these records, which all lie in one partition."""
    schemas = SchemaSet.load()
    chosen = built_in() if projections is None else list(projections)
    sessions = [projection for projection in chosen if projection.name == "sessions"]
    stages: list[tuple[str, Callable[[], None]]] = [
        ("scan", lambda: _scan(records)),
        ("decode", lambda: _decode(schemas, records)),
        ("place", lambda: _place(schemas, records)),
        ("path and rules, memory", lambda: _apply(schemas, records, [], MemoryStore())),
        ("sessions, memory", lambda: _apply(schemas, records, sessions, MemoryStore())),
        ("sessions, disk", lambda: _on_disk(schemas, records, sessions, folder)),
        ("all projections, disk", lambda: _on_disk(schemas, records, chosen, folder)),
    ]
    seconds = {name: min(_timed(stage) for _ in range(repeat)) for name, stage in stages}
    base = seconds["decode"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    size = sum(len(record.value or b"") for record in records) / len(records)
    return Bench(
        len(records),
        size,
        tuple(Stage(name, took, len(records) / took, base / took) for name, took in seconds.items()),
        peak,
    )


def _timed(stage: Callable[[], None]) -> float:
    gc.collect()
    before = perf_counter()
    stage()
    return perf_counter() - before


def _scan(records: Sequence[LogRecord]) -> None:
    for record in records:
        if record.key is None or record.value is None:
            continue


def _decode(schemas: SchemaSet, records: Sequence[LogRecord]) -> None:
    """The baseline: no check, no place, nothing kept."""
    read = fastavro.schemaless_reader
    writers = {writer.frame_id: writer.raw for writer in schemas}
    for record in records:
        value = record.value
        if value is not None:
            read(BytesIO(value[FRAME_BYTES:]), writers[value[2:FRAME_BYTES]], None)


def _place(schemas: SchemaSet, records: Sequence[LogRecord]) -> None:
    for record in records:
        place(schemas, record.key, record.value, 0, 1)


def _apply(
    schemas: SchemaSet, records: Sequence[LogRecord], projections: Sequence[Projection[Any]], kv: KeyValue
) -> None:
    shard = Shard.open(kv, identity=IDENTITY, schemas=schemas, projections=projections)
    for at in range(0, len(records), BATCH_RECORDS):
        batch = records[at : at + BATCH_RECORDS]
        shard.apply(shard.generation, at, at + len(batch), batch)
    shard.close()


def _on_disk(
    schemas: SchemaSet, records: Sequence[LogRecord], projections: Sequence[Projection[Any]], folder: Path | None
) -> None:
    where = Path(tempfile.mkdtemp(prefix="dalsegno-bench-", dir=folder))
    try:
        _apply(schemas, records, projections, RocksStore.open(where / "shard"))
    finally:
        shutil.rmtree(where, ignore_errors=True)

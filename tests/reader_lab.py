"""Data folders as workers leave them, and a log to compare them with, both without a broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dalsegno.log.amend_requests import Requests
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.record import Batch, LogRecord
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.cursor import LogFacts
from dalsegno.model.ids import Offset
from dalsegno.projections.base import Projection
from dalsegno.projections.registry import built_in
from dalsegno.readers.local import LocalReader
from dalsegno.readers.verify import Report, Verifier
from dalsegno.snapshots.catalog import Catalog, parse_catalog, pointer_record
from dalsegno.snapshots.folders import RocksFolders
from dalsegno.snapshots.take import Origin, Taken, freeze, upload
from dalsegno.state.generations import PartitionFolder
from dalsegno.state.rocks import RocksStore
from dalsegno.state.shard import Shard, ShardIdentity
from dalsegno.storage.object_store import FolderStore
from dalsegno.testing.builder import Written
from shard_lab import apply, log_of

PREFIX = "p"
TOPIC_ID = "ab" * 16
GENERATION = "g"


def no_broker() -> KafkaConfig:
    raise AssertionError("a broker was asked")


class House:
    """One machine: its data folder with slots, its snapshot store, and the log. A context manager."""

    def __init__(self, folder: Path, partitions: int = 1) -> None:
        self.data, self.store_folder, self.partitions = folder / "data", folder / "store", partitions
        self.store = FolderStore(self.store_folder)
        self.log = TestLog(partitions)
        self.catalog_records: dict[bytes, bytes] = {}
        self._closing = ExitStack()

    def __enter__(self) -> House:
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.close()

    # --- shards ----------------------------------------------------------------------------------------------------

    def folder(self, slot: int = 0, partition: int = 0, name: str = f"{GENERATION}.1") -> Path:
        return self.data / PREFIX / "slots" / str(slot) / TOPIC_ID / str(partition) / name

    def shard(
        self,
        records: Sequence[Written] = (),
        *,
        slot: int = 0,
        partition: int = 0,
        projections: Sequence[Projection[Any]] | None = None,
        base: str = "-",
        name: str = f"{GENERATION}.1",
        schemas: SchemaSet | None = None,
    ) -> Shard:
        """A shard that a worker holds (and goes on to hold until the house is left), with these records applied."""
        folder = self.folder(slot, partition, name)
        identity = ShardIdentity(f"{PREFIX}.events", "c", TOPIC_ID, partition, self.partitions, GENERATION, base)
        store: Any = RocksStore.open(folder)
        self._closing.callback(store.close)
        chosen = built_in() if projections is None else projections
        shard = Shard.open(store, identity=identity, schemas=schemas or SchemaSet.load(), projections=chosen)
        PartitionFolder(folder.parent.parent.parent, TOPIC_ID, partition).point_to(name)
        if records:
            apply(shard, records)
        return shard

    def built(self, records: Sequence[Written], **options: Any) -> Shard:
        """The same records in the log and in a shard."""
        self.log.append(records, options.get("partition", 0))
        return self.shard(records, **options)

    def snapshot(self, shard: Shard) -> Taken:
        """A snapshot of it, in the store and in the catalogue."""
        marks = freeze(shard.kv.checkpoint, self.data / "checkpoint", RocksFolders())
        origin = Origin(f"{PREFIX}.events", "w", "test")
        taken = upload(
            self.data / "checkpoint", marks, self.store, PREFIX, origin, now=time.time, publish=lambda *_: None
        )
        key, value = pointer_record(PREFIX, taken, "test")
        self.catalog_records[key.encode()] = value
        return taken

    @property
    def catalog(self) -> Catalog:
        return parse_catalog(self.catalog_records)

    # --- reading ---------------------------------------------------------------------------------------------------

    def reader(
        self,
        projections: Sequence[Projection[Any]] | None = None,
        kafka: Callable[[], KafkaConfig] = no_broker,
        data: Path | None = None,
    ) -> LocalReader:
        chosen = built_in() if projections is None else projections
        reader = LocalReader(data or self.data, PREFIX, self.store, kafka, chosen)
        return self._closing.enter_context(reader)

    def verify(
        self,
        *,
        partition: int = 0,
        audited: Requests | None = None,
        snapshots: bool = False,
        projections: Sequence[Projection[Any]] | None = None,
        data: Path | None = None,
    ) -> Report:
        scratch = self.data.parent / "scratch"
        scratch.mkdir(exist_ok=True)
        chosen = built_in() if projections is None else projections
        verifier = Verifier(
            self.log, PREFIX, chosen, self.store, self.catalog if snapshots else None, audited or Requests(), scratch,
            lambda _partition, _position, _end: None,
        )  # fmt: skip
        report = verifier.verify(self.reader(chosen, data=data).views()[partition])
        assert list(scratch.iterdir()) == [], "nothing is left behind"
        return report


class TestLog:
    """The events topic in memory. ``keep_last_copies`` is what compaction does: of a key, only the last one stays."""

    __test__ = False
    batch = 50

    def __init__(self, partitions: int) -> None:
        self.parts: list[list[LogRecord]] = [[] for _ in range(partitions)]
        self.ends = [0] * partitions
        self.low = 0
        self.extra_schemas: list[str] = []
        self.largest_batch = 0

    def append(self, records: Sequence[Written], partition: int = 0) -> None:
        self.parts[partition] += log_of(records, self.ends[partition])
        self.ends[partition] += len(records)

    def keep_last_copies(self, *, tombstones: bool = True) -> None:
        """``tombstones`` False: those are old enough to go as well."""
        for number, part in enumerate(self.parts):
            last = {record.key: record.offset for record in part}
            self.parts[number] = [
                record
                for record in part
                if last[record.key] == record.offset and (tombstones or record.value is not None)
            ]

    def facts(self, partition: int) -> LogFacts:
        return LogFacts("c", TOPIC_ID, partition, len(self.parts), self.low, self.ends[partition])

    def read(self, partition: int, start: int, end: int | None) -> Iterator[Batch]:
        assert start >= self.low, "read below the log's start"
        bound = self.ends[partition] if end is None else end
        left = [record for record in self.parts[partition] if record.offset >= start]
        position = start
        while position < bound:
            some, left = left[: self.batch], left[self.batch :]
            after = some[-1].offset + 1 if left else max(bound, self.ends[partition])
            yield Batch(Offset(position), some, Offset(after))
            position = after

    def schemas(self) -> list[str]:
        return self.extra_schemas


def damaged_copy(house: House, change: Callable[[Any], None], target: Path, **place: int) -> Path:
    """A copy of the data folder in which the store of one shard was changed by ``change(store)``; its path."""
    import shutil

    shutil.copytree(house.data, target)
    store: Any = RocksStore.open(target / house.folder(**place).relative_to(house.data), create=False)
    try:
        change(store)
    finally:
        store.close()
    return target


def put(store: Any, changes: Mapping[tuple[str, bytes], bytes | None]) -> None:
    """Write rows behind the shard's back; None deletes."""
    batch = store.batch()
    for (family, key), value in changes.items():
        if value is None:
            batch.delete(family, key)
        else:
            batch.put(family, key, value)
    store.write(batch)

"""A partition folded again from the log, in a folder of its own, beside the shard that is read.

Of a record that came again above the live cursor, or was tombstoned there, compaction removes the copy below. Folding
to the cursor alone would then miss it. So where something differs, the log is read on from the cursor, and records that
the live shard knows from below it are taken in from above it: their keys hold their hashes, so they are the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import msgspec

from dalsegno.errors import SchemaIncompatible
from dalsegno.log.codec import MARKER
from dalsegno.log.record import Batch, LogRecord
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.cursor import LogFacts
from dalsegno.model.ids import parse_key
from dalsegno.model.records import UNKNOWN_SCHEMA
from dalsegno.projections.base import Projection
from dalsegno.readers.compare import DIGEST, Difference, entry_at, index_differences, row_differences
from dalsegno.readers.local import View
from dalsegno.state.keys import WAITING, index_key
from dalsegno.state.kv import STATE, scan_prefix
from dalsegno.state.layout import IDENTITY_KEY, IndexEntry, JournalEntry, decode_identity
from dalsegno.state.rebuild import catalogue_name, recompute_digests
from dalsegno.state.rocks import RocksStore
from dalsegno.state.session import LIFECYCLE_SPECS
from dalsegno.state.shard import Shard
from dalsegno.state.tables import LIFECYCLE, ProjectionTables, TableSpec

GENERATION = "verify"
MAX_DIFFERENCES = 20
"""Differences named per partition and comparison; one is enough to fail."""

Progress = Callable[[int, int, int], None]
"""Told the partition, the offset that its fold has reached, and the one where it ends."""


class Log(Protocol):
    """The events topic, as far as verifying needs it."""

    def facts(self, partition: int) -> LogFacts: ...

    def read(self, partition: int, start: int, end: int | None) -> Iterator[Batch]:
        """Committed records from ``start`` until ``end`` (None: the end of the log) was passed."""

    def schemas(self) -> list[str]:
        """Every schema of the schema topic, as JSON."""


@dataclass
class Findings:
    folded: int | None = None
    snapshot: str | None = None
    tail: int | None = None
    differences: list[Difference] = field(default_factory=list)
    uncompared: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add(self, differences: Iterator[Difference]) -> None:
        self.differences += islice(differences, MAX_DIFFERENCES)


class Refold:
    """The fold of one partition beside its live shard: with the same projections, and what the live shard had read."""

    def __init__(
        self, view: View, log: Log, projections: Sequence[Projection[Any]], progress: Progress, found: Findings
    ) -> None:
        self.view, self.found = view, found
        self._log, self._progress = log, progress
        self._projections, self.specs = _comparable(view, projections, found)
        self._live = recompute_digests(view.reads.kv, self.specs)
        self._schemas = _schemas_of(view, self._log)

    def kept_digests(self) -> Iterator[Difference]:
        """Digests that the live shard keeps, where its rows give another."""
        kept = self.view.reads.digests()
        for name, follows in self._live.items():
            if kept[name] != follows:
                yield Difference(
                    DIGEST, self.view.partition, None, name, kept[name].digest, follows.digest, "its own rows"
                )

    def fold(self, folder: Path, beside: str, start: int = 0) -> int:
        """Fold from the shard in ``folder`` (or a new one, from ``start``) to the live cursor, and compare. Returns how
        many records were folded."""
        kv = RocksStore.open(folder)
        try:
            shard = self._open(kv)
            if shard.cursor.next_offset < start:
                shard.apply(shard.generation, 0, start, [])
            folded = self._fold_to_cursor(shard)
            differences = self._differences(shard, beside)
            if differences and self._take_in_what_moved_up(shard):
                differences = self._differences(shard, beside)
            self.found.differences += differences
        finally:
            kv.close()
        return folded

    def _differences(self, shard: Shard, beside: str) -> list[Difference]:
        found = list(islice(index_differences(self.view, shard.kv, beside), MAX_DIFFERENCES))
        digests = shard.digests()
        if any(digests[name] != follows for name, follows in self._live.items()):
            found += islice(row_differences(self.view, shard.kv, self.specs, beside), MAX_DIFFERENCES)
        return found

    def _open(self, kv: RocksStore) -> Shard:
        """The shard in ``kv``: a restored one keeps its generation, a new one is of none that a worker knows."""
        stored = kv.get(STATE, IDENTITY_KEY)
        if stored is None:
            own = msgspec.structs.replace(self.view.reads.identity(), generation=GENERATION)
        else:
            own = decode_identity(stored, str(kv.path))
        return Shard.open(kv, identity=own, schemas=self._schemas, projections=self._projections)

    def _fold_to_cursor(self, shard: Shard) -> int:
        end, folded = self.view.cursor.next_offset, 0
        if shard.cursor.next_offset >= end:
            return 0
        for batch in self._log.read(self.view.partition, shard.cursor.next_offset, end):
            records = [record for record in batch.records if record.offset < end]
            shard.apply(shard.generation, batch.start, min(batch.next_offset, end), records)
            folded += len(records)
            self._progress(self.view.partition, shard.cursor.next_offset, end)
        return folded

    def _take_in_what_moved_up(self, shard: Shard) -> int:
        """Read the log on from the live cursor, and take in what the live shard knows from below it. How many."""
        taken = 0
        for batch in self._log.read(self.view.partition, shard.cursor.next_offset, None):
            records = [kept for record in batch.records if (kept := self._kept_below(shard, record)) is not None]
            shard.apply(shard.generation, batch.start, batch.next_offset, records)
            taken += len(records)
        return taken

    def _kept_below(self, shard: Shard, record: LogRecord) -> LogRecord | None:
        """The record with the bytes that the live shard has for its key; None unless only the live shard knows it."""
        key = parse_key(record.key or b"")
        if key is None or shard.kv.get(STATE, index_key(*key)) is not None:
            return None
        raw = self.view.reads.kv.get(STATE, index_key(*key))
        entry = None if raw is None else entry_at(self.view.reads.kv, IndexEntry.decode(raw).offset)
        return None if entry is None else record._replace(value=self._value(entry))

    def _value(self, entry: JournalEntry) -> bytes | None:
        writer = None if entry.is_raw else self._schemas.by_hash(entry.schema)
        frame_id = entry.schema if entry.is_raw else writer.frame_id if writer is not None else b""
        return MARKER + frame_id + entry.body


# --- what can be compared ---------------------------------------------------------------------------------------------


def _comparable(
    view: View, projections: Sequence[Projection[Any]], found: Findings
) -> tuple[list[Projection[Any]], list[TableSpec]]:
    """The projections whose rows this build can fold again, and their tables; the others are named as not compared."""
    position = view.reads.position()
    if position.catalogue != catalogue_name():
        found.uncompared.append("it was folded by a build that knows other event types than this one")
        return [], []
    stored = position.digests
    lifecycle = LIFECYCLE_SPECS[0].version
    if LIFECYCLE not in stored or stored[LIFECYCLE].version != lifecycle:
        found.uncompared.append(f"its lifecycle rules are of another version than {lifecycle}")
        return [], []
    same, specs = [], list(LIFECYCLE_SPECS)
    for projection in projections:
        have = stored[projection.name].version if projection.name in stored else None
        if have == projection.version:
            same.append(projection)
            specs += ProjectionTables(projection).specs()
        else:
            what = "not there yet" if have is None else "being folded again" if have < 0 else f"of version {have}"
            found.uncompared.append(f"the rows of {projection.name} are {what}; this build has {projection.version}")
    known = {LIFECYCLE, *(projection.name for projection in projections)}
    found.uncompared += [f"this build has no projection {name}" for name in sorted(stored.keys() - known)]
    return same, specs


def _schemas_of(view: View, log: Log) -> SchemaSet:
    """What the live shard could read: the catalogue and the log's schemas, without those that it still waits for."""
    missed = {raw[:8] for _, raw in scan_prefix(view.reads.kv, STATE, WAITING) if raw[8:] == UNKNOWN_SCHEMA.encode()}
    schemas, every = SchemaSet.load(), SchemaSet()
    for text in log.schemas():
        try:
            writer = every.add(text)
        except SchemaIncompatible:
            continue  # a stranger's record: whoever needs that schema is held
        if writer.frame_id not in missed:
            schemas.add(writer.json)
    return schemas

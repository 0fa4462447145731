"""Verify: fold the log again beside the state that is read, and compare.

For each partition, at the cursor C of its live shard:

1. journal: every record that the index names is there, and hashes to its name;
2. rows: the digests that the shard keeps follow from its rows;
3. log: a shard folded from the start of the log to C has the same rows and digests;
4. snapshot: the newest usable one at or below C, and the log from there to C, give the same too;
5. amendments: each is known to the admin audit, which other rights protect than those of the log.

A difference is named by projection (or journal, digest, amendment), partition, session, and field or seq.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dalsegno.log import admin
from dalsegno.log.codec import decode_record
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.reader import read_range
from dalsegno.log.schema_set import SchemaSet
from dalsegno.log.topics import EVENTS, topic_name
from dalsegno.model.choose import newest_usable
from dalsegno.model.records import AMENDMENT_TYPE
from dalsegno.projections.base import Projection
from dalsegno.readers.local import View
from dalsegno.snapshots.catalog import Catalog, TopicIdentity
from dalsegno.snapshots.folders import RocksFolders
from dalsegno.snapshots.restore import check_state, fetch, read_manifest
from dalsegno.state.history import key_of
from dalsegno.state.keys import INDEX, TOTAL, split_index, take_id, take_text
from dalsegno.state.kv import STATE, KeyReader, scan_prefix
from dalsegno.state.layout import IDENTITY_KEY, IndexEntry, ShardIdentity, decode_identity
from dalsegno.state.rocks import RocksStore
from dalsegno.state.shard import Shard
from dalsegno.state.tables import TableSpec
from dalsegno.storage.object_store import Store

log = logging.getLogger("dalsegno.readers")

GENERATION = "verify"
JOURNAL, DIGEST, AMENDMENT = "journal", "digest", "amendment"
MAX_DIFFERENCES = 20
"""Differences named per partition and comparison; one is enough to fail."""

Progress = Callable[[int, int], None]
"""Told the partition and the records folded in it so far."""


class Difference(NamedTuple):
    """One thing that is not as the log has it. ``what`` is a projection's name, or journal, digest or amendment."""

    what: str
    partition: int
    session: str | None
    place: str
    """The row's id and field, or the seq of a record."""
    live: Any
    expected: Any
    beside: str
    """What the live state was compared with: log, snapshot, rows, or audit."""


class Report(NamedTuple):
    """What was compared for one partition. ``digests``: projection -> digest of the live shard."""

    partition: int
    cursor: int
    source: str
    records_folded: int
    tail_records: int | None
    """Records folded after the snapshot; None if there was none to compare."""
    digests: dict[str, str]
    differences: tuple[Difference, ...]
    remarks: tuple[str, ...]


class Verifier:
    """Compares live shards with the log. ``catalog`` None: no snapshots are looked at."""

    def __init__(
        self,
        kafka: KafkaConfig,
        prefix: str,
        projections: Sequence[Projection[Any]],
        store: Store,
        catalog: Catalog | None,
        audited: frozenset[str],
        progress: Progress | None = None,
    ) -> None:
        self._kafka = kafka
        self._prefix = prefix
        self._topic = topic_name(prefix, EVENTS)
        self._projections = projections
        self._store = store
        self._catalog = catalog
        self._audited = audited
        self._progress = progress

    def verify(self, view: View) -> Report:
        """All comparisons for one partition."""
        differences: list[Difference] = [*islice(_journal(view), MAX_DIFFERENCES), *_kept_digests(view)]
        differences += islice(self._unaudited(view), MAX_DIFFERENCES)
        remarks: list[str] = []
        folded, tail = 0, None
        low = admin.watermarks(self._kafka, self._topic)[view.partition].low
        with tempfile.TemporaryDirectory(prefix="dalsegno-verify-") as scratch:
            if low == 0:
                folded = self._beside(view, Path(scratch) / "zero", "log", differences)
            else:
                remarks.append(f"the log begins at offset {low}: nothing is folded from its start")
            if self._catalog is not None:
                tail = self._after_snapshot(view, Path(scratch), low, differences, remarks)
        digests = {name: each.digest for name, each in view.reads.digests().items()}
        return Report(
            view.partition,
            view.cursor.next_offset,
            view.source,
            folded,
            tail,
            digests,
            tuple(differences),
            tuple(remarks),
        )

    # --- 3 and 4: the log folded again -------------------------------------------------------------------------------

    def _after_snapshot(
        self, view: View, scratch: Path, low: int, differences: list[Difference], remarks: list[str]
    ) -> int | None:
        assert self._catalog is not None
        identity = view.reads.identity()
        log_identity = TopicIdentity(identity.cluster_id, identity.topic_id, identity.partitions)
        entries = self._catalog.entries(log_identity, partition=view.partition)
        newest = newest_usable(entries, at_or_below=view.cursor.next_offset, log_start=low)
        if newest is None:
            remarks.append("no usable snapshot to fold from")
            return None
        folder = scratch / "snapshot"
        manifest = read_manifest(newest.id, self._store, self._prefix)
        fetch(newest.id, manifest, self._store, self._prefix, folder)
        check_state(newest.id, manifest, folder, RocksFolders())
        return self._beside(view, folder, f"snapshot {newest.id[:12]}", differences)

    def _beside(self, view: View, folder: Path, name: str, differences: list[Difference]) -> int:
        """Fold from what is in ``folder`` to the live cursor and compare; records folded."""
        kv = RocksStore.open(folder)
        try:
            shard = self._open(kv, view.reads.identity())
            folded = self._fold(shard, view)
            if shard.digests() != view.reads.digests():
                found = list(islice(_rows(view, kv, shard.specs(), name), MAX_DIFFERENCES))
                differences += found or [_digests_only(view, shard, name)]
        finally:
            kv.close()
        return folded

    def _open(self, kv: RocksStore, identity: ShardIdentity) -> Shard:
        """The shard in ``kv``: a restored one keeps its generation, a new one is of none that a worker knows."""
        stored = kv.get(STATE, IDENTITY_KEY)
        if stored is None:
            own = msgspec.structs.replace(identity, generation=GENERATION)
        else:
            own = decode_identity(stored, str(kv.path))
        return Shard.open(kv, identity=own, schemas=SchemaSet.load(), projections=self._projections)

    def _fold(self, shard: Shard, view: View) -> int:
        end, folded = view.cursor.next_offset, 0
        for batch in read_range(self._kafka, self._topic, view.partition, shard.cursor.next_offset, end):
            records = [record for record in batch.records if record.offset < end]
            shard.apply(shard.generation, batch.start, min(batch.next_offset, end), records)
            folded += len(records)
            if self._progress is not None:
                self._progress(view.partition, folded)
        return folded

    # --- 5 -----------------------------------------------------------------------------------------------------------

    def _unaudited(self, view: View) -> Iterator[Difference]:
        for session_id, seq, hash_, entry in _index(view.reads.kv):
            if seq != 0:
                continue
            event = view.reads.journal(entry.offset)
            if getattr(event, "type", None) != AMENDMENT_TYPE:
                continue
            request = event.body.get("request_id")  # type: ignore[union-attr]
            if request not in self._audited:
                place = f"HistoryAmended {hash_.hex()[:12]}"
                yield Difference(
                    AMENDMENT, view.partition, session_id, place, request, "the same request", "admin audit"
                )


def audited_requests(kafka: KafkaConfig, prefix: str) -> frozenset[str]:
    """Ids of the requests in the admin audit."""
    found = set[str]()
    for batch in read_range(kafka, topic_name(prefix, "admin-audit"), 0):
        for record in batch.records:
            if record.value is not None:
                found.add(decode_record(record.value)[1]["request_id"])
    return frozenset(found)


# --- 1 and 2: the shard against itself -------------------------------------------------------------------------------


def _index(kv: KeyReader) -> Iterator[tuple[str, int, bytes, IndexEntry]]:
    for key, raw in scan_prefix(kv, STATE, INDEX):
        session_id, at = take_text(key, 1)
        seq, hash_ = split_index(key, at)
        yield session_id, seq, hash_, IndexEntry.decode(raw)


def _journal(view: View) -> Iterator[Difference]:
    for session_id, seq, hash_, place in _index(view.reads.kv):
        entry = view.reads.journal_entry(place.offset)
        if entry is None:
            yield Difference(JOURNAL, view.partition, session_id, f"seq {seq}", None, hash_.hex(), "its own index")
            continue
        if entry.is_raw:
            continue  # its schema is not known here, and the hash is over the schema too
        found = sha256(entry.schema + entry.body).digest()
        if found != hash_ or key_of(entry).hash != hash_:
            yield Difference(
                JOURNAL, view.partition, session_id, f"seq {seq}", found.hex(), hash_.hex(), "its own index"
            )


def _kept_digests(view: View) -> Iterator[Difference]:
    kept, follow = view.reads.digests(), view.reads.recompute_digests()
    for name in sorted({*kept, *follow}):
        if kept.get(name) != follow.get(name):
            yield Difference(DIGEST, view.partition, None, name, kept.get(name), follow.get(name), "its own rows")


# --- rows side by side -----------------------------------------------------------------------------------------------


def _rows(view: View, expected: KeyReader, specs: Sequence[TableSpec], beside: str) -> Iterator[Difference]:
    """Rows that differ, table by table in key order."""
    for spec in specs:
        for key, live_raw, expected_raw in _merged(view.reads.kv, expected, spec.prefix):
            if live_raw != expected_raw:
                yield _named(view, spec, key, live_raw, expected_raw, beside)


def _merged(left: KeyReader, right: KeyReader, prefix: bytes) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Merge-join of two ordered tables."""
    ours, theirs = scan_prefix(left, STATE, prefix), scan_prefix(right, STATE, prefix)
    one, other = next(ours, None), next(theirs, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one[0] < other[0]):
            assert one is not None
            yield one[0], one[1], None
            one = next(ours, None)
        elif one is None or other[0] < one[0]:
            yield other[0], None, other[1]
            other = next(theirs, None)
        else:
            yield one[0], one[1], other[1]
            one, other = next(ours, None), next(theirs, None)


def _named(
    view: View, spec: TableSpec, key: bytes, live: bytes | None, expected: bytes | None, beside: str
) -> Difference:
    at = len(spec.prefix)
    session: str | None = None
    if spec.kind != TOTAL:
        session, at = take_text(key, at)
    row_id = "/".join(str(part) for part in take_id(key, at)) if at < len(key) else ""
    field, shown, wanted = _field(spec, live, expected)
    return Difference(
        spec.projection,
        view.partition,
        session,
        " ".join(part for part in (row_id, field) if part),
        shown,
        wanted,
        beside,
    )


def _field(spec: TableSpec, live: bytes | None, expected: bytes | None) -> tuple[str, Any, Any]:
    """The first field that differs, and both values."""
    if live is None or expected is None:
        return "whole row", "absent" if live is None else "present", "absent" if expected is None else "present"
    wanted = spec.decode(expected)
    try:
        shown = spec.decode(live)
    except msgspec.MsgspecError as error:
        return str(error), live.hex()[:32], expected.hex()[:32]
    for name in wanted.__struct_fields__:
        if getattr(shown, name) != getattr(wanted, name):
            return name, getattr(shown, name), getattr(wanted, name)
    return "encoding", live.hex()[:32], expected.hex()[:32]


def _digests_only(view: View, shard: Shard, beside: str) -> Difference:
    """Digests differ though no row does: what the live shard keeps, or the versions."""
    kept, straight = view.reads.digests(), shard.digests()
    name = next(name for name in sorted({*kept, *straight}) if kept.get(name) != straight.get(name))
    return Difference(DIGEST, view.partition, None, name, kept.get(name), straight.get(name), beside)

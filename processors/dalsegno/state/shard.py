"""A shard: the state of one partition, and its only way forward, ``apply``.

Protocol *apply*, all in one thread, all of it between two reads of the cursor:

1. the batch begins at the cursor, and is of this generation; else it is refused;
2. each record is placed; one that extends its session's path is folded at once, any other marks its session;
3. marked sessions choose their path again, and are folded again where it changed; so are the forks that read them;
4. changed rows are encoded and hashed once each; journal, index, rows, sums, outbox, digests and cursor go into one
   write.

A crash or an error before 4 leaves the old cursor and the old rows; after it, the new ones. What is in memory is
dropped after any error and read again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import uuid4

from dalsegno.errors import BatchOutOfPlace, OtherHistory
from dalsegno.log.record import LogRecord
from dalsegno.log.schema_set import SchemaSet, WriterSchema
from dalsegno.model.cursor import Cursor
from dalsegno.model.ids import EventKey, Seq
from dalsegno.model.records import UNKNOWN_SCHEMA
from dalsegno.projections.base import Projection
from dalsegno.state import outbox, rebuild
from dalsegno.state.digest import ProjectionDigest
from dalsegno.state.intake import Tally, retry_waiting, take_all
from dalsegno.state.keys import WAITING, split_waiting
from dalsegno.state.kv import STATE, KeyValue, scan_prefix
from dalsegno.state.ladder import WINDOW_EVENTS
from dalsegno.state.layout import (
    COPY_KEY,
    FORMAT,
    IDENTITY_KEY,
    POSITION_KEY,
    Counts,
    Position,
    ShardIdentity,
    StoredDigest,
    decode_identity,
    decode_position,
    encode_meta,
)
from dalsegno.state.outbox import OutboxItem, RowForms
from dalsegno.state.session import LIFECYCLE_SPECS
from dalsegno.state.settling import settle_all
from dalsegno.state.tables import LIFECYCLE, TableSpec
from dalsegno.state.work import ShardWork, Written

__all__ = ["Applied", "OutboxItem", "Shard", "ShardIdentity"]

log = logging.getLogger("dalsegno.state")

_RETRY_BATCH = 1_000
_FIXED = ("topic", "cluster_id", "topic_id", "partition", "partitions", "generation")
_NO_TOTAL = bytes(32)


class Applied(NamedTuple):
    """What one batch did. ``set_aside``: offset and reason of records that are none of ours. ``held`` and ``released``:
    sessions that cannot go on since this batch, and those that can again."""

    records: int
    events: int
    repeats: int
    tombstones: int
    unreadable: int
    set_aside: tuple[tuple[int, str], ...]
    held: tuple[str, ...]
    released: tuple[str, ...]
    rows_touched: int
    bytes_written: int


class Shard:
    """One partition's journal, rows and cursor. Used by one thread at a time."""

    def __init__(self, kv: KeyValue, work: ShardWork) -> None:
        self.kv = kv
        self._work = work
        self._forms = RowForms(work.tables, work.schemas)

    @classmethod
    def open(
        cls,
        kv: KeyValue,
        *,
        identity: ShardIdentity,
        schemas: SchemaSet,
        projections: Sequence[Projection[Any]],
        cached_rows: int | None = None,
        window_events: int = WINDOW_EVENTS,
        upgrade: bool = True,
    ) -> Shard:
        """Open the shard in ``kv``, or begin one at offset 0 if there is none.

        With ``upgrade``, rows of another version of a projection are dropped and folded again from the journal, and
        records are looked at again if this build knows other event types than the last one; without it such a shard
        can be read, and refuses batches. ``window_events`` is for tests, and must stay the same for one shard.

        Raises OtherHistory if the shard is of another partition, topic or generation, StoreDamaged if it cannot be
        read.
        """
        stored = kv.get(STATE, IDENTITY_KEY)
        if stored is None:
            _begin(kv, identity, _versions(projections))
        else:
            _check_identity(decode_identity(stored, identity.topic), identity)
        if kv.get(STATE, COPY_KEY) is None:
            _name_copy(kv)
        work = ShardWork(kv, identity, schemas, projections, _position(kv, identity), cached_rows, window_events)
        shard = cls(kv, work)
        if upgrade:
            shard.bring_up_to_date()
        return shard

    # --- where it stands -------------------------------------------------------------------------------------------

    @property
    def cursor(self) -> Cursor:
        return self._work.position.cursor

    @property
    def identity(self) -> ShardIdentity:
        return self._work.identity

    @property
    def generation(self) -> str:
        return self._work.identity.generation

    @property
    def counts(self) -> Counts:
        """Records, events and sessions so far."""
        return self._work.position.counts

    @property
    def held_sessions(self) -> int:
        return self._work.position.counts.held

    def digests(self) -> dict[str, ProjectionDigest]:
        """Version and digest of every projection, ``lifecycle`` among them."""
        stored = self._work.position.digests
        return {name: ProjectionDigest(each.version, each.total.hex()) for name, each in sorted(stored.items())}

    def recompute_digests(self) -> dict[str, ProjectionDigest]:
        """The same from the rows themselves, by reading all of them."""
        return rebuild.recompute_digests(self.kv, self.specs())

    def specs(self) -> list[TableSpec]:
        """Every kind of row that is digested."""
        return [*LIFECYCLE_SPECS, *(spec for tables in self._work.tables for spec in tables.specs())]

    # --- forward ---------------------------------------------------------------------------------------------------

    def apply(self, generation: str, start: int, end: int, records: Sequence[LogRecord]) -> Applied:
        """Take the records of offsets ``start`` (the cursor) to ``end`` (the next one to read), in one write.

        Offsets may have holes: compaction and markers leave them. Raises BatchOutOfPlace, and whatever the store
        raises; then nothing of the batch counts, or all of it.
        """
        work = self._work
        self._check_place(generation, start, end, records)
        tally = Tally()
        try:
            take_all(work, records, tally)
            settle_all(work)
            work.position.counts.records += len(records)
            self._move(end, records)
            written = work.write()
        except BaseException:
            self._forget()
            raise
        return _applied(len(records), tally, written)

    def retry_held(self) -> int:
        """Look again at records whose schema has become known. Returns how many can be read now."""
        return self._retry(every=False)

    def bring_up_to_date(self) -> None:
        """Fold again what other versions folded, look again at what another build could not read."""
        outdated = rebuild.outdated(self._work.position.digests, _versions(self._projections()))
        for name in outdated.surplus:
            log.warning("projection_dropped", extra={"projection": name})
            self.drop(name)
        if outdated.stale:
            log.warning("projections_folded_again", extra={"projections": sorted(outdated.stale)})
            self.refold(outdated.stale)
        if self._work.position.catalogue != rebuild.catalogue_name():
            self._work.position.catalogue = rebuild.catalogue_name()
            self._retry(every=True)

    def refold(self, names: Iterable[str]) -> None:
        """Drop the rows of these projections and fold them again from the journal; the cursor stays where it is."""
        try:
            rebuild.refold(self._work, frozenset(names), _versions(self._projections()), self.specs())
        finally:
            self._forget()

    def drop(self, name: str) -> None:
        """Drop all rows of a projection, whether or not this build has it."""
        try:
            rebuild.drop(self._work, name)
        finally:
            self._forget()

    # --- outward ---------------------------------------------------------------------------------------------------

    def outbox(self, limit: int, after: OutboxItem | None = None) -> list[OutboxItem]:
        """Public rows that changed since they were last cleared, in key order, at most ``limit``."""
        return outbox.pending(self.kv, limit, after)

    def current(self, item: OutboxItem) -> tuple[bytes, bytes | None]:
        """Topic key and framed Avro value of a row as it is now; None where it is gone."""
        return self._forms.current(self.kv, item)

    def clear_outbox(self, items: Sequence[OutboxItem]) -> int:
        """Forget those items whose row has not changed again; returns how many."""
        return outbox.clear(self.kv, items)

    def row_writers(self) -> list[WriterSchema]:
        """The schemas of the emitted rows, which readers of the projection topics need."""
        return self._forms.writers()

    @property
    def emitter(self) -> str:
        """Names this copy of the shard with the versions of its projections, in hex. Its outbox holds all that the
        topics lack only where it was the last to emit: another copy may have emitted rows that this one never had."""
        versions = sorted((each.name, each.version) for each in self._projections())
        copy = self.kv.get(STATE, COPY_KEY) or b""
        return sha256(copy + repr(versions).encode("utf-8")).hexdigest()[:32]

    @property
    def forms(self) -> RowForms:
        """How rows look in their topics."""
        return self._forms

    def close(self) -> None:
        self._work.close()
        self.kv.close()

    # --- inside ----------------------------------------------------------------------------------------------------

    def _projections(self) -> list[Projection[Any]]:
        return [tables.projection for tables in self._work.tables]

    def _check_place(self, generation: str, start: int, end: int, records: Sequence[LogRecord]) -> None:
        cursor = self.cursor
        if generation != self.generation or start != cursor.next_offset:
            raise BatchOutOfPlace(
                f"partition {cursor.partition}: a batch of generation {generation} from offset {start}",
                wanted=f"generation {self.generation}, offset {cursor.next_offset}",
                todo="read again from the shard's cursor",
                cursor=cursor.next_offset,
                start=start,
            )
        last = start - 1
        for record in records:
            if not last < record.offset < end:
                raise BatchOutOfPlace(
                    f"partition {cursor.partition}: offset {record.offset} behind {last}",
                    wanted=f"rising offsets from {start} to below {end}",
                    todo="read again from the shard's cursor",
                    cursor=cursor.next_offset,
                    start=start,
                )
            last = record.offset
        if end < start:
            raise BatchOutOfPlace(f"partition {cursor.partition}: a batch from {start} to {end}", cursor=start)
        if rebuild.outdated(self._work.position.digests, _versions(self._projections())) != rebuild.UP_TO_DATE:
            raise BatchOutOfPlace(
                f"partition {cursor.partition}: some rows are of other versions than this build's",
                wanted="rows of one version",
                todo="open the shard with upgrade",
                cursor=cursor.next_offset,
            )

    def _move(self, end: int, records: Sequence[LogRecord]) -> None:
        position = self._work.position
        before = position.cursor
        last = records[-1] if records else None
        position.cursor = Cursor(
            next_offset=end,
            cluster_id=before.cluster_id,
            topic_id=before.topic_id,
            partition=before.partition,
            partitions=before.partitions,
            leader_epoch=before.leader_epoch if last is None else last.leader_epoch,
            last_offset=before.last_offset if last is None else last.offset,
            last_key=before.last_key if last is None else last.key,
        )

    def _retry(self, *, every: bool) -> int:
        work, tally = self._work, Tally()
        keys: list[EventKey] = []
        for key, raw in scan_prefix(self.kv, STATE, WAITING):
            frame_id, reason = raw[:8], raw[8:].decode("ascii")
            if every or (reason == UNKNOWN_SCHEMA and work.schemas.by_frame(frame_id) is not None):
                session_id, seq, hash_ = split_waiting(key)
                keys.append(EventKey(session_id, Seq(seq), hash_))
        if not keys and not every:
            return 0
        try:
            for at in range(0, max(1, len(keys)), _RETRY_BATCH):
                for event_key in keys[at : at + _RETRY_BATCH]:
                    retry_waiting(work, event_key, tally, even_known=every)
                settle_all(work)
                work.write()
        except BaseException:
            self._forget()
            raise
        return tally.events

    def _forget(self) -> None:
        """Drop what is in memory; the store counts."""
        self._work.forget()
        self._work.position = _position(self.kv, self.identity)


def _applied(records: int, tally: Tally, written: Written) -> Applied:
    return Applied(
        records,
        tally.events,
        tally.repeats,
        tally.tombstones,
        tally.unreadable,
        tuple(tally.set_aside),
        tuple(sorted(written.held)),
        tuple(sorted(written.released)),
        written.rows,
        written.bytes,
    )


def _versions(projections: Sequence[Projection[Any]]) -> dict[str, int]:
    return {
        LIFECYCLE: LIFECYCLE_SPECS[0].version,
        **{projection.name: projection.version for projection in projections},
    }


def _begin(kv: KeyValue, identity: ShardIdentity, versions: dict[str, int]) -> None:
    cursor = Cursor(0, identity.cluster_id, identity.topic_id, identity.partition, identity.partitions)
    digests = {name: StoredDigest(version, _NO_TOTAL) for name, version in versions.items()}
    position = Position(FORMAT, cursor, digests, Counts(), catalogue=rebuild.catalogue_name())
    batch = kv.batch()
    batch.put(STATE, IDENTITY_KEY, encode_meta(identity))
    batch.put(STATE, POSITION_KEY, encode_meta(position))
    kv.write(batch)


def _name_copy(kv: KeyValue) -> None:
    batch = kv.batch()
    batch.put(STATE, COPY_KEY, uuid4().bytes)
    kv.write(batch)


def _position(kv: KeyValue, identity: ShardIdentity) -> Position:
    raw = kv.get(STATE, POSITION_KEY)
    return decode_position(raw or b"", identity.topic)


def _check_identity(found: ShardIdentity, wanted: ShardIdentity) -> None:
    for name in _FIXED:
        mine, theirs = getattr(found, name), getattr(wanted, name)
        if mine != theirs:
            raise OtherHistory(
                f"this shard's {name} is {mine}, not {theirs}",
                wanted=f"the shard of {wanted.topic} partition {wanted.partition}, generation {wanted.generation}",
                todo="look at which folder, topic and cluster this worker is configured for",
                difference=name,
                state=mine,
                log=theirs,
            )

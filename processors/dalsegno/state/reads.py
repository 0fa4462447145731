"""Questions to a shard that only read: its own store, a secondary of it, or a restored snapshot.

Every answer is true at ``position().cursor``. A secondary shows the moment at which it was opened, in all answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from dalsegno.errors import NotFound, SnapshotIncompatible
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.history import FORK_SEQ, Gathered, is_fork, taken_over, whole_history
from dalsegno.model.lifecycle.state import LIFECYCLE_VERSION, OpState
from dalsegno.model.path import Path
from dalsegno.model.records import FIRST_SEQ, Event, Placed
from dalsegno.projections.base import Projection, RowId
from dalsegno.state.at import Opening, SessionAt
from dalsegno.state.digest import ProjectionDigest
from dalsegno.state.history import Journal, Records, events_of, gather, gathered, key_of, placed, stored_index
from dalsegno.state.keys import (
    FORK,
    HEAD,
    ROW,
    TOTAL,
    WAITING,
    head_key,
    id_part,
    split_waiting,
    take_id,
    take_text,
    text_part,
)
from dalsegno.state.kv import JOURNAL, STATE, KeyReader, after_prefix, scan_prefix
from dalsegno.state.ladder import WINDOW_EVENTS
from dalsegno.state.layout import Counts, IndexEntry, JournalEntry, Position, SessionHead, ShardIdentity, decode_fork
from dalsegno.state.rebuild import Marks, read_marks, recompute_digests
from dalsegno.state.session import HEAD_SPEC, LIFECYCLE_SPECS, OPS_SPEC
from dalsegno.state.tables import LIFECYCLE, ProjectionTables, TableSpec
from dalsegno.state.walk import Walk


class Waiting(NamedTuple):
    """A record that this build cannot read or fold."""

    session_id: str
    seq: int
    hash: bytes
    reason: str


class ShardReads:
    """``where`` names the shard in errors: its folder, say."""

    def __init__(
        self,
        kv: KeyReader,
        schemas: SchemaSet,
        projections: Sequence[Projection[Any]],
        where: str = "this shard",
        window_events: int = WINDOW_EVENTS,
    ) -> None:
        """``window_events``: as the shard was opened with."""
        self._window_events = window_events
        self.kv = kv
        self.schemas = schemas
        self._where = where
        self._tables = {projection.name: ProjectionTables(projection) for projection in projections}

    # --- the shard -------------------------------------------------------------------------------------------------

    def marks(self) -> Marks:
        """Identity and position. Raises StoreDamaged if there is no shard."""
        return read_marks(self.kv, self._where)

    def identity(self) -> ShardIdentity:
        return self.marks().identity

    def position(self) -> Position:
        return self.marks().position

    def counts(self) -> Counts:
        return self.position().counts

    def digests(self) -> dict[str, ProjectionDigest]:
        """As the shard keeps them."""
        stored = self.position().digests
        return {name: ProjectionDigest(each.version, each.total.hex()) for name, each in sorted(stored.items())}

    def recompute_digests(self) -> dict[str, ProjectionDigest]:
        """As they follow from the rows, by reading all of them."""
        specs = [*LIFECYCLE_SPECS, *(spec for tables in self._tables.values() for spec in tables.specs())]
        return recompute_digests(self.kv, specs)

    # --- sessions --------------------------------------------------------------------------------------------------

    def head(self, session_id: str) -> SessionHead | None:
        """The end of the session's path; None if nothing of it is here."""
        key = head_key(session_id)
        raw = self.kv.get(STATE, key)
        return None if raw is None else HEAD_SPEC.read(key, raw)

    def sessions(self, after: str | None = None, limit: int | None = None) -> list[tuple[str, SessionHead]]:
        """Sessions behind ``after``, in the order of their keys (shorter ids first)."""
        start = HEAD if after is None else head_key(after) + b"\x00"
        rows = self.kv.scan(STATE, start, after_prefix(HEAD))
        return [(take_text(key, 1)[0], HEAD_SPEC.read(key, raw)) for key, raw in islice(rows, limit)]

    def records(self, session_id: str) -> Records:
        """All that is known of the session."""
        return gather(Journal(self.kv, self.schemas), session_id, stored_index(self.kv, session_id))

    def index(self, session_id: str) -> Iterator[tuple[int, bytes, IndexEntry]]:
        """Seq, hash and place of every record of the session, control events (seq 0) first."""
        return stored_index(self.kv, session_id)

    def operations(self, session_id: str) -> Iterator[tuple[str, str, OpState]]:
        """Kind, id and row of every operation, turn and stage of the session, and of what later events refer to."""
        prefix = OPS_SPEC.prefix + text_part(session_id)
        for key, raw in scan_prefix(self.kv, STATE, prefix):
            kind, id = take_id(key, len(prefix))
            yield str(kind), str(id), OPS_SPEC.read(key, raw)

    def chosen(self, session_id: str) -> tuple[Records, Path]:
        """The records, and the path through them as far as it was folded. Raises NotFound."""
        head = self.head(session_id)
        if head is None:
            raise NotFound(f"no session {session_id} in {self._where}", session=session_id)
        records = self.records(session_id)
        path = records.choose()
        # A fork whose parent is missing ends before the record that names the parent.
        return records, path._replace(hashes=path.hashes[: head.seq])

    def path(self, session_id: str, after: int = 0, limit: int | None = None) -> Iterator[Event]:
        """The events of the path with seq > ``after``, in order. Raises NotFound."""
        records, path = self.chosen(session_id)
        hashes = path.hashes[after : None if limit is None else after + limit]
        return events_of(Journal(self.kv, self.schemas), session_id, records, hashes, first_seq=after + 1)

    def history(self, session_id: str) -> Iterator[Event]:
        """The events of the path, behind those that the session, as a fork, takes over from its ancestors: see
        ``dalsegno.model.history.whole_history``. Raises NotFound."""
        return whole_history(self.path(session_id), self._gathered)

    def ancestors(self, session_id: str) -> list[tuple[str, int]]:
        """Of a fork, the sessions that it goes on from, its parent first, each with the last seq that belongs to it; of
        another session, or where a record of one is missing, []. Raises NotFound."""
        first = list(self.path(session_id, limit=FORK_SEQ))
        prefixes = taken_over(first[-1], self._gathered) if first and is_fork(first[-1]) else None
        return [(prefix.session_id, len(prefix.hashes)) for prefix in reversed(prefixes or [])]

    def forks(self, session_id: str) -> Iterator[tuple[str, int]]:
        """Id of every session that reads this one as a fork, however far below, and the last seq that it reads."""
        prefix = FORK + text_part(session_id)
        for key, raw in scan_prefix(self.kv, STATE, prefix):
            yield take_text(key, len(prefix))[0], decode_fork(raw).seq

    def at(self, session_id: str, seq: int) -> SessionAt:
        """The session as it stood when the event at ``seq`` had been folded, with the rows that can be folded here.

        Raises NotFound where the path has no such event, SnapshotIncompatible, StoreDamaged.
        """
        opening, tables, partition = self._opening(session_id)
        self.head_with(session_id, seq)
        return opening.at(seq, tables, partition)

    def head_with(self, session_id: str, seq: int) -> SessionHead:
        """The end of the session's path. Raises NotFound where the path has no event at ``seq``."""
        head = self.head(session_id)
        if head is None:
            raise NotFound(f"no session {session_id} in {self._where}", session=session_id)
        if not FIRST_SEQ <= seq <= head.seq:
            raise NotFound(
                f"session {session_id} has no event at seq {seq}",
                wanted=f"a seq of its path, which ends at {head.seq}",
                todo="" if head.held_reason is None else f"it is held at {head.held_seq}: {head.held_reason}",
                session=session_id,
                seq=seq,
            )
        return head

    def walk(self, session_id: str) -> Walk:
        """To stand at one event of the session after the other. Raises NotFound, SnapshotIncompatible, StoreDamaged."""
        return Walk(*self._opening(session_id))

    def waiting(self) -> Iterator[Waiting]:
        """Records that hold their sessions until this build can read or fold them."""
        for key, raw in scan_prefix(self.kv, STATE, WAITING):
            yield Waiting(*split_waiting(key), raw[8:].decode("ascii"))

    # --- rows ------------------------------------------------------------------------------------------------------

    def row(self, projection: str, session_id: str, row_id: RowId = ()) -> Any:
        """One row, or None."""
        spec = self._spec(projection, ROW)
        key = spec.prefix + text_part(session_id) + id_part(row_id)
        raw = self.kv.get(STATE, key)
        return None if raw is None else spec.read(key, raw)

    def rows(self, projection: str, session_id: str) -> Iterator[tuple[RowId, Any]]:
        """All rows of a session, by id."""
        spec = self._spec(projection, ROW)
        prefix = spec.prefix + text_part(session_id)
        for key, raw in scan_prefix(self.kv, STATE, prefix):
            yield take_id(key, len(prefix)), spec.read(key, raw)

    def all_rows(self, projection: str) -> Iterator[tuple[str, RowId, Any]]:
        """Session, id and row of every row of a projection, in the order of their keys."""
        spec = self._spec(projection, ROW)
        for key, raw in scan_prefix(self.kv, STATE, spec.prefix):
            session_id, at = take_text(key, len(spec.prefix))
            yield session_id, take_id(key, at), spec.read(key, raw)

    def rollups(self, projection: str) -> Iterator[tuple[RowId, Any]]:
        """All sums, by key; its first part is the partition."""
        spec = self._spec(projection, TOTAL)
        for key, raw in scan_prefix(self.kv, STATE, spec.prefix):
            yield take_id(key, len(spec.prefix)), spec.read(key, raw)

    def public_rows(self, projection: str) -> Iterator[tuple[bytes, Any]]:
        """(row key, row) of a projection's rows or sums, in the order of the row keys."""
        tables = self._of(projection)
        spec = tables.totals or tables.rows
        for key, raw in scan_prefix(self.kv, STATE, spec.prefix):
            yield key, spec.read(key, raw)

    # --- journal ---------------------------------------------------------------------------------------------------

    def journal(self, offset: int) -> Placed | None:
        """The record at this offset, decoded; None if the journal has none."""
        entry = Journal(self.kv, self.schemas).entry(offset)
        return None if entry is None else placed(self.schemas, entry, key_of(entry))

    def journal_entry(self, offset: int) -> JournalEntry | None:
        """The record at this offset, undecoded; None if the journal has none."""
        return Journal(self.kv, self.schemas).entry(offset)

    def journal_entries(self, start: int = 0) -> Iterator[tuple[int, JournalEntry]]:
        """Every entry from this offset on, undecoded."""
        for key, raw in self.kv.scan(JOURNAL, start.to_bytes(8, "big")):
            yield int.from_bytes(key, "big"), JournalEntry.decode(raw)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _opening(self, session_id: str) -> tuple[Opening, list[ProjectionTables], int]:
        """With the tables of the rows that can be folded here, and the partition."""
        head = self.head(session_id)
        if head is None:
            raise NotFound(f"no session {session_id} in {self._where}", session=session_id)
        position = self.position()
        self._check_version(LIFECYCLE, LIFECYCLE_VERSION, position)
        stored = position.digests
        tables = [
            each for name, each in self._tables.items() if name in stored and stored[name].version == each.version
        ]
        journal = Journal(self.kv, self.schemas)
        chosen = partial(self.chosen, session_id)
        opening = Opening(self.kv, journal, session_id, head, chosen, self.records, self._window_events)
        return opening, tables, position.cursor.partition

    def _gathered(self, session_id: str) -> Gathered:
        return gathered(Journal(self.kv, self.schemas), session_id, self.records(session_id))

    def _of(self, projection: str) -> ProjectionTables:
        tables = self._tables.get(projection)
        if tables is None:
            raise NotFound(f"no projection {projection!r}", wanted=f"one of {', '.join(sorted(self._tables))}")
        self._check_version(projection, tables.version, self.position())
        return tables

    def _check_version(self, projection: str, version: int, position: Position) -> None:
        stored = position.digests.get(projection)
        if stored is None or stored.version != version:
            found = "no rows" if stored is None else "rows that are being folded again" if stored.version < 0 else ""
            raise SnapshotIncompatible(
                f"{self._where} holds {found or f'rows of version {stored.version if stored else 0}'} of {projection}",
                wanted=f"rows of version {version}",
                todo="wait until a worker of this release has folded them again",
                projection=projection,
            )

    def _spec(self, projection: str, kind: bytes) -> TableSpec:
        tables = self._of(projection)
        spec = tables.rows if kind == ROW else tables.totals
        if spec is None or spec.kind != kind:
            what = "sums, no rows per session" if tables.rollup else "rows per session, no sums"
            raise NotFound(f"projection {projection} has {what}", projection=projection)
        return spec

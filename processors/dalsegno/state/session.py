"""One session in memory: its head, its rows, and what the batch at hand changes of it."""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.errors import StoreDamaged
from dalsegno.model.lifecycle.state import LIFECYCLE_VERSION, OpState, SessionState
from dalsegno.projections.base import HeadFacts
from dalsegno.state.cells import CellTable
from dalsegno.state.keys import FORK, HEAD, INDEX, PRIVATE, take_text, text_part
from dalsegno.state.kv import STATE, KeyReader, scan_prefix
from dalsegno.state.ladder import WINDOW_EVENTS, Rung, window_of
from dalsegno.state.layout import ForkLink, IndexEntry, SessionHead, decode_fork
from dalsegno.state.rows import RollupRows, SessionRows
from dalsegno.state.tables import LIFECYCLE, ProjectionTables, TableSpec, encode_row

HEAD_SPEC: Final = TableSpec(HEAD, LIFECYCLE, LIFECYCLE_VERSION, SessionHead)
OPS_SPEC: Final = TableSpec(PRIVATE, LIFECYCLE, LIFECYCLE_VERSION, OpState)
LIFECYCLE_SPECS: Final = (HEAD_SPEC, OPS_SPEC)

_SIZE: Final = 16
"""A session takes about as much memory as so many rows, beside its rows."""
KEPT_ROWS_PER_TABLE: Final = 256
"""A session with more decoded rows in one table lets go of them after the batch."""


class SessionOps:
    """The lifecycle's view of the operation rows."""

    __slots__ = ("_table",)

    def __init__(self, table: CellTable) -> None:
        self._table = table

    def get(self, kind: str, id: str, /) -> OpState | None:
        row_id = (kind, id)
        return (self._table.cells.get(row_id) or self._table.load(row_id)).row  # type: ignore[no-any-return]

    def put(self, kind: str, id: str, op: OpState, /) -> None:
        self._table.put((kind, id), op)


class Session:
    """What is known of one session, stored and not yet stored. Belongs to one shard and is used by one thread."""

    __slots__ = (
        "ancestors",
        "ancestors_changed",
        "children",
        "facts",
        "forced",
        "fork_changes",
        "gone",
        "head",
        "heads",
        "id",
        "index_changes",
        "index_prefix",
        "known",
        "lowest",
        "lowest_new",
        "ops",
        "ops_table",
        "part",
        "rows",
        "settle",
        "state",
        "stored_held",
        "stored_seq",
        "stub_hashes",
        "tables",
        "touched",
        "window_events",
    )

    def __init__(
        self,
        session_id: str,
        reader: KeyReader,
        projections: tuple[ProjectionTables, ...],
        totals: dict[str, CellTable],
        partition: int,
        *,
        with_forks: bool,
        window_events: int = WINDOW_EVENTS,
    ) -> None:
        self.id = session_id
        self.window_events = window_events
        self.part = part = text_part(session_id)
        self.index_prefix = INDEX + part
        self.heads = CellTable(HEAD_SPEC, reader, HEAD + part, complete=False)
        stored: SessionHead | None = self.heads.get()
        self.known = stored is not None
        """False: the store holds nothing of this session."""
        self.head = stored or SessionHead()
        self.facts = facts_of(self.head) if stored is not None else None
        """As the projections were last told."""
        complete = not self.known
        self.ops_table = CellTable(OPS_SPEC, reader, OPS_SPEC.prefix + part, complete=complete)
        self.ops = SessionOps(self.ops_table)
        self.state: SessionState | None = None
        """Of the lifecycle; None until ``lifecycle`` was asked for it."""
        self.rows: list[SessionRows] = [
            RollupRows(tables, reader, part, complete=complete, totals=totals[tables.name], partition=partition)
            if tables.rollup
            else SessionRows(tables, reader, part, complete=complete)
            for tables in projections
        ]
        self.tables: list[CellTable] = [self.heads, self.ops_table]
        for rows in self.rows:
            self.tables.extend(rows.parts())
        self.children: dict[str, ForkLink] = _children(reader, part) if with_forks else {}
        """Forks that read this session."""
        self.ancestors: tuple[str, ...] | None = None
        """Sessions that this one reads as a fork, sorted; None: not looked up yet."""
        self.ancestors_changed = False
        self.index_changes: dict[tuple[int, bytes], bytes | None] = {}
        """(seq, hash) -> encoded IndexEntry, None where the record is gone."""
        self.fork_changes: dict[str, ForkLink | None] = {}
        self.stub_hashes: frozenset[bytes] | None = None
        """Of all amended records; None: not looked up yet."""
        self.stored_held = self.head.held_reason is not None
        self.stored_seq = self.head.seq
        self._clean()

    def _clean(self) -> None:
        self.touched = False
        self.gone = False
        """Nothing of the session is left in the log."""
        self.settle = False
        """The path must be chosen again before the batch is written."""
        self.forced = False
        """All rows must be folded again, whether or not the path changed."""
        self.lowest: int | None = None
        """The lowest seq at which the batch changed something that a fork reads: a record went, or a stub came."""
        self.lowest_new: int | None = None
        """The lowest seq at which a record came. Only forks that lack one care: a whole chain stays as it is."""

    def lifecycle(self) -> SessionState:
        """The state that the next event is judged by. Raises StoreDamaged if it has another shape than this build's."""
        if self.state is None:
            self.state = state_of(self.id, self.head)
        return self.state

    def find(self, reader: KeyReader, seq: int, hash_: bytes) -> IndexEntry | None:
        """What is known of one record."""
        place = (seq, hash_)
        if place in self.index_changes:
            raw = self.index_changes[place]
        elif not self.known:
            return None
        else:
            raw = reader.get(STATE, self.index_prefix + seq.to_bytes(8, "big") + hash_)
        return None if raw is None else IndexEntry.decode(raw)

    def note(self, seq: int) -> None:
        """Something changed at this seq that may matter to all forks of this session."""
        if self.lowest is None or seq < self.lowest:
            self.lowest = seq

    def note_new(self, seq: int) -> None:
        """A record came at this seq, which may be what a fork of this session waits for."""
        if self.lowest_new is None or seq < self.lowest_new:
            self.lowest_new = seq

    def drop_rows(self) -> None:
        """Back to the state before the first event. Sums lose what this session added to them."""
        self.ops_table.drop_all()
        self.state = SessionState()
        for rows in self.rows:
            rows.drop_all()
        self.facts = None
        for table in self.tables:
            if self.stored_seq > self.window_events or table.images is not None:
                table.drop_images()

    # --- the ladder ----------------------------------------------------------------------------------------------

    def window(self) -> int:
        """Of the last event of the path."""
        return window_of(self.head.seq, self.window_events)

    def close(self, rung: int, hash_: bytes) -> None:
        """All events up to the rung ``hash_`` at this seq are folded, and none above it."""
        window = window_of(rung, self.window_events)
        for table in self.tables:
            if table.changed:
                table.close(window)
        self.heads.put_image(self.heads.prefix, window, encode_row(Rung(self.lifecycle(), hash_)))

    def after_write(self) -> int:
        """Forget what is written now; returns how much stays in memory, counted in rows."""
        if self.index_changes:
            self.index_changes = {}
        if self.fork_changes:
            self.fork_changes = {}
        self.ancestors_changed = False
        self._clean()
        self.known = self.heads.get() is not None
        self.stored_held = self.head.held_reason is not None
        self.stored_seq = self.head.seq
        kept = _SIZE
        for table in self.tables:
            rows = len(table.cells)
            if rows > KEPT_ROWS_PER_TABLE:
                table.forget_clean()
                rows = 0
            kept += rows
        return kept

    def shed(self) -> int:
        """Let go of all rows but those that every event needs; returns how much stays, counted in rows."""
        for table in self.tables:
            if len(table.cells) > 1:
                table.forget_clean()
        return self.size()

    def size(self) -> int:
        """What the session takes in memory, counted in rows."""
        return _SIZE + sum(len(table.cells) for table in self.tables)


def state_of(session_id: str, head: SessionHead) -> SessionState:
    """The lifecycle's state in a head, a new one where there is none. Raises StoreDamaged."""
    if head.state is None:
        return SessionState()
    try:
        return msgspec.convert(head.state, SessionState)
    except msgspec.ValidationError as error:
        raise StoreDamaged(
            f"the head of session {session_id} holds a lifecycle of another shape: {error}",
            wanted=f"rows of {LIFECYCLE} version {LIFECYCLE_VERSION}",
            todo=f"fold the projection {LIFECYCLE} again from the journal",
            projection=LIFECYCLE,
            session=session_id,
        ) from error


def facts_of(head: SessionHead) -> HeadFacts:
    return HeadFacts(head.seq, head.hash, head.epoch, head.held_reason, head.held_seq, head.superseded, head.stubs)


def _children(reader: KeyReader, parent_part: bytes) -> dict[str, ForkLink]:
    prefix = FORK + parent_part
    return {take_text(key, len(prefix))[0]: decode_fork(raw) for key, raw in scan_prefix(reader, STATE, prefix)}

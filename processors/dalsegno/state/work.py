"""The batch at hand: the sessions it touches, what it changes of them, and the one write that carries it all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from weakref import WeakSet

from dalsegno.log.schema_set import SchemaSet
from dalsegno.projections.base import Projection
from dalsegno.state.cells import CellTable, Flush
from dalsegno.state.digest import MODULUS
from dalsegno.state.folding import Folder
from dalsegno.state.history import Journal, Records, gather, stored_index
from dalsegno.state.keys import ancestors_key, fork_key, journal_key
from dalsegno.state.kv import JOURNAL, STATE, KeyValue, WriteBatch
from dalsegno.state.ladder import WINDOW_EVENTS
from dalsegno.state.layout import (
    POSITION_KEY,
    ForkLink,
    IndexEntry,
    Position,
    ShardIdentity,
    StoredDigest,
    decode_names,
    encode_meta,
)
from dalsegno.state.session import Session
from dalsegno.state.tables import ProjectionTables

CACHED_ROWS: Final = 80_000
"""Decoded rows that the shards of a process keep between batches, all together; about one kilobyte each with
what belongs to it."""
_open_shards: WeakSet[ShardWork] = WeakSet()


class Written:
    """What one write did."""

    __slots__ = ("bytes", "held", "released", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self.held: list[str] = []
        self.released: list[str] = []


class ShardWork:
    """Everything that applying needs, between ``take`` and ``write``. After an exception: ``forget``."""

    def __init__(
        self,
        kv: KeyValue,
        identity: ShardIdentity,
        schemas: SchemaSet,
        projections: Sequence[Projection[Any]],
        position: Position,
        cached_rows: int | None = None,
        window_events: int = WINDOW_EVENTS,
    ) -> None:
        """``cached_rows``: how many rows to keep; None for an even share of CACHED_ROWS."""
        self.kv = kv
        self.identity = identity
        self.schemas = schemas
        self.position = position
        self.tables = tuple(ProjectionTables(projection) for projection in projections)
        self.folder = Folder(projections, window_events)
        self.window_events = window_events
        self._own_limit = cached_rows
        self.forget()
        _open_shards.add(self)

    def close(self) -> None:
        """Let go of everything; the other shards' shares grow."""
        self.forget()
        _open_shards.discard(self)

    @property
    def _cached_rows(self) -> int:
        return CACHED_ROWS // max(1, len(_open_shards)) if self._own_limit is None else self._own_limit

    def forget(self) -> None:
        """Drop every cached row: what the store holds counts. The position must be read again as well."""
        self.sessions: dict[str, Session] = {}
        self._rows_of: dict[str, int] = {}
        self._rows = 0
        self.touched: list[Session] = []
        self.journal = Journal(self.kv, self.schemas)
        self.waiting: dict[bytes, bytes | None] = {}
        self.totals = {
            tables.name: CellTable(tables.totals, self.kv, tables.totals.prefix, complete=False)
            for tables in self.tables
            if tables.totals is not None
        }

    # --- sessions ----------------------------------------------------------------------------------------------------

    def load(self, session_id: str) -> Session:
        """The session in memory, read from the store if it is not there yet."""
        session = self.sessions.get(session_id)
        if session is None:
            session = self.sessions[session_id] = Session(
                session_id,
                self.kv,
                self.tables,
                self.totals,
                self.identity.partition,
                with_forks=self.position.counts.forks > 0,
                window_events=self.window_events,
            )
        return session

    def touch(self, session: Session) -> None:
        """The session has changed and must be written."""
        if not session.touched:
            session.touched = True
            self.touched.append(session)
        session.gone = False

    def gather(self, session: Session) -> Records:
        """All that is known of the session, this batch included."""
        return gather(self.journal, session.id, self._index(session))

    def gather_id(self, session_id: str) -> Records:
        return self.gather(self.load(session_id))

    def stub_hashes(self, session: Session) -> frozenset[bytes]:
        """Hashes of the session's amended records."""
        if session.stub_hashes is None:
            control = ((seq, hash_, entry) for seq, hash_, entry in self._index(session) if seq == 0)
            session.stub_hashes = frozenset(gather(self.journal, session.id, control).amended.stubs)
        return session.stub_hashes

    def _index(self, session: Session) -> Iterator[tuple[int, bytes, IndexEntry]]:
        changes = session.index_changes
        if session.known:
            for seq, hash_, entry in stored_index(self.kv, session.id):
                if (seq, hash_) not in changes:
                    yield seq, hash_, entry
        for (seq, hash_), raw in list(changes.items()):
            if raw is not None:
                yield seq, hash_, IndexEntry.decode(raw)

    def set_forks(self, child: Session, links: Mapping[str, ForkLink]) -> None:
        """Note where the child reads, in each of its ancestors; take back what was noted before."""
        if not links and not self.position.counts.forks:
            return
        before = self._ancestors(child)
        for name in before:
            if name not in links:
                self._note_fork(name, child.id, None)
        for name, link in links.items():
            self._note_fork(name, child.id, link)
        now = tuple(sorted(links))
        if now != before:
            child.ancestors, child.ancestors_changed = now, True

    def _ancestors(self, child: Session) -> tuple[str, ...]:
        if child.ancestors is None:
            raw = self.kv.get(STATE, ancestors_key(child.id)) if child.known else None
            child.ancestors = () if raw is None else decode_names(raw)
        return child.ancestors

    def _note_fork(self, parent_id: str, child: str, link: ForkLink | None) -> None:
        parent = self.load(parent_id)
        if parent.children.get(child) == link:
            return
        counts = self.position.counts
        if link is None:
            del parent.children[child]
            counts.forks -= 1
        else:
            counts.forks += child not in parent.children
            parent.children[child] = link
        parent.fork_changes[child] = link
        if not parent.touched:
            parent.touched = True
            self.touched.append(parent)
            parent.gone = not parent.known  # a parent that is not there yet: only the link is written

    # --- writing -----------------------------------------------------------------------------------------------------

    def write(self, extra: WriteBatch | None = None) -> Written:
        """Steps: rows told of their path's end; everything encoded into one batch; the batch written; memory trimmed.

        ``self.position`` must hold the new cursor already. An exception leaves the store as it was or with the whole
        batch; either way ``forget`` and read the position again.
        """
        written = Written()
        position = self.position
        position.batch += 1
        batch = self.kv.batch() if extra is None else extra
        flush = Flush(batch, position.batch.to_bytes(8, "big"))
        for session in self.touched:
            self._flush_session(session, flush, written)
        for totals in self.totals.values():
            totals.flush(flush)
        for key, waiting in self.waiting.items():
            _put_or_delete(batch, key, waiting)
        put_record = batch.putter(JOURNAL)
        for offset, raw in self.journal.pending.items():
            if raw is None:
                batch.delete(JOURNAL, journal_key(offset))
            else:
                put_record(journal_key(offset), raw)
        for name, delta in flush.delta.items():
            before = position.digests[name]
            total = (int.from_bytes(before.total, "big") + delta) % MODULUS
            position.digests[name] = StoredDigest(before.version, total.to_bytes(32, "big"))
        batch.put(STATE, POSITION_KEY, encode_meta(position))
        written.rows, written.bytes = flush.rows, batch.size_bytes
        self.kv.write(batch)
        self._settle_down()
        return written

    def _flush_session(self, session: Session, flush: Flush, written: Written) -> None:
        batch, counts, head = flush.batch, self.position.counts, session.head
        there = not session.gone
        if there:
            self.folder.finish(session)
        if session.state is not None:
            head.state = session.state if head.seq else None
        session.heads.put((), head if there else None)
        window = session.window()
        for table in session.tables:
            if table.changed or table.closed or table.images is not None:
                table.flush(flush, window)
        prefix = session.index_prefix
        put = flush.put
        for (seq, hash_), raw in session.index_changes.items():
            if raw is not None:
                put(prefix + seq.to_bytes(8, "big") + hash_, raw)
            else:
                batch.delete(STATE, prefix + seq.to_bytes(8, "big") + hash_)
        for child, link in session.fork_changes.items():
            _put_or_delete(batch, fork_key(session.id, child), None if link is None else encode_meta(link))
        if session.ancestors_changed:
            names = session.ancestors
            _put_or_delete(batch, ancestors_key(session.id), encode_meta(names) if names else None)
        counts.sessions += there - session.known
        is_held = there and head.held_reason is not None
        if is_held != session.stored_held:
            counts.held += 1 if is_held else -1
            (written.held if is_held else written.released).append(session.id)

    def _settle_down(self) -> None:
        """After the write: nothing is pending, and memory holds the sessions used last, within the limit."""
        self.journal.pending = {}
        self.waiting = {}
        sessions, rows_of = self.sessions, self._rows_of
        for session in self.touched:
            kept = session.after_write()
            self._rows += kept - rows_of.get(session.id, 0)
            rows_of[session.id] = kept
            sessions[session.id] = sessions.pop(session.id)
        self.touched = []
        self._count_strangers()
        limit = self._cached_rows
        if self._rows > limit:
            self._make_room(limit * 3 // 4)
        for totals in self.totals.values():
            if len(totals.cells) > limit:
                totals.forget_clean()

    def _make_room(self, wanted: int) -> None:
        """Oldest first: rows of single operations and calls, then whole sessions; to well below the limit, so that
        this is not done after every batch."""
        sessions, rows_of = self.sessions, self._rows_of
        for session_id, session in sessions.items():
            if self._rows <= wanted:
                return
            kept = session.shed()
            self._rows += kept - rows_of[session_id]
            rows_of[session_id] = kept
        for session_id in list(sessions):
            if self._rows <= wanted:
                return
            del sessions[session_id]
            self._rows -= rows_of.pop(session_id)

    def _count_strangers(self) -> None:
        """Sessions that were only looked at count as well."""
        if len(self._rows_of) == len(self.sessions):
            return
        for session_id, session in self.sessions.items():
            if session_id not in self._rows_of:
                self._rows_of[session_id] = kept = session.size()
                self._rows += kept


def _put_or_delete(batch: WriteBatch, key: bytes, value: bytes | None) -> None:
    if value is None:
        batch.delete(STATE, key)
    else:
        batch.put(STATE, key, value)

"""A session as it stood at any seq: its rows as of the rung below, and a fold of at most one window in memory.

Steps: the rung below the seq is looked up; the events above it are found by walking down from the next rung (or the
head); they are folded by the shard's own folds onto rows that are read as of the rung; the projections are told the
path's end at that seq. Nothing is written. ``held`` and ``superseded`` are of today's head, and not told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from dalsegno.errors import NotFound, StoreDamaged
from dalsegno.model.history import is_fork
from dalsegno.model.lifecycle.state import COUNTED, OPEN_PHASES, OpState, SessionState, Verdict
from dalsegno.model.path import Path
from dalsegno.model.records import Event
from dalsegno.projections.base import RowId
from dalsegno.state.cells import CellTable
from dalsegno.state.folding import Folder, take_over
from dalsegno.state.history import Journal, Records, chain_down, events_of
from dalsegno.state.keys import LADDER, head_key, id_part, take_id, text_part
from dalsegno.state.kv import JOURNAL, STATE, KeyReader, scan_prefix
from dalsegno.state.ladder import image_key, images_above, marked_window, read_rung, split_image, window_of
from dalsegno.state.layout import SessionHead
from dalsegno.state.memory import MemoryStore
from dalsegno.state.rows import SessionRows
from dalsegno.state.session import OPS_SPEC, Session, state_of
from dalsegno.state.tables import LADDERED, ProjectionTables


class SessionAt:
    """What a session was when the event at ``seq`` had been folded, and nothing above it.

    ``verdict``: on that event; ``changed``: the rows that it put or took away, by projection (a rollup's are the
    session's own parts of the sums); ``state``: of the lifecycle; ``folded``: how many events were.
    """

    def __init__(
        self,
        session: Session,
        tables: Sequence[ProjectionTables],
        event: Event,
        verdict: Verdict,
        folded: int,
        open_below: Callable[[], Iterator[RowId]],
    ) -> None:
        """``open_below``: ids of the operations that were open at the rung."""
        self.session_id, self.seq = session.id, event.seq
        self.event, self.verdict, self.folded = event, verdict, folded
        self._open_below = open_below
        self.state: SessionState = session.lifecycle()
        self._ops = session.ops_table
        self._rows = {each.name: rows for each, rows in zip(tables, session.rows, strict=True)}
        self.changed: dict[str, list[RowId]] = {
            name: sorted(ids, key=id_part) for name, rows in self._rows.items() if (ids := rows.take_changed())
        }

    def row(self, projection: str, row_id: RowId = ()) -> Any:
        """One row, or None. Of a rollup: what the session had added to the sum."""
        return self._of(projection).get(row_id)

    def rows(self, projection: str) -> list[tuple[RowId, Any]]:
        """All rows of the session, by id."""
        return _all(self._of(projection))

    def private_rows(self, projection: str) -> list[tuple[RowId, Any]]:
        return _all(self._of(projection).private)

    def operations(self) -> list[tuple[RowId, Any]]:
        """All operations, turns and stages, open or not, by kind and id."""
        return _all(self._ops)

    def open(self) -> list[tuple[str, str]]:
        """Kind and id of the operations, turns and stages that were open."""
        return open_now(self.state, self._ops, self._open_below)

    def _of(self, projection: str) -> SessionRows:
        rows = self._rows.get(projection)
        if rows is None:
            raise NotFound(
                f"no rows of a projection {projection!r} that this release can fold",
                wanted=f"one of {', '.join(sorted(self._rows))}",
                projection=projection,
            )
        return rows


def _all(table: CellTable) -> list[tuple[RowId, Any]]:
    table.load_all()
    found = [(row_id, cell.row) for row_id, cell in table.cells.items() if cell.row is not None]
    return sorted(found, key=lambda each: id_part(each[0]))


def open_now(state: SessionState, ops: CellTable, open_below: Callable[[], Iterable[RowId]]) -> list[tuple[str, str]]:
    """Kind and id of what is open: what was so at the rung, unless it was touched since, and what is so since."""
    if not any(state.open):
        return []
    touched = ops.cells
    found = {row_id for row_id in open_below() if row_id not in touched}
    found.update(row_id for row_id, cell in touched.items() if cell.row is not None and is_open(row_id, cell.row))
    return [(str(kind), str(id)) for kind, id in sorted(found, key=id_part)]


def is_open(row_id: RowId, op: OpState) -> bool:
    """Whether it is one of the operations, turns and stages of which a session counts the open ones."""
    return row_id[0] in COUNTED and op.phase in OPEN_PHASES


class Stretch(NamedTuple):
    """The events of a path from behind a rung to a seq, and how many stubs stand on the path up to there."""

    events: list[Event]
    stubs: int


class Opening:
    """Opens one session of a shard at a seq. ``chosen`` and ``gather`` find what amendments and forks need."""

    def __init__(
        self,
        kv: KeyReader,
        journal: Journal,
        session_id: str,
        head: SessionHead,
        chosen: Callable[[], tuple[Records, Path]],
        gather: Callable[[str], Records],
        window_events: int,
    ) -> None:
        self._kv, self._journal, self._gather, self._chosen = kv, journal, gather, chosen
        self.session_id, self.head = session_id, head
        self.window_events = window_events

    def at(self, seq: int, tables: Sequence[ProjectionTables], partition: int) -> SessionAt:
        """``seq``: of an event of the path. Raises StoreDamaged."""
        window = window_of(seq, self.window_events)
        below = self.rung(window - 1) if window else None
        events, stubs = self.stretch(seq, window, None if below is None else below[1])
        session = self.session_at_rung(window, tables, partition)
        session.state = SessionState() if below is None else below[0]
        folder = Folder([each.projection for each in tables], None)
        for event in events[:-1]:
            self.fold(folder, session, event)
        for rows in session.rows:
            rows.take_changed()
        last = events[-1]
        verdict = self.fold(folder, session, last)
        found = SessionAt(session, tables, last, verdict, len(events), lambda: self.open_at_rung(window - 1))
        session.head, session.facts = SessionHead(last.seq, last.hash, last.epoch, stubs=stubs), None
        folder.finish(session)
        return found

    def session_at_rung(self, window: int, tables: Sequence[ProjectionTables], partition: int) -> Session:
        """With the rows as of the rung that closes the window below, or with none."""
        nothing = MemoryStore()
        reader = RungReader(self._kv, window - 1) if window else nothing
        totals = {
            each.name: CellTable(each.totals, nothing, each.totals.prefix, complete=True)
            for each in tables
            if each.totals is not None
        }
        return Session(self.session_id, reader, tuple(tables), totals, partition, with_forks=False)

    def fold(self, folder: Folder, session: Session, event: Event) -> Verdict:
        if is_fork(event):
            take_over(self._journal, self._gather, self.session_id, event, session.lifecycle())
        return folder.fold(session, event)

    def open_at_rung(self, window: int) -> Iterator[RowId]:
        """Ids of what was open at the rung that closes this window: what is open to this day and no older, and what
        was changed since. Of all the operations there ever were, none is looked at where nothing is open today."""
        prefix = OPS_SPEC.prefix + text_part(self.session_id)
        left = sum(state_of(self.session_id, self.head).open)
        rows = scan_prefix(self._kv, STATE, prefix) if left and window >= 0 else iter(())
        for key, raw in rows:
            row_id = take_id(key, len(prefix))
            if is_open(row_id, OPS_SPEC.read(key, raw)):
                if marked_window(raw) <= window:
                    yield row_id
                left -= 1
                if not left:
                    break
        lowest: dict[bytes, bytes] = {}
        for key, raw in scan_prefix(self._kv, STATE, LADDER + prefix):
            row_key, above = split_image(key)
            if above > window:
                lowest.setdefault(row_key, raw)
        for row_key, raw in lowest.items():
            row_id = take_id(row_key, len(prefix))
            if marked_window(raw) <= window and is_open(row_id, OPS_SPEC.read(row_key, raw)):
                yield row_id

    # --- the path ------------------------------------------------------------------------------------------------

    def rung(self, window: int) -> tuple[SessionState, bytes]:
        """The lifecycle at the rung that closes this window, and the hash of its event."""
        raw = self._kv.get(STATE, image_key(head_key(self.session_id), window))
        if raw is None:
            raise self._damaged(f"the ladder of session {self.session_id} lacks the rung of window {window}")
        try:
            rung = read_rung(raw)
            return msgspec.convert(rung.state, SessionState), rung.hash
        except msgspec.MsgspecError as error:
            raise self._damaged(f"a rung of session {self.session_id} has another shape: {error}") from error

    def stretch(self, seq: int, window: int, below: bytes | None) -> Stretch:
        """The events above the rung ``below`` up to ``seq``."""
        first = window * self.window_events + 1
        if self.head.amended:
            records, path = self._chosen()
            stubs = records.amended.stubs
            hashes = path.hashes[first - 1 : seq]
            joined = first == 1 or path.hashes[first - 2] == below
            events = list(events_of(self._journal, self.session_id, records, hashes, first_seq=first))
            count = sum(hash_ in stubs for hash_ in path.hashes[:seq])
        else:
            chain = list(chain_down(self._kv, self.session_id, *self._top(window), first - 1))[::-1]
            joined = chain[0][2].prev_hash == below
            found = chain[: seq - first + 1]
            events = [self._journal.event(self.session_id, at, hash_, entry.offset) for at, hash_, entry in found]
            count = 0
        if not joined:
            raise self._damaged(f"the path of session {self.session_id} does not pass its rung at seq {first - 1}")
        return Stretch(events, count)

    def _top(self, window: int) -> tuple[int, bytes]:
        """The last known place of the path in this window: its rung, if the path goes on above it, else its end."""
        rung = (window + 1) * self.window_events
        if self.head.seq > rung:
            return rung, self.rung(window)[1]
        return self.head.seq, self.head.hash or b""

    def _damaged(self, found: str) -> StoreDamaged:
        return StoreDamaged(
            found,
            wanted="rows of one fold",
            todo="fold the projection lifecycle again from the journal",
            session=self.session_id,
        )


class RungReader:
    """A shard in which the rows of sessions are what they were at the rungs that close one window. Rows are scanned by
    prefix, as a table does."""

    def __init__(self, kv: KeyReader, window: int) -> None:
        self._kv, self._window = kv, window

    def get(self, family: str, key: bytes) -> bytes | None:
        if family == JOURNAL or key[:1] not in LADDERED:
            return self._kv.get(family, key)
        image = next(self._kv.scan(STATE, *images_above(key, self._window)), None)
        return self._then(self._kv.get(STATE, key) if image is None else image[1])

    def multi_get(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(family, key) for key in keys]

    def scan(
        self, family: str, start: bytes = b"", end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        if family == JOURNAL or start[:1] not in LADDERED:
            yield from self._kv.scan(family, start, end, reverse=reverse)
            return
        rows: dict[bytes, bytes] = dict(self._kv.scan(STATE, start, end))
        above = None if end is None else LADDER + end
        for key, raw in self._kv.scan(STATE, LADDER + start, above, reverse=True):  # of each row the lowest window last
            row_key, window = split_image(key)
            if window > self._window:
                rows[row_key] = raw
        for key in sorted(rows, reverse=reverse):
            if self._then(rows[key]) is not None:
                yield key, rows[key]

    def _then(self, raw: bytes | None) -> bytes | None:
        """The version, unless it was written after the rung."""
        return None if raw is None or marked_window(raw) > self._window else raw

    def close(self) -> None:
        """Whoever opened the shard closes it."""

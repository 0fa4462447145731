"""A session walked event by event, in both directions, in the memory of one window of the ladder.

On the way up within a window one event is folded. For all else the window is begun again at the rung below it, so no
step folds more than a window has events. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, NamedTuple, cast

from dalsegno.model.lifecycle.state import SessionState, Verdict
from dalsegno.model.records import FIRST_SEQ, Event
from dalsegno.projections.base import RowId
from dalsegno.state.at import Opening, open_now
from dalsegno.state.cells import CellTable
from dalsegno.state.folding import Folder
from dalsegno.state.keys import id_part
from dalsegno.state.ladder import window_of
from dalsegno.state.layout import SessionHead
from dalsegno.state.rows import SessionRows
from dalsegno.state.session import Session
from dalsegno.state.tables import ProjectionTables


class Change(NamedTuple):
    """A row that an event changed, as it was and as it is; None: not there. Of a rollup: the session's own part."""

    projection: str
    id: RowId
    before: Any
    after: Any


class Window(NamedTuple):
    """The events of one window, from the rung below it to the rung or the path's end."""

    number: int
    first_seq: int
    events: list[Event]
    stubs_below: int
    below: tuple[SessionState, bytes] | None
    """Lifecycle and hash at the rung below; None in the first window."""

    def event(self, seq: int) -> Event:
        return self.events[seq - self.first_seq]


class Walk:
    """Stands at one event after the other: ``to`` goes there, the rest says what is so there.

    ``folded``: how many events were folded since it was made.
    """

    def __init__(self, opening: Opening, tables: Sequence[ProjectionTables], partition: int) -> None:
        self._opening, self._tables, self._partition = opening, tables, partition
        self.session_id, self.end = opening.session_id, opening.head.seq
        self.window_events = opening.window_events
        self.folded = 0
        self._window: Window | None = None
        self._stand: _Stand | None = None

    def to(self, seq: int) -> None:
        """Stand where the event at ``seq`` has been folded. It must be on the path. Raises StoreDamaged."""
        stand = self._stand
        same = stand is not None and stand.window.number == window_of(seq, self.window_events)
        if stand is not None and same and seq == stand.seq:
            return
        # Whatever fails from here on leaves no stand that is half one place and half another.
        self._stand = None
        if stand is None or not same or seq < stand.seq:
            window = stand.window if stand is not None and same else self.window(seq)
            stand = _Stand(self._opening, self._tables, self._partition, window)
        try:
            stand.go(seq)
        finally:
            self.folded += stand.take_folded()
        self._stand = stand

    # --- the events, folded or not -----------------------------------------------------------------------------------

    def window(self, seq: int) -> Window:
        """The window of a seq of the path; the last one that was asked for is kept."""
        number = window_of(seq, self.window_events)
        if self._window is None or self._window.number != number:
            self._window = None
            opening = self._opening
            below = opening.rung(number - 1) if number else None
            first = number * self.window_events + FIRST_SEQ
            top = min(first + self.window_events - 1, self.end)
            events, stubs = opening.stretch(top, number, None if below is None else below[1])
            stubs_below = stubs - sum(event.stub is not None for event in events)
            self._window = Window(number, first, events, stubs_below, below)
        return self._window

    def event(self, seq: int) -> Event:
        return self.window(seq).event(seq)

    def above(self, seq: int) -> Iterator[Event]:
        """The events above a seq, upwards."""
        for at in range(seq + 1, self.end + 1):
            yield self.event(at)

    def below(self, seq: int) -> Iterator[Event]:
        """The events below a seq, downwards."""
        for at in range(seq - 1, FIRST_SEQ - 1, -1):
            yield self.event(at)

    # --- what is so where it stands ----------------------------------------------------------------------------------

    @property
    def seq(self) -> int:
        return self._here.seq

    @property
    def verdict(self) -> Verdict:
        return self._here.verdict

    def changes(self) -> list[Change]:
        """What the event where it stands changed, by projection and id."""
        return self._here.changes()

    def row(self, projection: str, row_id: RowId = ()) -> Any:
        """One row, or None; also where the shard has no such projection. It is copied."""
        table = self._here.rows.get(projection)
        return None if table is None else deepcopy(table.get(row_id))

    def rows(self, projection: str) -> list[tuple[RowId, Any]]:
        """All rows of the session. Not to be changed, and only true until the next step."""
        table = self._here.rows.get(projection)
        if table is None:
            return []
        table.load_all()
        return [(row_id, cell.row) for row_id, cell in table.cells.items() if cell.row is not None]

    def private_row(self, projection: str, row_id: RowId = ()) -> Any:
        """One of the rows that a projection keeps for itself, or None."""
        table = self._here.rows.get(projection)
        return None if table is None else deepcopy(table.private.get(row_id))

    def open(self) -> list[tuple[str, str]]:
        """Kind and id of the operations, turns and stages that are open."""
        return self._here.open()

    @property
    def _here(self) -> _Stand:
        if self._stand is None:
            raise RuntimeError("it stands nowhere: call to() first")
        return self._stand


class _Stand:
    """The session's rows where some events of a window have been folded."""

    def __init__(self, opening: Opening, tables: Sequence[ProjectionTables], partition: int, window: Window) -> None:
        self.window, self.seq = window, window.first_seq - 1
        self._opening = opening
        self._session: Session = opening.session_at_rung(window.number, tables, partition)
        # The rung's state is folded on in place; the window keeps it for those who begin here again.
        self._session.state = SessionState() if window.below is None else deepcopy(window.below[0])
        self._folder = Folder([each.projection for each in tables], None)
        self.rows = {each.name: rows for each, rows in zip(tables, self._session.rows, strict=True)}
        self._watched: dict[str, _Watched] = {}
        self._stubs = window.stubs_below
        self._told = False
        self._folded = 0
        self._open_below: list[RowId] | None = None
        self.verdict = Verdict()

    def go(self, seq: int) -> None:
        """Up to a seq of the window that is above."""
        while self.seq < seq - 1:
            self._fold(self.window.event(self.seq + 1))
        event = self.window.event(seq)
        if not self._told and seq > FIRST_SEQ:
            below = seq > self.window.first_seq
            epoch = self.window.event(seq - 1).epoch if below else self._session.lifecycle().epoch
            self._tell(event.prev_hash, epoch)
        self._watched = {name: _Watched(rows) for name, rows in self.rows.items()}
        real = self._session.rows
        self._session.rows = cast(list[SessionRows], list(self._watched.values()))
        try:
            self.verdict = self._fold(event)
        finally:
            self._session.rows = real
        self._tell(event.hash, event.epoch)

    def _fold(self, event: Event) -> Verdict:
        verdict = self._opening.fold(self._folder, self._session, event)
        self.seq, self._told = event.seq, False
        self._stubs += event.stub is not None
        self._folded += 1
        return verdict

    def _tell(self, hash_: bytes | None, epoch: int) -> None:
        """The projections are told of the path's end, as if it were here."""
        self._session.head, self._session.facts = SessionHead(self.seq, hash_, epoch, stubs=self._stubs), None
        self._folder.finish(self._session)
        self._told = True

    def take_folded(self) -> int:
        folded, self._folded = self._folded, 0
        return folded

    def changes(self) -> list[Change]:
        found = (
            Change(name, row_id, watched.before[row_id], deepcopy(self.rows[name].get(row_id)))
            for name, watched in self._watched.items()
            for row_id in sorted(watched.put_ids, key=id_part)
        )
        return [each for each in found if each.before != each.after]

    def open(self) -> list[tuple[str, str]]:
        return open_now(self._session.lifecycle(), self._ops, self._open_at_rung)

    @property
    def _ops(self) -> CellTable:
        return self._session.ops_table

    def _open_at_rung(self) -> list[RowId]:
        if self._open_below is None:
            self._open_below = list(self._opening.open_at_rung(self.window.number - 1))
        return self._open_below


class _Watched:
    """A table that a fold uses, which keeps how each row was before the fold could change it."""

    def __init__(self, rows: SessionRows) -> None:
        self._rows = rows
        self.before: dict[RowId, Any] = {}
        self.put_ids: set[RowId] = set()

    def get(self, row_id: RowId = ()) -> Any:
        self._keep(row_id)
        return self._rows.get(row_id)

    def put(self, row_id: RowId, row: Any) -> None:
        # A fold that puts a row has asked for it before it changed it, or puts one that is new.
        self._keep(row_id)
        self.put_ids.add(row_id)
        self._rows.put(row_id, row)

    def delete(self, row_id: RowId) -> None:
        self._keep(row_id)
        self.put_ids.add(row_id)
        self._rows.delete(row_id)

    def add(self, key: RowId, amounts: Any) -> None:
        self._keep(key)
        self.put_ids.add(key)
        self._rows.add(key, amounts)

    @property
    def private(self) -> CellTable:
        return self._rows.private

    def _keep(self, row_id: RowId) -> None:
        if row_id not in self.before:
            self.before[row_id] = deepcopy(self._rows.get(row_id))

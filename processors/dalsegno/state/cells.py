"""A session's decoded rows in memory, and how they go to the store: encoded and hashed once per batch per changed row.

A *cell* is one row: its decoded struct, and the summand of the bytes that the store holds. Cells are loaded when they
are first asked for, changed in memory, and written by ``flush`` only if their bytes differ from the stored ones. Where
a session passes a rung in the middle of a batch, ``close`` keeps what the ladder needs of its rows as they are there.
"""

from __future__ import annotations

from typing import Any

from dalsegno.errors import StoreDamaged
from dalsegno.projections.base import RowId
from dalsegno.state.keys import LADDER, id_part, take_id
from dalsegno.state.kv import STATE, KeyReader, WriteBatch, scan_prefix
from dalsegno.state.ladder import NO_WINDOW, image_key, mark_of, marked_window
from dalsegno.state.tables import TableSpec, encode_row


class Cell:
    """One row in memory. ``row`` None: there is none. ``stored`` None: the store holds none.

    ``window``: of the version that stood when the table was last closed or flushed, NO_WINDOW if there was none;
    ``before``: the bytes of that version if it is not the stored one.
    """

    __slots__ = ("before", "changed", "row", "stored", "window")

    def __init__(self, row: Any, stored: int | None, window: int) -> None:
        self.row = row
        self.stored = stored
        self.window = window
        self.before: bytes | None = None
        self.changed = False


class Flush:
    """Collects what one write carries, and what it does to the digests."""

    __slots__ = ("batch", "delta", "put", "rows", "token")

    def __init__(self, batch: WriteBatch, token: bytes) -> None:
        self.batch = batch
        self.put = batch.putter(STATE)
        self.token = token
        self.delta: dict[str, int] = {}
        self.rows = 0


class CellTable:
    """The rows of one table under one prefix: a session's, or (rollup totals) a shard's."""

    __slots__ = ("_reader", "cells", "changed", "closed", "complete", "images", "prefix", "spec")

    def __init__(self, spec: TableSpec, reader: KeyReader, prefix: bytes, *, complete: bool) -> None:
        self.spec = spec
        self._reader = reader
        self.prefix = prefix
        self.complete = complete
        """True: the store holds no row that is not in ``cells``."""
        self.cells: dict[RowId, Cell] = {}
        self.changed: list[RowId] = []
        """Since the table was last closed or flushed."""
        self.closed: dict[RowId, Cell] = {}
        """Changed since it was last flushed, and closed since."""
        self.images: Images | None = None
        """What the batch at hand changes of the ladder."""

    def get(self, row_id: RowId = ()) -> Any:
        cell = self.cells.get(row_id)
        if cell is None:
            cell = self.load(row_id)
        return cell.row

    def put(self, row_id: RowId, row: Any) -> None:
        cell = self.cells.get(row_id)
        if cell is None:
            cell = self.load(row_id)
        cell.row = row
        if not cell.changed:
            cell.changed = True
            self.changed.append(row_id)

    def delete(self, row_id: RowId) -> None:
        self.put(row_id, None)

    def load_all(self) -> None:
        """Bring every stored row into ``cells``."""
        if self.complete:
            return
        at = len(self.prefix)
        for key, raw in scan_prefix(self._reader, STATE, self.prefix):
            row_id = take_id(key, at)
            if row_id not in self.cells:
                self.cells[row_id] = self._cell(key, raw)
        self.complete = True

    def drop_all(self) -> None:
        """Take every row away. The session begins again in its first window, before which no row leaves an image."""
        self.load_all()
        for row_id, cell in list(self.cells.items()):
            if cell.row is not None:
                CellTable.put(self, row_id, None)

    def forget_clean(self) -> None:
        """Let go of all cells; to be called only when nothing is changed."""
        self.cells = {}
        self.complete = False

    def take_changed(self) -> list[RowId]:
        """Ids of the rows that were put since this was last asked, for whoever never writes them."""
        for row_id in self.changed:
            self.cells[row_id].changed = False
        changed, self.changed = self.changed, []
        return changed

    # --- the ladder ----------------------------------------------------------------------------------------------

    def close(self, window: int) -> None:
        """The window ends here: what it changed leaves an image where an older one wrote it, and is kept as it is."""
        mark = mark_of(window)
        for row_id in self.changed:
            cell = self.closed[row_id] = self.cells[row_id]
            cell.changed = False
            if NO_WINDOW < cell.window < window:
                self._leave_image(self.prefix + id_part(row_id), cell, window)
            if cell.row is None:
                cell.before, cell.window = None, NO_WINDOW
            else:
                cell.before, cell.window = mark + encode_row(cell.row), window
        self.changed.clear()

    def put_image(self, key: bytes, window: int, raw: bytes) -> None:
        if self.images is None:
            self.images = Images()
        self.images.pending[image_key(key, window)] = raw

    def drop_images(self) -> None:
        """Take the whole ladder of this table away."""
        self.images = self.images or Images()
        self.images.drop(self._reader, self.spec, LADDER + self.prefix)

    def _leave_image(self, key: bytes, cell: Cell, window: int) -> None:
        raw = cell.before or self._reader.get(STATE, key)
        if raw is None:
            raise StoreDamaged(
                f"a row of {self.spec.projection} is gone since it was read",
                wanted="a store that only its owner writes",
                todo="set the shard aside; it is built again from a snapshot or from the log",
                projection=self.spec.projection,
                key=key.hex(),
            )
        self.put_image(key, window, raw)

    # --- writing -------------------------------------------------------------------------------------------------

    def flush(self, flush: Flush, window: int = NO_WINDOW) -> None:
        """Write what changed. ``window``: of the session's last event; of no use where no ladder is kept."""
        spec, put, prefix = self.spec, flush.put, self.prefix
        summand, delta, at = spec.summand, 0, len(spec.prefix)
        if not spec.laddered:
            window = NO_WINDOW
        mark = mark_of(window) if spec.laddered else b""
        changed = self.changed
        if self.closed:
            changed = changed + [row_id for row_id, cell in self.closed.items() if not cell.changed]
            self.closed = {}
        for row_id in changed:
            cell = self.cells[row_id]
            key = prefix + id_part(row_id) if row_id else prefix
            raw: bytes | None
            if cell.changed:
                cell.changed = False
                if NO_WINDOW < cell.window < window:
                    self._leave_image(key, cell, window)
                if cell.row is None:
                    raw, cell.window = None, NO_WINDOW
                else:
                    raw, cell.window = mark + encode_row(cell.row), window
            else:
                raw = cell.before
            cell.before = None
            before = cell.stored
            if raw is None:
                if before is None:
                    continue
                flush.batch.delete(STATE, key)
                cell.stored = None
                delta -= before
            else:
                after = summand(key, raw)
                if after == before:
                    continue
                put(key, raw)
                cell.stored = after
                delta += after if before is None else after - before
            flush.rows += 1
            if spec.outbox:
                put(spec.outbox_prefix + key[at:], flush.token)
        self.changed.clear()
        if self.images is not None:
            delta += self.images.flush(flush, spec)
            self.images = None
        if delta:
            flush.delta[spec.projection] = flush.delta.get(spec.projection, 0) + delta

    def load(self, row_id: RowId) -> Cell:
        """Bring one row, or that there is none, into ``cells``."""
        cell: Cell | None = None
        if not self.complete:
            key = self.prefix + id_part(row_id)
            raw = self._reader.get(STATE, key)
            if raw is not None:
                cell = self._cell(key, raw)
        cell = self.cells[row_id] = cell or Cell(None, None, NO_WINDOW)
        return cell

    def _cell(self, key: bytes, raw: bytes) -> Cell:
        spec = self.spec
        return Cell(spec.read(key, raw), spec.summand(key, raw), marked_window(raw) if spec.laddered else NO_WINDOW)


class Images:
    """What one batch changes of one table's ladder. An image never changes, but a session may be folded again."""

    __slots__ = ("pending", "stored")

    def __init__(self) -> None:
        self.pending: dict[bytes, bytes | None] = {}
        self.stored: dict[bytes, int] = {}
        """Summands of what the store holds, known where it may be in the way."""

    def drop(self, reader: KeyReader, spec: TableSpec, prefix: bytes) -> None:
        self.stored = {key: spec.summand(key, raw) for key, raw in scan_prefix(reader, STATE, prefix)}
        self.pending = dict.fromkeys(self.stored)

    def flush(self, flush: Flush, spec: TableSpec) -> int:
        """Write what differs; returns what that does to the digest."""
        delta = 0
        for key, raw in self.pending.items():
            before = self.stored.get(key)
            if raw is None:
                flush.batch.delete(STATE, key)
                delta -= before or 0
                continue
            after = spec.summand(key, raw)
            if after != before:
                flush.put(key, raw)
                delta += after - (before or 0)
        return delta

"""A session's decoded rows in memory, and how they go to the store: encoded and hashed once per batch per changed row.

A *cell* is one row: its decoded struct, and the summand of the bytes that the store holds. Cells are loaded when they
are first asked for, changed in memory, and written by ``flush`` only if their bytes differ from the stored ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from dalsegno.errors import StoreDamaged
from dalsegno.projections.base import Projection, RowId, plus
from dalsegno.state.digest import row_hasher
from dalsegno.state.keys import (
    CONTRIBUTION,
    HEAD,
    PRIVATE,
    ROW,
    TOTAL,
    family_prefix,
    id_part,
    outbox_key,
    take_id,
    take_text,
)
from dalsegno.state.kv import STATE, KeyReader, WriteBatch, scan_prefix

LIFECYCLE: Final = "lifecycle"
"""The pseudo projection of path heads, session states and operations."""

encode_row: Final = msgspec.msgpack.Encoder().encode


class TableSpec:
    """One kind of row of one projection: where it stands, what it is, how it is digested."""

    __slots__ = ("decode", "kind", "outbox", "outbox_prefix", "prefix", "projection", "row", "summand", "version")

    def __init__(self, kind: bytes, projection: str, version: int, row: type[Any], *, public: bool = False) -> None:
        self.kind = kind
        self.projection = projection
        self.version = version
        self.row = row
        self.prefix = HEAD if kind == HEAD else family_prefix(kind, projection)
        self.outbox = public
        self.outbox_prefix = outbox_key(self.prefix) if public else b""
        """Stands before the rest of a row's key in the outbox."""
        self.summand: Callable[[bytes, bytes], int] = row_hasher(projection, version)
        self.decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(row).decode

    def read(self, key: bytes, raw: bytes) -> Any:
        """The row. Raises StoreDamaged naming the type and the place in it that has another shape."""
        try:
            return self.decode(raw)
        except msgspec.MsgspecError as error:
            raise StoreDamaged(
                f"a row of {self.projection} does not have the shape of {self.row.__name__}: {error}",
                wanted=f"rows of {self.projection} version {self.version}",
                todo=f"fold the projection {self.projection} again from the journal",
                projection=self.projection,
                type=self.row.__name__,
                session=None if self.kind == TOTAL else take_text(key, len(self.prefix))[0],
                key=key.hex(),
            ) from error


class ProjectionTables:
    """The tables of one projection; all that reads or writes its rows goes through these."""

    def __init__(self, projection: Projection[Any]) -> None:
        self.projection = projection
        self.name, self.version = projection.name, projection.version
        self.rollup = projection.rollup
        public = projection.public
        self.rows = TableSpec(
            CONTRIBUTION if self.rollup else ROW,
            self.name,
            self.version,
            projection.row,
            public=public and not self.rollup,
        )
        self.totals = TableSpec(TOTAL, self.name, self.version, projection.row, public=public) if self.rollup else None
        self.private = (
            None
            if projection.private_row is None
            else TableSpec(PRIVATE, self.name, self.version, projection.private_row)
        )

    def specs(self) -> Iterator[TableSpec]:
        yield from (spec for spec in (self.rows, self.totals, self.private) if spec is not None)


class Cell:
    """One row in memory. ``row`` None: there is none. ``stored`` None: the store holds none."""

    __slots__ = ("changed", "row", "stored")

    def __init__(self, row: Any, stored: int | None) -> None:
        self.row = row
        self.stored = stored
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

    __slots__ = ("_reader", "cells", "changed", "complete", "prefix", "spec")

    def __init__(self, spec: TableSpec, reader: KeyReader, prefix: bytes, *, complete: bool) -> None:
        self.spec = spec
        self._reader = reader
        self.prefix = prefix
        self.complete = complete
        """True: the store holds no row that is not in ``cells``."""
        self.cells: dict[RowId, Cell] = {}
        self.changed: list[RowId] = []

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
                self.cells[row_id] = Cell(self.spec.read(key, raw), self.spec.summand(key, raw))
        self.complete = True

    def drop_all(self) -> None:
        """Take every row away."""
        self.load_all()
        for row_id, cell in list(self.cells.items()):
            if cell.row is not None:
                CellTable.put(self, row_id, None)

    def forget_clean(self) -> None:
        """Let go of all cells; to be called only when nothing is changed."""
        self.cells = {}
        self.complete = False

    def flush(self, flush: Flush) -> None:
        spec, put, prefix = self.spec, flush.put, self.prefix
        summand, delta, at = spec.summand, 0, len(spec.prefix)
        for row_id in self.changed:
            cell = self.cells[row_id]
            cell.changed = False
            key = prefix + id_part(row_id) if row_id else prefix
            before = cell.stored
            if cell.row is None:
                if before is None:
                    continue
                flush.batch.delete(STATE, key)
                cell.stored = None
                delta -= before
            else:
                raw = encode_row(cell.row)
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
        if delta:
            flush.delta[spec.projection] = flush.delta.get(spec.projection, 0) + delta

    def load(self, row_id: RowId) -> Cell:
        """Bring one row, or that there is none, into ``cells``."""
        cell = Cell(None, None)
        if not self.complete:
            key = self.prefix + id_part(row_id)
            raw = self._reader.get(STATE, key)
            if raw is not None:
                cell = Cell(self.spec.read(key, raw), self.spec.summand(key, raw))
        self.cells[row_id] = cell
        return cell


class SessionRows(CellTable):
    """What a fold gets: its rows of one session, and the door to its private ones."""

    __slots__ = ("_private",)

    def __init__(self, tables: ProjectionTables, reader: KeyReader, session_part: bytes, *, complete: bool) -> None:
        super().__init__(tables.rows, reader, tables.rows.prefix + session_part, complete=complete)
        self._private = (
            None
            if tables.private is None
            else CellTable(tables.private, reader, tables.private.prefix + session_part, complete=complete)
        )

    @property
    def private(self) -> CellTable:
        if self._private is None:
            raise TypeError(f"projection {self.spec.projection} declares no private_row")
        return self._private

    def add(self, key: RowId, amounts: Any) -> None:
        raise TypeError(f"projection {self.spec.projection} is no rollup: add({key}, {amounts}) is not for it")

    def parts(self) -> Iterator[CellTable]:
        yield self
        if self._private is not None:
            yield self._private

    def drop_all(self) -> None:
        super().drop_all()
        if self._private is not None:
            self._private.drop_all()


class RollupRows(SessionRows):
    """A session's contributions to sums. They change the totals as they come, and are taken back from them."""

    __slots__ = ("_partition", "_totals")

    def __init__(
        self,
        tables: ProjectionTables,
        reader: KeyReader,
        session_part: bytes,
        *,
        complete: bool,
        totals: CellTable,
        partition: int,
    ) -> None:
        super().__init__(tables, reader, session_part, complete=complete)
        self._totals = totals
        self._partition = partition

    def add(self, key: RowId, amounts: Any) -> None:
        super().put(key, _sum(self.get(key), amounts, 1))
        total_key = (self._partition, *key)
        self._totals.put(total_key, _sum(self._totals.get(total_key), amounts, 1))

    def put(self, row_id: RowId, row: Any) -> None:
        raise TypeError(f"projection {self.spec.projection} is a rollup: put({row_id}, {row}) is not for it, use add")

    def delete(self, row_id: RowId) -> None:
        self.put(row_id, None)

    def drop_all(self) -> None:
        self.load_all()
        for key, cell in self.cells.items():
            if cell.row is not None:
                total_key = (self._partition, *key)
                self._totals.put(total_key, _sum(self._totals.get(total_key), cell.row, -1))
        super().drop_all()


def _sum(row: Any, amounts: Any, sign: int) -> Any:
    """``row`` plus or minus ``amounts``, field by field; None where every field is zero."""
    fields = amounts.__struct_fields__
    if row is None:
        values = {name: plus(0, sign * getattr(amounts, name)) for name in fields}
    else:
        values = {name: plus(getattr(row, name), sign * getattr(amounts, name)) for name in fields}
    return type(amounts)(**values) if any(values.values()) else None

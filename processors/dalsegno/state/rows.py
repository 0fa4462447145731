"""What a fold gets: a projection's rows of one session, and what a rollup adds to the sums of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dalsegno.projections.base import RowId, plus
from dalsegno.state.cells import CellTable
from dalsegno.state.kv import KeyReader
from dalsegno.state.tables import ProjectionTables


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

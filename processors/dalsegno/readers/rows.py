"""Questions about the rows of any projection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dalsegno.projections.base import RowId, plus
from dalsegno.readers.local import LocalReader
from dalsegno.readers.sessions import Found


def session_rows(found: Found, projection: str) -> Iterator[tuple[RowId, Any]]:
    """A session's rows of one projection, in the order of their ids."""
    return found.view.reads.rows(projection, found.session_id)


def rollup_rows(reader: LocalReader, projection: str) -> dict[RowId, Any]:
    """A rollup's sums over all partitions that can be read here, by key (without the partition)."""
    totals: dict[RowId, Any] = {}
    for view in reader.views().values():
        for (_, *key), row in view.reads.rollups(projection):
            before = totals.get(tuple(key))
            totals[tuple(key)] = row if before is None else _sum(before, row)
    return totals


def _sum(one: Any, other: Any) -> Any:
    names = one.__struct_fields__
    return msgspec.structs.replace(one, **{name: plus(getattr(one, name), getattr(other, name)) for name in names})

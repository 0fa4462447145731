"""The public rows by a straight fold over dictionaries: no store, no index, nothing incremental."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from dalsegno.model.lifecycle import Verdict
from dalsegno.model.records import Event
from dalsegno.projections.base import ALL, HeadFacts, Projection, RowId, plus
from dalsegno.state.keys import ROW as ROW_KIND
from dalsegno.state.keys import TOTAL, family_prefix, id_part, session_row_key
from dalsegno.testing.reference import Settled


class PlainRows:
    """What a fold gets, of one session and projection."""

    def __init__(self) -> None:
        self.kept: dict[RowId, Any] = {}
        self.added: dict[RowId, Any] = {}
        self._private: PlainRows | None = None

    @property
    def private(self) -> PlainRows:
        if self._private is None:
            self._private = PlainRows()
        return self._private

    def get(self, row_id: RowId = ()) -> Any:
        added = self.added.get(row_id)
        return copy.deepcopy(self.kept.get(row_id) if added is None or not any(_amounts(added)) else added)

    def put(self, row_id: RowId, row: Any) -> None:
        self.kept[row_id] = copy.deepcopy(row)

    def delete(self, row_id: RowId) -> None:
        self.kept.pop(row_id, None)

    def add(self, key: RowId, amounts: Any) -> None:
        self.added[key] = _sum(self.added.get(key), amounts)


def _amounts(row: Any) -> list[int]:
    return [getattr(row, name) for name in row.__struct_fields__]


def _sum(total: Any, amounts: Any) -> Any:
    if total is None:
        return copy.deepcopy(amounts)
    fields = type(amounts).__struct_fields__
    return type(amounts)(**{name: plus(getattr(total, name), getattr(amounts, name)) for name in fields})


def fold_one(projection: Projection[Any], rows: Any, event: Event, verdict: Verdict) -> None:
    """What a shard does with an event that was judged."""
    if verdict.violations:
        projection.fold_violation(rows, event, verdict)
    elif event.stub is not None:
        projection.fold_stub(rows, event)
    elif projection.handles == ALL or event.type in projection.handles:
        projection.fold(rows, event, verdict)


def _fold(settled: Settled, projection: Projection[Any]) -> PlainRows:
    rows = PlainRows()
    for event, verdict in zip(settled.events, settled.verdicts, strict=True):
        fold_one(projection, rows, event, verdict)
    tip = settled.events[-1] if settled.events else None
    held = settled.held or (None, None)
    projection.fold_head(
        rows,
        HeadFacts(
            0 if tip is None else tip.seq,
            None if tip is None else tip.hash,
            0 if tip is None else tip.epoch,
            *held,
            len(settled.path.superseded),
            sum(event.stub is not None for event in settled.events),
        ),
    )
    return rows


def plain_rows(
    settled: dict[str, Settled], projections: Sequence[Projection[Any]], partition: int
) -> dict[str, dict[bytes, Any]]:
    """Projection -> row key -> public row, of the sessions of one partition."""
    found: dict[str, dict[bytes, Any]] = {}
    for projection in projections:
        rows: dict[bytes, Any] = {}
        sums: dict[RowId, Any] = {}
        for session_id, of_session in settled.items():
            folded = _fold(of_session, projection)
            for row_id, row in folded.kept.items():
                rows[session_row_key(ROW_KIND, projection.name, session_id, row_id)] = row
            for key, amounts in folded.added.items():
                sums[key] = _sum(sums.get(key), amounts)
        for key, total in sums.items():
            if any(_amounts(total)):
                rows[family_prefix(TOTAL, projection.name) + id_part((partition, *key))] = total
        found[projection.name] = rows
    return found

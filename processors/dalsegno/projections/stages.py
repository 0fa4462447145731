"""The projection ``stages``: one row per stage attempt, and one per transition that led to them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dalsegno.model.lifecycle import Verdict
from dalsegno.model.lifecycle.state import bounded, id_in
from dalsegno.model.records import Event
from dalsegno.projections.base import Projection, RowId, Rows, clock, cut, first, kept_id
from dalsegno.projections.rows import StageRow, StageStatus, TransitionPlace

STAGE: Final = "stage"
TRANSITION: Final = "transition"
LISTED: Final = 16
"""Members of a list that a row keeps; the others are counted."""


def _stage_id(body: Any) -> RowId:
    return (STAGE, id_in(body, "stage_id"))


def _transition(rows: Rows[StageRow], event: Event) -> None:
    body = event.body
    candidates, more_candidates = first(body["candidates"], LISTED)
    guards, more_guards = first(body["guard_inputs"], LISTED)
    row = StageRow(
        kind="TRANSITION",
        transition_id=kept_id(body["transition_id"]),
        taken_at=clock(event.meta),
        from_stage=kept_id(body["from_stage"]),
        to_stage=kept_id(body["to_stage"]),
        guard_id=kept_id(body["guard_id"]),
        guard_result=body["guard_result"],
        candidates=[bounded(name) for name in candidates],
        more_candidates=more_candidates,
        guard_inputs=[bounded(guard["name"]) for guard in guards],
        guard_digests=[guard["digest"] for guard in guards],
        more_guard_inputs=more_guards,
    )
    rows.put((TRANSITION, event.seq), row)
    transition_id = id_in(body, "transition_id")
    if transition_id:
        rows.private.put((transition_id,), TransitionPlace(seq=event.seq))


def _scheduled(rows: Rows[StageRow], event: Event) -> None:
    body = event.body
    depends_on, more = first(body["depends_on"], LISTED)
    transition_id = id_in(body, "transition_id")
    taken = rows.private.get((transition_id,)) if transition_id else None
    row = StageRow(
        status="SCHEDULED",
        stage_name=kept_id(body["stage_name"]),
        attempt=body["attempt"],
        transition_id=kept_id(body["transition_id"]),
        transition_seq=None if taken is None else taken.seq,
        depends_on=[bounded(name) for name in depends_on],
        more_depends_on=more,
        scheduled_seq=event.seq,
        scheduled_at=clock(event.meta),
        inputs_digest=body["inputs_digest"],
    )
    rows.put(_stage_id(body), row)


def _started(row: StageRow, event: Event) -> None:
    row.status, row.worker = "STARTED", cut(event.body["worker"])
    row.started_seq, row.started_at = event.seq, clock(event.meta)
    row.ended_seq = row.ended_at = row.outputs_digest = row.error_class = row.reason = None


def _ended(row: StageRow, event: Event, status: StageStatus) -> None:
    row.status, row.ended_seq, row.ended_at = status, event.seq, clock(event.meta)


def _completed(row: StageRow, event: Event) -> None:
    _ended(row, event, "COMPLETED")
    row.outputs_digest = event.body["outputs_digest"]


def _failed(row: StageRow, event: Event) -> None:
    _ended(row, event, "FAILED")
    error = event.body["error"]
    row.error_class, row.reason = cut(error["error_class"]), cut(error["message"])


def _stopped(status: StageStatus) -> Callable[[StageRow, Event], None]:
    def change(row: StageRow, event: Event) -> None:
        _ended(row, event, status)
        row.reason = cut(event.body["reason"])

    return change


_CHANGES: dict[str, Callable[[StageRow, Event], None]] = {
    "StageStarted": _started,
    "StageCompleted": _completed,
    "StageFailed": _failed,
    "StageSkipped": _stopped("SKIPPED"),
    "StageCancelled": _stopped("CANCELLED"),
}
_FOLDS: dict[str, Callable[[Rows[StageRow], Event], None]] = {
    "TransitionTaken": _transition,
    "StageScheduled": _scheduled,
}


class Stages(Projection[StageRow]):
    name = "stages"
    version = 1
    handles = frozenset({*_FOLDS, *_CHANGES})
    row = StageRow
    private_row = TransitionPlace

    def fold(self, rows: Rows[StageRow], event: Event, _verdict: Verdict) -> None:
        change = _CHANGES.get(event.type)
        if change is None:
            _FOLDS[event.type](rows, event)
            return
        row_id = _stage_id(event.body)
        # A fork goes on in stages of its parent, and what scheduled a stage may have been erased: no row yet.
        row = rows.get(row_id) or StageRow()
        change(row, event)
        rows.put(row_id, row)

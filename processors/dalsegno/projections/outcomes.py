"""The rollup ``outcomes``: sessions and what they cost, by day (UTC) of the first event, workflow, status, verdict.

A session counts once, under the status and the verdict that it has now: when one of them changes, all that the session
has added is taken back and added under the new key. Its day is that of seq 1, UNKNOWN where an amendment took that.
"""

from __future__ import annotations

from typing import Any, Final

from dalsegno.model.lifecycle import Verdict
from dalsegno.model.lifecycle.state import bounded
from dalsegno.model.records import FIRST_SEQ, Event
from dalsegno.projections.base import Rollup, RowId, Rows, clock, duration, plus
from dalsegno.projections.failed_calls import FAILED_AFTER
from dalsegno.projections.rows import OutcomeOf, OutcomeRow
from dalsegno.projections.sessions import STATUS_AFTER
from dalsegno.projections.usage import day_of

_ENDS: Final = frozenset({"SessionCompleted", "SessionFailed", "SessionCancelled"})
_VERDICTS: Final = frozenset({"ValidationDecided", "ValidationAmended"})
_ADDING: Final = frozenset({"InferenceCompleted", "ToolCallRequested"})


class Outcomes(Rollup[OutcomeRow]):
    name = "outcomes"
    version = 2
    handles = frozenset({*STATUS_AFTER, *_VERDICTS, *_ADDING, *FAILED_AFTER})
    row = OutcomeRow
    private_row = OutcomeOf

    def fold(self, rows: Rows[OutcomeRow], event: Event, verdict: Verdict) -> None:
        of = _counted(rows, event)
        key = _key(of)
        if event.type in _ADDING:
            rows.add(key, _added(event.type, event.body))
        elif event.type in FAILED_AFTER:
            _count_failed(rows, key, event, verdict)
        else:
            if event.type in _ENDS:
                _set_duration(rows, key, of.started_at, clock(event.meta))
            _change(of, event)
            _move(rows, key, of)

    def fold_violation(self, rows: Rows[OutcomeRow], event: Event, _: Verdict) -> None:
        _counted(rows, event)

    def fold_stub(self, rows: Rows[OutcomeRow], event: Event) -> None:
        of = _counted(rows, event)
        key = _key(of)
        of.status = STATUS_AFTER.get(event.type, of.status)
        _move(rows, key, of)


def _counted(rows: Rows[OutcomeRow], event: Event) -> OutcomeOf:
    """Where the session counts; from its first event on it does."""
    of: OutcomeOf | None = rows.private.get()
    if of is None:
        readable = event.seq == FIRST_SEQ and event.stub is None
        of = OutcomeOf(started_at=clock(event.meta) if readable else None)
        rows.private.put((), of)
        rows.add(_key(of), OutcomeRow(sessions=1))
    return of


def _key(of: OutcomeOf) -> RowId:
    return day_of(of.started_at), of.workflow, of.status, of.verdict or ""


def _change(of: OutcomeOf, event: Event) -> None:
    body = event.body
    if event.type == "SessionCreated":
        of.workflow = bounded(body["workflow_name"])
    elif event.type == "ValidationAmended" or (event.type == "ValidationDecided" and not body["intermediate"]):
        of.verdict = body["verdict"]
    of.status = STATUS_AFTER.get(event.type, of.status)


def _move(rows: Rows[OutcomeRow], key: RowId, of: OutcomeOf) -> None:
    new, held = _key(of), rows.get(key)
    if new == key or held is None:
        return
    rows.private.put((), of)
    rows.add(new, held)
    rows.add(key, OutcomeRow(**{field: plus(0, -getattr(held, field)) for field in OutcomeRow.__struct_fields__}))


def _added(type_: str, body: Any) -> OutcomeRow:
    if type_ == "ToolCallRequested":
        return OutcomeRow(tool_calls=1)
    usage = body["usage"]
    return OutcomeRow(
        inferences=1,
        input_tokens=usage["input"] or 0,
        output_tokens=usage["output"] or 0,
        cost_usd_micros=body["cost_usd_micros"] or 0,
    )


def _count_failed(rows: Rows[OutcomeRow], key: RowId, event: Event, verdict: Verdict) -> None:
    held = rows.get(key)
    before = 0 if held is None else held.failed_tool_calls
    after = FAILED_AFTER[event.type](before, event.body, verdict)
    if after != before:
        rows.add(key, OutcomeRow(failed_tool_calls=after - before))


def _set_duration(rows: Rows[OutcomeRow], key: RowId, start: int | None, end: int | None) -> None:
    held = rows.get(key)
    if start is not None and end is not None and held is not None:
        lasted = duration(end - start)
        known = 0 if lasted is None else 1
        rows.add(
            key,
            OutcomeRow(duration_micros=plus(lasted or 0, -held.duration_micros), timed=known - held.timed),
        )

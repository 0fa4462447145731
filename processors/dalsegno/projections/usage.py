"""The rollup ``usage``: tokens and cost per day (UTC), workflow, provider and model. Pure."""

from __future__ import annotations

from datetime import date
from typing import Final

from dalsegno.model.lifecycle import Verdict
from dalsegno.model.lifecycle.state import INFERENCE, bounded, id_in
from dalsegno.model.records import Event
from dalsegno.projections.base import Rollup, Rows, clock, duration, kept_id
from dalsegno.projections.rows import UsageNote, UsageRow

_DAY_MICROS: Final = 86_400 * 1_000_000
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_NO_DAY: Final = "UNKNOWN"


class Usage(Rollup[UsageRow]):
    name = "usage"
    version = 3
    handles = frozenset(
        {"SessionCreated", "InferenceRequested", "InferenceCompleted", "InferenceFailed", "SessionRecovered"}
    )
    row = UsageRow
    private_row = UsageNote

    def fold(self, rows: Rows[UsageRow], event: Event, verdict: Verdict) -> None:
        body = event.body
        if event.type == "SessionCreated":
            rows.private.put((), UsageNote(workflow=bounded(body["workflow_name"])))
            return
        if event.type == "SessionRecovered":
            for kind, id in verdict.closed:
                if kind == INFERENCE:
                    rows.private.delete((id,))
            return
        row_id = (id_in(body, "inference_id"),)
        if event.type == "InferenceRequested":
            rows.private.put(row_id, UsageNote(provider=kept_id(body["provider"]), model=kept_id(body["model"])))
            return
        asked = rows.private.get(row_id) or UsageNote()
        rows.private.delete(row_id)
        model = asked.model
        if event.type == "InferenceFailed":
            amounts = UsageRow(failed_inferences=1)
        else:
            model = kept_id(body["model"]) or model
            usage = body["usage"]
            amounts = UsageRow(
                inferences=1,
                input_tokens=usage["input"] or 0,
                output_tokens=usage["output"] or 0,
                cache_read_tokens=usage["cache_read"] or 0,
                cache_creation_tokens=usage["cache_creation"] or 0,
                reasoning_tokens=usage["reasoning"] or 0,
                cost_usd_micros=body["cost_usd_micros"] or 0,
                latency_ms=duration(body["latency_ms"]) or 0,
            )
        session = rows.private.get() or UsageNote()
        day = day_of(clock(event.meta))
        rows.add((day, session.workflow, asked.provider or "", model or ""), amounts)


def day_of(micros: int | None) -> str:
    """The UTC day of a time in microseconds, as ``YYYY-MM-DD``; UNKNOWN where the calendar has none."""
    ordinal = 0 if micros is None else micros // _DAY_MICROS + _EPOCH_ORDINAL
    return date.fromordinal(ordinal).isoformat() if 1 <= ordinal <= date.max.toordinal() else _NO_DAY

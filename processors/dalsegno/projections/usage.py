"""The rollup ``usage``: tokens and cost per day (UTC), provider and model. Pure."""

from __future__ import annotations

from datetime import date
from typing import Final

from dalsegno.model.lifecycle import Verdict
from dalsegno.model.lifecycle.state import INFERENCE, bounded, id_in
from dalsegno.model.records import Event
from dalsegno.projections.base import Rollup, Rows, clock
from dalsegno.projections.rows import OpenInference, UsageRow

_DAY_MICROS: Final = 86_400 * 1_000_000
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_NO_DAY: Final = "UNKNOWN"


class Usage(Rollup[UsageRow]):
    name = "usage"
    version = 1
    handles = frozenset({"InferenceRequested", "InferenceCompleted", "InferenceFailed", "SessionRecovered"})
    row = UsageRow
    private_row = OpenInference

    def fold(self, rows: Rows[UsageRow], event: Event, verdict: Verdict) -> None:
        body = event.body
        if event.type == "SessionRecovered":
            for kind, id in verdict.closed:
                if kind == INFERENCE:
                    rows.private.delete((id,))
            return
        row_id = (id_in(body, "inference_id"),)
        if event.type == "InferenceRequested":
            asked = OpenInference(provider=_kept(body["provider"]), model=_kept(body["model"]))
            rows.private.put(row_id, asked)
            return
        asked = rows.private.get(row_id) or OpenInference()
        rows.private.delete(row_id)
        model = asked.model
        if event.type == "InferenceFailed":
            amounts = UsageRow(failed_inferences=1)
        else:
            model = _kept(body["model"]) or model
            usage = body["usage"]
            amounts = UsageRow(
                inferences=1,
                input_tokens=usage["input"] or 0,
                output_tokens=usage["output"] or 0,
                cache_read_tokens=usage["cache_read"] or 0,
                cache_creation_tokens=usage["cache_creation"] or 0,
                reasoning_tokens=usage["reasoning"] or 0,
                cost_usd_micros=body["cost_usd_micros"] or 0,
                latency_ms=body["latency_ms"] or 0,
            )
        rows.add((day_of(clock(event.meta)), asked.provider or "", model or ""), amounts)


def day_of(micros: int | None) -> str:
    """The UTC day of a time in microseconds, as ``YYYY-MM-DD``; UNKNOWN where the calendar has none."""
    ordinal = 0 if micros is None else micros // _DAY_MICROS + _EPOCH_ORDINAL
    return date.fromordinal(ordinal).isoformat() if 1 <= ordinal <= date.max.toordinal() else _NO_DAY


def _kept(name: str | None) -> str | None:
    return None if name is None else bounded(name)

"""The projection ``inferences``: one row per inference, all its attempts in it. Pure.

An answer that nothing asked for breaks a rule in every profile: its inference has a row all the same, an ORPHAN.
"""

from __future__ import annotations

from typing import Any, Final

from dalsegno.model.lifecycle import Verdict
from dalsegno.model.lifecycle.state import INFERENCE, id_in
from dalsegno.model.records import Event
from dalsegno.projections.base import Projection, Rows, clock, cut, duration, kept_id
from dalsegno.projections.rows import InferenceRow

_REASONS: Final = 8
"""Finish reasons that a row keeps."""
_REASON_LIMIT: Final = 100
_ABOUT_ONE: Final = frozenset({"InferenceRequested", "InferenceCompleted", "InferenceFailed"})


class Inferences(Projection[InferenceRow]):
    name = "inferences"
    version = 2
    handles = _ABOUT_ONE | {"SessionRecovered"}
    row = InferenceRow

    def fold(self, rows: Rows[InferenceRow], event: Event, verdict: Verdict) -> None:
        if event.type == "SessionRecovered":
            _recovered(rows, event, verdict)
            return
        row_id = (id_in(event.body, "inference_id"),)
        # None: its first attempt, or an amendment took its request.
        row = rows.get(row_id) or InferenceRow()
        if event.type == "InferenceRequested":
            row = _requested(event, row)
        elif event.type == "InferenceCompleted":
            _completed(row, event)
        else:
            _failed(row, event)
        rows.put(row_id, row)

    def fold_violation(self, rows: Rows[InferenceRow], event: Event, _: Verdict) -> None:
        if event.type in _ABOUT_ONE:
            row_id = (id_in(event.body, "inference_id"),)
            row = rows.get(row_id) or InferenceRow(status="ORPHAN")
            row.refused += 1
            rows.put(row_id, row)


def _requested(event: Event, before: InferenceRow) -> InferenceRow:
    """A new attempt, without the answer that an earlier one may have had."""
    body, meta = event.body, event.meta
    return InferenceRow(
        purpose=body["purpose"],
        provider=cut(body["provider"]),
        model=cut(body["model"]),
        pack_id=kept_id(body["pack_id"]),
        subject_id=kept_id(body["subject_id"]),
        stage_id=kept_id(meta.get("stage_id")),
        turn_id=kept_id(meta.get("turn_id")),
        attempts=body["attempt"],
        failed_attempts=before.failed_attempts,
        lost_attempts=before.lost_attempts,
        refused=before.refused,
        requested_seq=event.seq,
        requested_at=clock(meta),
        request_digest=body["request_digest"],
        http_status=before.http_status,
        error_class=before.error_class,
        error_message=before.error_message,
    )


def _completed(row: InferenceRow, event: Event) -> None:
    body = event.body
    row.status = "COMPLETED"
    row.model = cut(body["model"]) or row.model
    _ended(row, event)
    row.output_digest, row.response_id = body["output_digest"], cut(body["response_id"])
    row.tool_calls = len(body["tool_calls"])
    row.finish_reasons = [reason[:_REASON_LIMIT] for reason in body["finish_reasons"][:_REASONS]]
    row.complete, row.cache = body["complete"], body["cache"]
    usage: dict[str, Any] = body["usage"]
    row.input_tokens, row.output_tokens = usage["input"], usage["output"]
    row.cache_read_tokens, row.cache_creation_tokens = usage["cache_read"], usage["cache_creation"]
    row.reasoning_tokens = usage["reasoning"]
    row.cost_usd_micros = body["cost_usd_micros"]
    row.latency_ms, row.ttft_ms = duration(body["latency_ms"]), duration(body["ttft_ms"])


def _failed(row: InferenceRow, event: Event) -> None:
    body = event.body
    row.status = "FAILED"
    row.failed_attempts += 1
    _ended(row, event)
    row.http_status = body["http_status"]
    row.error_class, row.error_message = cut(body["error"]["error_class"]), cut(body["error"]["message"])


def _ended(row: InferenceRow, event: Event) -> None:
    row.attempts = event.body["attempt"]
    row.ended_seq, row.ended_at = event.seq, clock(event.meta)


def _recovered(rows: Rows[InferenceRow], event: Event, verdict: Verdict) -> None:
    """An attempt that was open when its writer was lost has no answer, and none will come."""
    for kind, id in verdict.closed:
        row = rows.get((id,)) if kind == INFERENCE else None
        if row is not None:
            row.status = "LOST"
            row.lost_attempts += 1
            row.ended_seq, row.ended_at = event.seq, clock(event.meta)
            rows.put((id,), row)

"""The projection ``compressions``: one row per compression of the context, and one per item that it made forgotten.
Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dalsegno.model.lifecycle import Verdict
from dalsegno.model.lifecycle.state import COMPRESSION, bounded, id_in
from dalsegno.model.records import Event
from dalsegno.projections.base import Projection, RowId, Rows, clock, cut, digest_of, kept_id, put_members
from dalsegno.projections.rows import CompressionRow, CompressionStatus

FORGOTTEN: Final = "forgotten"


def _begun(event: Event) -> CompressionRow:
    body, meta = event.body, event.meta
    return CompressionRow(
        rule_id=kept_id(body["rule_id"]),
        rule_digest=body["rule_digest"],
        input_digest=body["input_digest"],
        tokens_before=body["tokens_before"],
        stage_id=kept_id(meta.get("stage_id")),
        turn_id=kept_id(meta.get("turn_id")),
    )


def _started(row: CompressionRow | None, event: Event) -> CompressionRow:
    forgotten = 0 if row is None else row.forgotten
    row = _begun(event)
    row.status, row.trigger, row.scope = "STARTED", event.body["trigger"], len(event.body["scope"])
    row.started_seq, row.started_at = event.seq, clock(event.meta)
    row.forgotten = forgotten
    return row


def _ended(row: CompressionRow, event: Event, status: CompressionStatus) -> None:
    row.status, row.ended_seq, row.ended_at = status, event.seq, clock(event.meta)


def _completed(row: CompressionRow | None, event: Event) -> CompressionRow:
    body = event.body
    row = row or _begun(event)
    _ended(row, event, "COMPLETED")
    # What the end says counts; what it leaves out, its start may have said.
    row.rule_id = row.rule_id if body["rule_id"] is None else kept_id(body["rule_id"])
    row.rule_digest = body["rule_digest"] or row.rule_digest
    row.input_digest = body["input_digest"] or row.input_digest
    row.tokens_before = row.tokens_before if body["tokens_before"] is None else body["tokens_before"]
    row.output_digest, row.tokens_after = body["output_digest"], body["tokens_after"]
    row.method, row.effect = body["method"], body["effect"]
    row.window_number, row.insert_at = body["window_number"], body["insert_at"]
    row.prev_compression_id, row.inference_id = kept_id(body["prev_compression_id"]), kept_id(body["inference_id"])
    row.summary_digest, row.replacement_digest = digest_of(body["summary"]), digest_of(body["replacement"])
    row.error_class = row.error_message = None
    return row


def _failed(row: CompressionRow | None, event: Event) -> CompressionRow:
    row = row or CompressionRow()
    _ended(row, event, "FAILED")
    error = event.body["error"]
    row.error_class, row.error_message = cut(error["error_class"]), cut(error["message"])
    return row


_CHANGES: dict[str, Callable[[CompressionRow | None, Event], CompressionRow]] = {
    "CompressionStarted": _started,
    "CompressionCompleted": _completed,
    "CompressionFailed": _failed,
}


class Compressions(Projection[CompressionRow]):
    name = "compressions"
    version = 1
    handles = frozenset({*_CHANGES, "SessionRecovered"})
    row = CompressionRow

    def fold(self, rows: Rows[CompressionRow], event: Event, verdict: Verdict) -> None:
        change = _CHANGES.get(event.type)
        if change is None:
            _recovered(rows, event, verdict)
            return
        row_id: RowId = (id_in(event.body, "compression_id"),)
        row = change(rows.get(row_id), event)
        if event.type == "CompressionCompleted":
            items = event.body["forgotten"]
            members = [CompressionRow(kind="FORGOTTEN", item_id=bounded(item)) for item in items]
            put_members(rows, (*row_id, FORGOTTEN), row.forgotten, members)
            row.forgotten = len(members)
        rows.put(row_id, row)


def _recovered(rows: Rows[CompressionRow], event: Event, verdict: Verdict) -> None:
    for kind, id in verdict.closed:
        row = rows.get((id,)) if kind == COMPRESSION else None
        if row is not None:
            _ended(row, event, "GIVEN_UP")
            rows.put((id,), row)

"""The projection ``inputs``: one row per question to a person: what was asked, and what came of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dalsegno.model.lifecycle import Verdict
from dalsegno.model.lifecycle.state import INPUT, id_in
from dalsegno.model.records import Event
from dalsegno.projections.base import Projection, Rows, clock, cut, digest_of, kept_id
from dalsegno.projections.rows import InputRow

_ABOUT_ONE: Final = frozenset({"InputRequested", "InputProvided"})


class Inputs(Projection[InputRow]):
    name = "inputs"
    version = 1
    handles = _ABOUT_ONE | {"SessionRecovered"}
    row = InputRow

    def fold(self, rows: Rows[InputRow], event: Event, verdict: Verdict) -> None:
        if event.type == "SessionRecovered":
            for kind, id in verdict.closed:
                if kind == INPUT:
                    row = rows.get((id,)) or InputRow()
                    row.status = "GIVEN_UP"
                    _end(row, event)
                    rows.put((id,), row)
            return
        row_id = (id_in(event.body, "request_id"),)
        # None: recordings may hold an answer alone, and an amendment may have taken its question.
        row = rows.get(row_id) or InputRow()
        if event.type == "InputRequested":
            row = _requested(event, row.refused)
        else:
            row.status, row.content_digest = event.body["outcome"], digest_of(event.body["content"])
            _end(row, event)
        rows.put(row_id, row)

    def fold_violation(self, rows: Rows[InputRow], event: Event, _: Verdict) -> None:
        if event.type in _ABOUT_ONE:
            row_id = (id_in(event.body, "request_id"),)
            row = rows.get(row_id) or InputRow(status="ORPHAN")
            row.refused += 1
            rows.put(row_id, row)


def _requested(event: Event, refused: int) -> InputRow:
    body, meta = event.body, event.meta
    return InputRow(
        prompt=_text(body["prompt"]),
        prompt_digest=digest_of(body["prompt"]),
        schema_digest=digest_of(body["schema"]),
        stage_id=kept_id(meta.get("stage_id")),
        turn_id=kept_id(meta.get("turn_id")),
        requested_seq=event.seq,
        requested_at=clock(meta),
        ttl_ms=body["ttl_ms"],
        on_expiry=cut(body["on_expiry"]),
        refused=refused,
    )


def _end(row: InputRow, event: Event) -> None:
    row.ended_seq, row.ended_at = event.seq, clock(event.meta)
    row.ended_by_kind, row.ended_by = event.meta.get("actor_kind"), cut(event.meta.get("actor_id"))


def _text(blob: Mapping[str, Any] | None) -> str | None:
    if blob is None or blob["inline"] is None:
        return None
    try:
        return cut(blob["inline"].decode())
    except UnicodeDecodeError:
        return None

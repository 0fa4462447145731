"""The projection ``validations``: one row per validation, with the verdict as it stands and as it was decided. Pure."""

from __future__ import annotations

from typing import Final

from dalsegno.model.lifecycle import Verdict
from dalsegno.model.lifecycle.state import VALIDATION, id_in
from dalsegno.model.records import Event
from dalsegno.projections.base import Projection, Rows, clock, cut, kept_id
from dalsegno.projections.rows import ValidationRow

_ABOUT_ONE: Final = frozenset({"ValidationRequested", "VerdictReported", "ValidationDecided", "ValidationAmended"})


class Validations(Projection[ValidationRow]):
    name = "validations"
    version = 1
    handles = _ABOUT_ONE | {"SessionRecovered"}
    row = ValidationRow

    def fold(self, rows: Rows[ValidationRow], event: Event, verdict: Verdict) -> None:
        if event.type == "SessionRecovered":
            for kind, id in verdict.closed:
                row = rows.get((id,)) if kind == VALIDATION else None
                if row is not None:
                    row.status = "GIVEN_UP"
                    rows.put((id,), row)
            return
        row_id = (id_in(event.body, "validation_id"),)
        # None: it begins here, or its verdict stands alone in a recording, or an amendment took its request.
        row = rows.get(row_id) or ValidationRow()
        _CHANGES[event.type](row, event)
        rows.put(row_id, row)

    def fold_violation(self, rows: Rows[ValidationRow], event: Event, _: Verdict) -> None:
        if event.type in _ABOUT_ONE:
            row_id = (id_in(event.body, "validation_id"),)
            row = rows.get(row_id) or ValidationRow(status="ORPHAN")
            row.refused += 1
            rows.put(row_id, row)


def _requested(row: ValidationRow, event: Event) -> None:
    body = event.body
    row.status = "OPEN"
    row.validator, row.validator_version = cut(body["validator"]) or "", cut(body["validator_version"])
    row.validator_digest, row.criteria_digest = body["validator_digest"], body["criteria_digest"]
    row.target_id, row.target_digest = kept_id(body["target_id"]), body["target_digest"]
    row.target_seq = None if body["target"] is None else body["target"]["seq"]
    row.requested_seq, row.requested_at = event.seq, clock(event.meta)


def _reported(row: ValidationRow, event: Event) -> None:
    body = event.body
    if row.status not in ("DECIDED", "AMENDED"):
        row.status = "REPORTED"
    row.reports += 1
    row.reported_verdict, row.reported_score = body["verdict"], cut(body["score"])
    row.reported_by, row.reported_seq = cut(event.meta.get("actor_id")), event.seq
    row.label = cut(body["label"]) or row.label


def _decided(row: ValidationRow, event: Event) -> None:
    body = event.body
    row.status = "DECIDED"
    row.verdict, row.score = body["verdict"], cut(body["score"])
    if row.decided_seq is None:
        row.decided_verdict, row.decided_score = row.verdict, row.score
        row.decided_seq, row.decided_at = event.seq, clock(event.meta)
    row.basis, row.label = body["basis"], cut(body["label"]) or row.label
    row.inference_id, row.intermediate = kept_id(body["inference_id"]), body["intermediate"]
    row.findings = len(body["findings"])


def _amended(row: ValidationRow, event: Event) -> None:
    body = event.body
    row.status = "AMENDED"
    row.verdict, row.score = body["verdict"], cut(body["score"])
    row.amendments += 1
    row.amended_seq, row.amended_by = event.seq, cut(event.meta.get("actor_id"))
    row.replaces_seq = None if body["replaces"] is None else body["replaces"]["seq"]
    row.reason, row.provenance = cut(body["reason"]), cut(body["provenance"])


_CHANGES: Final = {
    "ValidationRequested": _requested,
    "VerdictReported": _reported,
    "ValidationDecided": _decided,
    "ValidationAmended": _amended,
}

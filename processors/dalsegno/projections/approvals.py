"""The projection ``approvals``: one row per question for leave: who was asked for what, and what came of it. Pure."""

from __future__ import annotations

from typing import Any, Final

from dalsegno.model.lifecycle import Verdict
from dalsegno.model.lifecycle.state import APPROVAL, bounded, id_in
from dalsegno.model.records import Event
from dalsegno.projections.base import Projection, Rows, clock, cut, digest_of, kept_id
from dalsegno.projections.rows import ApprovalRow, ApprovalStatus

_ADDRESSEES: Final = 8
"""Addressees that a row keeps by name."""
_ENDS: Final[dict[str, ApprovalStatus]] = {
    "ApprovalGranted": "GRANTED",
    "ApprovalDenied": "DENIED",
    "ApprovalExpired": "EXPIRED",
    "ApprovalWithdrawn": "WITHDRAWN",
}
_ABOUT_ONE: Final = frozenset({"ApprovalRequested", *_ENDS})


class Approvals(Projection[ApprovalRow]):
    name = "approvals"
    version = 1
    handles = _ABOUT_ONE | {"SessionRecovered"}
    row = ApprovalRow

    def fold(self, rows: Rows[ApprovalRow], event: Event, verdict: Verdict) -> None:
        if event.type == "SessionRecovered":
            for kind, id in verdict.closed:
                if kind == APPROVAL:
                    row = rows.get((id,)) or ApprovalRow()
                    _end(row, event, "WITHDRAWN")
                    rows.put((id,), row)
            return
        row_id = (id_in(event.body, "approval_id"),)
        if event.type == "ApprovalRequested":
            rows.put(row_id, _requested(event, rows.get(row_id) or ApprovalRow()))
            return
        # None: recordings may hold an answer alone, and an amendment may have taken its question.
        row = rows.get(row_id) or ApprovalRow()
        _end(row, event, _ENDS[event.type])
        if event.type == "ApprovalGranted":
            _granted(row, event.body)
        elif event.type == "ApprovalDenied":
            _denied(row, event.body)
        elif event.type == "ApprovalWithdrawn":
            row.explanation = cut(event.body["reason"])
        rows.put(row_id, row)

    def fold_violation(self, rows: Rows[ApprovalRow], event: Event, _: Verdict) -> None:
        if event.type in _ABOUT_ONE:
            row_id = (id_in(event.body, "approval_id"),)
            row = rows.get(row_id) or ApprovalRow(status="ORPHAN")
            row.refused += 1
            rows.put(row_id, row)


def _requested(event: Event, before: ApprovalRow) -> ApprovalRow:
    body = event.body
    addressed_to = body["addressed_to"]
    return ApprovalRow(
        subject=body["subject"],
        subject_id=bounded(body["subject_id"]),
        decision_id=kept_id(body["decision_id"]),
        arguments_digest=body["arguments_digest"],
        view_digest=digest_of(body["view"]),
        requested_seq=event.seq,
        requested_at=clock(event.meta),
        addressed_to=[bounded(name) for name in addressed_to[:_ADDRESSEES]],
        addressed_to_more=max(0, len(addressed_to) - _ADDRESSEES),
        options=len(body["options"]),
        ttl_ms=body["ttl_ms"],
        on_expiry=body["on_expiry"],
        escalated_from=kept_id(body["escalated_from"]),
        answers=before.answers,
        refused=before.refused,
    )


def _end(row: ApprovalRow, event: Event, status: ApprovalStatus) -> None:
    meta = event.meta
    row.status = status
    row.ended_seq, row.ended_at = event.seq, clock(meta)
    row.ended_by_kind, row.ended_by = meta.get("actor_kind"), cut(meta.get("actor_id"))
    row.scope = row.answered_digest = row.modified_digest = None
    row.denial_effect = row.rejection_source = row.explanation = None


def _granted(row: ApprovalRow, body: Any) -> None:
    row.answers += 1
    row.scope, row.explanation = body["scope"], cut(body["explanation"])
    row.answered_digest, row.modified_digest = body["arguments_digest"], digest_of(body["modified_arguments"])


def _denied(row: ApprovalRow, body: Any) -> None:
    row.answers += 1
    row.denial_effect, row.rejection_source = body["effect"], body["rejection_source"]
    row.explanation = cut(body["explanation"])

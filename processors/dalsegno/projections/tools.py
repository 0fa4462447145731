"""The projection ``tools``: one row per tool call, from request to end, with the decision that let it run. Pure.

Also events that broke a rule that holds show in the row of the call they name: a receipt that came after the end is
counted, and a call that nothing requested has a row of its own, an ORPHAN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dalsegno.model.lifecycle import Verdict
from dalsegno.model.lifecycle.state import APPROVAL, SUBSESSION, TOOL, id_in
from dalsegno.model.records import Event
from dalsegno.projections.base import Projection, Rows, clock, cut, digest_of, kept_id
from dalsegno.projections.rows import NameOfCall, ToolCallRow

TOOL_CALL: Final = "TOOL_CALL"
"""The subject of decisions and approvals about calls."""
_GOOD_OUTCOMES: Final = frozenset({"SUCCESS", "PARTIAL"})
_RUNNING: Final = frozenset({"STARTED", "DELEGATED"})
_ENDED: Final = frozenset({"OK", "ERROR", "REJECTED"})

_Fold = Callable[[Rows[ToolCallRow], Event, Verdict], None]
_Change = Callable[[ToolCallRow, Event], None]


def _requested(rows: Rows[ToolCallRow], event: Event, _: Verdict) -> None:
    body, meta = event.body, event.meta
    row_id = (id_in(body, "tool_call_id"),)
    before = rows.get(row_id) or ToolCallRow()
    row = ToolCallRow(
        name=cut(body["name"]) or "",
        effect=body["effect"],
        risk=body["risk"],
        requested_seq=event.seq,
        requested_at=clock(meta),
        requests=before.requests + 1,
        inference_id=kept_id(body["inference_id"]),
        native_call_id=kept_id(body["native_call_id"]),
        stage_id=kept_id(meta.get("stage_id")),
        turn_id=kept_id(meta.get("turn_id")),
        arguments_digest=body["arguments_digest"],
        in_doubt=before.in_doubt,
        receipts=before.receipts,
        late_receipts=before.late_receipts,
        refused=before.refused,
    )
    rows.put(row_id, row)


def _policy(rows: Rows[ToolCallRow], event: Event, _: Verdict) -> None:
    body = event.body
    row_id = (id_in(body, "subject_id"),)
    row = rows.get(row_id) if body["subject"] == TOOL_CALL else None
    if row is not None:
        row.decision_id, row.decision = kept_id(body["decision_id"]), body["decision"]
        rows.put(row_id, row)


def _approval_requested(rows: Rows[ToolCallRow], event: Event, _: Verdict) -> None:
    body = event.body
    row_id = (id_in(body, "subject_id"),)
    row = rows.get(row_id) if body["subject"] == TOOL_CALL else None
    if row is not None:
        approval_id = id_in(body, "approval_id")
        row.approval_id, row.approval, row.approver = approval_id, "OPEN", None
        rows.put(row_id, row)
        rows.private.put((APPROVAL, approval_id), NameOfCall(tool_call_id=row_id[0]))


def _approval_ended(outcome: str) -> _Fold:
    def fold(rows: Rows[ToolCallRow], event: Event, _: Verdict) -> None:
        approver = event.meta.get("actor_id") if outcome in ("GRANTED", "DENIED") else None
        _end_approval(rows, id_in(event.body, "approval_id"), outcome, cut(approver))

    return fold


def _end_approval(rows: Rows[ToolCallRow], approval_id: str, outcome: str, approver: str | None) -> None:
    of_call = rows.private.get((APPROVAL, approval_id))
    if of_call is None:
        return
    rows.private.delete((APPROVAL, approval_id))
    row = rows.get((of_call.tool_call_id,))
    if row is not None and row.approval_id == approval_id:
        row.approval, row.approver = outcome, approver
        rows.put((of_call.tool_call_id,), row)


def _recovered(rows: Rows[ToolCallRow], event: Event, verdict: Verdict) -> None:
    """What the recovery closed has ended; of what it left open, only calls that had started may have run."""
    for kind, id in verdict.closed:
        if kind == APPROVAL:
            _end_approval(rows, id, "WITHDRAWN", None)
        elif kind == TOOL:
            row = rows.get((id,))
            if row is not None:
                row.in_doubt += row.status in _RUNNING
                row.status, row.ended_at, row.ended_seq = "FAILED", clock(event.meta), event.seq
                rows.put((id,), row)
    for item in event.body["in_flight"]:
        kind, id = item["kind"], id_in(item, "id")
        if kind == SUBSESSION:
            kind, id = TOOL, _call_of_child(rows, id)
        row = rows.get((id,)) if kind == TOOL else None
        if row is not None and (row.status in _RUNNING or row.status == "UNKNOWN_OUTCOME"):
            row.in_doubt += row.status in _RUNNING
            row.status = "AUTHORIZED" if item["resolution"] == "RETRY" else "UNKNOWN_OUTCOME"
            rows.put((id,), row)


def _sub_session_ended(rows: Rows[ToolCallRow], event: Event, verdict: Verdict) -> None:
    body = event.body
    row_id = (_call_of_result(rows, event, verdict),)
    row = rows.get(row_id) or ToolCallRow(child_session=kept_id(body["child_session"]))
    row.in_doubt = _in_doubt(row, row.attempts)
    row.status = "OK" if body["outcome"] in _GOOD_OUTCOMES else "ERROR"
    row.ended_at, row.ended_seq = clock(event.meta), event.seq
    row.result_digest = digest_of(body["result"])
    rows.put(row_id, row)


def _call_of_result(rows: Rows[ToolCallRow], event: Event, verdict: Verdict) -> str:
    """The call that a child's end is about: it need not name it."""
    for kind, id in verdict.closed:
        if kind == TOOL:
            return id
    return id_in(event.body, "tool_call_id") or _call_of_child(rows, id_in(event.body, "child_session"))


def _call_of_child(rows: Rows[ToolCallRow], child: str) -> str:
    of_call: NameOfCall | None = rows.private.get((SUBSESSION, child))
    # As the lifecycle does where no start named the child.
    return child if of_call is None else of_call.tool_call_id


# --- events that change the row of the call they name ---------------------------------------------------------------


def _authorized(row: ToolCallRow, event: Event) -> None:
    body = event.body
    row.status, row.basis = "AUTHORIZED", body["basis"]
    row.effective_arguments_digest = body["effective_arguments_digest"]
    if body["decision_id"] is not None:
        row.decision_id = kept_id(body["decision_id"])
    if body["approval_id"] is not None:
        row.approval_id = kept_id(body["approval_id"])


def _rejected(row: ToolCallRow, event: Event) -> None:
    row.status, row.basis = "REJECTED", event.body["basis"]
    row.ended_at, row.ended_seq = clock(event.meta), event.seq


def _started(row: ToolCallRow, event: Event) -> None:
    body = event.body
    row.status = "STARTED" if body["child_session"] is None else "DELEGATED"
    row.attempts, row.child_session = body["attempt"], kept_id(body["child_session"])
    row.started_at, row.ended_at, row.ended_seq, row.error_class = clock(event.meta), None, None, None


def _received(row: ToolCallRow, event: Event) -> None:
    body = event.body
    row.receipts += 1
    if row.status in _ENDED:
        row.late_receipts += 1
        return
    row.in_doubt = _in_doubt(row, body["attempt"])
    row.status = "ERROR" if body["status"] == "ERROR" else "OK"
    row.started_at = row.started_at if body["started_at"] is None else body["started_at"]
    row.ended_at = clock(event.meta) if body["ended_at"] is None else body["ended_at"]
    row.ended_seq, row.exit_code = event.seq, body["exit_code"]
    row.result_digest, row.simulated = body["result_digest"], body["simulated"]


def _in_doubt(row: ToolCallRow, attempt: int) -> int:
    """How many attempts are in doubt once this one's result has come; another one that still runs then is."""
    runs = row.status in _RUNNING
    return row.in_doubt if runs and attempt == row.attempts else max(0, row.in_doubt - 1) + runs


def _failed(row: ToolCallRow, event: Event) -> None:
    body = event.body
    row.in_doubt += not body["not_started"]
    row.status = "UNKNOWN_OUTCOME" if body["reason"] == "UNKNOWN_OUTCOME" else "FAILED"
    row.attempts, row.ended_at, row.ended_seq = body["attempt"], clock(event.meta), event.seq
    row.error_class = body["reason"] if body["error"] is None else cut(body["error"]["error_class"])


def _retry(row: ToolCallRow, event: Event) -> None:
    if event.body["retry"]:
        row.status, row.ended_at, row.ended_seq = "AUTHORIZED", None, None
    else:
        row.status = "FAILED"


_CALL_CHANGES: dict[str, _Change] = {
    "ToolCallAuthorized": _authorized,
    "ToolCallRejected": _rejected,
    "ToolCallStarted": _started,
    "ToolReceiptRecorded": _received,
    "ToolCallFailed": _failed,
    "ToolRetryDecided": _retry,
}

_FOLDS: dict[str, _Fold] = {
    "ToolCallRequested": _requested,
    "PolicyEvaluated": _policy,
    "ApprovalRequested": _approval_requested,
    "ApprovalGranted": _approval_ended("GRANTED"),
    "ApprovalDenied": _approval_ended("DENIED"),
    "ApprovalExpired": _approval_ended("EXPIRED"),
    "ApprovalWithdrawn": _approval_ended("WITHDRAWN"),
    "SessionRecovered": _recovered,
    "SubSessionEnded": _sub_session_ended,
}


class Tools(Projection[ToolCallRow]):
    name = "tools"
    version = 2
    handles = frozenset({*_FOLDS, *_CALL_CHANGES})
    row = ToolCallRow
    private_row = NameOfCall

    def fold(self, rows: Rows[ToolCallRow], event: Event, verdict: Verdict) -> None:
        change = _CALL_CHANGES.get(event.type)
        if change is None:
            _FOLDS[event.type](rows, event, verdict)
            return
        row_id = (id_in(event.body, "tool_call_id"),)
        # None: an amendment took its request.
        row = rows.get(row_id) or ToolCallRow()
        change(row, event)
        rows.put(row_id, row)
        if row.status == "DELEGATED" and row.child_session is not None:
            rows.private.put((SUBSESSION, row.child_session), NameOfCall(tool_call_id=row_id[0]))

    def fold_violation(self, rows: Rows[ToolCallRow], event: Event, verdict: Verdict) -> None:
        if event.type == "SubSessionEnded":
            id = _call_of_result(rows, event, verdict)
        elif event.type in _CALL_CHANGES or event.type == "ToolCallRequested":
            id = id_in(event.body, "tool_call_id")
        else:
            return
        row = rows.get((id,)) or ToolCallRow(status="ORPHAN")
        row.refused += 1
        if event.type == "ToolReceiptRecorded":
            row.receipts += 1
            row.late_receipts += row.status in _ENDED or row.status == "FAILED"
        rows.put((id,), row)

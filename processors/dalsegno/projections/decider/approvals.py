"""Leave for tool calls, as it is asked for, given or refused: its part of the decider's fold. Pure, total."""

from __future__ import annotations

from typing import Any, Final

from dalsegno.model.lifecycle.state import bounded
from dalsegno.model.records import Event
from dalsegno.projections.decider.rows import (
    APPROVAL,
    ASKED_IN_STEP,
    CALL,
    GRANT,
    TEXT,
    ApprovalState,
    CallState,
    Grant,
    Head,
    Stop,
)
from dalsegno.projections.decider.table import DeciderRows, Keep, learn


def _approval_requested(rows: DeciderRows, _head: Head, event: Event, _keep: Keep) -> None:
    body = event.body
    id, call_id = bounded(body["approval_id"]), bounded(body["subject_id"])
    call = rows.get((CALL, call_id))
    if call is None:
        return
    call.approval, call.answer = id, ""
    call.approvals += 1
    rows.put((CALL, call_id), call)
    state = ApprovalState(
        call_id=call_id,
        phase="OPEN",
        requested_at=event.meta.get("recorded_at") or 0,
        arguments=body["arguments_digest"],
        addressed_to=[bounded(who) for who in body["addressed_to"][:ASKED_IN_STEP]],
        ttl_ms=body["ttl_ms"],
    )
    rows.put((APPROVAL, id), state)


def _answered(rows: DeciderRows, event: Event, phase: str, answer: str) -> tuple[str, CallState] | None:
    """The call whose approval was answered, if it waits for this one."""
    id = bounded(event.body["approval_id"])
    approval = rows.get((APPROVAL, id))
    if approval is None:
        return None
    approval.phase = phase
    rows.put((APPROVAL, id), approval)
    call = rows.get((CALL, approval.call_id))
    if call is None or call.approval != id:
        return None
    call.answer = answer
    rows.put((CALL, approval.call_id), call)
    return approval.call_id, call


def _granted(rows: DeciderRows, head: Head, event: Event, keep: Keep) -> None:
    body = event.body
    modified = learn(body["modified_arguments"], keep)
    asked = rows.get((APPROVAL, bounded(body["approval_id"])))
    if asked is not None and body["arguments_digest"] not in (None, asked.arguments):
        # It is for other arguments than those that were shown (rule A3): no leave for this call.
        _answered(rows, event, "GRANTED", "DENIED")
        return
    found = _answered(rows, event, "GRANTED", "GRANTED" if modified is None else "MODIFIED")
    if found is None:
        return
    id, call = found
    if modified is not None:
        call.effective = modified
        rows.put((CALL, id), call)
    if body["scope"] in ("SESSION", "RULE"):
        grant = Grant(body["scope"], call.name, list(call.rule_ids), head.forks)
        rows.put((GRANT, bounded(body["approval_id"])), grant)


def _denied(rows: DeciderRows, head: Head, event: Event, _keep: Keep) -> None:
    effect = event.body["effect"]
    if _answered(rows, event, "DENIED", "DENIED") is None:
        return
    if effect == "ABORT_TURN":
        head.abort = "DENIED"
    elif effect == "TERMINATE_SESSION" and head.stop is None:
        said = event.body["explanation"]
        head.stop = Stop("TERMINATE", event.meta.get("actor_id"), None if said is None else said[:TEXT])


def _expired(rows: DeciderRows, _head: Head, event: Event, _keep: Keep) -> None:
    _answered(rows, event, "EXPIRED", "EXPIRED")


def _withdrawn(rows: DeciderRows, _head: Head, event: Event, _keep: Keep) -> None:
    _answered(rows, event, "WITHDRAWN", "WITHDRAWN")


def approval_recovered(rows: DeciderRows, _head: Head, _event: Event, _keep: Keep, id: str, resolution: str) -> None:
    approval = rows.get((APPROVAL, id))
    if approval is not None and resolution in ("FAILED", "ABANDONED"):
        approval.phase = "WITHDRAWN"
        rows.put((APPROVAL, id), approval)
        call = rows.get((CALL, approval.call_id))
        if call is not None and call.approval == id:
            call.answer = "WITHDRAWN"
            rows.put((CALL, approval.call_id), call)


FOLDS: Final[dict[str, Any]] = {
    "ApprovalRequested": _approval_requested,
    "ApprovalGranted": _granted,
    "ApprovalDenied": _denied,
    "ApprovalExpired": _expired,
    "ApprovalWithdrawn": _withdrawn,
}

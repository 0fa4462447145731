"""Tool calls, what is decided on them and what comes of them: their part of the decider's fold. Pure, total."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dalsegno.model.lifecycle.state import bounded
from dalsegno.model.lifecycle.tables import RECOVERED_PHASE
from dalsegno.model.records import Event
from dalsegno.projections.decider import rendering
from dalsegno.projections.decider.rows import (
    APPROVAL,
    ASKED_IN_STEP,
    CALL,
    GUARD,
    INFERENCE,
    ITEM,
    LISTED,
    STEPS,
    TEXT,
    CallState,
    GuardState,
    Head,
)
from dalsegno.projections.decider.table import RESULTS, DeciderRows, Keep, content_of, learn, put_item

CLOSED: Final = frozenset({"DONE", "REJECTED", "GIVEN_UP"})


def _result_item(
    rows: DeciderRows, head: Head, event: Event, keep: Keep, id: str, call: CallState, said: bytes
) -> None:
    put_item(
        rows, head, keep, id=id, seq=event.seq, kind="TOOL_RESULT", content=said, turn=call.turn_ordinal,
        phase=RESULTS, index=call.ordinal, name=call.name,
    )  # fmt: skip


def _requested(rows: DeciderRows, head: Head, event: Event, keep: Keep) -> None:
    body = event.body
    id = bounded(body["tool_call_id"])
    digest = learn(body["arguments"], keep) or body["arguments_digest"] or b""
    inference = rows.get((INFERENCE, bounded(body["inference_id"] or "")))
    listed = [] if inference is None else [call[0] for call in inference.calls]
    call = CallState(
        name=bounded(body["name"]),
        ordinal=listed.index(id) if id in listed else len(listed),
        turn_ordinal=head.turn_ordinal,
        effect=body["effect"],
        risk=body["risk"],
        phase="REQUESTED",
        arguments=digest,
        effective=digest,
    )
    rows.put((CALL, id), call)
    head.tool_calls += 1
    head.stage_calls += 1


def _evaluated(rows: DeciderRows, head: Head, event: Event, keep: Keep) -> None:
    body = event.body
    if body["subject"] == "TRANSITION":
        _guard_evaluated(rows, head, body)
        return
    id = bounded(body["subject_id"] or "")
    call = rows.get((CALL, id))
    if call is None:
        return
    call.decision_id, call.decision = bounded(body["decision_id"]), body["decision"]
    call.rule_ids = [bounded(rule) for rule in body["rule_ids"][:LISTED]]
    call.evaluations += 1
    call.explanation = None if body["explanation"] is None else body["explanation"][:TEXT]
    modified = learn(body["modified"], keep)
    if modified is not None:
        call.effective = modified
    duty = body["obligation"]
    if duty is not None:
        call.to = [[bounded(who) for who in step[:ASKED_IN_STEP]] for step in duty["to"][:STEPS]]
        call.ttl_ms, call.on_expiry = duty["ttl_ms"], duty["on_expiry"]
    if call.answer == "MODIFIED":
        call.answer = "GRANTED"
    rows.put((CALL, id), call)


def _guard_evaluated(rows: DeciderRows, head: Head, body: Mapping[str, Any]) -> None:
    if body["decision"] == "DENY":
        before = rows.get((GUARD, head.last_stage)) or GuardState([])
        rows.put((GUARD, head.last_stage), GuardState([*before.failed, bounded(body["subject_id"] or "")][:LISTED]))


def _authorized(rows: DeciderRows, _head: Head, event: Event, _keep: Keep) -> None:
    body = event.body
    id = bounded(body["tool_call_id"])
    call = rows.get((CALL, id))
    if call is not None:
        call.phase, call.simulate = "AUTHORIZED", body["basis"] == "SIMULATED"
        call.effective = body["effective_arguments_digest"] or call.effective
        rows.put((CALL, id), call)


def _rejected(rows: DeciderRows, head: Head, event: Event, keep: Keep) -> None:
    id = bounded(event.body["tool_call_id"])
    call = rows.get((CALL, id))
    if call is not None:
        call.phase = "REJECTED"
        rows.put((CALL, id), call)
        _result_item(rows, head, event, keep, id, call, rendering.rejected(id, event.body["message"] or ""))


def _started(rows: DeciderRows, _head: Head, event: Event, _keep: Keep) -> None:
    body = event.body
    id = bounded(body["tool_call_id"])
    call = rows.get((CALL, id))
    if call is not None:
        call.phase, call.attempt, call.reason = "STARTED", body["attempt"], ""
        call.safe = call.effect == "READ" or body["idempotency_key"] is not None
        call.child = bounded(body["child_session"] or "")
        rows.put((CALL, id), call)


def _received(rows: DeciderRows, head: Head, event: Event, keep: Keep) -> None:
    body = event.body
    learn(body["result"], keep)
    _done(rows, head, event, keep, body["status"], content_of(body["result"]))


def _sub_session(rows: DeciderRows, head: Head, event: Event, keep: Keep) -> None:
    learn(event.body["result"], keep)
    _done(rows, head, event, keep, event.body["outcome"], content_of(event.body["result"]))


def _done(rows: DeciderRows, head: Head, event: Event, keep: Keep, status: str, content: bytes) -> None:
    id = bounded(event.body["tool_call_id"] or "")
    call = rows.get((CALL, id))
    if call is None:
        return
    call.phase = "DONE"
    _result_item(rows, head, event, keep, id, call, rendering.tool_result(id, call.name, status, content))
    _put(rows, head, id, call)


def _put(rows: DeciderRows, head: Head, id: str, call: CallState) -> None:
    """A closed call is kept as long as its turn."""
    if call.phase in CLOSED and not (head.turn and call.turn_ordinal == head.turn_ordinal):
        rows.delete((CALL, id))
    else:
        rows.put((CALL, id), call)


def _failed(rows: DeciderRows, _head: Head, event: Event, _keep: Keep) -> None:
    body = event.body
    id = bounded(body["tool_call_id"])
    call = rows.get((CALL, id))
    if call is None:
        return
    call.phase = "UNRESOLVED" if body["reason"] == "UNKNOWN_OUTCOME" and not body["not_started"] else "ATTEMPT_FAILED"
    call.attempt, call.reason = body["attempt"], body["reason"]
    call.safe = call.safe or body["not_started"]
    call.failed += 1
    rows.put((CALL, id), call)


def _retry(rows: DeciderRows, head: Head, event: Event, keep: Keep) -> None:
    id = bounded(event.body["tool_call_id"])
    call = rows.get((CALL, id))
    if call is None:
        return
    if event.body["retry"]:
        call.phase, call.delay_ms = "AUTHORIZED", event.body["delay_ms"]
    else:
        _give_up(rows, head, event, keep, id, call)
    _put(rows, head, id, call)


def _give_up(rows: DeciderRows, head: Head, event: Event, keep: Keep, id: str, call: CallState) -> None:
    call.phase = "GIVEN_UP"
    _result_item(rows, head, event, keep, id, call, rendering.failed(id, call.reason or "ABANDONED"))


def call_recovered(rows: DeciderRows, head: Head, event: Event, keep: Keep, id: str, resolution: str) -> None:
    call = rows.get((CALL, id))
    if call is None:
        return
    phase = RECOVERED_PHASE.get(("TOOL", call.phase, resolution), call.phase)
    if phase == "GIVEN_UP":
        _give_up(rows, head, event, keep, id, call)
    call.phase = phase
    _put(rows, head, id, call)


def close_turn_calls(rows: DeciderRows, head: Head, event: Event, keep: Keep, reason: str | None) -> None:
    """A turn ends: what it asked for is done with. ``reason``: it was aborted, and each call of the answer that has no
    result gets one that says so, for a provider refuses half a pair. A call that is not closed
    stays: its receipt may come, and an end of the session lists it.
    """
    inference = rows.get((INFERENCE, head.inference))
    for ordinal, (id, _, name, digest) in enumerate([] if inference is None else inference.calls):
        call = rows.get((CALL, id))
        if reason is not None and rows.get((ITEM, id)) is None:
            gone = call or CallState(name, ordinal, head.turn_ordinal, "UNKNOWN", "UNKNOWN", "", digest, digest)
            _result_item(rows, head, event, keep, id, gone, rendering.failed(id, reason))
        if call is None:
            continue
        for number in range(1, call.approvals + 1):
            rows.delete((APPROVAL, f"{id}/a{number}"))
        if call.phase in CLOSED:
            rows.delete((CALL, id))


FOLDS: Final[dict[str, Any]] = {
    "ToolCallRequested": _requested,
    "PolicyEvaluated": _evaluated,
    "ToolCallAuthorized": _authorized,
    "ToolCallRejected": _rejected,
    "ToolCallStarted": _started,
    "ToolReceiptRecorded": _received,
    "SubSessionEnded": _sub_session,
    "ToolCallFailed": _failed,
    "ToolRetryDecided": _retry,
}

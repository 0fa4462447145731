"""What an event changes in the session and in its operation, beyond the operation's phase. Pure, total.

An effect runs after the event was found good enough to be folded, with the operation already in its new phase.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dalsegno.model.lifecycle import state as s
from dalsegno.model.lifecycle.checks import config_set_digest, in_flight_operation
from dalsegno.model.lifecycle.state import (
    Inherited,
    Ops,
    OpState,
    SessionState,
    bounded,
    digest_in,
    id_in,
    int_in,
    items_in,
    record_in,
    text_in,
)
from dalsegno.model.lifecycle.tables import CONFIG_KINDS, RECOVERED_PHASE
from dalsegno.model.records import Event

Effect: TypeAlias = Callable[[SessionState, Ops, Event, OpState, str], None]
"""(session, ops, event, operation, the phase in which it was found)."""
SessionEffect: TypeAlias = Callable[[SessionState, Ops, Event], None]


# --- operations -------------------------------------------------------------------------------------------------------


def inference_requested(_session: SessionState, _ops: Ops, event: Event, op: OpState, _before: str) -> None:
    op.attempt = int_in(event.body, "attempt")
    op.digest = digest_in(event.body, "request_digest")
    op.mark = text_in(event.body, "purpose")
    op.listed, op.unlisted = (), False


def inference_completed(_session: SessionState, _ops: Ops, event: Event, op: OpState, _before: str) -> None:
    calls = items_in(event.body, "tool_calls")
    op.attempt = int_in(event.body, "attempt")
    if calls:
        op.listed = tuple(id_in(call, "tool_call_id") for call in calls[: s.MAX_LISTED] if isinstance(call, dict))
        op.unlisted = len(calls) > s.MAX_LISTED


def call_requested(_session: SessionState, _ops: Ops, event: Event, op: OpState, _before: str) -> None:
    op.digest = digest_in(event.body, "arguments_digest")
    op.mark = text_in(event.body, "effect")


def call_authorized(_session: SessionState, _ops: Ops, event: Event, op: OpState, _before: str) -> None:
    op.digest = digest_in(event.body, "effective_arguments_digest")


def call_started(_session: SessionState, ops: Ops, event: Event, op: OpState, _before: str) -> None:
    op.attempt = int_in(event.body, "attempt")
    op.safe = op.mark == "READ" or event.body.get("idempotency_key") is not None
    child = id_in(event.body, "child_session")
    if child:
        op.ref = child
        ops.put(s.SUBSESSION, child, OpState(phase=s.KNOWN, ref=id_in(event.body, "tool_call_id")))


def call_failed(_session: SessionState, _ops: Ops, event: Event, op: OpState, _before: str) -> None:
    op.attempt = int_in(event.body, "attempt")
    if event.body.get("not_started") is True:
        op.safe = True
    elif text_in(event.body, "reason") == "UNKNOWN_OUTCOME":
        op.phase = s.UNRESOLVED


def retry_decided(_session: SessionState, _ops: Ops, event: Event, op: OpState, _before: str) -> None:
    if event.body.get("retry") is not True:
        op.phase = s.GIVEN_UP


def approval_requested(_session: SessionState, _ops: Ops, event: Event, op: OpState, _before: str) -> None:
    op.ref = id_in(event.body, "subject_id")
    op.digest = digest_in(event.body, "arguments_digest")


def approval_granted(session: SessionState, _ops: Ops, event: Event, op: OpState, _before: str) -> None:
    op.mark = text_in(event.body, "scope")
    modified = digest_in(record_in(event.body, "modified_arguments"), "digest")
    op.digest = modified or digest_in(event.body, "arguments_digest")
    if op.mark in ("SESSION", "RULE"):
        session.grants += 1


def policy_evaluated(_session: SessionState, _ops: Ops, event: Event, op: OpState, _before: str) -> None:
    op.ref = id_in(event.body, "subject_id")
    op.mark = text_in(event.body, "decision")
    op.digest = digest_in(record_in(event.body, "modified"), "digest")


def verdict_reported(_session: SessionState, _ops: Ops, _event: Event, op: OpState, before: str) -> None:
    op.seen = True
    op.phase = s.KNOWN if before == s.ABSENT else before


def turn_started(session: SessionState, _ops: Ops, event: Event, _op: OpState, _before: str) -> None:
    session.turn = id_in(event.body, "turn_id")


def turn_ended(session: SessionState, _ops: Ops, event: Event, _op: OpState, _before: str) -> None:
    if session.turn == id_in(event.body, "turn_id"):
        session.turn = ""


def stage_scheduled(session: SessionState, _ops: Ops, event: Event, op: OpState, _before: str) -> None:
    _set_stage(session, id_in(event.body, "stage_id"), op.phase)


def stage_started(session: SessionState, _ops: Ops, event: Event, op: OpState, _before: str) -> None:
    session.stage = id_in(event.body, "stage_id")
    _set_stage(session, session.stage, op.phase)


def stage_ended(session: SessionState, _ops: Ops, event: Event, _op: OpState, _before: str) -> None:
    id = id_in(event.body, "stage_id")
    session.stages = [stage for stage in session.stages if stage[0] != id]
    if session.stage == id:
        session.stage = ""


def _set_stage(session: SessionState, id: str, phase: str) -> None:
    for place, stage in enumerate(session.stages):
        if stage[0] == id:
            session.stages[place] = (id, phase)
            return
    if len(session.stages) < s.MAX_STAGES:
        session.stages.append((id, phase))
    else:
        session.more_stages = True


EFFECTS: dict[str, Effect] = {
    "InferenceRequested": inference_requested,
    "InferenceCompleted": inference_completed,
    "ToolCallRequested": call_requested,
    "ToolCallAuthorized": call_authorized,
    "ToolCallStarted": call_started,
    "ToolCallFailed": call_failed,
    "ToolRetryDecided": retry_decided,
    "ApprovalRequested": approval_requested,
    "ApprovalGranted": approval_granted,
    "PolicyEvaluated": policy_evaluated,
    "VerdictReported": verdict_reported,
    "TurnStarted": turn_started,
    "TurnCompleted": turn_ended,
    "TurnAborted": turn_ended,
    "StageScheduled": stage_scheduled,
    "StageStarted": stage_started,
    "StageCompleted": stage_ended,
    "StageFailed": stage_ended,
    "StageSkipped": stage_ended,
    "StageCancelled": stage_ended,
}


# --- session ----------------------------------------------------------------------------------------------------------


def created(session: SessionState, _ops: Ops, event: Event) -> None:
    session.profile = bounded(text_in(event.body, "profile"))
    session.relation = bounded(text_in(event.body, "relation"))
    session.parent = id_in(event.body, "parent_session")


def pinned(session: SessionState, _ops: Ops, event: Event) -> None:
    kind, name = text_in(event.body, "kind"), text_in(event.body, "name")
    if kind not in CONFIG_KINDS:
        return
    if kind not in session.pinned:
        session.pinned = sorted([*session.pinned, kind])
    if session.status not in (s.NEW, s.CREATED):
        return
    digest = digest_in(event.body, "digest")
    label = f"{kind}:{name}"
    session.pins = [pin for pin in session.pins if pin.rpartition(":")[0] != label]
    if len(session.pins) >= s.MAX_PINS or len(name) > s.MAX_ID or "\n" in name:
        session.more_pins = True
    else:
        session.pins.append(f"{label}:{digest.hex() if digest is not None else '-'}")


def started(session: SessionState, _ops: Ops, event: Event) -> None:
    declared = digest_in(event.body, "config_set_digest")
    session.config_set_digest = declared if session.more_pins else config_set_digest(session.pins)
    session.pins, session.more_pins = [], False


def forked(session: SessionState, ops: Ops, _event: Event) -> None:
    take_over(session, ops)


def take_over(session: SessionState, ops: Ops) -> None:
    """A fork goes on where its parent's prefix ends: its frames are open; standing grants are not handed on."""
    prefix = session.inherited
    session.inherited, session.forked = None, True
    if prefix is None:
        return
    session.status = prefix.status if prefix.status != s.NEW else session.status
    session.stubs = session.stubs or prefix.stubs
    session.pinned = sorted({*session.pinned, *prefix.pinned})
    session.pins = prefix.pins
    session.more_pins, session.config_set_digest = prefix.more_pins, prefix.config_set_digest
    session.turn, session.stage = prefix.turn, prefix.stage
    session.stages, session.more_stages = list(prefix.stages), prefix.more_stages
    frames = [(s.STAGE, id, phase) for id, phase in prefix.stages]
    if prefix.turn:
        frames.append((s.TURN, prefix.turn, s.OPEN))
    for kind, id, phase in frames:
        if ops.get(kind, id) is None:
            ops.put(kind, id, OpState(phase=phase))
            session.open[s.PLACE_OF[kind]] += 1


def inherit(parent: SessionState, child: SessionState) -> None:
    """Hand a fork the state of its parent's prefix, before its SessionForked is judged.

    ``parent``: the state after the events [1..parent_at] (and, for a fork of a fork, of the grandparent's prefix)
    folded on a scratch state. Nothing of the parent's operations is handed on: none may be open (S6).
    """
    child.inherited = Inherited(
        status=parent.status,
        operations_open=parent.operations_open(),
        turn=parent.turn,
        stage=parent.stage,
        stages=list(parent.stages),
        more_stages=parent.more_stages,
        pins=list(parent.pins),
        more_pins=parent.more_pins,
        pinned=list(parent.pinned),
        config_set_digest=parent.config_set_digest,
        stubs=parent.stubs,
    )


def recovered(session: SessionState, ops: Ops, event: Event) -> list[tuple[str, str]]:
    """Resolve what was in flight; returns what that closed."""
    closed: list[tuple[str, str]] = []
    for item in items_in(event.body, "in_flight"):
        kind, id = in_flight_operation(ops, item)
        op = ops.get(kind, id) if kind in s.OPERATIONS else None
        if op is None or op.phase not in s.OPEN_PHASES:
            continue
        before = op.phase
        op.phase = RECOVERED_PHASE.get((kind, before, text_in(item, "resolution")), before)
        ops.put(kind, id, op)
        if kind == s.TOOL:
            session.running += (op.phase in s.RUNNING_PHASES) - (before in s.RUNNING_PHASES)
        if op.phase not in s.OPEN_PHASES:
            session.open[s.PLACE_OF[kind]] -= 1
            closed.append((kind, id))
    return closed


SESSION_EFFECTS: dict[str, SessionEffect] = {
    "SessionCreated": created,
    "ConfigPinned": pinned,
    "SessionStarted": started,
    "SessionForked": forked,
}

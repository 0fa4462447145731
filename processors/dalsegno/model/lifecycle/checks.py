"""Rules that look at an event's content, one function each, by event type. Pure, total, without effect.

A check returns the ids of the rules that the event breaks. ``op``: the operation that the event's step names, or None.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, TypeAlias

from dalsegno.model.ids import root_of
from dalsegno.model.lifecycle import state as s
from dalsegno.model.lifecycle.state import (
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
from dalsegno.model.lifecycle.tables import IMPORTED, PINNED_AT_START, RESOLUTIONS, RESULTS_AFTER_END
from dalsegno.model.records import Event

Broken: TypeAlias = tuple[str, ...]
Check: TypeAlias = Callable[[SessionState, Ops, Event, OpState | None], Broken]

NONE: Broken = ()
_OPERATION_KINDS = frozenset(s.OPERATIONS)
# What a validation or an inference may be about.
_SUBJECTS = (
    s.INFERENCE, s.TOOL, s.STAGE, s.TURN, s.PACK, s.ARTIFACT, s.MESSAGE, s.COMPRESSION, s.VALIDATION, s.INPUT,
    s.RETRIEVAL, s.APPROVAL,
)  # fmt: skip


def config_set_digest(pins: list[str]) -> bytes:
    """SHA-256 over the sorted lines ``kind:name:digest`` (hex, ``-`` for none), joined by newlines, in UTF-8."""
    return sha256("\n".join(sorted(pins)).encode("utf-8", "surrogatepass")).digest()


# --- session ----------------------------------------------------------------------------------------------------------


def created(session: SessionState, _ops: Ops, event: Event, _op: OpState | None) -> Broken:
    return NONE if event.seq == 1 and session.status == s.NEW else ("S1",)


def pinned(session: SessionState, _ops: Ops, event: Event, _op: OpState | None) -> Broken:
    late = session.status not in (s.NEW, s.CREATED)
    return ("S2",) if late and text_in(event.body, "effective") == "NOW" else NONE


def started(session: SessionState, _ops: Ops, event: Event, _op: OpState | None) -> Broken:
    if not PINNED_AT_START.issubset(session.pinned):
        return ("S2",)
    same = session.more_pins or config_set_digest(session.pins) == event.body.get("config_set_digest")
    return NONE if same else ("S2",)


def ended(session: SessionState, ops: Ops, event: Event, _op: OpState | None) -> Broken:
    """S4: all that is open is listed. Ids are unique in practice, but one may be open in several kinds."""
    total = session.operations_open()
    listed = {bounded(id) for id in items_in(event.body, "open_ops") if type(id) is str}
    if len(listed) > total:
        return ("S4",)
    found = 0
    for id in listed:
        of_this_id = sum(1 for kind in s.OPERATIONS if _is_open(ops.get(kind, id)))
        if not of_this_id:
            return ("S4",)
        found += of_this_id
    return NONE if found == total else ("S4",)


def recovered(session: SessionState, ops: Ops, event: Event, _op: OpState | None) -> Broken:
    """S5: the epoch rises, the tip is named, and every open operation is resolved exactly once (by count)."""
    last_good = record_in(event.body, "last_good")
    if event.epoch <= session.epoch or event.prev_hash is None or last_good.get("hash") != event.prev_hash:
        return ("S5",)
    if last_good.get("seq") != event.seq - 1:
        return ("S5",)
    in_flight = items_in(event.body, "in_flight")
    if len(in_flight) != session.operations_open():
        return ("S5",)
    resolved: set[tuple[str, str]] = set()
    for item in in_flight:
        kind, id = in_flight_operation(ops, item)
        if kind not in _OPERATION_KINDS or (kind, id) in resolved or not _is_open(ops.get(kind, id)):
            return ("S5",)
        if text_in(item, "resolution") not in RESOLUTIONS:
            return ("S5",)
        resolved.add((kind, id))
    return NONE


def in_flight_operation(ops: Ops, item: Any) -> tuple[str, str]:
    """The operation that an entry of ``in_flight`` names; a child session stands for the call that started it."""
    if not isinstance(item, dict):
        return "", ""
    kind, id = text_in(item, "kind"), id_in(item, "id")
    if kind != s.SUBSESSION:
        return kind, id
    child = ops.get(s.SUBSESSION, id)
    return s.TOOL, child.ref if child else id


def forked(session: SessionState, _ops: Ops, event: Event, _op: OpState | None) -> Broken:
    parent = id_in(event.body, "parent_session")
    inherited = session.inherited
    fits = (
        event.seq == 2
        and session.relation == "FORK"
        and inherited is not None
        and inherited.operations_open == 0
        and inherited.status not in s.ENDED
        and session.parent in ("", parent)
        and root_of(text_in(event.body, "parent_session")) == root_of(event.session_id)
    )
    return NONE if fits else ("S6",)


def checkpoint(session: SessionState, _ops: Ops, event: Event, _op: OpState | None) -> Broken:
    if text_in(event.body, "kind") != "STABLE":
        return NONE
    busy = session.running or session.open_of(s.INFERENCE) or session.open_of(s.COMPRESSION)
    return ("S7",) if busy else NONE


# --- inference --------------------------------------------------------------------------------------------------------


def inference_requested(session: SessionState, ops: Ops, event: Event, op: OpState | None) -> Broken:
    body = event.body
    broken: Broken = NONE
    purpose = text_in(body, "purpose")
    if purpose == "AGENT":
        if not _exists(session, ops.get(s.PACK, id_in(body, "pack_id"))):
            broken = ("I1",)
    elif (purpose == "COMPRESSION" and not _exists(session, ops.get(s.COMPRESSION, id_in(body, "subject_id")))) or (
        purpose == "VALIDATION" and not _exists(session, ops.get(s.VALIDATION, id_in(body, "subject_id")))
    ):
        broken = ("I1",)
    if op is not None and op.attempt:
        if int_in(body, "attempt") <= op.attempt:
            broken = (*broken, "I1")
        if op.digest != digest_in(body, "request_digest"):
            broken = (*broken, "I2")
    return broken


def inference_ended(_session: SessionState, _ops: Ops, event: Event, op: OpState | None) -> Broken:
    return ("I2",) if op is not None and int_in(event.body, "attempt") != op.attempt else NONE


# --- tools ------------------------------------------------------------------------------------------------------------


def call_requested(session: SessionState, ops: Ops, event: Event, _op: OpState | None) -> Broken:
    inference_id = id_in(event.body, "inference_id")
    if not inference_id:
        return NONE
    inference = ops.get(s.INFERENCE, inference_id)
    if inference is None:
        return NONE if session.forked else ("U1",)
    listed = inference.unlisted or id_in(event.body, "tool_call_id") in inference.listed
    return NONE if listed else ("U1",)


def call_authorized(session: SessionState, ops: Ops, event: Event, _op: OpState | None) -> Broken:
    basis = _BASES.get(text_in(event.body, "basis"))
    return NONE if basis is not None and basis(session, ops, event) else ("U2",)


def _by_policy(_session: SessionState, ops: Ops, event: Event) -> bool:
    decision = _decision_for_call(ops, event)
    return decision is not None and decision.mark in ("ALLOW", "MODIFY")


def _by_approval(_session: SessionState, ops: Ops, event: Event) -> bool:
    approval = ops.get(s.APPROVAL, id_in(event.body, "approval_id"))
    if approval is None or approval.phase != s.GRANTED or approval.ref != id_in(event.body, "tool_call_id"):
        return False
    arguments = digest_in(event.body, "effective_arguments_digest")
    if approval.digest == arguments:
        return True
    # A policy that was asked again about the approved arguments may have modified them.
    decision = _decision_for_call(ops, event)
    return decision is not None and decision.mark == "MODIFY" and decision.digest in (None, arguments)


def _by_standing_grant(session: SessionState, ops: Ops, event: Event) -> bool:
    approval_id = id_in(event.body, "approval_id")
    if not approval_id:
        return session.grants > 0
    approval = ops.get(s.APPROVAL, approval_id)
    return approval is not None and approval.phase == s.GRANTED and approval.mark in ("SESSION", "RULE")


def _when_imported(session: SessionState, _ops: Ops, _event: Event) -> bool:
    return session.profile == IMPORTED


def _always(_session: SessionState, _ops: Ops, _event: Event) -> bool:
    return True


_BASES: dict[str, Callable[[SessionState, Ops, Event], bool]] = {
    "POLICY_ALLOW": _by_policy,
    "APPROVAL": _by_approval,
    "STANDING_GRANT": _by_standing_grant,
    "SIMULATED": _always,
    "UNRECORDED_IMPORT": _when_imported,
}


def _decision_for_call(ops: Ops, event: Event) -> OpState | None:
    decision = ops.get(s.DECISION, id_in(event.body, "decision_id"))
    return decision if decision is not None and decision.ref == id_in(event.body, "tool_call_id") else None


def call_started(_session: SessionState, _ops: Ops, event: Event, op: OpState | None) -> Broken:
    return ("U3",) if op is not None and int_in(event.body, "attempt") != op.attempt + 1 else NONE


def call_received(_session: SessionState, _ops: Ops, event: Event, op: OpState | None) -> Broken:
    return ("U4",) if op is not None and not 1 <= int_in(event.body, "attempt") <= op.attempt else NONE


def call_failed(_session: SessionState, _ops: Ops, event: Event, op: OpState | None) -> Broken:
    """The attempt that runs ends; or one that was dispatched without a start, which then says ``not_started``."""
    if op is None:
        return NONE
    attempt = int_in(event.body, "attempt")
    never_began = event.body.get("not_started") is True and op.phase == s.AUTHORIZED and attempt == op.attempt + 1
    runs = op.phase != s.AUTHORIZED and attempt == op.attempt
    return NONE if runs or never_began else ("U4",)


def retry_decided(_session: SessionState, _ops: Ops, event: Event, op: OpState | None) -> Broken:
    if op is None:
        return NONE
    broken: Broken = NONE if int_in(event.body, "attempt") == op.attempt else ("P2",)
    if event.body.get("retry") is True and not op.safe:
        broken = (*broken, "U4")
    return broken


def sub_session_ended(_session: SessionState, _ops: Ops, event: Event, op: OpState | None) -> Broken:
    child = id_in(event.body, "child_session")
    return ("U4",) if op is None or not child or op.ref != child else NONE


# --- validation -------------------------------------------------------------------------------------------------------


def validation_requested(session: SessionState, ops: Ops, event: Event, _op: OpState | None) -> Broken:
    target = event.body.get("target")
    if target is not None and not 1 <= int_in(record_in(event.body, "target"), "seq") < event.seq:
        return ("V1",)
    target_id = id_in(event.body, "target_id")
    if not target_id or session.forked:
        return NONE
    return NONE if any(ops.get(kind, target_id) is not None for kind in _SUBJECTS) else ("V1",)


def validation_decided(session: SessionState, ops: Ops, event: Event, op: OpState | None) -> Broken:
    basis = text_in(event.body, "basis")
    if basis == "REPORTED":
        return NONE if op is not None and op.seen else ("V2",)
    if basis == "INFERENCE":
        inference = ops.get(s.INFERENCE, id_in(event.body, "inference_id"))
        if inference is None:
            return NONE if session.forked and id_in(event.body, "inference_id") else ("V2",)
        return NONE if inference.phase == s.DONE else ("V2",)
    return NONE


def is_open_result(event_type: str, op: OpState | None) -> bool:
    """S4: after the session's end, a result may only close a call that was open then."""
    return event_type in RESULTS_AFTER_END and _is_open(op)


def _is_open(op: OpState | None) -> bool:
    return op is not None and op.phase in s.OPEN_PHASES


def _exists(session: SessionState, op: OpState | None) -> bool:
    # What a fork refers to may lie in its parent, whose operations are not kept here.
    return op is not None or session.forked


CHECKS: dict[str, Check] = {
    "SessionCreated": created,
    "ConfigPinned": pinned,
    "SessionStarted": started,
    "SessionCompleted": ended,
    "SessionFailed": ended,
    "SessionCancelled": ended,
    "SessionRecovered": recovered,
    "SessionForked": forked,
    "CheckpointMarked": checkpoint,
    "InferenceRequested": inference_requested,
    "InferenceCompleted": inference_ended,
    "InferenceFailed": inference_ended,
    "ToolCallRequested": call_requested,
    "ToolCallAuthorized": call_authorized,
    "ToolCallStarted": call_started,
    "ToolReceiptRecorded": call_received,
    "ToolCallFailed": call_failed,
    "ToolRetryDecided": retry_decided,
    "SubSessionEnded": sub_session_ended,
    "ValidationRequested": validation_requested,
    "ValidationDecided": validation_decided,
}

"""A session that is judged event by event, and the smallest bodies that its rules accept."""

from __future__ import annotations

from typing import Any

from dalsegno.model.lifecycle import MemoryOps, SessionState, Verdict, config_set_digest, inherit, judge
from dalsegno.model.lifecycle.tables import PINNED_AT_START
from dalsegno.model.records import Event

TIP = b"\x07" * 32
A, B = b"\x0a" * 32, b"\x0b" * 32


class Walk:
    """A session that is judged event by event. ``say`` returns the verdict, ``well`` insists that no rule is broken."""

    def __init__(self, profile: str = "STRICT", session_id: str = "s") -> None:
        self.session_id, self.profile = session_id, profile
        self.session, self.ops, self.seq, self.epoch = SessionState(), MemoryOps(), 0, 0

    def event(self, type_: str, *, seq: int | None = None, stub: str | None = None, **body: Any) -> Event:
        seq = self.seq + 1 if seq is None else seq
        known = not type_.startswith("Future")
        ignorable = bool(body.pop("ignorable", False))
        return Event(
            self.session_id, seq, TIP, TIP if seq > 1 else None, self.epoch, type_, known, ignorable, {}, body, stub
        )

    def say(self, type_: str, **body: Any) -> Verdict:
        verdict = judge(self.session, self.ops, self.event(type_, **body))
        self.seq += 1
        return verdict

    def well(self, type_: str, **body: Any) -> Verdict:
        verdict = self.say(type_, **body)
        assert (verdict.violations, verdict.findings) == ((), ()), (type_, verdict)
        return verdict

    def created(self) -> Walk:
        self.well("SessionCreated", profile=self.profile, relation="NONE")
        return self

    def running(self) -> Walk:
        self.created()
        pins = []
        for kind in sorted(PINNED_AT_START):
            self.well("ConfigPinned", kind=kind, name="n", effective="NOW", digest=A, version="1")
            pins.append(f"{kind}:n:{A.hex()}")
        self.well("SessionStarted", config_set_digest=config_set_digest(pins), clock_start=1)
        return self

    # --- pieces in STRICT form ---

    def inference(self, id: str = "i", calls: tuple[str, ...] = (), purpose: str = "OTHER") -> Walk:
        self.well("InferenceRequested", **INFERENCE | {"inference_id": id, "purpose": purpose})
        self.well("InferenceCompleted", **COMPLETED | {"inference_id": id, "tool_calls": listed(*calls)})
        return self

    def call(self, id: str = "c", effect: str = "WRITE") -> Walk:
        self.well("ToolCallRequested", tool_call_id=id, effect=effect, arguments_digest=A)
        return self

    def allowed(self, id: str = "c", effect: str = "WRITE") -> Walk:
        self.call(id, effect)
        self.well("PolicyEvaluated", **DECISION | {"decision_id": f"{id}/d", "subject_id": id})
        self.well("ToolCallAuthorized", **AUTHORIZED | {"tool_call_id": id, "decision_id": f"{id}/d"})
        return self

    def running_call(self, id: str = "c", effect: str = "WRITE", **more: Any) -> Walk:
        self.allowed(id, effect)
        self.well("ToolCallStarted", tool_call_id=id, attempt=1, **more)
        return self

    def granted(self, id: str = "c", scope: str = "ONCE", **more: Any) -> Walk:
        self.well("ApprovalRequested", approval_id=f"{id}/a", subject_id=id, decision_id="d", arguments_digest=A)
        self.well("ApprovalGranted", **{"approval_id": f"{id}/a", "scope": scope, "arguments_digest": A} | more)
        return self


INFERENCE = {"inference_id": "i", "attempt": 1, "purpose": "OTHER", "provider": "p", "model": "m", "request_digest": A}
COMPLETED = {"inference_id": "i", "attempt": 1, "model": "m", "output_digest": A, "tool_calls": []}
DECISION = {
    "decision_id": "c/d", "subject_id": "c", "decision": "ALLOW", "policy_digest": A, "input_digest": A, "engine": "e",
}  # fmt: skip
AUTHORIZED = {
    "tool_call_id": "c", "basis": "POLICY_ALLOW", "decision_id": "c/d", "effective_arguments_digest": A,
}  # fmt: skip
RECEIPT = {"tool_call_id": "c", "attempt": 1, "status": "OK", "result_digest": A, "started_at": 1, "ended_at": 2}
VALIDATION = {
    "validation_id": "v", "target_id": "i", "validator_version": "1", "validator_digest": A, "criteria_digest": A,
}  # fmt: skip


def listed(*ids: str) -> list[dict[str, Any]]:
    return [{"tool_call_id": id, "name": "n", "arguments_digest": None} for id in ids]


def in_flight(*items: tuple[str, str, str]) -> list[dict[str, str]]:
    return [{"kind": kind, "id": id, "resolution": resolution} for kind, id, resolution in items]


def recovery(walk: Walk, *items: tuple[str, str, str], **more: Any) -> dict[str, Any]:
    return {"last_good": {"seq": walk.seq, "hash": TIP, "event_id": None}, "in_flight": in_flight(*items)} | more


def a_child(w: Walk, parent: Walk, *, named: str | None = "s", at: str = "s~f") -> dict[str, Any]:
    w.session_id = at
    w.well("SessionCreated", profile=w.profile, relation="FORK", parent_session=named)
    inherit(parent.session, w.session)
    return {"parent_session": "s", "parent_at": {"seq": parent.seq, "hash": TIP, "event_id": None}}

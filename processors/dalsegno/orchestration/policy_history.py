"""Tool calls as a policy would have seen them, from the recorded events of a session. Pure.

A call's inputs are those of the decider: as they stood when its policy was evaluated, or, where none was, when the call
was requested. What a session does not record is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from dalsegno.model.lifecycle.state import bounded
from dalsegno.model.lifecycle.tables import STRICT
from dalsegno.model.records import Event
from dalsegno.orchestration.canonical import canonical, read_arguments
from dalsegno.orchestration.documents import Decision
from dalsegno.orchestration.policy import CallFacts
from dalsegno.projections.decider.fold import fold_event
from dalsegno.projections.decider.rows import Head
from dalsegno.projections.decider.table import MemoryRows

Then: TypeAlias = Literal["ran", "approved", "simulated", "denied", "refused", "waiting", "open"]
"""What became of a call: it ran; it ran where an approval was needed; it was simulated; a policy denied it; it was
refused otherwise (by an approver, or nobody answered); it still needs an approval; nothing more is recorded."""

Unfit: TypeAlias = Literal["INVALID_ARGUMENTS", "UNKNOWN_TOOL", "LIMIT", "ARGUMENTS_MISSING", "ERASED"]
"""Why no policy is asked about a call: the first three end it before; of the last two too little is recorded."""

Read = Callable[[Mapping[str, Any]], bytes | None]
"""The bytes of a content of an event; None where nobody has them any more."""

_BEFORE_POLICY: Final = ("INVALID_ARGUMENTS", "UNKNOWN_TOOL", "LIMIT")


class RecordedCall(NamedTuple):
    """``decision``, ``input_digest``: of the first evaluation that was recorded. ``unfit``: no policy is asked.
    ``labelled``: that there are no labels is known, or there are some; another harness may have had ones that its
    recording lacks."""

    session_id: str
    call_id: str
    seq: int
    facts: CallFacts
    stage: str | None
    labels: Mapping[str, str]
    labelled: bool
    session: Mapping[str, int]
    then: Then
    unfit: Unfit | None = None
    decision: Decision | None = None
    input_digest: bytes | None = None


def calls_of(session_id: str, history: Iterable[Event], read: Read) -> Iterator[RecordedCall]:
    """The session's own calls, each as soon as it is known what became of it, at the latest at the end of its history.

    ``history``: what counts of the session, of a fork behind what it takes over; a call in that is its parent's.
    """
    rows = MemoryRows()
    calls: dict[str | None, _Call] = {}
    for event in history:
        own = event.session_id == session_id
        if event.stub is not None:
            if own and event.type == "ToolCallRequested":
                yield _erased(event)
            continue
        follow = _FOLLOW.get(event.type) if own else None
        call = None if follow is None else calls.get(_call_id(event))
        if call is not None and event.type == "PolicyEvaluated" and call.decision is None:
            call.see(rows)
        fold_event(rows, event)
        if own and event.type == "ToolCallRequested":
            asked = _Call(event, rows, read)
            before = calls.pop(asked.id, None)
            if before is not None:  # an id that stands twice: what follows is said of the later call
                yield before.unended()
            calls[asked.id] = asked
        elif call is not None and follow is not None:
            then = follow(call, event.body)
            if then is not None:
                del calls[call.id]
                yield call.ended(then)
    for call in calls.values():
        yield call.unended()


class _Call:
    """A call of which it is not known yet what becomes of it."""

    def __init__(self, event: Event, rows: MemoryRows, read: Read) -> None:
        body = event.body
        self.event = event
        self.id = bounded(body["tool_call_id"])
        self.unfit: Unfit | None = None
        self.decision: Decision | None = None
        self.input_digest: bytes | None = None
        self.needed_approval = self.simulated = False
        content = None if body["arguments"] is None else read(body["arguments"])
        if content is None:
            self.unfit = "ARGUMENTS_MISSING"
        elif not _is_readable(content):
            self.unfit = "INVALID_ARGUMENTS"
        self.facts = CallFacts(bounded(body["name"]), content or b"", body["effect"], body["risk"])
        self.see(rows)

    def see(self, rows: MemoryRows) -> None:
        """The inputs beside the call itself, as they are now."""
        head = rows.head_row or Head()
        self.stage = head.stage_name if head.stage else None
        self.labels = dict(head.labels)
        self.labelled = bool(head.labels) or head.profile == STRICT
        self.session = {"turns": head.turns, "tool_calls": head.tool_calls, "tokens": head.tokens}

    def ended(self, then: Then) -> RecordedCall:
        return RecordedCall(
            self.event.session_id, self.id, self.event.seq, self.facts, self.stage, self.labels, self.labelled,
            self.session, then, self.unfit, self.decision, self.input_digest,
        )  # fmt: skip

    def unended(self) -> RecordedCall:
        return self.ended("waiting" if self.needed_approval else "open")


def _is_readable(arguments: bytes) -> bool:
    try:
        canonical(read_arguments(arguments or b"{}"))
    except ValueError:
        return False
    return True


def _erased(event: Event) -> RecordedCall:
    return RecordedCall(event.session_id, "", event.seq, CallFacts("", b""), None, {}, False, {}, "open", "ERASED")


def _call_id(event: Event) -> str | None:
    """The call that an event of ``_FOLLOW`` is about."""
    body = event.body
    if event.type in ("PolicyEvaluated", "ApprovalRequested"):
        id = body["subject_id"] if body["subject"] == "TOOL_CALL" else None
    else:
        id = body["tool_call_id"]
    return None if id is None else bounded(id)


# --- what follows a call: what became of it, once that is known -------------------------------------------------------


def _evaluated(call: _Call, body: Mapping[str, Any]) -> Then | None:
    if call.decision is None:
        call.decision, call.input_digest = body["decision"], body["input_digest"]
    call.needed_approval = call.needed_approval or body["decision"] == "REQUIRE_APPROVAL"
    return None


def _approval_requested(call: _Call, _body: Mapping[str, Any]) -> Then | None:
    call.needed_approval = True
    return None


def _authorized(call: _Call, body: Mapping[str, Any]) -> Then | None:
    call.simulated = body["basis"] == "SIMULATED"
    call.needed_approval = call.needed_approval or body["basis"] in ("APPROVAL", "STANDING_GRANT")
    return None


def _rejected(call: _Call, body: Mapping[str, Any]) -> Then | None:
    basis = body["basis"]
    if basis in _BEFORE_POLICY and call.decision is None and not call.needed_approval:
        call.unfit = basis
    return "denied" if basis == "POLICY_DENY" else "refused"


def _ran(call: _Call, _body: Mapping[str, Any]) -> Then | None:
    return "simulated" if call.simulated else "approved" if call.needed_approval else "ran"


_FOLLOW: Final[Mapping[str, Callable[[_Call, Mapping[str, Any]], Then | None]]] = {
    "PolicyEvaluated": _evaluated,
    "ApprovalRequested": _approval_requested,
    "ToolCallAuthorized": _authorized,
    "ToolCallRejected": _rejected,
    "ToolCallStarted": _ran,
    "ToolReceiptRecorded": _ran,
    "SubSessionEnded": _ran,
}

"""One run of a workflow as one session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dalsegno.importers.base import ImportedSession, ImportReport
from dalsegno.importers.builder import Added
from dalsegno.importers.fields import Fields
from dalsegno.importers.payload import MESSAGE_MAX_CHARACTERS, short_text
from dalsegno.importers.temporal.activities import Activities
from dalsegno.importers.temporal.children import Children
from dalsegno.importers.temporal.context import HARNESS, Run
from dalsegno.importers.temporal.history import NativeEvent, Payload, joined, payloads_of, plain
from dalsegno.model.events import (
    CancelRequested,
    MessageReceived,
    NewEvent,
    NondeterminismRecorded,
    Part,
    SessionCancelled,
    SessionCompleted,
    SessionFailed,
)
from dalsegno.model.payloads import MessageRole, NondeterminismKind
from dalsegno.model.records import Actor

_Handler = Callable[["_Mapping", NativeEvent], bool]

_KEPT_AS_NOTES = frozenset(
    {
        "WORKFLOW_TASK_SCHEDULED", "WORKFLOW_TASK_STARTED", "WORKFLOW_TASK_COMPLETED", "WORKFLOW_TASK_FAILED",
        "WORKFLOW_TASK_TIMED_OUT", "TIMER_STARTED", "TIMER_CANCELED", "ACTIVITY_TASK_CANCEL_REQUESTED",
        "WORKFLOW_EXECUTION_OPTIONS_UPDATED", "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES", "WORKFLOW_PROPERTIES_MODIFIED",
        "WORKFLOW_EXECUTION_UPDATE_REJECTED", "REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED",
        "REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_FAILED", "EXTERNAL_WORKFLOW_EXECUTION_CANCEL_REQUESTED",
        "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED", "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED",
        "EXTERNAL_WORKFLOW_EXECUTION_SIGNALED",
    }
)  # fmt: skip
"""What the engine does to run a workflow, and what a workflow sends to others."""


def map_run(importer: str, events: list[NativeEvent], report: ImportReport) -> ImportedSession:
    return _Mapping(importer, events, report).session()


class _Mapping:
    def __init__(self, importer: str, events: list[NativeEvent], report: ImportReport) -> None:
        self.run = Run(importer, events[0], report)
        self.activities = Activities(self.run)
        self.children = Children(self.run)
        self._events = events
        self._update: str | None = None
        self._asked: dict[str, Any] = {}
        """Update id -> what was asked, where the history tells it before the update was accepted."""

    def session(self) -> ImportedSession:
        report = self.run.report
        self.run.begin(self._events[0])
        report.records[self._events[0].type] += 1
        report.mapped[self._events[0].type] += 1
        for event in self._events[1:]:
            report.records[event.type] += 1
            handler = _HANDLERS.get(event.type)
            if handler is not None and handler(self, event):
                report.mapped[event.type] += 1
                report.left(event.type, [*event.attributes.left(), *Fields(event.data, event.carried).left()])
                continue
            if handler is None and event.type not in _KEPT_AS_NOTES:
                report.unknown[event.type] += 1
            report.notes[event.type] += 1
            self.run.note(event)
        return self.run.builder.session()

    # --- what comes from outside ---------------------------------------------------------------------------------

    def update_admitted(self, event: NativeEvent) -> bool:
        """It will be accepted, or rejected; kept as a note."""
        request = event.attributes.data.get("request")
        if isinstance(request, dict):
            self._asked[_update_id(request.get("meta"))] = request
        return False

    def update_accepted(self, event: NativeEvent) -> bool:
        """Somebody asks, and the workflow works on the answer."""
        fields = event.attributes
        fields.take_each("protocolInstanceId", "acceptedRequestMessageId")
        request = fields.take_object("acceptedRequest")
        update_id = _update_id(request.get("meta") or {"updateId": fields.data.get("protocolInstanceId")})
        request = request or self._asked.pop(update_id, {})
        given = request.get("input")
        asked: dict[str, Any] = given if isinstance(given, dict) else {}
        self._message(event, update_id, f"update {short_text(asked.get('name'))}", asked.get("args"), "USER")
        if self._update is None:
            self._update = update_id
            self.run.begin_turn(event)
        return True

    def update_completed(self, event: NativeEvent) -> bool:
        """The answer is made of what the model said, and kept as a note."""
        outcome = event.attributes.take_object("outcome")
        accepted = event.attributes.take("acceptedEventId")
        update_id = _update_id(event.attributes.take("meta"))
        if outcome:
            self.run.note(event, plain(outcome), cause=self.run.of(accepted))
        if "failure" in outcome:
            self.run.error(event, outcome["failure"])
        if update_id == self._update:
            self._update = None
            self.run.end_turn(event, failed="failure" in outcome)
        return bool(outcome)

    def signaled(self, event: NativeEvent) -> bool:
        fields = event.attributes
        name, given = short_text(fields.take("signalName")), fields.take("input")
        role: MessageRole = "EXTERNAL_AGENT" if fields.data.get("externalWorkflowExecution") else "USER"
        self._message(event, f"signal {event.id}", f"signal {name}", given, role)
        return True

    def _message(self, event: NativeEvent, id_: str, channel: str, given: Any, role: MessageRole) -> None:
        payloads = payloads_of(given)
        for payload in payloads:
            self.activities.given.told(payload.value())
        parts = [self._part(payload) for payload in payloads]
        message = MessageReceived(message_id=id_, role=role, channel=channel, parts=parts)
        self.run.add(message, event, Actor("USER" if role == "USER" else "AGENT", self.run.sender(event)))

    def _part(self, payload: Payload) -> Part:
        value = payload.value()
        if isinstance(value, str):
            return self.run.blobs.part(value)
        return Part(kind="OTHER", name=payload.encoding, blob=self.run.blobs.of_bytes(payload.data, payload.media_type))

    # --- what the workflow reads ---------------------------------------------------------------------------------

    def timer_fired(self, event: NativeEvent) -> bool:
        timer = short_text(event.attributes.take("timerId"))
        cause = self.run.of(event.attributes.take("startedEventId"))
        self.run.add(NondeterminismRecorded(kind="CLOCK", key=timer), event, HARNESS, cause=cause)
        return True

    def marker(self, event: NativeEvent) -> bool:
        name = short_text(event.attributes.take("markerName"))
        lower = name.lower()
        kind: NondeterminismKind = "FLAG" if "patch" in lower or "version" in lower else "EXTERNAL_READ"
        value = self.run.blobs.of_json(plain(event.attributes.take("details", {})))
        self.run.add(NondeterminismRecorded(kind=kind, key=name, value=value), event, HARNESS)
        return True

    # --- the end -------------------------------------------------------------------------------------------------

    def cancel_requested(self, event: NativeEvent) -> bool:
        sender = self.run.sender(event)
        reason = short_text(event.attributes.take("cause"), MESSAGE_MAX_CHARACTERS) or None
        self.run.cancel = sender, reason
        request = CancelRequested(requested_by=sender, reason=reason)
        self.run.cancelled_by = self.run.add(request, event, Actor("OPERATOR", sender))
        return True

    def cancelled(self, event: NativeEvent) -> bool:
        sender, reason = self.run.cancel
        ended = SessionCancelled(requested_by=sender, reason=reason, open_ops=self._open())
        return self._end(ended, event, self.run.cancelled_by)

    def terminated(self, event: NativeEvent) -> bool:
        sender = self.run.sender(event)
        reason = short_text(event.attributes.take("reason"), MESSAGE_MAX_CHARACTERS) or None
        return self._end(SessionCancelled(requested_by=sender, reason=reason, open_ops=self._open()), event)

    def continued(self, event: NativeEvent) -> bool:
        """The run ends and another goes on: what it is given stands as the result."""
        rest = plain(event.attributes.take_all())
        blob = self.run.blobs.of_json(rest)
        return self._end(SessionCompleted(outcome="PARTIAL", open_ops=self._open(), result=blob), event)

    def completed(self, event: NativeEvent) -> bool:
        result = event.attributes.take("result")
        given = joined(payloads_of(result))
        blob = None if given is None else self.run.blobs.of_bytes(given.data, given.media_type)
        return self._end(SessionCompleted(outcome="SUCCESS", open_ops=self._open(), result=blob), event)

    def failed(self, event: NativeEvent) -> bool:
        failure = event.attributes.take("failure")
        return self._end(SessionFailed(open_ops=self._open(), error=self.run.failure(failure)), event)

    def timed_out(self, event: NativeEvent) -> bool:
        error = self.run.blobs.error("TimedOut", "the run took longer than it may")
        return self._end(SessionFailed(open_ops=self._open(), error=error), event)

    def _open(self) -> list[str]:
        return sorted([*self.run.calls.open_ids(), *self.activities.open_inferences()])

    def _end(self, ended: NewEvent, event: NativeEvent, cause: Added | None = None) -> bool:
        event.attributes.take("workflowTaskCompletedEventId")
        self.run.add(ended, event, HARNESS, cause=cause)
        return True


_HANDLERS: dict[str, _Handler] = {
    "WORKFLOW_EXECUTION_UPDATE_ADMITTED": _Mapping.update_admitted,
    "WORKFLOW_EXECUTION_UPDATE_ACCEPTED": _Mapping.update_accepted,
    "WORKFLOW_EXECUTION_UPDATE_COMPLETED": _Mapping.update_completed,
    "WORKFLOW_EXECUTION_SIGNALED": _Mapping.signaled,
    "ACTIVITY_TASK_SCHEDULED": lambda mapping, event: mapping.activities.scheduled(event),
    "ACTIVITY_TASK_STARTED": lambda mapping, event: mapping.activities.started(event),
    "ACTIVITY_TASK_COMPLETED": lambda mapping, event: mapping.activities.completed(event),
    "ACTIVITY_TASK_FAILED": lambda mapping, event: mapping.activities.failed(event, "failed"),
    "ACTIVITY_TASK_TIMED_OUT": lambda mapping, event: mapping.activities.failed(event, "TIMEOUT"),
    "ACTIVITY_TASK_CANCELED": lambda mapping, event: mapping.activities.failed(event, "CANCELLED"),
    "START_CHILD_WORKFLOW_EXECUTION_INITIATED": lambda mapping, event: mapping.children.initiated(event),
    "START_CHILD_WORKFLOW_EXECUTION_FAILED": lambda mapping, event: mapping.children.not_started(event),
    "CHILD_WORKFLOW_EXECUTION_STARTED": lambda mapping, event: mapping.children.started(event),
    "CHILD_WORKFLOW_EXECUTION_COMPLETED": lambda mapping, event: mapping.children.ended(event, "SUCCESS"),
    "CHILD_WORKFLOW_EXECUTION_FAILED": lambda mapping, event: mapping.children.ended(event, "FAILED"),
    "CHILD_WORKFLOW_EXECUTION_TIMED_OUT": lambda mapping, event: mapping.children.ended(event, "FAILED"),
    "CHILD_WORKFLOW_EXECUTION_CANCELED": lambda mapping, event: mapping.children.ended(event, "CANCELLED"),
    "CHILD_WORKFLOW_EXECUTION_TERMINATED": lambda mapping, event: mapping.children.ended(event, "CANCELLED"),
    "TIMER_FIRED": _Mapping.timer_fired,
    "MARKER_RECORDED": _Mapping.marker,
    "WORKFLOW_EXECUTION_CANCEL_REQUESTED": _Mapping.cancel_requested,
    "WORKFLOW_EXECUTION_CANCELED": _Mapping.cancelled,
    "WORKFLOW_EXECUTION_TERMINATED": _Mapping.terminated,
    "WORKFLOW_EXECUTION_COMPLETED": _Mapping.completed,
    "WORKFLOW_EXECUTION_CONTINUED_AS_NEW": _Mapping.continued,
    "WORKFLOW_EXECUTION_FAILED": _Mapping.failed,
    "WORKFLOW_EXECUTION_TIMED_OUT": _Mapping.timed_out,
}


def _update_id(meta: Any) -> str:
    return short_text(meta.get("updateId"), 128) if isinstance(meta, dict) else ""

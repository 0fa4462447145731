"""What the mapping of a run works with: the session, the native events that have become events, who did what."""

from __future__ import annotations

from typing import Any

from dalsegno.importers.base import ImportReport
from dalsegno.importers.builder import Added, SessionBuilder, Source
from dalsegno.importers.fields import Fields
from dalsegno.importers.opening import Pin, begin_session, labels_of, session_id_of
from dalsegno.importers.payload import BlobMaker, short_text
from dalsegno.importers.temporal.history import NativeEvent, joined, payloads_of, plain
from dalsegno.importers.tool_calls import ToolCalls
from dalsegno.model.events import (
    ErrorInfo,
    ErrorRecorded,
    NewEvent,
    NoteRecorded,
    SessionCreated,
    TurnAborted,
    TurnCompleted,
    TurnStarted,
)
from dalsegno.model.records import Actor

HARNESS = Actor("HARNESS", "temporal")


class Run:
    """One session while it is being mapped."""

    def __init__(self, importer: str, first: NativeEvent, report: ImportReport) -> None:
        self.importer = importer
        self.report = report
        own = first.attributes.data
        workflow_id, run_id = own.get("workflowId"), own.get("originalExecutionRunId")
        names = (workflow_id, run_id) if workflow_id and run_id else ("record", first.digest.hex()[:32])
        self.builder = SessionBuilder(session_id=session_id_of(importer, *names), importer=importer, started=first.time)
        self.blobs: BlobMaker = self.builder.blobs
        self.calls = ToolCalls(self.builder, HARNESS)
        self.turn_id: str | None = None
        self.cancel: tuple[str | None, str | None] = (None, None)
        self.cancelled_by: Added | None = None
        self._of: dict[str, Added] = {}

    def begin(self, event: NativeEvent) -> None:
        """The session; all that the first event says stands in the workflow's configuration, its input as the goal."""
        own = event.attributes
        kind = short_text(Fields(own.data).take_object("workflowType").get("name")) or "unknown"
        parent = Fields(own.data).take_object("parentWorkflowExecution")
        parent_id = None
        if parent.get("workflowId") and parent.get("runId"):
            parent_id = session_id_of(self.importer, parent["workflowId"], parent["runId"])
        continued = own.data.get("continuedExecutionRunId")
        if parent_id is None and continued and own.data.get("workflowId"):
            parent_id = session_id_of(self.importer, own.data["workflowId"], continued)
        given = joined(payloads_of(own.data.get("input")))
        goal = None if given is None else self.blobs.of_bytes(given.data, given.media_type)
        names = ("workflowId", "originalExecutionRunId", "firstExecutionRunId")
        created = SessionCreated(
            profile="IMPORTED",
            workflow_name=kind,
            relation="NONE" if parent_id is None else "CHILD" if parent else "CONTINUATION",
            parent_session=parent_id,
            labels=labels_of("temporal", [(name, own.data.get(name)) for name in names]),
            goal=goal,
        )
        pin = Pin("WORKFLOW", kind, None, plain(own.take_all()))
        begin_session(self.builder, created, (pin,), self.source(event), HARNESS)

    def source(self, event: NativeEvent) -> Source:
        return Source(f"{event.ref} (event {event.id})", event.time, event.digest)

    def number(self, kind: str) -> str:
        """``<turn>/<kind><n>`` for what has no id of its own."""
        return self.builder.number(f"{self.turn_id or 'session'}/{kind}")

    def of(self, native_id: Any) -> Added | None:
        """The last event that came of a native one."""
        return self._of.get(str(native_id))

    def add(
        self,
        event: NewEvent,
        native: NativeEvent,
        actor: Actor,
        *,
        cause: Added | None = None,
        synthesized: bool = False,
    ) -> Added:
        added = self.builder.add(
            event, self.source(native), actor, cause=cause, turn_id=self.turn_id, synthesized=synthesized
        )
        self._of[native.id] = added
        return added

    def became(self, native: NativeEvent, added: Added) -> None:
        """What came of a native event was added otherwise."""
        self._of[native.id] = added

    def sender(self, event: NativeEvent) -> str:
        """The process that the event came from: it names no person."""
        meta = Fields(Fields(event.attributes.data).take_object("acceptedRequest")).take_object("meta")
        return short_text(event.attributes.take("identity") or meta.get("identity"), 256) or "unknown"

    def note(self, event: NativeEvent, data: Any = None, *, cause: Added | None = None) -> None:
        """Keep a native event, or what of it has no event of its own."""
        blob = self.blobs.of_json(plain(event.data) if data is None else data)
        self.add(NoteRecorded(kind=f"temporal.{event.type}", data=blob), event, HARNESS, cause=cause)

    def failure(self, failure: Any) -> ErrorInfo:
        """A failure as Temporal tells it; what caused it and where stands in the detail."""
        told: dict[str, Any] = failure if isinstance(failure, dict) else {}
        kinds = [name for name in told if name.endswith("FailureInfo")]
        own = Fields(told).take_object(kinds[0]) if kinds else {}
        name = own.get("type") or (kinds[0].removesuffix("FailureInfo") if kinds else "failure")
        rest = {key: value for key, value in told.items() if key != "message" and value}
        return self.blobs.error(name, told.get("message"), plain(rest))

    def error(self, event: NativeEvent, failure: Any) -> None:
        self.add(ErrorRecorded(error=self.failure(failure)), event, HARNESS)

    def begin_turn(self, event: NativeEvent) -> None:
        self.turn_id = self.builder.number("session/t")
        self.add(TurnStarted(turn_id=self.turn_id), event, HARNESS, cause=self.of(event.id), synthesized=True)

    def end_turn(self, event: NativeEvent, *, failed: bool) -> None:
        assert self.turn_id is not None
        turn_id = self.turn_id
        ended = TurnAborted(turn_id=turn_id, reason="INTERRUPTED") if failed else TurnCompleted(turn_id=turn_id)
        self.add(ended, event, HARNESS, cause=self.of(event.id), synthesized=True)
        self.turn_id = None

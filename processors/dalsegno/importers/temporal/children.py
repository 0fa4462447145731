"""Child workflows: calls that another session does the work of."""

from __future__ import annotations

from typing import Any

from dalsegno.importers.fields import Fields
from dalsegno.importers.opening import session_id_of
from dalsegno.importers.payload import short_text
from dalsegno.importers.temporal.context import HARNESS, Run
from dalsegno.importers.temporal.history import NativeEvent, joined, payloads_of, plain
from dalsegno.importers.tool_calls import ToolCall
from dalsegno.model.events import SubSessionEnded
from dalsegno.model.payloads import SubSessionOutcome


class Children:
    """The child workflows of one run, by the event that asked for them."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._open: dict[str, ToolCall] = {}
        self._sessions: dict[str, str] = {}

    def initiated(self, event: NativeEvent) -> bool:
        fields = event.attributes
        given = joined(payloads_of(fields.take("input")))
        call = self._run.calls.request(
            f"session/w{event.id}",
            short_text(fields.take_object("workflowType").get("name")),
            None if given is None else given.data,
            self._run.source(event),
            native_id=short_text(fields.take("workflowId")) or None,
            cause=self._run.of(fields.take("workflowTaskCompletedEventId")),
            turn_id=self._run.turn_id,
        )
        self._open[event.id] = call
        self._run.became(event, call.last)
        return True

    def not_started(self, event: NativeEvent) -> bool:
        key = str(event.attributes.take("initiatedEventId"))
        call = self._open.pop(key, None)
        if call is None:
            return False
        self._run.calls.fail(call, self._run.source(event), "INFRA", "not started", event.attributes.take("cause"))
        return True

    def started(self, event: NativeEvent) -> bool:
        fields = event.attributes
        key = str(fields.take("initiatedEventId"))
        call = self._open.get(key)
        execution = Fields(fields.data).take_object("workflowExecution")
        if call is None or not execution.get("workflowId") or not execution.get("runId"):
            return False
        fields.take("workflowExecution")
        child = session_id_of(self._run.importer, execution["workflowId"], execution["runId"])
        self._run.calls.start(call, self._run.source(event), child_session=child)
        self._sessions[key] = child
        self._run.became(event, call.last)
        return True

    def ended(self, event: NativeEvent, outcome: SubSessionOutcome) -> bool:
        fields = event.attributes
        key = str(fields.data.get("initiatedEventId"))
        if key not in self._sessions:
            return False
        call, child = self._open.pop(key), self._sessions.pop(key)
        fields.take_each("initiatedEventId", "startedEventId", "workflowExecution")
        result: Any = plain(fields.take("result") or fields.take("failure"))
        ended = SubSessionEnded(
            child_session=child,
            tool_call_id=call.id,
            outcome=outcome,
            result=None if result is None else self._run.blobs.of_json(result),
        )
        self._run.became(event, self._run.calls.end(call, ended, self._run.source(event), HARNESS))
        return True

"""Activities: calls of a model, by their name, and calls of tools, which are all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from dalsegno.importers.builder import PERSON, Added, model_actor
from dalsegno.importers.given import ToolSets
from dalsegno.importers.payload import digest_of, short_text
from dalsegno.importers.temporal.context import HARNESS, Run
from dalsegno.importers.temporal.history import NativeEvent, Payload, joined, payloads_of, plain
from dalsegno.importers.temporal.models import (
    MODEL_ACTIVITY,
    Given,
    output_of,
    parts_of,
    question_of,
    usage_of,
    wanted_of,
)
from dalsegno.importers.tool_calls import ToolCall
from dalsegno.importers.wanted import requested_calls
from dalsegno.model.events import (
    ContextItemRetrieved,
    InferenceCompleted,
    InferenceFailed,
    InferenceRequested,
    MessageReceived,
    Part,
)

_ROLES = {"user": "USER", "system": "SYSTEM", "developer": "DEVELOPER"}


@dataclass
class Activity:
    """One activity; ``call`` is set for a tool, ``inference_id`` for a model."""

    requested: Added
    inference_id: str | None = None
    model: str | None = None
    call: ToolCall | None = None
    began: int | None = None
    executor: str | None = None


class Activities:
    """The activities of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._open: dict[str, Activity] = {}
        self._tool_sets = ToolSets(run.blobs)
        self._instructions: set[str] = set()
        self.given = Given()

    def open_inferences(self) -> list[str]:
        return [each.inference_id for each in self._open.values() if each.inference_id is not None]

    def scheduled(self, event: NativeEvent) -> bool:
        fields = event.attributes
        name = short_text(fields.take_object("activityType").get("name"))
        payloads = payloads_of(fields.take("input"))
        cause = self._run.of(fields.take("workflowTaskCompletedEventId"))
        if MODEL_ACTIVITY.search(name):
            activity = self._asked(event, payloads, cause)
        else:
            activity = self._called(event, name, payloads, cause)
        self._open[event.id] = activity
        self._run.became(event, activity.requested)
        return True

    def started(self, event: NativeEvent) -> bool:
        """Of a model's call it tells when the answer began to be made; attempts before it are not in a history."""
        fields = event.attributes
        activity = self._open.get(str(fields.take("scheduledEventId")))
        if activity is None:
            return False
        activity.began = event.time
        if fields.data.get("attempt") == 1:
            fields.take("attempt")
        elif fields.data.get("attempt"):
            self._run.report.warnings.append(
                f"{event.ref}: attempts before number {fields.data['attempt']} are not told"
            )
        if fields.data.get("lastFailure"):
            self._run.error(event, fields.take("lastFailure"))
        if activity.call is not None:
            executor = short_text(fields.take("identity"), 256) or None
            self._run.calls.start(activity.call, self._run.source(event), executor=executor)
            self._run.became(event, activity.call.last)
        return True

    def completed(self, event: NativeEvent) -> bool:
        fields = event.attributes
        activity = self._open.pop(str(fields.take("scheduledEventId")), None)
        if activity is None:
            return False
        fields.take("startedEventId")
        payloads = payloads_of(fields.take("result"))
        if activity.call is None:
            self._answered(event, activity, payloads)
        else:
            result = joined(payloads)
            given = "" if result is None else result.data
            self._run.became(event, self._run.calls.receive(activity.call, self._run.source(event), given))
        return True

    def failed(self, event: NativeEvent, how: Literal["failed", "TIMEOUT", "CANCELLED"]) -> bool:
        """A tool that ran and gave an error has its receipt; one that ran out of time, or was cancelled, has none."""
        fields = event.attributes
        activity = self._open.pop(str(fields.take("scheduledEventId")), None)
        if activity is None:
            return False
        fields.take("startedEventId")
        failure = fields.take("failure", {})
        source = self._run.source(event)
        if activity.inference_id is not None:
            error = self._run.failure(failure) if failure else self._run.blobs.error(how, "")
            ended = InferenceFailed(inference_id=activity.inference_id, error=error)
            self._run.add(ended, event, model_actor(activity.model), cause=activity.requested)
        elif activity.call is not None:
            told = failure if isinstance(failure, dict) else {}
            if how == "failed":
                self._run.calls.receive(activity.call, source, plain(failure), "ERROR")
            else:
                self._run.calls.fail(activity.call, source, how, how, told.get("message"), plain(failure))
        return True

    # --- models --------------------------------------------------------------------------------------------------

    def _asked(self, event: NativeEvent, payloads: list[Payload], cause: Added | None) -> Activity:
        question = question_of(payloads[0].value()) if len(payloads) == 1 else None
        tools_digest = None
        if question is not None:
            self._context(event, question.instructions, question.items)
            tools_digest = self._tools(event, question.tools)
        params = question.params if question is not None else [payload.plain() for payload in payloads]
        inference_id = self._run.number("i")
        request = InferenceRequested(
            inference_id=inference_id,
            purpose="AGENT",
            model=None if question is None else question.model,
            request_digest=digest_of(b"".join(payload.data for payload in payloads)),
            tools_digest=tools_digest,
            params=self._run.blobs.of_json(params),
        )
        requested = self._run.add(request, event, HARNESS, cause=cause)
        return Activity(requested, inference_id=inference_id, model=request.model)

    def _context(self, event: NativeEvent, instructions: str | None, items: Any) -> None:
        """What the model is given and no event holds yet. Results that the workflow made by itself show here."""
        run = self._run
        if instructions is not None and instructions not in self._instructions:
            self._instructions.add(instructions)
            said = MessageReceived(
                message_id=self._run.number("m"), role="SYSTEM", parts=[run.blobs.part(instructions)]
            )
            run.add(said, event, HARNESS)
        for item in self.given.new(items):
            call = None
            if item.get("type") == "function_call_output":
                call = run.calls.open_call(short_text(item.get("call_id")))
            role = _ROLES.get(str(item.get("role")))
            if call is not None:
                run.calls.receive(call, run.source(event), item.get("output", ""), synthesized=True)
            elif role is not None:
                message = MessageReceived(message_id=self._run.number("m"), role=role, parts=parts_of(item, run.blobs))  # type: ignore[arg-type]
                run.add(message, event, PERSON if role == "USER" else HARNESS)
            else:
                retrieved = ContextItemRetrieved(item_id=self._run.number("r"), content=run.blobs.of_json(item))
                run.add(retrieved, event, HARNESS)

    def _tools(self, event: NativeEvent, tools: Any) -> bytes | None:
        if tools is None:
            return None
        digest, item = self._tool_sets.offered(tools)
        if item is not None:
            self._run.add(item, event, HARNESS)
        return digest

    def _answered(self, event: NativeEvent, activity: Activity, payloads: list[Payload]) -> None:
        assert activity.inference_id is not None
        run, raw = self._run, joined(payloads)
        value = None if raw is None else raw.value()
        items = output_of(value)
        self.given.answered(items)
        wanted = wanted_of(items)
        parts: list[Part] = [part for item in items for part in parts_of(item, run.blobs)]
        told = value if isinstance(value, dict) else {}
        answer = InferenceCompleted(
            inference_id=activity.inference_id,
            usage=usage_of(value),
            latency_ms=_milliseconds(activity.began, event.time),
            model=activity.model,
            response_id=short_text(told.get("response_id")) or None,
            output_digest=None if raw is None else digest_of(raw.data),
            tool_calls=requested_calls(activity.inference_id, wanted),
            output=parts,
            raw=None if raw is None else run.blobs.of_bytes(raw.data, raw.media_type),
        )
        model = model_actor(activity.model)
        completed = run.add(answer, event, model, cause=activity.requested)
        source = run.source(event)
        run.calls.request_each(activity.inference_id, wanted, source, cause=completed, turn_id=run.turn_id)

    # --- tools ---------------------------------------------------------------------------------------------------

    def _called(self, event: NativeEvent, name: str, payloads: list[Payload], cause: Added | None) -> Activity:
        """An activity of the name of a tool that a model asked for is that call, else a call of the workflow's own."""
        call = self._run.calls.waiting(name)
        if call is None:
            given = joined(payloads)
            native_id = short_text(event.attributes.take("activityId")) or None
            call = self._run.calls.request(
                self._run.number("x"),
                name,
                None if given is None else given.data,
                self._run.source(event),
                native_id=native_id,
                cause=cause,
                turn_id=self._run.turn_id,
            )
        self._run.calls.let_run(call, self._run.source(event))
        return Activity(call.last, call=call)


def _milliseconds(began: int | None, ended: int | None) -> int | None:
    """None, unknown, also where clocks say that it ended before it began."""
    return None if began is None or ended is None or ended < began else (ended - began) // 1000

"""OpenHands v1, the SDK: events that name their ``kind`` and, where they answer one, their action.

An answer of a model is told by its actions alone, one for each call, which share ``llm_response_id`` and follow each
other. They are one inference as soon as another event closes the group; at the end of a file that may still grow the
group stays open, and its lines are left for the import of the longer file. How many tokens an answer took is not told:
the statistics of the conversation, which are kept as notes, are running totals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dalsegno.importers.base import ImportedSession, ImportReport
from dalsegno.importers.builder import PERSON, Source
from dalsegno.importers.fields import Fields
from dalsegno.importers.openhands.actions import ACTION, answer_of, group_at, says_all, wanted_of
from dalsegno.importers.openhands.completions import parts_of
from dalsegno.importers.openhands.conversation import Conversation
from dalsegno.importers.openhands.leave import Leave
from dalsegno.importers.openhands.records import Answer, Record, given_to, native_id
from dalsegno.importers.payload import count, exit_code, short_text
from dalsegno.importers.tool_calls import ToolCall
from dalsegno.model.payloads import Risk

_CARRIED = ("id", "timestamp", "source", "kind")
_SAID = ("role", "content", "reasoning_content")
"""What of a message its parts hold."""
_RISKS: dict[str, Risk] = {"LOW": "LOW", "MEDIUM": "MEDIUM", "HIGH": "HIGH"}
_KEPT_AS_NOTES = frozenset(
    {
        "CondensationRequest", "CondensationSummaryEvent", "TokenEvent", "LLMCompletionLogEvent", "ACPToolCallEvent",
        "StreamingDeltaEvent",
    }
)  # fmt: skip
_Handler = Callable[["_Mapping", Fields, Source], bool]


def is_v1(data: dict[str, Any]) -> bool:
    return isinstance(data.get("kind"), str) and "timestamp" in data and "source" in data and "id" in data


def map_v1(importer: str, records: list[Record], report: ImportReport, *, may_grow: bool) -> ImportedSession:
    return _Mapping(importer, records, report).session(may_grow=may_grow)


class _Mapping:
    """One conversation."""

    def __init__(self, importer: str, records: list[Record], report: ImportReport) -> None:
        first = records[0]
        self.talk = Conversation(importer, "v1", first, short_text(first.id, 256) or first.digest.hex(), report)
        self.blobs = self.talk.blobs
        self.report = report
        self._records = records
        self._seen: set[int | str] = set()
        self._calls: dict[int | str, ToolCall] = {}
        self._leave = Leave(self.talk)

    def session(self, *, may_grow: bool) -> ImportedSession:
        at, end = 0, len(self._records)
        while at < end:
            group = group_at(self._records, at)
            if may_grow and at + len(group) == end and group[0].data["kind"] == ACTION:
                self._left_open(group)
                break
            for index, record in enumerate(group):
                self._map(record, group[index:])
            at += len(group)
        return self.talk.session(self._records[:at])

    def _left_open(self, group: list[Record]) -> None:
        self.report.records[ACTION] += len(group)
        self.report.waiting[ACTION] += len(group)
        first = group[0].place[1:]
        self.report.warnings.append(f"from line {first} on: more calls of the answer may follow; left until then")

    def _map(self, record: Record, group: list[Record]) -> None:
        kind = short_text(record.data["kind"], 64)
        source, fields = self.talk.source(record), Fields(record.data, _CARRIED)
        self.report.records[kind] += 1
        if record.id is not None:
            self._seen.add(record.id)
        if kind == ACTION:
            mapped = self._action(record, group, fields, source)
        else:
            handler = _HANDLERS.get(kind)
            mapped = handler is not None and handler(self, fields, source)
            if handler is None and kind not in _KEPT_AS_NOTES:
                self.report.unknown[kind] += 1
        if not mapped:
            self.report.notes[kind] += 1
            self.talk.note(f"openhands.{kind}", record.data, source)
            return
        self.report.mapped[kind] += 1
        self.report.left(kind, fields.left())

    # --- models and tools ----------------------------------------------------------------------------------------

    def _action(self, record: Record, group: list[Record], fields: Fields, source: Source) -> bool:
        call_id = short_text(fields.take("tool_call_id")) or None
        response_id = short_text(fields.take("llm_response_id")) or None
        inference = self.talk.answered(response_id, lambda: answer_of(group, self.blobs), source)
        wanted = wanted_of(record)
        fields.take_each("tool_name", "tool_call", "thought", "reasoning_content", "thinking_blocks")
        action = fields.data.get("action")
        if isinstance(action, dict) and (wanted.given is action or says_all(given_to(wanted), action)):
            fields.take("action")
        risk = _RISKS.get(str(fields.take("security_risk")), "UNKNOWN")
        call = self.talk.wants(inference, call_id, wanted.name, wanted.given, source, risk=risk)
        if record.id is not None:
            self._calls[record.id], self.talk.items[record.id] = call, call.id
        return True

    def _call_of(self, fields: Fields, source: Source) -> ToolCall:
        """The call that this event answers; where its action is not in the file, that it was asked for follows."""
        action_id = native_id(fields.take("action_id"))
        call_id, name = short_text(fields.take("tool_call_id")) or None, short_text(fields.take("tool_name"))
        call = self._calls.get(action_id) if action_id is not None else None
        if call is None and call_id is not None:
            call = self.talk.calls.open_call(call_id)
        if call is None:
            self.report.warnings.append(f"{source.ref}: a result of an action that is not in the file")
            before = source._replace(time=None)
            call = self.talk.wants(None, call_id, name, None, before, synthesized=True)
        return call

    def observation(self, fields: Fields, source: Source) -> bool:
        result = fields.data.get("observation")
        if not isinstance(result, dict):
            return False
        call = self._call_of(fields, source)
        if call.done:
            return False
        fields.take("observation")
        failed = result.get("is_error") is True
        self.talk.calls.receive(
            call, source, result, "ERROR" if failed else "OK", exit_code=exit_code(result.get("exit_code"))
        )
        return True

    def agent_error(self, fields: Fields, source: Source) -> bool:
        """The harness could not run the call."""
        call = self._call_of(fields, source)
        if call.done:
            return False
        self.talk.calls.fail(call, source, "INFRA", "AgentErrorEvent", fields.take("error"))
        return True

    def rejected(self, fields: Fields, source: Source) -> bool:
        call = self._call_of(fields, source)
        if call.done:
            return False
        reason, by_hook = fields.take("rejection_reason"), fields.take("rejection_source") == "hook"
        (self._leave.blocked if by_hook else self._leave.deny)(call, reason, source)
        return True

    def hook(self, fields: Fields, source: Source) -> bool:
        """One that let everything pass decided nothing."""
        if fields.data.get("blocked") is not True:
            return False
        action_id = native_id(fields.data.get("action_id"))
        call = None if action_id is None else self._calls.get(action_id)
        self._leave.block(call, fields.data.get("reason"), fields.take_all(), source)
        return True

    # --- messages ------------------------------------------------------------------------------------------------

    def message(self, fields: Fields, source: Source) -> bool:
        said = fields.data.get("llm_message")
        if not isinstance(said, dict):
            return False
        if fields.data.get("source") == "agent":
            return self._agent_message(fields, said, source)
        by_user = fields.data.get("source") == "user"
        fields.take_inside("llm_message", _SAID)
        parts = parts_of(said, self.blobs)
        parts += self.blobs.parts(fields.take("extended_content"))
        id_ = native_id(fields.data.get("id"))
        message_id = self.talk.number("m") if id_ is None else short_text(id_, 128)
        if id_ is not None:
            self.talk.items[id_] = message_id
        sender = short_text(fields.take("sender"), 256) or None
        self.talk.message(message_id, "USER" if by_user else "SYSTEM", parts, source, sender)
        return True

    def _agent_message(self, fields: Fields, said: dict[str, Any], source: Source) -> bool:
        """A model's answer without calls; one that names no answer is not taken for one."""
        response_id = short_text(fields.data.get("llm_response_id")) or None
        if response_id is None:
            return False
        fields.take("llm_response_id")
        fields.take_inside("llm_message", _SAID)

        def answer() -> Answer:
            return Answer(parts=parts_of(said, self.blobs), calls=(), output=said)

        inference = self.talk.answered(response_id, answer, source)
        id_ = native_id(fields.data.get("id"))
        if id_ is not None:
            self.talk.items[id_] = inference.id
        return True

    def system_prompt(self, fields: Fields, source: Source) -> bool:
        prompt = [fields.take(name) for name in ("system_prompt", "dynamic_context") if fields.data.get(name)]
        self.talk.pins("PROMPT_TEMPLATE", "system", prompt, source)
        self.talk.pins("TOOL_CATALOG", "tools", fields.take("tools", []), source)
        return True

    def condensation(self, fields: Fields, source: Source) -> bool:
        ids = fields.take("forgotten_event_ids")
        forgotten = [each for each in ids if isinstance(each, int | str)] if isinstance(ids, list) else []
        offset = count(fields.take("summary_offset"))
        whole = bool(forgotten) and set(forgotten) <= self._seen
        self.talk.compressed(forgotten, fields.take("summary"), offset, source, whole=whole)
        return True

    # --- state ---------------------------------------------------------------------------------------------------

    def state(self, fields: Fields, source: Source) -> bool:
        """Changes of ``execution_status`` that say something new; statistics and the rest are kept as they are."""
        talk, status = self.talk, fields.data.get("value")
        if fields.data.get("key") != "execution_status" or not isinstance(status, str):
            return False
        fields.take_each("key", "value")
        if status == "running":
            return talk.runs(source)
        if status == "paused":
            return talk.pauses(source, status)
        if status == "finished":
            rested = talk.end_turn(source)
            return talk.pauses(source, status) or rested
        if status in ("error", "stuck"):
            talk.error("execution_status", status, source)
            talk.end_turn(source, "INTERRUPTED")
            return True
        return False

    def paused(self, _fields: Fields, source: Source) -> bool:
        return self.talk.pauses(source, "PauseEvent", PERSON)

    def interrupted(self, _fields: Fields, source: Source) -> bool:
        return self.talk.end_turn(source, "INTERRUPTED")

    def error(self, fields: Fields, source: Source) -> bool:
        self.talk.error(fields.take("code"), fields.take("detail"), source)
        return True


_HANDLERS: dict[str, _Handler] = {
    "ObservationEvent": _Mapping.observation,
    "AgentErrorEvent": _Mapping.agent_error,
    "UserRejectObservation": _Mapping.rejected,
    "HookExecutionEvent": _Mapping.hook,
    "MessageEvent": _Mapping.message,
    "SystemPromptEvent": _Mapping.system_prompt,
    "Condensation": _Mapping.condensation,
    "ConversationStateUpdateEvent": _Mapping.state,
    "PauseEvent": _Mapping.paused,
    "InterruptEvent": _Mapping.interrupted,
    "ConversationErrorEvent": _Mapping.error,
}

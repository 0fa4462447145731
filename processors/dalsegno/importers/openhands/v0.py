"""OpenHands v0: a list of actions and observations, which name the action that caused them.

A model's answer stands whole in ``tool_call_metadata`` of every action that came of it, and of their observations; it
is one inference. An agent's message that names no answer is not taken for one: which model wrote it is not recorded.
``id`` numbers the conversation's events, with gaps where some were left out; each event of ours names it.
"""

from __future__ import annotations

from typing import Any

from dalsegno.importers.base import ImportedSession, ImportReport
from dalsegno.importers.builder import PERSON, Source
from dalsegno.importers.fields import Fields
from dalsegno.importers.openhands.completions import completion, said
from dalsegno.importers.openhands.conversation import HARNESS, Conversation
from dalsegno.importers.openhands.leave import Leave
from dalsegno.importers.openhands.records import Inference, Record, given_to, native_id
from dalsegno.importers.payload import MESSAGE_MAX_CHARACTERS, count, exit_code, micros, parse_time, short_text
from dalsegno.importers.tool_calls import ToolCall
from dalsegno.model.events import ContextItemRetrieved, Part, RetrievalRequested
from dalsegno.model.payloads import TurnAbortReason

_AWAITS_LEAVE, _REFUSED = "awaiting_confirmation", "rejected"
_CARRIED = ("id", "timestamp", "source", "action", "observation", "cause")
_NO_TOOLS = frozenset({"change_agent_state", "null", "condensation_request", "start", "pause", "resume", "stop"})
_TOOLS = frozenset(
    {
        "run", "run_ipython", "read", "write", "edit", "browse", "browse_interactive", "call_tool_mcp", "mcp", "think",
        "delegate", "finish", "reject", "task_tracking", "push", "send_pr", "loop_recovery",
    }
)  # fmt: skip
_LAST_TOOLS = frozenset({"finish", "reject"})
"""With these an agent says that it is done: nothing comes back, and the conversation waits."""
_RESTS: dict[str, TurnAbortReason | None] = {"finished": None, "rejected": "DENIED", "stopped": "CANCELLED"}
"""States in which the conversation waits until somebody says something, and why the turn was not ended in order."""
_NO_RESULTS = frozenset({"condense", "server_ready"})


def is_v0(data: dict[str, Any]) -> bool:
    known = "timestamp" in data and "source" in data and "kind" not in data
    return known and isinstance(data.get("action", data.get("observation")), str)


def map_v0(importer: str, records: list[Record], report: ImportReport) -> ImportedSession:
    return _Mapping(importer, records, report).session()


class _Mapping:
    """One conversation."""

    def __init__(self, importer: str, records: list[Record], report: ImportReport) -> None:
        self._talk = Conversation(importer, "v0", records[0], records[0].digest.hex()[:32], report)
        self._blobs = self._talk.blobs
        self._records = records
        self._report = report
        self._seen: list[int] = []
        self._calls: dict[int | str, ToolCall] = {}
        self._retrievals: dict[int | str, str] = {}
        self._leave = Leave(self._talk)

    def session(self) -> ImportedSession:
        for record in self._records:
            if isinstance(record.id, int):
                if self._seen and record.id != self._seen[-1] + 1:
                    self._report.warnings.append(f"{record.place}: event ids go from {self._seen[-1]} to {record.id}")
                self._seen.append(record.id)
            self._map(record)
        self._compare_clocks()
        return self._talk.session(self._records)

    def _compare_clocks(self) -> None:
        """Times have no zone; those of model answers are UTC, and tell how far off that is."""
        for record in self._records:
            metadata = Fields(record.data).take_object("tool_call_metadata")
            created = micros(Fields(metadata).take_object("model_response").get("created"))
            time, naive = parse_time(record.data.get("timestamp"))
            if created is None or time is None or not naive:
                continue
            hours = round((created - time) / 3_600_000_000 * 4) / 4
            if hours:
                off = f"{abs(hours):g} h {'later' if hours > 0 else 'earlier'}"
                self._report.warnings.append(
                    f"{record.place}: the model's answer, dated in UTC, is {off}: the zone is another one"
                )
            return

    def _map(self, record: Record) -> None:
        what = "action" if isinstance(record.data.get("action"), str) else "observation"
        name = short_text(record.data[what], 64)
        kind, report, source = f"{what} {name}", self._report, self._talk.source(record)
        report.records[kind] += 1
        fields = Fields(record.data, _CARRIED)
        inner = Fields(fields.take_object("args" if what == "action" else "extras"))
        handle = self._action if what == "action" else self._observation
        if not handle(name, record, fields, inner, source):
            report.notes[kind] += 1
            self._talk.note(f"openhands.{kind}", record.data, source)
            return
        report.mapped[kind] += 1
        report.left(kind, [*fields.left(), *inner.left()])

    # --- actions -------------------------------------------------------------------------------------------------

    def _action(self, name: str, record: Record, fields: Fields, args: Fields, source: Source) -> bool:
        if name == "message":
            return self._message(record, fields, args, source)
        if name == "system":
            self._talk.pins("PROMPT_TEMPLATE", "system", args.take("content", ""), source)
            self._talk.pins("TOOL_CATALOG", "tools", args.take("tools", []), source)
            return True
        if name == "recall" and record.id is not None:
            item_id = self._retrievals[record.id] = self._talk.items[record.id] = self._talk.number("r")
            query = self._blobs.of_json(args.take_all())
            self._talk.add(RetrievalRequested(item_id=item_id, kind="RETRIEVED", query=query), source, HARNESS)
            return True
        if name == "condensation":
            return self._condensation(args, source)
        if name in _NO_TOOLS:
            return False
        if name not in _TOOLS and not fields.data.get("tool_call_metadata"):
            self._report.unknown[f"action {name}"] += 1
            return False
        self._tool(name, record, fields, args, source)
        if name in _LAST_TOOLS:
            self._talk.end_turn(source)
            self._talk.pauses(source, name)
        return True

    def _message(self, record: Record, fields: Fields, args: Fields, source: Source) -> bool:
        content = args.data.get("content")
        by_user = record.data.get("source") == "user"
        if not isinstance(content, str) or not (by_user or args.data.get("wait_for_response")):
            return False
        args.take_each("content", "wait_for_response")
        if fields.data.get("message") == content:
            fields.take("message")
        if not by_user:
            item_id = self._talk.asks(content, source)
        else:
            item_id = self._talk.number("m") if record.id is None else f"m{short_text(record.id, 64)}"
            images = args.take("image_urls")
            parts = [self._blobs.part(content)]
            for image in images if isinstance(images, list) else []:
                parts.append(Part(kind="MEDIA", name="image_url", blob=self._blobs.of_value(image)))
            self._talk.message(item_id, "USER", parts, source)
        if record.id is not None:
            self._talk.items[record.id] = item_id
        return True

    def _tool(self, name: str, record: Record, fields: Fields, args: Fields, source: Source) -> None:
        metadata = fields.take_object("tool_call_metadata")
        native_call = short_text(metadata.get("tool_call_id")) or None
        inference = self._inference(metadata, source)
        state = args.take("confirmation_state")
        call = self._leave.waiting.get(native_call or "")
        if call is not None:  # the action again, now that somebody has answered
            args.take_all()
            if state != _REFUSED:
                del self._leave.waiting[native_call or ""]
                if not call.done:
                    self._talk.calls.start(call, source)
        else:
            call = self._new_call(name, native_call, metadata, inference, record, args, source)
            if state == _AWAITS_LEAVE:
                self._leave.ask(call, source)
            elif state != _REFUSED:
                self._talk.calls.start(call, source)
        if record.id is not None:
            self._calls[record.id], self._talk.items[record.id] = call, call.id

    def _new_call(
        self,
        name: str,
        native_call: str | None,
        metadata: dict[str, Any],
        inference: Inference | None,
        record: Record,
        args: Fields,
        source: Source,
    ) -> ToolCall:
        """The model's own arguments are kept where it is known; the action's, which were made of them, are left."""
        wanted = None if inference is None else inference.wanted(native_call)
        given = None
        if wanted is None:
            given = args.take_all()
        else:
            args.take_each(*(field for field, value in given_to(wanted).items() if args.data.get(field) == value))
            if args.data.get("thought") in said(metadata["model_response"]):
                args.take("thought")
        function = short_text(metadata.get("function_name") or name)
        actor = PERSON if record.data.get("source") == "user" else HARNESS
        return self._talk.wants(inference, native_call, function, given, source, actor=actor)

    def _inference(self, metadata: dict[str, Any], source: Source) -> Inference | None:
        response = metadata.get("model_response")
        if not isinstance(response, dict):
            return None
        response_id = short_text(response.get("id")) or None
        return self._talk.answered(response_id, lambda: completion(response, self._blobs), source)

    def _condensation(self, args: Fields, source: Source) -> bool:
        ids = args.take("forgotten_event_ids")
        first, last = args.take("forgotten_events_start_id"), args.take("forgotten_events_end_id")
        if isinstance(ids, list):
            forgotten = [each for each in ids if isinstance(each, int)]
            whole = set(forgotten) <= set(self._seen)
        elif isinstance(first, int) and isinstance(last, int):
            forgotten = [each for each in self._seen if first <= each <= last]
            whole = first in forgotten and last in forgotten
        else:
            return False
        insert_at = count(args.take("summary_offset"))
        self._talk.compressed(forgotten, args.take("summary"), insert_at, source, whole=whole)
        return True

    # --- observations --------------------------------------------------------------------------------------------

    def _observation(self, name: str, record: Record, fields: Fields, extras: Fields, source: Source) -> bool:
        if name == "agent_state_changed":
            fields.take("content")
            return self._state(str(extras.take("agent_state")), extras.take("reason"), source)
        cause = native_id(record.data.get("cause"))
        call = None if cause is None else self._calls.get(cause)
        if name == "user_rejected" and call is not None and not call.done:
            fields.take("tool_call_metadata")  # the action's again
            self._leave.deny(call, fields.take("content"), source)
            return True
        if name == "recall" and cause is not None and cause in self._retrievals:
            found = {"content": fields.take("content", ""), "extras": extras.take_all()}
            event = ContextItemRetrieved(item_id=self._retrievals.pop(cause), content=self._blobs.of_json(found))
            self._talk.add(event, source, HARNESS)
            return True
        metadata = fields.data.get("tool_call_metadata")
        if call is None and isinstance(metadata, dict) and name not in _NO_RESULTS:
            call = self._unseen(metadata, record, source)
        if call is not None and not call.done:
            self._receipt(name, call, fields, extras, source)
            return True
        if name == "error" and cause is None:
            kind = short_text(extras.take("error_id")) or "ErrorObservation"
            self._talk.error(kind, fields.take("content"), source)
            return True
        return False

    def _unseen(self, metadata: dict[str, Any], record: Record, source: Source) -> ToolCall:
        """A result whose action is not in the file: that it was asked for follows from it."""
        self._report.warnings.append(f"{record.place}: a result of an action that is not in the file")
        native_call = short_text(metadata.get("tool_call_id")) or None
        function = short_text(metadata.get("function_name") or record.data.get("observation"))
        before = source._replace(time=None)
        inference = self._inference(metadata, before)
        return self._talk.wants(inference, native_call, function, None, before, synthesized=True)

    def _receipt(self, name: str, call: ToolCall, fields: Fields, extras: Fields, source: Source) -> None:
        fields.take("tool_call_metadata")  # the action's again
        told = Fields(extras.data).take_object("metadata").get("exit_code", extras.data.get("exit_code"))
        failed = name == "error" or fields.take("success") is False
        result = {"content": fields.take("content", ""), "extras": extras.take_all()}
        self._talk.calls.receive(call, source, result, "ERROR" if failed else "OK", exit_code=exit_code(told))

    def _state(self, state: str, reason: Any, source: Source) -> bool:
        """False for a state that says nothing new."""
        talk = self._talk
        if state == "running":
            return talk.runs(source)
        if state == "awaiting_user_input":
            return talk.end_turn(source)
        if state == "paused":
            return talk.pauses(source, state)
        if state in _RESTS:
            rested = talk.end_turn(source, _RESTS[state])
            return talk.pauses(source, state) or rested
        if state == "error":
            talk.error("AgentState", short_text(reason, MESSAGE_MAX_CHARACTERS) or state, source)
            talk.end_turn(source, "INTERRUPTED")
            return True
        return state == "user_confirmed" and self._leave.grant(source)

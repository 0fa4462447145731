"""What came back of tool calls, and what people said to them. Pure.

That a person was asked follows from the answer; when, the file does not say. Of any other call it does not say who let
it run.
"""

from __future__ import annotations

from typing import Any

from dalsegno.importers.builder import PERSON, Source
from dalsegno.importers.claude_code.content import without_copies
from dalsegno.importers.claude_code.records import Findings, Native
from dalsegno.importers.payload import MESSAGE_MAX_CHARACTERS, content_text, short_text
from dalsegno.importers.tool_calls import ToolCall
from dalsegno.importers.transcript import OpenCall, Transcript
from dalsegno.model.events import (
    ApprovalDenied,
    ApprovalGranted,
    ApprovalRequested,
    InputProvided,
    InputRequested,
    SubSessionEnded,
)
from dalsegno.model.records import Actor

DELEGATES = frozenset({"Task", "Agent"})
"""Tools that hand a prompt to another agent."""

_REJECTED = "The user doesn't want to proceed with this tool use. The tool use was rejected"
_STOP = "STOP what you are doing"
_PLAN, _PLAN_APPROVED = "ExitPlanMode", "User has approved your plan"
_QUESTION = "AskUserQuestion"


class Results:
    """The results of one session."""

    def __init__(self, transcript: Transcript, seen: Findings) -> None:
        self._transcript, self._seen = transcript, seen
        self._children: dict[str, str] = {}

    def delegate(self, prompt: str, child_session: str, source: Source) -> bool:
        """Another agent began with this prompt: whether a call here asked for it, which then has started."""
        for opened in self._transcript.open_calls():
            if not opened.call.started and asks_for(opened.wanted.name, opened.wanted.given, prompt):
                self._transcript.calls.start(opened.call, source, child_session=child_session, synthesized=True)
                self._children[opened.call.id] = child_session
                return True
        return False

    def take(self, native: Native) -> bool:
        """All results of a line; False where none belongs to a call, so that the line is to be kept whole."""
        found = [(opened, block) for block in native.results if (opened := self._call_of(block)) is not None]
        if len(found) < len(native.results):
            self._seen.loose.append(native.line.number)
            return False
        told = native.fields.take("toolUseResult")
        for opened, block in found:
            if self._one(opened, block, told, native.source) or told is None:
                continue
            text = content_text(block.get("content"))
            if not isinstance(told, str) or told not in (text, f"Error: {text}"):
                rest = without_copies(told, ("result", block.get("content")), ("arguments", opened.wanted.given))
                data = {"tool_call_id": opened.call.id, "toolUseResult": rest}
                self._transcript.note("claude-code.toolUseResult", data, native.source)
        return True

    def _call_of(self, block: dict[str, Any]) -> OpenCall | None:
        return self._transcript.open_call(block.get("tool_use_id"))

    def _one(self, opened: OpenCall, block: dict[str, Any], told: Any, source: Source) -> bool:
        """One result; True where its event holds what the harness told of it too."""
        call, name, text = opened.call, opened.wanted.name, content_text(block.get("content"))
        failed = block.get("is_error") is True
        if call.id in self._children:
            self._child_ended(opened, block, failed, source)
            return False
        if failed and text.startswith(_REJECTED):
            self._rejected(opened, text, source)
            return False
        answered = False
        if name == _PLAN and not failed and text.startswith(_PLAN_APPROVED):
            self._approved(opened, source)
        elif name == _QUESTION and not failed and isinstance(told, dict) and "answers" in told:
            self._answered(opened, told, source)
            answered = True
        self._transcript.calls.receive(call, source, block.get("content", ""), "ERROR" if failed else "OK")
        return answered

    def _child_ended(self, opened: OpenCall, block: dict[str, Any], failed: bool, source: Source) -> None:
        event = SubSessionEnded(
            child_session=self._children.pop(opened.call.id),
            tool_call_id=opened.call.id,
            outcome="FAILED" if failed else "SUCCESS",
            result=self._transcript.blobs.of_value(block.get("content", "")),
        )
        self._transcript.calls.end(opened.call, event, source, Actor("AGENT", short_text(opened.wanted.name)))

    # --- what people said --------------------------------------------------------------------------------------------

    def _asked(self, call: ToolCall, source: Source) -> str:
        event = ApprovalRequested(
            approval_id=f"{call.id}/a1",
            subject="TOOL_CALL",
            subject_id=call.id,
            arguments_digest=call.arguments_digest,
        )
        self._transcript.calls.add(call, event, source._replace(time=None), synthesized=True)
        return event.approval_id

    def _rejected(self, opened: OpenCall, text: str, source: Source) -> None:
        call, calls = opened.call, self._transcript.calls
        approval_id = self._asked(call, source)
        event = ApprovalDenied(
            approval_id=approval_id,
            effect="ABORT_TURN" if _STOP in text else "CONTINUE",
            rejection_source="USER",
            explanation=short_text(text, MESSAGE_MAX_CHARACTERS),
        )
        calls.add(call, event, source, PERSON)
        calls.reject(call, source, "APPROVAL_DENIED", text, cites=approval_id)

    def _approved(self, opened: OpenCall, source: Source) -> None:
        call, calls = opened.call, self._transcript.calls
        approval_id = self._asked(call, source)
        event = ApprovalGranted(approval_id=approval_id, arguments_digest=call.arguments_digest)
        calls.add(call, event, source, PERSON)
        calls.let_run(call, source, "APPROVAL", approval_id=approval_id)

    def _answered(self, opened: OpenCall, told: dict[str, Any], source: Source) -> None:
        """Questions of a model to the user, and the answers; they stand in the call's result too, as one text."""
        call, blobs = opened.call, self._transcript.blobs
        self._transcript.calls.start(call, source, synthesized=True)
        request_id = f"{call.id}/in1"
        rest = {name: value for name, value in told.items() if name != "answers"}
        request = InputRequested(request_id=request_id, prompt=blobs.of_json(rest))
        at = source._replace(time=None)
        asked = self._transcript.add(request, at, cause=call.last, turn_id=call.turn_id, synthesized=True)
        answer = InputProvided(request_id=request_id, outcome="ACCEPTED", content=blobs.of_json(told["answers"]))
        self._transcript.add(answer, source, PERSON, cause=asked, turn_id=call.turn_id)


def asks_for(name: str, given: Any, prompt: str) -> bool:
    """Whether a call hands this prompt to another agent."""
    return name in DELEGATES and isinstance(given, dict) and given.get("prompt") == prompt

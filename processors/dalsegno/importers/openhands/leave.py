"""Who let a call run and who did not, as far as a conversation tells it."""

from __future__ import annotations

from typing import Any

from dalsegno.importers.builder import PERSON, Source
from dalsegno.importers.openhands.conversation import Conversation
from dalsegno.importers.payload import MESSAGE_MAX_CHARACTERS, short_text
from dalsegno.importers.tool_calls import ToolCall
from dalsegno.model.events import ApprovalDenied, ApprovalGranted, ApprovalRequested, PolicyEvaluated
from dalsegno.model.records import Actor

HOOK = Actor("POLICY", "hook")


class Leave:
    """Approvals and decisions of hooks. ``waiting``: calls that wait for leave, by the native id of the call."""

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk
        self.waiting: dict[str, ToolCall] = {}
        self._blocked: dict[str, str] = {}
        """Call id -> the decision of the hook that blocked it."""

    def ask(self, call: ToolCall, source: Source, *, synthesized: bool = False) -> None:
        """``synthesized``: that somebody was asked follows from the answer, and when is not known."""
        event = ApprovalRequested(
            approval_id=_approval_of(call),
            subject="TOOL_CALL",
            subject_id=call.id,
            arguments_digest=call.arguments_digest,
        )
        at = source._replace(time=None) if synthesized else source
        self._talk.calls.add(call, event, at, synthesized=synthesized)
        if not synthesized:
            self.waiting[call.native_id or call.id] = call

    def grant(self, source: Source) -> bool:
        """Somebody allowed what waits. False where nothing does."""
        for call in self.waiting.values():
            granted = ApprovalGranted(approval_id=_approval_of(call), arguments_digest=call.arguments_digest)
            self._talk.calls.add(call, granted, source, PERSON)
            self._talk.calls.let_run(call, source, "APPROVAL", approval_id=_approval_of(call))
        return bool(self.waiting)

    def deny(self, call: ToolCall, reason: Any, source: Source) -> None:
        """A person refused the call."""
        if self.waiting.pop(call.native_id or call.id, None) is None:
            self.ask(call, source, synthesized=True)
        said = short_text(reason, MESSAGE_MAX_CHARACTERS) or None
        denied = ApprovalDenied(approval_id=_approval_of(call), rejection_source="USER", explanation=said)
        self._talk.calls.add(call, denied, source, PERSON)
        if call.allowed:
            self._talk.calls.fail(call, source, "CANCELLED", "rejected", said)
        else:
            self._talk.calls.reject(call, source, "APPROVAL_DENIED", said, _approval_of(call))

    def block(self, call: ToolCall | None, reason: Any, told: Any, source: Source) -> None:
        """A hook refused a call, or what somebody said. ``told`` is all that is recorded of it."""
        self._decide(call, reason, told, source)

    def blocked(self, call: ToolCall, reason: Any, source: Source) -> None:
        """A call did not run since a hook blocked it."""
        decision_id = self._blocked.get(call.id)
        if decision_id is None:
            decision_id = self._decide(call, reason, None, source, synthesized=True)
        if call.allowed:
            self._talk.calls.fail(call, source, "CANCELLED", "blocked", reason)
        else:
            self._talk.calls.reject(call, source, "POLICY_DENY", reason, decision_id)

    def _decide(
        self, call: ToolCall | None, reason: Any, told: Any, source: Source, *, synthesized: bool = False
    ) -> str:
        decision_id = self._talk.number("d")
        event = PolicyEvaluated(
            decision_id=decision_id,
            subject="INPUT" if call is None else "TOOL_CALL",
            subject_id=None if call is None else call.id,
            decision="DENY",
            engine="hook",
            input_digest=None if call is None else call.arguments_digest,
            explanation=short_text(reason, MESSAGE_MAX_CHARACTERS) or None,
            input=None if told is None else self._talk.blobs.of_json(told),
        )
        if call is None:
            self._talk.add(event, source, HOOK, synthesized=synthesized)
        else:
            self._talk.calls.add(call, event, source, HOOK, synthesized=synthesized)
            self._blocked[call.id] = decision_id
        return decision_id


def _approval_of(call: ToolCall) -> str:
    return f"{call.id}/a1"

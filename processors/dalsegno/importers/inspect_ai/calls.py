"""Tool calls: asked for, authorised or rejected, started, ended.

An Inspect log holds a tool event per call, and approval events only where an approver was configured. A call without
one is authorised with the basis UNRECORDED_IMPORT: the log does not say who let it run. Providers use a call id again
in later turns and even twice in one, so a native id alone names nothing: see ``Calls._take_offer``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dalsegno.importers.builder import Added, SessionBuilder, Source
from dalsegno.importers.inspect_ai.messages import Conversation
from dalsegno.importers.inspect_ai.order import BEGIN, END, Moment
from dalsegno.importers.inspect_ai.record import Native, Resolver
from dalsegno.importers.inspect_ai.stages import HARNESS
from dalsegno.importers.payload import clean_text, digest_of, json_bytes
from dalsegno.model.events import (
    ErrorInfo,
    NewEvent,
    ToolCallAuthorized,
    ToolCallFailed,
    ToolCallRejected,
    ToolCallRequested,
    ToolCallStarted,
    ToolReceiptRecorded,
    Truncation,
)
from dalsegno.model.records import Actor

_NOT_RUN = {"approval": "APPROVAL_DENIED", "parsing": "INVALID_ARGUMENTS"}
_HARD_FAILURES = {"timeout": "TIMEOUT", "cancelled": "CANCELLED"}


class Offer(NamedTuple):
    """A call that a model asked for."""

    call_id: str
    inference_id: str
    completed: Added
    name: str
    arguments_digest: bytes


@dataclass
class Call:
    """One call. ``decided`` is None until it was authorised (True) or rejected (False)."""

    id: str
    native_id: str
    requested: Added
    arguments_digest: bytes
    stage_id: str | None
    decided: bool | None = None
    decision: Added | None = None
    begun: Source | None = None
    executor: str | None = None
    started: Added | None = None
    done: bool = False
    policies: int = 0
    approvals: int = 0
    pending_decision: str | None = None
    used: bool = field(default=False)


class Calls:
    """The tool calls of one sample."""

    def __init__(self, builder: SessionBuilder, resolver: Resolver, conversation: Conversation) -> None:
        self.builder = builder
        self.resolver = resolver
        self._conversation = conversation
        self._offers: dict[str, list[Offer]] = defaultdict(list)
        self._calls: list[Call] = []
        self._by_ref: dict[str, Call] = {}
        self._open: dict[str, Call] = {}
        self._awaited: set[str] = set()

    def look_ahead(self, moments: list[Moment]) -> None:
        """Note which calls have an approval recorded behind their begin: those start only then."""
        running: dict[str, str] = {}
        for phase, native in moments:
            if native.kind == "tool":
                native_id = str(native.data.get("id"))
                if phase == BEGIN:
                    running[native_id] = native.ref
                elif phase == END:
                    running.pop(native_id, None)
            elif native.kind == "approval" and native.data.get("stage", "call") == "call":
                ref = running.get(str((native.data.get("call") or {}).get("id")))
                if ref is not None:
                    self._awaited.add(ref)

    def offer(self, native_id: str, offer: Offer) -> None:
        self._offers[native_id].append(offer)

    def open_calls(self) -> list[str]:
        return [call.id for call in self._calls if not call.done]

    def begin(self, native: Native, source: Source, stage_id: str | None) -> None:
        native_id, name = str(native.take("id")), str(native.take("function"))
        native.take("type")
        call = self._open.get(native_id)
        if call is None or call.used:
            call = self.request(native_id, name, native.take("arguments"), source, stage_id)
        else:
            native.take("arguments")
        call.used, call.begun = True, source
        agent = native.take_text("agent")
        call.executor = f"agent {clean_text(agent)}" if agent else None
        self._by_ref[native.ref] = call
        given = native.data.get("error")
        error: dict[str, Any] = given if isinstance(given, dict) else {}
        refusal = _NOT_RUN.get(str(error.get("type")))
        if call.decided is None and native.ref not in self._awaited:
            if refusal is not None:
                native.take("error")
                self.reject(call, refusal, str(error.get("message", "")), None, source)
            else:
                self.authorize(call, "UNRECORDED_IMPORT", source, synthesized=True)
        self.start(call, source)

    def end(self, native: Native, source: Source) -> None:
        call = self._by_ref[native.ref]
        self._conversation.saw_result(call.native_id)
        if self._open.get(call.native_id) is call:
            del self._open[call.native_id]
        if call.done or call.started is None:
            return
        call.done = True
        error = native.take_object("error")
        event = (
            self._failure(call, native, error) if native.take("failed") else self._receipt(call, native, error, source)
        )
        self.builder.add(
            event,
            source,
            Actor("TOOL", clean_text(str(native.data.get("function")))),
            cause=call.started,
            stage_id=call.stage_id,
        )

    def request(self, native_id: str, name: str, arguments: Any, source: Source, stage_id: str | None) -> Call:
        data = json_bytes(self.resolver.value({} if arguments is None else arguments))
        offer = self._take_offer(native_id, name, digest_of(data))
        call_id = self.builder.number(f"{stage_id or 'session'}/x") if offer is None else offer.call_id
        event = ToolCallRequested(
            tool_call_id=call_id,
            name=clean_text(name),
            inference_id=None if offer is None else offer.inference_id,
            native_call_id=clean_text(native_id),
            arguments_digest=digest_of(data),
            arguments=self.builder.blobs.of_bytes(data, "application/json"),
        )
        cause = None if offer is None else offer.completed
        requested = self.builder.add(event, source, HARNESS, cause=cause, stage_id=stage_id)
        call = Call(call_id, native_id, requested, digest_of(data), stage_id)
        self._calls.append(call)
        self._open[native_id] = call
        return call

    def open_call(self, native_id: str) -> Call | None:
        """The newest call of a native id that has not ended."""
        return self._open.get(native_id)

    def _take_offer(self, native_id: str, name: str, arguments_digest: bytes) -> Offer | None:
        """Which asked-for call of this native id is meant.

        Of the newest answer that asked for exactly this, else of the newest answer: the first that no event has used.
        """
        offers = self._offers[native_id]
        if not offers:
            return None
        same = [
            offer for offer in offers if offer.name == name and offer.arguments_digest == arguments_digest
        ] or offers
        chosen = next(offer for offer in same if offer.inference_id == same[-1].inference_id)
        offers.remove(chosen)
        return chosen

    def add(
        self,
        call: Call,
        event: NewEvent,
        source: Source,
        actor: Actor,
        *,
        cause: Added | None = None,
        synthesized: bool = False,
    ) -> Added:
        return self.builder.add(
            event, source, actor, cause=cause or call.requested, stage_id=call.stage_id, synthesized=synthesized
        )

    def authorize(
        self,
        call: Call,
        basis: Any,
        source: Source,
        *,
        decision_id: str | None = None,
        approval_id: str | None = None,
        synthesized: bool = False,
    ) -> None:
        event = ToolCallAuthorized(
            tool_call_id=call.id,
            basis=basis,
            decision_id=decision_id,
            approval_id=approval_id,
            effective_arguments_digest=call.arguments_digest,
        )
        call.decided = True
        call.decision = self.add(call, event, source, HARNESS, cause=call.decision, synthesized=synthesized)

    def reject(self, call: Call, basis: Any, message: str, cites: str | None, source: Source) -> None:
        event = ToolCallRejected(tool_call_id=call.id, basis=basis, cites=cites, message=clean_text(message) or None)
        call.decided, call.done = False, True
        self.add(call, event, source, HARNESS, cause=call.decision)

    def start(self, call: Call, source: Source) -> None:
        if call.decided and call.started is None:
            event = ToolCallStarted(tool_call_id=call.id, executor=call.executor)
            call.started = self.add(call, event, source, HARNESS, cause=call.decision)

    def _failure(self, call: Call, native: Native, error: dict[str, Any]) -> ToolCallFailed:
        reason = _HARD_FAILURES.get(str(error.get("type")), "EXECUTOR_CRASH")
        return ToolCallFailed(tool_call_id=call.id, reason=reason, error=error_info(error, native, self.builder))  # type: ignore[arg-type]

    def _receipt(self, call: Call, native: Native, error: dict[str, Any], source: Source) -> ToolReceiptRecorded:
        result = self.resolver.value(native.take("result", ""))
        blobs = self.builder.blobs
        blob = (
            blobs.of_json({"error": self.resolver.value(error), "result": result}) if error else blobs.of_value(result)
        )
        cut = native.take("truncated")
        truncated = None
        if isinstance(cut, list) and len(cut) == 2 and all(isinstance(n, int) for n in cut):
            truncated = Truncation(original_bytes=cut[0], kept_bytes=cut[1])
        assert call.begun is not None
        return ToolReceiptRecorded(
            tool_call_id=call.id,
            status="ERROR" if error else "OK",
            receipt_id=f"{call.id}/r1",
            started_at=call.begun.time,
            ended_at=source.time,
            result_digest=blob.digest,
            truncated=truncated,
            result=blob,
        )


def error_info(error: dict[str, Any], native: Native, builder: SessionBuilder) -> ErrorInfo:
    """A native error object; its longer texts (traceback) stand in the detail."""
    rest = {name: value for name, value in error.items() if name not in ("type", "message") and value}
    return builder.blobs.error(error.get("type") or native.kind, error.get("message"), rest)

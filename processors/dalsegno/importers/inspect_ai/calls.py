"""Tool calls: asked for, authorised or rejected, started, ended.

An Inspect log holds a tool event per call, and approval events only where an approver was configured. A call without
one is authorised with the basis UNRECORDED_IMPORT: the log does not say who let it run. Providers use a call id again
in later turns and even twice in one, so a native id alone names nothing: see ``Calls._take_offer``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

from dalsegno.importers.builder import Added, SessionBuilder, Source
from dalsegno.importers.fields import Fields
from dalsegno.importers.inspect_ai.messages import Conversation
from dalsegno.importers.inspect_ai.order import BEGIN, END, Moment
from dalsegno.importers.inspect_ai.record import Native, Resolver
from dalsegno.importers.inspect_ai.stages import HARNESS
from dalsegno.importers.payload import clean_text, count, digest_of, json_bytes
from dalsegno.importers.tool_calls import ToolCall, ToolCalls
from dalsegno.model.events import Truncation
from dalsegno.model.payloads import RejectionBasis, ToolFailureReason

_NOT_RUN: dict[str, RejectionBasis] = {"approval": "APPROVAL_DENIED", "parsing": "INVALID_ARGUMENTS"}
_HARD_FAILURES: dict[str, ToolFailureReason] = {"timeout": "TIMEOUT", "cancelled": "CANCELLED"}


class Offer(NamedTuple):
    """A call that a model asked for."""

    call_id: str
    inference_id: str
    completed: Added
    name: str
    arguments_digest: bytes


@dataclass
class Call:
    """One call while its records come. ``begun``: its tool event has begun; ``pending_decision``: a policy's, which a
    person is asked about."""

    tool: ToolCall
    begun: Source | None = None
    executor: str | None = None
    pending_decision: str | None = None

    @property
    def undecided(self) -> bool:
        """Neither authorised nor rejected."""
        return not (self.tool.allowed or self.tool.done)


class Calls:
    """The tool calls of one sample."""

    def __init__(self, builder: SessionBuilder, resolver: Resolver, conversation: Conversation) -> None:
        self.builder = builder
        self.resolver = resolver
        self._conversation = conversation
        self._offers: dict[str, list[Offer]] = defaultdict(list)
        self.tools = ToolCalls(builder, HARNESS)
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
                ref = running.get(str(Fields(native.data).take_object("call").get("id")))
                if ref is not None:
                    self._awaited.add(ref)

    def offer(self, native_id: str, offer: Offer) -> None:
        self._offers[native_id].append(offer)

    def begin(self, native: Native, source: Source, stage_id: str | None) -> None:
        native_id, name = str(native.take("id")), str(native.take("function"))
        native.take("type")
        call = self._open.get(native_id)
        if call is None or call.begun is not None:
            call = self.request(native_id, name, native.take("arguments"), source, stage_id)
        else:
            native.take("arguments")
        call.begun = source
        agent = native.take_text("agent")
        call.executor = f"agent {clean_text(agent)}" if agent else None
        self._by_ref[native.ref] = call
        given = native.data.get("error")
        error: dict[str, Any] = given if isinstance(given, dict) else {}
        refusal = _NOT_RUN.get(str(error.get("type")))
        if call.undecided and native.ref not in self._awaited:
            if refusal is not None:
                native.take("error")
                self.tools.reject(call.tool, source, refusal, error.get("message"))
            else:
                self.tools.let_run(call.tool, source)
        self.start(call, source)

    def end(self, native: Native, source: Source) -> None:
        call = self._by_ref[native.ref]
        native_id = str(native.data.get("id"))
        self._conversation.saw_result(native_id)
        if self._open.get(native_id) is call:
            del self._open[native_id]
        if call.tool.done or not call.tool.started:
            return
        error = native.take_object("error")
        if native.take("failed"):
            reason = _HARD_FAILURES.get(str(error.get("type")), "EXECUTOR_CRASH")
            self.tools.fail(call.tool, source, reason, *error_words(error, native))
            return
        result, cut = self.resolver.value(native.take("result", "")), native.take("truncated")
        truncated = None
        sizes = [size for size in map(count, cut) if size is not None] if isinstance(cut, list) else []
        if len(sizes) == 2:
            truncated = Truncation(original_bytes=sizes[0], kept_bytes=sizes[1])
        if error:
            result = {"error": self.resolver.value(error), "result": result}
        self.tools.receive(call.tool, source, result, "ERROR" if error else "OK", truncated=truncated)

    def request(self, native_id: str, name: str, arguments: Any, source: Source, stage_id: str | None) -> Call:
        data = json_bytes(self.resolver.value({} if arguments is None else arguments))
        offer = self._take_offer(native_id, name, digest_of(data))
        call_id = self.builder.number(f"{stage_id or 'session'}/x") if offer is None else offer.call_id
        tool = self.tools.request(
            call_id,
            clean_text(name),
            data,
            source,
            native_id=clean_text(native_id),
            inference_id=None if offer is None else offer.inference_id,
            cause=None if offer is None else offer.completed,
            stage_id=stage_id,
        )
        call = self._open[native_id] = Call(tool)
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

    def start(self, call: Call, source: Source) -> None:
        """It began when its tool event did, also where it had to wait for leave."""
        if call.tool.allowed and not call.tool.started:
            self.tools.start(call.tool, source, executor=call.executor)
            call.tool.began = source.time if call.begun is None else call.begun.time


def error_words(error: dict[str, Any], native: Native) -> tuple[Any, Any, dict[str, Any]]:
    """Class, message and detail of a native error object; its longer texts (traceback) stand in the detail."""
    rest = {name: value for name, value in error.items() if name not in ("type", "message") and value}
    return error.get("type") or native.kind, error.get("message"), rest

"""The events of a recorded tool call, from the request to its end, for formats that record little more than the two.

Most recordings say that a tool was asked for and what came back. That it may run is then authorised with the basis
UNRECORDED_IMPORT: the call ran, and who let it is not recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dalsegno.importers.builder import Added, SessionBuilder, Source
from dalsegno.importers.payload import (
    JSON_TYPE,
    MESSAGE_MAX_CHARACTERS,
    digest_of,
    short_text,
)
from dalsegno.importers.wanted import Wanted, requested_calls
from dalsegno.model.events import (
    NewEvent,
    ToolCallAuthorized,
    ToolCallFailed,
    ToolCallRejected,
    ToolCallRequested,
    ToolCallStarted,
    ToolReceiptRecorded,
    Truncation,
)
from dalsegno.model.payloads import AuthorizationBasis, ReceiptStatus, RejectionBasis, Risk, ToolFailureReason
from dalsegno.model.records import Actor


@dataclass
class ToolCall:
    """One call. ``last`` is its newest event, which the next one follows from."""

    id: str
    native_id: str | None
    name: str
    arguments_digest: bytes | None
    last: Added
    turn_id: str | None
    stage_id: str | None
    allowed: bool = False
    started: bool = False
    began: int | None = None
    done: bool = False


class ToolCalls:
    """The calls of one session."""

    def __init__(self, builder: SessionBuilder, harness: Actor) -> None:
        self._builder = builder
        self._harness = harness
        self._calls: list[ToolCall] = []

    def open_ids(self) -> list[str]:
        return sorted(call.id for call in self._calls if not call.done)

    def open_call(self, native_id: str) -> ToolCall | None:
        """The oldest call with this id of the harness that has not ended: such ids come again, also within a turn."""
        return next((call for call in self._calls if call.native_id == native_id and not call.done), None)

    def waiting(self, name: str) -> ToolCall | None:
        """The oldest call of this tool that was asked for and is not on its way yet."""
        return next((call for call in self._calls if call.name == name and not (call.allowed or call.done)), None)

    def request(
        self,
        call_id: str,
        name: str,
        arguments: bytes | None,
        source: Source,
        *,
        media_type: str = JSON_TYPE,
        actor: Actor | None = None,
        native_id: str | None = None,
        inference_id: str | None = None,
        risk: Risk = "UNKNOWN",
        cause: Added | None = None,
        turn_id: str | None = None,
        stage_id: str | None = None,
        synthesized: bool = False,
    ) -> ToolCall:
        digest = None if arguments is None else digest_of(arguments)
        event = ToolCallRequested(
            tool_call_id=call_id,
            name=name,
            inference_id=inference_id,
            native_call_id=native_id,
            risk=risk,
            arguments_digest=digest,
            arguments=None if arguments is None else self._builder.blobs.of_bytes(arguments, media_type),
        )
        last = self._builder.add(
            event,
            source,
            actor or self._harness,
            cause=cause,
            turn_id=turn_id,
            stage_id=stage_id,
            synthesized=synthesized,
        )
        call = ToolCall(call_id, native_id, name, digest, last, turn_id, stage_id)
        self._calls.append(call)
        return call

    def request_each(
        self,
        inference_id: str,
        calls: Sequence[Wanted],
        source: Source,
        *,
        cause: Added,
        turn_id: str | None = None,
        stage_id: str | None = None,
    ) -> list[ToolCall]:
        """All that an answer asks for, by the ids that ``requested_calls`` gives them."""
        return [
            self.request(
                asked.tool_call_id,
                call.name,
                call.arguments,
                source,
                media_type=call.media_type,
                native_id=call.native_id,
                inference_id=inference_id,
                cause=cause,
                turn_id=turn_id,
                stage_id=stage_id,
            )
            for asked, call in zip(requested_calls(inference_id, calls), calls, strict=True)
        ]

    def let_run(
        self,
        call: ToolCall,
        source: Source,
        basis: AuthorizationBasis = "UNRECORDED_IMPORT",
        *,
        decision_id: str | None = None,
        approval_id: str | None = None,
    ) -> None:
        """Where nobody recorded the leave, it is concluded from the call having run."""
        event = ToolCallAuthorized(
            tool_call_id=call.id,
            basis=basis,
            decision_id=decision_id,
            approval_id=approval_id,
            effective_arguments_digest=call.arguments_digest,
        )
        call.allowed = True
        self.add(call, event, source, synthesized=basis == "UNRECORDED_IMPORT")

    def start(
        self,
        call: ToolCall,
        source: Source,
        *,
        executor: str | None = None,
        child_session: str | None = None,
        synthesized: bool = False,
    ) -> None:
        """``synthesized``: that it started is concluded from its end; its time is then not known."""
        at = source._replace(time=None) if synthesized else source
        if not call.allowed:
            self.let_run(call, at)
        event = ToolCallStarted(tool_call_id=call.id, executor=executor, child_session=child_session)
        call.started, call.began = True, at.time
        self.add(call, event, at, self._harness, synthesized=synthesized)

    def receive(
        self,
        call: ToolCall,
        source: Source,
        result: Any,
        status: ReceiptStatus = "OK",
        *,
        exit_code: int | None = None,
        truncated: Truncation | None = None,
        synthesized: bool = False,
    ) -> Added:
        """What came back: bytes (of JSON), a text, or anything else as JSON. ``synthesized``: seen only later, in what
        a model was given, so that nobody knows when it came."""
        if not call.started:
            self.start(call, source, synthesized=True)
        blobs = self._builder.blobs
        blob = blobs.of_bytes(result, JSON_TYPE) if isinstance(result, bytes) else blobs.of_value(result)
        event = ToolReceiptRecorded(
            tool_call_id=call.id,
            status=status,
            receipt_id=f"{call.id}/r1",
            exit_code=exit_code,
            started_at=call.began,
            ended_at=None if synthesized else source.time,
            result_digest=blob.digest,
            truncated=truncated,
            result=blob,
        )
        at = source._replace(time=None) if synthesized else source
        return self.end(call, event, at, Actor("TOOL", call.name), synthesized=synthesized)

    def fail(
        self,
        call: ToolCall,
        source: Source,
        reason: ToolFailureReason,
        error_class: Any,
        message: Any,
        detail: Any = None,
    ) -> None:
        """The call gave nothing. One that was never seen to start surely had no effect; one of which nobody knows what
        became of it stays open."""
        if not call.allowed:
            self.let_run(call, source)
        error = self._builder.blobs.error(error_class, message, detail)
        event = ToolCallFailed(tool_call_id=call.id, reason=reason, not_started=not call.started, error=error)
        self.end(call, event, source, Actor("TOOL", call.name))
        call.done = reason != "UNKNOWN_OUTCOME"

    def reject(
        self, call: ToolCall, source: Source, basis: RejectionBasis, message: Any, cites: str | None = None
    ) -> None:
        text = short_text(message, MESSAGE_MAX_CHARACTERS) or None
        event = ToolCallRejected(tool_call_id=call.id, basis=basis, cites=cites, message=text)
        self.end(call, event, source, self._harness)

    def end(self, call: ToolCall, event: NewEvent, source: Source, actor: Actor, *, synthesized: bool = False) -> Added:
        """The event that ends the call, whichever it is."""
        call.done = True
        return self.add(call, event, source, actor, synthesized=synthesized)

    def add(
        self, call: ToolCall, event: NewEvent, source: Source, actor: Actor | None = None, *, synthesized: bool = False
    ) -> Added:
        """An event about the call, by the harness where nobody is named; it follows from the newest one."""
        call.last = self._builder.add(
            event,
            source,
            actor or self._harness,
            cause=call.last,
            turn_id=call.turn_id,
            stage_id=call.stage_id,
            synthesized=synthesized,
        )
        return call.last

"""Turns, model calls and tool calls of a recording that is a list of what was said, line by line. Pure.

Such a recording holds answers and results, not requests and starts: those are concluded, and have no time of their own.
A call stands as asked for until its result comes, and only then as authorised and started: whether one without a result
ever ran, nobody can say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dalsegno.importers.builder import Added, SessionBuilder, Source
from dalsegno.importers.payload import digest_of, short_text
from dalsegno.model.events import (
    Blob,
    InferenceCompleted,
    InferenceRequested,
    NewEvent,
    NoteRecorded,
    RequestedCall,
    ToolCallAuthorized,
    ToolCallRequested,
    ToolCallStarted,
    ToolReceiptRecorded,
    TurnAborted,
    TurnCompleted,
    TurnStarted,
)
from dalsegno.model.payloads import TurnAbortReason
from dalsegno.model.records import Actor


class Asked(NamedTuple):
    """A model that was asked and has not answered yet."""

    inference_id: str
    requested: Added
    turn_id: str


class Wanted(NamedTuple):
    """A tool call in a model's answer. ``arguments`` are the bytes received, None where there are none."""

    native_id: str
    name: str
    arguments: bytes | None
    media_type: str
    given: Any = None
    """The arguments as data, for who must look into them."""


@dataclass(eq=False)
class Call:
    """A tool call that has no result yet. ``decision`` and ``started`` are set as far as it came."""

    id: str
    inference_id: str
    turn_id: str
    wanted: Wanted
    requested: Added
    decision: Added | None = None
    started: Added | None = None
    child: str | None = field(default=None)


def untimed(source: Source) -> Source:
    """The same record for what happened before it, nobody knows when."""
    return source._replace(time=None)


class Transcript:
    """One session while it is written. ``turns``: how many turns there were before, in a fork."""

    def __init__(self, builder: SessionBuilder, harness: Actor, turns: int = 0) -> None:
        self.builder = builder
        self.blobs = builder.blobs
        self.turns = turns
        self.turn: str | None = None
        self._harness = harness
        self._inferences = 0
        self._calls: list[Call] = []

    def add(
        self,
        event: NewEvent,
        source: Source,
        actor: Actor | None = None,
        *,
        cause: Added | None = None,
        turn_id: str | None = None,
        synthesized: bool = False,
    ) -> Added:
        """Append an event, in the open turn where none is named."""
        return self.builder.add(
            event,
            source,
            actor or self._harness,
            cause=cause,
            turn_id=turn_id or self.turn,
            synthesized=synthesized,
        )

    def note(self, kind: str, data: Any, source: Source) -> None:
        """Keep something whole that has no event of its own."""
        self.add(NoteRecorded(kind=short_text(kind), data=self.blobs.of_json(data)), source)

    # --- turns -------------------------------------------------------------------------------------------------------

    def begin_turn(self, source: Source, *, synthesized: bool) -> None:
        self.turns += 1
        self.turn = f"session/t{self.turns}"
        self._inferences = 0
        self.add(TurnStarted(turn_id=self.turn), source, synthesized=synthesized)

    def end_turn(self, source: Source, aborted: TurnAbortReason | None = None, *, synthesized: bool = False) -> bool:
        """End the open turn; False where there is none."""
        if self.turn is None:
            return False
        event = TurnCompleted(turn_id=self.turn) if aborted is None else TurnAborted(turn_id=self.turn, reason=aborted)
        self.add(event, source, synthesized=synthesized)
        self.turn = None
        return True

    # --- model calls -------------------------------------------------------------------------------------------------

    def ask(self, source: Source, provider: str | None, model: str | None) -> Asked:
        """A model is asked, in the turn that is open: that follows from the answer, whose first record this is."""
        assert self.turn is not None
        self._inferences += 1
        inference_id = f"{self.turn}/i{self._inferences}"
        event = InferenceRequested(inference_id=inference_id, purpose="AGENT", provider=provider, model=model)
        return Asked(inference_id, self.add(event, untimed(source), synthesized=True), self.turn)

    def wanted(self, asked: Asked, calls: Sequence[Wanted]) -> list[RequestedCall]:
        """The calls of an answer, with our ids."""
        return [
            RequestedCall(
                tool_call_id=f"{asked.inference_id}/c{index}",
                name=short_text(call.name),
                arguments_digest=None if call.arguments is None else digest_of(call.arguments),
            )
            for index, call in enumerate(calls)
        ]

    def answer(self, asked: Asked, event: InferenceCompleted, calls: Sequence[Wanted], source: Source) -> list[Call]:
        """The model's answer and what it asks for; ``event`` lists these calls, as ``wanted`` made them."""
        model = Actor("MODEL", event.model or "unknown")
        completed = self.add(event, source, model, cause=asked.requested, turn_id=asked.turn_id)
        opened = []
        for requested, call in zip(event.tool_calls, calls, strict=True):
            request = ToolCallRequested(
                tool_call_id=requested.tool_call_id,
                name=requested.name,
                inference_id=asked.inference_id,
                native_call_id=short_text(call.native_id) or None,
                arguments_digest=requested.arguments_digest,
                arguments=None if call.arguments is None else self.blobs.of_bytes(call.arguments, call.media_type),
            )
            added = self.add(request, source, cause=completed, turn_id=asked.turn_id)
            opened.append(Call(requested.tool_call_id, asked.inference_id, asked.turn_id, call, added))
        self._calls += opened
        return opened

    # --- tool calls --------------------------------------------------------------------------------------------------

    def open_calls(self) -> list[Call]:
        """Calls without a result, in the order in which they were asked for."""
        return self._calls

    def open_call(self, native_id: str) -> Call | None:
        """Which call a result of this native id belongs to. Providers use ids again, in later turns and even twice in
        one answer: of the newest answer that asked for one, the first that has no result."""
        same = [call for call in self._calls if call.wanted.native_id == native_id]
        return next((call for call in same if call.inference_id == same[-1].inference_id), None)

    def of_call(
        self,
        call: Call,
        event: NewEvent,
        source: Source,
        actor: Actor | None = None,
        *,
        cause: Added | None = None,
        synthesized: bool = False,
    ) -> Added:
        """An event about a call, in the call's turn, caused by its request where nothing else is named."""
        return self.add(
            event, source, actor, cause=cause or call.requested, turn_id=call.turn_id, synthesized=synthesized
        )

    def start(self, call: Call, source: Source, executor: str | None = None) -> None:
        """That the call ran follows from the record; who let it, and when it began, is not known."""
        if call.started is not None:
            return
        digest = None if call.wanted.arguments is None else digest_of(call.wanted.arguments)
        if call.decision is None:
            allowed = ToolCallAuthorized(
                tool_call_id=call.id, basis="UNRECORDED_IMPORT", effective_arguments_digest=digest
            )
            call.decision = self.of_call(call, allowed, untimed(source), synthesized=True)
        event = ToolCallStarted(tool_call_id=call.id, executor=executor, child_session=call.child)
        call.started = self.of_call(call, event, untimed(source), cause=call.decision, synthesized=True)

    def receive(
        self, call: Call, result: Any, source: Source, *, failed: bool, exit_code: int | None = None,
        executor: str | None = None,
    ) -> Added:  # fmt: skip
        """What the tool gave back: a text as text, anything else as JSON."""
        self.start(call, source, executor)
        blob: Blob = self.blobs.of_value(result)
        event = ToolReceiptRecorded(
            tool_call_id=call.id,
            status="ERROR" if failed else "OK",
            receipt_id=f"{call.id}/r1",
            exit_code=exit_code,
            ended_at=source.time,
            result_digest=blob.digest,
            result=blob,
        )
        self.close(call)
        return self.of_call(call, event, source, Actor("TOOL", short_text(call.wanted.name)), cause=call.started)

    def close(self, call: Call) -> None:
        """The call has ended."""
        self._calls.remove(call)

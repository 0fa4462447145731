"""Turns, model calls and tool calls of a recording that lists what was said, line by line. Pure.

Such a recording holds answers and results, not requests and starts: those are concluded, and have no time of their own.
A call stands as asked for until its result comes, and only then as authorised and started: whether one without a result
ever ran, nobody can say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dalsegno.importers.builder import Added, SessionBuilder, Source, model_actor
from dalsegno.importers.payload import short_text
from dalsegno.importers.tool_calls import ToolCall, ToolCalls
from dalsegno.importers.wanted import Wanted
from dalsegno.model.events import (
    InferenceCompleted,
    InferenceFailed,
    InferenceRequested,
    NewEvent,
    NoteRecorded,
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
    turn_id: str | None


class OpenCall(NamedTuple):
    """A call without a result, the answer that asked for it, and how."""

    call: ToolCall
    inference_id: str
    wanted: Wanted


class Transcript:
    """One session while it is written."""

    def __init__(self, builder: SessionBuilder, harness: Actor) -> None:
        self.builder = builder
        self.blobs = builder.blobs
        self.calls = ToolCalls(builder, harness)
        self.turn: str | None = None
        self._harness = harness
        self._asked_for: list[OpenCall] = []

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
        """Append an event, in the open turn where none is named, by the harness where nobody is."""
        turn_id = turn_id or self.turn
        return self.builder.add(
            event, source, actor or self._harness, cause=cause, turn_id=turn_id, synthesized=synthesized
        )

    def note(self, kind: str, data: Any, source: Source) -> None:
        """Keep something whole that has no event of its own."""
        self.add(NoteRecorded(kind=short_text(kind), data=self.blobs.of_json(data)), source)

    def number(self, kind: str) -> str:
        """``<turn>/<kind><n>`` for what has no id of its own."""
        return self.builder.number(f"{self.turn or 'session'}/{kind}")

    # --- turns -------------------------------------------------------------------------------------------------------

    def begin_turn(self, source: Source, *, synthesized: bool) -> None:
        self.turn = self.builder.number("session/t")
        self.add(TurnStarted(turn_id=self.turn), source, synthesized=synthesized)

    def end_turn(self, source: Source, aborted: TurnAbortReason | None = None, *, synthesized: bool = False) -> bool:
        """End the open turn; False where there is none."""
        if self.turn is None:
            return False
        event = TurnCompleted(turn_id=self.turn) if aborted is None else TurnAborted(turn_id=self.turn, reason=aborted)
        self.add(event, source, synthesized=synthesized)
        self.turn = None
        return True

    # --- model calls and what they ask for ---------------------------------------------------------------------------

    def ask(
        self, source: Source, provider: str | None, model: str | None, request_digest: bytes | None = None
    ) -> Asked:
        """A model was asked, in the turn that is open if any, before this record of its answer; nobody knows when."""
        inference_id = self.number("i")
        event = InferenceRequested(
            inference_id=inference_id, purpose="AGENT", provider=provider, model=model, request_digest=request_digest
        )
        requested = self.add(event, source._replace(time=None), synthesized=True)
        return Asked(inference_id, requested, self.turn)

    def answer(
        self, asked: Asked, event: InferenceCompleted, calls: Sequence[Wanted], source: Source
    ) -> list[OpenCall]:
        """The model's answer and what it asks for; ``event`` lists these calls, as ``requested_calls`` made them."""
        completed = self.ended(asked, event, event.model, source)
        made = self.calls.request_each(asked.inference_id, calls, source, cause=completed, turn_id=asked.turn_id)
        opened = [OpenCall(call, asked.inference_id, wanted) for call, wanted in zip(made, calls, strict=True)]
        self._asked_for += opened
        return opened

    def ended(
        self, asked: Asked, event: InferenceCompleted | InferenceFailed, model: str | None, source: Source
    ) -> Added:
        """What became of a model's call."""
        actor = model_actor(model)
        return self.add(event, source, actor, cause=asked.requested, turn_id=asked.turn_id)

    def open_calls(self) -> list[OpenCall]:
        """Calls without a result, in the order in which they were asked for."""
        self._asked_for = [each for each in self._asked_for if not each.call.done]
        return self._asked_for

    def open_call(self, native_id: Any) -> OpenCall | None:
        """Which call a result of this native id belongs to. Providers use ids again, in later turns and even twice in
        one answer: of the newest answer that asked for one, the first that has no result."""
        name = short_text(native_id)
        same = [each for each in self.open_calls() if each.wanted.native_id == name]
        return next((each for each in same if each.inference_id == same[-1].inference_id), None)

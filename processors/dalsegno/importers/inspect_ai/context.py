"""What the mapping of one sample works with, and the events that several native records can lead to."""

from __future__ import annotations

from typing import Any

from dalsegno.importers.base import ImportReport
from dalsegno.importers.builder import PERSON, Added, SessionBuilder, Source
from dalsegno.importers.inspect_ai.approvals import Approvals
from dalsegno.importers.inspect_ai.calls import Calls
from dalsegno.importers.inspect_ai.inferences import Inferences
from dalsegno.importers.inspect_ai.messages import ROLES, Conversation, PartMaker
from dalsegno.importers.inspect_ai.record import Resolver
from dalsegno.importers.inspect_ai.scores import Scores
from dalsegno.importers.inspect_ai.stages import HARNESS, Stages
from dalsegno.importers.payload import MESSAGE_MAX_CHARACTERS, clean_text, short_text
from dalsegno.model.events import (
    ContextItemRetrieved,
    LimitReached,
    MessageReceived,
    NewEvent,
    NoteRecorded,
    TimerFired,
)
from dalsegno.model.records import Actor

LIMITS = {
    "token": "TOKENS",
    "cost": "COST",
    "message": "TURNS",
    "turn": "TURNS",
    "context": "CONTEXT",
    "time": "WALL_TIME",
    "working": "WORKING_TIME",
}
_TIMES = frozenset({"WALL_TIME", "WORKING_TIME"})


class SampleContext:
    """The parts of the mapping of one sample, put together."""

    def __init__(self, builder: SessionBuilder, resolver: Resolver, report: ImportReport, scorer: str | None) -> None:
        self.builder = builder
        self.resolver = resolver
        self.report = report
        self.only_scorer = scorer
        self.conversation = Conversation(resolver)
        self.parts = PartMaker(builder.blobs, resolver)
        self.stages = Stages(builder)
        self.scores = Scores(builder, resolver)
        self.calls = Calls(builder, resolver, self.conversation)
        self.approvals = Approvals(self.calls)
        self.inferences = Inferences(
            builder, resolver, self.conversation, self.parts, self.calls, self.stages, self.scores
        )
        self.limited = False

    def number(self, stage_id: str | None, kind: str) -> str:
        """``<stage>/<kind><n>`` for what has no id of its own."""
        return self.builder.number(f"{stage_id or 'session'}/{kind}")

    def add(
        self, event: NewEvent, source: Source, actor: Actor, stage_id: str | None, *, cause: Added | None = None
    ) -> Added:
        return self.builder.add(event, source, actor, cause=cause, stage_id=stage_id)

    def messages(self, given: Any, source: Source, stage_id: str | None) -> None:
        """Record what a model was given and no event holds yet."""
        messages = [message for message in given if isinstance(message, dict)] if isinstance(given, list) else []
        for message in self.conversation.unseen(messages):
            role = str(message.get("role"))
            message_id = clean_text(str(message.get("id") or self.builder.number("m")))
            if role not in ROLES:
                content = self.builder.blobs.of_json(self.resolver.value(message))
                self.add(ContextItemRetrieved(item_id=message_id, content=content), source, HARNESS, stage_id)
                continue
            channel = message.get("source")
            event = MessageReceived(
                message_id=message_id,
                role=ROLES[role],  # type: ignore[arg-type]
                channel=clean_text(channel) if isinstance(channel, str) else None,
                parts=self.parts.of_message(message),
            )
            self.add(event, source, PERSON if role == "user" else HARNESS, stage_id)

    def note(self, kind: str, data: Any, source: Source, stage_id: str | None) -> None:
        """Keep something whole that has no event of its own."""
        blob = self.builder.blobs.of_json(self.resolver.value(data))
        self.add(NoteRecorded(kind=f"inspect.{clean_text(kind)}", data=blob), source, HARNESS, stage_id)

    def limit(self, kind: str, value: Any, message: str | None, source: Source, stage_id: str | None) -> None:
        self.limited = True
        limit = LIMITS[kind]
        if limit in _TIMES:
            timer = TimerFired(timer=f"sample {kind} limit")
            self.builder.add(timer, source, HARNESS, stage_id=stage_id, synthesized=True)
        event = LimitReached(
            limit=limit,  # type: ignore[arg-type]
            action="STOP",
            limit_value=None if value is None else str(value),
            observed=None if message is None else short_text(message, MESSAGE_MAX_CHARACTERS),
        )
        self.add(event, source, HARNESS, stage_id)

    def open_operations(self) -> list[str]:
        """Ids of what began and did not end; stages are frames, not operations."""
        return [
            *self.calls.tools.open_ids(),
            *self.inferences.open_inferences(),
            *self.scores.open_validations(),
        ]

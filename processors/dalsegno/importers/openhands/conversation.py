"""What both versions of OpenHands' recordings become: turns, messages, model calls, tool calls, compressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dalsegno.importers.base import ImportedSession, ImportReport
from dalsegno.importers.builder import PERSON, SessionBuilder, Source
from dalsegno.importers.openhands.records import Answer, Inference, Record
from dalsegno.importers.opening import begin_session, labels_of, session_id_of
from dalsegno.importers.payload import digest_json, parse_time, short_text
from dalsegno.importers.tool_calls import ToolCall
from dalsegno.importers.transcript import Transcript
from dalsegno.importers.wanted import call_part, requested_calls, wanted_call
from dalsegno.model.events import (
    CompressionCompleted,
    ConfigPinned,
    ErrorRecorded,
    InferenceCompleted,
    InputProvided,
    InputRequested,
    MessageReceived,
    Part,
    SessionCreated,
    SessionPaused,
    SessionResumed,
)
from dalsegno.model.payloads import ConfigKind, MessageRole, Risk
from dalsegno.model.records import Actor

HARNESS = Actor("HARNESS", "openhands")


class Conversation(Transcript):
    """One session while it is being mapped."""

    def __init__(self, importer: str, version: str, first: Record, native_id: str, report: ImportReport) -> None:
        started = parse_time(first.data.get("timestamp"))[0]
        session_id = session_id_of(importer, version, native_id)
        super().__init__(SessionBuilder(session_id=session_id, importer=importer, started=started), HARNESS)
        self.report = report
        self.items: dict[int | str, str] = {}
        """Native id of an event -> id of the message, call or item that it became."""
        self._paused = False
        self._asked: str | None = None
        self._inferences: dict[str, Inference] = {}
        created = SessionCreated(
            profile="IMPORTED", workflow_name="openhands", labels=labels_of("openhands", [("version", version)])
        )
        begin_session(self.builder, created, (), self.source(first), HARNESS)

    def source(self, record: Record) -> Source:
        return Source(record.ref, parse_time(record.data.get("timestamp"))[0], record.digest)

    def session(self, records: Iterable[Record]) -> ImportedSession:
        self.report.zoneless(sum(parse_time(record.data.get("timestamp"))[1] for record in records))
        return self.builder.session()

    # --- lifecycle -----------------------------------------------------------------------------------------------

    def runs(self, source: Source) -> bool:
        """The agent works. False where that was known."""
        resumed = self._resume(source)
        if self.turn is not None:
            return resumed
        self.begin_turn(source, synthesized=False)
        return True

    def pauses(self, source: Source, reason: str, actor: Actor = HARNESS) -> bool:
        if self._paused:
            return False
        self._paused = True
        self.add(SessionPaused(reason=reason), source, actor)
        return True

    def _resume(self, source: Source, *, synthesized: bool = False) -> bool:
        if not self._paused:
            return False
        self._paused = False
        self.add(SessionResumed(), source, synthesized=synthesized)
        return True

    def error(self, error_class: Any, message: Any, source: Source, detail: Any = None) -> None:
        self.add(ErrorRecorded(error=self.blobs.error(error_class, message, detail)), source)

    # --- messages ------------------------------------------------------------------------------------------------

    def message(
        self, message_id: str, role: MessageRole, parts: Sequence[Part], source: Source, channel: str | None = None
    ) -> None:
        """Somebody said something; it answers what the agent asked for, and wakes a session that waits."""
        self._resume(source, synthesized=True)
        event = MessageReceived(message_id=message_id, role=role, channel=channel, parts=parts)
        said = self.add(event, source, PERSON if role == "USER" else HARNESS)
        if role == "USER" and self._asked is not None:
            answer = InputProvided(request_id=self._asked, outcome="ACCEPTED")
            self._asked = None
            self.add(answer, source, PERSON, cause=said, synthesized=True)

    def asks(self, prompt: str, source: Source) -> str:
        """The agent waits for a person's answer. Gives the id of the request."""
        request_id = self.number("in")
        event = InputRequested(request_id=request_id, prompt=self.blobs.of_text(prompt))
        self.add(event, source, Actor("AGENT", "openhands"))
        self._asked = request_id
        return request_id

    def pins(self, kind: ConfigKind, name: str, content: Any, source: Source) -> None:
        """A part of the configuration that the recording tells after its beginning."""
        blob = self.blobs.of_value(content)
        event = ConfigPinned(kind=kind, name=name, effective="NEXT_TURN", digest=blob.digest, content=blob)
        self.add(event, source)

    # --- models and tools ----------------------------------------------------------------------------------------

    def answered(self, response_id: str | None, make: Callable[[], Answer], source: Source) -> Inference:
        """A model's answer, once: what was asked, and when, is not recorded."""
        if response_id is not None and response_id in self._inferences:
            return self._inferences[response_id]
        asked = self.ask(source, None, None)
        inference_id = asked.inference_id
        answer, blobs = make(), self.blobs
        calls = requested_calls(inference_id, answer.calls)
        completed = InferenceCompleted(
            inference_id=inference_id,
            usage=answer.usage,
            model=answer.model,
            response_id=response_id,
            output_digest=digest_json(answer.output),
            finish_reasons=answer.finish_reasons,
            tool_calls=calls,
            output=[*answer.parts, *(call_part(call, blobs) for call in answer.calls)],
            raw=None if answer.raw is None else blobs.of_json(answer.raw),
        )
        ended = self.ended(asked, completed, answer.model, source)
        unused = [(made.tool_call_id, call) for made, call in zip(calls, answer.calls, strict=True)]
        inference = Inference(inference_id, ended, unused)
        if response_id is not None:
            self._inferences[response_id] = inference
        return inference

    def wants(
        self,
        inference: Inference | None,
        native_call: str | None,
        name: str,
        arguments: Any,
        source: Source,
        *,
        actor: Actor = HARNESS,
        risk: Risk = "UNKNOWN",
        synthesized: bool = False,
    ) -> ToolCall:
        """A call is asked for: the first of the answer with this native id, else one that no answer is known of."""
        found = None if inference is None else inference.take(native_call)
        call_id, wanted = found or (self.number("x"), wanted_call(native_call, name, arguments))
        return self.calls.request(
            call_id,
            wanted.name,
            wanted.arguments,
            source,
            actor=actor,
            native_id=native_call,
            inference_id=None if inference is None or found is None else inference.id,
            risk=risk,
            cause=None if inference is None else inference.completed,
            turn_id=self.turn,
            synthesized=synthesized,
        )

    def compressed(
        self, forgotten: Sequence[int | str], summary: Any, insert_at: int | None, source: Source, *, whole: bool
    ) -> None:
        """It can be done again only where every event that it forgot is in the file (``whole``)."""
        text = summary if isinstance(summary, str) and summary else None
        event = CompressionCompleted(
            compression_id=self.number("k"),
            method="TRIM" if text is None else "SUMMARY",
            effect="REAPPLIABLE" if whole else "MARKER_ONLY",
            insert_at=insert_at,
            forgotten=[self.items.get(each) or f"event {short_text(each)}" for each in forgotten],
            summary=None if text is None else self.blobs.of_text(text),
        )
        self.add(event, source)

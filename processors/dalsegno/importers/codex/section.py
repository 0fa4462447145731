"""One session of a rollout, record by record. Pure.

What may still turn out to be something else waits: an announced turn for its first answer, an event for the item that
it repeats, an answer for its end and its tokens, results behind it, and tokens for their answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from dalsegno.importers.base import ImportedSession, ImportReport
from dalsegno.importers.builder import PERSON, SessionBuilder
from dalsegno.importers.codex import items
from dalsegno.importers.codex.answers import Answers
from dalsegno.importers.codex.compaction import Compactions
from dalsegno.importers.codex.records import (
    ABORTED,
    ANSWER,
    BEFORE_ANSWERS,
    BEHIND_ANSWERS,
    CALLS,
    KNOWN_NOTES,
    MAPPED,
    NOTE,
    OUTPUTS,
    REPEAT,
    ROLES,
    WAITS,
    Findings,
    Native,
    Outcome,
    Settled,
    usable_id,
)
from dalsegno.importers.codex.settings import HARNESS, Settings, begin
from dalsegno.importers.codex.twins import ASSISTANT, REASONING, TOLD_AGAIN, USER, Twins, told_by
from dalsegno.importers.payload import short_text
from dalsegno.importers.transcript import Transcript
from dalsegno.model.events import ErrorRecorded, MessageReceived
from dalsegno.model.payloads import MessageRole, TurnAbortReason
from dalsegno.model.records import Actor

_Handler: TypeAlias = Callable[[Native], Outcome]


class Section:
    """The session that begins with this ``session_meta``. Each record is counted where it is settled."""

    def __init__(
        self, importer: str, session_id: str, native_id: str | None, meta: Native, report: ImportReport, seen: Findings
    ) -> None:
        self._report, self._seen, self._meta = report, seen, meta
        builder = SessionBuilder(session_id=session_id, importer=importer, started=meta.source.time)
        provider = meta.payload.get("model_provider")
        self._transcript = Transcript(builder, HARNESS)
        self._settings = Settings(self._transcript, short_text(provider) if isinstance(provider, str) else None)
        self._ids = {native_id, usable_id(meta.payload.get("forked_from_id"))} - {None}
        self._twins = Twins()
        self._answers = Answers(self._transcript, self._settings, seen)
        self._announced: Native | None = None
        self._told = False
        self._said: str | None = None
        compactions = Compactions(self._transcript)
        self._message_ids: set[str] = set()
        self._handlers: dict[str, _Handler] = {
            "session_meta": self._meta_again,
            "turn_context": self._settings.turn_context,
            "compacted": compactions.compacted,
            "response_item.message": self._message,
            "response_item.agent_message": self._agent_message,
            "event_msg.task_started": self._task_started,
            "event_msg.task_complete": self._task_complete,
            "event_msg.turn_aborted": self._turn_aborted,
            "event_msg.error": self._error,
            **dict.fromkeys(("event_msg.token_count", "token_usage_record"), self._token_count),
            "event_msg.context_compacted": compactions.told,
            **dict.fromkeys(TOLD_AGAIN, self._told_again),
            **dict.fromkeys((f"response_item.{kind}" for kind in OUTPUTS), self._answers.result),
        }
        self._count(meta)
        begin(importer, builder, meta)
        self._settle(meta, MAPPED)

    def is_about(self, meta: Native) -> bool:
        """Whether a further ``session_meta`` speaks of this session, or of the one whose history its file repeats."""
        return meta.payload.get("id") in self._ids

    def feed(self, native: Native) -> None:
        self._count(native)
        kind, item = native.kind, native.payload_type
        if native.type == "response_item" and (item in ANSWER or (item == "message" and native.role == "assistant")):
            if self._answers.is_over():
                self._close_answer()
            self._answer_goes_on(native)
            return
        if kind in BEHIND_ANSWERS:
            self._close_answer()
            self._answers.expected = kind in BEFORE_ANSWERS
        handler = self._handlers.get(kind)
        if handler is None and kind not in KNOWN_NOTES:
            self._report.unknown[kind] += 1
        self._settle(native, NOTE if handler is None else handler(native))

    def ended(self) -> ImportedSession:
        """Another session begins: nothing of this one comes any more."""
        self._close_answer()
        self._begin_announced()
        self._give_up(USER, ASSISTANT, REASONING)
        return self._transcript.builder.session()

    def cut_off(self) -> ImportedSession:
        """The file ends, and may go on later: what is open is left for then."""
        announced = [] if self._announced is None else [self._announced]
        waiting = [*self._answers.waiting(), *self._twins.waiting(), *announced]
        self._report.waiting.update(native.kind for native in waiting)
        return self._transcript.builder.session()

    # --- counting ----------------------------------------------------------------------------------------------------

    def _count(self, native: Native) -> None:
        self._report.records[native.kind] += 1
        self._report.zoneless(native.naive)
        if native.source.time is None:
            self._seen.timeless.append(native.line.number)

    def _settle(self, native: Native, outcome: Outcome) -> None:
        kind = native.kind
        if outcome == WAITS:
            return
        if outcome == NOTE:
            self._transcript.note(f"codex.{kind}", native.fields.take_all(), native.source)
        counted = {MAPPED: self._report.mapped, NOTE: self._report.notes, REPEAT: self._report.repeats}
        counted[outcome][kind] += 1
        self._report.left(kind, native.left())

    def _settle_each(self, settled: Iterable[Settled]) -> None:
        for native, outcome in settled:
            self._settle(native, outcome)

    def _give_up(self, *roles: str) -> None:
        """Events that told something of their own after all."""
        self._settle_each((native, NOTE) for native in self._twins.end(*roles))

    def _repeated(self, role: str, texts: list[str]) -> None:
        """What events before this item told already."""
        self._settle_each((native, REPEAT) for native in self._twins.item(role, texts))

    # --- turns -------------------------------------------------------------------------------------------------------

    def _task_started(self, native: Native) -> Outcome:
        """The turn begins with the first answer, behind the messages and settings that it begins with."""
        self._begin_announced()
        self._end_turn(native, synthesized=True)
        self._announced = native
        return WAITS

    def _begin_announced(self) -> None:
        if self._announced is not None:
            self._transcript.begin_turn(self._announced.source, synthesized=False)
            self._settle(self._announced, MAPPED)
            self._announced, self._told = None, True

    def _begin_turn(self, native: Native) -> None:
        self._begin_announced()
        if self._transcript.turn is None:
            self._transcript.begin_turn(native.source, synthesized=True)
            self._told = False

    def _end_turn(self, native: Native, aborted: TurnAbortReason | None = None, *, synthesized: bool = False) -> bool:
        ended = self._transcript.end_turn(native.source, aborted, synthesized=synthesized)
        if ended:
            self._give_up(USER, ASSISTANT, REASONING)
        return ended

    def _task_complete(self, native: Native) -> Outcome:
        self._begin_announced()
        if native.payload.get("last_agent_message") == self._said:
            native.fields.take("last_agent_message")
        error = native.payload.get("error")
        if isinstance(error, dict):
            native.fields.take("error")
            self._failed(error, native)
        return MAPPED if self._end_turn(native) or isinstance(error, dict) else NOTE

    def _turn_aborted(self, native: Native) -> Outcome:
        self._begin_announced()
        if self._transcript.turn is None:
            return NOTE
        reason = str(native.payload.get("reason"))
        if reason in ABORTED:
            native.fields.take("reason")
        self._end_turn(native, ABORTED.get(reason, "UNKNOWN"))
        return MAPPED

    def _error(self, native: Native) -> Outcome:
        self._failed(native.fields.data, native)
        native.fields.take_each("message", "codex_error_info")
        return MAPPED

    def _failed(self, error: dict[str, Any], native: Native) -> None:
        info = error.get("codex_error_info")
        name = info if isinstance(info, str) else next(iter(info), None) if isinstance(info, dict) else None
        told = self._transcript.blobs.error(
            name or "CodexError", error.get("message"), None if isinstance(info, str) else info
        )
        self._transcript.add(ErrorRecorded(error=told), native.source)

    # --- answers -----------------------------------------------------------------------------------------------------

    def _answer_goes_on(self, native: Native) -> None:
        self._begin_turn(native)
        self._answers.goes_on(native)
        if native.payload_type in CALLS:
            return
        reasoning = native.payload_type == "reasoning"
        texts = items.texts_of(native.payload.get("summary" if reasoning else "content"))
        self._said = self._said if reasoning else (texts[-1] if texts else None)
        self._repeated(REASONING if reasoning else ASSISTANT, texts)

    def _token_count(self, native: Native) -> Outcome:
        if not self._answers.tells_tokens(native):
            return NOTE
        self._settle_each(self._answers.tokens(native))
        return WAITS

    def _close_answer(self) -> None:
        self._settle_each(self._answers.close())

    # --- messages ----------------------------------------------------------------------------------------------------

    def _message(self, native: Native) -> Outcome:
        if native.role not in ROLES:
            return NOTE
        user = native.role == "user"
        if user:
            text = "".join(items.texts_of(native.payload.get("content")))
            self._repeated(USER, [text])
            if not self._told and self._transcript.end_turn(native.source, synthesized=True):
                self._give_up(ASSISTANT, REASONING)
        self._said_to_model(native, ROLES[native.fields.take("role")], PERSON if user else HARNESS)
        return MAPPED

    def _agent_message(self, native: Native) -> Outcome:
        """What another agent said to this one."""
        author = native.fields.take_text("author")
        self._said_to_model(native, "EXTERNAL_AGENT", Actor("AGENT", short_text(author or "unknown")))
        return MAPPED

    def _said_to_model(self, native: Native, role: MessageRole, actor: Actor) -> None:
        message_id, number = usable_id(native.payload.get("id")), self._transcript.builder.number("m")
        if message_id is None or message_id in self._message_ids:
            message_id = number
        else:
            native.fields.take("id")
        self._message_ids.add(message_id)
        parts = self._transcript.blobs.parts(native.fields.take("content"))
        event = MessageReceived(message_id=message_id, role=role, parts=parts)
        self._transcript.add(event, native.source, actor)

    def _told_again(self, native: Native) -> Outcome:
        told = told_by(native)
        if told is None:
            return NOTE
        native.fields.take(told.field)
        return REPEAT if self._twins.event(told.role, told.text, native) else WAITS

    def _meta_again(self, native: Native) -> Outcome:
        return REPEAT if native.payload == self._meta.payload else NOTE

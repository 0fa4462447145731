"""One session of a Claude Code file, line by line: the conversation, a branch of it, or another agent's part. Pure.

A model's message stands in several lines of one id, and results of its first calls can come between them. So whatever
follows a message's line waits until something comes that only follows a whole message. At the end of the file it goes
on waiting.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dalsegno.importers.base import ImportReport
from dalsegno.importers.builder import PERSON, Added, SessionBuilder, Source
from dalsegno.importers.claude_code.compaction import Compaction
from dalsegno.importers.claude_code.content import parts_of, usage_of, wanted_of
from dalsegno.importers.claude_code.records import (
    BEHIND_ANSWERS,
    CONTEXT,
    KNOWN_NOTES,
    SPOKEN,
    SYNTHETIC,
    Findings,
    Native,
)
from dalsegno.importers.claude_code.results import Results, asks_for
from dalsegno.importers.payload import digest_json, short_text
from dalsegno.importers.transcript import Asked, Transcript
from dalsegno.importers.wanted import requested_calls
from dalsegno.model.events import ArtifactRecorded, InferenceCompleted, InferenceFailed, MessageReceived, Usage
from dalsegno.model.records import Actor

_BOUNDARY = "system.compact_boundary"
HARNESS = Actor("HARNESS", "claude-code")
AGENT = Actor("AGENT", "claude-code")


class Mark(NamedTuple):
    """Where a line's events end, and what is open there."""

    at: Added
    busy: bool
    turn: str | None
    context: dict[str, Any]


class _Delegated(NamedTuple):
    """Another agent began, while the message that asked for it may go on."""

    prompt: str
    child_session: str
    source: Source


@dataclass
class _Message:
    """A model's message that may go on, and what came behind it."""

    id: str
    asked: Asked
    lines: list[Native]
    behind: list[Native | _Delegated] = field(default_factory=list)


class Stream:
    """A session while it is written. ``side``: it is that of an agent to whom another one delegated, and who speaks to
    it. ``before``: the session that it is a fork of."""

    def __init__(
        self, builder: SessionBuilder, report: ImportReport, seen: Findings, context: dict[str, Any], *,
        side: bool = False, before: Stream | None = None,
    ) -> None:  # fmt: skip
        self.builder = builder
        self.transcript = Transcript(builder, HARNESS)
        self.context = context
        self.marks: dict[str, Mark] = {}
        self._report, self._seen, self._side = report, seen, side
        self._results = Results(self.transcript, seen)
        self._compaction: Compaction = Compaction(self.transcript, None if before is None else before._compaction)
        self._message: _Message | None = None
        self._answered: set[str] = set()

    def feed(self, native: Native) -> None:
        message = self._message
        if message is not None:
            if native.type == "assistant" and native.message_id == message.id:
                self._look_at_context(native)
                self._goes_on(native)
                return
            if native.type != "assistant" and not native.says and native.kind not in BEHIND_ANSWERS:
                message.behind.append(native)
                return
            self.close()
        self._now(native)

    def delegate(self, prompt: str, child_session: str, source: Source) -> bool:
        """Another agent began with this prompt; whether a call of this session asked for it."""
        message = self._message
        if message is None:
            return self._results.delegate(prompt, child_session, source)
        blocks = [block for native in message.lines for block in native.blocks if block.get("type") == "tool_use"]
        asked = any(asks_for(str(block.get("name")), block.get("input"), prompt) for block in blocks)
        if asked:
            message.behind.append(_Delegated(prompt, child_session, source))
        return asked

    def close(self) -> None:
        """The model's message is whole; then what came behind it."""
        message, self._message = self._message, None
        if message is None:
            return
        self._answer(message)
        for later in message.behind:
            if isinstance(later, _Delegated):
                self._results.delegate(*later)
            else:
                self._now(later)

    def end(self) -> None:
        """Nothing comes any more."""
        self.close()
        if self._compaction.boundary is not None:
            self._compact(None)

    def waiting(self) -> Iterable[Native]:
        """The lines that are left for when the file has grown."""
        message = self._message
        behind = [] if message is None else [native for native in message.behind if isinstance(native, Native)]
        boundary = self._compaction.boundary
        return [*([] if message is None else message.lines), *behind, *([] if boundary is None else [boundary])]

    # --- one line ----------------------------------------------------------------------------------------------------

    def _now(self, native: Native) -> None:
        self._look_at_context(native)
        if self._compaction.boundary is not None and (native.type in SPOKEN or native.kind == _BOUNDARY):
            self._compact(native if native.sums_up else None)
            if native.sums_up:
                self._settle(native, mapped=True)
                return
        if native.type == "assistant":
            self._begin_message(native)
        elif native.type == "user":
            self._user(native)
        elif native.kind == _BOUNDARY:
            self._compaction.boundary = native
        elif native.type == "file-history-snapshot":
            self._snapshot(native)
        else:
            if native.kind not in KNOWN_NOTES:
                self._report.unknown[native.kind] += 1
            self._settle(native, mapped=False)

    def _compact(self, summary: Native | None) -> None:
        """A boundary waits for its summary, which is the next that is said if there is one."""
        boundary, self._compaction.boundary = self._compaction.boundary, None
        assert boundary is not None
        self._compaction.end(boundary, summary)
        self._settle(boundary, mapped=True)

    def _settle(self, native: Native, *, mapped: bool) -> None:
        if not mapped:
            self.transcript.note(f"claude-code.{native.kind}", native.fields.take_all(), native.source)
        (self._report.mapped if mapped else self._report.notes)[native.kind] += 1
        self._report.left(native.kind, native.fields.left())
        if native.uuid is not None:
            busy = bool(self.transcript.open_calls())
            self.marks[native.uuid] = Mark(self.builder.last(), busy, self.transcript.turn, self.context)

    def _look_at_context(self, native: Native) -> None:
        changed = {
            name: native.line.data[name]
            for name in CONTEXT
            if name in native.line.data and native.line.data[name] != self.context.get(name)
        }
        if changed:
            self.context = {**self.context, **changed}
            self.transcript.note("claude-code.context", changed, native.source)

    def _snapshot(self, native: Native) -> None:
        """Copies of files as they were; where the copies lie is named, they are not in the file."""
        artifact_id = short_text(native.fields.take("messageId") or native.line.ref)
        blob = self.transcript.blobs.of_json(native.fields.take_all())
        self.transcript.add(ArtifactRecorded(artifact_id=artifact_id, blob=blob), native.source)
        self._settle(native, mapped=True)

    # --- what was said to the model ----------------------------------------------------------------------------------

    def _user(self, native: Native) -> None:
        said = [block for block in native.blocks if block.get("type") != "tool_result"]
        if native.results and not self._results.take(native):
            self._settle(native, mapped=False)
            return
        native.fields.take_inside("message", ("role", "content"))
        if native.says and not native.meta:
            if native.interrupts:
                self.transcript.end_turn(native.source, "INTERRUPTED")
            else:
                self.transcript.end_turn(native.source, synthesized=True)
        if said or not native.results:
            self._say(native, said)
        self._compaction.saw(native.uuid, native.uuid or native.line.ref)
        self._settle(native, mapped=True)

    def _say(self, native: Native, blocks: list[dict[str, Any]]) -> None:
        native.fields.take_each("isMeta", "isCompactSummary")
        channel = "meta" if native.meta else "interruption" if native.interrupts else None
        event = MessageReceived(
            message_id=native.uuid or native.line.ref,
            role="EXTERNAL_AGENT" if self._side else "USER",
            channel="summary" if native.sums_up else channel,
            parts=parts_of(blocks, self.transcript.blobs),
        )
        actor = HARNESS if native.meta or native.sums_up else AGENT if self._side else PERSON
        self.transcript.add(event, native.source, actor)

    # --- what the model said -----------------------------------------------------------------------------------------

    def _begin_message(self, native: Native) -> None:
        failed = native.line.data.get("isApiErrorMessage") is True
        model = native.message.get("model")
        if model == SYNTHETIC and not failed:
            self._settle(native, mapped=False)
            return
        if self.transcript.turn is None:
            self.transcript.begin_turn(native.source, synthesized=True)
        name = short_text(model) if isinstance(model, str) and model != SYNTHETIC else None
        asked = self.transcript.ask(native.source, "anthropic", name)
        if failed:
            text = native.text()
            error = self.transcript.blobs.error("ApiError", text)
            self.transcript.ended(
                asked, InferenceFailed(inference_id=asked.inference_id, error=error), name, native.source
            )
            native.fields.take("isApiErrorMessage")
            native.fields.take_inside("message", ("type", "role", "content", "model"))
            self._settle(native, mapped=True)
            return
        self._message = _Message(native.message_id, asked, [])
        self._goes_on(native)

    def _goes_on(self, native: Native) -> None:
        assert self._message is not None
        self._message.lines.append(native)
        if native.message.get("stop_reason") is not None:
            self.close()

    def _answer(self, message: _Message) -> None:
        transcript, lines, last = self.transcript, message.lines, message.lines[-1]
        late = message.id in self._answered
        self._answered.add(message.id)
        if late:
            self._seen.late.append(lines[0].line.number)
        blocks = [block for native in lines for block in native.blocks]
        wanted = [wanted_of(block) for block in blocks if block.get("type") == "tool_use"]
        raw = [native.fields.take("message", {}) for native in lines]
        model, stop = last.message.get("model"), last.message.get("stop_reason")
        event = InferenceCompleted(
            inference_id=message.asked.inference_id,
            usage=Usage() if late else usage_of(last.message),  # each line tells that of the whole message so far
            model=short_text(model) if isinstance(model, str) else None,
            response_id=short_text(message.id),
            finish_reasons=[short_text(stop)] if isinstance(stop, str) else [],
            output_digest=digest_json(blocks),
            tool_calls=requested_calls(message.asked.inference_id, wanted),
            output=parts_of(blocks, transcript.blobs),
            raw=transcript.blobs.of_json(raw),
        )
        opened = transcript.answer(message.asked, event, wanted, last.source)
        for native in lines:
            self._compaction.saw(native.uuid, message.asked.inference_id)
            self._settle(native, mapped=True)
        for each in opened:
            self._compaction.saw(None, each.call.id)

"""What the mapping of a trace works with: the session, its stages, its calls, notes of what has no event."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dalsegno.importers.builder import Added, SessionBuilder, Source
from dalsegno.importers.otel.spans import Span, Trace
from dalsegno.importers.payload import BlobMaker, short_text
from dalsegno.importers.tool_calls import ToolCalls
from dalsegno.model.events import ErrorInfo, NewEvent, NoteRecorded
from dalsegno.model.records import Actor

HARNESS = Actor("HARNESS", "opentelemetry")


class Session:
    """One session while it is being mapped. ``stages``: id of an agent's span -> its stage."""

    def __init__(self, builder: SessionBuilder, trace: Trace) -> None:
        self.builder = builder
        self.blobs: BlobMaker = builder.blobs
        self.calls = ToolCalls(builder, HARNESS)
        self.stages: dict[str, str] = {}
        self.results: dict[str, str] = {}
        """Native call id -> what the last tool with it gave back, as the text that stands in its span."""
        self._trace = trace

    def source(self, span: Span, at: int | None = None) -> Source:
        """``at``: nanoseconds; the span's begin where nothing is named."""
        time = span.start if at is None else at
        return Source(
            f"{span.ref} (span {short_text(span.id, 64)})", None if time is None else time // 1000, span.digest
        )

    def stage_of(self, span: Span) -> str | None:
        """The stage around a span."""
        above = span.parent
        while above is not None and above.id not in self.stages:
            above = above.parent
        return None if above is None else self.stages[above.id]

    def add(
        self,
        event: NewEvent,
        span: Span,
        actor: Actor = HARNESS,
        *,
        at: int | None = None,
        cause: Added | None = None,
        timeless: bool = False,
        synthesized: bool = False,
    ) -> Added:
        source = self.source(span, at)
        stage_id = self.stages.get(span.id) or self.stage_of(span)
        return self.builder.add(
            event,
            source._replace(time=None) if timeless else source,
            actor,
            cause=cause,
            stage_id=stage_id,
            synthesized=synthesized,
        )

    def note(self, kind: str, data: Any, span: Span) -> None:
        self.add(NoteRecorded(kind=kind, data=self.blobs.of_json(data)), span)

    def whole(self, span: Span) -> dict[str, Any]:
        """A span as the file holds it, with what stands around it there."""
        return {
            "service": self._trace.services[span.service].get("service.name"),
            "scope": span.scope,
            "span": span.data,
        }

    def rest(self, span: Span, carried: Iterable[str]) -> None:
        """Keep what of a mapped span no event holds; also its exact times, of which events have the microseconds."""
        known = set(carried)
        told = {name: value for name, value in span.data.items() if name not in ("attributes", "events")}
        told["attributes"] = {name: value for name, value in span.attributes.items() if name not in known}
        if span.events:
            told["events"] = span.events
        data = self.blobs.of_json({"scope": span.scope, "span": told})
        self.add(NoteRecorded(kind="otel.rest", data=data), span, at=span.end)

    def error(self, span: Span) -> ErrorInfo:
        """What a failed span says of its failure: its own type and message, or those of the exception in it."""
        exceptions = [event["attributes"] for event in span.events if event.get("name") == "exception"]
        raised = exceptions[-1] if exceptions else {}
        kind = span.attributes.get("error.type") or raised.get("exception.type") or "error"
        message = span.message or raised.get("exception.message")
        return self.blobs.error(kind, message, raised.get("exception.stacktrace"))

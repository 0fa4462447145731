"""Spans and steps of solvers and agents as stages; which stage and which scorer a record stands in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from dalsegno.importers.builder import SessionBuilder, Source
from dalsegno.importers.payload import clean_text
from dalsegno.model.events import ErrorInfo, StageCompleted, StageFailed, StageScheduled, StageStarted
from dalsegno.model.records import Actor

STAGE_TYPES = frozenset({"solver", "agent"})
SCORER_TYPE = "scorer"
HARNESS = Actor("HARNESS", "inspect_ai")


@dataclass
class Span:
    """A span or step that has begun. ``stage_id`` is set for solvers and agents, ``scorer`` for scorers."""

    id: str
    parent: Span | None
    type: str
    name: str
    stage_id: str | None = None
    validation_id: str | None = None
    error: ErrorInfo | None = None
    inference_id: str | None = None
    ended: bool = False


class Stages:
    """The spans of one sample. Old logs have nested steps without ids: they are spans by their nesting."""

    def __init__(self, builder: SessionBuilder) -> None:
        self._builder = builder
        self._spans: dict[str, Span] = {}
        self._steps: list[Span] = []
        self._steps_begun = 0
        self._attempts: Counter[str] = Counter()

    def of(self, data: dict[str, Any]) -> Span | None:
        """The innermost span that a record stands in; a span itself stands in its parent."""
        if data.get("event") == "span_end":
            ending = self._spans.get(str(data.get("id")))
            return None if ending is None else ending.parent
        span_id = data.get("parent_id" if data.get("event") == "span_begin" else "span_id")
        if span_id is not None:
            return self._spans.get(str(span_id))
        return self._steps[-1] if self._steps else None

    def stage_of(self, span: Span | None) -> str | None:
        """The id of the stage around a span, if there is one."""
        while span is not None:
            if span.stage_id is not None:
                return span.stage_id
            span = span.parent
        return None

    def scorer_of(self, span: Span | None) -> Span | None:
        while span is not None and span.type != SCORER_TYPE:
            span = span.parent
        return span

    def begin_span(self, data: dict[str, Any]) -> Span:
        parent_id = data.get("parent_id")
        parent = self._spans.get(str(parent_id)) if parent_id is not None else None
        span = Span(str(data.get("id")), parent, str(data.get("type")), clean_text(str(data.get("name"))))
        self._spans[span.id] = span
        return span

    def begin_step(self, data: dict[str, Any]) -> Span:
        parent = self._steps[-1] if self._steps else None
        self._steps_begun += 1
        span = Span(f"step {self._steps_begun}", parent, str(data.get("type")), clean_text(str(data.get("name"))))
        self._steps.append(span)
        return span

    def end_span(self, data: dict[str, Any]) -> Span | None:
        span = self._spans.get(str(data.get("id")))
        return None if span is None or span.ended else span

    def end_step(self, data: dict[str, Any]) -> Span | None:
        """The innermost open step of that name; a step left open inside it stays open for good."""
        for index in range(len(self._steps) - 1, -1, -1):
            if self._steps[index].name == clean_text(str(data.get("name"))):
                span = self._steps[index]
                del self._steps[index:]
                return span
        return None

    def start(self, span: Span, source: Source) -> None:
        """A stage attempt begins: ``<stages around it>/<name>.<attempt>``."""
        outer = self.stage_of(span.parent)
        name = span.name if outer is None else f"{outer}/{span.name}"
        self._attempts[name] += 1
        attempt = self._attempts[name]
        span.stage_id = f"{name}.{attempt}"
        add, stage_id = self._builder.add, span.stage_id
        scheduled = add(
            StageScheduled(stage_id=stage_id, stage_name=name, attempt=attempt), source, HARNESS, stage_id=stage_id
        )
        add(StageStarted(stage_id=stage_id), source, HARNESS, cause=scheduled, stage_id=stage_id)

    def end(self, span: Span, source: Source) -> None:
        assert span.stage_id is not None
        span.ended = True
        if span.error is None:
            self._builder.add(StageCompleted(stage_id=span.stage_id), source, HARNESS, stage_id=span.stage_id)
        else:
            failed = StageFailed(stage_id=span.stage_id, error=span.error)
            self._builder.add(failed, source, HARNESS, stage_id=span.stage_id)

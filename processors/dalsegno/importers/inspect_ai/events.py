"""What each native event becomes. A handler that gives False has no event for the record: it is kept as a note."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dalsegno.importers.builder import PERSON, Source
from dalsegno.importers.inspect_ai.calls import error_words
from dalsegno.importers.inspect_ai.context import LIMITS, SampleContext
from dalsegno.importers.inspect_ai.record import Native
from dalsegno.importers.inspect_ai.stages import HARNESS, SCORER_TYPE, STAGE_TYPES, Span
from dalsegno.importers.payload import clean_text, count
from dalsegno.model.events import (
    CheckpointMarked,
    CompressionCompleted,
    ErrorRecorded,
    InputProvided,
    InputRequested,
    StatePatched,
)

Handler: TypeAlias = Callable[[SampleContext, Native, Source, "Span | None", "str | None"], bool]

_COMPACTIONS = {"summary": "SUMMARY", "edit": "EDIT", "trim": "TRIM"}


def _model(ctx: SampleContext, native: Native, source: Source, span: Span | None, stage_id: str | None) -> bool:
    ctx.messages(ctx.resolver.messages(native.data), source, stage_id)
    ctx.inferences.begin(native, source, span, stage_id)
    return True


def _tool(ctx: SampleContext, native: Native, source: Source, _: Span | None, stage_id: str | None) -> bool:
    ctx.calls.begin(native, source, stage_id)
    return True


def _approval(ctx: SampleContext, native: Native, source: Source, _: Span | None, stage_id: str | None) -> bool:
    return ctx.approvals.approve(native, source, stage_id)


def _span_begin(ctx: SampleContext, native: Native, source: Source, _: Span | None, __: str | None) -> bool:
    return _began(ctx, ctx.stages.begin_span(native.data), native, source)


def _span_end(ctx: SampleContext, native: Native, source: Source, _: Span | None, __: str | None) -> bool:
    return _ended(ctx, ctx.stages.end_span(native.data), native, source)


def _step(ctx: SampleContext, native: Native, source: Source, _: Span | None, __: str | None) -> bool:
    """The form of spans before 2025: begins and ends, nested, without ids."""
    if native.data.get("action") == "begin":
        return _began(ctx, ctx.stages.begin_step(native.data), native, source)
    return _ended(ctx, ctx.stages.end_step(native.data), native, source)


def _began(ctx: SampleContext, span: Span, native: Native, source: Source) -> bool:
    if span.type in STAGE_TYPES:
        ctx.stages.start(span, source)
    elif span.type == SCORER_TYPE:
        span.validation_id = ctx.scores.request(span.name, source, ctx.stages.stage_of(span))
    else:
        return False
    native.take_each("id", "type", "name", "action")
    return True


def _ended(ctx: SampleContext, span: Span | None, native: Native, source: Source) -> bool:
    if span is None or (span.stage_id is None and span.type != SCORER_TYPE):
        return False
    native.take_each("id", "type", "name", "action")
    if span.stage_id is not None:
        ctx.stages.end(span, source)
    return True


def _sample_init(ctx: SampleContext, native: Native, source: Source, _: Span | None, stage_id: str | None) -> bool:
    """The messages that a sample begins with; the goal holds its input, so the note does not repeat it."""
    state, sample = native.take("state"), native.take("sample")
    if isinstance(state, dict):
        ctx.messages(state.get("messages"), source, stage_id)
        state = {name: value for name, value in state.items() if name != "messages"}
    if isinstance(sample, dict):
        sample = {name: value for name, value in sample.items() if name != "input"}
    ctx.note(native.kind, {"sample": sample, "state": state}, source, stage_id)
    return True


def _state(ctx: SampleContext, native: Native, source: Source, _: Span | None, stage_id: str | None) -> bool:
    patch = ctx.builder.blobs.of_json(ctx.resolver.value(native.take("changes", [])))
    ctx.add(StatePatched(namespace=native.kind, patch=patch), source, HARNESS, stage_id)
    return True


def _input(ctx: SampleContext, native: Native, source: Source, _: Span | None, stage_id: str | None) -> bool:
    """The log holds the terminal's text, question and answer in one, at the time of the answer."""
    request_id = ctx.number(stage_id, "in")
    request = InputRequested(request_id=request_id)
    asked = ctx.builder.add(request, source, HARNESS, stage_id=stage_id, synthesized=True)
    content = ctx.builder.blobs.of_value(ctx.resolver.value(native.take("input", "")))
    answer = InputProvided(request_id=request_id, outcome="ACCEPTED", content=content)
    ctx.add(answer, source, PERSON, stage_id, cause=asked)
    return True


def _score(ctx: SampleContext, native: Native, source: Source, span: Span | None, stage_id: str | None) -> bool:
    score = native.data.get("score")
    if not isinstance(score, dict):
        return False
    native.take("score")
    scorer = ctx.stages.scorer_of(span)
    name = scorer.name if scorer is not None else ctx.only_scorer or "unknown"
    told = {**score, "target": native.take("target")}
    ctx.scores.decide(scorer, name, told, source, stage_id, intermediate=bool(native.take("intermediate")))
    return True


def _score_edit(ctx: SampleContext, native: Native, source: Source, _: Span | None, __: str | None) -> bool:
    return ctx.scores.edit(native, source)


def _compaction(ctx: SampleContext, native: Native, source: Source, _: Span | None, stage_id: str | None) -> bool:
    """The log says that it happened, not what it did: it can be shown, not done again."""
    kind, origin = native.take_text("type"), native.take_text("source")
    event = CompressionCompleted(
        compression_id=ctx.number(stage_id, "k"),
        method=_COMPACTIONS.get(kind or "", "UNKNOWN"),  # type: ignore[arg-type]
        effect="MARKER_ONLY",
        rule_id=None if origin is None else clean_text(origin),
        tokens_before=count(native.take("tokens_before")),
        tokens_after=count(native.take("tokens_after")),
    )
    ctx.add(event, source, HARNESS, stage_id)
    return True


def _sample_limit(ctx: SampleContext, native: Native, source: Source, _: Span | None, stage_id: str | None) -> bool:
    kind = str(native.data.get("type"))
    if kind not in LIMITS:
        ctx.limited = True
        return False
    native.take("type")
    ctx.limit(kind, native.take("limit"), native.take_text("message"), source, stage_id)
    return True


def _checkpoint(ctx: SampleContext, native: Native, source: Source, _: Span | None, stage_id: str | None) -> bool:
    field = "anchor_id" if native.kind == "anchor" else "checkpoint_id"
    if native.data.get(field) is None:
        return False
    event = CheckpointMarked(checkpoint_id=clean_text(str(native.take(field))), kind="ANCHOR")
    ctx.add(event, source, HARNESS, stage_id)
    return True


def _error(ctx: SampleContext, native: Native, source: Source, span: Span | None, stage_id: str | None) -> bool:
    error = ctx.builder.blobs.error(*error_words(native.take_object("error"), native))
    ctx.add(ErrorRecorded(error=error), source, HARNESS, stage_id)
    while span is not None:
        span.error, span = error, span.parent
    return True


HANDLERS: dict[str, Handler] = {
    "model": _model,
    "tool": _tool,
    "approval": _approval,
    "span_begin": _span_begin,
    "span_end": _span_end,
    "step": _step,
    "sample_init": _sample_init,
    "state": _state,
    "store": _state,
    "input": _input,
    "score": _score,
    "score_edit": _score_edit,
    "compaction": _compaction,
    "sample_limit": _sample_limit,
    "checkpoint": _checkpoint,
    "anchor": _checkpoint,
    "error": _error,
}
KEPT_AS_NOTES = frozenset({"sandbox", "info", "logger", "subtask", "branch", "interrupt", "review"})
"""Native types that are known and have no event of their own."""

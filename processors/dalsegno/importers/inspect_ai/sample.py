"""One sample of an Inspect log as one session."""

from __future__ import annotations

from typing import Any

from dalsegno.importers.base import ImportedSession, ImportReport
from dalsegno.importers.builder import Source
from dalsegno.importers.inspect_ai.context import LIMITS, SampleContext
from dalsegno.importers.inspect_ai.events import HANDLERS, KEPT_AS_NOTES
from dalsegno.importers.inspect_ai.header import Header
from dalsegno.importers.inspect_ai.order import BEGIN, Moment, Ordering
from dalsegno.importers.inspect_ai.record import Native, Resolver
from dalsegno.importers.inspect_ai.stages import HARNESS
from dalsegno.importers.payload import clean_text, parse_time
from dalsegno.model.events import NewEvent, SessionCompleted, SessionFailed

# What a sample says of itself from its start, and what only once it has ended; the rest of it becomes events.
_GIVEN = ("target", "choices", "metadata", "files", "setup", "sandbox")
_TOTALS = (
    "model_usage",
    "role_usage",
    "total_time",
    "working_time",
    "store",
    "error_retries",
    "timelines",
    "invalidation",
)
_CARRIED = frozenset(
    {"id", "epoch", "uuid", "input", "events", "events_data", "attachments", "messages", "output", "error", "limit"}
)
_TWICE = ("model", "tool")


def map_sample(header: Header, sample: dict[str, Any], place: str, report: ImportReport) -> ImportedSession:
    """All events of the session, in order; what was read, kept and left is added to the report."""
    events = _without_repeats(sample.get("events") or [], report)
    started = _first_time(sample, events, header.created)
    resolver = Resolver(sample, place)
    builder = header.builder(sample, started or 0)
    ctx = SampleContext(builder, resolver, report, header.only_scorer())
    start = Source("", started)
    header.begin(builder, resolver, sample, start)
    given = {name: sample[name] for name in _GIVEN if sample.get(name)}
    if given:
        ctx.note("sample", given, start, None)
    ordering = Ordering(resolver)
    moments = list(ordering.moments(events))
    ctx.calls.look_ahead(moments)
    end = _end_of_run(moments)
    at = start
    for moment in moments[:end]:
        at = Source("", _moment_time(moment))
        _one(ctx, moment)
    _finish(ctx, sample, at)
    for moment in moments[end:]:
        _one(ctx, moment)
    _account(ctx, sample, ordering.natives)
    return builder.session()


def _one(ctx: SampleContext, moment: Moment) -> None:
    phase, native = moment
    source = Source(native.ref, _moment_time(moment), native.digest)
    if phase != BEGIN:
        if native.kind == "model":
            ctx.inferences.end(native, source)
        elif native.kind == "tool":
            ctx.calls.end(native, source)
        return
    report, kind = ctx.report, clean_text(native.kind)
    report.records[kind] += 1
    span = ctx.stages.of(native.data)
    stage_id = ctx.stages.stage_of(span)
    handler = HANDLERS.get(native.kind)
    if handler is not None and handler(ctx, native, source, span, stage_id):
        report.mapped[kind] += 1
        return
    if handler is None and native.kind not in KEPT_AS_NOTES:
        report.unknown[kind] += 1
    report.notes[kind] += 1
    ctx.note(native.kind, native.take_all(), source, stage_id)


def _end_of_run(moments: list[Moment]) -> int:
    """Where the session ends: before the edits of scores that stand last, since those are made afterwards."""
    end = len(moments)
    while end > 0 and moments[end - 1].native.kind == "score_edit":
        end -= 1
    return end


def _finish(ctx: SampleContext, sample: dict[str, Any], at: Source) -> None:
    """What the sample says of itself at its end, and the session's own end."""
    ctx.messages(sample.get("messages"), Source("/messages", at.time), None)
    scores = sample.get("scores")
    for name, score in scores.items() if isinstance(scores, dict) else ():
        scorer = clean_text(name)
        if isinstance(score, dict) and not ctx.scores.decided(scorer):
            ctx.scores.decide(None, scorer, score, Source(f"/scores/{scorer}", at.time), None)
    limit = sample.get("limit")
    if isinstance(limit, dict) and not ctx.limited:
        ctx.limited = True
        if limit.get("type") in LIMITS:
            ctx.limit(str(limit["type"]), limit.get("limit"), None, Source("/limit", at.time), None)
    totals = {name: sample[name] for name in _TOTALS if sample.get(name)}
    if totals:
        ctx.note("sample_totals", totals, at, None)
    ctx.add(_end_event(ctx, sample), at, HARNESS, None)


def _end_event(ctx: SampleContext, sample: dict[str, Any]) -> NewEvent:
    open_ops = ctx.open_operations()
    error = sample.get("error")
    if not error:
        output = ctx.inferences.text_of(sample.get("output"))
        result = None if output is None else ctx.builder.blobs.of_text(output)
        return SessionCompleted(outcome="PARTIAL" if ctx.limited else "SUCCESS", open_ops=open_ops, result=result)
    told = error if isinstance(error, dict) else {"message": str(error)}
    rest = {name: value for name, value in told.items() if name != "message" and value}
    info = ctx.builder.blobs.error("SampleError", told.get("message"), ctx.resolver.value(rest))
    return SessionFailed(open_ops=open_ops, error=info)


def _without_repeats(events: list[dict[str, Any]], report: ImportReport) -> list[dict[str, Any]]:
    """The events without those that are there again: of the same ``uuid`` or, where a log has none, equal calls."""
    seen: set[str] = set()
    kept = []
    for data in events:
        native = Native(data, "")
        key = str(data["uuid"]) if data.get("uuid") else native.digest.hex()
        if key in seen and (data.get("uuid") or native.kind in _TWICE):
            report.records[clean_text(native.kind)] += 1
            report.repeats[clean_text(native.kind)] += 1
            continue
        seen.add(key)
        kept.append(data)
    return kept


def _account(ctx: SampleContext, sample: dict[str, Any], natives: list[Native]) -> None:
    """Complete the report: what no event holds."""
    report = ctx.report
    for native in natives:
        report.not_carried.update(f"{clean_text(native.kind)}.{clean_text(name)}" for name in native.left())
        report.zoneless(native.naive)
    known = {*_CARRIED, *_TOTALS, *_GIVEN, "scores", "started_at", "completed_at"}
    report.not_carried.update(f"sample.{clean_text(name)}" for name in sample if name not in known and sample[name])
    name = f"sample {clean_text(str(sample['id']))}, epoch {sample['epoch']}"
    if ctx.resolver.missing:
        report.warnings.append(f"{name}: {ctx.resolver.missing} attachments are not in the file")
    if not sample.get("events"):
        report.warnings.append(f"{name}: the log holds no events, only messages and scores")


def _first_time(sample: dict[str, Any], events: list[dict[str, Any]], created: int | None) -> int | None:
    for value in [*(event.get("timestamp") for event in events), sample.get("started_at")]:
        time, _ = parse_time(value)
        if time is not None:
            return time
    return created


def _moment_time(moment: Moment) -> int | None:
    native = moment.native
    return native.time if moment.phase == BEGIN or native.completed is None else native.completed

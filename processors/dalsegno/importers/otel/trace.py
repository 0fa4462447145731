"""One trace as one session."""

from __future__ import annotations

from collections import Counter

from dalsegno.importers.base import ImportedSession, ImportReport
from dalsegno.importers.builder import SessionBuilder
from dalsegno.importers.opening import Pin, begin_session, labels_of, session_id_of
from dalsegno.importers.otel.calls import AGENT, MODEL, OTHER, TOOL, role_of, same_calls
from dalsegno.importers.otel.evaluations import Evaluations
from dalsegno.importers.otel.models import Models
from dalsegno.importers.otel.order import BEGIN, Moment, moments
from dalsegno.importers.otel.session import HARNESS, Session
from dalsegno.importers.otel.spans import Span, Trace
from dalsegno.importers.otel.tools import Tools
from dalsegno.importers.payload import short_text
from dalsegno.model.events import (
    ErrorInfo,
    NewEvent,
    SessionCompleted,
    SessionCreated,
    SessionFailed,
    StageCompleted,
    StageFailed,
    StageScheduled,
    StageStarted,
)

_KINDS = {MODEL: "span of a model", TOOL: "span of a tool", AGENT: "span of an agent", OTHER: "span"}
_CONVERSATION = "gen_ai.conversation.id"


def map_trace(importer: str, report: ImportReport, trace: Trace) -> ImportedSession:
    return _Mapping(importer, trace, report).session()


class _Mapping:
    """One session while it is being mapped."""

    def __init__(self, importer: str, trace: Trace, report: ImportReport) -> None:
        self._trace = trace
        self._report = report
        self._same = same_calls(trace.spans)
        self._role = {span.id: role_of(span) for span in trace.spans}
        self._early = self._answered()
        self._moments = list(moments(trace.spans, self._early))
        first = next(moment.span for moment in self._moments)
        self._ctx = Session(
            SessionBuilder(
                session_id=session_id_of(importer, trace.id), importer=importer, started=_micros(first.start)
            ),
            trace,
        )
        self._models = Models(self._ctx, self._same)
        self._tools = Tools(self._ctx)
        self._evaluations = Evaluations(self._ctx)
        self._attempts: Counter[str] = Counter()
        self._first = first

    def session(self) -> ImportedSession:
        self._begin()
        for moment in self._moments:
            if moment.phase == BEGIN:
                self._account(moment.span)
                self._began(moment.span)
            else:
                self._ended(moment)
        self._end()
        self._warn()
        return self._ctx.builder.session()

    def _begin(self) -> None:
        spans = [moment.span for moment in self._moments]
        agents = [span for span in spans if self._role[span.id] == AGENT]
        names = [name for span in agents if (name := _agent(span))] or [span.name for span in spans]
        talks = sorted({str(span.attributes[_CONVERSATION]) for span in spans if span.attributes.get(_CONVERSATION)})
        labels = [("trace_id", self._trace.id), ("conversation_id", talks[0] if len(talks) == 1 else None)]
        created = SessionCreated(
            profile="IMPORTED", workflow_name=short_text(names[0]) or "unknown", labels=labels_of("otel", labels)
        )
        begin_session(self._ctx.builder, created, self._pins(), self._ctx.source(self._first), HARNESS)

    def _pins(self) -> list[Pin]:
        """Each program that sent spans, as it describes itself."""
        pins, names = [], Counter[str]()
        for resource in self._trace.services:
            name = short_text(resource.get("service.name"), 256) or "unknown"
            names[name] += 1
            unique = name if names[name] == 1 else f"{name}/{names[name]}"
            pins.append(Pin("HARNESS_BUILD", unique, resource.get("service.version"), resource))
        return pins

    def _account(self, span: Span) -> None:
        """Each span is counted when it begins."""
        report, role = self._report, self._role[span.id]
        kind = _KINDS[role]
        report.records[kind] += 1
        if role == OTHER:
            report.notes[kind] += 1
        elif role == MODEL and span.id not in self._same:
            report.repeats[kind] += 1
        else:
            report.mapped[kind] += 1

    # --- spans -------------------------------------------------------------------------------------------------------

    def _began(self, span: Span) -> None:
        role = self._role[span.id]
        if role == AGENT:
            self._stage_began(span)
        elif role == TOOL:
            self._tools.began(span)
        elif span.id in self._same:
            self._models.began(span)
        else:
            self._ctx.note("otel.same_call" if role == MODEL else "otel.span", self._ctx.whole(span), span)

    def _ended(self, moment: Moment) -> None:
        span, role = moment.span, self._role[moment.span.id]
        if role == AGENT:
            self._stage_ended(span)
        elif role == TOOL:
            self._tools.ended(span)
        elif span.id in self._same:
            self._models.ended(span, early=span.id in self._early)
        self._evaluations.of(span, self._models.answers.get(span.id))

    def _stage_began(self, span: Span) -> None:
        outer = self._ctx.stage_of(span)
        own = _agent(span) or short_text(span.name)
        name = own if outer is None else f"{outer}/{own}"
        self._attempts[name] += 1
        attempt = self._attempts[name]
        stage_id = self._ctx.stages[span.id] = f"{name}.{attempt}"
        scheduled = self._ctx.add(StageScheduled(stage_id=stage_id, stage_name=name, attempt=attempt), span)
        self._ctx.add(StageStarted(stage_id=stage_id), span, cause=scheduled)

    def _stage_ended(self, span: Span) -> None:
        stage_id = self._ctx.stages[span.id]
        event: NewEvent = StageCompleted(stage_id=stage_id)
        if span.failed:
            event = StageFailed(stage_id=stage_id, error=self._ctx.error(span))
        self._ctx.add(event, span, at=span.end)
        self._ctx.rest(span, ("gen_ai.operation.name", "gen_ai.agent.name"))

    def _answered(self) -> dict[str, int]:
        """A model's span may go on while the tools run that its answer asked for: the answer was there before. Gives
        the begin of the first such tool, by the id of the model's span."""
        found: dict[str, int] = {}
        for span in self._trace.spans:
            if self._role[span.id] != TOOL or span.start is None:
                continue
            above = span.parent
            while above is not None:
                if above.id in self._same and (above.end is None or span.start < above.end):
                    found[above.id] = min(span.start, found.get(above.id, span.start))
                above = above.parent
        return found

    # --- the end -----------------------------------------------------------------------------------------------------

    def _roots(self) -> list[Span]:
        return [span for span in self._trace.spans if not span.parent_id]

    def _end(self) -> None:
        """A trace has ended where the one span that everything lies in has."""
        roots = self._roots()
        if len(roots) != 1 or roots[0].end is None:
            return
        root = roots[0]
        open_ops = sorted([*self._ctx.calls.open_ids(), *self._models.open_inferences()])
        event: NewEvent = SessionCompleted(outcome="SUCCESS", open_ops=open_ops)
        if root.failed:
            error: ErrorInfo = self._ctx.error(root)
            event = SessionFailed(open_ops=open_ops, error=error)
        self._ctx.builder.add(event, self._ctx.source(root, root.end), HARNESS, synthesized=True)

    def _warn(self) -> None:
        report, spans, name = self._report, self._trace.spans, f"trace {self._trace.id}"
        orphans = sum(span.parent is None and bool(span.parent_id) for span in spans)
        if orphans:
            report.warnings.append(f"{name}: {orphans} spans lie in spans that are not in the file")
        repeats = sum(len(chain) - 1 for chain in self._same.values())
        if repeats:
            report.warnings.append(
                f"{name}: {repeats} spans report a model's call that a span inside them reports too (the same model, "
                "the same tokens, no agent or tool between): repeats, kept as notes"
            )
        if len(self._roots()) != 1:
            report.warnings.append(f"{name}: {len(self._roots())} spans without a parent: nothing says how it ended")


def _agent(span: Span) -> str:
    return short_text(span.attributes.get("gen_ai.agent.name"), 256)


def _micros(nanoseconds: int | None) -> int | None:
    return None if nanoseconds is None else nanoseconds // 1000

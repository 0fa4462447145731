"""OpenTelemetry traces (OTLP as JSON) with the gen_ai conventions: one session per trace.

``spans`` reads the file, ``order`` says in which order spans begin and end, ``calls`` which of them are calls of models
and tools and which of them report one and the same call, ``messages`` what models were told and said, ``trace`` what
becomes what.

A trace tells when something began and ended and what lay inside what, and that is all it knows of causes. It may be
sampled: what is missing was not necessarily never there. A trace without any span of a model, a tool or an agent is of
some other program; it is counted, and no session.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from dalsegno.importers.base import ImportedSession, Importer, ImportReport
from dalsegno.importers.json_file import foreign
from dalsegno.importers.otel.calls import OTHER, role_of
from dalsegno.importers.otel.spans import WANTED, Trace, read_traces
from dalsegno.importers.otel.trace import map_trace


class OtelImporter(Importer):
    """``Importer`` of OTLP traces."""

    name = "otel"
    about = "OpenTelemetry traces with gen_ai attributes, one session each (OTLP or Tempo as JSON)"

    def sessions(self, path: Path, report: ImportReport) -> Iterator[ImportedSession]:
        traces = read_traces(path, report, may_grow=not self.ended)
        agents = [trace for trace in traces if any(role_of(span) != OTHER for span in trace.spans)]
        if not agents:
            raise foreign(path, "", "no span has gen_ai attributes", WANTED)
        ours = {trace.id for trace in agents}
        for trace in traces:
            if trace.id not in ours:
                _leave_out(trace, report)
        return map(partial(map_trace, self.id, report), agents)


def _leave_out(trace: Trace, report: ImportReport) -> None:
    report.records["span of another program"] += len(trace.spans)
    report.skipped["span of another program"] += len(trace.spans)
    report.warnings.append(f"trace {trace.id} has no span of a model, a tool or an agent: it is no session")

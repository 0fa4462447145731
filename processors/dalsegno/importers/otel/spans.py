"""The spans of a file, by trace: OTLP JSON, one document or one a line, with the old names of Tempo's exports too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dalsegno.importers.base import ImportReport
from dalsegno.importers.fields import Fields
from dalsegno.importers.json_file import bad_file, foreign, object_at, objects_at, parse_json, read_bytes
from dalsegno.importers.json_lines import read_lines
from dalsegno.importers.payload import digest_json, short_text

WANTED = "an OpenTelemetry trace (OTLP as JSON)"
_RESOURCES = ("resourceSpans", "batches")
_SCOPES = ("scopeSpans", "instrumentationLibrarySpans")
_ERROR = (2, "STATUS_CODE_ERROR")


@dataclass(eq=False)
class Span:
    """One span. ``start`` and ``end`` are nanoseconds since 1970 UTC, as exact as they were written; None: not told."""

    id: str
    parent_id: str
    name: str
    start: int | None
    end: int | None
    failed: bool
    message: str
    attributes: dict[str, Any]
    events: list[dict[str, Any]]
    service: int
    """Place of its resource in ``Trace.services``."""
    scope: str
    ref: str
    digest: bytes
    data: dict[str, Any]
    parent: Span | None = None
    children: list[Span] = field(default_factory=list)


@dataclass(eq=False)
class Trace:
    id: str
    spans: list[Span] = field(default_factory=list)
    services: list[dict[str, Any]] = field(default_factory=list)
    """Each distinct resource, with its decoded attributes."""


def read_traces(path: Path, report: ImportReport, *, may_grow: bool) -> list[Trace]:
    """The traces in the order in which they begin in the file. Raises BadInputFile."""
    traces: dict[str, Trace] = {}
    seen: dict[tuple[str, str], bytes] = {}
    for place, document in _documents(path, report, may_grow=may_grow):
        for pointer, resource, scope, data in _spans(path, place, document):
            trace_id, span = _span(path, pointer, scope, data)
            trace = traces.setdefault(trace_id, Trace(trace_id))
            known = seen.get((trace_id, span.id))
            if known is not None and known != span.digest:
                raise bad_file(path, pointer, f"span {span.id} stands twice in its trace, and differs", WANTED)
            if known is not None:
                report.records["span"] += 1
                report.repeats["span"] += 1
                continue
            seen[trace_id, span.id] = span.digest
            if resource not in trace.services:
                trace.services.append(resource)
            span.service = trace.services.index(resource)
            trace.spans.append(span)
    for trace in traces.values():
        _link(trace)
    return list(traces.values())


def decoded(attributes: Any) -> dict[str, Any]:
    """A list of attributes as an object; of a name that stands twice the last one counts, as in the specification."""
    found = {}
    for item in attributes if isinstance(attributes, list) else []:
        if isinstance(item, dict) and isinstance(item.get("key"), str):
            found[item["key"]] = _value(item.get("value"))
    return found


def _documents(path: Path, report: ImportReport, *, may_grow: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """The file is one document; or, where its first line is a whole one, each line is."""
    data = read_bytes(path, WANTED)
    first, _, rest = data.partition(b"\n")
    if rest.strip() and first.rstrip().endswith(b"}"):
        for line in read_lines(path, WANTED, report, may_grow=may_grow):
            yield f"line {line.number}: ", line.data
        return
    yield "", object_at(path, "", parse_json(path, "", data, WANTED), WANTED)


def _spans(
    path: Path, place: str, document: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any], str, dict[str, Any]]]:
    """(where, resource, scope, span) of every span of one document."""
    if isinstance(document.get("trace"), dict):
        document, place = document["trace"], f"{place}/trace"
    top = next((name for name in _RESOURCES if name in document), None)
    if top is None:
        raise foreign(path, place, "no /resourceSpans and no /batches", WANTED)
    for index, batch in enumerate(objects_at(path, f"{place}/{top}", document[top], WANTED)):
        at = f"{place}/{top}/{index}"
        resource = decoded(Fields(batch).take_object("resource").get("attributes"))
        inner = next((name for name in _SCOPES if name in batch), None)
        if inner is None:
            raise foreign(path, at, "no /scopeSpans and no /instrumentationLibrarySpans", WANTED)
        for number, group in enumerate(objects_at(path, f"{at}/{inner}", batch[inner], WANTED)):
            scope = Fields(group).take_object("scope") or Fields(group).take_object("instrumentationLibrary")
            name = " ".join(short_text(scope[key], 256) for key in ("name", "version") if scope.get(key))
            pointer = f"{at}/{inner}/{number}/spans"
            for count, data in enumerate(objects_at(path, pointer, group.get("spans"), WANTED)):
                yield f"{pointer}/{count}", resource, name, data


def _span(path: Path, ref: str, scope: str, data: dict[str, Any]) -> tuple[str, Span]:
    trace_id, span_id, name = data.get("traceId"), data.get("spanId"), data.get("name")
    if not (isinstance(trace_id, str) and trace_id and isinstance(span_id, str) and span_id):
        raise foreign(path, ref, "no span with a /traceId and a /spanId", WANTED)
    if not isinstance(name, str):
        raise foreign(path, ref, "no text /name", WANTED)
    fields = Fields(data)
    status = fields.take_object("status")
    return trace_id, Span(
        id=span_id,
        parent_id=fields.take_text("parentSpanId") or "",
        name=name,
        start=_nanoseconds(path, ref, data, "startTimeUnixNano"),
        end=_nanoseconds(path, ref, data, "endTimeUnixNano"),
        failed=status.get("code") in _ERROR,
        message=short_text(status.get("message")),
        attributes=decoded(data.get("attributes")),
        events=[{**each, "attributes": decoded(each.get("attributes"))} for each in fields.take_objects("events")],
        service=0,
        scope=scope,
        ref=ref,
        digest=digest_json(data),
        data=data,
    )


def _nanoseconds(path: Path, ref: str, data: dict[str, Any], name: str) -> int | None:
    """A number or digits. A number with a point or an exponent has lost its last digits: what it was, nobody knows."""
    value = data.get(name)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 20:
        value = int(value)
    if value is None or value == 0:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**63:
        raise bad_file(path, f"{ref}/{name}", "no whole number of nanoseconds", WANTED)
    return value


def _value(value: Any) -> Any:
    """An OTLP value as the value that it is; integers may be written as digits."""
    if not isinstance(value, dict) or len(value) != 1:
        return value or None
    ((kind, inner),) = value.items()
    if kind == "intValue" and isinstance(inner, str) and len(inner) < 21 and inner.lstrip("-").isdecimal():
        return int(inner)
    if kind == "arrayValue":
        return [_value(item) for item in Fields(value).take_object(kind).get("values") or []]
    if kind == "kvlistValue":
        return decoded(Fields(value).take_object(kind).get("values"))
    return inner


def _link(trace: Trace) -> None:
    """Parents that are in the trace. A ring of parents, which no tracer makes, is opened where it is met."""
    by_id = {span.id: span for span in trace.spans}
    for span in trace.spans:
        parent = by_id.get(span.parent_id)
        above: Span | None = parent
        while above is not None and above is not span:
            above = above.parent
        if parent is not None and above is None:
            span.parent = parent
            parent.children.append(span)

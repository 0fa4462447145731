"""A trace's header beside an event: checked, in no byte of it, from OpenTelemetry where a program uses it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dalsegno import current_traceparent, events
from dalsegno.errors import InvalidEvent
from dalsegno.testing import MemoryLog, MemoryPublisher, memory_publisher

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-00"
CREATED = events.SessionCreated(workflow_name="w", profile="OBSERVED")


@pytest.fixture
def publisher() -> Iterator[MemoryPublisher]:
    with memory_publisher(writer="w/1/a") as found:
        yield found


def test_an_appends_trace_stands_in_the_header_and_a_sessions_everywhere(publisher: MemoryPublisher) -> None:
    session = publisher.session("s-1", traceparent=TRACE)
    first = session.append(CREATED)
    (second,) = session.append_batch([(events.NoteRecorded(kind="n"), {"traceparent": OTHER})])
    assert publisher.headers(first)["traceparent"] == TRACE.encode()
    assert publisher.headers(second)["traceparent"] == OTHER.encode()
    assert publisher.headers(second)["ce_type"] == b"dalsegno.event.v1.NoteRecorded"


def test_without_a_trace_there_is_no_header(publisher: MemoryPublisher) -> None:
    assert "traceparent" not in publisher.headers(publisher.session("s-1").append(CREATED))


def test_a_trace_enters_no_byte_of_the_record() -> None:
    values = []
    for trace in (None, TRACE):
        with memory_publisher(MemoryLog(), writer="w/1/a") as publisher:
            session = publisher.session("s-1", clock=lambda: 1, traceparent=trace)
            values.append(session.append(CREATED, event_id="e").value)
            assert publisher.rows("sessions", "s-1")
    assert values[0] == values[1]


@pytest.mark.parametrize("good", [TRACE, OTHER, "cc" + TRACE[2:], "01" + TRACE[2:] + "-what.comes=later"])
def test_what_the_grammar_allows(publisher: MemoryPublisher, good: str) -> None:
    pending = publisher.session("s-1").append(CREATED, traceparent=good)
    assert publisher.headers(pending)["traceparent"] == good.encode()


@pytest.mark.parametrize(
    "bad",
    [
        "", "x", TRACE.upper(), "ff" + TRACE[2:], TRACE + "-more", TRACE + "\n", TRACE[:-1], " " + TRACE,
        "00-" + "0" * 32 + TRACE[35:], TRACE[:36] + "0" * 16 + "-01", "01" + TRACE[2:] + "-é",
        "01" + TRACE[2:] + "more", 7,
    ],
)  # fmt: skip
def test_what_it_does_not_is_refused_and_does_no_harm(publisher: MemoryPublisher, bad: Any) -> None:
    session = publisher.session("s-1")
    with pytest.raises(InvalidEvent, match="traceparent is ") as caught:
        session.append(CREATED, traceparent=bad)
    assert caught.value.data["field"] == "traceparent"
    assert session.append(CREATED).result(5).seq == 1


def opentelemetry(monkeypatch: pytest.MonkeyPatch, *, valid: bool) -> None:
    """What ``current_traceparent`` uses of ``opentelemetry.trace`` 1.x."""
    span = SimpleNamespace(
        is_valid=valid, trace_id=0x4BF92F3577B34DA6A3CE929D0E0E4736, span_id=0xF067AA0BA902B7, trace_flags=1
    )
    module = ModuleType("opentelemetry.trace")
    module.get_current_span = lambda: SimpleNamespace(get_span_context=lambda: span)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", module)


def test_the_current_span_is_asked_at_every_append(publisher: MemoryPublisher, monkeypatch: pytest.MonkeyPatch) -> None:
    session = publisher.session("s-1", traceparent=current_traceparent)
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)
    assert current_traceparent() is None
    assert "traceparent" not in publisher.headers(session.append(CREATED))
    opentelemetry(monkeypatch, valid=True)
    assert publisher.headers(session.append(events.NoteRecorded(kind="n")))["traceparent"] == TRACE.encode()
    opentelemetry(monkeypatch, valid=False)
    assert "traceparent" not in publisher.headers(session.append(events.NoteRecorded(kind="n")))

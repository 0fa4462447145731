"""Events, and fields of events, by names that there are not: the answer names what was meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dalsegno import events
from dalsegno.errors import InvalidEvent, Usage
from dalsegno.log.encode import check
from dalsegno.log.publisher import Publisher
from dalsegno.log.schema_set import SchemaSet
from dalsegno.testing.memory_log import MemoryLog

WRONG: dict[str, tuple[Callable[[], Any], str, str, str]] = {
    "like another": (
        lambda: events.SessionCreated(workflow="w", profile="STRICT"),  # type: ignore[call-arg]
        "SessionCreated has no field workflow", "workflow_name", "workflow",
    ),
    "in other letters": (
        lambda: events.ToolCallStarted(toolCallId="c", executor="e"),  # type: ignore[call-arg]
        "ToolCallStarted has no field toolCallId", "tool_call_id", "toolCallId",
    ),
    "like nothing": (
        lambda: events.NoteRecorded(zzz=1), "NoteRecorded has no field zzz", "data, kind", "zzz"  # type: ignore[call-arg]
    ),
    "of a part": (lambda: events.Blob(digst=b""), "Blob has no field digst", "digest", "digst"),  # type: ignore[call-arg]
    "missing": (
        lambda: events.SessionCreated(profile="STRICT"),  # type: ignore[call-arg]
        "SessionCreated lacks workflow_name", "a value: the field has no default", "workflow_name",
    ),
    "without a name": (
        lambda: events.NoteRecorded("n"),  # type: ignore[misc]
        "NoteRecorded was given 1 values without a name", "kind=... and so on", "kind",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_field_names_its_event_and_the_fields_that_may_be_meant(case: str) -> None:
    make, found, wanted, field = WRONG[case]
    with pytest.raises(InvalidEvent) as caught:
        make()
    assert (caught.value.found, caught.value.wanted, caught.value.data["field"]) == (found, wanted, field)


@pytest.mark.parametrize("given", ["text", {"a": 1}])
def test_what_is_no_content_is_told_how_one_is_made(given: Any) -> None:
    publisher = Publisher(MemoryLog().connect())
    session = publisher.session("s-1")
    session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
    with pytest.raises(InvalidEvent, match=r"wanted: .*dalsegno\.blob\(content\) makes"):
        session.append(events.NoteRecorded(kind="k", data=given))
    publisher.close()


def test_an_address_is_no_publisher() -> None:
    with pytest.raises(Usage, match=r"wanted: a KafkaConfig\('kafka:9092'\)"):
        Publisher("kafka:9092")  # type: ignore[arg-type]


def test_an_event_type_that_there_is_not() -> None:
    with pytest.raises(AttributeError, match="has no ToolCallRequest; wanted: ToolCallRequested, "):
        _ = events.ToolCallRequest  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="has no Xyzzy; wanted: one of 'dalsegno schema list'"):
        _ = events.Xyzzy  # type: ignore[attr-defined]
    assert not hasattr(events, "__wrapped__")


def test_what_is_no_event_is_told_from_what_may_be_meant() -> None:
    class SessionCreate(events.NewEvent, frozen=True, kw_only=True):
        TYPE = "SessionCreate"
        VERSION = 1
        CLASS = "L"

    with Publisher(MemoryLog().connect()) as publisher:
        session = publisher.session("s-1")
        with pytest.raises(InvalidEvent, match=r"event is a SessionCreate; .*: SessionCreated, "):
            session.append(SessionCreate())
        with pytest.raises(InvalidEvent, match=r"the class SessionStarted; wanted: SessionStarted\(\.\.\.\)"):
            session.append(events.SessionStarted)  # type: ignore[arg-type]
        with pytest.raises(InvalidEvent, match="event is a dict"):
            session.append({"type": "SessionCreated"})  # type: ignore[arg-type]


def test_a_wrong_value_names_the_event_as_well() -> None:
    with Publisher(MemoryLog().connect()) as publisher, pytest.raises(InvalidEvent) as caught:
        publisher.session("s-1").append(events.NoteRecorded(kind=7))  # type: ignore[arg-type]
    assert caught.value.found == "NoteRecorded: kind is 7 (int)"


def test_a_record_with_a_wrong_field_names_its_event_and_the_fields_that_may_be_meant() -> None:
    writer = SchemaSet.load().event("NoteRecorded")
    meta = {
        "session_id": "s", "seq": 1, "epoch": 0, "prev_hash": None, "ignorable": True, "recorded_at": 1,
        "event_id": "e", "actor_kind": "HARNESS", "actor_id": "h", "writer": "w",
    }  # fmt: skip
    with pytest.raises(InvalidEvent) as caught:
        check(writer, {"meta": meta, "kind": "n", "datum": None})
    assert caught.value.found == "NoteRecorded: datum is no field of NoteRecorded"
    assert caught.value.wanted == "data"

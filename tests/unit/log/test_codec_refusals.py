"""What may not be written, and how it is said."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from dalsegno import events
from dalsegno.errors import InvalidEvent
from dalsegno.log.codec import check, encode, place
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.records import UNDECODABLE, Event, Unreadable
from log_samples import PARTITIONS, home, meta, pack, rekeyed, toy, writer_of

SCHEMAS = SchemaSet.load()
TESTS = Path(__file__).resolve().parents[2]


def refused(type_: str, field: str, /, envelope: dict[str, Any] | None = None, **fields: Any) -> InvalidEvent:
    """The error with which the event is refused; it must name the field."""
    with pytest.raises(InvalidEvent) as caught:
        check(SCHEMAS.event(type_), {"meta": envelope or meta(), **fields})
    assert caught.value.data["field"] == field
    return caught.value


def stored(type_: str, **fields: Any) -> Event:
    """The event as it comes back."""
    key, value = pack(SCHEMAS.event(type_), {"meta": meta(), **fields})
    event = place(SCHEMAS, key, value, home("s-1"), PARTITIONS)
    assert isinstance(event, Event)
    return event


COMPLETED: dict[str, Any] = {"inference_id": "i"}


def test_numbers_are_stored_as_they_are_or_refused() -> None:
    # case C35
    for number in (2**63 - 1, -(2**63), 2**53 + 1, 0):
        found = stored("InferenceCompleted", **COMPLETED, cost_usd_micros=number).body["cost_usd_micros"]
        assert found == number
        assert type(found) is int
    for number in (2**63, -(2**63) - 1):
        refused("InferenceCompleted", "cost_usd_micros", **COMPLETED, cost_usd_micros=number)
    for wrong in (float("nan"), float("inf"), float("-inf"), 1.9, 1.0, True, "1", None):
        if wrong is not None:
            refused("InferenceCompleted", "cost_usd_micros", **COMPLETED, cost_usd_micros=wrong)
    for wrong in (True, 2**31, -(2**31) - 1, 1.0):
        refused("InferenceCompleted", "attempt", **COMPLETED, attempt=wrong)
    for wrong in (1, 0, "true", None):
        refused("InferenceCompleted", "complete", **COMPLETED, complete=wrong)
    assert stored("InferenceCompleted", **COMPLETED, attempt=2**31 - 1).body["attempt"] == 2**31 - 1


def test_paths_lead_to_the_value() -> None:
    refused(
        "MessageReceived",
        "parts[1].text",
        message_id="m",
        role="USER",
        parts=[{"kind": "TEXT"}, {"kind": "TEXT", "text": 1}],
    )
    refused("InferenceCompleted", "usage.input", inference_id="i", usage={"input": True})
    refused("TimerFired", "meta.epoch", meta(epoch=2.0), timer="t")


def test_fields_and_types_that_the_schema_does_not_describe() -> None:
    refused("TimerFired", "timer")
    refused("TimerFired", "colour", timer="t", colour="red")
    refused("TimerFired", "timer", timer=None)
    refused("TimerFired", "timer", timer=b"t")
    refused("TurnAborted", "reason", turn_id="t", reason="BORED")
    refused("TurnAborted", "reason", turn_id="t", reason=1)
    refused("StageScheduled", "depends_on", stage_id="s", stage_name="s", depends_on="abc")
    refused("StageCompleted", "outputs_digest", stage_id="s", outputs_digest=b"short")
    refused("StageCompleted", "outputs_digest", stage_id="s", outputs_digest="0" * 32)
    refused("ErrorRecorded", "error", error="broken")
    with pytest.raises(InvalidEvent):
        check(SCHEMAS.event("TimerFired"), [])  # type: ignore[arg-type]


def test_blobs_say_what_they_hold() -> None:
    content = b"hello"
    good = {"digest": sha256(content).digest(), "size": 5, "media_type": "text/plain", "inline": content}
    assert stored("NoteRecorded", kind="k", data=good, meta=meta(ignorable=True)).body["data"]["inline"] == content
    note = meta(ignorable=True)
    refused("NoteRecorded", "data.size", note, kind="k", data={**good, "size": 4})
    refused("NoteRecorded", "data.digest", note, kind="k", data={**good, "digest": bytes(32)})
    large = bytes(65_537)
    blob = {"digest": sha256(large).digest(), "size": len(large), "media_type": "x/y", "inline": large}
    refused("NoteRecorded", "data.inline", note, kind="k", data=blob)
    refused("NoteRecorded", "data.size", note, kind="k", data={**good, "inline": None, "size": -1})


def test_an_envelope_that_cannot_stand_in_a_session() -> None:
    one = b"\x01" * 32
    refused("TimerFired", "meta.seq", meta(seq=-1), timer="t")
    refused("TimerFired", "meta.seq", meta(seq=0), timer="t")
    refused("TimerFired", "meta.epoch", meta(epoch=-1), timer="t")
    refused("TimerFired", "meta.prev_hash", meta(seq=1, prev_hash=one), timer="t")
    refused("TimerFired", "meta.prev_hash", meta(seq=2), timer="t")
    refused("TimerFired", "meta.prev_hash", {k: v for k, v in meta().items() if k != "prev_hash"}, timer="t")
    refused("TimerFired", "meta.session_id", meta(session_id=""), timer="t")
    refused("TimerFired", "meta.session_id", meta(session_id="x" * 201), timer="t")
    refused("HistoryAmended", "meta.seq", meta(seq=1), request_id="r", action="LOST", reason="gone")
    refused("NoteRecorded", "meta.ignorable", meta(), kind="k")


# --- times ------------------------------------------------------------------------------------------------------------


def test_a_time_without_zone_is_refused_and_others_are_exact() -> None:
    # case C32
    naive = datetime(2026, 1, 1, 12)  # noqa: DTZ001
    refused("TimerFired", "meta.occurred_at", meta(occurred_at=naive), timer="t")
    refused("SessionStarted", "clock_start", clock_start=naive)
    far = datetime(2243, 1, 1, 0, 0, 0, 64_000, tzinfo=UTC)
    noon = datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=timezone(timedelta(hours=8)))
    assert stored("SessionStarted", clock_start=far).body["clock_start"] == 8_615_030_400_064_000
    assert stored("SessionStarted", clock_start=noon).body["clock_start"] == 1_767_240_000_000_001
    berlin = ZoneInfo("Europe/Berlin")
    first = datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=0)
    second = datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=1)
    micros = [stored("SessionStarted", clock_start=time).body["clock_start"] for time in (first, second)]
    assert micros[1] - micros[0] == 3_600_000_000


def test_the_zone_of_the_machine_changes_nothing() -> None:
    # case C32
    script = (
        f"import sys; sys.path.insert(0, {str(TESTS)!r})\n"
        "from datetime import datetime, UTC\n"
        "from log_samples import pack, meta, home, PARTITIONS\n"
        "from dalsegno.log.codec import place\n"
        "from dalsegno.log.schema_set import SchemaSet\n"
        "s = SchemaSet.load()\n"
        "noon = datetime(2026, 7, 1, 12, tzinfo=UTC)\n"
        "key, value = pack(s.event('SessionStarted'), {'meta': meta(), 'clock_start': noon})\n"
        "print(key.decode(), value.hex(), place(s, key, value, home('s-1'), PARTITIONS).body['clock_start'])\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "TZ": zone},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for zone in ("Asia/Shanghai", "UTC", "America/New_York")
    }
    assert len(said) == 1
    assert said.pop().strip().endswith(" 1782907200000000")


# --- text -------------------------------------------------------------------------------------------------------------


def test_odd_text_is_kept_and_half_characters_are_refused() -> None:
    # case C65
    for text in ("a\x00b", "line\u2028line", "\U0001f600", "\ufeff", "\u202egnp", ""):
        assert stored("MessageReceived", message_id="m", role="USER", parts=[{"kind": "TEXT", "text": text}]).body[
            "parts"
        ][0]["text"] == (text)
    cut = "\U0001f600".encode("utf-16-le")[:2].decode("utf-16-le", errors="surrogatepass")
    error = refused(
        "MessageReceived", "parts[0].text", message_id="m", role="USER", parts=[{"kind": "TEXT", "text": "x" + cut}]
    )
    assert "surrogate" in error.found
    assert "nothing was written" in error.todo or "blob" in error.todo
    refused("TimerFired", "meta.actor_id", meta(actor_id="\ud800"), timer="t")


def test_stored_text_that_is_no_utf8_makes_its_record_unreadable() -> None:
    # case C65
    writer = SCHEMAS.event("TimerFired")
    body = encode(writer, check(writer, {"meta": meta(), "timer": "smile"}))
    broken = body.replace(b"smile", b"\xf0\x9f\x98il")
    placed = place(SCHEMAS, *rekeyed(writer, "s-1", 1, broken), home("s-1"), PARTITIONS)
    assert isinstance(placed, Unreadable)
    assert placed.reason == UNDECODABLE


# --- unions -----------------------------------------------------------------------------------------------------------

_A = {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]}
_B = {
    "type": "record",
    "name": "B",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "string"], "default": None}],
}


@pytest.mark.parametrize("order", [(_A, _B), (_B, _A)], ids=["A first", "B first"])
def test_no_branch_of_a_union_is_guessed(order: tuple[Any, Any]) -> None:
    # case C29
    writer = writer_of(toy(1, {"name": "u", "type": [*order]}))
    known = SchemaSet()
    known.ship(writer)

    def kept(value: Any) -> Any:
        event = place(known, *pack(writer, {"meta": meta(), "u": value}), home("s-1"), PARTITIONS)
        assert isinstance(event, Event)
        return event.body["u"]

    assert kept({"x": 1, "y": "more"}) == {"x": 1, "y": "more"}
    with pytest.raises(InvalidEvent) as caught:
        check(writer, {"meta": meta(), "u": {"x": 1}})
    assert caught.value.data["field"] == "u"
    assert kept(("dalsegno.event.v1.A", {"x": 1})) == {"x": 1}
    assert kept(("dalsegno.event.v1.B", {"x": 1})) == {"x": 1, "y": None}


@pytest.mark.parametrize("order", [("float", "double"), ("double", "float")])
def test_a_float_of_64_bits_is_not_narrowed(order: tuple[str, str]) -> None:
    # case C29
    writer = writer_of(toy(1, {"name": "u", "type": [*order]}))
    known = SchemaSet()
    known.ship(writer)
    key, value = pack(writer, {"meta": meta(), "u": 0.1})
    event = place(known, key, value, home("s-1"), PARTITIONS)
    assert isinstance(event, Event)
    assert event.body["u"].hex() == (0.1).hex()
    for wrong in (0.5, float("nan"), float("inf"), 1, True):
        with pytest.raises(InvalidEvent):
            check(writer, {"meta": meta(), "u": wrong})


def test_maps_cannot_be_written() -> None:
    writer = writer_of(toy(1, {"name": "m", "type": {"type": "map", "values": "string"}}))
    with pytest.raises(InvalidEvent) as caught:
        check(writer, {"meta": meta(), "m": {"a": "b"}})
    assert caught.value.data["field"] == "m"


# --- writer classes ---------------------------------------------------------------------------------------------------


def test_a_writer_class_becomes_the_record_of_its_schema() -> None:
    event = events.MessageReceived(message_id="m", role="USER", parts=[events.Part(kind="TEXT", text="hi")])
    writer = SCHEMAS.event(event.TYPE)
    record = check(writer, {"meta": meta(), **events.to_record(event)})
    assert record["parts"] == [{"kind": "TEXT", "call_id": None, "name": None, "text": "hi", "blob": None}]
    completed = check(
        SCHEMAS.event("InferenceCompleted"),
        {"meta": meta(), **events.to_record(events.InferenceCompleted(inference_id="i"))},
    )
    assert completed["usage"]["input"] is None
    assert completed["output"] == []
    with pytest.raises(AttributeError):
        event.message_id = "other"  # type: ignore[misc]

"""`dalsegno session show --at`: a session as it was at one of its events."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest

from dalsegno.cli.answers import row_values
from dalsegno.cli.output import dumps
from dalsegno.cli.times import moment
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.lifecycle import Verdict
from dalsegno.model.records import Event
from dalsegno.projections import registry
from dalsegno.projections.base import Projection, Rows
from dalsegno.readers.local import LocalReader
from dalsegno.testing.bench_flat import long_session
from dalsegno.testing.builder import SessionBuilder
from dalsegno.testing.strategies import FUTURE, future_event
from reader_lab import PREFIX, House
from shard_lab import apply, folded, reads

Say = Callable[..., tuple[str, str]]


def with_a_call() -> SessionBuilder:
    builder = SessionBuilder("s-1", profile="OBSERVED").begin()
    builder.append("TurnStarted", turn_id="t1")
    builder.append("InferenceRequested", inference_id="t1/i", attempt=1, purpose="OTHER", provider="p", model="m")
    calls = [{"tool_call_id": "t1/c0", "name": "search", "arguments_digest": None}]
    builder.append("InferenceCompleted", inference_id="t1/i", attempt=1, tool_calls=calls, complete=True)
    builder.append("ToolCallRequested", tool_call_id="t1/c0", inference_id="t1/i", name="search")
    builder.append("ToolCallAuthorized", tool_call_id="t1/c0", basis="POLICY_ALLOW")
    builder.append("ToolCallStarted", tool_call_id="t1/c0", attempt=1)
    builder.append("ToolReceiptRecorded", tool_call_id="t1/c0", attempt=1, status="OK")
    builder.append("SessionFailed")
    return builder


def test_a_seq_with_more_digits_than_python_reads_is_the_users_mistake(house: House, say: Say) -> None:
    house.shard(with_a_call().records)
    say("session", "show", "s-1", "--at", f"{1:020}{'9' * 5000}", code=2)


def seq_of(builder: SessionBuilder, type_: str) -> int:
    return next(event.seq for event in builder.events if event.type == type_)


def test_what_was_open_and_what_the_event_changed(house: House, say: Say) -> None:
    builder = with_a_call()
    house.shard(builder.records)
    at = seq_of(builder, "ToolCallRequested")
    text, err = say("session", "show", "s-1", "--at", str(at))
    lines = text.splitlines()
    assert lines[0].split() == ["session", "s-1"]
    assert ["status", "RUNNING"] in [line.split() for line in lines]
    assert not any(line.startswith("error") for line in lines), "only what is set, and the failure comes later"
    assert [line.split() for line in lines if line.startswith("  open")] == [
        ["open", "TOOL", "t1/c0"],
        ["open", "TURN", "t1"],
    ]
    assert sum(line.split()[:1] == [str(at)] and "ToolCallRequested" in line for line in lines) == 1
    assert {"  changed  sessions  s-1", "  changed  tools  t1/c0"} <= set(lines)
    assert f"true at {PREFIX}.events:0@{len(builder.records)}" in err
    assert '"name": "search"' not in text
    assert '"name": "search"' in say("session", "show", "s-1", "--at", str(at), "--detailed")[0]


def test_every_seq_as_json_is_what_a_session_that_ends_there_is(house: House, say: Say) -> None:
    builder = with_a_call()
    house.shard(builder.records)
    for seq in range(1, len(builder.records) + 1):
        found = json.loads(say("-o", "json", "session", "show", "s-1", "--at", str(seq))[0])
        assert list(found) == ["session", "at", "open", "event", "rows"]
        assert (found["at"], found["event"]["seq"], found["event"]["violations"]) == (seq, seq, [])
        row = reads(folded(builder.records[:seq])).row("sessions", "s-1")
        wanted = {"session": "s-1", **json.loads(dumps(row_values(row)))}
        position = found["session"].pop("position")
        assert position == f"0@{len(builder.records)}"
        assert found["session"] == wanted
    assert found["rows"]["sessions"][0]["row"]["status"] == "FAILED"


def test_what_a_session_adds_to_sums_is_shown_as_its_own_part(house: House, say: Say) -> None:
    builder = with_a_call()
    house.shard(builder.records)
    at = seq_of(builder, "InferenceCompleted")
    found = json.loads(say("-o", "json", "session", "show", "s-1", "--at", str(at))[0])
    (sums,) = found["rows"]["usage"]
    assert (sums["id"][-2:], sums["row"]["inferences"]) == (["p", "m"], 1)


class Turn(msgspec.Struct, array_like=True):
    turn_id: str


class OpenTurn(Projection[Turn]):
    """A row while a turn is open, and none else."""

    name, version, row = "open_turn", 1, Turn
    handles = frozenset({"TurnStarted", "TurnCompleted"})

    def fold(self, rows: Rows[Turn], event: Event, _: Verdict) -> None:
        if event.type == "TurnStarted":
            rows.put((7,), Turn(event.body["turn_id"]))
        else:
            rows.delete((7,))


def test_a_row_that_went_is_said_to_be_gone(house: House, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    projections = [*registry.built_in(), OpenTurn()]
    monkeypatch.setattr(registry, "built_in", lambda: projections)
    builder = SessionBuilder("s-1", profile="OBSERVED").begin()
    builder.append("TurnStarted", turn_id="t1")
    builder.append("TurnCompleted", turn_id="t1")
    house.shard(builder.records, projections=projections)
    began, ended = (str(seq_of(builder, type_)) for type_ in ("TurnStarted", "TurnCompleted"))
    assert "  changed  open_turn  7" in say("session", "show", "s-1", "--at", began)[0].splitlines()
    assert "  changed  open_turn  7  (gone)" in say("session", "show", "s-1", "--at", ended)[0].splitlines()
    found = json.loads(say("-o", "json", "session", "show", "s-1", "--at", ended)[0])
    assert found["rows"]["open_turn"] == [{"id": [7], "row": None}]


def test_a_long_session_is_opened_above_its_first_rung(house: House, say: Say) -> None:
    house.shard(long_session(600))
    found = json.loads(say("-o", "json", "session", "show", "long", "--at", "520")[0])
    assert (found["session"]["last_seq"], found["session"]["events"]) == (520, 520)


def test_what_cannot_be_shown_is_said(house: House, say: Say) -> None:
    house.shard(with_a_call().records)
    _, err = say("session", "show", "s-1", "--at", "99", code=4)
    assert "no event at seq 99" in err
    assert "ends at 18" in err
    say("session", "show", "s-1", "--at", "0", code=2)
    _, err = say("session", "show", "s-1", "--at", "3", "--reverse", code=2)
    assert "--at and --reverse" in err


def at_time(say: Say, micros: int, *, code: int = 0) -> tuple[int, str]:
    """The seq that the session had come to, and what is said on stderr."""
    text, err = say("-o", "json", "session", "show", "s-1", "--at", str(moment(micros)), code=code)
    return (json.loads(text)["at"] if text else 0), err


def test_at_a_time_it_is_what_its_writer_had_recorded_by_then(house: House, say: Say) -> None:
    # case C50
    builder = SessionBuilder("s-1", profile="OBSERVED").begin()
    begun = len(builder.records)
    start = builder.events[-1].meta["recorded_at"]
    told = [(1, None), (5, -600_000_000), (5, 9), (5, 0), (9, -1)]  # its writer's clock, and its producer's
    for recorded, occurred in told:
        own = None if occurred is None else start + occurred
        builder.append("NoteRecorded", meta={"recorded_at": start + recorded, "occurred_at": own}, kind="n")
    shard = house.shard(builder.records)
    wanted = {0: begun, 1: begun + 1, 4: begun + 1, 5: begun + 4, 8: begun + 4, 9: begun + 5, 10_000: begun + 5}
    assert {after: at_time(say, start + after)[0] for after in wanted} == wanted
    assert "the last event before the first that was recorded after that time" in at_time(say, start)[1]
    builder.append("NoteRecorded", meta={"recorded_at": start + 20, "occurred_at": start + 2}, kind="later")
    apply(shard, builder.records)
    assert {after: at_time(say, start + after)[0] for after in wanted if after < 20} == {
        after: seq for after, seq in wanted.items() if after < 20
    }
    assert "had no event then" in at_time(say, builder.events[0].meta["recorded_at"] - 1, code=4)[1]
    say("session", "show", "s-1", "--at", "2026-01-01T00:00:00", code=2)  # of no zone
    found = say("-o", "json", "session", "step", "s-1", "--at", str(moment(start + 1)), "--commands", "state")[0]
    assert json.loads(found)["seq"] == begun + 1


def test_a_schema_that_only_the_log_has_is_asked_for(house: House, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    knowing = SchemaSet.load()
    knowing.add(FUTURE.json)
    builder = SessionBuilder("s-1").begin()
    strange = future_event(builder, ignorable=True)
    house.shard([*builder.records, strange], schemas=knowing)
    at = str(len(builder.records) + 1)
    monkeypatch.setattr(LocalReader, "learn_schemas", lambda _: 0)
    assert "no longer holds" in say("session", "show", "s-1", "--at", at, code=1)[1]
    monkeypatch.setattr(LocalReader, "learn_schemas", lambda reader: reader._schemas.add(FUTURE.json) and 1)
    assert "SomethingNew" in say("session", "show", "s-1", "--at", at)[0]

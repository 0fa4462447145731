"""A writer that goes on from a shard's standing: what it folds, and where it reads all records instead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dalsegno import events
from dalsegno.errors import SnapshotAheadOfLog, Unsent
from dalsegno.harness.past import read_past
from dalsegno.log import admin, history
from dalsegno.log.admin import TopicFacts
from dalsegno.log.history import SessionRecords
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.publisher import Publisher
from dalsegno.model.ids import Offset
from dalsegno.model.records import Event
from dalsegno.projections.decider.rows import ITEM
from dalsegno.projections.registry import built_in
from dalsegno.readers import source
from dalsegno.readers.source import ShardSource
from dalsegno.state.history import Journal
from dalsegno.testing.bench_flat import long_session
from dalsegno.testing.builder import SessionBuilder, Written, tombstone
from dalsegno.testing.memory_log import MemoryLog
from reader_lab import PREFIX, TOPIC_ID, House
from shard_lab import apply

TOPIC = f"{PREFIX}.events"


class World:
    """A machine with one partition, a log in memory, and a writer that has nothing but them."""

    def __init__(self, house: House, log: MemoryLog) -> None:
        self.house, self.log = house, log
        self.publisher = Publisher(log.connect(), prefix=PREFIX, writer="test/1/second")
        self.source = ShardSource(house.data, PREFIX, house.store, KafkaConfig("nowhere:1"))

    def append(self, *records: Written) -> None:
        for record in records:
            self.log.put(TOPIC, 0, record.key, record.value)

    def stand(self, session_id: str = "s-1") -> SessionRecords:
        return self.source.stand(session_id, Offset(self.log.part(TOPIC, 0).high))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    log = MemoryLog(1)
    monkeypatch.setattr(source, "KafkaTransport", lambda _: log.connect())
    monkeypatch.setattr(admin, "topic_facts", lambda *_: TopicFacts(TOPIC_ID, 1, 1))
    with House(tmp_path) as house:
        made = World(house, log)
        yield made
        with suppress(Unsent):
            made.publisher.close(1)


def count(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[None]:
    calls: list[None] = []
    real = getattr(owner, name)

    def counted(*given: Any) -> Any:
        calls.append(None)
        return real(*given)

    monkeypatch.setattr(owner, name, counted)
    return calls


@pytest.mark.parametrize("known", [3_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_a_long_session_is_resumed_by_folding_its_tail_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    records = long_session(known + 40)
    shard = world.house.shard()
    for start in range(0, known, 5_000):
        apply(shard, records[start : min(start + 5_000, known)])
    world.append(*records)
    judged, decoded = count(monkeypatch, history, "judge"), count(monkeypatch, Journal, "event")
    session = world.publisher.resume("long", source=world.source)
    assert session.last_resume is not None
    assert (len(session.last_resume.placed), session.last_resume.records_read) == (40, 40)
    assert (len(judged), len(decoded)) == (40, 1)
    assert (session.seq, session.epoch) == (known + 41, 1)
    *_, inference = (
        each.event.body["inference_id"] for each in records if each.event and "inference_id" in each.event.body
    )
    assert session.operation("INFERENCE", inference) is not None
    session.append(events.NoteRecorded(kind="n")).result(5)


def test_it_resolves_what_is_open_below_the_standing_as_one_that_read_all(world: World) -> None:
    session = SessionBuilder("s-1", profile="OBSERVED").begin()
    session.append("TurnStarted", turn_id="t")
    session.append("ToolCallRequested", tool_call_id="c", name="run")
    session.append("ToolCallAuthorized", tool_call_id="c", basis="POLICY_ALLOW")
    session.append("ToolCallStarted", tool_call_id="c", attempt=1)
    session.append("InputRequested", request_id="q")
    world.house.shard(session.records)
    world.append(*session.records)
    assert world.stand().standing is not None
    world.publisher.resume("s-1", source=world.source).close()
    recovered = world.source.read("s-1", Offset(world.log.part(TOPIC, 0).high))
    (event,) = (each for each in recovered.placed.values() if getattr(each, "type", "") == "SessionRecovered")
    assert isinstance(event, history.Event)
    assert [(each["kind"], each["id"], each["resolution"]) for each in event.body["in_flight"]] == [
        ("INPUT", "q", "KEEP_WAITING"), ("TOOL", "c", "UNKNOWN_OUTCOME")
    ]  # fmt: skip
    assert event.prev_hash == session.records[-1].event.hash  # type: ignore[union-attr]


def test_where_the_tail_does_more_than_go_on_all_records_are_read(world: World) -> None:
    session = SessionBuilder("s-1", profile="OBSERVED").begin()
    rival = session.branch(len(session.records) - 1, writer="other")
    world.house.shard(session.records)
    world.append(*session.records)
    assert world.stand().standing is not None
    end = len(world.log.records(TOPIC, 0))
    for more in (
        [rival.append("TurnStarted", turn_id="r")],
        [session.records[2]],
        [tombstone(session.records[-1])],
        [session.amend([session.records[-1]])],
    ):
        world.append(*more)
        assert world.stand().standing is None
        del world.log.part(TOPIC, 0).records[end:]
    world.append(SessionBuilder("s-2", profile="OBSERVED").begin().records[0])
    assert world.stand().standing is not None


def test_a_state_of_a_log_that_is_lost_is_refused_from_a_standing_too(world: World) -> None:
    session = SessionBuilder("s-1", profile="OBSERVED").begin()
    world.house.shard(session.records)
    world.append(*SessionBuilder("s-2", profile="OBSERVED").begin().records, *SessionBuilder("s-3").begin().records)
    with pytest.raises(SnapshotAheadOfLog):
        world.publisher.resume("s-1", source=world.source)


def test_a_writer_that_misses_reports_looks_for_its_events_in_all_records(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = SessionBuilder("s-1", profile="OBSERVED").begin()
    world.house.shard(session.records)
    world.append(*session.records)
    monkeypatch.setattr(Publisher, "has_failed", lambda _, session_id: session_id == "s-1")
    resumed = world.publisher.resume("s-1", source=world.source)
    assert resumed.last_resume is not None
    assert resumed.last_resume.standing is None
    assert len(resumed.last_resume.placed) == len(session.records)


def test_what_decisions_depend_on_is_read_from_the_shard_and_its_contents_where_they_were_told(world: World) -> None:
    session = SessionBuilder("s-1").begin()
    for number in range(400):
        parts = [{"kind": "TEXT", "text": f"message {number}", "blob": None}]
        session.append("MessageReceived", message_id=str(number), role="USER", parts=parts)
    known = len(session.records)
    world.house.shard(session.records)
    session.append("MessageReceived", message_id="last", role="USER", parts=[])
    world.append(*session.records)
    stood, plain = read_past(world.publisher, "s-1", world.source), read_past(world.publisher, "s-1")
    assert dict(stood.rows.all()) == dict(plain.rows.all())
    items = plain.rows.family(ITEM).values()
    assert len(items) == 402  # with the goal
    assert [stood.contents.get(item.digest) for item in items] == [plain.contents.get(item.digest) for item in items]
    # Every message is still shown, so that all of them are folded: their rungs' windows twice at most, and the tail.
    assert (plain.folded, stood.folded <= 2 * known + 1) == (known + 1, True)


def test_rows_that_the_shard_does_not_have_are_folded_from_all_events(world: World) -> None:
    """A shard of another release of the decider's rows, and a session of another harness."""
    strict = SessionBuilder("s-1").begin()
    other = SessionBuilder("s-2", profile="OBSERVED").begin()
    records = [*strict.records, *other.records]
    world.house.shard(records, projections=[each for each in built_in() if each.name != "decider"])
    world.append(*records)
    for name in ("s-1", "s-2"):
        assert world.source.stand(name, Offset(world.log.part(TOPIC, 0).high)).standing is not None
        stood, plain = read_past(world.publisher, name, world.source), read_past(world.publisher, name)
        assert dict(stood.rows.all()) == dict(plain.rows.all())
        assert stood.folded == plain.folded > 0


def test_a_state_that_was_taken_away_since_is_made_up_for_by_the_log(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = SessionBuilder("s-1").begin()
    world.house.shard(session.records)
    world.append(*session.records)
    decided = world.source.decided

    def too_late(session_id: str, tip: Event) -> Any:
        monkeypatch.setattr(world.source, "_data", world.house.data.parent / "gone")
        return decided(session_id, tip)

    monkeypatch.setattr(world.source, "decided", too_late)
    stood, plain = read_past(world.publisher, "s-1", world.source), read_past(world.publisher, "s-1")
    assert dict(stood.rows.all()) == dict(plain.rows.all())

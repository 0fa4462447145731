"""What a set of records means depends on the set alone: not on order, repeats or compaction; and erasing is no gap."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.log.codec import place
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.path import Held
from dalsegno.model.records import Event, Tombstone, Unreadable
from dalsegno.testing.builder import SessionBuilder, Written, tombstone
from dalsegno.testing.reference import Settled, settle
from dalsegno.testing.strategies import FUTURE, History, broken_body, future_event, histories, strange_frame


def meaning(records: list[Written], schemas: SchemaSet | None = None) -> dict[str, Any]:
    settled = settle([(record.key, record.value) for record in records], schemas=schemas)
    return {session_id: told(of_session) for session_id, of_session in settled.items()}


def told(settled: Settled) -> tuple[object, ...]:
    rows = msgspec.msgpack.encode(sorted(settled.ops.rows.items(), key=lambda row: row[0]))
    return settled.path, settled.held, settled.events, settled.verdicts, settled.session, rows


@given(histories(), st.randoms(use_true_random=False))
def test_order_repeats_and_compaction_change_nothing(history: History, rnd: random.Random) -> None:
    once = meaning(history.arrivals(rnd))
    assert meaning(history.arrivals(rnd)) == once
    assert meaning(history.compacted()) == once


@given(histories(unreadable=False))
def test_every_record_of_the_builders_is_an_event_in_its_place(history: History) -> None:
    schemas = SchemaSet.load()
    for record in history.records:
        placed = place(schemas, record.key, record.value, 0, 1)
        assert isinstance(placed, Event)
        assert placed == record.event
        assert isinstance(place(schemas, record.key, None, 0, 1), Tombstone)


@given(histories(unreadable=False))
def test_a_builders_own_verdicts_are_those_of_its_path(history: History) -> None:
    """Where a session had one writer and nothing was amended or lost, its path is what that writer wrote."""
    for builder in history.sessions:
        of_this_id = [other for other in history.sessions if other.session_id == builder.session_id]
        if len(of_this_id) > 1 or builder.parent is not None:
            continue
        settled = settle((record.key, record.value) for record in builder.records)[builder.session_id]
        assert settled.verdicts == builder.verdicts
        assert settled.session == builder.session


@given(st.sets(st.integers(1, 12)), st.booleans(), st.sampled_from(["ERASED", "SKIPPED", "LOST"]))
def test_erased_events_leave_no_gap(erased: set[int], freed: bool, action: str) -> None:
    builder = SessionBuilder("s-1").begin()
    builder.append("TurnStarted", turn_id="t")
    builder.append("TurnCompleted", turn_id="t")
    before = settle((record.key, record.value) for record in builder.records)["s-1"]
    targets = [record for record in builder.records if record.event is not None and record.event.seq in erased]
    records = [*builder.records, builder.amend(targets, action=action)]
    records += [tombstone(target) for target in targets] if freed else []
    after = settle((record.key, record.value) for record in records)["s-1"]
    assert after.path == before.path
    assert after.held is None
    assert {event.seq for event in after.events if event.stub == action} == erased


def test_a_tombstone_without_an_amendment_leaves_a_gap_and_a_resend_closes_it() -> None:
    builder = SessionBuilder("s-1").begin()
    lost = builder.records[3]
    records = [*builder.records, tombstone(lost)]
    assert meaning(records)["s-1"][1] == Held("GAP", 4)
    assert meaning([*records, lost]) == meaning(builder.records)


def test_erasing_one_session_leaves_those_with_a_longer_name_whole() -> None:  # case C64
    sessions = [SessionBuilder(session_id).begin() for session_id in ("a", "a:1", "a:1:2", ":", "a:")]
    records = [record for builder in sessions for record in builder.records]
    before = meaning(records)
    assert set(before) == {"a", "a:1", "a:1:2", ":", "a:"}
    after = meaning([*records, sessions[0].amend(whole_session=True)])
    assert after["a"][1] == Held("ERASED", 1)
    assert {k: v for k, v in after.items() if k != "a"} == {k: v for k, v in before.items() if k != "a"}


def test_the_same_bytes_twice_are_one_event_and_rivals_are_reported() -> None:  # case C49
    writer = SessionBuilder("s-1").begin()
    rival = writer.branch(len(writer.records), writer="builder/1/rival")
    mine, other = writer.append("NoteRecorded", kind="mine"), rival.append("NoteRecorded", kind="other")
    assert mine.event is not None
    assert other.event is not None
    settled = settle((r.key, r.value) for r in [*writer.records, other, mine, other])["s-1"]
    assert len(settled.events) == len(writer.records)
    assert {settled.path.hashes[-1], *settled.path.superseded} == {mine.event.hash, other.event.hash}


def test_what_cannot_be_read_holds_its_session_and_says_why() -> None:
    builder = SessionBuilder("s-1").begin()
    next_seq = len(builder.records) + 1
    frame = strange_frame("s-1", next_seq)
    assert isinstance(place(SchemaSet.load(), frame.key, frame.value, 0, 1), Unreadable)
    assert meaning([*builder.records, frame])["s-1"][1] == Held("UNKNOWN_SCHEMA", next_seq)
    last = builder.records[-1]
    cut = [*builder.records[:-1], broken_body(last)]
    assert meaning(cut)["s-1"][1] == Held("UNDECODABLE", next_seq - 1)
    schemas = SchemaSet.load()
    schemas.add(FUTURE.json)
    future = [*builder.records, future_event(builder, ignorable=False)]
    assert meaning(future)["s-1"][1] == Held("UNKNOWN_SCHEMA", next_seq)
    assert meaning(future, schemas)["s-1"][1] == Held("UNKNOWN_TYPE", next_seq)
    ignorable = [*builder.records, future_event(builder, ignorable=True)]
    assert meaning(ignorable, schemas)["s-1"][1] is None


def test_a_fork_needs_its_parents_records_and_not_its_parents_path() -> None:
    parent = SessionBuilder("s-1").begin()
    fork_at = len(parent.records)
    child = parent.fork(fork_at, "f")
    child.append("TurnStarted", turn_id="t")
    grandchild = child.fork(len(child.records) - 1, "g")
    family = [*child.records, *grandchild.records]
    alone = meaning(family)
    assert alone["s-1~f"][1] == alone["s-1~g"][1] == Held("PARENT_MISSING", 2)
    rival = parent.branch(3, writer="builder/1/rival")
    rival.recover()
    together = settle((r.key, r.value) for r in [*family, *parent.records, *rival.records])
    assert together["s-1"].path.hashes[3] != parent.events[3].hash, "the parent went another way"
    assert together["s-1~f"].held is None
    assert together["s-1~f"].session.status == "RUNNING"
    assert together["s-1~g"].session == grandchild.session
    assert together["s-1~f"].verdicts == child.verdicts

"""Amending a session over the memory log: the audit first, then the amendment, and a crash between the two."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from dalsegno.errors import Conflict, Failed, NotFound, SessionMissing, Unsent
from dalsegno.log.amend import Amended, Amending, amend
from dalsegno.log.amend_requests import KIND, requests_in
from dalsegno.log.audit import actions_in, audit_topic, read_actions
from dalsegno.log.codec import place
from dalsegno.log.publisher import Publisher
from dalsegno.model.amending import Intended
from dalsegno.model.records import Event
from dalsegno.readers.proof import AdminAudit, Proof
from dalsegno.readers.proof_records import MISSING_AMENDMENT
from dalsegno.readers.proving import prove_log
from dalsegno.testing.builder import SessionBuilder, Written, write
from dalsegno.testing.memory_log import MemoryLog
from history_lab import SESSION, chain
from log_samples import toy, writer_of
from reader_lab import House
from shard_lab import apply

TOPIC = "t.events"


class Crash(Exception):
    pass


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(partitions=1)


@pytest.fixture
def publisher(log: MemoryLog) -> Iterator[Publisher]:
    found = Publisher(log.connect(), prefix="t", writer="test/1/a")
    yield found
    with suppress(Unsent):
        found.close(1)


def fill(log: MemoryLog, records: list[Written]) -> None:
    for record in records:
        log.put(TOPIC, 0, record.key, record.value)


def ask(
    publisher: Publisher,
    first: int,
    last: int | None = None,
    action: str = "SKIPPED",
    reason: str = "asked",
    **how: object,
) -> Amended:
    return amend(publisher, Amending(SESSION, first, last or first, action, reason, "me@here"), **how)  # type: ignore[arg-type]


def crash_at(step: str) -> object:
    def fault(done: str) -> None:
        if done == step:
            raise Crash(step)

    return fault


def proof_of(publisher: Publisher) -> Proof:
    audit = AdminAudit(requests_in(read_actions(publisher.transport, "t")))
    return prove_log(publisher.transport, "t", SESSION, audit, None)


def amendments(log: MemoryLog, publisher: Publisher) -> list[Event]:
    placed = [place(publisher.schemas, record.key, record.value, 0, 1) for record in log.records(TOPIC)]
    return [each for each in placed if isinstance(each, Event) and each.seq == 0]


def test_the_request_is_in_the_audit_before_the_amendment_is_in_the_log(log: MemoryLog, publisher: Publisher) -> None:
    records = chain().records
    fill(log, records)
    seen: list[tuple[str, int, int]] = []

    def look(step: str) -> None:
        publisher.flush(10)
        seen.append((step, len(log.records(audit_topic("t"), 0)), len(amendments(log, publisher))))

    done = ask(publisher, 5, 6, fault=look)
    assert seen == [("amend.1", 1, 0), ("amend.2", 1, 1)]
    (action,) = read_actions(publisher.transport, "t")
    (event,) = amendments(log, publisher)
    assert event.body["request_id"] == action.request_id == done.request_id
    assert (action.kind, action.subject, action.actor_id, action.reason) == (KIND, SESSION, "me@here", "asked")
    assert (event.meta["actor_kind"], event.meta["actor_id"]) == ("OPERATOR", "me@here")
    assert event.body["reason"] == "asked"
    assert [target["hash"] for target in event.body["targets"]] == [
        record.event.hash for record in records[4:6] if record.event is not None
    ]
    assert proof_of(publisher).doubts == ()


def test_a_crash_between_the_two_is_named_and_the_same_command_finishes_it(
    log: MemoryLog, publisher: Publisher
) -> None:
    fill(log, chain().records)
    with pytest.raises(Crash):
        ask(publisher, 5, reason="the first time", fault=crash_at("amend.1"))
    assert amendments(log, publisher) == []
    proof = proof_of(publisher)
    assert [doubt.kind for doubt in proof.doubts] == [MISSING_AMENDMENT]
    (action,) = read_actions(publisher.transport, "t")
    assert action.request_id in proof.doubts[0].text
    done = ask(publisher, 5, reason="the second time")
    assert (done.request_id, done.resumed) == (action.request_id, True)
    assert [event.body["reason"] for event in amendments(log, publisher)] == ["the first time"]
    assert len(read_actions(publisher.transport, "t")) == 1
    assert proof_of(publisher).doubts == ()
    with pytest.raises(Conflict, match="amended there already"):
        ask(publisher, 5)


def test_another_request_does_not_take_over_what_was_interrupted(log: MemoryLog, publisher: Publisher) -> None:
    fill(log, chain().records)
    with pytest.raises(Crash):
        ask(publisher, 5, fault=crash_at("amend.1"))
    assert not ask(publisher, 7).resumed
    assert [doubt.kind for doubt in proof_of(publisher).doubts] == [MISSING_AMENDMENT]
    assert ask(publisher, 5).resumed
    assert proof_of(publisher).doubts == ()


def test_a_crash_behind_both_is_done(log: MemoryLog, publisher: Publisher) -> None:
    fill(log, chain().records)
    with pytest.raises(Crash):
        ask(publisher, 5, fault=crash_at("amend.2"))
    assert proof_of(publisher).doubts == ()
    with pytest.raises(Conflict, match="amended there already"):
        ask(publisher, 5)


def test_a_no_writes_nothing(log: MemoryLog, publisher: Publisher) -> None:
    fill(log, chain().records)
    shown: list[Intended] = []

    def no(intended: Intended) -> None:
        shown.append(intended)
        raise Failed("not confirmed")

    with pytest.raises(Failed, match="not confirmed"):
        ask(publisher, 5, agree=no)
    assert len(shown[0].targets) == 1
    assert (log.records(audit_topic("t"), 0), amendments(log, publisher)) == ([], [])
    with pytest.raises(NotFound):
        ask(publisher, 13)
    assert log.records(audit_topic("t"), 0) == []


def test_a_session_that_is_not_there_is_not_amended(publisher: Publisher) -> None:
    with pytest.raises(SessionMissing):
        ask(publisher, 1)


def test_what_stands_in_the_audit_and_is_no_action_is_passed_over(log: MemoryLog, publisher: Publisher) -> None:
    fill(log, chain().records)
    log.put(audit_topic("t"), 0, b"x", b"rubbish")
    log.put(audit_topic("t"), 0, b"x", None)
    ask(publisher, 5)
    batches = publisher.transport.read(
        audit_topic("t"), 0, None, publisher.transport.bounds(audit_topic("t"), 0).high, 5
    )
    assert [action.subject for action in actions_in(batches)] == [SESSION]


# --- what readers make of it ------------------------------------------------------------------------------------------


@pytest.fixture
def house(tmp_path: object) -> Iterator[House]:
    with House(tmp_path) as found:  # type: ignore[arg-type]
        yield found


def held_session() -> SessionBuilder:
    """A session whose seq 6 was written with a schema that nobody knows."""
    builder = chain(5)
    foreign = writer_of(toy(1, name="Foreign"))
    assert builder.tip is not None
    record = write(foreign, builder.envelope(6, builder.tip.hash, "Foreign"), {})
    key = record.key.decode().rpartition(":")[2]
    after = write(
        "MessageReceived",
        builder.envelope(7, bytes.fromhex(key), "MessageReceived"),
        {"message_id": "m", "role": "USER", "parts": []},
    )
    builder.records += [record, after]
    return builder


def test_a_held_session_is_released(log: MemoryLog, publisher: Publisher, house: House) -> None:
    builder = held_session()
    fill(log, builder.records)
    shard = house.shard(builder.records)
    before = shard_head(house)
    assert (before.seq, before.held_reason, before.held_seq) == (5, "UNKNOWN_SCHEMA", 6)
    done = ask(publisher, 6)
    assert done.intended.after.held is None
    (record,) = [record for record in log.records(TOPIC) if record.offset == done.receipt.offset]
    apply(shard, [Written(record.key or b"", record.value, None)])
    after = shard_head(house)
    assert (after.seq, after.held_reason, after.stubs) == (7, None, 1)


def test_a_lost_record_is_accepted_as_gone(log: MemoryLog, publisher: Publisher, house: House) -> None:
    records = chain().records
    records = records[:4] + records[5:]
    fill(log, records)
    shard = house.shard(records)
    assert shard_head(house).held_reason == "GAP"
    done = ask(publisher, 5, action="LOST")
    (record,) = [record for record in log.records(TOPIC) if record.offset == done.receipt.offset]
    apply(shard, [Written(record.key or b"", record.value, None)])
    assert (shard_head(house).seq, shard_head(house).held_reason) == (12, None)


def shard_head(house: House) -> object:
    return house.reader().of_session(SESSION).reads.head(SESSION)

"""The tail of the log: where it begins, what it knows of schemas, and what a follower does with a broker's errors."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from dalsegno.errors import BrokerUnavailable, LogHole, Usage
from dalsegno.log import follow
from dalsegno.log.follow import Follower
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.record import LogRecord
from dalsegno.model.ids import Offset, partition_of
from dalsegno.model.records import Event, Unreadable
from dalsegno.readers.tail import From, Tail
from dalsegno.testing.builder import Written, write
from dalsegno.testing.memory_log import MemoryLog, MemoryTransport
from history_lab import SESSION, chain
from log_samples import toy, writer_of

TOPIC = "t.events"


def put(log: MemoryLog, record: Written, session_id: str = SESSION) -> None:
    log.put(TOPIC, partition_of(session_id, len(log.parts(TOPIC))), record.key, record.value)


def tail_of(log: MemoryLog, session_id: str | None, start: From, times: dict[int, int | None] | None = None) -> Tail:
    return Tail(log.connect(), "t", session_id, start, offsets_at=lambda _: times or {})


def test_a_time_is_the_offset_that_the_broker_says() -> None:
    log = MemoryLog(partitions=1)
    for record in chain(6).records:
        put(log, record)
    assert [each.record.offset for each in tail_of(log, SESSION, From("time", 1), {0: 4}).until_now()] == [4, 5]
    assert list(tail_of(log, SESSION, From("time", 1), {0: None}).until_now()) == [], "nothing is so young"


def test_what_came_after_the_look_at_the_end_is_left_for_following() -> None:
    log = MemoryLog(partitions=1)
    first, *later = chain(3).records
    put(log, first)
    tail = tail_of(log, SESSION, From("beginning"))
    assert len(list(tail.until_now())) == 1
    assert tail.positions == {0: 1}
    put(log, later[0])
    record = log.records(TOPIC)[1]
    assert [each.record for each in tail.take([(0, record)])] == [record]
    assert tail.positions == {0: 2}


def test_a_session_is_followed_in_its_own_partition_only() -> None:
    log = MemoryLog(partitions=8)
    for number in range(10):
        for record in chain(3, f"s-{number}").records:
            put(log, record, f"s-{number}")
    tail = tail_of(log, "s-7", From("beginning"))
    assert set(tail.positions) == {partition_of("s-7", 8)}
    assert [each.placed.session_id for each in tail.until_now() if isinstance(each.placed, Event)] == ["s-7"] * 3
    assert len(list(tail_of(log, None, From("beginning")).until_now())) == 30
    with pytest.raises(Usage):
        tail_of(log, None, From("seq", 4))


def test_the_schema_topic_is_asked_once_for_each_schema_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    log = MemoryLog(partitions=1)
    foreign, other = writer_of(toy(1, name="Foreign")), writer_of(toy(1, name="Other"))
    builder = chain(1)
    for writer in (foreign, other, other):
        put(log, write(writer, builder.envelope(2, builder.tip.hash, "X") | {"ignorable": True}, {}))  # type: ignore[union-attr]
    asked: list[int] = []
    refresh = MemoryTransport.refresh_schemas

    def counted(self: MemoryTransport, *told: Any) -> int:
        asked.append(1)
        return refresh(self, *told)

    monkeypatch.setattr(MemoryTransport, "refresh_schemas", counted)
    tail = tail_of(log, SESSION, From("beginning"))
    log.schemas[foreign.schema_hash] = foreign
    found = [each.placed for each in tail.until_now()]
    assert [type(each) for each in found] == [Event, Unreadable, Unreadable]
    assert len(asked) == 3, "at the start, and for each of the two"


# --- following --------------------------------------------------------------------------------------------------------


class Message:
    def __init__(self, code: int | None = None, offset: int = 0) -> None:
        self._code, self._offset = code, offset

    def error(self) -> KafkaError | None:
        return None if self._code is None else KafkaError(self._code)

    def partition(self) -> int:
        return 2

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return b"k"

    value = key

    def timestamp(self) -> tuple[int, int]:
        return 1, 5

    def leader_epoch(self) -> None:
        return None


class Client:
    """A consumer that gives what it was told to."""

    def __init__(self, given: list[Message]) -> None:
        self.given, self.closed, self.assigned = given, False, []

    def assign(self, places: list[Any]) -> None:
        self.assigned = [(each.partition, each.offset) for each in places]

    def consume(self, count: int, _: float) -> list[Message]:
        some, self.given = self.given[:count], self.given[count:]
        return some

    def close(self) -> None:
        self.closed = True


def follower(monkeypatch: pytest.MonkeyPatch, given: list[Message]) -> tuple[Follower, Client]:
    client = Client(given)
    monkeypatch.setattr(follow, "consumer", lambda *_: client)
    return Follower(KafkaConfig("nobody:1"), TOPIC, {2: Offset(7)}), client


def test_what_comes_is_given_with_its_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    following, client = follower(monkeypatch, [Message(offset=7), Message(offset=9)])
    with following:
        assert following.poll(0.1) == [(2, LogRecord(Offset(n), b"k", b"k", 5, -1)) for n in (7, 9)]
        assert following.poll(0.1) == []
    assert (client.assigned, client.closed) == ([(2, 7)], True)


def test_a_broker_that_went_is_asked_for_and_a_log_that_was_cut_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    following, client = follower(monkeypatch, [Message(KafkaError._TRANSPORT)])
    asked: list[float] = []
    monkeypatch.setattr(follow, "bounds", lambda _, __, ___, seconds: asked.append(seconds))
    assert following.poll(0.1) == [], "it is back"

    def away(*_: object) -> None:
        raise BrokerUnavailable("no broker")

    monkeypatch.setattr(follow, "bounds", away)
    client.given = [Message(KafkaError._ALL_BROKERS_DOWN)]
    with pytest.raises(BrokerUnavailable):
        following.poll(0.1)
    client.given = [Message(KafkaError._AUTO_OFFSET_RESET)]
    with pytest.raises(LogHole):
        following.poll(0.1)
    assert asked == [follow.BROKER_TIMEOUT_SECONDS]

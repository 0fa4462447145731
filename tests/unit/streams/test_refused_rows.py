"""A row that Kafka does not take stops the partition that it is of; the others' rows go out, and nothing is lost."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from dalsegno.errors import KafkaForbidden, KafkaRefused, TopicMissing
from dalsegno.log.kafka import KafkaConfig
from dalsegno.state.generations import PartitionFolder
from dalsegno.state.shard import OutboxItem
from dalsegno.streams import emitter, refusals
from dalsegno.streams.config import WorkerConfig, no_fault
from dalsegno.streams.emitter import Emitter
from dalsegno.streams.partition import Fetched, Partition


class Report:
    """A delivery report's message."""

    def __init__(self, topic: str, key: bytes, value: bytes, partition: int) -> None:
        self._told = (topic, key, value, partition)

    def topic(self) -> str:
        return self._told[0]

    def key(self) -> bytes:
        return self._told[1]

    def partition(self) -> int:
        return self._told[3]

    def __len__(self) -> int:
        return len(self._told[2])


class Broker:
    """Takes the transactions of one producer after the other; refuses rows by their key."""

    def __init__(self) -> None:
        self.refuses: dict[bytes, int] = {}
        self.at_once = False
        self.taken: list[bytes] = []
        self.offsets: dict[int, int] = {}
        self.options: dict[str, Any] = {}
        self._open: list[tuple[str, bytes, bytes, int]] = []

    def producer(self, _: Any, options: dict[str, Any]) -> Broker:
        self.options = options
        return self

    def produce(self, topic: str, value: bytes, key: bytes, partition: int) -> None:
        code = self.refuses.get(key)
        if code is not None and self.at_once:
            raise KafkaException(KafkaError(code))
        self._open.append((topic, key, value, partition))

    def flush(self, _: float) -> int:
        for row in self._open:
            if row[1] in self.refuses:
                self.options["on_delivery"](KafkaError(self.refuses[row[1]]), Report(*row))
        return 0

    def abort_transaction(self, _: float) -> None:
        for row in self._open:
            self.options["on_delivery"](KafkaError(KafkaError._PURGE_QUEUE), Report(*row))
        self._open = []

    def send_offsets_to_transaction(self, offsets: Any, *_: Any) -> None:
        if any(row[1] in self.refuses for row in self._open):
            raise KafkaException(KafkaError(KafkaError._INCONSISTENT))
        self.offsets |= {tp.partition: tp.offset for tp in offsets}

    def commit_transaction(self, _: float) -> None:
        self.taken += [row[1] for row in self._open]
        self._open = []

    def __getattr__(self, _: str) -> Any:
        return lambda *_: 0


class Shard:
    held_sessions = 0

    def __init__(self, *keys: bytes) -> None:
        self.cursor = SimpleNamespace(next_offset=len(keys))
        self.items = [OutboxItem("sessions", key, b"t") for key in keys]

    def outbox(self, limit: int) -> list[OutboxItem]:
        return self.items[:limit]

    def current(self, item: OutboxItem) -> tuple[bytes, bytes]:
        return item.key, b"v" * 10 * len(item.key)

    def clear_outbox(self, items: list[OutboxItem]) -> None:
        self.items = [item for item in self.items if item not in items]

    def apply(self, _generation: str, _start: int, end: int, _records: Any) -> Any:
        self.cursor.next_offset = end
        return SimpleNamespace(set_aside=())


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(emitter, "make_producer", made.producer)
    monkeypatch.setattr(refusals, "message_limit", lambda *_: 77)
    return made


@pytest.fixture
def config(tmp_path: Path) -> WorkerConfig:
    kafka = KafkaConfig("127.0.0.1:1", {"message.max.bytes": "88"})
    return WorkerConfig(kafka, "p", tmp_path / "data", tmp_path / "store")


@pytest.fixture
def table(tmp_path: Path) -> dict[int, Partition]:
    found = {}
    for number, keys in enumerate([(b"a", b"bad", b"worse"), (b"b",), (b"c",)]):
        made = Partition(number, PartitionFolder(tmp_path, "0" * 32, number), no_fault)
        made.shard = Shard(*keys)  # type: ignore[assignment]
        made.generation, made.base, made.emitter = "g", "-", "e"
        found[number] = made
    return found


def emitting(config: WorkerConfig, table: dict[int, Partition]) -> Emitter:
    return Emitter(config, "id", "worker", table, threading.Lock(), object, lambda name: f"p.{name}")


CODES = [
    (KafkaError.MSG_SIZE_TOO_LARGE, KafkaRefused),
    (KafkaError._UNKNOWN_TOPIC, TopicMissing),
    (KafkaError._UNKNOWN_PARTITION, TopicMissing),
    (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaForbidden),
    (KafkaError.INVALID_RECORD, KafkaRefused),
]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(("code", "kind"), CODES)
def test_one_refused_row_stops_its_partition_alone_until_it_is_taken(
    broker: Broker, config: WorkerConfig, table: dict[int, Partition], code: int, kind: type[Exception], at_once: bool
) -> None:
    broker.refuses, broker.at_once = {b"bad": code}, at_once
    sending = emitting(config, table)
    assert sending.tick(), "the others need not wait"
    assert (broker.taken, broker.offsets) == ([], {})
    for _ in range(3):
        sending.tick()
    assert sorted(broker.taken) == [b"b", b"c"]
    assert broker.offsets == {1: 1, 2: 1}
    red = table[0]
    assert isinstance(red.error, kind)
    assert [table[number].error for number in (1, 2)] == [None, None]
    assert sending.failing is None
    assert red.failures == 1
    assert len(red.shard.items) == 3  # type: ignore[union-attr]
    red.try_again()
    sending.tick()
    sending.tick()
    assert red.failures == 2
    broker.refuses = {}
    red.try_again()
    sending.tick()
    assert sorted(broker.taken) == [b"a", b"b", b"bad", b"c", b"worse"]
    assert broker.offsets[0] == 3
    assert (red.error, red.shard.items) == (None, [])  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("at_once", "limit"), [(True, "88 bytes, by the Kafka option message.max.bytes"), (False, "77 bytes, by max.mess")]
)
def test_the_largest_refused_row_is_named_with_its_size_and_the_limit(
    broker: Broker, config: WorkerConfig, table: dict[int, Partition], at_once: bool, limit: str
) -> None:
    broker.refuses = dict.fromkeys([b"worse"] if at_once else [b"bad", b"worse"], KafkaError.MSG_SIZE_TOO_LARGE)
    broker.at_once = at_once
    emitting(config, table).tick()
    told = str(table[0].error)
    assert "row worse of partition 0 (55 bytes) to p.sessions" in told
    assert f"at most {limit}" in told
    assert "to do: raise" in told


def test_what_concerns_the_broker_stops_no_partition(
    broker: Broker, config: WorkerConfig, table: dict[int, Partition]
) -> None:
    broker.refuses = {b"bad": KafkaError._MSG_TIMED_OUT}
    sending = emitting(config, table)
    sending.tick()
    assert [each.error for each in table.values()] == [None] * 3
    assert sending.failing is not None
    broker.refuses = {}
    sending.tick()
    assert len(broker.taken) == 5


def test_batches_between_two_refusals_do_not_bring_the_next_one_forward(
    broker: Broker, config: WorkerConfig, table: dict[int, Partition]
) -> None:
    broker.refuses = {b"bad": KafkaError.MSG_SIZE_TOO_LARGE}
    sending, red = emitting(config, table), table[0]
    for failures in range(1, 5):
        sending.tick()
        assert red.failures == failures
        red.try_again()
        end = red.cursor
        assert end is not None
        red.apply(Fetched(0, red.assignment, end, end + 1, []))
        assert red.state == "STOPPED"
    broker.refuses = {}
    sending.tick()
    end = red.cursor
    assert end is not None
    red.apply(Fetched(0, red.assignment, end, end + 1, []))
    assert (red.failures, red.state) == (0, "LIVE")


def test_a_batch_does_not_wait_for_the_outbox_of_a_partition_that_stopped(table: dict[int, Partition]) -> None:
    red = table[0]
    red.draining = True
    waiting = threading.Thread(target=red.apply, args=[Fetched(0, red.assignment, 3, 4, [])])
    waiting.start()
    while not red.drained._waiters:  # type: ignore[attr-defined]
        assert waiting.is_alive()
    red.stop(KafkaRefused("too large"))
    waiting.join(5)
    assert not waiting.is_alive()
    assert red.cursor == 3

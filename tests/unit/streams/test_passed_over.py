"""Who does not fit into a transaction is in one of the next; who is worked on keeps nobody waiting."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dalsegno.errors import KafkaRefused
from dalsegno.log.kafka import KafkaConfig
from dalsegno.state.generations import PartitionFolder
from dalsegno.state.shard import OutboxItem
from dalsegno.streams import emitter
from dalsegno.streams.config import WorkerConfig, no_fault
from dalsegno.streams.emitter import Emitter
from dalsegno.streams.partition import Partition

LIMIT = 10


class Producer:
    """Counts the rows of each partition that were sent."""

    def __init__(self) -> None:
        self.sent: dict[int, int] = {}

    def produce(self, _topic: str, _value: bytes, _key: bytes, partition: int) -> None:
        self.sent[partition] = self.sent.get(partition, 0) + 1

    def __getattr__(self, _: str) -> Any:
        return lambda *_: 0


class Shard:
    held_sessions = 0

    def __init__(self, rows: int) -> None:
        self.cursor = SimpleNamespace(next_offset=0)
        self.items: list[OutboxItem] = []
        self.more(rows)

    def more(self, rows: int) -> None:
        self.cursor.next_offset += 1
        self.items += [
            OutboxItem("sessions", f"{self.cursor.next_offset}-{each}".encode(), b"t") for each in range(rows)
        ]

    def outbox(self, limit: int) -> list[OutboxItem]:
        return self.items[:limit]

    def current(self, item: OutboxItem) -> tuple[bytes, bytes]:
        return item.key, b"v"

    def clear_outbox(self, items: list[OutboxItem]) -> None:
        self.items = [item for item in self.items if item not in items]


class World:
    """Partitions with so many rows each, and an emitter."""

    def __init__(self, folder: Path, producer: Producer, *rows: int) -> None:
        self.producer = producer
        self.shards = [Shard(each) for each in rows]
        self.table: dict[int, Partition] = {}
        for number, shard in enumerate(self.shards):
            made = self.table[number] = Partition(number, PartitionFolder(folder, "0" * 32, number), no_fault)
            made.shard = shard  # type: ignore[assignment]
            made.generation, made.base, made.emitter = "g", "-", "e"
        config = WorkerConfig(
            KafkaConfig("127.0.0.1:1"), "p", folder / "data", folder / "store", rows_per_transaction=LIMIT
        )
        self.emitter = Emitter(config, "id", "worker", self.table, threading.Lock(), object, str)

    def more(self, number: int, rows: int) -> None:
        self.shards[number].more(rows)
        self.table[number].changes += 1


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Producer:
    made = Producer()
    monkeypatch.setattr(emitter, "make_producer", lambda *_: made)
    return made


def test_more_rows_than_there_is_room_for_beside_the_others_are_sent(tmp_path: Path, producer: Producer) -> None:
    world = World(tmp_path, producer, 1, LIMIT + 5, 1)
    for _ in range(4):
        world.more(0, 0)  # its cursor alone moves
        world.emitter.tick()
    assert producer.sent == {0: 1, 1: LIMIT + 5, 2: 1}


@pytest.mark.parametrize("rows", [LIMIT, LIMIT + 5])
def test_all_have_their_turn_while_each_has_a_transaction_full(tmp_path: Path, producer: Producer, rows: int) -> None:
    world = World(tmp_path, producer, rows, rows, rows)
    for _ in range(12):
        world.emitter.tick()
        for number, shard in enumerate(world.shards):
            if not shard.items:
                world.more(number, rows)
    assert sorted(producer.sent) == [0, 1, 2]
    assert min(producer.sent.values()) >= 20


def test_what_was_passed_over_is_sent_at_once_and_before_a_stop(tmp_path: Path, producer: Producer) -> None:
    world = World(tmp_path, producer, 1, LIMIT + 5)
    assert [world.emitter.tick() for _ in range(3)] == [True, True, False]
    assert producer.sent == {0: 1, 1: LIMIT + 5}


def test_a_refused_outbox_that_is_passed_over_is_still_one_that_failed(tmp_path: Path, producer: Producer) -> None:
    world = World(tmp_path, producer, 1, LIMIT + 5)
    red = world.table[1]
    red.outbox_failed, red.failures = True, 3
    world.emitter.tick()
    assert (producer.sent, red.outbox_failed) == ({0: 1}, True)
    red.stop(KafkaRefused("no"))
    assert not world.emitter.tick(), "nothing is to be done at once"
    red.try_again()
    while world.shards[1].items:
        world.emitter.tick()
    assert not red.outbox_failed


@pytest.fixture
def held() -> Iterator[Any]:
    """Holds a lock in another thread to the end of the test."""
    taken, free = threading.Event(), threading.Event()
    threads = []

    def hold(lock: Any) -> None:
        def work() -> None:
            with lock:
                taken.set()
                free.wait(60)

        threads.append(threading.Thread(target=work, daemon=True))
        threads[0].start()
        assert taken.wait(10)

    yield hold
    free.set()
    for each in threads:
        each.join(10)


def test_a_partition_that_is_worked_on_is_left_out_as_it_is(tmp_path: Path, producer: Producer, held: Any) -> None:
    world = World(tmp_path, producer, 3, 2)
    busy = world.table[0]
    busy.outbox_failed = True
    held(busy.lock)
    told: list[bool] = []
    ticking = threading.Thread(target=lambda: told.append(world.emitter.tick(0.01)), daemon=True)
    ticking.start()
    ticking.join(10)
    assert told == [False], "it does not wait, and does not come back at once"
    assert producer.sent == {1: 2}
    assert (busy.outbox_failed, busy.passed_over) == (True, 0)

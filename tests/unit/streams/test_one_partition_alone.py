"""What goes wrong in one partition, or for a moment, stays there: the others are read, emitted and stopped in order."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from dalsegno.errors import KafkaForbidden, StoreDamaged, WaitTimeout
from dalsegno.log import admin
from dalsegno.log.kafka import KafkaConfig
from dalsegno.model.cursor import Commit
from dalsegno.state.generations import PartitionFolder
from dalsegno.state.slot import is_held, open_slot, read_status
from dalsegno.streams import emitter, reader
from dalsegno.streams.assignment import Assignment
from dalsegno.streams.config import WorkerConfig, no_fault
from dalsegno.streams.emitter import Emitter
from dalsegno.streams.partition import Partition
from dalsegno.streams.reader import LogConsumer
from dalsegno.streams.worker import Worker

NOBODY = KafkaConfig("127.0.0.1:1")


class Shard:
    """As much of a shard as the emitter and the reader see."""

    def __init__(self, next_offset: int, damage: Exception | None = None) -> None:
        self.cursor = SimpleNamespace(next_offset=next_offset)
        self.held_sessions = 0
        self.damage = damage

    def outbox(self, _: int) -> list[Any]:
        if self.damage is not None:
            raise self.damage
        return []

    def clear_outbox(self, _: list[Any]) -> None:
        pass

    def close(self) -> None:
        pass


class Producer:
    """A transactional producer that keeps what was committed."""

    def __init__(self, begin: KafkaError | None = None) -> None:
        self.begin = begin
        self.committed: list[TopicPartition] = []

    def init_transactions(self, _: float) -> None:
        pass

    def begin_transaction(self) -> None:
        if self.begin is not None:
            raise KafkaException(self.begin)

    def flush(self, _: float) -> int:
        return 0

    def send_offsets_to_transaction(self, offsets: list[TopicPartition], *_: Any) -> None:
        self.committed += offsets

    def commit_transaction(self, _: float) -> None:
        pass


class Consumer:
    """A consumer that notes what it reads, and where it began to."""

    def __init__(self) -> None:
        self.reads: dict[int, int] = {}
        self.begun: list[tuple[int, int]] = []
        self.unassigned = 0

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        for place in places:
            assert place.partition not in self.reads, "the client refuses what it has already"
            self.reads[place.partition] = place.offset
            self.begun.append((place.partition, place.offset))

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        self.unassigned += 1
        for place in places:
            del self.reads[place.partition]

    def consume(self, *_: Any) -> list[Any]:
        return []

    def consumer_group_metadata(self) -> object:
        return object()

    def committed(self, wanted: list[TopicPartition], timeout: float) -> list[TopicPartition]:  # noqa: ARG002
        refused = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
        return [SimpleNamespace(partition=tp.partition, offset=-1001, metadata=None, error=refused) for tp in wanted]  # type: ignore[misc]


@pytest.fixture
def config(tmp_path: Path) -> WorkerConfig:
    return WorkerConfig(NOBODY, "p", tmp_path / "data", tmp_path / "store")


def partition(tmp_path: Path, number: int, shard: Shard) -> Partition:
    made = Partition(number, PartitionFolder(tmp_path, "0" * 32, number), no_fault)
    made.shard = shard  # type: ignore[assignment]
    made.generation, made.base, made.emitter = "g", "-", "e"
    return made


def emitting(config: WorkerConfig, table: dict[int, Partition]) -> Emitter:
    return Emitter(config, "id", "worker", table, threading.Lock(), object, str)


def test_a_shard_that_cannot_be_read_keeps_its_own_rows_back_and_nobody_elses(
    config: WorkerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer()
    monkeypatch.setattr(emitter, "make_producer", lambda *_: producer)
    table = {
        0: partition(tmp_path, 0, Shard(7, StoreDamaged("a row is no row"))),
        1: partition(tmp_path, 1, Shard(9, RuntimeError("Corruption: block checksum mismatch"))),
        2: partition(tmp_path, 2, Shard(5)),
    }
    emitting(config, table).tick()
    assert [(tp.partition, tp.offset) for tp in producer.committed] == [(2, 5)]
    assert isinstance(table[0].error, StoreDamaged)
    assert isinstance(table[1].error, RuntimeError)
    assert table[2].committed == Commit(5, "g", "-", "e")


def test_a_producer_that_is_dead_when_a_transaction_begins_is_made_anew(
    config: WorkerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [Producer(KafkaError(KafkaError._FENCED, "fenced", fatal=True)), Producer()]
    monkeypatch.setattr(emitter, "make_producer", lambda *_: made.pop(0))
    last = made[1]
    sending = emitting(config, {0: partition(tmp_path, 0, Shard(5))})
    sending.tick()
    began = [sending.failing, sending.failing_since]
    assert None not in began
    sending.tick()
    assert [tp.offset for tp in last.committed] == [5]
    assert [sending.failing, sending.failing_since] == [None, None]


def test_reading_goes_on_while_one_shard_is_worked_on(
    config: WorkerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Consumer()
    monkeypatch.setattr(reader, "make_consumer", lambda *_: client)
    table = {0: partition(tmp_path, 0, Shard(7))}
    reading = LogConsumer(config, "id", table, threading.Lock(), None)  # type: ignore[arg-type]
    taken, give_back = threading.Event(), threading.Event()

    def work() -> None:
        with table[0].lock:
            taken.set()
            give_back.wait(10)

    worker = threading.Thread(target=work)
    worker.start()
    assert taken.wait(10)
    reading.release(table[0])
    done = threading.Event()

    def step() -> None:
        reading.step()
        done.set()

    stepping = threading.Thread(target=step)
    stepping.start()
    went_on = done.wait(5)
    give_back.set()
    worker.join(10)
    stepping.join(10)
    assert went_on
    assert client.begun == []
    reading.step()
    assert client.begun == [(0, 7)]


class EndReached:
    """The client's word that a partition is read to its end."""

    def __init__(self, number: int, offset: int) -> None:
        self._number, self._offset = number, offset

    def partition(self) -> int:
        return self._number

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError:
        return KafkaError(KafkaError._PARTITION_EOF)


def test_the_client_reads_what_stands_from_its_cursor_and_nothing_else(
    config: WorkerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Consumer()
    monkeypatch.setattr(reader, "make_consumer", lambda *_: client)
    assigner: Any = SimpleNamespace(
        make=lambda number: partition(tmp_path, number, Shard(7 + number)),
        assigned=lambda *_: None,
        revoked=lambda _: None,
    )
    table: dict[int, Partition] = {}
    reading = LogConsumer(config, "id", table, threading.Lock(), assigner)
    reading._on_assign(client, [TopicPartition("t", 0), TopicPartition("t", 1)])  # type: ignore[arg-type]
    reading.step()
    assert client.reads == {}, "their shards are still being opened"
    reading.release(table[1])
    reading.step()
    assert client.reads == {1: 8}
    monkeypatch.setattr(client, "consume", lambda *_: [EndReached(0, 20), EndReached(1, 20)])
    assert [(batch.partition, batch.start, batch.end) for batch in reading.step()] == [(1, 8, 20)]
    monkeypatch.setattr(client, "consume", lambda *_: [])
    reading.hold(table[1])
    reading.step()
    reading.hold(table[1])
    reading.step()
    assert client.reads == {}
    for _ in range(2):  # also where it was never held: what was fetched is fetched again
        reading.release(table[1])
        reading.step()
    assert client.reads == {1: 8}
    assert client.begun == [(1, 8)] * 3
    reading._on_revoke(client, [TopicPartition("t", 0), TopicPartition("t", 1)])  # type: ignore[arg-type]
    assert (client.reads, table) == ({}, {})


def test_a_partition_that_stopped_is_not_fetched_in_vain(
    config: WorkerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Consumer()
    monkeypatch.setattr(reader, "make_consumer", lambda *_: client)
    table = {number: partition(tmp_path, number, Shard(7)) for number in range(2)}
    reading = LogConsumer(config, "id", table, threading.Lock(), None)  # type: ignore[arg-type]
    for each in table.values():
        reading.release(each)
    reading.step()
    table[0].stop(StoreDamaged("a row is no row"))
    monkeypatch.setattr(client, "consume", lambda *_: [EndReached(0, 20), EndReached(1, 20)])
    assert [batch.partition for batch in reading.step()] == [1]
    assert client.reads == {1: 7}


class Closing(Consumer):
    """A client behind whose messages a callback waits. Once it closes it answers one call of a callback."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Any] = []
        self.closed = False
        self.last: Any = None
        self.answers = 0

    def consume(self, *_: Any) -> list[Any]:
        if not self.waiting:
            return []
        self.waiting.pop(0)()
        return [EndReached(0, 20)]

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        super().incremental_assign(places)
        self.answers += self.closed

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        super().incremental_unassign(places)
        self.answers += self.closed

    def close(self) -> None:
        self.closed = True
        while self.waiting:
            self.waiting.pop(0)()
        self.last()
        assert self.answers == 1, "a second call never comes back"


@pytest.mark.parametrize("fails", [False, True])
def test_what_waits_in_a_client_is_run_before_it_closes_and_nothing_new_begins(
    config: WorkerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    client = Closing()
    monkeypatch.setattr(reader, "make_consumer", lambda *_: client)
    revoked: list[int] = []

    def give_up(partition: Partition) -> None:
        revoked.append(partition.number)
        if fails:
            raise RuntimeError("can't start new thread")

    assigner: Any = SimpleNamespace(revoked=give_up)  # neither makes nor assigns: that would be an error here
    table = {number: partition(tmp_path, number, Shard(7)) for number in range(2)}
    reading = LogConsumer(config, "id", table, threading.Lock(), assigner)
    reading.release(table[0])
    reading.step()
    both = [TopicPartition("t", 0), TopicPartition("t", 1)]
    client.waiting.append(lambda: reading._on_assign(client, [TopicPartition("t", 2)]))  # type: ignore[arg-type]
    client.last = lambda: reading._on_revoke(client, both)  # type: ignore[arg-type]
    reading.hold(table[0])
    if fails:
        with pytest.raises(RuntimeError):
            reading.close()
    else:
        reading.close()
    assert client.closed
    assert client.reads == {}
    assert sorted(set(revoked)) == [0, 1]


@pytest.mark.parametrize("read", [0, 1, 3])
@pytest.mark.parametrize("callback", ["_on_revoke", "_on_lost"])
def test_what_is_taken_away_is_told_to_the_client_in_one_call(
    config: WorkerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, callback: str, read: int
) -> None:
    """A client that closes is done with the first of them, and never answers a second."""
    client = Consumer()
    monkeypatch.setattr(reader, "make_consumer", lambda *_: client)
    assigner: Any = SimpleNamespace(revoked=lambda _: None)
    table = {number: partition(tmp_path, number, Shard(7)) for number in range(3)}
    reading = LogConsumer(config, "id", table, threading.Lock(), assigner)
    for number in range(read):
        reading.release(table[number])
    reading.step()
    before = client.unassigned
    getattr(reading, callback)(client, [TopicPartition("t", number) for number in range(3)])
    assert (client.unassigned - before, client.reads, table) == (1, {}, {})


def test_a_switch_alone_releases_what_it_holds(
    config: WorkerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Consumer()
    monkeypatch.setattr(reader, "make_consumer", lambda *_: client)
    table = {0: partition(tmp_path, 0, Shard(7))}
    reading = LogConsumer(config, "id", table, threading.Lock(), None)  # type: ignore[arg-type]
    table[0].switching = True
    reading.release(table[0])
    reading.step()
    assert client.begun == []


def test_a_commit_that_may_not_be_read_is_not_taken_for_none(
    config: WorkerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "topic_facts", lambda *_: SimpleNamespace(topic_id="0" * 32))
    slot = open_slot(tmp_path, "p")
    try:
        assigning = Assignment(config, slot, None, None, None)  # type: ignore[arg-type]
        given = assigning.make(3)
        assigning.assigned(Consumer(), [given], 0.0)  # type: ignore[arg-type]
    finally:
        slot.close()
    assert isinstance(given.error, KafkaForbidden)


def test_a_partition_that_was_taken_away_is_not_assigned_again(config: WorkerConfig, tmp_path: Path) -> None:
    seen: list[tuple[float, Partition]] = []
    assigner: Any = SimpleNamespace(assigned=lambda _, partitions, patience: seen.append((patience, *partitions)))
    here, gone = partition(tmp_path, 0, Shard(1)), partition(tmp_path, 1, Shard(1))
    reading = LogConsumer(config, "w", {0: here}, threading.Lock(), assigner)
    reading._assign_again(Consumer(), gone)  # type: ignore[arg-type]
    reading._assign_again(Consumer(), here)  # type: ignore[arg-type]
    assert seen == [(0.0, here)], "and nobody waits for its earlier life: it is tried again soon"


def test_a_worker_that_cannot_leave_in_time_gives_its_slot_free_and_says_how_it_ended(config: WorkerConfig) -> None:
    def hangs() -> None:
        raise WaitTimeout("work on shards was not done within 120 s")

    worker = Worker(config, None)
    worker._slot = worker.slot = open_slot(config.data, config.prefix)
    worker._ready = True
    worker._reader = SimpleNamespace(close=hangs)  # type: ignore[assignment]
    folder = worker.slot.folder
    worker.close()
    assert isinstance(worker.error, WaitTimeout)
    assert not is_held(folder)
    status = read_status(folder)
    assert status is not None
    assert status["state"] == "FAILED"

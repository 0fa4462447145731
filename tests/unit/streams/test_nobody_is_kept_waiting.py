"""What hangs or lasts holds up neither the status nor the others, and a stop says what it waited for in vain."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dalsegno.errors import WaitTimeout
from dalsegno.log import admin
from dalsegno.log.admin import Watermarks
from dalsegno.log.kafka import KafkaConfig
from dalsegno.model.cursor import Commit
from dalsegno.state.generations import PartitionFolder
from dalsegno.state.slot import is_held, open_slot, read_status
from dalsegno.streams import assignment, schemas
from dalsegno.streams.assignment import Assignment
from dalsegno.streams.config import WorkerConfig, no_fault
from dalsegno.streams.house import House
from dalsegno.streams.partition import Partition
from dalsegno.streams.schemas import KnownSchemas
from dalsegno.streams.snapshotter import Snapshotter
from dalsegno.streams.worker import Worker

SOON = 10.0


class Hanging:
    """Work that does not end until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.times = 0
        self._free = threading.Event()

    def __call__(self, *_: Any) -> int:
        self.times += 1
        self.begun.release()
        assert self._free.wait(60)
        return 0

    def wait_until_begun(self) -> None:
        assert self.begun.acquire(timeout=SOON)

    def let_go(self) -> None:
        self._free.set()


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    made = Hanging()
    yield made
    made.let_go()


@pytest.fixture
def config(tmp_path: Path) -> WorkerConfig:
    return WorkerConfig(KafkaConfig("127.0.0.1:1"), "p", tmp_path / "data", tmp_path / "store")


def partition(tmp_path: Path, number: int = 0, next_offset: int = 5) -> Partition:
    made = Partition(number, PartitionFolder(tmp_path, "0" * 32, number), no_fault)
    counts = SimpleNamespace(waiting=0)
    shard: Any = SimpleNamespace(cursor=SimpleNamespace(next_offset=next_offset), held_sessions=0, counts=counts)
    made.shard = shard
    return made


def test_the_status_goes_on_while_the_schema_topic_is_read(
    config: WorkerConfig, monkeypatch: pytest.MonkeyPatch, hanging: Hanging
) -> None:
    monkeypatch.setattr(schemas, "refresh", hanging)
    worker = Worker(config, None)
    worker.slot = worker._slot = open_slot(config.data, config.prefix)
    worker._schemas = KnownSchemas(config.kafka, config.prefix)
    worker._schemas.known.unknown.add(b"a frame.")
    worker._emitter = SimpleNamespace(sending_since=None, failing=None, failing_since=None)  # type: ignore[assignment]
    worker._snapshotter = SimpleNamespace(take_what_is_due=lambda: None)  # type: ignore[assignment]
    worker.supervise()
    hanging.wait_until_begun()
    first = read_status(worker.slot.folder)
    worker._status_at = 0.0
    worker.supervise()
    second = read_status(worker.slot.folder)
    assert first is not None
    assert second is not None
    assert second["updated_at"] > first["updated_at"]
    assert hanging.times == 1, "one look at a time"
    hanging.let_go()
    worker.close()


def test_a_partition_that_is_worked_on_has_not_reached_its_bound(tmp_path: Path, hanging: Hanging) -> None:
    part = partition(tmp_path)
    part.committed, part.generation, part.clean_at = Commit(5, "g", "-", "e"), "g", part.changes
    assert part.reached(5)

    def work() -> None:
        with part.lock:
            hanging()

    working = threading.Thread(target=work)
    working.start()
    hanging.wait_until_begun()
    assert not part.reached(5)
    hanging.let_go()
    working.join(SOON)
    assert part.reached(5)


def test_requests_that_come_before_a_snapshot_is_begun_share_it(
    config: WorkerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hanging: Hanging
) -> None:
    jobs = House()
    snapshotter = Snapshotter(config, None, {}, jobs, None)  # type: ignore[arg-type]
    taken: list[str] = []

    def take_one(_: Partition, reason: str) -> str:
        hanging()
        taken.append(reason)
        return f"{len(taken)}"

    monkeypatch.setattr(snapshotter, "_take_one", take_one)
    part = partition(tmp_path)
    answers: list[tuple[int, str | None]] = []

    def ask(number: int) -> None:
        snapshotter.ask(part, f"request {number}", lambda _, snapshot, __: answers.append((number, snapshot)))

    ask(0)
    hanging.wait_until_begun()
    for number in range(1, 50):
        ask(number)
    hanging.let_go()
    jobs.wait(timeout=SOON)
    assert taken == ["request 0", "request 1"]
    assert answers == [(0, "1"), *((number, "2") for number in range(1, 50))]
    ask(50)
    jobs.wait(timeout=SOON)
    assert answers[-1] == (50, "3")
    jobs.close()


def test_a_wait_that_was_in_vain_says_what_hangs(hanging: Hanging) -> None:
    jobs = House()
    jobs.give(7, hanging.__call__)
    hanging.wait_until_begun()
    waits: list[Callable[[], None]] = [
        lambda: jobs.wait(7, 0.01), lambda: jobs.wait(None, 0.01), lambda: jobs.close(0.01),
    ]  # fmt: skip
    for wait in waits:
        with pytest.raises(WaitTimeout, match=r"0\.01 s: Hanging\.__call__ of partition 7"):
            wait()
    assert jobs.is_working
    hanging.let_go()
    jobs.close(SOON)
    assert not jobs.is_working


def test_a_worker_whose_shard_hangs_ends_and_says_so(
    config: WorkerConfig, monkeypatch: pytest.MonkeyPatch, hanging: Hanging
) -> None:
    worker = Worker(config, None)
    close = worker._house.close
    monkeypatch.setattr(worker._house, "close", lambda: close(0.01))
    worker._slot = worker.slot = open_slot(config.data, config.prefix)
    worker._house.give(3, hanging.__call__)
    hanging.wait_until_begun()
    worker.close()
    assert worker.hangs, "its thread would keep the process"
    status = read_status(worker.slot.folder)
    assert status is not None
    assert status["state"] == "FAILED"
    assert "of partition 3" in status["error"]
    assert not is_held(worker.slot.folder)


def test_partitions_whose_earlier_life_hangs_keep_a_rebalance_waiting_once_all_together(
    config: WorkerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(assignment, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(admin, "topic_facts", lambda *_: SimpleNamespace(topic_id="a" * 32, partitions=9))
    monkeypatch.setattr(admin, "cluster_facts", lambda *_: SimpleNamespace(cluster_id="c"))
    monkeypatch.setattr(admin, "watermarks", lambda *_: {n: Watermarks(0, 0) for n in range(9)})

    def wait(number: int, timeout: float) -> None:
        if number != 8:
            clock.now += timeout
            raise WaitTimeout("work was not done")

    given: list[int] = []
    jobs: Any = SimpleNamespace(wait=wait, give=lambda number, _: given.append(number))
    snapshotter: Any = SimpleNamespace(catalogue=lambda _: [])
    consumer: Any = SimpleNamespace(
        committed=lambda wanted, timeout: [  # noqa: ARG005
            SimpleNamespace(partition=tp.partition, offset=-1001, metadata=None, error=None) for tp in wanted
        ]
    )
    slot = open_slot(tmp_path / "data", "p")
    try:
        assigning = Assignment(config, slot, jobs, snapshotter, SimpleNamespace(open=print))  # type: ignore[arg-type]
        parts = [assigning.make(number) for number in range(9)]
        assigning.assigned(consumer, parts, 30.0)
    finally:
        slot.close()
    assert clock.now == 1000.0 + 30.0
    assert given == [8]
    assert all(isinstance(part.error, WaitTimeout) for part in parts[:8])

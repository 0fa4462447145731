"""A disk that is full for long costs neither the topics nor the log, and a partition may fail for weeks."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dalsegno.errors import DiskFull
from dalsegno.log.kafka import KafkaConfig
from dalsegno.state.generations import PartitionFolder
from dalsegno.state.shard import OutboxItem
from dalsegno.streams import emitter
from dalsegno.streams import partition as room
from dalsegno.streams.config import WorkerConfig, no_fault
from dalsegno.streams.emitter import Emitter
from dalsegno.streams.partition import RETRY_LAST_SECONDS, Partition

ITEM = OutboxItem("sessions", b"k", b"t")


class Producer:
    def __init__(self) -> None:
        self.produced: list[Any] = []

    def produce(self, *record: Any) -> None:
        self.produced.append(record)

    def __getattr__(self, _: str) -> Any:
        return lambda *_: 0


class Shard:
    """One whose outbox cannot be read, or cleared, while the disk is full."""

    cursor = SimpleNamespace(next_offset=5)
    held_sessions = 0

    def __init__(self, fails_at: str) -> None:
        self.fails_at = fails_at
        self.items = [ITEM]

    def _check(self, step: str) -> None:
        if step == self.fails_at:
            raise DiskFull("no space left for the store")

    def outbox(self, _: int) -> list[OutboxItem]:
        self._check("outbox")
        return list(self.items)

    def current(self, _: OutboxItem) -> tuple[bytes, bytes]:
        return b"k", b"v"

    def clear_outbox(self, _: list[OutboxItem]) -> None:
        self._check("clear_outbox")
        self.items = []


@pytest.mark.parametrize(("step", "sent_each_time"), [("outbox", 0), ("clear_outbox", 1)])
def test_rows_go_out_once_per_retry_while_their_outbox_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, sent_each_time: int
) -> None:
    producer, shard = Producer(), Shard(step)
    monkeypatch.setattr(emitter, "make_producer", lambda *_: producer)
    partition = Partition(0, PartitionFolder(tmp_path, "0" * 32, 0), no_fault)
    partition.shard = shard  # type: ignore[assignment]
    partition.generation, partition.base, partition.emitter = "g", "-", "e"
    config = WorkerConfig(KafkaConfig("127.0.0.1:1"), "p", tmp_path / "data", tmp_path / "store")
    sending = Emitter(config, "id", "worker", {0: partition}, threading.Lock(), object, str)
    for retry in range(1, 4):
        for _ in range(50):
            sending.tick()
        assert len(producer.produced) == retry * sent_each_time
        assert partition.failures == retry
        partition.try_again()
    shard.fails_at = ""
    sending.tick()
    assert shard.items == []
    assert partition.error is None


def test_a_partition_may_fail_for_weeks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "time", SimpleNamespace(monotonic=lambda: 0.0))
    partition = Partition(0, PartitionFolder(tmp_path, "0" * 32, 0), no_fault)
    waits = []
    for _ in range(3000):
        partition.stop(DiskFull("full"))
        waits.append(partition.retry_at)
    assert waits == sorted(waits)  # type: ignore[type-var]
    assert waits[0] == room.RETRY_FIRST_SECONDS
    assert waits[-1] == RETRY_LAST_SECONDS

"""A producer that failed is not trusted again, and a call of the client that never comes back ends the worker."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from dalsegno.log.kafka import KafkaConfig
from dalsegno.state.generations import PartitionFolder
from dalsegno.state.slot import open_slot, read_status
from dalsegno.streams import emitter
from dalsegno.streams.config import WorkerConfig, no_fault
from dalsegno.streams.emitter import HANG_SECONDS, Emitter
from dalsegno.streams.partition import Partition
from dalsegno.streams.worker import Worker


class Producer:
    """One that fails when it is told to, at one of the calls of a transaction."""

    def __init__(self, fails_at: str = "", code: int = 0) -> None:
        self.fails_at, self.code = fails_at, code
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any) -> int:
            self.calls.append(name)
            if name == self.fails_at:
                raise KafkaException(KafkaError(self.code))
            return 0

        return call


@pytest.fixture
def config(tmp_path: Path) -> WorkerConfig:
    return WorkerConfig(KafkaConfig("127.0.0.1:1"), "p", tmp_path / "data", tmp_path / "store")


def emitting(config: WorkerConfig, tmp_path: Path) -> Emitter:
    partition = Partition(0, PartitionFolder(tmp_path, "0" * 32, 0), no_fault)
    partition.shard = SimpleNamespace(  # type: ignore[assignment]
        cursor=SimpleNamespace(next_offset=5), outbox=lambda _: [], clear_outbox=lambda _: None, held_sessions=0
    )
    partition.generation, partition.base, partition.emitter = "g", "-", "e"
    return Emitter(config, "id", "worker", {0: partition}, threading.Lock(), object, str)


CALLS = ["begin_transaction", "flush", "send_offsets_to_transaction", "commit_transaction"]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("code", "another"),
    [
        (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, True),
        (KafkaError.UNKNOWN_PRODUCER_ID, True),
        (KafkaError._TIMED_OUT, True),
        (KafkaError._FENCED, True),
        (KafkaError.ILLEGAL_GENERATION, False),
        (KafkaError.REBALANCE_IN_PROGRESS, False),
    ],
)
def test_a_producer_that_failed_gives_way_to_another_unless_the_group_is_changing(
    config: WorkerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int, another: bool
) -> None:
    first, second = Producer(call, code), Producer()
    made = [first, second]
    monkeypatch.setattr(emitter, "make_producer", lambda *_: made.pop(0))
    sending = emitting(config, tmp_path)
    sending.tick()
    assert sending.failing is not None
    assert sending.sending_since is None
    first.fails_at = ""
    sending.tick()
    assert sending.failing is None
    assert (second.calls[-1:] == ["commit_transaction"]) is another


def test_a_transaction_that_never_ends_ends_the_process_and_says_so(config: WorkerConfig, tmp_path: Path) -> None:
    worker = Worker(config, None)
    worker.slot = open_slot(tmp_path / "data", "p")
    worker._emitter = sending = emitting(config, tmp_path)
    ended: list[str] = []
    worker.end_process = lambda: ended.append(worker._state)  # type: ignore[method-assign]
    now = time.monotonic()
    for since in (None, now, now - HANG_SECONDS + 1):
        sending.sending_since = since
        worker._end_if_hanging(now)
    assert (ended, worker.error) == ([], None)
    sending.sending_since = now - HANG_SECONDS
    worker._end_if_hanging(now)
    assert ended == ["FAILED"]
    status = read_status(worker.slot.folder) or {}
    assert status["state"] == "FAILED"
    assert "has not come to an end" in status["error"]
    worker.slot.close()

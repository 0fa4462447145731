"""What never comes back keeps no worker from ending; a stop that meets nothing of the kind is as orderly as ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dalsegno.errors import WaitTimeout
from dalsegno.log.kafka import KafkaConfig
from dalsegno.state.slot import is_held, open_slot
from dalsegno.streams import app
from dalsegno.streams import worker as parts
from dalsegno.streams.config import WorkerConfig
from dalsegno.streams.partition import Fetched
from dalsegno.streams.worker import Worker

SOON = 20.0


class Stopping:
    """A worker whose clients and shards are played; it is stopped when its first batch is being applied."""

    def __init__(self, config: WorkerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self.begun, self.free = threading.Event(), threading.Event()
        self.hangs_at = ""
        self.worker = made = Worker(config, None)
        made.slot = made._slot = open_slot(config.data, config.prefix)
        made._ready = True
        batches = iter([[Fetched(0, 1, 0, 1, [])]])
        made._reader = SimpleNamespace(  # type: ignore[assignment]
            open=lambda: None, step=lambda: next(batches, []), close=lambda: self.step("leave")
        )
        made._emitter = SimpleNamespace(  # type: ignore[assignment]
            tick=self.tick, close=lambda: None, sending_since=None, failing=None, failing_since=None
        )
        made._control = SimpleNamespace(step=lambda: self.free.wait(0.01), close=lambda: None)  # type: ignore[assignment]
        part: Any = SimpleNamespace(apply=lambda _: self.step("apply"), number=0, status=dict)
        made.table[0] = part
        monkeypatch.setattr(made, "prepare", lambda: None)
        monkeypatch.setattr(made, "supervise", lambda: False)
        monkeypatch.setattr(made, "announce", lambda: False)
        monkeypatch.setattr(made, "end_process", lambda: self.steps.append("end of the process"))
        monkeypatch.setattr(app, "Worker", lambda *_: made)
        self.raised: list[BaseException] = []
        self._running = threading.Thread(target=self._run, args=[config], daemon=True)

    def step(self, name: str) -> None:
        self.steps.append(name)
        self.begun.set()
        if name == self.hangs_at:
            assert self.free.wait(60)

    def tick(self, *_: float) -> bool:
        if threading.current_thread().name.startswith("dalsegno-reader"):
            self.step("last transaction")
        return False

    def _run(self, config: WorkerConfig) -> None:
        try:
            app.run_worker(config)
        except BaseException as error:
            self.raised.append(error)

    def run(self) -> None:
        """Raises when it does not come to an end."""
        self._running.start()
        assert self.begun.wait(SOON)
        self.worker.stop("a test")
        self._running.join(SOON)
        assert not self._running.is_alive(), self.steps
        assert not is_held(self.worker.slot.folder)


@pytest.fixture
def config(tmp_path: Path) -> WorkerConfig:
    return WorkerConfig(KafkaConfig("127.0.0.1:1"), "p", tmp_path / "data", tmp_path / "store")


@pytest.fixture
def stopping(config: WorkerConfig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stopping]:
    made = Stopping(config, monkeypatch)
    yield made
    made.free.set()


def test_an_orderly_stop_leaves_nobody_at_work(stopping: Stopping) -> None:
    stopping.run()
    assert stopping.steps == ["apply", "last transaction", "leave"]
    assert stopping.raised == []
    assert not stopping.worker.hangs


@pytest.mark.parametrize(
    ("hangs_at", "steps"),
    [
        ("apply", ["apply", "last transaction", "leave"]),
        ("last transaction", ["apply", "last transaction"]),
        ("leave", ["apply", "last transaction", "leave"]),
    ],
)
def test_a_stop_that_meets_what_never_ends_ends_the_process(
    stopping: Stopping, monkeypatch: pytest.MonkeyPatch, hangs_at: str, steps: list[str]
) -> None:
    monkeypatch.setattr(app, "SERVICE_STOP_SECONDS", 2.0)
    monkeypatch.setattr(app, "STOP_STEP_SECONDS", 0.5, raising=False)
    stopping.hangs_at = hangs_at
    stopping.run()
    assert stopping.steps == [*steps, "end of the process"], "the consumer is its thread's, and was closed once at most"
    assert [type(error) for error in stopping.raised] == [WaitTimeout]


def test_a_stop_begins_transactions_for_so_long_only(config: WorkerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=1000.0)
    worker = Worker(config, None)
    monkeypatch.setattr(parts, "time", SimpleNamespace(monotonic=lambda: clock.now))
    patience: list[float] = []

    def tick(seconds: float) -> bool:
        patience.append(seconds)
        clock.now += 25.0
        return True

    worker._emitter = SimpleNamespace(tick=tick)  # type: ignore[assignment]
    worker.last_emit()
    assert patience == [60.0, 35.0, 10.0]

"""A house that closes begins nothing more, but what closes a partition, and waits for all that is on its way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dalsegno.errors import WaitTimeout
from dalsegno.state.generations import PartitionFolder
from dalsegno.streams.config import no_fault
from dalsegno.streams.house import House
from dalsegno.streams.partition import Partition

SOON = 10.0


@pytest.fixture
def done() -> list[str]:
    return []


@pytest.fixture
def part(tmp_path: Path, done: list[str]) -> Partition:
    made = Partition(7, PartitionFolder(tmp_path, "0" * 32, 7), no_fault)
    shard: Any = SimpleNamespace(close=lambda: done.append("shard closed"))
    made.shard = shard
    return made


def test_what_waits_in_a_queue_is_not_begun_but_the_partition_is_closed(part: Partition, done: list[str]) -> None:
    house, begun, free = House(), threading.Event(), threading.Event()

    def long() -> None:
        begun.set()
        assert free.wait(60)

    house.give(7, long)
    house.give(7, lambda: done.append("a snapshot"))
    house.give(7, part.close)
    assert begun.wait(SOON)
    with pytest.raises(WaitTimeout):
        house.close(0.01)
    house.give(7, lambda: done.append("another snapshot"))
    free.set()
    house.close(SOON)
    assert done == ["shard closed"]
    house.give(8, lambda: done.append("of another partition"))
    assert not house.is_working


def test_what_a_thread_has_taken_and_not_begun_is_waited_for(
    part: Partition, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House()
    taken: list[Callable[[], None]] = []
    monkeypatch.setattr(house._pool, "submit", lambda function, *given: taken.append(lambda: function(*given)))
    house.give(7, part.close)
    house.give(8, lambda: done.append("a snapshot"))
    with pytest.raises(WaitTimeout):
        house.close(0.01)
    assert house.is_working
    for run in taken:
        run()
    house.close(SOON)
    assert (done, house.is_working) == (["shard closed"], False)

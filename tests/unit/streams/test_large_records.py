"""However large records are, no batch holds much more bytes than it may; small ones come by the full count."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dalsegno.log.kafka import KafkaConfig
from dalsegno.streams import reader
from dalsegno.streams.config import WorkerConfig
from dalsegno.streams.reader import BATCH_BYTES, LogConsumer


class Record:
    """A message of the client, without its bytes."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def partition(self) -> int:
        return 0

    def error(self) -> None:
        return None


class Consumer:
    """One that gives as many records as it is asked for, as long as there are some."""

    def __init__(self) -> None:
        self.size = 0
        self.wanted = 0

    def consume(self, count: int, _: float) -> list[Any]:
        self.wanted = count
        return [Record(self.size) for _ in range(count if self.size >= 0 else 0)]

    def consumer_group_metadata(self) -> Any:
        return SimpleNamespace()


@pytest.mark.parametrize("most", [10_000, 10])
def test_the_count_follows_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    client = Consumer()
    monkeypatch.setattr(reader, "make_consumer", lambda *_: client)
    config = WorkerConfig(
        KafkaConfig("127.0.0.1:1"), "p", tmp_path / "data", tmp_path / "store", records_per_batch=most
    )
    reading = LogConsumer(config, "id", {}, threading.Lock(), None)  # type: ignore[arg-type]

    def asked_after(size: int) -> int:
        client.size = size
        reading.step()
        client.size = -1  # nothing comes: what is known of the sizes stays
        reading.step()
        reading.step()
        return client.wanted

    megabyte = 1024 * 1024
    assert asked_after(megabyte) == min(most, BATCH_BYTES // megabyte)
    assert asked_after(10 * BATCH_BYTES) == 1
    assert asked_after(20_000) == min(most, BATCH_BYTES // 20_000)
    assert asked_after(200) == most
    assert asked_after(0) == most, "tombstones"

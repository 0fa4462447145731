"""Kafka's transport without a broker: what it makes, and when."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.errors import Unavailable
from dalsegno.log import transport
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.transport import KafkaTransport


class Client:
    """Takes records, and tells their end when it is flushed."""

    def __init__(self) -> None:
        self.queued: list[Any] = []

    def __len__(self) -> int:
        return len(self.queued)

    def produce(self, *_: Any, on_delivery: Any, **__: Any) -> None:
        self.queued.append(on_delivery)

    def poll(self, _: float) -> int:
        return 0

    def flush(self, _: float) -> int:
        self.queued.clear()
        return 0

    def purge(self) -> None: ...


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    """The producers that were made."""
    found: list[Client] = []

    def make(*_: Any) -> Client:
        found.append(Client())
        return found[-1]

    monkeypatch.setattr(transport, "producer", make)
    return found


def send(to: KafkaTransport) -> None:
    to.send("t", 0, b"k", b"v", [], lambda _offset, _error: None)


def test_who_only_reads_makes_no_producer(made: list[Client]) -> None:
    """An idempotent one asks for rights that a reader may not have, and complains of their lack."""
    to = KafkaTransport(KafkaConfig("nobody:1"))
    to.ready()
    assert to.flush(1.0) == 0
    to.close()
    with pytest.raises(Unavailable):
        send(to)
    assert made == []


def test_everything_that_is_sent_goes_through_one_producer(made: list[Client]) -> None:
    to = KafkaTransport(KafkaConfig("nobody:1"))
    send(to)
    send(to)
    assert [len(each) for each in made] == [2]
    assert to.flush(1.0) == 0
    to.close()
    to.close()

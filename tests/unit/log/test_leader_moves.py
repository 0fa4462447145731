"""Questions about offsets survive a change of leader: a client that learned an old epoch would ask with it for long."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from dalsegno.errors import BrokerUnavailable
from dalsegno.log import admin, kafka, reader
from dalsegno.log.kafka import KafkaConfig

MOVES = [
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
]


class Client:
    """Every client knows one epoch for its life, as the real one does."""

    def __init__(self, refusal: int | None) -> None:
        self.refusal = refusal

    def list_offsets(self, wanted: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Future[Any]]:
        answers = {tp: Future[Any]() for tp in wanted}
        for future in answers.values():
            if self.refusal is None:
                future.set_result(SimpleNamespace(offset=7))
            else:
                future.set_exception(KafkaException(KafkaError(self.refusal)))
        return answers


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    """The clients that are made, one after the other; the last one is made again and again."""
    queue: list[Client] = []
    monkeypatch.setattr(kafka, "admin", lambda _: queue.pop(0) if len(queue) > 1 else queue[0])
    monkeypatch.setattr(admin, "topic_facts", lambda *_, **__: SimpleNamespace(partitions=1))
    return queue


ASKS: dict[str, Callable[[KafkaConfig, float], Any]] = {
    "bounds": lambda cfg, limit: reader.bounds(cfg, "t", [0], limit)[0].high,
    "stable offset": lambda cfg, limit: reader.stable_offset(cfg, "t", 0, limit),
    "watermarks": lambda cfg, limit: admin.watermarks(cfg, "t", limit_seconds=limit)[0].high,
    "offsets at": lambda cfg, limit: admin.offsets_at(cfg, "t", 0, limit_seconds=limit)[0],
}


@pytest.mark.parametrize("code", MOVES)
@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS.keys())
def test_a_client_with_an_old_epoch_gives_way_to_a_new_one(
    clients: list[Client], ask: Callable[[KafkaConfig, float], Any], code: int
) -> None:
    clients += [Client(code), Client(None)]
    assert ask(KafkaConfig("b:1"), 30.0) == 7


@pytest.mark.parametrize("ask", ["bounds", "stable offset"])
def test_nor_does_it_stay_for_the_next_question(clients: list[Client], ask: str) -> None:
    cfg = KafkaConfig("b:1")
    clients.append(Client(KafkaError.FENCED_LEADER_EPOCH))
    with pytest.raises(BrokerUnavailable):
        ASKS[ask](cfg, 0.0)
    clients[:] = [Client(None)]
    assert ASKS[ask](cfg, 0.0) == 7


def test_no_time_before_1970_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka means other things by negative ones."""
    asked: list[int] = []

    def listed(_cfg: object, _topic: str, partitions: range, spec: object, _limit: float) -> dict[int, int]:
        asked.append(spec.timestamp)  # type: ignore[attr-defined]
        return dict.fromkeys(partitions, 5)

    monkeypatch.setattr(admin, "topic_facts", lambda *_, **__: admin.TopicFacts("t", 1, 1))
    monkeypatch.setattr(admin, "_list_offsets", listed)
    for time_ms in (-62_135_596_800_000, -1, 0):
        assert admin.offsets_at(kafka.KafkaConfig("nobody:1"), "t.events", time_ms) == {0: 5}
    assert asked == [0, 0, 0]

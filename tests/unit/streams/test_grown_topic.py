"""A topic that grew under a running worker: nothing is opened by the new number, and the reason names both."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dalsegno.errors import TopicDrift
from dalsegno.log import admin
from dalsegno.log.admin import TopicFacts, Watermarks
from dalsegno.log.kafka import KafkaConfig
from dalsegno.state.slot import open_slot
from dalsegno.streams.assignment import Assignment
from dalsegno.streams.config import WorkerConfig


# case C16
@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize(
    ("now", "grown"), [(TopicFacts("a" * 32, 3, 1), True), (TopicFacts("a" * 32, 2, 1), False)], ids=["grown", "same"]
)
def test_no_partition_is_opened_by_another_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: TopicFacts, grown: bool, number: int
) -> None:
    facts = TopicFacts("a" * 32, 2, 1)
    monkeypatch.setattr(admin, "topic_facts", lambda *_: facts)
    monkeypatch.setattr(admin, "cluster_facts", lambda *_: SimpleNamespace(cluster_id="c"))
    monkeypatch.setattr(admin, "watermarks", lambda *_: {n: Watermarks(0, 0) for n in range(3)})
    given: list[int] = []
    house: Any = SimpleNamespace(wait=lambda *_: None, give=lambda n, _: given.append(n))
    snapshotter: Any = SimpleNamespace(catalogue=lambda _: [], states=None)
    consumer: Any = SimpleNamespace(
        committed=lambda wanted, timeout: [  # noqa: ARG005
            SimpleNamespace(partition=tp.partition, offset=-1001, metadata=None, error=None) for tp in wanted
        ]
    )
    config = WorkerConfig(KafkaConfig("127.0.0.1:1"), "p", tmp_path / "data", tmp_path / "store")
    opener: Any = SimpleNamespace(open=print)
    slot = open_slot(tmp_path / "data", "p")
    try:
        assigning = Assignment(config, slot, house, snapshotter, opener)
        partition = assigning.make(number)
        facts = now
        assigning.assigned(consumer, [partition], 0.0)
    finally:
        slot.close()
    assert given == ([] if grown else [number])
    if grown:
        assert isinstance(partition.error, TopicDrift)
        assert "has 3 partitions, and had 2" in str(partition.error)
    else:
        assert partition.error is None

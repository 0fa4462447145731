"""A schema that comes late frees what waits for it, however it came to be known, and strangers cannot hinder that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.schema_set import UNKNOWN_MAX, SchemaSet
from dalsegno.state.generations import PartitionFolder
from dalsegno.streams import schemas as late
from dalsegno.streams.config import no_fault
from dalsegno.streams.partition import Partition
from dalsegno.streams.schemas import LOOK_AGAIN_SECONDS, LOOK_EVERY_SECONDS, KnownSchemas
from dalsegno.testing.builder import SessionBuilder
from dalsegno.testing.strategies import FUTURE, future_event, strange_frame
from shard_lab import Lab, apply, folded, paths


class Topic:
    """The schema topic, and the clock."""

    def __init__(self) -> None:
        self.schemas: list[str] = []
        self.reads = 0
        self.now = 1000.0

    def refresh(self, known: SchemaSet, *_: Any) -> int:
        self.reads += 1
        before = len(known)
        for each in self.schemas:
            known.add(each)
        return len(known) - before

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    topic = Topic()
    monkeypatch.setattr(late, "refresh", topic.refresh)
    monkeypatch.setattr(late, "time", topic)
    return topic


def at_once(_: int, job: Callable[[], None]) -> None:
    job()


def partition(lab: Lab, known: KnownSchemas, tmp_path: Path) -> Partition:
    made = Partition(0, PartitionFolder(tmp_path, "0" * 32, 0), no_fault)
    made.shard = lab.open(schemas=known.known)
    return made


def waiting() -> SessionBuilder:
    """A session whose last event is of a schema that nobody here knows."""
    builder = SessionBuilder("s").begin()
    builder.records.append(future_event(builder, ignorable=True))
    return builder


def wanted(builder: SessionBuilder) -> Any:
    schemas = SchemaSet.load()
    schemas.add(FUTURE.json)
    return paths(folded(builder.records, schemas=schemas))


@pytest.mark.usefixtures("topic")
def test_a_schema_published_while_the_worker_was_down(tmp_path: Path) -> None:
    lab, builder = Lab(), waiting()
    shard = lab.open()
    apply(shard, builder.records)
    shard.close()
    known = KnownSchemas(KafkaConfig(""), "p")
    known.known.add(FUTURE.json)  # as a start reads the topic
    part = partition(lab, known, tmp_path)
    known.look_for_missing({0: part}, at_once)
    assert paths(part.shard) == wanted(builder)  # type: ignore[arg-type]
    assert part.shard.counts.waiting == 0  # type: ignore[union-attr]


def test_a_schema_found_for_another_partition_or_before_this_one_was_open(topic: Topic, tmp_path: Path) -> None:
    known, builder = KnownSchemas(KafkaConfig(""), "p"), waiting()
    early = partition(Lab(), known, tmp_path)
    apply(early.shard, builder.records)  # type: ignore[arg-type]
    lab = Lab()
    apply(lab.open(), builder.records)
    topic.schemas.append(FUTURE.json)
    known.look_for_missing({0: early}, at_once)
    assert paths(early.shard) == wanted(builder)  # type: ignore[arg-type]
    late_one = partition(lab, known, tmp_path)
    known.look_for_missing({0: early, 1: late_one}, at_once)
    assert paths(late_one.shard) == wanted(builder)  # type: ignore[arg-type]


def test_more_invented_fingerprints_than_are_kept_hide_no_schema(topic: Topic, tmp_path: Path) -> None:
    known, builder = KnownSchemas(KafkaConfig(""), "p"), waiting()
    part = partition(Lab(), known, tmp_path)
    apply(part.shard, [strange_frame("x", n + 1, b"%d" % n) for n in range(UNKNOWN_MAX)])  # type: ignore[arg-type]
    apply(part.shard, builder.records)  # type: ignore[arg-type]
    assert FUTURE.frame_id not in known.known.unknown
    known.look_for_missing({0: part}, at_once)
    topic.schemas.append(FUTURE.json)
    topic.now += LOOK_AGAIN_SECONDS
    known.look_for_missing({0: part}, at_once)
    assert paths(part.shard)["s"] == wanted(builder)["s"]  # type: ignore[arg-type]


def test_invented_fingerprints_do_not_make_the_topic_be_read_all_the_time(topic: Topic, tmp_path: Path) -> None:
    known = KnownSchemas(KafkaConfig(""), "p")
    part = partition(Lab(), known, tmp_path)
    for n in range(20):
        apply(part.shard, [strange_frame("x", n + 1, b"%d" % n)])  # type: ignore[arg-type]
        known.look_for_missing({0: part}, at_once)
    assert topic.reads == 1
    topic.now += LOOK_EVERY_SECONDS
    known.look_for_missing({0: part}, at_once)
    known.look_for_missing({0: part}, at_once)
    assert topic.reads == 2

"""One suite for the transport's seam: Kafka and the memory log promise the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from dalsegno.errors import DalsegnoError, LogHole, OtherHistory, TopicMissing, Unavailable
from dalsegno.log.kafka import admin
from dalsegno.log.schema_set import SchemaSet
from dalsegno.log.transport import KafkaTransport, Transport
from dalsegno.model.ids import Offset
from dalsegno.testing.memory_log import MemoryLog

if TYPE_CHECKING:
    from conftest import KafkaForTest

PREFIX_TOPICS = ("events", "schemas")


class World:
    """A transport, the topic of its events, and a way to delete the log's beginning."""

    def __init__(self, transport: Transport, prefix: str, truncate: Callable[[str, int, int], None]) -> None:
        self.transport, self.prefix, self.truncate = transport, prefix, truncate
        self.topic = f"{prefix}.events"

    def send(self, keys: list[str], partition: int = 0) -> list[Any]:
        told: list[Any] = []
        for key in keys:
            self.transport.send(
                self.topic,
                partition,
                key.encode(),
                b"v" + key.encode(),
                [("h", b"1")],
                lambda o, e: told.append(e or o),
            )
        assert self.transport.flush(30) == 0
        return told

    def read(self, start: int | None = 0, partition: int = 0) -> list[tuple[int, bytes | None]]:
        end = self.transport.bounds(self.topic, partition).high
        begin = None if start is None else Offset(start)
        parts = list(self.transport.read(self.topic, partition, begin, end, 20))
        if parts:
            assert parts[-1].next_offset == end
            assert [part.start for part in parts[1:]] == [part.next_offset for part in parts[:-1]]
        return [(record.offset, record.value) for part in parts for record in part.records]


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.broker)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "memory":
        log = MemoryLog(partitions=2, topics=["t.events", "t.schemas"])
        found = World(log.connect(), "t", log.truncate)
    else:
        kafka: KafkaForTest = request.getfixturevalue("kafka")
        kafka.topics(partitions=2)
        found = World(KafkaTransport(kafka.config), kafka.prefix, lambda *where: delete_records(kafka, *where))
    yield found
    found.transport.close()


def delete_records(kafka: KafkaForTest, topic: str, partition: int, low: int) -> None:
    client = admin(kafka.config)

    def set_policy(policy: str) -> None:
        entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        for done in client.incremental_alter_configs([resource]).values():
            done.result(30)

    set_policy("compact,delete")  # the broker deletes no records of a topic that is only compacted
    deadline = time.monotonic() + 30
    while True:
        try:
            for done in client.delete_records([TopicPartition(topic, partition, low)]).values():
                done.result(30)
            break
        except KafkaException as error:  # the setting has not reached the partition's leader yet
            if error.args[0].code() != KafkaError.POLICY_VIOLATION or time.monotonic() > deadline:
                raise
    set_policy("compact")


def test_records_are_stored_in_order_and_each_is_told_its_own_offset(world: World) -> None:
    assert world.send(["a", "b", "c"]) == [0, 1, 2]
    assert world.send(["d"], partition=1) == [0]
    assert world.read() == [(0, b"va"), (1, b"vb"), (2, b"vc")]
    assert world.read(2) == [(2, b"vc")]
    assert world.read(partition=1) == [(0, b"vd")]
    assert world.transport.bounds(world.topic, 0) == (0, 3)
    assert world.transport.partitions(world.topic) == 2


def test_reports_come_from_another_thread_without_being_asked_for(world: World) -> None:
    told = threading.Event()
    world.transport.send(world.topic, 0, b"k", b"v", [], lambda _o, _e: told.set())
    assert told.wait(30)


def test_nothing_to_read_is_no_batch_and_out_of_range_is_an_error(world: World) -> None:
    assert world.read() == []
    world.send(["a", "b", "c"])
    assert world.read(3) == []
    with pytest.raises(OtherHistory):
        world.read(4)
    world.truncate(world.topic, 0, 2)
    with pytest.raises(LogHole) as caught:
        world.read(1)
    assert (caught.value.data["cursor"], caught.value.data["log_start"], caught.value.data["hole"]) == (1, 2, 1)
    assert world.read(None) == [(2, b"vc")]


def test_a_missing_topic_is_named(world: World) -> None:
    with pytest.raises(TopicMissing, match="nowhere"):
        world.transport.partitions("nowhere")


def test_after_close_nothing_is_taken(world: World) -> None:
    world.send(["a"])
    world.transport.close()
    world.transport.close()
    with pytest.raises(Unavailable):
        world.transport.send(world.topic, 0, b"k", b"v", [], lambda _o, _e: None)


def test_schemas_are_stored_once_and_found_again(world: World) -> None:
    schemas = SchemaSet.load()
    writers = [schemas.event("NoteRecorded"), schemas.event("SessionCreated")]
    world.transport.publish_schemas(world.prefix, writers, 30)
    world.transport.publish_schemas(world.prefix, writers, 30)
    empty = SchemaSet()
    assert world.transport.refresh_schemas(world.prefix, empty, 30) == 2
    assert empty.by_hash(writers[0].schema_hash) is not None
    assert world.transport.refresh_schemas(world.prefix, empty, 30) == 0


def test_a_record_that_is_too_large_is_refused_and_does_not_stop_the_next(world: World) -> None:
    if isinstance(world.transport, KafkaTransport):
        told: list[DalsegnoError] = []
        with pytest.raises(DalsegnoError, match="too large"):
            world.transport.send(world.topic, 0, b"k", bytes(2_000_000), [], lambda _o, e: told.append(e))
        assert told == []
    world.transport.ready()
    assert world.send(["a"]) == [0]

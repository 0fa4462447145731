"""Rows that the broker refuses stop the partition that they are of, and no other; nothing of them is lost."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from dalsegno.log import topics
from dalsegno.log.kafka import admin, producer
from dalsegno.projections.sessions import Sessions
from harness_worker import RunningWorker, World, wait_for

pytestmark = pytest.mark.broker


def limit_messages(world: World, topic: str, size: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    client = admin(world.config)
    asked = client.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])])
    for answer in asked.values():
        answer.result(20)


def wait_for_red(world: World, worker: RunningWorker, *words: str) -> None:
    """Partition 0 stands, and says all of this; partition 1 goes on to the end."""

    def seen() -> bool:
        red, other = worker.parts()[0], worker.parts()[1]
        return (
            red["state"] == "STOPPED"
            and all(word in red["reason"] for word in words)
            and other["state"] == "LIVE"
            and other["committed"] == world.ends()[1]
        )

    wait_for(seen, f"partition 0 is red for {words}, partition 1 is not: {worker.parts()}\n{worker.tail()}")


def test_a_row_above_the_topics_limit(world: World) -> None:
    world.produce(60)
    worker = world.start()
    world.settle()
    topic = topics.projection_topic(world.prefix, Sessions.name, Sessions.version)
    limit_messages(world, topic, 1000)
    world.produce_plain_sessions(0, 300)
    wait_for_red(world, worker, "kafka-refused", "partition 0", topic, "at most 1000 bytes", "max.message.bytes")
    world.produce_plain_sessions(1, 1)
    wait_for_red(world, worker, "at most 1000 bytes")
    limit_messages(world, topic, 1024 * 1024)
    world.settle()
    world.check()


def test_a_topic_that_is_gone(world: World) -> None:
    world.produce(60)
    worker = world.start()
    world.settle()
    client = admin(world.config)
    for answer in client.delete_topics([f"{world.prefix}.quarantine"]).values():
        answer.result(20)
    writer = producer(world.config)
    writer.produce(world.events, key=b"no key of ours", value=b"anything", partition=0)
    assert writer.flush(20) == 0
    wait_for_red(world, worker, "topic-missing", f"{world.prefix}.quarantine", "topic apply")
    world.produce_plain_sessions(1, 3)
    wait_for_red(world, worker, "topic-missing")
    projections = [(each.name, each.version) for each in world.projections]
    topics.apply(world.config, world.prefix, partitions=world.partitions, projections=projections)
    world.settle()
    world.check()

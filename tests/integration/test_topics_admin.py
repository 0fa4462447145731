"""Topics are made, checked and set back; offsets of groups are read and set, on the real broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from dalsegno.errors import GroupNotEmpty, TopicDrift, TopicMissing
from dalsegno.log import admin, topics
from dalsegno.log.admin import Committed
from dalsegno.log.topics import Action

if TYPE_CHECKING:
    from conftest import KafkaForTest

pytestmark = pytest.mark.broker
DEADLINE_SECONDS = 30.0


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the broker did not show the change"


def set_config(kafka: KafkaForTest, topic: str, setting: str, value: str) -> None:
    entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    client = AdminClient(kafka.config.client())
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in client.incremental_alter_configs([resource]).values():
        future.result(DEADLINE_SECONDS)
    asked = ConfigResource(ResourceType.TOPIC, topic)
    wait_for(lambda: client.describe_configs([asked])[asked].result(DEADLINE_SECONDS)[setting].value == value)


def test_a_plan_creates_then_keeps(kafka: KafkaForTest) -> None:
    before = topics.plan(kafka.config, kafka.prefix, partitions=3, projections=[("sessions", 1)])
    assert {topic.action for topic in before} == {Action.CREATE}
    with pytest.raises(TopicMissing, match=rf"{kafka.prefix}\.events"):
        topics.check(kafka.config, kafka.prefix)

    topics.apply(kafka.config, kafka.prefix, partitions=3, projections=[("sessions", 1)])

    after = topics.plan(kafka.config, kafka.prefix, projections=[("sessions", 1)])
    assert {topic.action for topic in after} == {Action.KEEP}
    assert {topic.spec.name for topic in after} >= {f"{kafka.prefix}.events", f"{kafka.prefix}.projection.sessions.v1"}
    for name, partitions in (
        ("events", 3),
        ("inbox", 3),
        ("projection.sessions.v1", 3),
        ("schemas", 1),
        ("control", 1),
    ):
        assert admin.topic_facts(kafka.config, f"{kafka.prefix}.{name}").partitions == partitions
    topics.check(kafka.config, kafka.prefix, projections=[("sessions", 1)])


def test_a_drifted_setting_is_refused_by_name_and_set_back_on_demand(kafka: KafkaForTest) -> None:
    kafka.topics(partitions=2)
    events = f"{kafka.prefix}.events"
    set_config(kafka, events, "cleanup.policy", "delete")
    set_config(kafka, events, "max.compaction.lag.ms", "1234")

    with pytest.raises(TopicDrift) as caught:
        topics.check(kafka.config, kafka.prefix)
    text = str(caught.value)
    assert f"{events}: cleanup.policy is delete, wanted compact" in text
    assert "max.compaction.lag.ms is 1234, wanted 604800000" in text
    with pytest.raises(TopicDrift):
        kafka.topics(partitions=2)

    topics.apply(kafka.config, kafka.prefix, alter=True)
    topics.check(kafka.config, kafka.prefix)


def test_added_partitions_are_refused_and_nothing_is_changed(kafka: KafkaForTest) -> None:
    kafka.topics(partitions=2)
    inbox = f"{kafka.prefix}.inbox"
    client = AdminClient(kafka.config.client())
    for future in client.create_partitions([NewPartitions(inbox, 3)]).values():
        future.result(DEADLINE_SECONDS)
    wait_for(lambda: admin.topic_facts(kafka.config, inbox).partitions == 3)
    set_config(kafka, f"{kafka.prefix}.events", "cleanup.policy", "delete")

    with pytest.raises(TopicDrift, match=rf"{inbox}: partitions is 3, wanted 2"):
        topics.apply(kafka.config, kafka.prefix, alter=True)
    # Not set back, since the whole plan was refused.
    with pytest.raises(TopicDrift, match=r"cleanup\.policy is delete"):
        topics.check(kafka.config, kafka.prefix)


def test_another_number_of_partitions_than_the_topic_was_made_with_is_refused(kafka: KafkaForTest) -> None:
    kafka.topics(partitions=2)
    with pytest.raises(TopicDrift, match=r"events: partitions is 2, wanted 16.*--partitions"):
        topics.apply(kafka.config, kafka.prefix, partitions=16)


def test_facts_of_a_topic_and_its_watermarks(kafka: KafkaForTest) -> None:
    kafka.topics(partitions=2)
    events = f"{kafka.prefix}.events"
    facts = admin.topic_facts(kafka.config, events)
    assert len(facts.topic_id) == 32
    assert int(facts.topic_id, 16) > 0
    producer = Producer(kafka.config.client())
    for number in range(3):
        producer.produce(events, key=f"k{number}", value=b"v", partition=1)
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert admin.watermarks(kafka.config, events) == {0: (0, 0), 1: (0, 3)}
    assert admin.offsets_at(kafka.config, events, 0) == {0: None, 1: 0}
    assert admin.offsets_at(kafka.config, events, int(time.time() * 1000) + 3_600_000) == {0: None, 1: None}
    with pytest.raises(TopicMissing, match="does not exist"):
        admin.watermarks(kafka.config, f"{kafka.prefix}.nothing")


def test_an_open_transaction_counts_for_the_watermark(kafka: KafkaForTest) -> None:
    kafka.topics(partitions=1)
    events = f"{kafka.prefix}.events"
    producer = Producer(kafka.config.client({"transactional.id": kafka.prefix}))
    producer.init_transactions(DEADLINE_SECONDS)
    producer.begin_transaction()
    producer.produce(events, key=b"k", value=b"v", partition=0)
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert admin.watermarks(kafka.config, events)[0].high == 1
    producer.abort_transaction(DEADLINE_SECONDS)


def test_offsets_of_a_group_are_set_with_metadata_and_read_back(kafka: KafkaForTest) -> None:
    kafka.topics(partitions=2)
    group, events = f"{kafka.prefix}.worker", f"{kafka.prefix}.events"
    assert admin.describe_group(kafka.config, group).state == "DEAD"
    assert admin.group_offsets(kafka.config, group) == {}

    wanted = {(events, 0): Committed(7, "ds1:g1:-"), (events, 1): Committed(0, None)}
    admin.alter_group_offsets(kafka.config, group, wanted)

    assert admin.group_offsets(kafka.config, group, stable=True) == wanted
    assert admin.describe_group(kafka.config, group).state == "EMPTY"
    assert group in [listed.group for listed in admin.list_groups(kafka.config)]


def test_a_group_with_members_is_refused_by_their_names(kafka: KafkaForTest) -> None:
    kafka.topics(partitions=2)
    group, events = f"{kafka.prefix}.worker", f"{kafka.prefix}.events"
    settings = {"group.id": group, "client.id": "worker-7", "session.timeout.ms": 6000}
    consumer = Consumer(kafka.config.client(settings))
    consumer.subscribe([events])
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(consumer.assignment()) < 2 and time.monotonic() < deadline:
            consumer.poll(0.1)
        facts = admin.describe_group(kafka.config, group)
        assert facts.state == "STABLE"
        assert [member.partitions for member in facts.members] == [((events, 0), (events, 1))]

        with pytest.raises(GroupNotEmpty, match=r"worker-7@127\.0\.0\.1") as caught:
            admin.alter_group_offsets(kafka.config, group, {(events, 0): Committed(3, None)})
        assert caught.value.data["set"] == []
        assert admin.group_offsets(kafka.config, group).get((events, 0), Committed(-1, None)).offset != 3
    finally:
        consumer.close()

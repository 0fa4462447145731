"""The schema topic on the real broker: put once, read to the end, strangers do not stop it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from dalsegno.errors import SchemaIncompatible, TopicMissing
from dalsegno.log.schema_set import SchemaSet
from dalsegno.log.schema_topic import publish_schemas, read_schemas, refresh
from log_samples import toy, writer_of

if TYPE_CHECKING:
    from conftest import KafkaForTest

pytestmark = pytest.mark.broker
LIMIT_SECONDS = 30.0


def test_schemas_are_put_once_and_explain_the_log(kafka: KafkaForTest) -> None:
    kafka.topics(partitions=1)
    shipped = list(SchemaSet.load())
    assert publish_schemas(kafka.config, kafka.prefix, shipped, LIMIT_SECONDS) == len(shipped)
    assert publish_schemas(kafka.config, kafka.prefix, shipped, LIMIT_SECONDS) == 0
    empty = SchemaSet()
    empty.miss(shipped[0].frame_id)
    assert refresh(empty, kafka.config, kafka.prefix, LIMIT_SECONDS) == len(shipped)
    assert {writer.schema_hash for writer in empty} == {writer.schema_hash for writer in shipped}
    assert empty.unknown == set()
    assert refresh(empty, kafka.config, kafka.prefix, LIMIT_SECONDS) == 0


def test_a_version_that_does_not_go_with_one_in_the_topic_is_refused(kafka: KafkaForTest) -> None:
    # case C34
    kafka.topics(partitions=1)
    old = writer_of(toy(1, {"name": "cost", "type": "long"}))
    renamed = writer_of(toy(2, {"name": "price", "type": "long"}))
    assert publish_schemas(kafka.config, kafka.prefix, [old], LIMIT_SECONDS) == 1
    with pytest.raises(SchemaIncompatible):
        publish_schemas(kafka.config, kafka.prefix, [renamed], LIMIT_SECONDS)
    assert len(read_schemas(kafka.config, kafka.prefix, LIMIT_SECONDS)) == 1


def test_a_strangers_record_is_stepped_over(kafka: KafkaForTest) -> None:
    kafka.topics(partitions=1)
    client = Producer(kafka.config.client())
    for key, value in ((b"a", b"no schema"), (b"b", b"\xff\xfe"), (b"c", None)):
        client.produce(f"{kafka.prefix}.schemas", key=key, value=value)
    assert client.flush(LIMIT_SECONDS) == 0
    known = SchemaSet()
    writer = writer_of(toy(1))
    assert publish_schemas(kafka.config, kafka.prefix, [writer], LIMIT_SECONDS) == 1
    assert refresh(known, kafka.config, kafka.prefix, LIMIT_SECONDS) == 1


def test_without_the_topic_it_says_so(kafka: KafkaForTest) -> None:
    with pytest.raises(TopicMissing):
        publish_schemas(kafka.config, kafka.prefix, [writer_of(toy(1))], LIMIT_SECONDS)

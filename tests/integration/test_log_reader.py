"""The batched reader on a real broker: where it ends, where it refuses, what it waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from dalsegno.errors import LogHole, OtherHistory, TopicMissing, WaitTimeout
from dalsegno.log.kafka import admin, producer
from dalsegno.log.reader import bounds, read_compacted, read_range

if TYPE_CHECKING:
    from conftest import KafkaForTest

pytestmark = pytest.mark.broker


def make_topic(kafka: KafkaForTest, name: str, partitions: int = 1, **config: str) -> str:
    topic = f"{kafka.prefix}.{name}"
    client = admin(kafka.config)
    settings = {key.replace("_", "."): value for key, value in config.items()}
    client.create_topics([NewTopic(topic, partitions, config=settings)])[topic].result(30)
    return topic


def transaction(kafka: KafkaForTest, topic: str, keys: list[str], timeout_ms: int = 60_000) -> Producer:
    """A transaction with these keys, sent to the log and still open."""
    maker = producer(kafka.config, {"transactional.id": f"{topic}.tx", "transaction.timeout.ms": timeout_ms})
    maker.init_transactions(30)
    maker.begin_transaction()
    for key in keys:
        maker.produce(topic, key=key.encode(), value=b"v", partition=0)
    assert maker.flush(30) == 0
    return maker


def send(kafka: KafkaForTest, topic: str, pairs: list[tuple[str | None, bytes | None]]) -> None:
    maker = producer(kafka.config, {"acks": "all"})
    for key, value in pairs:
        maker.produce(topic, key=None if key is None else key.encode(), value=value, partition=0)
    assert maker.flush(30) == 0


def keys_of(kafka: KafkaForTest, topic: str, **how: Any) -> list[bytes | None]:
    return [record.key for part in read_range(kafka.config, topic, 0, **how) for record in part.records]


def within(seconds: float, call: Callable[[], Any]) -> Any:
    begun = time.monotonic()
    result = call()
    assert time.monotonic() - begun < seconds
    return result


def test_a_log_that_ends_with_a_transaction_marker_is_read_to_its_end(kafka: KafkaForTest) -> None:
    # case C2
    committed, aborted = make_topic(kafka, "committed"), make_topic(kafka, "aborted")
    transaction(kafka, committed, ["a", "b", "c"]).commit_transaction(30)
    transaction(kafka, aborted, ["x", "y"]).abort_transaction(30)

    for topic, keys in ((committed, [b"a", b"b", b"c"]), (aborted, [])):
        parts = within(10, lambda topic=topic: list(read_range(kafka.config, topic, 0)))
        assert [record.key for part in parts for record in part.records] == keys
        # Lag 0: the marker's own slot is behind the reader too.
        assert parts[-1].next_offset == bounds(kafka.config, topic, [0])[0].high
        assert list(read_range(kafka.config, topic, 0, parts[-1].next_offset)) == []


def test_an_open_transaction_below_the_bound_is_waited_for_and_named(kafka: KafkaForTest) -> None:
    # case C10
    topic = make_topic(kafka, "open")
    hanging = transaction(kafka, topic, ["never"])
    send(kafka, topic, [(f"k{n}", b"v") for n in range(50)])

    with pytest.raises(WaitTimeout, match="open transaction begins at offset 0") as caught:
        keys_of(kafka, topic, stall_seconds=1.5)
    assert caught.value.data["position"] == 0
    assert caught.value.data["end_bound"] == 51

    # The transaction ends while the reader waits: it must not have called the pinned point the end.
    got: list[bytes | None] = []
    reading = threading.Thread(target=lambda: got.extend(keys_of(kafka, topic, stall_seconds=30)))
    reading.start()
    hanging.abort_transaction(30)
    reading.join(30)
    assert got == [f"k{n}".encode() for n in range(50)]


def test_the_bound_is_taken_at_the_start_and_what_comes_later_is_not_waited_for(kafka: KafkaForTest) -> None:
    topic = make_topic(kafka, "bound")
    send(kafka, topic, [(f"k{n}", b"v") for n in range(10)])
    reading = read_range(kafka.config, topic, 0, batch=4)
    first = next(reading)
    assert (first.start, first.next_offset) == (0, 4)
    hanging = transaction(kafka, topic, ["later"])  # above the bound: no reason to wait
    rest = within(10, lambda: list(reading))
    assert [r.offset for part in rest for r in part.records][:6] == [4, 5, 6, 7, 8, 9]
    assert [part.start for part in rest][1:] == [part.next_offset for part in rest][:-1]
    hanging.abort_transaction(30)


def test_records_come_with_their_place_and_tombstones_as_none(kafka: KafkaForTest) -> None:
    topic = make_topic(kafka, "place")
    send(kafka, topic, [("a", b"1"), ("a", None), (None, b"x")])
    (part,) = read_range(kafka.config, topic, 0, 1)
    assert [(r.offset, r.key, r.value) for r in part.records] == [(1, b"a", None), (2, None, b"x")]
    assert abs(part.records[0].timestamp_ms / 1000 - time.time()) < 600
    assert part.records[0].leader_epoch >= 0


def test_a_cursor_below_the_log_start_is_a_hole_and_never_a_jump(kafka: KafkaForTest) -> None:
    # case C13
    topic = make_topic(kafka, "hole", cleanup_policy="delete")
    send(kafka, topic, [(f"k{n}", b"v") for n in range(9)])
    client = admin(kafka.config)
    for done in client.delete_records([TopicPartition(topic, 0, 5)]).values():
        done.result(30)
    with pytest.raises(LogHole) as caught:
        keys_of(kafka, topic, start=1)
    assert {name: caught.value.data[name] for name in ("cursor", "log_start", "hole")} == {
        "cursor": 1, "log_start": 5, "hole": 4,
    }  # fmt: skip
    assert keys_of(kafka, topic, start=5) == [b"k5", b"k6", b"k7", b"k8"]
    assert keys_of(kafka, topic) == [b"k5", b"k6", b"k7", b"k8"]  # None: from wherever the log starts


def test_records_deleted_under_a_running_reader_are_a_hole_too(kafka: KafkaForTest) -> None:
    # case C13
    topic = make_topic(kafka, "moving", cleanup_policy="delete")
    maker = producer(kafka.config, {"batch.num.messages": 5})  # small batches: a fetch gets at least a whole one
    for n in range(1000):
        maker.produce(topic, key=f"k{n}".encode(), value=b"v" * 1000, partition=0)
    assert maker.flush(30) == 0
    cfg = type(kafka.config)(
        kafka.config.bootstrap_servers,
        # So little is fetched ahead that the deletion reaches the reader.
        {"fetch.message.max.bytes": "2000", "queued.max.messages.kbytes": "2", "queued.min.messages": "1"},
    )
    reading = read_range(cfg, topic, 0, batch=1)
    assert next(reading).records[0].offset == 0
    client = admin(kafka.config)
    for done in client.delete_records([TopicPartition(topic, 0, 900)]).values():
        done.result(30)
    with pytest.raises(LogHole) as caught:
        list(reading)
    assert caught.value.data["log_start"] == 900
    assert caught.value.data["hole"] == 900 - caught.value.data["cursor"]


def test_a_cursor_behind_the_end_belongs_to_another_log(kafka: KafkaForTest) -> None:
    topic = make_topic(kafka, "beyond")
    send(kafka, topic, [("a", b"1")])
    with pytest.raises(OtherHistory) as caught:
        keys_of(kafka, topic, start=7)
    assert caught.value.data["log_end"] == 1
    assert keys_of(kafka, topic, start=1) == []


def test_a_missing_topic_is_named(kafka: KafkaForTest) -> None:
    for call in (lambda: keys_of(kafka, "no-such-topic"), lambda: read_compacted(kafka.config, "no-such-topic")):
        with pytest.raises(TopicMissing, match="no-such-topic"):
            call()


def test_a_compacted_topic_is_read_as_a_table(kafka: KafkaForTest) -> None:
    topic = make_topic(kafka, "table", partitions=2)
    send(kafka, topic, [("a", b"1"), ("b", b"1"), ("a", b"2"), ("b", None), ("c", b"3"), ("a", b"4")])
    table = read_compacted(kafka.config, topic, timeout=30)
    assert list(table.items()) == [(b"c", b"3"), (b"a", b"4")]

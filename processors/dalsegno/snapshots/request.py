"""Asking running workers for a snapshot, through ``<prefix>.control``, and gathering their answers.

Protocol *snapshot take*:

1. the end of the control topic was noted, so no answer can be missed;
2. the request is acknowledged in it;
3. every partition has answered with the id of its shard snapshot, or the limit was reached;
4. the named snapshot, which lists them, is acknowledged in ``<prefix>.snapshots``.

A crash before 4 leaves shard snapshots that are good and that no name lists: retention removes them as any other.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import NamedTuple

from confluent_kafka import TopicPartition

from dalsegno.errors import RecordDamaged
from dalsegno.log.codec import decode_record
from dalsegno.log.kafka import KafkaConfig, consumer, kafka_errors
from dalsegno.log.reader import bounds
from dalsegno.log.service_records import write_request
from dalsegno.log.topics import topic_name

_POLL_SECONDS = 0.2


class Answers(NamedTuple):
    """What workers said: partition -> id of its shard snapshot, partition -> why not, and who said nothing."""

    taken: dict[int, str]
    failed: dict[int, str]
    silent: tuple[int, ...]


def ask_for_snapshots(
    cfg: KafkaConfig,
    prefix: str,
    partitions: Collection[int],
    *,
    request_id: str,
    by: str,
    reason: str,
    timeout_seconds: float,
) -> Answers:
    """Steps 1 to 3. Returns when every partition has answered, or at the limit.

    Raises TopicMissing, BrokerUnavailable, WaitTimeout (the request itself was not acknowledged).
    """
    topic = topic_name(prefix, "control")
    deadline = time.monotonic() + timeout_seconds
    begin = bounds(cfg, topic, [0])[0].high
    write_request(
        cfg, prefix, "SNAPSHOT", request_id=request_id, by=by, reason=reason, timeout_seconds=timeout_seconds,
        partitions=sorted(partitions),
    )  # fmt: skip
    return _gather(cfg, topic, begin, request_id, set(partitions), deadline)


def _gather(cfg: KafkaConfig, topic: str, begin: int, request_id: str, waiting: set[int], deadline: float) -> Answers:
    taken: dict[int, str] = {}
    failed: dict[int, str] = {}
    reader = consumer(cfg, {"group.id": "dalsegno-asker"})
    try:
        with kafka_errors("wait for the workers' answers", topic=topic):
            reader.assign([TopicPartition(topic, 0, begin)])
            while waiting - set(failed) and (left := deadline - time.monotonic()) > 0:
                message = reader.poll(min(_POLL_SECONDS, left))
                if message is None or message.error() is not None or message.value() is None:
                    continue
                try:
                    kind, answer = decode_record(message.value() or b"")
                except RecordDamaged:
                    continue
                partition = answer.get("partition")
                if kind != "ControlAnswer" or answer["request_id"] != request_id or partition not in waiting:
                    continue
                if answer["ok"] and answer["shard_snapshot_id"]:
                    taken[partition] = answer["shard_snapshot_id"]
                    failed.pop(partition, None)
                    waiting.discard(partition)
                else:
                    # While others are waited for, a new owner of the partition may still answer better.
                    failed[partition] = answer["error"] or "no reason given"
    finally:
        reader.close()
    return Answers(taken, failed, tuple(sorted(waiting - set(failed))))

"""The topic ``<prefix>.schemas``: key = schema hash in hex, value = the closed schema as JSON; compacted.

A schema is acknowledged here before the first event that uses it, so that the log explains itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter

from confluent_kafka import KafkaError, Message

from dalsegno.errors import DalsegnoError, SchemaIncompatible, WaitTimeout
from dalsegno.log import compatibility
from dalsegno.log.kafka import KafkaConfig, kafka_errors, producer, translate
from dalsegno.log.reader import read_compacted
from dalsegno.log.schema_set import SchemaSet, WriterSchema

log = logging.getLogger("dalsegno.log")

DEFAULT_TIMEOUT_SECONDS = 30.0
REASON_CHARACTERS = 300


def topic_of(prefix: str) -> str:
    return f"{prefix}.schemas"


def read_schemas(cfg: KafkaConfig, prefix: str, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> list[str]:
    """Every schema of the topic, read to its end once. Raises WaitTimeout, TopicMissing, BrokerUnavailable."""
    table = read_compacted(cfg, topic_of(prefix), timeout)
    return [value.decode("utf-8", errors="replace") for _, value in sorted(table.items())]


def refresh(schemas: SchemaSet, cfg: KafkaConfig, prefix: str, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> int:
    """Add what the topic holds and this process does not know yet; the number of schemas that were new."""
    before = len(schemas)
    ignored: list[str] = []
    for text in read_schemas(cfg, prefix, timeout):
        try:
            schemas.add(text)
        except SchemaIncompatible as error:
            # A stranger's record must not stop the reading of the others; whoever needs that schema stays held.
            ignored.append(error.found)
    if ignored:
        facts = {"topic": topic_of(prefix), "schemas": len(ignored), "reason": ignored[0][:REASON_CHARACTERS]}
        log.warning("schemas_ignored", extra=facts)
    return len(schemas) - before


def publish_schemas(
    cfg: KafkaConfig, prefix: str, schemas: Iterable[WriterSchema], timeout: float = DEFAULT_TIMEOUT_SECONDS
) -> int:
    """Put every schema into the topic that is not there yet, and wait for the acknowledgements; how many were put.

    Raises SchemaIncompatible if one does not go together with a version of the same type that is there, WaitTimeout if
    not all are acknowledged in time (then it is unknown which are there; asking again is harmless).
    """
    deadline = time.monotonic() + timeout
    there = SchemaSet()
    for text in read_schemas(cfg, prefix, timeout):
        try:
            there.add(text)
        except SchemaIncompatible:
            continue
    missing = [writer for writer in schemas if there.by_hash(writer.schema_hash) is None]
    require_compatible(list(there), missing)
    if missing:
        _send(cfg, topic_of(prefix), missing, max(1.0, deadline - time.monotonic()))
    return len(missing)


def require_compatible(there: Iterable[WriterSchema], new: Iterable[WriterSchema]) -> None:
    """Refuse a new version that does not go together with another version of its type. Raises SchemaIncompatible.

    Two shapes of one and the same version are not compared: an unreleased version may still change.
    """
    by_family = attrgetter("family", "version")
    added = {writer.schema_hash for writer in new}
    everything = {writer.schema_hash: writer for writer in (*there, *new)}
    for _, group in groupby(sorted(everything.values(), key=by_family), key=attrgetter("family")):
        versions = list(group)
        for i, old in enumerate(versions):
            for young in versions[i + 1 :]:
                concerned = old.schema_hash in added or young.schema_hash in added
                if concerned and old.version != young.version:
                    compatibility.require([old, young], avro=False)


def _send(cfg: KafkaConfig, topic: str, schemas: list[WriterSchema], timeout: float) -> None:
    failed: list[DalsegnoError] = []
    acknowledged = 0

    def report(error: KafkaError | None, _: Message) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            failed.append(translate(error, f"put a schema into {topic}", topic=topic))

    client = producer(cfg, {"enable.idempotence": True, "acks": "all", "message.timeout.ms": int(timeout * 1000)})
    with kafka_errors(f"put schemas into {topic}", topic=topic):
        for writer in schemas:
            client.produce(topic, key=writer.schema_hash.hex().encode(), value=writer.json.encode(), on_delivery=report)
        client.flush(timeout)
    if failed:
        raise failed[0]
    if acknowledged < len(schemas):
        raise WaitTimeout(
            f"{len(schemas) - acknowledged} of {len(schemas)} schemas were not acknowledged in {timeout:g} s",
            wanted=f"all of them in {topic}",
            todo="check the broker, then try again: nothing is put twice",
            topic=topic,
        )

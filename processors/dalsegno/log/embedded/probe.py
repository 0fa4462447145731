"""One question to a broker: which cluster are you?"""

from __future__ import annotations

import logging

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

# librdkafka would write to stderr that nobody answers yet, which is what is being asked.
_quiet = logging.getLogger("dalsegno.log.embedded.probe")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


def answering_cluster(bootstrap: str, limit_seconds: float) -> str | None:
    """The cluster id that the broker at ``bootstrap`` tells; None if no broker takes work there within the limit."""
    client = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 5000}, logger=_quiet)
    try:
        metadata = client.list_topics(timeout=limit_seconds)
    except KafkaException:
        return None
    # A broker that is up but still fenced lists no broker.
    return metadata.cluster_id if metadata.brokers else None

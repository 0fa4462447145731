"""Questions to the cluster, and the offsets of groups: cluster and topic ids, watermarks, groups, offset resets.

Watermarks are read uncommitted: a read-committed one is the last stable offset, and with an open transaction it would
end a replay early and call it success.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from dalsegno.errors import GroupNotEmpty, KafkaRefused, TopicMissing, WaitTimeout
from dalsegno.log import kafka
from dalsegno.log.kafka import KafkaConfig, kafka_errors

# A client is bound to a name in each function: it ends with its last reference, and its requests with it.
LIMIT_SECONDS = 30.0
_T = TypeVar("_T")
_NO_OFFSET = -1001
_GROUP_GONE = {KafkaError.GROUP_ID_NOT_FOUND}
_COORDINATOR_TRY_SECONDS = 5.0
_LOOK_AGAIN_SECONDS = 0.1
_LEADER_MOVES = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}
_NO_COORDINATOR_YET = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._TIMED_OUT,
}
_MEMBERS_THERE = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP}


class ClusterFacts(NamedTuple):
    cluster_id: str
    brokers: int


class TopicFacts(NamedTuple):
    topic_id: str
    """32 hex digits: the client's own text form holds ``/``, which no file name can."""
    partitions: int
    replication: int


class Watermarks(NamedTuple):
    """Of one partition: the first offset that is still there, and the next one to be written (read uncommitted)."""

    low: int
    high: int


class Committed(NamedTuple):
    offset: int
    metadata: str | None
    """What the committer wrote beside it; None after Kafka's own reset tool."""


class Member(NamedTuple):
    member_id: str
    client_id: str
    instance_id: str | None
    host: str
    partitions: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"{self.instance_id or self.client_id}@{self.host.lstrip('/')}"


class GroupFacts(NamedTuple):
    group: str
    state: str
    """Kafka's word: STABLE, EMPTY, PREPARING_REBALANCING, ...; DEAD also where there is no such group."""
    protocol: str
    """CLASSIC or CONSUMER; UNKNOWN where there is no such group."""
    members: tuple[Member, ...]


class GroupListing(NamedTuple):
    group: str
    state: str
    protocol: str


def cluster_facts(cfg: KafkaConfig, *, limit_seconds: float = LIMIT_SECONDS) -> ClusterFacts:
    """Raises BrokerUnavailable, WaitTimeout."""
    doing = "ask the cluster for its id"
    client = kafka.admin(cfg)
    with kafka_errors(doing):
        described = result(client.describe_cluster(request_timeout=limit_seconds), doing, limit_seconds)
    return ClusterFacts(str(described.cluster_id), len(described.nodes))


def topic_facts(cfg: KafkaConfig, topic: str, *, limit_seconds: float = LIMIT_SECONDS) -> TopicFacts:
    """Raises TopicMissing, BrokerUnavailable, WaitTimeout."""
    found = describe_topics(kafka.admin(cfg), [topic], limit_seconds=limit_seconds)
    if topic not in found:
        raise TopicMissing(
            f"the topic {topic} does not exist",
            wanted="the topics of this prefix",
            todo="dalsegno topic apply",
            topic=topic,
        )
    return found[topic]


def describe_topics(
    client: AdminClient, topics: Iterable[str], *, limit_seconds: float = LIMIT_SECONDS
) -> dict[str, TopicFacts]:
    """Facts of those of the topics that exist."""
    found: dict[str, TopicFacts] = {}
    with kafka_errors("describe topics"):
        asked = client.describe_topics(TopicCollection(list(topics)), request_timeout=limit_seconds)
        for topic, future in asked.items():
            try:
                described = result(future, f"describe topic {topic}", limit_seconds)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise
            replication = min((len(partition.replicas) for partition in described.partitions), default=0)
            found[topic] = TopicFacts(_hex(described.topic_id), len(described.partitions), replication)
    return found


def watermarks(cfg: KafkaConfig, topic: str, *, limit_seconds: float = LIMIT_SECONDS) -> dict[int, Watermarks]:
    """First and next offset of every partition, read uncommitted. Raises TopicMissing, WaitTimeout."""
    partitions = range(topic_facts(cfg, topic, limit_seconds=limit_seconds).partitions)
    low = _list_offsets(cfg, topic, partitions, OffsetSpec.earliest(), limit_seconds)
    high = _list_offsets(cfg, topic, partitions, OffsetSpec.latest(), limit_seconds)
    return {partition: Watermarks(low[partition], high[partition]) for partition in partitions}


def offsets_at(
    cfg: KafkaConfig, topic: str, timestamp_ms: int, *, limit_seconds: float = LIMIT_SECONDS
) -> dict[int, int | None]:
    """Per partition the first offset of this time (milliseconds since 1970) or later; None where there is none.

    No record is older than 1970, and Kafka has other meanings for negative times.
    """
    partitions = range(topic_facts(cfg, topic, limit_seconds=limit_seconds).partitions)
    spec = OffsetSpec.for_timestamp(max(0, timestamp_ms))
    found = _list_offsets(cfg, topic, partitions, spec, limit_seconds)
    return {partition: offset if offset >= 0 else None for partition, offset in found.items()}


def list_groups(cfg: KafkaConfig, *, limit_seconds: float = LIMIT_SECONDS) -> list[GroupListing]:
    """All consumer groups of the cluster, by name."""
    doing = "list the consumer groups"
    client = kafka.admin(cfg)
    with kafka_errors(doing):
        asked = client.list_consumer_groups(request_timeout=limit_seconds)
        listed = result(asked, doing, limit_seconds)
        if listed.errors:
            raise listed.errors[0]
    return sorted(GroupListing(each.group_id, _word(each.state), _word(each.type)) for each in listed.valid)


def describe_group(cfg: KafkaConfig, group: str, *, limit_seconds: float = LIMIT_SECONDS) -> GroupFacts:
    """State and members. A group that does not exist is DEAD, without members (Kafka's own answer)."""
    doing = f"describe group {group}"

    def ask(client: AdminClient, seconds: float) -> Any:
        return result(client.describe_consumer_groups([group], request_timeout=seconds)[group], doing, seconds)

    with kafka_errors(doing, group=group):
        try:
            described = _of_coordinator(cfg, ask, limit_seconds)
        except KafkaException as error:
            if error.args[0].code() in _GROUP_GONE:
                return GroupFacts(group, "DEAD", "UNKNOWN", ())
            raise
    members = tuple(
        Member(
            member_id=each.member_id,
            client_id=each.client_id,
            instance_id=each.group_instance_id,
            host=each.host,
            partitions=tuple(sorted((tp.topic, tp.partition) for tp in each.assignment.topic_partitions)),
        )
        for each in described.members
    )
    return GroupFacts(group, _word(described.state), _word(described.type), members)


def group_offsets(
    cfg: KafkaConfig, group: str, *, stable: bool = False, limit_seconds: float = LIMIT_SECONDS
) -> dict[tuple[str, int], Committed]:
    """What a group has committed, by topic and partition; {} if nothing or if there is no such group.

    ``stable``: refuse while a transaction that carries offsets is open (WaitTimeout, UNSTABLE_OFFSET_COMMIT) instead
    of telling the older offset.
    """
    doing = f"read the offsets of group {group}"

    def ask(client: AdminClient, seconds: float) -> Any:
        wanted = [ConsumerGroupTopicPartitions(group)]
        asked = client.list_consumer_group_offsets(wanted, require_stable=stable, request_timeout=seconds)
        return result(asked[group], doing, seconds)

    with kafka_errors(doing, group=group):
        try:
            answer = _of_coordinator(cfg, ask, limit_seconds)
        except KafkaException as error:
            if error.args[0].code() in _GROUP_GONE:
                return {}
            raise
        for tp in answer.topic_partitions:
            if tp.error is not None:
                raise KafkaException(tp.error)
    return {
        (tp.topic, tp.partition): Committed(tp.offset, tp.metadata)
        for tp in answer.topic_partitions
        if tp.offset != _NO_OFFSET
    }


def alter_group_offsets(
    cfg: KafkaConfig, group: str, offsets: Mapping[tuple[str, int], Committed], *, limit_seconds: float = LIMIT_SECONDS
) -> None:
    """Set a group's committed offsets, with metadata; the group is made if it does not exist.

    Kafka answers per partition, and one that it refuses does not undo the others: the error lists which were set.
    Raises GroupNotEmpty (naming the members), KafkaRefused, BrokerUnavailable, WaitTimeout.
    """
    doing = f"set the offsets of group {group}"
    wanted = [_position(topic, partition, to) for (topic, partition), to in sorted(offsets.items())]
    refused: dict[tuple[str, int], KafkaError] = {}

    def ask(client: AdminClient, seconds: float) -> Any:
        to = [ConsumerGroupTopicPartitions(group, wanted)]
        return result(client.alter_consumer_group_offsets(to, request_timeout=seconds)[group], doing, seconds)

    with kafka_errors(doing, group=group):
        try:
            answer = _of_coordinator(cfg, ask, limit_seconds)
        except KafkaException as error:
            if error.args[0].code() not in _MEMBERS_THERE:
                raise
            refused = dict.fromkeys(offsets, error.args[0])
        else:
            refused = {(tp.topic, tp.partition): tp.error for tp in answer.topic_partitions if tp.error is not None}
    if refused:
        raise _refusal(cfg, group, offsets, refused, limit_seconds)


def _of_coordinator(cfg: KafkaConfig, ask: Callable[[AdminClient, float], _T], limit_seconds: float) -> _T:
    """Ask a group's coordinator until the limit, with a new client each time.

    A coordinator that moves, or that is chosen for the first time, is no answer yet; and a client that once failed to
    find it can wait out its whole limit. Asking again is safe: these requests read, or set absolute offsets.
    """
    deadline = time.monotonic() + limit_seconds
    while True:
        left = deadline - time.monotonic()
        try:
            return ask(kafka.admin(cfg), max(1.0, min(_COORDINATOR_TRY_SECONDS, left)))
        except KafkaException as error:
            if error.args[0].code() not in _NO_COORDINATOR_YET or time.monotonic() >= deadline:
                raise
        time.sleep(_LOOK_AGAIN_SECONDS)


def _position(topic: str, partition: int, to: Committed) -> TopicPartition:
    if to.metadata is None:  # the client takes no None for it
        return TopicPartition(topic, partition, to.offset)
    return TopicPartition(topic, partition, to.offset, metadata=to.metadata)


def _refusal(
    cfg: KafkaConfig,
    group: str,
    offsets: Mapping[tuple[str, int], Committed],
    refused: Mapping[tuple[str, int], KafkaError],
    limit_seconds: float,
) -> GroupNotEmpty | KafkaRefused:
    done = sorted(set(offsets) - set(refused))
    facts: dict[str, Any] = {
        "group": group,
        "refused": {f"{topic}:{p}": error.name() for (topic, p), error in sorted(refused.items())},
        "set": [f"{topic}:{p}" for topic, p in done],
    }
    if all(error.code() in _MEMBERS_THERE for error in refused.values()):
        members = describe_group(cfg, group, limit_seconds=limit_seconds).members
        names = ", ".join(map(str, members)) or "members that have left meanwhile"
        return GroupNotEmpty(
            f"group {group} is not empty: {names}",
            wanted="a group without members",
            todo="stop these workers (a killed one leaves when its session times out), then try again",
            members=[member.member_id for member in members],
            **facts,
        )
    listed = ", ".join(f"{where} {name}" for where, name in facts["refused"].items())
    return KafkaRefused(
        f"Kafka refused the offsets of group {group} for {listed}",
        todo=f"correct the cause and set all again; set already: {', '.join(facts['set']) or 'none'}",
        **facts,
    )


def _list_offsets(
    cfg: KafkaConfig, topic: str, partitions: Iterable[int], spec: OffsetSpec, limit_seconds: float
) -> dict[int, int]:
    """A partition whose leader was just chosen, or moves, refuses for a moment: it is asked again until the limit, by a
    new client, since one goes on asking with the leader epoch that it learned."""
    doing = f"read the watermarks of {topic}"
    wanted = {TopicPartition(topic, partition): spec for partition in partitions}
    deadline = time.monotonic() + limit_seconds
    with kafka_errors(doing, topic=topic):
        while True:
            client = kafka.admin(cfg)
            asked = client.list_offsets(
                wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=limit_seconds
            )
            try:
                return {tp.partition: int(result(future, doing, limit_seconds).offset) for tp, future in asked.items()}
            except KafkaException as error:
                if error.args[0].code() not in _LEADER_MOVES or time.monotonic() >= deadline:
                    raise
            time.sleep(_LOOK_AGAIN_SECONDS)


def result(future: Future[_T], doing: str, limit_seconds: float = LIMIT_SECONDS) -> _T:
    """What an admin request answered. Raises KafkaException as it is (inside ``kafka_errors``), WaitTimeout."""
    try:
        # The client's own limit comes first; this one is for a client that never answers.
        return future.result(limit_seconds + 5)
    except FutureTimeout as error:
        raise WaitTimeout(
            f"could not {doing} within {limit_seconds:.0f} s", todo="check that the broker is up, then try again"
        ) from error


def _hex(topic_id: Any) -> str:
    mask = (1 << 64) - 1
    high, low = topic_id.get_most_significant_bits() & mask, topic_id.get_least_significant_bits() & mask
    return f"{high:016x}{low:016x}"


def _word(enum: Any) -> str:
    return str(enum.name)

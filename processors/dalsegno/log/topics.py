"""The topics of a prefix as data, and the plan that brings a cluster there. Source: ``schemas/README.md``, "Topics".

A topic's partitions are fixed for life: the partition of a session follows from their number. So the events topic, once
made, says how many there are, and whatever is divided like it must have as many. Settings that drifted are refused by
name, because each guards a promise (a topic that is not compacted never erases; one that deletes loses history).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from dalsegno.errors import TopicDrift, TopicMissing, WaitTimeout
from dalsegno.log import admin, kafka
from dalsegno.log.kafka import KafkaConfig, kafka_errors

DEFAULT_PARTITIONS = 16
MAX_MESSAGE_BYTES = 1024 * 1024
EVENTS = "events"
BESIDE = "inbox"
"""A topic that is made with as many partitions as the events topic: it tells whether that one has grown since."""
_DAY_MS = 24 * 60 * 60 * 1000
_SPREAD_LIMIT_SECONDS = 30.0
_LOOK_AGAIN_SECONDS = 0.05

_COMPACT = {"cleanup.policy": "compact"}
_EVENTS_CONFIG = {
    **_COMPACT,
    "delete.retention.ms": str(7 * _DAY_MS),
    "max.compaction.lag.ms": str(7 * _DAY_MS),  # the promised time to erase
    "message.timestamp.type": "LogAppendTime",
    "max.message.bytes": str(MAX_MESSAGE_BYTES),
}
_KEPT_FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


class _Row(NamedTuple):
    name: str
    as_events: bool
    config: Mapping[str, str]


_TABLE = (
    _Row(EVENTS, True, _EVENTS_CONFIG),
    # By its time an answer is in time or too late: it must not be the sender's own clock.
    _Row(BESIDE, True, {**_COMPACT, "message.timestamp.type": "LogAppendTime"}),
    _Row("quarantine", True, {**_KEPT_FOR_EVER, "retention.ms": str(30 * _DAY_MS)}),
    _Row("schemas", False, _COMPACT),
    _Row("snapshots", False, _COMPACT),
    _Row("replays", False, _COMPACT),
    _Row("workers", False, _COMPACT),
    _Row("checkpoints", False, _COMPACT),
    _Row("control", False, {**_KEPT_FOR_EVER, "retention.ms": str(_DAY_MS)}),
    _Row("admin-audit", False, _KEPT_FOR_EVER),
)


def topic_name(prefix: str, name: str) -> str:
    return f"{prefix}.{name}"


def worker_group(prefix: str) -> str:
    """The consumer group of a prefix's workers: its commits say what was emitted."""
    return f"{prefix}.worker"


def projection_topic(prefix: str, projection: str, version: int) -> str:
    return f"{prefix}.projection.{projection}.v{version}"


@dataclass(frozen=True)
class TopicSpec:
    """A topic as it is wanted."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]


class Action(StrEnum):
    CREATE = "create"
    KEEP = "keep"
    ALTER = "alter"
    """Settings drifted; they can be set back."""
    REFUSE = "refuse"
    """The number of partitions differs, which cannot be set back."""


class Difference(NamedTuple):
    setting: str
    found: str
    wanted: str

    def __str__(self) -> str:
        return f"{self.setting} is {self.found}, wanted {self.wanted}"


@dataclass(frozen=True)
class PlannedTopic:
    spec: TopicSpec
    action: Action
    differences: tuple[Difference, ...] = field(default=())


def wanted_topics(
    prefix: str, *, partitions: int, brokers: int, projections: Iterable[tuple[str, int]] = ()
) -> tuple[TopicSpec, ...]:
    """The topics of a prefix, with three replicas where there are three brokers.

    ``projections``: name and version of each one that is public.
    """
    replication = 3 if brokers >= 3 else 1
    safety = {
        "min.insync.replicas": "2" if replication == 3 else "1",
        "unclean.leader.election.enable": "false",
    }
    named = [(topic_name(prefix, row.name), row.as_events, row.config) for row in _TABLE]
    named += [(projection_topic(prefix, name, version), True, _COMPACT) for name, version in projections]
    return tuple(
        TopicSpec(name, partitions if as_events else 1, replication, {**config, **safety})
        for name, as_events, config in named
    )


def plan(
    cfg: KafkaConfig, prefix: str, *, partitions: int | None = None, projections: Iterable[tuple[str, int]] = ()
) -> tuple[PlannedTopic, ...]:
    """What ``apply`` would do, topic by topic. Changes nothing.

    ``partitions``: the number that the caller insists on; None: what the events topic has, else the default.
    """
    client = kafka.admin(cfg)
    brokers = admin.cluster_facts(cfg).brokers
    events = topic_name(prefix, EVENTS)
    if partitions is None:
        there = admin.describe_topics(client, [events])
        partitions = there[events].partitions if there else DEFAULT_PARTITIONS
    specs = wanted_topics(prefix, partitions=partitions, brokers=brokers, projections=projections)
    found = admin.describe_topics(client, [spec.name for spec in specs])
    configs = _read_configs(client, found)
    return tuple(
        _compare(spec, found[spec.name], configs[spec.name])
        if spec.name in found
        else PlannedTopic(spec, Action.CREATE)
        for spec in specs
    )


def apply(
    cfg: KafkaConfig,
    prefix: str,
    *,
    partitions: int | None = None,
    projections: Iterable[tuple[str, int]] = (),
    alter: bool = False,
) -> tuple[PlannedTopic, ...]:
    """Create what is missing; with ``alter`` also set drifted settings back. The plan that was carried out.

    Nothing is changed if anything is refused. Returns when every topic has its leaders.
    Raises TopicDrift (naming found and wanted), BrokerUnavailable, WaitTimeout, KafkaRefused.
    """
    planned = plan(cfg, prefix, partitions=partitions, projections=projections)
    refused = [
        topic for topic in planned if topic.action is Action.REFUSE or (topic.action is Action.ALTER and not alter)
    ]
    if refused:
        raise _drift(refused)
    client = kafka.admin(cfg)
    _create(client, [topic.spec for topic in planned if topic.action is Action.CREATE])
    _alter(client, [topic for topic in planned if topic.action is Action.ALTER])
    return planned


def check(
    cfg: KafkaConfig, prefix: str, *, partitions: int | None = None, projections: Iterable[tuple[str, int]] = ()
) -> None:
    """Refuse to go on with topics that are not as they must be. Raises TopicMissing or TopicDrift, naming them all."""
    planned = plan(cfg, prefix, partitions=partitions, projections=projections)
    missing = [topic.spec.name for topic in planned if topic.action is Action.CREATE]
    if missing:
        raise TopicMissing(
            f"missing: {', '.join(missing)}",
            wanted=f"the topics of prefix {prefix}",
            todo="dalsegno topic apply, with the same settings (--profile, --prefix, --config, DALSEGNO_...)",
            topics=missing,
        )
    drifted = [topic for topic in planned if topic.action in (Action.ALTER, Action.REFUSE)]
    if drifted:
        raise _drift(drifted)


def message_limit(cfg: KafkaConfig, topic: str) -> int:
    """The size in bytes above which this topic refuses what a producer sends at once. Raises as ``check`` does."""
    return int(_read_configs(kafka.shared_admin(cfg), [topic])[topic]["max.message.bytes"])


def _compare(spec: TopicSpec, found: admin.TopicFacts, config: Mapping[str, str]) -> PlannedTopic:
    differences = []
    if found.partitions != spec.partitions:
        differences.append(Difference("partitions", str(found.partitions), str(spec.partitions)))
    wanted = dict(spec.config)
    if found.replication < 3:  # a topic made before the cluster grew cannot keep two replicas in sync
        wanted["min.insync.replicas"] = "1"
    for setting, value in sorted(wanted.items()):
        if _normal(config.get(setting)) != _normal(value):
            differences.append(Difference(setting, config.get(setting, "not set"), value))
    if found.partitions != spec.partitions:
        return PlannedTopic(spec, Action.REFUSE, tuple(differences))
    return PlannedTopic(spec, Action.ALTER if differences else Action.KEEP, tuple(differences))


def _normal(value: str | None) -> tuple[str, ...] | None:
    """Lists are equal in any order: ``compact,delete`` and ``delete,compact``."""
    return None if value is None else tuple(sorted(part.strip() for part in value.split(",")))


def _drift(topics: Iterable[PlannedTopic]) -> TopicDrift:
    topics = list(topics)
    told = "; ".join(f"{topic.spec.name}: {', '.join(map(str, topic.differences))}" for topic in topics)
    todo = "'dalsegno topic apply --alter' sets settings back"
    if any(topic.action is Action.REFUSE for topic in topics):
        todo = (
            "partitions cannot be set back: use the number that the events topic was made with (--partitions),"
            " or another --prefix"
        )
    return TopicDrift(
        told,
        todo=todo,
        topics={topic.spec.name: [difference._asdict() for difference in topic.differences] for topic in topics},
    )


def _read_configs(client: AdminClient, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    if not resources:
        return {}
    with kafka_errors("read the settings of topics"):
        asked = client.describe_configs(resources, request_timeout=admin.LIMIT_SECONDS)
        return {
            resource.name: {
                name: str(entry.value) for name, entry in admin.result(future, "read the settings of topics").items()
            }
            for resource, future in asked.items()
        }


def _create(client: AdminClient, specs: list[TopicSpec]) -> None:
    if not specs:
        return
    new = [NewTopic(each.name, each.partitions, each.replication, config=dict(each.config)) for each in specs]
    with kafka_errors("create topics"):
        asked = client.create_topics(new, request_timeout=admin.LIMIT_SECONDS)
        for future in asked.values():
            try:
                admin.result(future, "create topics")
            except KafkaException as error:
                # Another process applied the same plan a moment earlier; what it made is compared at the next check.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
    _wait_for_leaders(client, specs)


def _wait_for_leaders(client: AdminClient, specs: list[TopicSpec]) -> None:
    """Until then a producer's first record would be refused and a consumer told that there is no such topic."""

    def without_leader() -> list[str]:
        with kafka_errors("read the metadata of topics"):
            seen = client.list_topics(timeout=admin.LIMIT_SECONDS).topics
        return [
            spec.name
            for spec in specs
            if spec.name not in seen
            or len(seen[spec.name].partitions) < spec.partitions
            or any(partition.leader < 0 for partition in seen[spec.name].partitions.values())
        ]

    _wait_until_none(without_leader, "no leader after being created")


def _wait_until_none(waiting: Callable[[], list[str]], state: str) -> None:
    deadline = time.monotonic() + _SPREAD_LIMIT_SECONDS
    while time.monotonic() < deadline:
        if not waiting():
            return
        time.sleep(_LOOK_AGAIN_SECONDS)
    raise WaitTimeout(
        f"after {_SPREAD_LIMIT_SECONDS:.0f} s {', '.join(waiting())} still had {state}",
        todo="see the log of the broker, then 'dalsegno topic check'",
    )


def _alter(client: AdminClient, topics: list[PlannedTopic]) -> None:
    if not topics:
        return
    resources = [
        ConfigResource(
            ResourceType.TOPIC,
            topic.spec.name,
            incremental_configs=[
                ConfigEntry(difference.setting, difference.wanted, incremental_operation=AlterConfigOpType.SET)
                for difference in topic.differences
            ],
        )
        for topic in topics
    ]
    with kafka_errors("set the settings of topics"):
        for future in client.incremental_alter_configs(resources, request_timeout=admin.LIMIT_SECONDS).values():
            admin.result(future, "set the settings of topics")

    # The controller has answered, the brokers learn it a moment later.
    def drifted() -> list[str]:
        now = _read_configs(client, [topic.spec.name for topic in topics])
        return [
            topic.spec.name
            for topic in topics
            if any(
                _normal(now[topic.spec.name].get(each.setting)) != _normal(each.wanted) for each in topic.differences
            )
        ]

    _wait_until_none(drifted, "their old settings")

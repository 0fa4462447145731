"""What a partition goes on from when it is given to this worker.

Protocol *assign*, per partition; 1 to 3 in the rebalance callback, the rest on a thread of the house:

1. the group's commit was read with the default isolation: while a transaction is pending this blocks, and only that
   makes a stopped and continued predecessor harmless;
2. ``choose`` saw the commit, every local folder with its own cursor and the catalogue of snapshots;
3. for somebody's reset, the base's cursor was committed in the new generation, synchronously: a crash from here on
   finds the same base;
4. the chosen shard stands in its folder: kept, restored (``dalsegno.snapshots.restore``) or made empty;
5. it was opened and its cursor checked against the log: cluster, topic, partitions, start, end, last record;
6. where it was the last to emit (the commit names it), the pointer is on it; else it is a build, which ends with
   ``dalsegno.streams.switch``;
7. folders that are neither current nor of this generation are deleted, and reading begins at the shard's cursor.

A crash after 3: the same base is chosen again. After 4: the folder is found and kept. Until 7 nothing is read.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import partial

from confluent_kafka import Consumer, TopicPartition

from dalsegno.errors import OtherHistory, StoreDamaged, TopicDrift
from dalsegno.log import admin
from dalsegno.log.kafka import kafka_errors, translate
from dalsegno.model.choose import Choice, LocalShard, ShardSnapshot, choose
from dalsegno.model.cursor import Commit, check, format_metadata, read_commit
from dalsegno.state.generations import PartitionFolder
from dalsegno.state.slot import Slot
from dalsegno.streams.config import WorkerConfig
from dalsegno.streams.house import House
from dalsegno.streams.opening import Opener, Plan, Topic
from dalsegno.streams.partition import Partition
from dalsegno.streams.snapshotter import Snapshotter

log = logging.getLogger("dalsegno.streams")


class Assignment:
    """Brings partitions from "given" to "reading"."""

    def __init__(
        self,
        config: WorkerConfig,
        slot: Slot,
        house: House,
        snapshotter: Snapshotter,
        opener: Opener,
    ) -> None:
        self._config = config
        self._slot = slot
        self._house = house
        self._snapshotter = snapshotter
        self._opener = opener
        self._made_with = facts = admin.topic_facts(config.kafka, config.names.events)
        self._topic_id = facts.topic_id

    # --- called by the reader --------------------------------------------------------------------------------------

    def make(self, number: int) -> Partition:
        return Partition(number, PartitionFolder(self._slot.folder, self._topic_id, number), self._config.fault)

    def revoked(self, partition: Partition) -> None:
        """Close the shard as soon as nobody works on it; the next assignment of this partition waits for that."""
        self._house.give(partition.number, partition.close)

    def assigned(self, consumer: Consumer, partitions: Sequence[Partition], patience_seconds: float) -> None:
        """Steps 1 to 3; also for a partition whose assignment failed before. Never raises: a partition turns red.
        ``patience_seconds``: how long all of them together wait for an earlier life to end."""
        try:
            commits = self._read_commits(consumer, partitions)
            topic = self._look_at_topic()  # after the commits, so that none of them can be ahead of its watermarks
            snapshots = self._snapshotter.catalogue(topic.identity)
        except Exception as error:
            for partition in partitions:
                partition.stop(error)
            return
        deadline = time.monotonic() + patience_seconds
        for partition in partitions:
            try:
                # An earlier life of this partition may still be closing its shard.
                self._house.wait(partition.number, max(0.0, deadline - time.monotonic()))
                plan = self._plan(partition, topic, commits[partition.number], snapshots)
                if plan.choice.commit_first is not None:
                    self._commit_first(consumer, partition, plan.choice.commit_first)
                    plan = plan._replace(commit=plan.choice.commit_first)
            except Exception as error:
                partition.stop(error)
                continue
            again = partial(self._choose_again, partition)
            self._house.give(partition.number, partial(self._opener.open, partition, plan, again))

    # --- steps 1 to 3 ----------------------------------------------------------------------------------------------

    def _look_at_topic(self) -> Topic:
        cfg, name = self._config.kafka, self._config.names.events
        cluster = admin.cluster_facts(cfg)
        facts = admin.topic_facts(cfg, name)
        _refuse_growth(name, self._made_with, facts)
        self._topic_id = facts.topic_id
        return Topic(cluster.cluster_id, facts.topic_id, facts.partitions, admin.watermarks(cfg, name))

    def _read_commits(self, consumer: Consumer, partitions: Sequence[Partition]) -> dict[int, Commit | None]:
        wanted = [TopicPartition(self._config.names.events, partition.number) for partition in partitions]
        doing, group = "read the committed offsets", self._config.names.group
        with kafka_errors(doing, group=group):
            found = consumer.committed(wanted, timeout=self._config.commit_read_seconds)
        for tp in found:
            if tp.error is not None:  # its offset then looks like "no commit", which is another thing altogether
                raise translate(tp.error, doing, group=group, partition=tp.partition)
        self._config.fault("assign.1")
        return {tp.partition: read_commit(tp.offset, tp.metadata) for tp in found}

    def _plan(
        self, partition: Partition, topic: Topic, commit: Commit | None, snapshots: Sequence[ShardSnapshot]
    ) -> Plan:
        partition.folder = PartitionFolder(self._slot.folder, topic.topic_id, partition.number)
        partition.folder.sweep()
        here = tuple(self._local_shards(partition.folder))
        _refuse_commit_ahead(partition.number, commit, topic)
        if commit is None and not here:
            self._refuse_other_history(partition, topic)
        choice = self._choose(partition, topic, commit, here, snapshots, {})
        self._config.fault("assign.2")
        log.info(
            "state_chosen",
            extra={
                "partition": partition.number,
                "action": choice.action.value,
                "generation": choice.generation,
                "base": choice.base,
                "offset": choice.next_offset,
                "because": choice.because,
            },
        )
        return Plan(topic, commit, here, snapshots, choice)

    def _choose(
        self,
        partition: Partition,
        topic: Topic,
        commit: Commit | None,
        here: Sequence[LocalShard],
        snapshots: Sequence[ShardSnapshot],
        bad: Mapping[str, str],
    ) -> Choice:
        mine = [
            entry._replace(usable=False, reason=bad[entry.id]) if entry.id in bad else entry
            for entry in snapshots
            if entry.partition == partition.number
        ]
        return choose(
            commit,
            here,
            mine,
            first_generation=topic.topic_id,
            new_generation=uuid.uuid4().hex,
            max_behind=self._config.max_behind_offsets,
            log_start=topic.watermarks[partition.number].low,
        )

    def _local_shards(self, folder: PartitionFolder) -> list[LocalShard]:
        current = folder.current()
        found = []
        for name in folder.folders():
            try:
                marks = self._snapshotter.states.marks(folder.path / name)
            except StoreDamaged as error:
                log.error("shard_damaged", extra={"folder": str(folder.path / name), "error": str(error)})
                continue
            offset = marks.cursor.next_offset
            found.append(LocalShard(name, marks.generation, marks.base, offset, name == current))
        return found

    def _refuse_other_history(self, partition: Partition, topic: Topic) -> None:
        """Without a commit and without a shard of this topic this looks like a first start. If the slot holds this
        partition's shard of another topic or cluster, it is none: an operator decides. Raises OtherHistory."""
        for other in sorted(self._slot.folder.iterdir()):
            folder = PartitionFolder(self._slot.folder, other.name, partition.number)
            if other.name == topic.topic_id or not folder.path.is_dir():
                continue
            name = folder.current()
            if name is not None:
                check(self._snapshotter.states.marks(folder.path / name).cursor, topic.facts(partition.number))

    def _commit_first(self, consumer: Consumer, partition: Partition, commit: Commit) -> None:
        metadata = format_metadata(str(commit.generation), commit.base)
        place = TopicPartition(self._config.names.events, partition.number, commit.offset, metadata=metadata)
        with kafka_errors("commit the base of a new generation", partition=partition.number):
            answer = consumer.commit(offsets=[place], asynchronous=False)
            for tp in answer or []:
                if tp.error is not None:
                    raise translate(tp.error, "commit the base of a new generation", partition=partition.number)
        self._config.fault("assign.3")

    def _choose_again(self, partition: Partition, plan: Plan, bad: Mapping[str, str]) -> Choice:
        """Without snapshots that turned out damaged; what was committed first is the commit by now."""
        catalogue = self._snapshotter.catalogue(plan.topic.identity)
        return self._choose(partition, plan.topic, plan.commit, plan.locals, catalogue, bad)


def _refuse_growth(name: str, then: admin.TopicFacts, now: admin.TopicFacts) -> None:
    """A topic that grew under this worker: whoever goes by the new number cuts sessions in two. What is read already
    goes on, since the writers that run stay where the first number puts them. Raises TopicDrift."""
    if now.topic_id == then.topic_id and now.partitions != then.partitions:
        raise TopicDrift(
            f"{name} has {now.partitions} partitions, and had {then.partitions} when this worker started",
            wanted="the number that it was made with: a session's partition follows from it",
            todo="partitions cannot be taken back: make the topics of another prefix and import into them",
            topic=name,
            partitions=now.partitions,
            made_with=then.partitions,
        )


def _refuse_commit_ahead(number: int, commit: Commit | None, topic: Topic) -> None:
    """A commit of ours beyond the log's end: rows were emitted for records that this log no longer has, and the emitter
    would wait for them for ever. (Somebody's reset may stand anywhere.) Raises OtherHistory."""
    high = topic.watermarks[number].high
    if commit is None or commit.generation is None or commit.offset <= high:
        return
    raise OtherHistory(
        f"partition {number}: the group has committed offset {commit.offset}, the log ends at {high}",
        wanted="the log that was read until that commit",
        todo="check which cluster and topic this worker is configured for; to rebuild from this log, "
        "run 'dalsegno replay run --from earliest'",
        difference="end",
        partition=number,
        state=commit.offset,
        log=high,
    )

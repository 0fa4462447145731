"""What a partition goes on from when it is given to this worker.

Protocol *assign*, per partition; 1 to 3 in the rebalance callback, the rest on a thread of the house:

1. the group's commit was read with the default isolation: while a transaction is pending this blocks, and only that
   makes a stopped and continued predecessor harmless;
2. ``choose`` saw the commit, every local folder with its own cursor and the catalogue of snapshots;
3. for somebody's reset, the base's cursor was committed in the new generation, synchronously: a crash from here on
   finds the same base;
4. the chosen shard stands in its folder: kept, restored (``dalsegno.snapshots.restore``) or made empty;
5. it was opened and its cursor checked against the log: cluster, topic, partitions, start, end, last record;
6. where it goes on with what is read here, the pointer is on it; else it is a build beside, which ends with
   ``dalsegno.streams.switch``;
7. folders that are neither current nor of this generation are deleted, and reading begins at the shard's cursor.

A crash after 3: the same base is chosen again. After 4: the folder is found and kept. Until 7 nothing is read.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from dalsegno.errors import DalsegnoError, StoreDamaged
from dalsegno.log import admin
from dalsegno.log.kafka import kafka_errors, translate
from dalsegno.log.reader import read_range
from dalsegno.model.choose import Action, Choice, LocalShard, ShardSnapshot, choose
from dalsegno.model.cursor import Commit, Cursor, FoundRecord, LogFacts, check, format_metadata, read_commit
from dalsegno.projections.base import Projection
from dalsegno.snapshots.catalog import TopicIdentity
from dalsegno.snapshots.restore import restore_or_older
from dalsegno.state.generations import PartitionFolder
from dalsegno.state.layout import ShardIdentity
from dalsegno.state.rocks import RocksStore
from dalsegno.state.shard import Shard
from dalsegno.state.slot import Slot
from dalsegno.streams.config import WorkerConfig
from dalsegno.streams.house import House
from dalsegno.streams.partition import Partition
from dalsegno.streams.reader import LogConsumer
from dalsegno.streams.schemas import KnownSchemas
from dalsegno.streams.snapshotter import Snapshotter
from dalsegno.streams.switch import Switch

log = logging.getLogger("dalsegno.streams")

LAST_RECORD_SECONDS = 30.0


class Topic(NamedTuple):
    """The events topic as the broker describes it at an assignment."""

    cluster_id: str
    topic_id: str
    partitions: int
    watermarks: Mapping[int, admin.Watermarks]

    @property
    def identity(self) -> TopicIdentity:
        return TopicIdentity(self.cluster_id, self.topic_id, self.partitions)

    def facts(self, partition: int) -> LogFacts:
        low, high = self.watermarks[partition]
        return LogFacts(self.cluster_id, self.topic_id, partition, self.partitions, low, high)


class Plan(NamedTuple):
    """Everything that step 2 looked at and decided, for one partition."""

    topic: Topic
    commit: Commit | None
    locals: tuple[LocalShard, ...]
    snapshots: Sequence[ShardSnapshot]
    choice: Choice


class Assignment:
    """Brings partitions from "given" to "reading"."""

    def __init__(
        self,
        config: WorkerConfig,
        slot: Slot,
        house: House,
        schemas: KnownSchemas,
        projections: Sequence[Projection[Any]],
        snapshotter: Snapshotter,
        switch: Switch,
        reader: Callable[[], LogConsumer],
    ) -> None:
        self._config = config
        self._slot = slot
        self._house = house
        self._schemas = schemas
        self._projections = projections
        self._snapshotter = snapshotter
        self._switch = switch
        self._reader = reader
        self._topic_id = admin.topic_facts(config.kafka, config.names.events).topic_id

    # --- called by the reader --------------------------------------------------------------------------------------

    def make(self, number: int) -> Partition:
        return Partition(number, PartitionFolder(self._slot.folder, self._topic_id, number), self._config.fault)

    def revoked(self, partition: Partition) -> None:
        """Close the shard as soon as nobody works on it; the next assignment of this partition waits for that."""
        self._house.give(partition.number, partition.close)

    def assigned(self, consumer: Consumer, partitions: Sequence[Partition]) -> None:
        """Steps 1 to 3; also for a partition whose assignment failed before. Never raises: a partition turns red."""
        try:
            topic = self._look_at_topic()
            commits = self._read_commits(consumer, partitions)
            snapshots = self._snapshotter.catalogue(topic.identity)
        except DalsegnoError as error:
            for partition in partitions:
                self._stop(partition, error)
            return
        for partition in partitions:
            try:
                plan = self._plan(partition, topic, commits[partition.number], snapshots)
                if plan.choice.commit_first is not None:
                    self._commit_first(consumer, partition, plan.choice.commit_first)
                    plan = plan._replace(commit=plan.choice.commit_first)
            except Exception as error:
                self._stop(partition, error)
                continue
            self._house.give(partition.number, partial(self._go_on, partition, plan))

    # --- steps 1 to 3 ----------------------------------------------------------------------------------------------

    def _look_at_topic(self) -> Topic:
        cfg, name = self._config.kafka, self._config.names.events
        cluster = admin.cluster_facts(cfg)
        facts = admin.topic_facts(cfg, name)
        self._topic_id = facts.topic_id
        return Topic(cluster.cluster_id, facts.topic_id, facts.partitions, admin.watermarks(cfg, name))

    def _read_commits(self, consumer: Consumer, partitions: Sequence[Partition]) -> dict[int, Commit | None]:
        wanted = [TopicPartition(self._config.names.events, partition.number) for partition in partitions]
        with kafka_errors("read the committed offsets", group=self._config.names.group):
            found = consumer.committed(wanted, timeout=self._config.commit_read_seconds)
        self._config.fault("assign.1")
        return {tp.partition: read_commit(tp.offset, tp.metadata) for tp in found}

    def _plan(
        self, partition: Partition, topic: Topic, commit: Commit | None, snapshots: Sequence[ShardSnapshot]
    ) -> Plan:
        self._house.wait(partition.number)  # an earlier life of this partition may still be closing its shard
        partition.folder = PartitionFolder(self._slot.folder, topic.topic_id, partition.number)
        partition.folder.sweep()
        here = tuple(self._local_shards(partition.folder))
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

    # --- steps 4 to 7, on a thread of the house --------------------------------------------------------------------

    def _go_on(self, partition: Partition, plan: Plan) -> None:
        shard: Shard | None = None
        try:
            if partition.closing:
                return
            choice, name = self._put_in_place(partition, plan)
            self._config.fault("assign.4")
            shard = self._open(partition.folder.path / name, plan.topic, partition.number, choice)
            self._check_history(shard.cursor, plan.topic.facts(partition.number), choice.hole_to)
            self._step_over_hole(shard, choice)
            self._config.fault("assign.5")
            with partition.lock:
                if partition.closing:
                    shard.close()
                    return
                self._install(partition, plan, choice, name, shard)
            shard = None
            self._delete_strangers(partition, choice)
            self._config.fault("assign.7")
        except Exception as error:
            if shard is not None:
                shard.close()
            self._stop(partition, error)
            return
        self._reader().release(partition)
        self._switch.try_at(partition)

    def _put_in_place(self, partition: Partition, plan: Plan) -> tuple[Choice, str]:
        """Step 4. The choice that holds (a damaged snapshot gives way to an older one), and the folder's name."""
        folder = partition.folder
        restored: list[str] = []

        def restore_one(choice: Choice) -> None:
            assert choice.snapshot is not None
            name = folder.next_name(choice.generation)
            folder.path.mkdir(parents=True, exist_ok=True)
            self._snapshotter.restore(choice.snapshot.id, folder.path / name, choice.generation, choice.base)
            restored.append(name)

        def again(bad: dict[str, str]) -> Choice:
            catalogue = self._snapshotter.catalogue(plan.topic.identity)
            return self._choose(partition, plan.topic, plan.commit, plan.locals, catalogue, bad)

        choice = restore_or_older(plan.choice, again, restore_one)
        if choice.action is Action.RESTORE:
            return choice, restored[-1]
        if choice.action is Action.KEEP:
            return choice, str(choice.folder)
        name = folder.next_name(choice.generation)
        part = folder.temporary(name)
        self._open(part, plan.topic, partition.number, choice).close()
        folder.settle(name)
        return choice, name

    def _open(self, folder: Path, topic: Topic, number: int, choice: Choice) -> Shard:
        identity = ShardIdentity(
            topic=self._config.names.events,
            cluster_id=topic.cluster_id,
            topic_id=topic.topic_id,
            partition=number,
            partitions=topic.partitions,
            generation=choice.generation,
            base=choice.base,
        )
        store = RocksStore.open(folder)
        try:
            return Shard.open(store, identity=identity, schemas=self._schemas.known, projections=self._projections)
        except BaseException:
            store.close()
            raise

    def _check_history(self, cursor: Cursor, facts: LogFacts, hole_to: int | None) -> None:
        """Step 5: first what the broker says, then the last applied record itself, if the log still has it.

        ``hole_to``: up to there an operator accepted that records are gone, so a log that starts there is no surprise.
        """
        if hole_to is not None and cursor.next_offset < facts.low <= hole_to:
            facts = facts._replace(low=cursor.next_offset)
        check(cursor, facts)
        last = cursor.last_offset
        if last is None or last < facts.low:
            return
        batches = read_range(
            self._config.kafka, self._config.names.events, facts.partition, last, last + 1, batch=1,
            stall_seconds=LAST_RECORD_SECONDS,
        )  # fmt: skip
        for batch in batches:
            for record in batch.records:
                if record.offset == last:
                    check(cursor, facts._replace(last=FoundRecord(record.key, record.leader_epoch)))

    def _step_over_hole(self, shard: Shard, choice: Choice) -> None:
        """What an operator accepted as lost is stepped over by an empty batch."""
        cursor = shard.cursor.next_offset
        if choice.hole_to is not None and choice.hole_to > cursor:
            log.warning("hole_accepted", extra={"offset": cursor, "next_offset": choice.hole_to})
            shard.apply(choice.generation, cursor, choice.hole_to, [])

    def _install(self, partition: Partition, plan: Plan, choice: Choice, name: str, shard: Shard) -> None:
        """Step 6: what the shard is to this worker: what is read, or a build beside it."""
        folder, facts, commit = partition.folder, plan.topic.facts(partition.number), plan.commit
        current = folder.current()
        ours = commit is None or commit.generation == choice.generation
        goes_on = current == name or (current is None and ours and self._is_whole(partition.number, plan, choice))
        old = max((shard.next_offset for shard in plan.locals if shard.current), default=0)
        emitted = commit.offset if commit is not None and commit.generation == choice.generation else 0
        partition.shard = shard
        partition.name = name
        partition.generation, partition.base = choice.generation, choice.base
        partition.committed = commit
        partition.end = facts.high
        partition.opened_at = shard.cursor.next_offset
        partition.building = not goes_on
        partition.bound = emitted if goes_on else max(old, facts.high)
        if goes_on and current is None:
            folder.point_to(name)
        partition.end_at_assignment = facts.high
        partition.snapshot_missing = not any(
            entry.partition == partition.number and entry.generation == choice.generation and entry.usable
            for entry in plan.snapshots
        )
        self._config.fault("assign.6")

    def _is_whole(self, partition: int, plan: Plan, choice: Choice) -> bool:
        """Whether the shard, with its outbox, is all that its generation ever emitted, so that it can go on alone.

        A snapshot of the generation itself is (a build is never snapshotted before its switch), and so is an empty
        shard of the first generation: its outbox will name every key. Everything else must be compared with what the
        topics hold, and so must a first generation whose topics are not empty (its commits were lost).
        """
        if choice.action is Action.RESTORE:
            return (
                plan.commit is not None
                and choice.snapshot is not None
                and (choice.snapshot.generation == choice.generation)
            )
        if choice.action is Action.EMPTY and choice.generation == plan.topic.topic_id:
            return plan.commit is not None or self._switch.nothing_was_emitted(partition)
        return False

    def _delete_strangers(self, partition: Partition, choice: Choice) -> None:
        current = partition.folder.current()
        for name in choice.delete:
            if name not in (current, partition.name):
                partition.folder.delete(name)
                log.info("folder_deleted", extra={"partition": partition.number, "folder": name})

    def _stop(self, partition: Partition, error: Exception) -> None:
        partition.stop(error)
        log.error(
            "partition_stopped",
            extra={"partition": partition.number, "error": str(error), "failures": partition.failures},
            exc_info=not isinstance(error, DalsegnoError),
        )

"""Bringing a partition from what was chosen for it to reading: steps 4 to 7 of the protocol *assign*.

The protocol stands in ``dalsegno.streams.assignment``. All of this runs on a thread of the house, so that a long
restore keeps nobody in the rebalance callback.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dalsegno.log import admin
from dalsegno.log.reader import read_range
from dalsegno.model.choose import Action, Choice, LocalShard, ShardSnapshot
from dalsegno.model.cursor import Commit, Cursor, FoundRecord, LogFacts, check
from dalsegno.projections.base import Projection
from dalsegno.snapshots.catalog import TopicIdentity
from dalsegno.snapshots.restore import restore_or_older
from dalsegno.state.layout import ShardIdentity
from dalsegno.state.rocks import RocksStore
from dalsegno.state.shard import Shard
from dalsegno.streams.config import WorkerConfig
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


ChooseAgain = Callable[[Plan, Mapping[str, str]], Choice]


class Opener:
    """Carries out plans."""

    def __init__(
        self,
        config: WorkerConfig,
        schemas: KnownSchemas,
        projections: Sequence[Projection[Any]],
        snapshotter: Snapshotter,
        switch: Switch,
        reader: Callable[[], LogConsumer],
    ) -> None:
        self._config = config
        self._schemas = schemas
        self._projections = projections
        self._snapshotter = snapshotter
        self._switch = switch
        self._reader = reader

    def open(self, partition: Partition, plan: Plan, choose_again: ChooseAgain) -> None:
        """Steps 4 to 7. Never raises: a partition that cannot be opened turns red."""
        shard: Shard | None = None
        try:
            if partition.closing:
                return
            choice, name = self._put_in_place(partition, plan, choose_again)
            self._config.fault("assign.4")
            shard = self._open_shard(partition.folder.path / name, plan.topic, partition.number, choice)
            self._check_history(shard.cursor, plan.topic.facts(partition.number), choice.hole_to)
            step_over_hole(shard, choice.hole_to, plan.topic.facts(partition.number).low)
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
            partition.stop(error)
            return
        self._reader().release(partition)
        self._switch.try_at(partition)

    def _put_in_place(self, partition: Partition, plan: Plan, choose_again: ChooseAgain) -> tuple[Choice, str]:
        """Step 4. The choice that holds (a damaged snapshot gives way to an older one), and the folder's name."""
        folder = partition.folder
        restored: list[str] = []

        def restore_one(choice: Choice) -> None:
            assert choice.snapshot is not None
            name = folder.next_name(choice.generation)
            folder.path.mkdir(parents=True, exist_ok=True)
            self._snapshotter.restore(choice.snapshot.id, folder.path / name, choice.generation, choice.base)
            restored.append(name)

        choice = restore_or_older(plan.choice, lambda bad: choose_again(plan, bad), restore_one)
        if choice.action is Action.RESTORE:
            return choice, restored[-1]
        if choice.action is Action.KEEP:
            return choice, str(choice.folder)
        name = folder.next_name(choice.generation)
        part = folder.temporary(name)
        self._open_shard(part, plan.topic, partition.number, choice).close()
        folder.settle(name)
        return choice, name

    def _open_shard(self, folder: Path, topic: Topic, number: int, choice: Choice) -> Shard:
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

    def _install(self, partition: Partition, plan: Plan, choice: Choice, name: str, shard: Shard) -> None:
        """Step 6: what the shard is to this worker: what is read, or a build beside it.

        It goes on alone only if it was the last to emit, or if nothing was emitted ever: then its outbox holds all that
        the topics lack. Any other copy, also an older one of the same generation, must be compared with the topics when
        it has caught up: they may hold rows that it never had, of records that were displaced, amended or compacted
        away before it came to read them.
        """
        folder, facts, commit = partition.folder, plan.topic.facts(partition.number), plan.commit
        current = folder.current()
        spoke_last = commit is not None and commit.emitter == shard.emitter
        goes_on = spoke_last or (
            current in (None, name)
            and choice.action is not Action.RESTORE
            and self._switch.nothing_was_emitted(partition.number)
        )
        old = max((shard.next_offset for shard in plan.locals if shard.current), default=0)
        emitted = commit.offset if commit is not None and commit.generation == choice.generation else 0
        partition.shard = shard
        partition.name = name
        partition.generation, partition.base = choice.generation, choice.base
        partition.emitter = shard.emitter
        partition.committed = commit
        partition.end = facts.high
        partition.opened_at = shard.cursor.next_offset
        partition.building = not goes_on
        partition.bound = emitted if goes_on else max(old, facts.high, emitted)
        kept = max((each.next_offset for each in plan.snapshots if each.partition == partition.number), default=0)
        partition.reported_to = emitted if goes_on else max(old, emitted, min(kept, facts.high))
        if goes_on and current != name:
            folder.point_to(name)
        partition.end_at_assignment = facts.high
        partition.snapshot_missing = not any(
            entry.partition == partition.number and entry.generation == choice.generation and entry.usable
            for entry in plan.snapshots
        )
        self._config.fault("assign.6")

    def _delete_strangers(self, partition: Partition, choice: Choice) -> None:
        current = partition.folder.current()
        for name in choice.delete:
            if name not in (current, partition.name):
                partition.folder.delete(name)
                log.info("folder_deleted", extra={"partition": partition.number, "folder": name})


def step_over_hole(shard: Shard, hole_to: int | None, log_start: int) -> None:
    """What an operator accepted as lost is stepped over by an empty batch; never a record that the log still has,
    whatever the commit says that was accepted."""
    cursor = shard.cursor.next_offset
    end = min(hole_to or 0, log_start)
    if end > cursor:
        log.warning("hole_accepted", extra={"offset": cursor, "next_offset": end})
        shard.apply(shard.generation, cursor, end, [])

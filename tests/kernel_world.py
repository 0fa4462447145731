"""Workers, a group's commits, projection topics and snapshots in one process, around the product's own kernel.

What decides and what keeps state is the product's: ``choose``, ``plan``, ``check``, ``Shard``, the outbox and the
differences of a switch. Played here is what Kafka and processes do: a group hands partitions out and takes them away,
commits and rows become visible together, a worker dies between two steps, one that was put out goes on folding.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from dalsegno.errors import Usage
from dalsegno.log.record import LogRecord
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.choose import Action, LocalShard, ShardSnapshot, choose
from dalsegno.model.cursor import Commit, FoundRecord, LogFacts, check, format_metadata, read_commit
from dalsegno.model.ids import Offset
from dalsegno.model.lifecycle import Verdict
from dalsegno.model.records import Event
from dalsegno.projections.base import ALL, Projection, Rows
from dalsegno.projections.registry import built_in
from dalsegno.replay.plan import PartitionWorld, plan
from dalsegno.replay.plan import World as PlanWorld
from dalsegno.replay.target import Target
from dalsegno.state.differences import add_differences, clear_all, note_emitted
from dalsegno.state.kv import KeyValue
from dalsegno.state.layout import ShardIdentity
from dalsegno.state.memory import MemoryStore
from dalsegno.state.rebuild import adopt, read_marks
from dalsegno.state.rocks import RocksStore
from dalsegno.state.shard import Shard
from kernel_log import LATE_SCHEMAS, Log
from shard_lab import FEW_EVENTS

CLUSTER, TOPIC, TOPIC_ID = "cluster", "test.events", "0" * 32


class Crash(Exception):
    """A worker died between two steps."""


# --- a projection whose fold and shape change -------------------------------------------------------------------------


class TrailRow(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    newest_last: list[str] = msgspec.field(default_factory=list)


class TrailRowNewestFirst(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    newest_first: list[str] = msgspec.field(default_factory=list)
    seen: bool = True


class Trail(Projection[TrailRow]):
    """The last three types of a session, the newest last."""

    name = "trail"
    version = 1
    handles = ALL
    row = TrailRow

    def fold(self, rows: Rows[TrailRow], event: Event, _verdict: Verdict) -> None:
        row = rows.get() or TrailRow()
        row.newest_last = [*row.newest_last, event.type][-3:]
        rows.put((), row)


class TrailNewestFirst(Projection[TrailRowNewestFirst]):
    """The same in the other order, under another name of the field, in another shape."""

    name = "trail"
    version = 2
    handles = ALL
    row = TrailRowNewestFirst

    def fold(self, rows: Rows[TrailRowNewestFirst], event: Event, _verdict: Verdict) -> None:
        row = rows.get() or TrailRowNewestFirst()
        row.newest_first = [event.type, *row.newest_first][:3]
        rows.put((), row)


TRAILS: dict[int, type[Projection[Any]]] = {1: Trail, 2: TrailNewestFirst}


def projections_of(version: int) -> list[Projection[Any]]:
    return [*built_in(), TRAILS[version]()]


# --- stores -----------------------------------------------------------------------------------------------------------


class Stores:
    """Stores by name, in memory or on disk."""

    def __init__(self, root: Path, *, disk: bool) -> None:
        self._root, self._disk = root, disk
        self._memory: dict[str, MemoryStore] = {}

    def open(self, name: str) -> KeyValue:
        if self._disk:
            return RocksStore.open(self._root / name)
        return self._memory.setdefault(name, MemoryStore())

    def checkpoint(self, kv: KeyValue, name: str) -> None:
        kv.checkpoint(self._root / name)

    def restore(self, checkpoint: str, name: str) -> None:
        if self._disk:
            shutil.copytree(self._root / checkpoint, self._root / name)
        else:
            self._memory[name] = MemoryStore.load(self._root / checkpoint)

    def delete(self, name: str) -> None:
        self._memory.pop(name, None)
        shutil.rmtree(self._root / name, ignore_errors=True)


# --- workers ----------------------------------------------------------------------------------------------------------


@dataclass
class Holding:
    """A partition as a worker has it open."""

    folder: str
    shard: Shard
    generation: str
    base: str
    bound: int
    building: bool
    committed: Commit | None
    opened_at: int
    in_group: bool = True
    draining: bool = False

    @property
    def cursor(self) -> int:
        return self.shard.cursor.next_offset


@dataclass
class Worker:
    name: str
    schemas: SchemaSet
    folders: dict[int, list[str]] = field(default_factory=dict)
    current: dict[int, str] = field(default_factory=dict)
    open: dict[int, Holding] = field(default_factory=dict)


def stored(commit: Commit) -> Commit:
    """The commit as the group gives it back."""
    found = read_commit(commit.offset, format_metadata(str(commit.generation), commit.base, commit.emitter))
    assert found is not None
    return found


class World:
    """``step`` names every point at which a worker may die; ``die_at`` is the next one that does."""

    def __init__(self, root: Path, *, partitions: int, workers: int, disk: bool) -> None:
        self.stores = Stores(root, disk=disk)
        self.partitions = partitions
        self.logs = [Log(partition, partitions) for partition in range(partitions)]
        self.workers = [Worker(f"w{n}", SchemaSet.load()) for n in range(workers)]
        self.owner: dict[int, Worker] = {}
        self.commits: dict[int, Commit] = {}
        self.topics: dict[tuple[int, str, int], dict[bytes, bytes]] = {}
        self.spoken: set[int] = set()
        self.snapshots: list[ShardSnapshot] = []
        self.trail = 1
        self.published = False
        self.die_at: str | None = None
        self._numbers = iter(range(10**9))

    def step(self, name: str) -> None:
        if self.die_at == name:
            self.die_at = None
            raise Crash(name)

    def fresh(self, kind: str) -> str:
        return f"{kind}{next(self._numbers)}"

    # --- the group ----------------------------------------------------------------------------------------------------

    def assign(self, partition: int, worker: Worker, *, linger: bool = False, max_behind: int = 0) -> None:
        """Give the partition to a worker. ``linger``: the one that had it does not notice, and goes on folding."""
        before = self.owner.pop(partition, None)
        if before is not None and before is not worker and linger:
            before.open[partition].in_group = False
        elif before is not None:
            self.close(before, partition)
        self.close(worker, partition)
        if self.published:
            self.learn(worker)
        commit = self.commits.get(partition)
        here = [self._local(worker, partition, name) for name in worker.folders.get(partition, [])]
        mine = [entry for entry in self.snapshots if entry.partition == partition]
        choice = choose(commit, here, mine, TOPIC_ID, self.fresh("foreign"), max_behind)
        if choice.commit_first is not None:
            commit = self.commits[partition] = stored(choice.commit_first)
            self.step("assign.3")
        if choice.action is Action.KEEP:
            assert choice.folder is not None
            folder = choice.folder
        else:
            folder = self.fresh(f"{worker.name}.")
            if choice.snapshot is not None:
                self.stores.restore(choice.snapshot.id, folder)
                kv = self.stores.open(folder)
                adopt(kv, folder, choice.generation, choice.base)
                kv.close()
            else:
                self._open(worker, partition, folder, choice.generation, choice.base).close()
            worker.folders.setdefault(partition, []).append(folder)
        self.step("assign.4")
        shard = self._open(worker, partition, folder, choice.generation, choice.base)
        self._check_history(partition, shard)
        self._install(worker, partition, folder, shard, commit, here, choice)
        for name in choice.delete:
            if name not in (worker.current.get(partition), folder):
                worker.folders[partition].remove(name)
                self.stores.delete(name)
        self.owner[partition] = worker
        self.switch(worker, partition)

    def close(self, worker: Worker, partition: int) -> None:
        holding = worker.open.pop(partition, None)
        if holding is not None:
            holding.shard.close()

    def open_by(self, worker: Worker, partition: int = 0) -> Holding:
        return worker.open[partition]

    def kill(self, worker: Worker) -> None:
        """The worker is gone, and begins again when a partition is given to it."""
        for partition in list(worker.open):
            self.close(worker, partition)
        self.owner = {partition: owner for partition, owner in self.owner.items() if owner is not worker}
        worker.schemas = SchemaSet.load()

    def stop_all(self) -> None:
        for worker in self.workers:
            self.kill(worker)

    def learn(self, worker: Worker) -> None:
        """The worker reads the schema topic, and looks again at what it could not read."""
        for writer in LATE_SCHEMAS:
            worker.schemas.add(writer.json)
        for holding in worker.open.values():
            if not holding.draining:
                holding.shard.retry_held()

    def _local(self, worker: Worker, partition: int, name: str) -> LocalShard:
        kv = self.stores.open(name)
        marks = read_marks(kv, name)
        kv.close()
        identity = marks.identity
        current = worker.current.get(partition) == name
        return LocalShard(name, identity.generation, identity.base, marks.position.cursor.next_offset, current)

    def _open(self, worker: Worker, partition: int, folder: str, generation: str, base: str) -> Shard:
        return Shard.open(
            self.stores.open(folder),
            identity=ShardIdentity(TOPIC, CLUSTER, TOPIC_ID, partition, self.partitions, generation, base),
            schemas=worker.schemas,
            projections=projections_of(self.trail),
            cached_rows=(0, 20, 100_000)[next(self._numbers) % 3],
            window_events=FEW_EVENTS,
        )

    def _check_history(self, partition: int, shard: Shard) -> None:
        log, cursor = self.logs[partition], shard.cursor
        last = next((record for record in log.records if record.offset == cursor.last_offset), None)
        found = None if last is None else FoundRecord(last.key, 0)
        check(cursor, LogFacts(CLUSTER, TOPIC_ID, partition, self.partitions, 0, log.end, found))

    def _install(
        self,
        worker: Worker,
        partition: int,
        folder: str,
        shard: Shard,
        commit: Commit | None,
        here: list[LocalShard],
        choice: Any,
    ) -> None:
        current = worker.current.get(partition)
        spoke_last = commit is not None and commit.emitter == shard.emitter
        goes_on = spoke_last or (
            current in (None, folder) and choice.action is not Action.RESTORE and partition not in self.spoken
        )
        old = max((each.next_offset for each in here if each.current), default=0)
        emitted = commit.offset if commit is not None and commit.generation == choice.generation else 0
        bound = emitted if goes_on else max(old, self.logs[partition].end, emitted)
        worker.open[partition] = Holding(
            folder, shard, choice.generation, choice.base, bound, not goes_on, commit, shard.cursor.next_offset
        )
        if goes_on:
            worker.current[partition] = folder

    # --- forward ------------------------------------------------------------------------------------------------------

    def read(self, worker: Worker, partition: int, limit: int) -> bool:
        """Read and apply once; False at the end of the log."""
        holding = worker.open[partition]
        records, end = self.logs[partition].read(holding.cursor, limit)
        if end == holding.cursor or holding.draining:
            return False
        holding.shard.apply(holding.generation, holding.cursor, end, records)
        self.switch(worker, partition)
        return True

    def switch(self, worker: Worker, partition: int) -> None:
        """A build that has reached its bound becomes what is read; its outbox is what differs from the topics."""
        holding = worker.open[partition]
        if not holding.building or holding.cursor < holding.bound:
            return
        self._fill_outbox(partition, holding)
        self.step("switch.2")
        old = worker.current.get(partition)
        worker.current[partition] = holding.folder
        holding.building = False
        self.step("switch.3")
        if old is not None and old != holding.folder:
            worker.folders[partition].remove(old)
            self.stores.delete(old)

    def _fill_outbox(self, partition: int, holding: Holding) -> None:
        clear_all(holding.shard.kv)
        for projection in projections_of(self.trail):
            if not projection.public:
                continue
            topic = self.topic(partition, projection.name)
            emitted = MemoryStore()
            note_emitted(emitted, projection, [LogRecord(Offset(0), *row, 0, 0) for row in topic.items()])
            add_differences(holding.shard.kv, holding.shard.forms, projection, emitted)

    def topic(self, partition: int, projection: str) -> dict[bytes, bytes]:
        version = self.trail if projection == "trail" else 1
        return self.topics.setdefault((partition, projection, version), {})

    def emit(self, partition: int, limit: int) -> bool:
        """One transaction of the owner; False when there was nothing to send."""
        holding = self.owner[partition].open[partition]
        if holding.building or holding.cursor < holding.bound:
            return False
        shard = holding.shard
        items = shard.outbox(limit + 1)
        whole = len(items) <= limit
        items = items[:limit]
        now = Commit(holding.cursor, holding.generation, holding.base, shard.emitter)
        before = Commit(holding.opened_at) if holding.committed is None else holding.committed
        commit = now if whole else now._replace(offset=before.offset)
        if not items and commit == holding.committed:
            return False
        holding.draining = not whole
        rows = [(item.projection, *shard.current(item)) for item in items]
        self.step("emit.3")
        for projection, key, value in rows:
            self.spoken.add(partition)
            if value is None:
                self.topic(partition, projection).pop(key, None)
            else:
                self.topic(partition, projection)[key] = value
        self.commits[partition] = stored(commit)
        self.step("emit.4")
        holding.committed = commit
        shard.clear_outbox(items)
        return True

    def snapshot(self, worker: Worker, partition: int) -> None:
        """Of a shard that is not a build; whoever has it open may take one."""
        holding = worker.open[partition]
        if holding.building:
            return
        name = self.fresh("snapshot")
        self.stores.checkpoint(holding.shard.kv, name)
        self.snapshots.append(ShardSnapshot(name, partition, holding.generation, holding.base, holding.cursor))

    def release(self, trail: int) -> None:
        """All workers begin again with this version of the changing projection."""
        self.stop_all()
        self.trail = trail

    # --- replays ------------------------------------------------------------------------------------------------------

    def foreign_reset(self, partition: int, offset: int) -> None:
        """As Kafka's own tool does it: the group is empty, and the commit has no metadata of ours."""
        self.stop_all()
        self.commits[partition] = Commit(offset)

    def replay(self, target: Target) -> None:
        """As ``dalsegno replay run`` does it. A target that the plan refuses changes nothing."""
        self.stop_all()
        parts = {}
        for log in self.logs:
            commit = self.commits.get(log.partition)
            snapshots = tuple(entry for entry in self.snapshots if entry.partition == log.partition)
            offset = None if commit is None else commit.offset
            parts[log.partition] = PartitionWorld(log.partition, 0, log.end, offset, None, offset, snapshots)
        replay_id = self.fresh("replay")
        world = PlanWorld("g", CLUSTER, TOPIC, TOPIC_ID, parts, (), {"sessions": 1}, {})
        try:
            made = plan(replay_id, target, world)
        except Usage:
            return
        for part in made.parts:
            commit = read_commit(part.start_offset, made.metadata(part))
            assert commit is not None
            self.commits[part.partition] = commit

    # --- the end ------------------------------------------------------------------------------------------------------

    def settle(self, rnd: Random) -> None:
        """Let the owners read and emit everything."""
        for partition in range(self.partitions):
            if partition not in self.owner:
                self.assign(partition, rnd.choice(self.workers), max_behind=rnd.choice([0, 3, 10**6]))
            worker = self.owner[partition]
            if self.published:
                self.learn(worker)
            while self.emit(partition, 50) or self.read(worker, partition, rnd.choice([1, 5, 200])):
                pass
            if self.published:
                self.learn(worker)  # a transaction in several parts was still on its way before
            while self.emit(partition, 50):
                pass

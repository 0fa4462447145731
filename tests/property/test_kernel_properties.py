"""The state of a session is a function of the set of its records (and its ancestors', for a fork), and nothing else.

However the records arrive - in any order, again, late, before or after compaction, in any batches, live, from a
snapshot and a tail, on one worker or three, by one that was put out of the group, folded again by another version - the
paths, digests and rows are the same, byte for byte; and what the topics hold in the end is the rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.ids import partition_of
from dalsegno.replay.target import Target, TargetKind
from dalsegno.state.history import key_of
from dalsegno.state.layout import ShardIdentity
from dalsegno.state.memory import MemoryStore
from dalsegno.state.reads import ShardReads
from dalsegno.state.shard import Shard
from dalsegno.testing.reference import Settled, settle
from examples import examples
from kernel_log import Log, Story, arrivals, kernel_histories, late_schemas
from kernel_world import CLUSTER, TOPIC, TOPIC_ID, Crash, Holding, Worker, World, projections_of
from plain_rows import plain_rows
from shard_lab import FEW_EVENTS

STEPS = ("assign.3", "assign.4", "switch.2", "switch.3", "emit.3", "emit.4")
NAMES = tuple(each.name for each in projections_of(1))


def straight_fold(log: Log, schemas: SchemaSet, trail: int) -> Shard:
    """All that the log stands for, in one batch, in memory."""
    identity = ShardIdentity(TOPIC, CLUSTER, TOPIC_ID, log.partition, log.partitions, "straight", "-")
    shard = Shard.open(
        MemoryStore(), identity=identity, schemas=schemas, projections=projections_of(trail), window_events=FEW_EVENTS
    )
    shard.apply("straight", 0, log.end, log.ever())
    return shard


def reads(shard: Shard, trail: int) -> ShardReads:
    return ShardReads(shard.kv, shard._work.schemas, projections_of(trail))


def rows_of(shard: Shard, trail: int) -> dict[str, list[tuple[bytes, Any]]]:
    return {name: list(reads(shard, trail).public_rows(name)) for name in NAMES}


def paths_of(shard: Shard, trail: int) -> dict[str, Any]:
    found = reads(shard, trail)
    return {name: (head, [(e.seq, e.hash, e.stub) for e in found.path(name)]) for name, head in found.sessions()}


def check_against_reference(shard: Shard, trail: int, settled: dict[str, Settled]) -> None:
    """The same as the slow and plain computation says, which shares neither index nor storage with the shard."""
    found = paths_of(shard, trail)
    assert set(found) == set(settled)
    for name, wanted in settled.items():
        head, path = found[name]
        assert path == [(event.seq, event.hash, event.stub) for event in wanted.events]
        assert (head.held_reason, head.held_seq) == (wanted.held or (None, None))
        assert head.superseded == len(wanted.path.superseded)
    assert {name: dict(rows) for name, rows in rows_of(shard, trail).items()} == plain_rows(
        settled, projections_of(trail), shard.identity.partition
    )


class Kernel(RuleBasedStateMachine):
    """Everything that may happen to a log and its workers. ``check`` asks whether it made a difference."""

    disk = False

    @initialize(
        story=kernel_histories(),
        rnd=st.randoms(use_true_random=False),
        partitions=st.integers(1, 2),
        workers=st.integers(1, 3),
    )
    def begin(self, story: Story, rnd: Random, partitions: int, workers: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.rnd = rnd
        self.world = World(Path(self.folder.name), partitions=partitions, workers=workers, disk=self.disk)
        self.coming = arrivals(story.history, rnd, partitions)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.die_at = None
            self.append(len(self.coming), 0)
            self.check()
            self.check_copies()
            self.world.stop_all()
            self.folder.cleanup()

    # --- the log ------------------------------------------------------------------------------------------------------

    @rule(count=st.sampled_from([1, 3, 10, 40]), hole=st.integers(0, 2))
    def append(self, count: int, hole: int) -> None:
        for partition, key, value in self.coming[:count]:
            self.world.logs[partition].append(key, value, hole)
        del self.coming[:count]

    @rule(partition=st.integers(0, 1), share=st.sampled_from([0.3, 0.7, 1.0]))
    def compact(self, partition: int, share: float) -> None:
        log = self.world.logs[partition % self.world.partitions]
        log.compact(int(log.end * share))

    @precondition(lambda self: not self.world.published)
    @rule()
    def publish_schemas(self) -> None:
        self.world.published = True

    # --- workers ------------------------------------------------------------------------------------------------------

    def worker(self, number: int) -> Worker:
        return self.world.workers[number % len(self.world.workers)]

    def part(self, number: int) -> int:
        return number % self.world.partitions

    @rule(
        partition=st.integers(0, 1),
        worker=st.integers(0, 2),
        linger=st.booleans(),
        max_behind=st.sampled_from([0, 3, 10**6]),
        die_at=st.sampled_from([None, None, None, *STEPS[:4]]),
    )
    def assign(self, partition: int, worker: int, linger: bool, max_behind: int, die_at: str | None) -> None:
        self.world.die_at = die_at
        chosen = self.worker(worker)
        try:
            self.world.assign(self.part(partition), chosen, linger=linger, max_behind=max_behind)
        except Crash:
            self.world.kill(chosen)
        self.world.die_at = None

    @rule(partition=st.integers(0, 1), count=st.sampled_from([1, 5, 20]), limit=st.sampled_from([3, 1000]))
    def live(self, partition: int, count: int, limit: int) -> None:
        """What goes on most of the time: records arrive, the owner folds them and tells the topics."""
        self.append(count, 0)
        number = self.part(partition)
        if number not in self.world.owner:
            self.world.assign(number, self.rnd.choice(self.world.workers))
        while self.world.read(self.world.owner[number], number, 1000):
            pass
        self.world.emit(number, limit)

    @rule(worker=st.integers(0, 2), partition=st.integers(0, 1), limit=st.sampled_from([1, 4, 20, 300]))
    def read(self, worker: int, partition: int, limit: int) -> None:
        """Also by a worker that has lost the partition and does not know it: its copy is its own."""
        chosen = self.worker(worker)
        if self.part(partition) in chosen.open:
            self.world.read(chosen, self.part(partition), limit)

    @rule(
        partition=st.integers(0, 1),
        limit=st.sampled_from([1, 5, 1000]),
        die_at=st.sampled_from([None, None, *STEPS[4:]]),
    )
    def emit(self, partition: int, limit: int, die_at: str | None) -> None:
        owner = self.world.owner.get(self.part(partition))
        if owner is None:
            return
        self.world.die_at = die_at
        try:
            self.world.emit(self.part(partition), limit)
        except Crash:
            self.world.kill(owner)
        self.world.die_at = None

    @rule(worker=st.integers(0, 2))
    def kill(self, worker: int) -> None:
        self.world.kill(self.worker(worker))

    @precondition(lambda self: self.world.published)
    @rule(worker=st.integers(0, 2))
    def learn(self, worker: int) -> None:
        self.world.learn(self.worker(worker))

    @rule(worker=st.integers(0, 2), partition=st.integers(0, 1))
    def snapshot(self, worker: int, partition: int) -> None:
        chosen = self.worker(worker)
        if self.part(partition) in chosen.open:
            self.world.snapshot(chosen, self.part(partition))

    @rule(worker=st.integers(0, 2), partition=st.integers(0, 1), name=st.sampled_from(["lifecycle", *NAMES]))
    def refold(self, worker: int, partition: int, name: str) -> None:
        for holding in self.holdings(self.worker(worker), partition):
            if not holding.draining:
                holding.shard.refold([name])

    # --- replays and releases -----------------------------------------------------------------------------------------

    @rule(
        what=st.sampled_from(["foreign", "foreign", "earliest", "latest", "offset", "offset", "release"]),
        partition=st.integers(0, 1),
        share=st.floats(0, 1),
    )
    def upheaval(self, what: str, partition: int, share: float) -> None:
        """The group is empty for a moment: somebody's reset, a replay, or workers of another release.

        In another release a fold has another version, above or below: its rows are dropped and folded again.
        """
        world, number = self.world, self.part(partition)
        offset = int(world.logs[number].end * share)
        if what == "foreign":
            world.foreign_reset(number, offset)
        elif what == "offset":
            world.replay(Target(TargetKind.OFFSET, offsets=((number, offset),)))
        elif what == "release":
            world.release(3 - world.trail)
        else:
            world.replay(Target(TargetKind.EARLIEST if what == "earliest" else TargetKind.LATEST_SNAPSHOT))

    # --- the sentence -------------------------------------------------------------------------------------------------

    def holdings(self, worker: Worker, partition: int) -> Iterator[Holding]:
        holding = worker.open.get(self.part(partition))
        if holding is not None:
            yield holding

    @rule()
    def check(self) -> None:
        world = self.world
        schemas = late_schemas() if world.published else SchemaSet.load()
        world.settle(self.rnd)
        own = {log.partition: [(r.key, r.value) for r in log.ever()] for log in world.logs}
        for log in world.logs:
            straight = straight_fold(log, schemas, world.trail)
            shard = world.owner[log.partition].open[log.partition].shard
            self.same(shard, straight)
            settled = settle(own[log.partition], partitions=world.partitions, schemas=schemas)
            of_here = {k: v for k, v in settled.items() if partition_of(k, world.partitions) == log.partition}
            check_against_reference(straight, world.trail, of_here)
            forms = shard.forms
            shown = {each.name for each in projections_of(world.trail) if each.public}
            for name, rows in rows_of(straight, world.trail).items():
                if name not in shown:
                    continue
                wanted = {forms.topic_key(key): forms.value(name, row) for key, row in rows}
                assert world.topic(log.partition, name) == wanted

    def same(self, shard: Shard, straight: Shard) -> None:
        trail, counts, wanted = self.world.trail, shard.counts, straight.counts
        assert (counts.sessions, counts.held, counts.forks) == (wanted.sessions, wanted.held, wanted.forks)
        erased = {h for h, action in self.world.logs[shard.identity.partition].amended().items() if action == "ERASED"}
        for _, entry in reads(shard, trail).journal_entries():
            assert key_of(entry).hash not in erased, "an erased event's bytes are still there"
        assert paths_of(shard, trail) == paths_of(straight, trail)
        assert rows_of(shard, trail) == rows_of(straight, trail)
        assert shard.digests() == straight.digests()
        assert shard.recompute_digests() == straight.digests()

    def check_copies(self) -> None:
        """Every copy that is left, whoever has it, and every snapshot: with the tail it is the same."""
        world = self.world
        schemas = late_schemas() if world.published else SchemaSet.load()
        straight = {log.partition: straight_fold(log, schemas, world.trail) for log in world.logs}
        for worker in world.workers:
            for partition, holding in worker.open.items():
                if world.published:
                    world.learn(worker)
                while world.read(worker, partition, 7):
                    pass
                if not holding.draining:
                    self.same(holding.shard, straight[partition])
        for entry in world.snapshots:
            self.same(self.with_tail(entry.id, entry.partition, schemas), straight[entry.partition])

    def with_tail(self, snapshot: str, partition: int, schemas: SchemaSet) -> Shard:
        world, log = self.world, self.world.logs[partition]
        folder = world.fresh("look")
        world.stores.restore(snapshot, folder)
        kv = world.stores.open(folder)
        identity = ShardReads(kv, schemas, []).identity()
        projections = projections_of(world.trail)
        shard = Shard.open(kv, identity=identity, schemas=schemas, projections=projections, window_events=FEW_EVENTS)
        start = shard.cursor.next_offset
        shard.apply(identity.generation, start, log.end, log.read(start, 10**9)[0])
        shard.retry_held()
        return shard


class KernelOnDisk(Kernel):
    disk = True


RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck), stateful_step_count=40)
TestKernel = Kernel.TestCase
TestKernel.settings = settings(RELAXED, max_examples=examples(60))
TestKernelOnDisk = KernelOnDisk.TestCase
TestKernelOnDisk.settings = settings(RELAXED, max_examples=examples(12), stateful_step_count=25)

"""Whole worker processes against a real broker, and the three views that must agree.

``World`` is one topic prefix with its sessions and workers. ``World.check`` compares (1) a straight fold of the log in
memory, (2) the rows in the workers' shards with their digests, (3) what a plain read-committed consumer of every
projection topic ends with. Waits are for conditions, with a deadline: the shard's cursor at the end and an empty
outbox, for "committed >= end" alone is already true right after a restart.

Run as a program it is the worker process itself (``python harness_worker.py '<json>'``).
"""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, TopicPartition
from fastavro import schemaless_reader

from dalsegno.log import admin, topics
from dalsegno.log.admin import Committed, alter_group_offsets, describe_group, group_offsets
from dalsegno.log.kafka import KafkaConfig, consumer, kafka_errors, producer
from dalsegno.log.reader import read_range
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.ids import partition_of
from dalsegno.projections.base import Projection
from dalsegno.projections.registry import built_in
from dalsegno.projections.tools import Tools
from dalsegno.snapshots.folders import RocksFolders
from dalsegno.state.generations import PartitionFolder
from dalsegno.state.layout import ShardIdentity
from dalsegno.state.memory import MemoryStore
from dalsegno.state.rocks import open_secondary
from dalsegno.state.shard import Shard
from dalsegno.state.slot import read_status, slot_folders
from dalsegno.storage.object_store import FolderStore
from dalsegno.testing.builder import SessionBuilder
from dalsegno.testing.moves import play

DEADLINE_SECONDS = 60.0
LOOK_SECONDS = 0.05
ENDED = {"COMPLETED", "FAILED", "CANCELLED"}
Rows = dict[tuple[str, bytes], bytes]


def wait_for(condition: Callable[[], Any], what: str, seconds: float = DEADLINE_SECONDS) -> Any:
    """Poll until the condition holds; its value. A failure says what was waited for."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(LOOK_SECONDS)
    raise AssertionError(f"not within {seconds:g} s: {what}")


class RunningWorker:
    """One worker process with a data folder of its own."""

    def __init__(self, world: World, data: Path, process: subprocess.Popen[bytes], log: Path) -> None:
        self.world, self.data, self.process, self.log = world, data, process, log

    @property
    def slot(self) -> Path:
        """The slot that this process took; slot 0 as long as it has not said."""
        for folder in slot_folders(self.data, self.world.prefix):
            if (read_status(folder) or {}).get("pid") == self.process.pid:
                return folder
        return self.data / self.world.prefix / "slots" / "0"

    def status(self) -> dict[str, Any]:
        """The status of this very process; {} before it has written one."""
        found = read_status(self.slot) or {}
        return found if found.get("pid") == self.process.pid else {}

    def parts(self) -> dict[int, dict[str, Any]]:
        return {int(number): part for number, part in self.status().get("partitions", {}).items()}

    def wait_dead(self, seconds: float = DEADLINE_SECONDS) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker did not end within {seconds:g} s; its log:\n{self.tail()}") from None

    def is_stopped(self) -> bool:
        """Whether SIGSTOP holds the process (state T of Linux)."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text("ascii", "replace")
        return stat.rpartition(")")[2].split()[0] == "T"

    def stop(self) -> None:
        """SIGTERM; it must end cleanly and soon."""
        self.process.send_signal(signal.SIGTERM)
        assert self.wait_dead(20) == 0, self.tail()

    def kill(self) -> None:
        self.process.kill()
        self.wait_dead()

    def tail(self, size: int = 6000) -> str:
        return self.log.read_text("utf-8", "replace")[-size:]


class World:
    """A prefix, its topics and sessions, and the workers on it."""

    def __init__(self, config: KafkaConfig, prefix: str, folder: Path, *, partitions: int = 2, seed: int = 1) -> None:
        self.config, self.prefix, self.folder, self.partitions = config, prefix, folder, partitions
        self.events = topics.topic_name(prefix, topics.EVENTS)
        self.group = f"{prefix}.worker"
        self.store = folder / "store"
        self.projections: list[Projection[Any]] = list(built_in())
        self.workers: list[RunningWorker] = []
        self._random = random.Random(seed)
        self._builders: list[SessionBuilder] = []
        self._producer = producer(config, {"acks": "all"})
        topics.apply(config, prefix, partitions=partitions, projections=[(p.name, p.version) for p in self.projections])

    # --- the log ---------------------------------------------------------------------------------------------------

    def produce(self, events: int = 300, sessions: int = 12) -> None:
        """Write about so many more events: sessions go on, new ones begin, interleaved."""
        self._builders = [each for each in self._builders if each.session.status not in ENDED]
        while len(self._builders) < sessions:
            self._builders.append(SessionBuilder(f"s-{self._random.getrandbits(64):016x}").begin().start())
            self.send(self._builders[-1].records)
        for _ in range(max(1, events // 4)):
            builder = self._random.choice(self._builders)
            before = len(builder.records)
            play(builder, [self._random.getrandbits(16) for _ in range(4)])
            self.send(builder.records[before:])
        self.flush()

    def produce_plain_sessions(self, number: int, count: int) -> None:
        """Write sessions that begin and do nothing else, all in one partition."""
        while count:
            session_id = f"p-{self._random.getrandbits(64):016x}"
            if partition_of(session_id, self.partitions) == number:
                self.send(SessionBuilder(session_id).begin().start().records)
                count -= 1
        self.flush()

    def produce_tool_calls(self, events: int) -> int:
        """Write sessions until one partition has a tool call among so many new events; that partition."""
        number = self._random.randrange(self.partitions)
        for _ in range(200):
            builder = SessionBuilder(f"t-{self._random.getrandbits(64):016x}").begin().start()
            if partition_of(builder.session_id, self.partitions) != number:
                continue
            play(builder, [self._random.getrandbits(16) for _ in range(events)])
            if any(record.event and record.event.type in Tools.handles for record in builder.records):
                self.send(builder.records)
                self.flush()
                return number
        raise AssertionError("no session with a tool call")

    def send(self, records: Iterable[Any]) -> None:
        for record in records:
            session_id = record.event.session_id
            number = partition_of(session_id, self.partitions)
            self._producer.produce(self.events, key=record.key, value=record.value, partition=number)

    def flush(self) -> None:
        with kafka_errors("write test events"):
            assert self._producer.flush(DEADLINE_SECONDS) == 0

    def ends(self) -> dict[int, int]:
        return {number: marks.high for number, marks in admin.watermarks(self.config, self.events).items()}

    # --- workers ---------------------------------------------------------------------------------------------------

    def start(self, data: str = "a", *, kill_at: str = "", wait: bool = False, **settings: Any) -> RunningWorker:
        """Start a worker; ``data`` names its folder. ``kill_at``: the step after which it ends by SIGKILL."""
        where = self.folder / data
        log = self.folder / f"worker-{data}-{len(self.workers)}.log"
        told = {
            "servers": self.config.bootstrap_servers,
            "prefix": self.prefix,
            "data": str(where),
            "store": str(self.store),
            **settings,
        }
        environment = {**os.environ, "DALSEGNO_TEST_KILL_AT": kill_at}
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, __file__, json.dumps(told)], env=environment, stdout=stderr, stderr=stderr
            )
        worker = RunningWorker(self, where, process, log)
        self.workers.append(worker)
        if wait:
            wait_for(worker.parts, f"worker {data} has partitions")
        return worker

    def close(self) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.send_signal(signal.SIGCONT)
                worker.process.kill()
                worker.process.wait(10)

    def alive(self) -> list[RunningWorker]:
        return [worker for worker in self.workers if worker.process.poll() is None]

    def holders(self) -> dict[int, tuple[RunningWorker, dict[str, Any]]]:
        """Who says that it holds which partition now."""
        return {number: (worker, part) for worker in self.alive() for number, part in worker.parts().items()}

    def settle(self, seconds: float = DEADLINE_SECONDS) -> None:
        """Wait until every partition is applied to the log's end, emitted, committed, and not being built."""
        ends = self.ends()

        def settled() -> bool:
            held = self.holders()
            return held.keys() == ends.keys() and all(
                part["cursor"] == part["committed"] == ends[number]
                and part["outbox_empty"]
                and not part["building"]
                and part["state"] == "LIVE"
                for number, (_, part) in held.items()
            )

        try:
            wait_for(settled, f"all partitions at {ends}", seconds)
        except AssertionError as error:
            seen = {number: part for number, (_, part) in self.holders().items()}
            logs = "\n".join(f"--- {worker.log.name}\n{worker.tail(3000)}" for worker in self.workers[-3:])
            raise AssertionError(f"{error}\n{seen}\n{logs}") from None

    # --- the group -------------------------------------------------------------------------------------------------

    def wait_until_group_is_empty(self) -> None:
        """Static members stay in the group until their session times out."""
        wait_for(lambda: not describe_group(self.config, self.group).members, "the group is empty", 30)

    def reset(self, offsets: Mapping[int, int], metadata: str | None = None) -> None:
        """Set the group's offsets; without metadata that is what Kafka's own tool leaves."""
        alter_group_offsets(
            self.config, self.group, {(self.events, n): Committed(at, metadata) for n, at in offsets.items()}
        )

    def delete_group(self) -> None:
        with kafka_errors("delete the group"):
            client = admin.kafka.admin(self.config)
            client.delete_consumer_groups([self.group], request_timeout=20)[self.group].result()

    def committed(self) -> dict[int, Committed]:
        return {number: found for (_, number), found in group_offsets(self.config, self.group).items()}

    # --- the three views -------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Rows and digests of the shards == a straight fold of the log == what a plain consumer of the topics has."""
        straight, digests = self.straight_fold()
        held = self.holders()
        assert held.keys() == digests.keys()
        rows: Rows = {}
        for number, (worker, part) in held.items():
            folder = worker.slot / self.topic_id() / str(number) / part["folder"]
            marks = RocksFolders().marks(folder)
            assert {name: mark.digest for name, mark in marks.projections.items()} == digests[number], (
                f"partition {number}"
            )
            rows.update(self.shard_rows(folder))
        assert rows == straight
        assert self.topic_rows() == straight

    def straight_fold(self, to: Mapping[int, int] | None = None) -> tuple[Rows, dict[int, dict[str, str]]]:
        """Rows and digests per partition of a memory shard that was fed the log from its start. ``to``: only these
        partitions, and only up to these offsets."""
        rows: Rows = {}
        digests = {}
        for number in range(self.partitions) if to is None else to:
            identity = ShardIdentity(self.events, "-", "-", number, self.partitions, "straight", "-")
            shard = Shard.open(MemoryStore(), identity=identity, schemas=SchemaSet.load(), projections=self.projections)
            end = None if to is None else to[number]
            for batch in read_range(self.config, self.events, number, 0, end):
                records = [record for record in batch.records if end is None or record.offset < end]
                shard.apply("straight", batch.start, batch.next_offset, records)
            rows.update(_public_rows(shard, shard.kv, self.projections))
            digests[number] = {name: found.digest for name, found in shard.digests().items()}
        return rows, digests

    def shard_rows(self, folder: Path) -> Rows:
        """The public rows of a shard that a running worker holds."""
        store = open_secondary(folder, self.folder / "look" / folder.name)
        try:
            forms = Shard.open(
                MemoryStore(), identity=ShardIdentity("-", "-", "-", 0, 1, "-", "-"), schemas=SchemaSet.load(),
                projections=self.projections,
            )  # fmt: skip
            return _public_rows(forms, store, self.projections)
        finally:
            store.close()

    def topic_rows(self) -> Rows:
        """What a plain read-committed consumer of every projection topic ends with."""
        rows: Rows = {}
        for name, record in self._topic_records():
            key, value = (name, record.key() or b""), record.value()
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
        return rows

    def rows_that_went_backwards(self) -> list[tuple[str, bytes]]:
        """Session rows whose number of events fell from one record of the topic to a later one."""
        schemas, seen, fallen = SchemaSet.load(), dict[bytes, int](), []
        for name, record in self._topic_records():
            value = record.value()
            if name != "sessions" or value is None:
                continue
            writer = schemas.by_frame(value[2:10])
            assert writer is not None
            count = schemaless_reader(io.BytesIO(value[10:]), writer.raw, None)["events"]
            key = record.key() or b""
            if count < seen.get(key, 0):
                fallen.append((name, key))
            seen[key] = count
        return fallen

    def topic_sizes(self) -> int:
        """How many committed records all projection topics hold."""
        return sum(1 for _ in self._topic_records())

    def _topic_records(self) -> Iterator[tuple[str, Message]]:
        """(projection, record) of all projection topics, each partition in order, to their ends."""
        names = {topics.projection_topic(self.prefix, each.name, each.version): each.name for each in self.projections}
        places = {(topic, number) for topic in names for number in range(self.partitions)}
        reader = consumer(
            self.config, {"group.id": "plain", "isolation.level": "read_committed", "enable.partition.eof": True}
        )
        try:
            reader.assign([TopicPartition(topic, number, 0) for topic, number in places])
            deadline = time.monotonic() + DEADLINE_SECONDS
            while places:
                assert time.monotonic() < deadline, f"no end of {places}"
                for message in reader.consume(10_000, 0.1):
                    if message.error() is None:
                        yield names[str(message.topic())], message
                    elif message.error().code() == KafkaError._PARTITION_EOF:
                        places.discard((str(message.topic()), int(message.partition() or 0)))
                    else:
                        raise AssertionError(message.error())
        finally:
            reader.close()

    def topic_id(self) -> str:
        return admin.topic_facts(self.config, self.events).topic_id

    def folder_of(self, worker: RunningWorker, number: int) -> PartitionFolder:
        return PartitionFolder(worker.slot, self.topic_id(), number)


def _public_rows(shard: Shard, kv: Any, projections: Iterable[Projection[Any]]) -> Rows:
    return {
        (each.name, shard.forms.topic_key(key)): shard.forms.value(each.name, row)
        for each in projections
        if each.public
        for key, row in shard.forms.public_rows(kv, each.name)
    }


# --- the worker process --------------------------------------------------------------------------------------------


class _NextTools(Tools):
    """The projection ``tools`` as a later release might fold it: other rows from the same events."""

    version = Tools.version + 1

    def fold(self, rows: Any, event: Any, verdict: Any) -> None:
        super().fold(rows, event, verdict)
        if event.type == "ToolCallRequested":
            row_id = (event.body["tool_call_id"],)
            row = rows.get(row_id)
            row.name = row.name.upper()
            rows.put(row_id, row)


def of_the_next_release() -> list[Projection[Any]]:
    """The built-in projections, one of them in another version."""
    return [_NextTools() if each.name == "tools" else each for each in built_in()]


def _failing_while(file: Path) -> Projection[Any]:
    """The projection `tools`, with a fold that fails as long as the file exists."""

    class Failing(Tools):
        def fold(self, rows: Any, event: Any, verdict: Any) -> None:
            if file.exists():
                raise RuntimeError("planted failure")
            super().fold(rows, event, verdict)

    return Failing()


def _stopping_at(wanted: str) -> Callable[[str], None]:
    """A fault that stops the process (SIGSTOP) after the nth time of a step, until somebody continues it."""
    step, _, nth = wanted.partition(":")
    left = int(nth or "1")

    def stop(done: str) -> None:
        nonlocal left
        if done == step:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGSTOP)

    return stop


def main(told: dict[str, Any]) -> None:
    import logging

    from dalsegno.cli.logs import configure_logging
    from dalsegno.streams.app import run_worker
    from dalsegno.streams.config import WorkerConfig
    from dalsegno.streams.faults import fault_from_environment

    configure_logging("info", "json")
    logging.getLogger("mode").setLevel(logging.WARNING)
    fail_while = told.pop("fail_while", None)
    next_release = told.pop("next_release", False)
    until = told.pop("until", None)
    stop_at = told.pop("stop_at", "")
    projections: list[Projection[Any]] = list(built_in())
    if fail_while is not None:
        projections = [each for each in projections if each.name != "tools"] + [_failing_while(Path(fail_while))]
    if next_release:
        projections = of_the_next_release()
    config = WorkerConfig(
        kafka=KafkaConfig(told.pop("servers")),
        prefix=told.pop("prefix"),
        data=Path(told.pop("data")),
        store=FolderStore(told.pop("store")),
        projections=projections,
        session_timeout_seconds=told.pop("session_timeout_seconds", 3.0),
        fault=_stopping_at(stop_at) if stop_at else fault_from_environment(),
        **told,
    )
    run_worker(config, None if until is None else {int(number): bound for number, bound in until.items()})


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

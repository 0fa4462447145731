"""Where ``dalsegno bench`` happens: its own prefix with the workload in it, published once and kept."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from dalsegno.errors import Failed, WaitTimeout
from dalsegno.log import admin, kafka, topics
from dalsegno.log.kafka import KafkaConfig, kafka_errors
from dalsegno.log.publisher import Publisher
from dalsegno.log.schema_set import SchemaSet
from dalsegno.projections.registry import built_in
from dalsegno.snapshots.catalog import publish_pointer
from dalsegno.snapshots.direct import snapshot_local_shards
from dalsegno.state.slot import read_status, slot_folders
from dalsegno.storage.object_store import FolderStore
from dalsegno.testing.publish import publish
from dalsegno.testing.script_writer import WorkloadRecord
from dalsegno.testing.workload import Workload

WAIT_SECONDS = 120.0
CHILD_SECONDS = 3_600.0
_LOOK_SECONDS = 0.1
_KEPT = ("events", "schemas")


@dataclass(frozen=True)
class Mix:
    """Which workload: about ``events`` events in ``sessions`` sessions, ``active`` at a time or all ``evenly``."""

    events: int
    sessions: int
    active: int
    evenly: bool

    @property
    def name(self) -> str:
        return f"{self.events}-{self.sessions}-{'evenly' if self.evenly else self.active}"

    def part(self, events: int, sessions: int, seed: int) -> Part:
        mean = max(8, round(events / sessions))
        return Part(events, sessions, seed, min(self.active, sessions), evenly=self.evenly, mean_events=mean)


class Part(Workload):
    """The first ``events`` events of a workload; sessions may be left open."""

    def __init__(self, events: int, sessions: int, seed: int, active: int, **how: Any) -> None:
        # Lengths are random, so that there are spare sessions for the last of the events.
        super().__init__(2 * sessions, seed, active, **how)
        self._events = events

    def records(self) -> Iterator[WorkloadRecord]:
        return islice(super().records(), self._events)


class BenchWorld:
    """A prefix of its own, a folder of its own, and child processes that measure one thing each."""

    def __init__(self, config: KafkaConfig, prefix: str, folder: Path, mix: Mix, say: Callable[[str], None]) -> None:
        self.kafka, self.mix, self._say = config, mix, say
        self._place = prefix, folder
        self.prefix = f"{prefix}-bench-{mix.name}"
        self.folder = folder / "bench" / mix.name
        self.events_topic = topics.topic_name(self.prefix, topics.EVENTS)
        self._public = [(each.name, each.version) for each in built_in() if each.public]

    # --- the log ---------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Publish the workload, unless it is there already."""
        self.folder.mkdir(parents=True, exist_ok=True)
        mark = self.folder / "published.json"
        facts: dict[str, Any] = {"topic_id": "", "end": 0}
        topics.apply(self.kafka, self.prefix, projections=self._public)
        if mark.exists():
            facts = json.loads(mark.read_text("utf-8"))
        topic_id = admin.topic_facts(self.kafka, self.events_topic).topic_id
        end = sum(self.ends().values())
        if facts["topic_id"] == topic_id and 0 < facts["end"] <= end:
            self._say(f"{end} events of an earlier run are used again (prefix {self.prefix})")
            return
        if end:
            self._say("an earlier run did not publish all of it: it is published again")
            self._delete([self.events_topic])
            topics.apply(self.kafka, self.prefix, projections=self._public)
        self._publish(self.mix.part(self.mix.events, self.mix.sessions, 1))
        topic_id = admin.topic_facts(self.kafka, self.events_topic).topic_id
        mark.write_text(json.dumps({"topic_id": topic_id, "end": sum(self.ends().values())}), "utf-8")

    def publish_tail(self) -> int:
        """One event more for each hundred, of new sessions; how many."""
        events = max(100, self.mix.events // 100)
        self._publish(self.mix.part(events, max(1, self.mix.sessions // 100), 1_000 + sum(self.ends().values())))
        return events

    def _publish(self, work: Workload) -> None:
        with Publisher(self.kafka, prefix=self.prefix, writer="bench/1") as publisher:
            done = publish(publisher, work)
        self._say(f"{done.acknowledged} events published in {done.seconds:.1f} s")

    def ends(self) -> dict[int, int]:
        """The log's end per partition."""
        return {number: marks.high for number, marks in admin.watermarks(self.kafka, self.events_topic).items()}

    def smaller(self, events: int) -> BenchWorld:
        """The same mix with fewer events, in a log of its own: a worker reads some partitions far ahead of others, so
        a bound in the middle of the log says little of how much was read."""
        prefix, folder = self._place
        return BenchWorld(self.kafka, prefix, folder, replace(self.mix, events=events), self._say)

    # --- a fresh start ---------------------------------------------------------------------------------------------

    def fresh(self) -> None:
        """No group, no snapshot, nothing emitted: only the log is left."""
        self.wait_until_left()
        client, group = kafka.admin(self.kafka), f"{self.prefix}.worker"
        try:
            client.delete_consumer_groups([group])[group].result(WAIT_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise Failed(f"group {group} is not deleted: {error.args[0].str()}") from error
        partitions = len(self.ends())
        specs = topics.wanted_topics(self.prefix, partitions=partitions, brokers=1, projections=self._public)
        kept = {topics.topic_name(self.prefix, name) for name in _KEPT}
        self._delete([spec.name for spec in specs if spec.name not in kept])
        topics.apply(self.kafka, self.prefix, partitions=partitions, projections=self._public)
        self.clear()

    def clear(self) -> None:
        """Remove what the measurements left; the log stays."""
        shutil.rmtree(self.folder / "work", ignore_errors=True)

    def wait_until_left(self) -> None:
        """Static members stay in the group until their session time-out."""
        self._until(lambda: not admin.describe_group(self.kafka, f"{self.prefix}.worker").members, "an empty group")

    def _delete(self, names: Sequence[str]) -> None:
        client = kafka.admin(self.kafka)
        with kafka_errors("delete the topics of the last run"):
            for future in client.delete_topics(list(names), operation_timeout=WAIT_SECONDS).values():
                try:
                    future.result(WAIT_SECONDS)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
        self._until(lambda: not admin.describe_topics(client, names), "topics that are gone")

    def snapshot(self) -> None:
        """A snapshot of what the last worker left, as it would have taken it itself."""
        facts = admin.topic_facts(self.kafka, self.events_topic)
        answers = snapshot_local_shards(
            self.work("a"),
            self.prefix,
            self.events_topic,
            facts.topic_id,
            FolderStore(self.work("store")),
            range(facts.partitions),
            reason="bench",
            schemas=[writer.schema_hash for writer in SchemaSet.load()],
            publish=lambda taken, reason: publish_pointer(self.kafka, self.prefix, taken, reason),
        )
        if answers.failed or answers.silent:
            raise Failed(f"no snapshot of partitions {sorted(answers.failed) or list(answers.silent)}")

    # --- children ----------------------------------------------------------------------------------------------------

    def work(self, name: str) -> Path:
        return self.folder / "work" / name

    def loop(self, name: str) -> dict[str, Any]:
        """One of the loops, over the whole log."""
        folder = self.work(name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            told = {"what": name, "topic": self.events_topic, "ends": self.ends(), "folder": str(folder)}
            return self._result(self._start(told))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def worker(self, data: str, ends: dict[int, int]) -> dict[str, Any]:
        """One whole worker, until everything up to ``ends`` is emitted."""
        return self._result(self._start_worker(data, 0, ends, ""))

    def workers(self, count: int, ends: dict[int, int]) -> list[dict[str, Any]]:
        """So many at once, which begin together once the partitions are shared out; ``began`` is added to each."""
        gate = self.work("gate")
        children = [self._start_worker("a", slot, ends, str(gate)) for slot in range(count)]
        try:
            self._until(lambda: self._shared_out(count, len(ends)) or _any_ended(children), "workers with their shares")
            began = time.monotonic()
            gate.touch()
            return [{**self._result(child), "began": began} for child in children]
        finally:
            for child in children:
                if child.poll() is None:
                    child.kill()
                    child.wait()

    def _shared_out(self, count: int, partitions: int) -> bool:
        """Whether every worker has its share, with its shards open."""
        folders = slot_folders(self.work("a"), self.prefix)
        shares = [list((read_status(folder) or {}).get("partitions", {}).values()) for folder in folders]
        opened = [sum(part.get("cursor") is not None for part in share) for share in shares]
        return opened == [partitions // count] * count

    def _start_worker(self, data: str, slot: int, ends: dict[int, int], gate: str) -> subprocess.Popen[str]:
        self.work(data).mkdir(parents=True, exist_ok=True)
        return self._start(
            {
                "what": "worker", "prefix": self.prefix, "folder": str(self.work(data)), "slot": slot,
                "store": str(self.work("store")), "ends": ends, "gate": gate,
            }
        )  # fmt: skip

    def _start(self, told: dict[str, Any]) -> subprocess.Popen[str]:
        told = {**told, "servers": self.kafka.bootstrap_servers, "options": dict(self.kafka.options)}
        return subprocess.Popen(
            [sys.executable, "-m", "dalsegno.testing.bench_child", json.dumps(told)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ.copy(),
        )  # fmt: skip

    def _result(self, child: subprocess.Popen[str]) -> dict[str, Any]:
        try:
            out, err = child.communicate(timeout=CHILD_SECONDS)
        except subprocess.TimeoutExpired as error:
            child.kill()
            child.wait()
            raise WaitTimeout(
                f"a measurement took longer than {CHILD_SECONDS:g} s", todo="measure fewer events"
            ) from error
        if child.returncode != 0:
            raise Failed(f"a measurement ended with {child.returncode}: {err.strip()[-2000:]}")
        found: dict[str, Any] = json.loads(out.splitlines()[-1])
        return found

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise WaitTimeout(f"waited {WAIT_SECONDS:g} s for {what}", todo="look at the broker, run it again")
            time.sleep(_LOOK_SECONDS)


def _any_ended(children: Sequence[subprocess.Popen[str]]) -> bool:
    return any(child.poll() is not None for child in children)

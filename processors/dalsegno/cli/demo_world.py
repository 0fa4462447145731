"""The surroundings of the demo: its data folder, its workers as processes, and the product's own commands."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dalsegno.errors import Failed, GroupNotEmpty, WaitTimeout
from dalsegno.log import admin
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.topics import EVENTS, topic_name, worker_group
from dalsegno.projections import registry
from dalsegno.readers.local import LocalReader
from dalsegno.readers.sessions import SESSIONS
from dalsegno.state.keys import ROW, session_row_key
from dalsegno.state.kv import STATE
from dalsegno.state.rocks import RocksStore
from dalsegno.state.slot import read_status, slot_folders
from dalsegno.storage.object_store import FolderStore

WORKER_SESSION_SECONDS = 6
"""How long Kafka waits for a silent worker before others get its partitions; the least that brokers allow."""
WAIT_SECONDS = 90.0
_LOOK_SECONDS = 0.1
_COMMAND_SECONDS = 300.0
_ENTRY = "from dalsegno.cli import main; main()"


@dataclass
class DemoWorld:
    """Where the demo happens. ``folder`` is the demo's own: deleting it deletes everything that the demo made here."""

    folder: Path
    prefix: str
    kafka: KafkaConfig
    workers: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    """Of the environment of its processes, besides the settings."""

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def group(self) -> str:
        return worker_group(self.prefix)

    @property
    def events_topic(self) -> str:
        return topic_name(self.prefix, EVENTS)

    # --- the product's commands --------------------------------------------------------------------------------------

    def command(self, *arguments: str, codes: tuple[int, ...] = (0,), data: Path | None = None) -> tuple[Any, str]:
        """Run one command of the product as a process; its JSON, and what it said on stderr. Raises Failed."""
        try:
            done = subprocess.run(
                [sys.executable, "-c", _ENTRY, "-o", "json", *arguments],
                env=self._environment(data or self.folder),
                capture_output=True,
                text=True,
                timeout=_COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            said = (error.stderr or b"")[-2000:]
            raise WaitTimeout(
                f"'dalsegno {' '.join(arguments)}' did not end within {_COMMAND_SECONDS:g} s: "
                f"{said if isinstance(said, str) else said.decode('utf-8', 'replace')}",
                todo="run the command by itself to see more; broker and data stay until './run demo --clean'",
            ) from error
        if done.returncode not in codes:
            raise Failed(
                f"'dalsegno {' '.join(arguments)}' ended with {done.returncode}: {done.stderr.strip()[-2000:]}",
                wanted=f"exit code {' or '.join(map(str, codes))}",
                todo="run the command by itself to see more",
            )
        return (json.loads(done.stdout) if done.stdout.strip() else None), done.stderr

    def start(self, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        """Begin a command of the product as a process; what it says goes to the log."""
        with log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-c", _ENTRY, *arguments],
                env=self._environment(self.folder),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _environment(self, data: Path) -> dict[str, str]:
        return {
            **os.environ,
            **self.variables,
            "DALSEGNO_DATA": str(data),
            "DALSEGNO_STORE": str(self.store),
            "DALSEGNO_PREFIX": self.prefix,
            "DALSEGNO_KAFKA__BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "DALSEGNO_KAFKA__OPTIONS": json.dumps(dict(self.kafka.options)),
            "DALSEGNO_WORKER__SESSION_TIMEOUT_SECONDS": str(WORKER_SESSION_SECONDS),
        }

    # --- workers -----------------------------------------------------------------------------------------------------

    def start_worker(self, slot: int) -> None:
        self.workers[slot] = self.start("worker", "run", "--slot", str(slot), log=self.folder / f"worker-{slot}.log")

    def kill_worker(self, slot: int) -> int:
        """``kill -9``: nothing of it gets a chance to say good-bye. Its pid."""
        process = self.workers.pop(slot)
        process.kill()
        process.wait()
        return process.pid

    def stop_workers(self) -> None:
        for process in self.workers.values():
            process.send_signal(signal.SIGTERM)
        for process in self.workers.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.workers.clear()

    def wait_until_group_is_empty(self) -> None:
        """Workers that were killed or stopped count as members until Kafka has given them up."""

        def empty() -> bool:
            return not admin.describe_group(self.kafka, self.group).members

        try:
            wait(empty, f"group {self.group} to be empty", WORKER_SESSION_SECONDS * 4)
        except WaitTimeout as error:
            raise GroupNotEmpty(
                f"workers of group {self.group} are running",
                wanted="no worker but the demo's own",
                todo="stop them ('dalsegno group describe' names them), then run the demo again",
            ) from error

    def wait_until_folded(self) -> None:
        """Every record of the log is in the shard of a worker that runs, and sent on to the projection topics."""
        ends = {number: marks.high for number, marks in admin.watermarks(self.kafka, self.events_topic).items()}

        def folded() -> bool:
            for process in self.workers.values():
                if process.poll() is not None:
                    raise Failed(f"a worker ended by itself; see {self.folder}/worker-*.log")
            parts = self._parts()
            return all(
                number in parts
                and parts[number]["state"] == "LIVE"
                and (parts[number]["cursor"] or 0) >= end
                and parts[number]["outbox_empty"]
                for number, end in ends.items()
            )

        wait(folded, "the workers to have folded all of the log", WAIT_SECONDS)

    def partitions_of(self, slot: int) -> list[int]:
        """The partitions that the worker of this slot has."""
        return sorted(number for number, part in self._parts().items() if part["slot"] == slot)

    def _parts(self) -> dict[int, dict[str, Any]]:
        parts: dict[int, dict[str, Any]] = {}
        pids = {process.pid for process in self.workers.values()}
        for folder in slot_folders(self.folder, self.prefix):
            status = read_status(folder) or {}
            if status.get("pid") in pids:
                for number, part in status["partitions"].items():
                    parts[int(number)] = {**part, "slot": status["slot"]}
        return parts

    # --- what the workers have folded --------------------------------------------------------------------------------

    @contextmanager
    def reader(self) -> Iterator[LocalReader]:
        with LocalReader(
            self.folder, self.prefix, FolderStore(self.store), lambda: self.kafka, registry.chosen()
        ) as reader:
            yield reader

    def folded(self) -> tuple[int, int]:
        """(sessions, events) in the rows of the projection ``sessions``."""
        with self.reader() as reader:
            rows = [row for view in reader.views().values() for _, _, row in view.reads.all_rows(SESSIONS)]
        return len(rows), sum(row.events for row in rows)

    def digests(self) -> dict[str, str]:
        """``<projection> <partition>`` -> digest of its rows, recomputed from the rows themselves."""
        with self.reader() as reader:
            return {
                f"{name} {number}": digest.digest
                for number, view in reader.views().items()
                for name, digest in view.reads.recompute_digests().items()
            }

    def copy_with_a_wrong_byte(self, session_id: str) -> tuple[Path, int]:
        """A copy of the shards in which one byte of the session's row is another one. The copy, and the partition."""
        with self.reader() as reader:
            view = reader.of_session(session_id)
            partition, shard = view.partition, view.folder
            workflow = view.reads.row(SESSIONS, session_id).workflow_name.encode()
        copy = self.folder / "planted"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.folder / self.prefix, copy / self.prefix, ignore=shutil.ignore_patterns("*.tmp"))
        store = RocksStore.open(copy / shard.relative_to(self.folder), create=False)
        try:
            key = session_row_key(ROW, SESSIONS, session_id)
            row = store.get(STATE, key)
            assert row is not None
            at = row.index(workflow)
            batch = store.batch()
            batch.put(STATE, key, row[:at] + bytes([row[at] ^ 0x01]) + row[at + 1 :])
            store.write(batch)
        finally:
            store.close()
        return copy, partition


def wait(condition: Callable[[], bool], what: str, seconds: float, *, look_seconds: float = _LOOK_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise WaitTimeout(f"waited {seconds:g} s for {what}", todo="look at the workers' logs, then try again")
        time.sleep(look_seconds)

"""One measurement of ``dalsegno bench``, in a process of its own: ``python -m dalsegno.testing.bench_child '<json>'``.

Prints one line of JSON. Its own process, so that memory is its own and nothing warm is inherited.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

from dalsegno.log.kafka import KafkaConfig
from dalsegno.state.collector import collect_rarely
from dalsegno.storage.object_store import FolderStore
from dalsegno.streams.app import run_worker
from dalsegno.streams.config import WorkerConfig
from dalsegno.streams.partition import Partition
from dalsegno.streams.reader import LogConsumer
from dalsegno.testing.bench_loops import LOOPS, LogReading

GATE_SECONDS = 120.0
WORKER_SESSION_SECONDS = 6.0
_NEVER = 1 << 60


def main(told: dict[str, Any]) -> dict[str, Any]:
    kafka = KafkaConfig(told["servers"], dict(told["options"]))
    if told["what"] == "worker":
        return _worker(kafka, told)
    collect_rarely()
    ends = {int(number): end for number, end in told["ends"].items()}
    timed = LOOPS[told["what"]](LogReading(kafka, told["topic"], ends), Path(told["folder"]))
    return {**timed._asdict(), "peak_bytes": peak_bytes()}


class _Watch(logging.Handler):
    """The moments of the first assignment and of the last emit, by the monotonic clock, which is one for all processes
    of a machine."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.assigned = self.emitted = 0.0
        self.restored = 0

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == "partitions_assigned" and not self.assigned:
            self.assigned = time.monotonic()
        self.restored += record.msg == "snapshot_restored"

    def step(self, done: str) -> None:
        if done == "emit.5":
            self.emitted = time.monotonic()


class _Gate:
    """Holds the reading of every partition back until a file is there: workers begin together, each with its share of
    the partitions and its shards open. Everything else of the worker goes on meanwhile."""

    def __init__(self, gate: Path) -> None:
        self._gate = gate
        self._held: list[tuple[LogConsumer, Partition]] = []
        self._release = LogConsumer.release
        self._lock = threading.Lock()
        self._open = False
        setattr(LogConsumer, "release", lambda reader, partition: self._hold(reader, partition))  # noqa: B010
        threading.Thread(target=self._wait, daemon=True).start()

    def _hold(self, reader: LogConsumer, partition: Partition) -> None:
        with self._lock:
            if not self._open:
                self._held.append((reader, partition))
                return
        self._release(reader, partition)

    def _wait(self) -> None:
        limit = time.monotonic() + GATE_SECONDS
        while not self._gate.exists() and time.monotonic() < limit:
            time.sleep(0.002)
        with self._lock:
            self._open = True
        for reader, partition in self._held:
            self._release(reader, partition)


def _worker(kafka: KafkaConfig, told: dict[str, Any]) -> dict[str, Any]:
    watch = _Watch()
    if told["gate"]:
        _Gate(Path(told["gate"]))
    log = logging.getLogger("dalsegno")
    log.setLevel(logging.INFO)
    log.addHandler(watch)
    config = WorkerConfig(
        kafka,
        told["prefix"],
        Path(told["folder"]),
        FolderStore(told["store"]),
        slot=told["slot"],
        session_timeout_seconds=WORKER_SESSION_SECONDS,
        snapshot_every_events=_NEVER,
        fault=watch.step,
    )
    cpu = time.process_time()
    run_worker(config, {int(number): end for number, end in told["ends"].items()})
    return {
        "assigned": watch.assigned,
        "emitted": watch.emitted,
        "restored": watch.restored,
        "cpu_seconds": time.process_time() - cpu,
        "peak_bytes": peak_bytes(),
    }


def peak_bytes() -> int:
    """The largest resident size that this process had (VmHWM; elsewhere what getrusage says)."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text("ascii", "replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))

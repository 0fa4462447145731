"""Work that must keep nobody waiting: opening and restoring shards, switching, snapshots, closing.

Jobs of one partition run one after the other, in the order they were given; jobs of different partitions side by side.
Once the house closes, only what closes a partition is still begun.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from dalsegno.errors import WaitTimeout
from dalsegno.streams.partition import Partition

log = logging.getLogger("dalsegno.streams")

THREADS = 4
WAIT_SECONDS = 120.0
CLOSE_SECONDS = 30.0
Job = Callable[[], None]


class House:
    """A small pool with one queue per partition."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, "dalsegno-house")
        self._queues: dict[int, deque[Job]] = {}
        self._at_work: dict[int, str] = {}
        """What is being done for which partition."""
        self._changed = threading.Condition()
        self._closing = False

    def give(self, number: int, job: Job) -> None:
        """Run ``job`` after all earlier ones of this partition. It must not raise; if it does, that is logged."""
        with self._changed:
            if self._closing and not _closes(job):
                return
            queue = self._queues.get(number)
            if queue is not None:
                queue.append(job)
                return
            self._queues[number] = deque([job])
        self._pool.submit(self._run, number)

    def wait(self, number: int | None = None, timeout: float = WAIT_SECONDS) -> None:
        """Wait until the jobs of a partition (None: all) are done. Raises WaitTimeout."""
        with self._changed:
            idle = self._changed.wait_for(
                lambda: not self._queues if number is None else number not in self._queues, timeout
            )
        if not idle:
            raise self._late(number, timeout)

    @property
    def is_working(self) -> bool:
        return bool(self._queues)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Begin nothing more, but to close partitions, and wait for what is being done. Raises WaitTimeout; its thread
        then keeps the process from ending by itself."""
        with self._changed:
            self._closing = True
            for number, queue in self._queues.items():
                self._queues[number] = deque(job for job in queue if _closes(job))
        try:
            self.wait(timeout=timeout)
        finally:
            self._pool.shutdown(wait=False)

    def _late(self, number: int | None, timeout: float) -> WaitTimeout:
        at_work = [
            f"{doing} of partition {each}" for each, doing in sorted(self._at_work.items()) if number in (None, each)
        ]
        return WaitTimeout(
            f"work on {'shards' if number is None else f'partition {number}'} was not done within {timeout:g} s: "
            f"{', '.join(at_work) or 'it waits for other partitions'}",
            todo="look at the disk of the data folder and at the log",
        )

    def _run(self, number: int) -> None:
        while True:
            with self._changed:
                queue = self._queues[number]
                if not queue:
                    del self._queues[number]
                    self._at_work.pop(number, None)
                    self._changed.notify_all()
                    return
                job = queue.popleft()
                self._at_work[number] = _name(job)
            try:
                job()
            except Exception:
                log.exception("house_job_failed", extra={"partition": number})


def _closes(job: Job) -> bool:
    return getattr(job, "__func__", None) is Partition.close


def _name(job: Job) -> str:
    function = job.func if isinstance(job, partial) else job
    return getattr(function, "__qualname__", repr(function))

"""Work that must keep nobody waiting: opening and restoring shards, switching, snapshots, closing.

Jobs of one partition run one after the other, in the order they were given; jobs of different partitions side by side.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from dalsegno.errors import WaitTimeout

log = logging.getLogger("dalsegno.streams")

THREADS = 4
WAIT_SECONDS = 120.0
Job = Callable[[], None]


class House:
    """A small pool with one queue per partition."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, "dalsegno-house")
        self._queues: dict[int, deque[Job]] = {}
        self._changed = threading.Condition()

    def give(self, number: int, job: Job) -> None:
        """Run ``job`` after all earlier ones of this partition. It must not raise; if it does, that is logged."""
        with self._changed:
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
            raise WaitTimeout(
                f"work on {'shards' if number is None else f'partition {number}'} was not done within {timeout:g} s",
                todo="look at the disk of the data folder and at the log",
            )

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, number: int) -> None:
        while True:
            with self._changed:
                queue = self._queues[number]
                if not queue:
                    del self._queues[number]
                    self._changed.notify_all()
                    return
                job = queue.popleft()
            try:
                job()
            except Exception:
                log.exception("house_job_failed", extra={"partition": number})

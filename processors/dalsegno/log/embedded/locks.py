"""Locks that the system drops with their holder."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from dalsegno.errors import WaitTimeout

_LOOK_AGAIN_SECONDS = 0.05


@contextlib.contextmanager
def locked(path: Path, limit_seconds: float) -> Iterator[None]:
    """Hold the lock of ``path``. The system drops it with the process, so that none is ever left behind.

    Raises WaitTimeout when another process holds it for longer than the limit.
    """
    with _open_for_lock(path) as file:
        if not _taken(file, limit_seconds):
            raise WaitTimeout(
                f"another process has been starting or stopping the broker for {limit_seconds:.0f} s",
                todo="wait for it, or end it, and try again",
                lock=str(path),
            )
        yield


@contextlib.contextmanager
def to_hand_over(path: Path, limit_seconds: float) -> Iterator[int | None]:
    """A lock that a child process takes over with the file number: it is held until the child has ended too.

    None where somebody holds it for longer than the limit.
    """
    with _open_for_lock(path) as file:
        yield file.fileno() if _taken(file, limit_seconds) else None


def _taken(file: IO[str], limit_seconds: float) -> bool:
    deadline = time.monotonic() + limit_seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_AGAIN_SECONDS)


def _open_for_lock(path: Path) -> IO[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("a")

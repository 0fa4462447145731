"""Small files that are there whole or not at all, and locks that the system drops with their holder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from dalsegno.errors import WaitTimeout

_LOOK_AGAIN_SECONDS = 0.05


def write_atomically(path: Path, text: str) -> None:
    """Write a file durably: after a crash there is the old one or the new one."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


@contextlib.contextmanager
def locked(path: Path, limit_seconds: float) -> Iterator[None]:
    """Hold the lock of ``path``. The system drops it with the process, so that none is ever left behind.

    Raises WaitTimeout when another process holds it for longer than the limit.
    """
    deadline = time.monotonic() + limit_seconds
    with _open_for_lock(path) as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise WaitTimeout(
                        f"another process has been starting or stopping the broker for {limit_seconds:.0f} s",
                        todo="wait for it, or end it, and try again",
                        lock=str(path),
                    ) from None
                time.sleep(_LOOK_AGAIN_SECONDS)
        yield


@contextlib.contextmanager
def to_hand_over(path: Path) -> Iterator[int | None]:
    """A lock that a child process takes over with the file number: it is held until the child has ended too.

    None where somebody holds it.
    """
    with _open_for_lock(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield file.fileno()


def _open_for_lock(path: Path) -> IO[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("a")

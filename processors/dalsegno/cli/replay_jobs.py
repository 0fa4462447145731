"""Sessions replayed by several processes at once, each with readers of its own; answers come in the order asked for."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

from dalsegno.errors import DalsegnoError, Failed
from dalsegno.replay.replayed import Replayed

FEW_SESSIONS = 8
"""With no more than these, starting processes takes longer than they save."""
MOST_AT_ONCE = 16
"""Sessions that a process is handed together, so that asking is rare and none is long without work."""

One = Callable[[str], Replayed]

_one: One | None = None


def jobs_for(asked: int | None, sessions: int) -> int:
    """How many processes; 1: this one alone."""
    if asked is None:
        asked = 1 if sessions <= FEW_SESSIONS else os.cpu_count() or 1
    return min(asked, max(1, sessions))


def spread(open_one: Callable[[Any], One], told: Any, session_ids: Sequence[str], jobs: int) -> Iterator[Replayed]:
    """``open_one(told)`` is called once in each process. ``open_one`` is a function of a module, ``told`` plain data.

    Raises what a session raises, at its place in the order; Failed where a process died.
    """
    together = max(1, min(MOST_AT_ONCE, len(session_ids) // (4 * jobs)))
    # Spawned, not forked: a process is handed nothing but what it is told, no connection and no open store.
    with tempfile.TemporaryDirectory(prefix="dalsegno-replay-") as scratch:
        pool = ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (open_one, told, scratch))
        yield from _answers(pool, session_ids, together)


def _answers(pool: ProcessPoolExecutor, session_ids: Sequence[str], together: int) -> Iterator[Replayed]:
    try:
        with _uninterrupted():
            answers = pool.map(_replay, session_ids, chunksize=together)
        for found in answers:
            if isinstance(found, DalsegnoError):
                raise found
            yield found
    except BrokenProcessPool:
        raise Failed(
            "a process that replayed sessions ended",
            wanted="processes that live until all is replayed",
            todo="look whether memory ran out; with --jobs 1 all is done in this process",
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """A Ctrl-C waits meanwhile: here until the block ends, in the processes that it starts until ``_begin``."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(open_one: Callable[[Any], One], told: Any, scratch: str) -> None:
    global _one  # a process has one
    tempfile.tempdir = scratch  # however this process ends, what it leaves is taken away
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once, without a word
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _one = open_one(told)


def _replay(session_id: str) -> Replayed | DalsegnoError:
    assert _one is not None
    try:
        return _one(session_id)
    except DalsegnoError as error:
        return error

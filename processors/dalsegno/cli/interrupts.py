"""Ctrl-C in the middle of something that is either done or not: sent, and known to be sent."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupts:
    """While this is entered, the first Ctrl-C waits for the end of a ``whole`` block; the second one does not."""

    def __init__(self) -> None:
        self._inside = False
        self._asked = False

    @contextmanager
    def caught(self) -> Iterator[Interrupts]:
        if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
            yield self
            return
        before = signal.signal(signal.SIGINT, lambda *_: self.take())
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, before)

    def take(self) -> None:
        """Somebody pressed Ctrl-C. Raises KeyboardInterrupt, now or at the end of the block."""
        if self._inside and not self._asked:
            self._asked = True
            return
        raise KeyboardInterrupt

    @contextmanager
    def whole(self) -> Iterator[None]:
        self._inside = True
        try:
            yield
        finally:
            self._inside = False
        if self._asked:
            raise KeyboardInterrupt

"""Lines about a session while it runs: in their order, and an event's once the log has acknowledged it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from dalsegno.errors import DalsegnoError
from dalsegno.log.publisher import Publisher
from dalsegno.log.receipts import Pending
from dalsegno.model.ids import EventKey, Seq
from dalsegno.model.records import Event

LAST_LINES_SECONDS: Final = 5.0
"""How long the end of the block waits for lines, after the session has waited for its reports."""


class Teller:
    """``say`` is called from a thread of its own, so that whoever appends waits for no report. A line about an event
    that the log does not take is never said: that is an error, which the session raises. A context manager, whose end
    waits until all is said."""

    def __init__(self, publisher: Publisher, say: Callable[[str], None]) -> None:
        self._publisher, self._say = publisher, say
        self._lines: queue.SimpleQueue[tuple[str, Pending | None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._speak, name="teller", daemon=True)
        self._thread.start()

    def tell(self, line: str, event: Event | None = None) -> None:
        """``event``: what the line is about, appended here a moment ago; None: nothing that the log must have."""
        key = None if event is None else EventKey(event.session_id, Seq(event.seq), event.hash)
        self._lines.put((line, None if key is None else self._publisher.unacknowledged(key)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._lines.put(None)
        self._thread.join(LAST_LINES_SECONDS)

    def _speak(self) -> None:
        while (told := self._lines.get()) is not None:
            line, pending = told
            try:
                if pending is not None:
                    pending.result(None)
            except DalsegnoError:
                continue
            self._say(line)

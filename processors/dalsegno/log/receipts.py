"""What an append gives back: now a promise, later where the event stands in the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from typing import Any, NamedTuple

from dalsegno.errors import DalsegnoError, Unsent, WaitTimeout
from dalsegno.model.ids import EventKey, Offset, Seq

log = logging.getLogger("dalsegno.log")

CLOSE_TIMEOUT_SECONDS = 30.0
"""How long a session or a publisher that closes waits for reports."""


class Receipt(NamedTuple):
    """The log has stored the event. (Whether it stands on the session's path, only reading the session says.)"""

    partition: int
    offset: Offset
    seq: Seq
    hash: bytes


class Pending:
    """An append that was accepted. ``result`` waits for the log's own report on this one event; so does ``await``."""

    def __init__(
        self,
        key: EventKey,
        value: bytes | None,
        partition: int,
        violations: tuple[str, ...] = (),
        event_id: str | None = None,
    ) -> None:
        self.key = key
        self.value = value
        """The stored bytes: sending an event again sends these, it is never encoded anew."""
        self.partition = partition
        self.violations = violations
        """Rules that the event breaks, where the session's profile lets it pass."""
        self.event_id = event_id
        """What a later event names as its cause; None for stored bytes that are sent again."""
        self.on_settled: Callable[[Pending, DalsegnoError | None], None] | None = None
        """Told the outcome before anybody who waits for it."""
        self._future: Future[Receipt] = Future()
        # An append cannot be taken back: a task that is cancelled while it waits must not cancel the report.
        self._future.set_running_or_notify_cancel()

    @property
    def seq(self) -> Seq:
        return self.key.seq

    @property
    def hash(self) -> bytes:
        return self.key.hash

    def done(self) -> bool:
        return self._future.done()

    def result(self, timeout: float | None = 60.0) -> Receipt:
        """The receipt. Raises what the log said instead; WaitTimeout after ``timeout`` seconds (outcome unknown)."""
        try:
            return self._future.result(timeout)
        except TimeoutError:
            raise WaitTimeout(
                f"no report on {self.key.encode().decode()} within {timeout:g} s; it may or may not be stored",
                wanted="the log's report on this event",
                todo="wait again; the report still comes",
                key=self.key.encode().decode(),
            ) from None

    def error(self) -> DalsegnoError | None:
        """Why the event was not acknowledged; None if it was, or if the report is still to come."""
        found = self._future.exception() if self._future.done() else None
        return found if isinstance(found, DalsegnoError) else None

    def __await__(self) -> Generator[Any, None, Receipt]:
        return asyncio.wrap_future(self._future).__await__()

    def __repr__(self) -> str:
        state = "pending" if not self.done() else "failed" if self.error() else "stored"
        return f"<Pending {self.key.encode().decode()} {state}>"

    def settle(self, offset: Offset | None, error: DalsegnoError | None) -> None:
        """Tell the outcome; called once, by the publisher."""
        if error is None and offset is None:
            error = DalsegnoError("the log reported neither an offset nor an error")
        told, self.on_settled = self.on_settled, None  # a receipt that somebody keeps must not keep its session
        if told is not None:
            told(self, error)
        if error is not None or offset is None:
            self._future.set_exception(error)
        else:
            self._future.set_result(Receipt(self.partition, offset, self.key.seq, self.key.hash))


def unsent(pendings: Iterable[Pending]) -> Unsent | None:
    """The error that names what was not acknowledged, in the order of the keys; None if that is nothing."""
    late = sorted({pending.key: pending for pending in pendings}.items())
    if not late:
        return None
    return Unsent(
        f"{len(late)} events were not acknowledged: {_some([key for key, _ in late])}",
        wanted="an acknowledgement for every event",
        todo="send them again (the same bytes, nothing is doubled) or resume their sessions",
        keys=[key.encode().decode() for key, _ in late],
        pending=[pending for _, pending in late],
    )


def close_behind(close: Callable[[], None], raised: BaseException | None) -> None:
    """Close at the end of a ``with`` block. What the block raised goes on; what closing says then becomes a note on
    it, and a log line."""
    if raised is None:
        close()
        return
    try:
        close()
    except DalsegnoError as error:
        log.error("closing_failed", extra={"reason": str(error)})
        raised.add_note(f"on closing: {error}")


def _some(keys: list[EventKey], limit: int = 3) -> str:
    shown = ", ".join(f"{key.session_id}:{key.seq}" for key in keys[:limit])
    return shown + (f" and {len(keys) - limit} more" if len(keys) > limit else "")

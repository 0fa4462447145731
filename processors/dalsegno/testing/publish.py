"""Publishing a workload: the bytes as they were made, as fast as the log takes them, every report counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dalsegno.errors import DalsegnoError, Failed, WaitTimeout
from dalsegno.log.publisher import Publisher
from dalsegno.log.receipts import Pending
from dalsegno.model.catalogue import CATALOGUE
from dalsegno.model.ids import parse_key
from dalsegno.testing.workload import Workload

FLUSH_TIMEOUT_SECONDS = 120.0
PROGRESS_EVERY = 5_000


@dataclass
class Published:
    """How a workload was published. ``acknowledged`` are events whose own report came."""

    sent: int = 0
    acknowledged: int = 0
    seconds: float = 0.0
    first_error: DalsegnoError | None = None
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def settled(self, _pending: Pending, error: DalsegnoError | None) -> None:
        with self.lock:
            if error is None:
                self.acknowledged += 1
            elif self.first_error is None:
                self.first_error = error


def publish(publisher: Publisher, workload: Workload, *, progress: Callable[[int], None] | None = None) -> Published:
    """Publish all of a workload. ``progress`` is told the number of events sent so far.

    Raises Failed, with the first cause, if an event was not acknowledged, and WaitTimeout if reports stay out.
    """
    publisher.acknowledge_schemas([publisher.schemas.event(name) for name in CATALOGUE])
    done = Published()
    begin = time.monotonic()
    for record in workload.records():
        key = parse_key(record.key)
        assert key is not None
        pending = Pending(key, record.value, publisher.partition_of(key.session_id))
        pending.on_settled = done.settled
        publisher.send_checked(pending)
        done.sent += 1
        if done.sent % PROGRESS_EVERY == 0:
            _check(done)
            if progress is not None:
                progress(done.sent)
    left = publisher.flush(FLUSH_TIMEOUT_SECONDS)
    done.seconds = time.monotonic() - begin
    if left:
        raise WaitTimeout(
            f"{left} of {done.sent} events have no report after {FLUSH_TIMEOUT_SECONDS:g} s",
            wanted="an acknowledgement for every event",
            todo="look at the broker; publishing the same workload again adds nothing",
        )
    _check(done)
    return done


def _check(done: Published) -> None:
    if done.first_error is not None:
        raise Failed(
            f"an event was not acknowledged: {done.first_error}",
            wanted="an acknowledgement for every event",
            todo="look at the broker; publishing the same workload again adds nothing",
        ) from done.first_error

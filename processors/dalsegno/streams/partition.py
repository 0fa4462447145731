"""One assigned partition: its shard, where it stands, and what may be done with it.

Several threads meet here: the reader's (assignment, pause and seek), the agent's (apply), the emitter's (rows, commit)
and the housekeeping one (restore, switch, snapshot). ``lock`` guards every field and the shard.

Protocol *apply* (agent):

1. the batch was found to be of the current assignment, and nothing of it is written;
2. the shard wrote it: journal, index, rows, outbox and cursor in one write.

A crash before 2 leaves the old cursor: the batch is read again. After 2 the cursor is behind the batch.

A batch carries the number of the assignment it was fetched under. Every assignment, pause and seek draws a new number,
so batches that were on their way when the position changed are dropped without a word, while a batch of the current
number that does not begin at the cursor is an error: a hole or a repetition can never be applied.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

from dalsegno.errors import DalsegnoError, LogHole, NotReconstructable, OtherHistory, StoreDamaged
from dalsegno.log.record import LogRecord
from dalsegno.model.cursor import Commit
from dalsegno.state.generations import PartitionFolder
from dalsegno.state.shard import Applied, Shard
from dalsegno.streams.quarantine import REPORTS_KEPT, Report, reports_of

log = logging.getLogger("dalsegno.streams")

RETRY_FIRST_SECONDS = 0.5
RETRY_LAST_SECONDS = 60.0
TRIAL_SECONDS = 5.0
"""How long after a retry began a partition stays red, unless a batch was applied: what failed is done again by then."""
STATUS_WAIT_SECONDS = 0.05
# What only an operator can mend, by another cluster, a reset or an accepted hole: trying again would only hide it.
FINAL_ERRORS = (OtherHistory, LogHole, NotReconstructable)

_assignments = itertools.count(1)


class PartitionState(StrEnum):
    RESTORING = "RESTORING"
    BUILDING = "BUILDING"
    CATCHING_UP = "CATCHING_UP"
    LIVE = "LIVE"
    STOPPED = "STOPPED"


class Fetched(NamedTuple):
    """A batch on its way from the reader to the agent: offsets ``start`` to ``end`` (the next one to read)."""

    partition: int
    assignment: int
    start: int
    end: int
    records: list[LogRecord]


class Partition:
    """The runtime of one assigned partition. Made at assignment, thrown away at revocation."""

    def __init__(self, number: int, folder: PartitionFolder, fault: Callable[[str], None]) -> None:
        self.number = number
        self.folder = folder
        self.lock = threading.RLock()
        self.drained = threading.Condition(self.lock)
        self.assignment = next(_assignments)
        self._fault = fault
        self.closing = False
        self.shard: Shard | None = None
        self.name: str | None = None
        """The shard's folder."""
        self.generation = ""
        self.base = ""
        self.emitter: str | None = None
        """Names the shard's copy in commits (``Shard.emitter``)."""
        self.committed: Commit | None = None
        self.schemas_seen = 0
        """How many schemas were known when the shard's held records were last looked at."""
        self.opened_at = 0
        """The cursor when the shard was opened: nothing beyond it was emitted by this life of the worker."""
        self.bound = 0
        """The emitter is silent below it; a build switches at it."""
        self.end = 0
        """The log's end as last seen."""
        self.building = False
        """True while the shard is built beside the one that is read."""
        self.switching = False
        self.changes = 0
        """Counts what may have put rows into the outbox: batches, retries, a switch."""
        self.clean_at = -1
        """``changes`` when the outbox was last seen empty."""
        self.outbox_failed = False
        """True from when the outbox could not be read, sent or cleared until that goes well. Nothing of it is sent
        while the partition stands, and batches alone bring no retry forward."""
        self.draining = False
        """True while the outbox needs several transactions; the shard then stands still (see the emitter)."""
        self.passed_over = 0
        """How often it did not fit into a transaction since it was last in one."""
        self.reports: deque[Report] = deque(maxlen=REPORTS_KEPT)
        self.reported_to = 0
        """What was set aside below it was reported when it came: by an older state, or before a replay."""
        self.error: Exception | None = None
        self.failures = 0
        self._last_error: Exception | None = None
        self._on_trial_until = 0.0
        self.retry_at: float | None = None
        self.end_at_assignment = 0
        self.records_since_snapshot = 0
        self.snapshot_at = time.monotonic()
        self.snapshot_missing = False
        """True while there is no snapshot of this generation."""
        self.snapshot_running = False
        self.snapshot_retry_at = 0.0
        self._status: dict[str, Any] = {}
        self._status = self._look()

    # --- what holds ------------------------------------------------------------------------------------------------

    @property
    def cursor(self) -> int | None:
        """The next offset that the shard will read; None while there is no shard."""
        shard = self.shard
        return None if shard is None else shard.cursor.next_offset

    @property
    def trouble(self) -> Exception | None:
        """What stopped the partition: also for a while after a retry began, for it may fail as before at once."""
        if self.error is not None:
            return self.error
        return self._last_error if time.monotonic() < self._on_trial_until else None

    @property
    def state(self) -> PartitionState:
        cursor = self.cursor
        if self.trouble is not None:
            return PartitionState.STOPPED
        if cursor is None:
            return PartitionState.RESTORING
        if self.building:
            return PartitionState.BUILDING
        return PartitionState.LIVE if cursor >= max(self.end, self.bound) else PartitionState.CATCHING_UP

    @property
    def may_emit(self) -> bool:
        cursor = self.cursor
        return not (self.closing or self.building or cursor is None) and cursor >= self.bound

    @property
    def outbox_is_empty(self) -> bool:
        """Known without looking: a look would step over all that was deleted there lately."""
        return self.clean_at == self.changes

    @property
    def at_bound(self) -> bool:
        cursor = self.cursor
        return cursor is not None and cursor >= self.bound

    def reached(self, bound: int) -> bool:
        """Whether everything below ``bound`` is applied, emitted and committed. False while somebody works on it."""
        if not self.lock.acquire(timeout=STATUS_WAIT_SECONDS):
            return False
        try:
            cursor = self.cursor
            if cursor is None or self.building or cursor < bound:
                return False
            commit = self.committed
            emitted = commit is not None and commit.offset >= bound and commit.generation == self.generation
            return emitted and self.outbox_is_empty
        finally:
            self.lock.release()

    def new_assignment(self) -> int:
        """A new number: batches that are on their way are dropped from now on."""
        with self.lock:
            self.assignment = next(_assignments)
            return self.assignment

    # --- applying --------------------------------------------------------------------------------------------------

    def apply(self, batch: Fetched) -> Applied | None:
        """Apply a batch; None when it is of an older assignment. Raises what the shard raises."""
        if batch.assignment != self.assignment:
            return None  # seen before waiting for the lock: a switch holds it for long
        with self.lock:
            # The shard stands still while its outbox goes out in several transactions, so that all of them show it at
            # one position.
            self.drained.wait_for(
                lambda: not self.draining or self.closing or batch.assignment != self.assignment, RETRY_LAST_SECONDS
            )
            if self.closing or self.shard is None or batch.assignment != self.assignment:
                return None
            self._fault("apply.1")
            self.changes += 1
            applied = self.shard.apply(self.generation, batch.start, batch.end, batch.records)
            self._fault("apply.2")
            if not self.outbox_failed:
                self.failures = 0
                self._on_trial_until = 0.0
            self.records_since_snapshot += len(batch.records)
            self.end = max(self.end, batch.end)
            if applied.set_aside:
                reasons = {offset: reason for offset, reason in applied.set_aside if offset >= self.reported_to}
                self.reports.extend(reports_of(batch.records, reasons))
            return applied

    def stop(self, error: Exception, **facts: object) -> None:
        """Turn red and say why in the log: nothing is read until ``retry_at``, or for good when only an operator can
        mend it. ``facts`` go into the log line."""
        if isinstance(error, StoreDamaged):
            error = self._with_a_way_out(error)
        with self.lock:
            self.error = self._last_error = error
            self.failures += 1
            self.new_assignment()
            if isinstance(error, FINAL_ERRORS):
                self.retry_at = None
            else:
                doublings = min(self.failures - 1, 10)  # a partition may fail for weeks
                wait = min(RETRY_LAST_SECONDS, RETRY_FIRST_SECONDS * 2**doublings)
                self.retry_at = time.monotonic() + wait
            failures = self.failures
            self.drained.notify_all()  # a batch that waits is dropped now
        log.error(
            "partition_stopped",
            extra={"partition": self.number, "error": str(error), "failures": failures, **facts},
            exc_info=None if isinstance(error, DalsegnoError) else error,
        )

    def _with_a_way_out(self, error: StoreDamaged) -> StoreDamaged:
        """The whole folder of the partition, since its pointer names the shard."""
        todo = (
            f"if it stays so, stop this worker, move the folder {self.folder.path} away, and start the worker again: "
            "the state is built again from the newest good snapshot, or from the log"
        )
        told = StoreDamaged(error.found, wanted=error.wanted, todo=todo, **error.data)
        told.__cause__ = error
        return told

    def try_again(self) -> None:
        """Let a stopped partition go on; it shows its trouble until that went well."""
        with self.lock:
            self.retry_at = None
            self.error = None
            self._on_trial_until = time.monotonic() + TRIAL_SECONDS

    def close(self) -> None:
        """Give the shard up. Waits for whoever works on it."""
        self.closing = True
        with self.lock:
            self.drained.notify_all()
            if self.shard is not None:
                self.shard.close()
                self.shard = None

    # --- being seen ------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """One partition of ``status.json``; the last one again while a long piece of work holds the shard."""
        if self.lock.acquire(timeout=STATUS_WAIT_SECONDS):
            try:
                self._status = self._look()
            finally:
                self.lock.release()
        return self._status

    def _look(self) -> dict[str, Any]:
        cursor, error = self.cursor, self.trouble
        return {
            "state": self.state.value,
            "reason": None if error is None else describe(error),
            "generation": self.generation or None,
            "base": self.base or None,
            "folder": self.name,
            "building": self.building,
            "cursor": cursor,
            "bound": self.bound,
            "committed": None if self.committed is None else self.committed.offset,
            "committed_generation": None if self.committed is None else self.committed.generation,
            "end": self.end,
            "behind": None if cursor is None else max(0, self.end - cursor),
            "outbox_empty": self.outbox_is_empty,
            "held_sessions": None if self.shard is None else self.shard.held_sessions,
            "failures": self.failures,
        }


def describe(error: Exception) -> str:
    """An error in one line, with its class: what an operator reads in the status."""
    slug = error.slug if isinstance(error, DalsegnoError) else type(error).__name__
    return f"{slug}: {error}"

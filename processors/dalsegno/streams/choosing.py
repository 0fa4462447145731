"""What goes into the next transaction: whole outboxes, until it is full. Step 1 of the protocol *emit*.

Who did not fit beside the others is remembered, and comes before them in the next transaction: else a partition with
more rows than the others leave room for would wait as long as any of them moves.

A partition whose lock is held for long (a snapshot is begun, a batch meets a slow disk) is left out of this
transaction: rebalances wait for the emitter, so it waits for nobody without a limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from dalsegno.model.cursor import Commit
from dalsegno.state.shard import OutboxItem, Shard
from dalsegno.streams.config import WorkerConfig
from dalsegno.streams.partition import STATUS_WAIT_SECONDS, Partition

PATIENCE_SECONDS = 1.0
"""How long one choice may wait for partitions that are worked on, all together; after that ``STATUS_WAIT_SECONDS`` for
each. Longer than a batch takes, for a busy partition is hardly ever free; far shorter than a rebalance waits."""


class Chosen(NamedTuple):
    """What one partition puts into a transaction. ``whole``: nothing stays in its outbox.

    ``reports``: how many of the rows are for the quarantine.
    """

    partition: Partition
    items: list[OutboxItem]
    rows: list[tuple[str, bytes, bytes | None]]
    commit: Commit
    whole: bool
    reports: int
    changes: int


class Chooser:
    """Chooses for the emitter, in its thread."""

    def __init__(
        self, config: WorkerConfig, worker_id: str, table: Mapping[int, Partition], topic_of: Callable[[str], str]
    ) -> None:
        self._config = config
        self._worker_id = worker_id
        self._table = table
        self._topic_of = topic_of
        self.left_over = False
        """Whether the last choice left rows for another transaction at once."""

    def choose(self, patience_seconds: float = PATIENCE_SECONDS) -> list[Chosen]:
        """Whole partitions until the limit is reached; the rest is for the next transaction."""
        until = time.monotonic() + patience_seconds
        left = self._config.rows_per_transaction
        chosen: list[Chosen] = []
        self.left_over = False
        for partition in sorted(self._table.values(), key=lambda each: (not each.draining, -each.passed_over)):
            # May it? Seen before waiting for the lock: a build holds it for long.
            if not partition.may_emit or (partition.outbox_failed and partition.error is not None):
                continue
            if left <= 0:
                self._pass_over(partition)
                continue
            try:
                part = self._choose_from(partition, left, first=not chosen, until=until)
            except Exception as error:
                # A shard that cannot be read keeps its own rows back, and nobody else's. It is said once per retry.
                outbox_fails(partition, error)
                continue
            if part is not None:
                chosen.append(part)
                left -= len(part.rows)
                self.left_over |= not part.whole
        return chosen

    def _pass_over(self, partition: Partition) -> None:
        partition.passed_over += 1
        self.left_over = True

    def _choose_from(self, partition: Partition, limit: int, *, first: bool, until: float) -> Chosen | None:
        if not partition.lock.acquire(timeout=max(STATUS_WAIT_SECONDS, until - time.monotonic())):
            return None
        try:
            shard = partition.shard
            if shard is None or not partition.may_emit:
                return None
            items = [] if partition.outbox_is_empty else shard.outbox(limit + 1)
            whole = len(items) <= limit
            if not whole and not first:
                self._pass_over(partition)  # it does not fit beside the others, but perhaps alone
                return None
            return self._take(partition, shard, items[:limit], whole=whole)
        finally:
            partition.lock.release()

    def _take(self, partition: Partition, shard: Shard, items: list[OutboxItem], *, whole: bool) -> Chosen | None:
        now = Commit(shard.cursor.next_offset, partition.generation, partition.base, partition.emitter)
        before = Commit(partition.opened_at) if partition.committed is None else partition.committed
        commit = now if whole else now._replace(offset=before.offset)
        reports = list(partition.reports)
        if not items:
            partition.clean_at = partition.changes
            if not reports and commit == partition.committed:
                outbox_is_well(partition)
                return None
        partition.draining = not whole
        rows: list[tuple[str, bytes, bytes | None]] = []
        for item in items:
            key, value = shard.current(item)
            rows.append((self._topic_of(item.projection), key, value))
        rows += [
            (self._config.names.quarantine, *report.encode(partition.number, self._worker_id)) for report in reports
        ]
        return Chosen(partition, items, rows, commit, whole, len(reports), partition.changes)


def outbox_is_well(partition: Partition) -> None:
    """It was looked at, and is empty or was sent."""
    partition.outbox_failed = False
    partition.passed_over = 0


def outbox_fails(partition: Partition, error: Exception) -> None:
    """Send nothing of it until it is retried: the same rows would go out, or be refused, at every tick."""
    partition.outbox_failed = True
    if partition.error is None:
        partition.stop(error)

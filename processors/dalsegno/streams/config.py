"""What a worker is told, and the names that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.topics import EVENTS, topic_name, worker_group
from dalsegno.projections.base import Projection
from dalsegno.storage.object_store import Store

# `committed()` blocks while a transaction with offsets of ours is pending. The coordinator ends one that ran into its
# time-out on a round every 10 s, so after a kill that takes up to the time-out and 10 s more: the limit is above that.
COORDINATOR_ROUND_SECONDS = 10.0


def no_fault(step: str) -> None:
    """What runs at each numbered step of a protocol: nothing."""


@dataclass(frozen=True)
class WorkerConfig:
    """How one worker works. Times in seconds.

    ``data`` is the folder of the slots, ``store`` holds the snapshots. ``projections`` None means all that are
    installed. ``slot`` None means the first free one. ``max_behind_offsets``: a local shard that is further behind a
    good snapshot of its generation gives way to it. ``fault`` is called with the name of each protocol step that was
    done; tests end the process there.
    """

    kafka: KafkaConfig
    prefix: str
    data: Path
    store: Store
    projections: Sequence[Projection[Any]] | None = None
    slot: int | None = None
    emit_interval_seconds: float = 0.2
    session_timeout_seconds: float = 10.0
    transaction_timeout_seconds: float = 10.0
    snapshot_every_events: int = 200_000
    snapshot_every_seconds: float = 900.0
    max_behind_offsets: int = 100_000
    rows_per_transaction: int = 10_000
    records_per_batch: int = 10_000
    fault: Callable[[str], None] = no_fault

    @property
    def commit_read_seconds(self) -> float:
        """The limit for reading committed offsets: longer than any pending transaction can last."""
        return self.transaction_timeout_seconds + 2 * COORDINATOR_ROUND_SECONDS

    @property
    def names(self) -> Names:
        return Names(self.prefix)


class Names(NamedTuple):
    """Topics and group of one prefix."""

    prefix: str

    @property
    def events(self) -> str:
        return topic_name(self.prefix, EVENTS)

    @property
    def control(self) -> str:
        return topic_name(self.prefix, "control")

    @property
    def quarantine(self) -> str:
        return topic_name(self.prefix, "quarantine")

    @property
    def group(self) -> str:
        return worker_group(self.prefix)

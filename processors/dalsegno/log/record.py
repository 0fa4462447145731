"""A record as the log gives it: bytes and where they stand. Nothing here knows Kafka's client."""

from __future__ import annotations

from typing import NamedTuple

from dalsegno.model.ids import Offset


class LogRecord(NamedTuple):
    """One record of one partition. ``value`` None is a tombstone; ``timestamp_ms`` is the broker's (append time)."""

    offset: Offset
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    leader_epoch: int


class Batch(NamedTuple):
    """What one read gave: from where, the records, and where to read next.

    ``next_offset`` is the last record's offset + 1 or the offset of the partition's end, whichever is greater, so it
    also stands behind transaction markers and behind records that compaction removed. ``records`` may be empty.
    """

    start: Offset
    records: list[LogRecord]
    next_offset: Offset

"""Reports of records that are none of ours, for the topic ``<prefix>.quarantine``. A report is never an input."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from dalsegno.log.codec import encode_record
from dalsegno.log.record import LogRecord
from dalsegno.model.ids import parse_key

VALUE_BYTES = 64 * 1024
KEY_BYTES = 1024
"""Of a record's key and value as they are reported: the report of the largest record must fit into a message."""
REPORTS_KEPT = 1_000
"""Per partition, until the next transaction; of a flood only the newest are reported."""


class Report(NamedTuple):
    """A record that was set aside, and why. It holds the beginning of the record alone: a flood of large ones must not
    fill the memory."""

    offset: int
    reason: str
    key: bytes | None
    value: bytes | None
    value_size: int | None
    value_digest: bytes | None

    @classmethod
    def of(cls, record: LogRecord, reason: str) -> Report:
        key, value = record.key, record.value
        return cls(
            record.offset,
            reason,
            None if key is None else key[:KEY_BYTES],
            None if value is None else value[:VALUE_BYTES],
            None if value is None else len(value),
            None if value is None else sha256(value).digest(),
        )

    def encode(self, partition: int, worker_id: str) -> tuple[bytes, bytes]:
        """Key and value for the quarantine topic."""
        named = None if self.key is None else parse_key(self.key)
        report = {
            "partition": partition,
            "offset": self.offset,
            "reason": self.reason,
            "reported_at": int(time.time() * 1_000_000),
            "worker": worker_id,
            "session_id": None if named is None else named.session_id,
            "seq": None if named is None else named.seq,
            "detail": None,
            "value_size": self.value_size,
            "value_digest": self.value_digest,
            "key": self.key,
            "value": self.value,
        }
        return f"{partition}:{self.offset}".encode(), encode_record("Quarantined", report)


def reports_of(records: Sequence[LogRecord], reasons: Mapping[int, str]) -> list[Report]:
    """Reports of the records at these offsets; of a flood those of the newest."""
    wanted = frozenset(sorted(reasons)[-REPORTS_KEPT:])
    return [Report.of(record, reasons[record.offset]) for record in records if record.offset in wanted]

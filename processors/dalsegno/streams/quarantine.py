"""Reports of records that are none of ours, for the topic ``<prefix>.quarantine``. A report is never an input."""

from __future__ import annotations

import time
from hashlib import sha256
from typing import NamedTuple

from dalsegno.log.codec import encode_record
from dalsegno.log.record import LogRecord
from dalsegno.model.ids import parse_key

VALUE_BYTES = 64 * 1024
REPORTS_KEPT = 1_000
"""Per partition, until the next transaction; of a flood only the newest are reported."""


class Report(NamedTuple):
    """A record that was set aside, and why."""

    record: LogRecord
    reason: str

    def encode(self, partition: int, worker_id: str) -> tuple[bytes, bytes]:
        """Key and value for the quarantine topic."""
        key, value = self.record.key, self.record.value
        named = None if key is None else parse_key(key)
        report = {
            "partition": partition,
            "offset": self.record.offset,
            "reason": self.reason,
            "reported_at": int(time.time() * 1_000_000),
            "worker": worker_id,
            "session_id": None if named is None else named.session_id,
            "seq": None if named is None else named.seq,
            "detail": None,
            "value_size": None if value is None else len(value),
            "value_digest": None if value is None else sha256(value).digest(),
            "key": key,
            "value": None if value is None else value[:VALUE_BYTES],
        }
        return f"{partition}:{self.record.offset}".encode(), encode_record("Quarantined", report)

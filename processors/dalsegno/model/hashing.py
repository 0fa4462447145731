"""The hash chain: what an event's hash is, and when one record may follow another. Pure.

Source of the rules: ``schemas/README.md``, sections "Hash" and "Envelope".
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from dalsegno.model.ids import HASH_BYTES
from dalsegno.model.records import CONTROL_SEQ, FIRST_SEQ, Link


def event_hash(schema_hash: bytes, body: bytes) -> bytes:
    """SHA-256 over the writer schema's hash (32 bytes) and the Avro body without framing: an event's identity."""
    return sha256(schema_hash + body).digest()


def is_well_placed(seq: int, prev_hash: bytes | None) -> bool:
    """Whether seq and ``prev_hash`` agree: only control events (seq 0) and first events have no predecessor."""
    if seq in (CONTROL_SEQ, FIRST_SEQ):
        return prev_hash is None
    return seq > FIRST_SEQ and prev_hash is not None and len(prev_hash) == HASH_BYTES


def follows(before: Link | None, after: Link) -> bool:
    """Whether ``after`` may stand directly behind ``before`` (None: at the start of a session)."""
    if before is None:
        return after.seq == FIRST_SEQ and after.prev_hash is None
    return after.seq == before.seq + 1 and after.prev_hash == before.hash and after.epoch >= before.epoch


def first_break(links: Iterable[Link]) -> Link | None:
    """The first link that does not follow the one before it (the first one: that is no start); None if all do."""
    before: Link | None = None
    for link in links:
        if not follows(before, link):
            return link
        before = link
    return None

"""What a shard must still tell its topics: its public rows merged with what the topics hold.

Used when a partition goes over to a shard that was built beside: its own outbox names every row that the building
touched, while only those count that differ from what was emitted before, by whomever.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from dalsegno.projections.base import Projection
from dalsegno.state.keys import OUTBOX, ROW, TOTAL, family_prefix, id_part, outbox_key, session_row_key
from dalsegno.state.kv import STATE, KeyValue, after_prefix
from dalsegno.state.outbox import RowForms

# Not the number of any batch, so a later change of the row is told apart from this entry.
_TOKEN = b"\xff" * 8
_ROWS_PER_WRITE = 10_000
_DIGEST_BYTES = 16


def value_digest(value: bytes) -> bytes:
    """Stands for a row's value while the sides are compared: memory then holds 16 bytes a row, whatever its size."""
    return hashlib.blake2b(value, digest_size=_DIGEST_BYTES).digest()


def clear_all(kv: KeyValue) -> None:
    """Empty the outbox."""
    batch = kv.batch()
    batch.delete_range(STATE, OUTBOX, after_prefix(OUTBOX))
    kv.write(batch)


def add_differences(kv: KeyValue, forms: RowForms, projection: Projection[Any], emitted: dict[bytes, bytes]) -> int:
    """Put into the outbox what differs from ``emitted`` (topic key -> digest of the value): changed and new rows, and
    rows that are gone. ``emitted`` is used up: a copy would be as large as the topic has keys. Written in bounded
    parts, so it must be done again after a crash. Returns how many."""
    count = 0
    batch = kv.batch()
    for row_key in _differing(kv, forms, projection, emitted):
        batch.put(STATE, outbox_key(row_key), _TOKEN)
        count += 1
        if count % _ROWS_PER_WRITE == 0:
            kv.write(batch)
            batch = kv.batch()
    kv.write(batch)
    return count


def _differing(
    kv: KeyValue, forms: RowForms, projection: Projection[Any], emitted: dict[bytes, bytes]
) -> Iterator[bytes]:
    name = projection.name
    for row_key, row in forms.public_rows(kv, name):
        digest = value_digest(forms.value(name, row))
        if emitted.pop(forms.topic_key(row_key), None) != digest:
            yield row_key
    for topic_key in emitted:
        gone = _row_key(projection, topic_key)
        if gone is not None:
            yield gone


def _row_key(projection: Projection[Any], topic_key: bytes) -> bytes | None:
    """The row's key here for a key of the topic; None for one that is none of ours."""
    try:
        parts = json.loads(topic_key)
    except ValueError:
        return None
    if not isinstance(parts, list) or not parts or not all(type(part) in (str, int) for part in parts):
        return None
    if projection.rollup:
        return family_prefix(TOTAL, projection.name) + id_part(tuple(parts))
    if not isinstance(parts[0], str):
        return None
    return session_row_key(ROW, projection.name, parts[0], tuple(parts[1:]))

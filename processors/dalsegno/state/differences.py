"""What a shard must still tell its topics: its public rows merged with what the topics hold.

Used when a partition goes over to a shard that was built beside: its own outbox names every row that the building
touched, while only those count that differ from what was emitted before, by whomever.

A topic is in the order of its writing, a shard's rows in that of their keys. So what the topic holds is sorted in a
store of its own first, and the two are merged: nothing here grows with the number of rows but that store, on disk.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Iterator
from typing import Any

from dalsegno.log.record import LogRecord
from dalsegno.projections.base import Projection
from dalsegno.state.keys import OUTBOX, ROW, TOTAL, family_prefix, id_part, outbox_key, session_row_key, topic_key
from dalsegno.state.kv import STATE, KeyReader, KeyValue, after_prefix, scan_prefix
from dalsegno.state.outbox import RowForms

# Not the number of any batch, so a later change of the row is told apart from this entry.
_TOKEN = b"\xff" * 8
_ROWS_PER_WRITE = 10_000
_DIGEST_BYTES = 16


def clear_all(kv: KeyValue) -> None:
    """Empty the outbox."""
    batch = kv.batch()
    batch.delete_range(STATE, OUTBOX, after_prefix(OUTBOX))
    kv.write(batch)


def note_emitted(emitted: KeyValue, projection: Projection[Any], records: Iterable[LogRecord]) -> None:
    """Take the next records of a projection's topic into ``emitted``: row key -> digest of the value, the last one
    counts. Records whose key no row can have are left out."""
    batch = emitted.batch()
    for record in records:
        row_key = None if record.key is None else _row_key(projection, record.key)
        if row_key is None:
            continue
        if record.value is None:
            batch.delete(STATE, row_key)
        else:
            batch.put(STATE, row_key, _digest(record.value))
    emitted.write(batch)


def add_differences(kv: KeyValue, forms: RowForms, projection: Projection[Any], emitted: KeyReader) -> int:
    """Put into the outbox what differs from ``emitted`` (see ``note_emitted``): changed and new rows, and rows that are
    gone. Written in bounded parts, so it must be done again after a crash. Returns how many."""
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


def _differing(kv: KeyReader, forms: RowForms, projection: Projection[Any], emitted: KeyReader) -> Iterator[bytes]:
    """Keys of rows that only one side has, or that differ: a merge of two sorted sides, one entry of each at a time."""
    name = projection.name
    sent = scan_prefix(emitted, STATE, family_prefix(TOTAL if projection.rollup else ROW, name))
    sent_key, sent_digest = next(sent, _END)
    for row_key, row in forms.public_rows(kv, name):
        while sent_key is not None and sent_key < row_key:
            yield sent_key
            sent_key, sent_digest = next(sent, _END)
        if sent_key != row_key:
            yield row_key
            continue
        if sent_digest != _digest(forms.value(name, row)):
            yield row_key
        sent_key, sent_digest = next(sent, _END)
    while sent_key is not None:
        yield sent_key
        sent_key, _ = next(sent, _END)


_END: tuple[None, bytes] = (None, b"")


def _digest(value: bytes) -> bytes:
    """Stands for a row's value: the store then holds 16 bytes a row, whatever its size."""
    return hashlib.blake2b(value, digest_size=_DIGEST_BYTES).digest()


def _row_key(projection: Projection[Any], key: bytes) -> bytes | None:
    """The row's key here for a key of the topic; None for one that is none of ours."""
    try:
        parts = json.loads(key)
        if not isinstance(parts, list) or not parts or not all(type(part) in (str, int) for part in parts):
            return None
        if topic_key(tuple(parts)) != key:
            return None  # another spelling of a row's key is another record to its readers
        if projection.rollup:
            return family_prefix(TOTAL, projection.name) + id_part(tuple(parts))
        if not isinstance(parts[0], str):
            return None
        return session_row_key(ROW, projection.name, parts[0], tuple(parts[1:]))
    except (ValueError, OverflowError, RecursionError, struct.error):
        return None

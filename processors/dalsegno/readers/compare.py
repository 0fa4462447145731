"""Two states of one partition side by side, and one state against its own journal. Streams: memory is bounded."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from dalsegno.errors import StoreDamaged
from dalsegno.model.ids import parse_key
from dalsegno.readers.local import View
from dalsegno.state.keys import INDEX, TOTAL, index_key, journal_key, split_index, take_id, take_text
from dalsegno.state.kv import JOURNAL, SCAN_CHUNK_ROWS, STATE, KeyReader, scan_prefix
from dalsegno.state.ladder import split_image
from dalsegno.state.layout import IndexEntry, JournalEntry
from dalsegno.state.tables import TableSpec

JOURNAL_NAME, DIGEST, AMENDMENT = "journal", "digest", "amendment"
OWN_INDEX = "its own index"
_OFFSET_BYTES = 8
_SHOWN_HEX = 32
_MALFORMED = (ValueError, IndexError, struct.error)
"""What a key or an index row with changed bytes breaks in."""


class Difference(NamedTuple):
    """One thing that is not as it should be. ``what`` is a projection's name, or journal, digest or amendment."""

    what: str
    partition: int
    session: str | None
    place: str
    """The row's id and field, or the seq of a record."""
    live: Any
    expected: Any
    beside: str
    """What the live state was compared with: the log, a snapshot, its own index, journal or rows, the admin audit."""


class Indexed(NamedTuple):
    """One row of the index: a record that the state knows."""

    session: str
    seq: int
    hash: bytes
    entry: IndexEntry


def indexed(kv: KeyReader) -> Iterator[Indexed]:
    """Every record that the index names, session by session. Raises StoreDamaged for a row that is none."""
    for key, raw in scan_prefix(kv, STATE, INDEX):
        try:
            session, at = take_text(key, len(INDEX))
            yield Indexed(session, *split_index(key, at), IndexEntry.decode(raw))
        except _MALFORMED as error:
            raise StoreDamaged(
                f"the index holds the row {key.hex()}, which names no record: {error}",
                todo="set the shard aside; it is built again from a snapshot or from the log",
                key=key.hex(),
            ) from error


# --- a state against its own journal ----------------------------------------------------------------------------------


def journal_differences(view: View) -> Iterator[Difference]:
    """Records that the index names and the journal lacks, or whose bytes do not hash to their name; and records that
    the journal holds although nothing names them any more."""
    kv, named = view.reads.kv, 0
    rows = indexed(kv)
    while chunk := list(islice(rows, SCAN_CHUNK_ROWS)):
        named += len(chunk)
        found = kv.multi_get(JOURNAL, [journal_key(row.entry.offset) for row in chunk])
        for row, raw in zip(chunk, found, strict=True):
            problem = "absent" if raw is None else _problem(row, raw)
            if problem is not None:
                named -= raw is None
                yield Difference(
                    JOURNAL_NAME,
                    view.partition,
                    row.session,
                    f"seq {row.seq}",
                    problem,
                    row.hash.hex(),
                    "its own index",
                )
    if sum(1 for _ in kv.scan(JOURNAL)) > named:
        yield from _unnamed(view)


def _problem(row: Indexed, raw: bytes) -> str | None:
    """What is wrong with the journal's entry for a record; None if nothing is."""
    entry = _decoded(raw)
    if entry is None:
        return f"no entry: {raw.hex()[:_SHOWN_HEX]}"
    if parse_key(entry.key) != (row.session, row.seq, row.hash):
        return f"the key {entry.key!r}"
    if entry.is_raw:
        return None  # the hash is over a schema that is not known here
    found = sha256(entry.schema + entry.body).digest()
    return None if found == row.hash else found.hex()


def _unnamed(view: View) -> Iterator[Difference]:
    for at, raw in view.reads.kv.scan(JOURNAL):
        offset = int.from_bytes(at, "big")
        entry = _decoded(raw)
        key = None if entry is None else parse_key(entry.key)
        named = None if key is None else view.reads.kv.get(STATE, index_key(*key))
        if named is None or IndexEntry.decode(named).offset != offset:
            session = None if key is None else key.session_id
            place = f"offset {offset}" if key is None else f"seq {key.seq} at offset {offset}"
            yield _in_journal(view, session, place, "present", "absent", OWN_INDEX)


def entry_at(kv: KeyReader, offset: int) -> JournalEntry | None:
    """The journal's entry at this offset; None also where its bytes are none."""
    raw = kv.get(JOURNAL, journal_key(offset))
    return None if raw is None else _decoded(raw)


def _decoded(raw: bytes) -> JournalEntry | None:
    try:
        return JournalEntry.decode(raw)
    except _MALFORMED:
        return None


def _in_journal(view: View, session: str | None, place: str, live: str, expected: str, beside: str) -> Difference:
    return Difference(JOURNAL_NAME, view.partition, session, place, live, expected, beside)


# --- two states -------------------------------------------------------------------------------------------------------


def index_differences(view: View, expected: KeyReader, beside: str) -> Iterator[Difference]:
    """Records that only one of them knows, or that they know differently. Offsets do not count: of a repeat, either
    copy may be the one that is kept."""
    for key, live, other in _merged(view.reads.kv, expected, INDEX):
        mine, theirs = live and live[_OFFSET_BYTES:], other and other[_OFFSET_BYTES:]
        if mine != theirs:
            session, at = _session(key, len(INDEX))
            place = f"seq {split_index(key, at)[0]}" if session is not None else key.hex()
            yield _in_journal(view, session, place, _shown(mine), _shown(theirs), beside)


def row_differences(view: View, expected: KeyReader, specs: Sequence[TableSpec], beside: str) -> Iterator[Difference]:
    """Rows that differ, table by table in key order; then earlier versions of rows that do."""
    for spec in specs:
        for key, live, other in _merged(view.reads.kv, expected, spec.prefix):
            if live != other:
                yield _named(view.partition, spec, key, live, other, beside)
    for spec in [spec for spec in specs if spec.ladder_prefix]:
        for key, live, other in _merged(view.reads.kv, expected, spec.ladder_prefix):
            if live != other:
                row_key, window = split_image(key)
                found = _named(view.partition, spec, row_key, live, other, beside)
                yield found._replace(place=f"{found.place}, before window {window}")


def _merged(left: KeyReader, right: KeyReader, prefix: bytes) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Merge-join of two tables in key order."""
    ours, theirs = scan_prefix(left, STATE, prefix), scan_prefix(right, STATE, prefix)
    one, other = next(ours, None), next(theirs, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one[0] < other[0]):
            assert one is not None
            yield one[0], one[1], None
            one = next(ours, None)
        elif one is None or other[0] < one[0]:
            yield other[0], None, other[1]
            other = next(theirs, None)
        else:
            yield one[0], one[1], other[1]
            one, other = next(ours, None), next(theirs, None)


def _named(
    partition: int, spec: TableSpec, key: bytes, live: bytes | None, expected: bytes | None, beside: str
) -> Difference:
    at = len(spec.prefix)
    session: str | None = None
    if spec.kind != TOTAL:
        session, at = _session(key, at)
    try:
        row_id = "/".join(str(part) for part in take_id(key, at))
    except _MALFORMED:
        row_id = key.hex()
    field, shown, wanted = _field(spec, live, expected)
    place = " ".join(part for part in (row_id, field) if part)
    return Difference(spec.projection, partition, session, place, shown, wanted, beside)


def _session(key: bytes, at: int) -> tuple[str | None, int]:
    try:
        return take_text(key, at)
    except _MALFORMED:
        return None, at


def _field(spec: TableSpec, live: bytes | None, expected: bytes | None) -> tuple[str, Any, Any]:
    """The first field that differs, and both values."""
    if live is None or expected is None:
        return "whole row", "absent" if live is None else "present", "absent" if expected is None else "present"
    try:
        shown, wanted = spec.decode(live), spec.decode(expected)
    except msgspec.MsgspecError as error:
        return f"whole row ({error})", _shown(live), _shown(expected)
    for name in wanted.__struct_fields__:
        if getattr(shown, name) != getattr(wanted, name):
            return name, getattr(shown, name), getattr(wanted, name)
    return "encoding", _shown(live), _shown(expected)


def _shown(raw: bytes | None) -> str:
    return "absent" if raw is None else raw.hex()[:_SHOWN_HEX] or "present"

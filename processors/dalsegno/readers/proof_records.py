"""A session's records for a proof, sorted by what they are, and what already shows on each of them alone. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dalsegno.log.codec import FRAME_BYTES, WRONG_HASH, WRONG_PARTITION, WRONG_PLACE, event_hash, place, read_meta
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.hashing import is_well_placed
from dalsegno.model.ids import EventKey, parse_key
from dalsegno.model.records import Event, SetAside, Tombstone, Unreadable

CUT_MIDDLE = "cut-middle"
"""Records are missing below others that are there."""
CUT_TAIL = "cut-tail"
"""Somebody knows an end that is not there."""
SWAPPED = "swapped"
"""Two records stand in each other's place."""
FORGED = "forged"
"""A record's bytes are not those that its key names, or it stands where its neighbours name another."""
STRIPPED = "stripped-hash"
"""A record without the hash that it must carry, in its key or of its predecessor."""
MISPLACED = "misplaced"
"""A record in another partition than its session's."""
UNAUDITED = "unaudited-amendment"
"""The log has an amendment that nobody with the rights of an operator asked for."""
MISSING_AMENDMENT = "missing-amendment"
"""An operator asked for an amendment that the log does not have: it was interrupted, or taken away."""

_SHORT = 12
_HALF = re.compile(rb"(.+):([0-9]{1,19})(?::[0-9a-fA-F]*)?\Z", re.DOTALL)


class Raw(NamedTuple):
    """One record as it was found."""

    key: bytes | None
    value: bytes | None
    partition: int
    offset: int


class Doubt(NamedTuple):
    """Something that an untouched history does not show. ``kind``: one of the words above."""

    kind: str
    seq: int | None
    text: str


@dataclass
class Found:
    """A session's records, sorted by what they are."""

    session_id: str
    partitions: int
    schemas: SchemaSet
    count: int = 0
    last: dict[bytes, Raw] = field(default_factory=dict)
    events: dict[bytes, Event] = field(default_factory=dict)
    dark: dict[bytes, Unreadable] = field(default_factory=dict)
    gone: dict[int, EventKey] = field(default_factory=dict)
    """Tombstones by seq."""
    aside: dict[int, str] = field(default_factory=dict)
    """Seqs at which stands what no reader takes: what is missing there is explained by it."""
    doubts: list[Doubt] = field(default_factory=list)

    def take(self, record: Raw) -> None:
        key = None if record.key is None else parse_key(record.key)
        if key is not None:
            if key.session_id == self.session_id:
                self.count += 1
                self.last[record.key] = record  # type: ignore[index]
            return
        place_ = claimed(self.schemas, record)
        if place_ is None or place_[0] != self.session_id:
            return
        self.count += 1
        self._aside(
            STRIPPED, place_[1], f"offset {record.offset} has {_shown(record.key)}, without the hash of its event"
        )

    def sort(self) -> None:
        wrong: dict[bytes, EventKey] = {}
        for raw, record in self.last.items():
            key = parse_key(raw)
            assert key is not None
            placed = place(self.schemas, raw, record.value, record.partition, self.partitions)
            if isinstance(placed, Event):
                self.events[key.hash] = placed
            elif isinstance(placed, Unreadable):
                self.dark[key.hash] = placed
            elif isinstance(placed, Tombstone):
                self.gone[key.seq] = key
            elif placed.reason == WRONG_HASH:
                wrong[raw] = key
            else:
                self._set_aside(key, record, placed)
        self._exchanged(wrong)

    def _set_aside(self, key: EventKey, record: Raw, placed: SetAside) -> None:
        if placed.reason == WRONG_PARTITION:
            self._aside(MISPLACED, key.seq, f"offset {record.offset} stands in partition {record.partition}")
            return
        meta = read_meta(self.schemas, record.value or b"")
        if placed.reason == WRONG_PLACE and meta is not None and not is_well_placed(meta["seq"], meta["prev_hash"]):
            self._aside(STRIPPED, key.seq, f"offset {record.offset} does not name its predecessor's hash")
        else:
            self._aside(FORGED, key.seq, f"offset {record.offset} is not the event that its key names: {placed.reason}")

    def _exchanged(self, wrong: Mapping[bytes, EventKey]) -> None:
        """Records whose bytes have another hash than their key: each other's, or one that nobody names."""
        by_hash = {key.hash: key for key in wrong.values()}
        for raw, key in wrong.items():
            record = self.last[raw]
            other = next((by_hash[hash_] for hash_ in self._hashes(record.value) if hash_ in by_hash), None)
            if other is None:
                self._aside(FORGED, key.seq, f"the bytes at offset {record.offset} do not have the hash of their key")
            else:
                self._aside(SWAPPED, key.seq, f"at offset {record.offset} stand the bytes of seq {other.seq}")

    def _hashes(self, value: bytes | None) -> Iterator[bytes]:
        value = value or b""
        for writer in self.schemas.all_by_frame(value[2:FRAME_BYTES]):
            yield event_hash(writer, value[FRAME_BYTES:])

    def _aside(self, kind: str, seq: int | None, text: str) -> None:
        self.doubts.append(Doubt(kind, seq, text))
        if seq is not None:
            self.aside[seq] = kind


def claimed(schemas: SchemaSet, record: Raw) -> tuple[str, int] | None:
    """The session and seq that a record says it is of: by its key, else by its bytes, else by what is left of its
    key."""
    key = None if record.key is None else parse_key(record.key)
    if key is not None:
        return key.session_id, key.seq
    meta = read_meta(schemas, record.value or b"")
    return _half_a_key(record.key) if meta is None else (meta["session_id"], meta["seq"])


def _half_a_key(key: bytes | None) -> tuple[str, int] | None:
    """Session and seq of a key that has lost its hash."""
    match = None if key is None else _HALF.match(key)
    if match is None:
        return None
    return match.group(1).decode("utf-8", "replace"), int(match.group(2))


def _shown(key: bytes | None) -> str:
    return "no key" if key is None else f"the key {key[:80]!r}"


def short(hash_: bytes) -> str:
    return hash_.hex()[:_SHORT]

"""Is this the whole, untouched history of a session? Judged from its records alone, and from what others know of it.

Pure: ``prove`` is given the bytes as the log, or an export, has them, and reads nothing else. The chain shows every
change in the middle: a record's key follows from its bytes, and each record names its predecessor's hash. It cannot
show that its end is missing: that shows only beside somebody who knows the end (a shard, a snapshot, the export's last
lines).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from dalsegno.log.codec import FRAME_BYTES, WRONG_HASH, WRONG_PARTITION, WRONG_PLACE, event_hash, place, read_meta
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.amendments import read_amendment
from dalsegno.model.hashing import is_well_placed
from dalsegno.model.history import Known, gather
from dalsegno.model.ids import EventKey, parse_key
from dalsegno.model.path import BROKEN_CHAIN, EPOCH_BELOW, GAP, NO_START, Held, Path
from dalsegno.model.records import (
    AMENDMENT_TYPE,
    CONTROL_SEQ,
    UNREADABLE_REASONS,
    Event,
    SetAside,
    Tombstone,
    Unreadable,
)

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

_CHAIN_REASONS = frozenset({GAP, NO_START, BROKEN_CHAIN, EPOCH_BELOW})
_RECOVERY = "SessionRecovered"
_SHORT = 12
_HALF = re.compile(rb"(.+):([0-9]{1,19})(?::[0-9a-fA-F]*)?\Z", re.DOTALL)


class Raw(NamedTuple):
    """One record as it was found."""

    key: bytes | None
    value: bytes | None
    partition: int
    offset: int


class Anchor(NamedTuple):
    """A record that somebody knows to be part of the session: ``source`` says who."""

    source: str
    seq: int
    hash: bytes


class Doubt(NamedTuple):
    """Something that an untouched history does not show. ``kind``: one of the words above."""

    kind: str
    seq: int | None
    text: str


class Proof(NamedTuple):
    """What the records of a session show. ``unproven``: what could not be looked into here, which is no doubt."""

    session_id: str
    records: int
    path: Path
    amendments: int
    doubts: tuple[Doubt, ...]
    unproven: tuple[str, ...]


class Audit(NamedTuple):
    """What the admin audit knows: request ids of everything, and of those that ask to amend this session."""

    known: frozenset[str]
    asked: frozenset[str] = frozenset()


def prove(
    session_id: str,
    records: Iterable[Raw],
    *,
    partitions: int,
    schemas: SchemaSet,
    audit: Audit,
    anchors: Iterable[Anchor] = (),
) -> Proof:
    """Judge all records of a session, in the order of the log. Records of other sessions are left out; per key the
    last one counts, as it does for every reader."""
    found = _Found(session_id, partitions, schemas)
    for record in records:
        found.take(record)
    found.sort()
    known = gather([*found.events.values(), *found.dark.values()]).known
    path = known.choose()
    doubts = list(found.doubts)
    if not known.amended.whole_session:
        doubts += _of_chain(found, known)
        doubts += _of_epochs(found, known, path)
        doubts += _of_anchors(found, known, anchors)
        doubts += _of_held(path.held, {doubt.seq for doubt in doubts} | found.aside.keys())
    doubts += _of_amendments(found, audit)
    return Proof(
        session_id,
        found.count,
        path,
        sum(event.type == AMENDMENT_TYPE for event in found.events.values()),
        tuple(sorted(set(doubts), key=lambda doubt: (-1 if doubt.seq is None else doubt.seq, doubt))),
        tuple(_unproven(found, path.held)),
    )


@dataclass
class _Found:
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
        meta = read_meta(self.schemas, record.value or b"")
        place_ = _half_a_key(record.key) if meta is None else (meta["session_id"], meta["seq"])
        if place_ is None or place_[0] != self.session_id:
            return
        self.count += 1
        seq = place_[1]
        self._aside(STRIPPED, seq, f"offset {record.offset} has {_shown(record.key)}, without the hash of its event")

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


def _of_chain(found: _Found, known: Known) -> Iterator[Doubt]:
    """Every record against the one that it names, on the path or off it."""
    links = known.links
    dark = {(key.seq, key.hash) for key in (each.key for each in found.dark.values()) if key.seq != CONTROL_SEQ}
    standing = {link.seq for link in links.values()} | {seq for seq, _ in dark} | found.aside.keys()
    yield from _absent(found, sorted(standing))
    for link in links.values():
        before, seq = link.prev_hash, link.seq - 1
        if before is None or (seq, before) in dark or seq in found.aside:
            continue
        pred = links.get(before)
        if pred is None:
            if seq in standing:
                text = f"seq {link.seq} names {_short(before)} as its predecessor, another record stands there"
                yield Doubt(FORGED, seq, text)
        elif pred.seq != seq:
            yield Doubt(SWAPPED, link.seq, f"it names seq {pred.seq} as its predecessor")
        elif pred.epoch > link.epoch:
            yield Doubt(FORGED, link.seq, f"its epoch {link.epoch} is below that of its predecessor, {pred.epoch}")


def _absent(found: _Found, standing: list[int]) -> Iterator[Doubt]:
    """Stretches of seqs at which nothing stands, below one at which something does."""
    for before, after in pairwise([0, *(seq for seq in standing if seq > 0)]):
        if after - before < 2:
            continue
        what = f"seq {before + 1}" if after - before == 2 else f"seq {before + 1} to {after - 1}"
        gone = any(before < seq < after for seq in found.gone)
        why = "; a tombstone stands there, and no amendment names what it took" if gone else ""
        yield Doubt(CUT_MIDDLE, before + 1, f"{what} missing, seq {after} is there{why}")


def _of_epochs(found: _Found, known: Known, path: Path) -> Iterator[Doubt]:
    """The epoch rises only by a writer that takes over, which says so: else anybody could outrank what is there."""
    for before, after in pairwise(known.links[hash_] for hash_ in path.hashes):
        event = found.events.get(after.hash)
        if after.epoch > before.epoch and event is not None and event.type != _RECOVERY:
            text = f"a {event.type} raises the epoch from {before.epoch} to {after.epoch}, which only a recovery does"
            yield Doubt(FORGED, after.seq, text)


def _of_anchors(found: _Found, known: Known, anchors: Iterable[Anchor]) -> Iterator[Doubt]:
    there = {link.seq for link in known.links.values()} | {each.key.seq for each in found.dark.values()}
    end = max(there, default=0)
    beyond: dict[str, Anchor] = {}
    for anchor in anchors:
        if anchor.hash in known.links or anchor.hash in found.dark or anchor.seq in found.aside:
            continue
        if anchor.seq in there:
            yield Doubt(FORGED, anchor.seq, f"{anchor.source} knows {_short(anchor.hash)} there, which is gone")
        elif anchor.seq > max(end, beyond[anchor.source].seq if anchor.source in beyond else 0):
            beyond[anchor.source] = anchor
    for anchor in beyond.values():
        text = f"{anchor.source} knows seq {anchor.seq}, {_short(anchor.hash)}; the records end at seq {end}"
        yield Doubt(CUT_TAIL, anchor.seq, text)


def _of_held(held: Held | None, named: set[int | None]) -> Iterator[Doubt]:
    """Where the path ends for a reason of the chain that nothing above has named."""
    if held is not None and held.reason in _CHAIN_REASONS and not {held.seq - 1, held.seq} & named:
        yield Doubt(CUT_MIDDLE, held.seq, f"the path ends before it: {held.reason}")


def _of_amendments(found: _Found, audit: Audit) -> Iterator[Doubt]:
    present = set[str]()
    for event in found.events.values():
        if event.seq != CONTROL_SEQ:
            continue
        request_id = read_amendment(event.body).request_id
        present.add(request_id)
        if request_id not in audit.known:
            text = f"amendment {_short(event.hash)}: the admin audit holds no request {request_id}"
            yield Doubt(UNAUDITED, CONTROL_SEQ, text)
    if CONTROL_SEQ in found.gone:
        text = f"a tombstone stands in the place of amendment {_short(found.gone[CONTROL_SEQ].hash)}"
        yield Doubt(MISSING_AMENDMENT, CONTROL_SEQ, text)
    for request_id in sorted(audit.asked - present):
        text = f"request {request_id} is in the admin audit, its amendment is not here: interrupted, or taken away"
        yield Doubt(MISSING_AMENDMENT, CONTROL_SEQ, text)


def _unproven(found: _Found, held: Held | None) -> Iterator[str]:
    for each in found.dark.values():
        yield f"seq {each.key.seq}, {_short(each.key.hash)}: {each.reason}, its predecessor cannot be read here"
    if held is not None and held.reason not in _CHAIN_REASONS | UNREADABLE_REASONS:
        yield f"the path ends before seq {held.seq}: {held.reason}"


def _half_a_key(key: bytes | None) -> tuple[str, int] | None:
    """Session and seq of a key that has lost its hash."""
    match = None if key is None else _HALF.match(key)
    if match is None:
        return None
    return match.group(1).decode("utf-8", "replace"), int(match.group(2))


def _shown(key: bytes | None) -> str:
    return "no key" if key is None else f"the key {key[:80]!r}"


def _short(hash_: bytes) -> str:
    return hash_.hex()[:_SHORT]

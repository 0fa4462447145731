"""Records into sessions. One that extends a path is folded at once; any other is noted, and its session settled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dalsegno.log.codec import (
    FRAME_BYTES,
    MARKER,
    NO_FRAME,
    NOT_AN_EVENT,
    WRONG_HASH,
    WRONG_PLACE,
    event_hash,
    place,
)
from dalsegno.log.record import LogRecord
from dalsegno.model.history import FORK_TYPE
from dalsegno.model.ids import EventKey, parse_key
from dalsegno.model.path import PARENT_MISSING, UNKNOWN_TYPE
from dalsegno.model.records import CONTROL_SEQ, UNKNOWN_SCHEMA, Event, SetAside, Tombstone, Unreadable
from dalsegno.state.keys import waiting_key
from dalsegno.state.layout import (
    DARK,
    DARK_CODES,
    FORKING,
    READABLE,
    UNFOLDABLE,
    IndexEntry,
    JournalEntry,
    SessionHead,
    encode_index,
)
from dalsegno.state.session import Session
from dalsegno.state.work import ShardWork

_KEY_BYTES: Final = 2
_OVERWRITES: Final = frozenset({NO_FRAME, NOT_AN_EVENT, WRONG_HASH, WRONG_PLACE})
_STOPPED_WITHIN: Final = (UNKNOWN_TYPE, PARENT_MISSING)


class Tally:
    """What the records of a batch turned out to be."""

    __slots__ = ("events", "repeats", "set_aside", "tombstones", "unreadable")

    def __init__(self) -> None:
        self.events = 0
        self.repeats = 0
        self.tombstones = 0
        self.unreadable = 0
        self.set_aside: list[tuple[int, str]] = []


def take_all(work: ShardWork, records: Sequence[LogRecord], tally: Tally) -> None:
    """Take the records in offset order. Everything that the common case needs stands in this loop."""
    schemas, sessions, load, touch = work.schemas, work.sessions, work.load, work.touch
    fold, pending = work.folder.fold, work.journal.pending
    partition, partitions = work.identity.partition, work.identity.partitions
    forms: dict[bytes, bytes] = {}
    folded = 0
    for offset, key, value, _, _ in records:
        placed = place(schemas, key, value, partition, partitions)
        if type(placed) is not Event:
            _take_other(work, placed, offset, key, value, tally)  # type: ignore[arg-type]
            continue
        session = sessions.get(placed.session_id) or load(placed.session_id)
        head, seq, hash_ = session.head, placed.seq, placed.hash
        frame_id = value[2:FRAME_BYTES]  # type: ignore[index]
        form = forms.get(frame_id) or _form(work, frame_id, placed, value, forms)  # type: ignore[arg-type]
        stored = form + len(key).to_bytes(_KEY_BYTES, "big") + key + value[FRAME_BYTES:]  # type: ignore[arg-type, operator, index]
        if (
            seq == head.seq + 1
            and head.highest == head.seq
            and placed.prev_hash == head.hash
            and placed.epoch >= head.epoch
            and (placed.known or placed.ignorable)
            and not (session.settle or head.erased or placed.type == FORK_TYPE)
            and (not head.amended or hash_ not in work.stub_hashes(session))
        ):
            session.index_changes[seq, hash_] = encode_index(offset, placed.epoch, READABLE, placed.prev_hash)
            pending[offset] = stored
            head.seq = head.highest = seq
            head.hash, head.epoch = hash_, placed.epoch
            if not session.touched:
                touch(session)
            if session.children:
                session.note_new(seq)
            fold(session, placed)
            folded += 1
        else:
            _take_event(work, session, placed, offset, stored, frame_id, tally)
    tally.events += folded
    work.position.counts.events += folded


def _form(work: ShardWork, frame_id: bytes, event: Event, value: bytes, forms: dict[bytes, bytes]) -> bytes:
    """How a journal entry of this writer schema begins."""
    writers = work.schemas.all_by_frame(frame_id)
    if len(writers) == 1:
        forms[frame_id] = form = JournalEntry.form_of(writers[0].schema_hash)
        return form
    for writer in writers:
        if event_hash(writer, value[FRAME_BYTES:]) == event.hash:
            return JournalEntry.form_of(writer.schema_hash)
    raise AssertionError("an event was read with a schema that is not there")


def _take_event(
    work: ShardWork, session: Session, event: Event, offset: int, stored: bytes, frame_id: bytes, tally: Tally
) -> None:
    seq, hash_ = event.seq, event.hash
    known = session.find(work.kv, seq, hash_)
    if known is not None and known.kind not in DARK:
        tally.repeats += 1
        return
    if not (event.known or event.ignorable):
        kind = UNFOLDABLE
        work.waiting[waiting_key(session.id, seq, hash_)] = frame_id + UNKNOWN_TYPE.encode("ascii")
    else:
        kind = FORKING if event.type == FORK_TYPE else READABLE
    entry = IndexEntry(offset, event.epoch, kind, event.prev_hash)
    note_record(work, session, EventKey(session.id, event.seq, hash_), entry, stored, known)  # type: ignore[arg-type]
    tally.events += 1


def note_record(
    work: ShardWork, session: Session, key: EventKey, entry: IndexEntry, stored: bytes, known: IndexEntry | None
) -> None:
    """Keep a record that was not known, or that could not be read before, and say what it may change."""
    seq, hash_ = key.seq, key.hash
    counts = work.position.counts
    if known is not None:
        work.journal.pending[known.offset] = None
        counts.events -= 1
        if entry.kind in (READABLE, FORKING):
            work.waiting[waiting_key(session.id, seq, hash_)] = None
            counts.waiting -= 1
    elif entry.kind not in (READABLE, FORKING):
        counts.waiting += 1
    counts.events += 1
    session.index_changes[seq, hash_] = entry.encode()
    work.journal.pending[entry.offset] = stored
    work.touch(session)
    session.note_new(seq)
    head = session.head
    if seq == CONTROL_SEQ:
        session.note(seq)
        session.stub_hashes = None
        session.settle = True
    elif _can_wait(head, seq):
        head.highest = max(head.highest, seq)
    else:
        session.settle = True


def _can_wait(head: SessionHead, seq: int) -> bool:
    """Whether a new record at this seq leaves path and reason as they are, whatever it is.

    Nothing is superseded, so all that is linked to the start is the path itself, and it has stopped at ``head.seq``
    for want of its next record. What comes above that seq cannot be linked. Where the path was stopped at a record
    that is there, only what lies above everything known is safe to leave aside.
    """
    if head.held_reason is None or head.superseded or head.amended or head.erased:
        return False
    return seq > (head.highest if head.held_reason in _STOPPED_WITHIN else head.seq + 1)


def _take_other(
    work: ShardWork,
    placed: Tombstone | Unreadable | SetAside,
    offset: int,
    key: bytes,
    value: bytes,
    tally: Tally,
) -> None:
    if isinstance(placed, SetAside):
        tally.set_aside.append((offset, placed.reason))
        if placed.reason in _OVERWRITES:
            _overwrite(work, key)
        return
    session = work.load(placed.key.session_id)
    known = session.find(work.kv, placed.key.seq, placed.key.hash)
    if isinstance(placed, Tombstone):
        tally.tombstones += 1
        if known is not None:
            take_away(work, session, placed.key, known)
            session.settle = True
        return
    if known is not None:
        kept = work.journal.must_have(session.id, placed.key.seq, known.offset)
        if kept.is_raw and kept.schema + kept.body == value[len(MARKER) :]:
            tally.repeats += 1
            return
        take_away(work, session, placed.key, known)
        session.settle = True
    tally.unreadable += 1
    schema = value[len(MARKER) : FRAME_BYTES]
    entry = IndexEntry(offset, 0, DARK_CODES[placed.reason], None)
    work.waiting[waiting_key(*placed.key)] = schema + placed.reason.encode("ascii")
    stored = JournalEntry(schema, key, value[FRAME_BYTES:]).encode()
    note_record(work, session, placed.key, entry, stored, None)


def _overwrite(work: ShardWork, key: bytes) -> None:
    """Bytes that are none of ours under an event's own key: compaction keeps them and takes the event, so it is gone
    at once, as it is for whoever reads the log later."""
    parsed = parse_key(key)
    if parsed is None:
        return
    session = work.load(parsed.session_id)
    known = session.find(work.kv, parsed.seq, parsed.hash)
    if known is not None:
        take_away(work, session, parsed, known)
        session.settle = True


def take_away(work: ShardWork, session: Session, key: EventKey, known: IndexEntry) -> None:
    """Free the bytes of a record; what that means for the path is found out when the session is settled."""
    counts = work.position.counts
    session.index_changes[key.seq, key.hash] = None
    work.journal.pending[known.offset] = None
    counts.events -= 1
    if known.kind not in (READABLE, FORKING):
        work.waiting[waiting_key(*key)] = None
        counts.waiting -= 1
    if key.seq == CONTROL_SEQ:
        session.stub_hashes = None
    work.touch(session)
    session.note(key.seq)


def retry_waiting(work: ShardWork, key: EventKey, tally: Tally, *, even_known: bool) -> None:
    """Look at a record again that could not be read or folded. ``even_known``: also if only this build changed."""
    session = work.load(key.session_id)
    known = session.find(work.kv, key.seq, key.hash)
    if known is None:
        return
    if not even_known and DARK.get(known.kind) != UNKNOWN_SCHEMA:
        return
    entry = work.journal.must_have(key.session_id, key.seq, known.offset)
    identity = work.identity
    schema = work.schemas.by_hash(entry.schema)
    frame_id = entry.schema if entry.is_raw else schema.frame_id if schema is not None else b""
    value = MARKER + frame_id + entry.body
    placed = place(work.schemas, entry.key, value, identity.partition, identity.partitions)
    if isinstance(placed, SetAside):
        take_away(work, session, key, known)
        session.settle = True
        tally.set_aside.append((known.offset, placed.reason))
    elif isinstance(placed, Unreadable):
        kind = DARK_CODES[placed.reason]
        if kind != known.kind:
            session.index_changes[key.seq, key.hash] = known._replace(kind=kind).encode()
            work.waiting[waiting_key(*key)] = frame_id + placed.reason.encode("ascii")
            session.note(key.seq)
            session.settle = True
            work.touch(session)
    elif isinstance(placed, Event) and (known.kind in DARK or placed.known or placed.ignorable):
        stored = _form(work, frame_id, placed, value, {}) + _key_part(entry.key) + entry.body
        # As if it had been in the dark until now, whatever kept it from being folded.
        session.index_changes[key.seq, key.hash] = known._replace(kind=DARK_CODES[UNKNOWN_SCHEMA]).encode()
        _take_event(work, session, placed, known.offset, stored, frame_id, tally)


def _key_part(key: bytes) -> bytes:
    return len(key).to_bytes(_KEY_BYTES, "big") + key

"""A session's records as the journal and the index hold them, and the path through them.

Used by the shard, which has changes that are not written yet, and by readers, which have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import NamedTuple

from dalsegno.errors import StoreDamaged
from dalsegno.log.codec import MARKER, decode_body, place
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.amendments import Amended, read_amendment
from dalsegno.model.history import Gathered, Known, events_along, know
from dalsegno.model.ids import EventKey, Seq, parse_key
from dalsegno.model.path import UNKNOWN_TYPE, Path
from dalsegno.model.records import AMENDMENT_TYPE, CONTROL_SEQ, ERASED, Event, Link, Placed
from dalsegno.state.keys import index_prefix, journal_key, split_index
from dalsegno.state.kv import JOURNAL, STATE, KeyReader, scan_prefix
from dalsegno.state.layout import DARK, FORKING, UNFOLDABLE, IndexEntry, JournalEntry
from dalsegno.state.tables import encode_row


class Journal:
    """Records by offset. ``pending``: what the batch at hand adds (or, with None, takes away)."""

    def __init__(self, reader: KeyReader, schemas: SchemaSet) -> None:
        self._reader = reader
        self.schemas = schemas
        self.pending: dict[int, bytes | None] = {}

    def entry(self, offset: int) -> JournalEntry | None:
        raw = self.pending[offset] if offset in self.pending else self._reader.get(JOURNAL, journal_key(offset))
        return None if raw is None else JournalEntry.decode(raw)

    def must_have(self, session_id: str, seq: int, offset: int) -> JournalEntry:
        """Raises StoreDamaged where the index names a record that the journal lacks."""
        entry = self.entry(offset)
        if entry is None:
            raise StoreDamaged(
                f"the journal lacks offset {offset}, seq {seq} of session {session_id}",
                wanted="every record that the index names",
                todo="set the shard aside; it is built again from a snapshot or from the log",
                session=session_id,
                seq=seq,
                offset=offset,
            )
        return entry

    def read(self, session_id: str, seq: int, hash_: bytes, offset: int) -> Placed:
        """The record, decoded with the schemas that are known now."""
        entry = self.must_have(session_id, seq, offset)
        return placed(self.schemas, entry, EventKey(session_id, Seq(seq), hash_))

    def event(self, session_id: str, seq: int, hash_: bytes, offset: int) -> Event:
        """A record that was readable when it came. Raises StoreDamaged if it is not any more."""
        found = self.read(session_id, seq, hash_, offset)
        if isinstance(found, Event):
            return found
        raise StoreDamaged(
            f"offset {offset} of the journal no longer holds seq {seq} of session {session_id}",
            wanted="the bytes that were read once",
            todo="set the shard aside; it is built again from a snapshot or from the log",
            session=session_id,
            seq=seq,
            offset=offset,
        )


def placed(schemas: SchemaSet, entry: JournalEntry, key: EventKey) -> Placed:
    """What a journal entry holds, with the schemas that are known now."""
    if entry.is_raw:
        # Its partition was checked when it came; one partition in all keeps that out of the way.
        return place(schemas, entry.key, MARKER + entry.schema + entry.body, 0, 1)
    return decode_body(schemas, entry.schema, key, entry.body)


class Records(NamedTuple):
    """All that is known of one session. ``entries``: (seq, hash) -> entry, without control events."""

    entries: Mapping[tuple[int, bytes], IndexEntry]
    known: Known
    amended_print: bytes
    empty: bool

    @property
    def amended(self) -> Amended:
        return self.known.amended

    def choose(self, refused: Mapping[bytes, str] | None = None) -> Path:
        """The path; ``refused`` are further records that cannot be folded, with the reason."""
        return self.known.choose(refused)

    def forking(self, seq: int, hash_: bytes) -> IndexEntry | None:
        """The record's entry if it says, as it stands in the history, that the session is a fork."""
        entry = self.entries.get((seq, hash_))
        return entry if entry is not None and entry.kind == FORKING and hash_ not in self.amended.stubs else None

    def erased(self) -> Iterator[tuple[int, bytes, IndexEntry]]:
        """Records whose bytes an amendment takes away: seq, hash, entry."""
        stubs = self.amended.stubs
        for (seq, hash_), entry in self.entries.items():
            if self.amended.whole_session or (hash_ in stubs and stubs[hash_].action == ERASED):
                yield seq, hash_, entry


def gather(journal: Journal, session_id: str, index: Iterable[tuple[int, bytes, IndexEntry]]) -> Records:
    """Sort a session's index rows into candidates, unreadable ones and amendments."""
    entries: dict[tuple[int, bytes], IndexEntry] = {}
    links: list[Link] = []
    dark: list[tuple[int, bytes, str]] = []
    unfoldable: dict[bytes, str] = {}
    amendments = []
    empty = True
    for seq, hash_, entry in index:
        empty = False
        if seq == CONTROL_SEQ:
            if entry.kind not in DARK:
                event = journal.event(session_id, seq, hash_, entry.offset)
                if event.type == AMENDMENT_TYPE:
                    amendments.append(read_amendment(event.body))
            continue
        entries[(seq, hash_)] = entry
        if entry.kind in DARK:
            dark.append((seq, hash_, DARK[entry.kind]))
            continue
        links.append(Link(seq, hash_, entry.prev_hash, entry.epoch))
        if entry.kind == UNFOLDABLE:
            unfoldable[hash_] = UNKNOWN_TYPE
    known = know(links, dark, unfoldable, amendments)
    return Records(entries, known, _print(known.amended), empty)


def stored_index(reader: KeyReader, session_id: str) -> Iterator[tuple[int, bytes, IndexEntry]]:
    """A session's index rows, by seq and hash."""
    prefix = index_prefix(session_id)
    for key, raw in scan_prefix(reader, STATE, prefix):
        yield *split_index(key, len(prefix)), IndexEntry.decode(raw)


def chain_down(
    reader: KeyReader, session_id: str, seq: int, hash_: bytes, above: int
) -> Iterator[tuple[int, bytes, IndexEntry]]:
    """The records from this one (seq, hash) down to the one above seq ``above``, each named by the one before it.
    Without amendments that is the path. Raises StoreDamaged where one is missing."""
    prefix, wanted = index_prefix(session_id), hash_
    for at in range(seq, above, -1):
        raw = reader.get(STATE, prefix + at.to_bytes(8, "big") + wanted)
        if raw is None:
            raise StoreDamaged(
                f"the index lacks seq {at} of session {session_id}, which its path holds",
                wanted="every record of the path",
                todo="set the shard aside; it is built again from a snapshot or from the log",
                session=session_id,
                seq=at,
            )
        entry = IndexEntry.decode(raw)
        yield at, wanted, entry
        wanted = entry.prev_hash or b""


def events_of(
    journal: Journal, session_id: str, records: Records, hashes: Iterable[bytes], *, first_seq: int = 1
) -> Iterator[Event]:
    """The events (and stubs) at these places of a path, in order."""
    return events_along(session_id, gathered(journal, session_id, records), hashes, first_seq=first_seq)


def gathered(journal: Journal, session_id: str, records: Records) -> Gathered:
    """What is known of the session, with the journal to read its records from."""

    def event(seq: int, hash_: bytes) -> Event:
        return journal.event(session_id, seq, hash_, records.entries[(seq, hash_)].offset)

    return Gathered(records.known, event)


def key_of(entry: JournalEntry) -> EventKey:
    """The key of a journal entry. Raises StoreDamaged if it is none."""
    key = parse_key(entry.key)
    if key is None:
        raise StoreDamaged(f"the journal holds a record with the key {entry.key!r}", wanted="<session>:<seq>:<hash>")
    return key


def _print(amended: Amended) -> bytes:
    """Names what the amendments say, so that a change of it is seen."""
    if not amended.stubs and not amended.whole_session:
        return b""
    stubs = sorted((stub.link.hash, stub.action, stub.type, *stub.link) for stub in amended.stubs.values())
    return sha256(encode_row([amended.whole_session, stubs])).digest()

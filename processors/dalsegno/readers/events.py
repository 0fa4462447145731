"""One event of a session, found by its seq or its hash, with everything that is known of it."""

from __future__ import annotations

import re
from typing import NamedTuple

from dalsegno.errors import NotFound, Usage
from dalsegno.model.records import CONTROL_SEQ, Event, Unreadable, stub_event
from dalsegno.readers.local import LocalReader
from dalsegno.readers.sessions import Found
from dalsegno.state.history import Journal
from dalsegno.state.layout import IndexEntry

PATH, SUPERSEDED, CONTROL, BEYOND = "path", "superseded", "control", "not on the path"
HASH_CHARACTERS_MIN = 6
_NAMED_MAX = 5


class FoundEvent(NamedTuple):
    """An event and where it lies. ``place``: on the path, superseded, a control event, or behind where the session is
    held. ``offset`` and the schema are None for a stub whose record is gone."""

    event: Event
    place: str
    partition: int
    offset: int | None
    schema: str | None
    schema_hash: bytes | None


def find_event(reader: LocalReader, found: Found, name: str) -> FoundEvent:
    """By a seq of the path, or by a hash or its beginning. Raises NotFound, Usage where several are meant."""
    reads = found.view.reads
    records, path = reads.chosen(found.session_id)
    entries = {hash_: (seq, entry) for seq, hash_, entry in reads.index(found.session_id)}
    stubs = records.amended.stubs
    if re.fullmatch(r"[0-9]{1,19}", name):
        seq = int(name)
        if 0 < seq <= len(path.hashes):
            hash_ = path.hashes[seq - 1]
        else:
            hash_ = _one(name, [each for each, (at, _) in entries.items() if at == seq], found)
    else:
        text = name.lower()
        if not re.fullmatch(rf"[0-9a-f]{{{HASH_CHARACTERS_MIN},64}}", text):
            raise Usage(
                f"{name!r} is neither a seq nor a hash",
                wanted=f"a seq, or at least {HASH_CHARACTERS_MIN} hex characters of a hash",
                todo=f"see 'dalsegno session show {found.session_id}'",
            )
        hash_ = _one(name, [each for each in {**entries, **stubs} if each.hex().startswith(text)], found)
    place = _place(hash_, entries, path.hashes, path.superseded)
    seq, entry = entries.get(hash_, (0, None))
    stub = stubs.get(hash_)
    event = stub_event(found.session_id, stub.link, stub.type, stub.action) if stub is not None else None
    if event is None:
        assert entry is not None, "what is no stub is in the index"
        event = _read(reader, found, seq, hash_, entry)
    return _with_place(found, event, place, entry)


def _place(
    hash_: bytes, entries: dict[bytes, tuple[int, IndexEntry]], path: tuple[bytes, ...], lost: frozenset[bytes]
) -> str:
    if entries.get(hash_, (1, None))[0] == CONTROL_SEQ:
        return CONTROL
    return PATH if hash_ in path else SUPERSEDED if hash_ in lost else BEYOND


def _one(name: str, hashes: list[bytes], found: Found) -> bytes:
    if len(hashes) == 1:
        return hashes[0]
    if not hashes:
        raise NotFound(
            f"session {found.session_id} has no event {name}",
            wanted="a seq of its path, or the hash of one of its records",
            todo=f"see 'dalsegno session show {found.session_id}'",
            session=found.session_id,
        )
    named = ", ".join(hash_.hex()[:12] for hash_ in sorted(hashes)[:_NAMED_MAX])
    raise Usage(
        f"{name} is {len(hashes)} records of session {found.session_id}: {named}",
        wanted="one of them",
        todo="give the hash, or more of it",
        session=found.session_id,
    )


def _read(reader: LocalReader, found: Found, seq: int, hash_: bytes, entry: IndexEntry) -> Event:
    reads = found.view.reads
    journal = Journal(reads.kv, reads.schemas)
    placed = journal.read(found.session_id, seq, hash_, entry.offset)
    if isinstance(placed, Unreadable) and reader.learn_schemas():
        placed = journal.read(found.session_id, seq, hash_, entry.offset)
    if isinstance(placed, Event):
        return placed
    reason = placed.reason if isinstance(placed, Unreadable) else "it is none"
    raise NotFound(
        f"seq {seq} of session {found.session_id}, {hash_.hex()[:12]}, cannot be read here: {reason}",
        wanted="an event of a schema that is known",
        todo="'dalsegno session export --format records' gives its bytes",
        session=found.session_id,
        seq=seq,
    )


def _with_place(found: Found, event: Event, place: str, entry: IndexEntry | None) -> FoundEvent:
    reads, partition = found.view.reads, found.view.partition
    kept = None if entry is None else reads.journal_entry(entry.offset)
    if entry is None or kept is None:
        return FoundEvent(event, place, partition, None, None, None)
    writer = None if kept.is_raw else reads.schemas.by_hash(kept.schema)
    name, hash_ = (None, None) if writer is None else (writer.name, writer.schema_hash)
    return FoundEvent(event, place, partition, entry.offset, name, hash_)

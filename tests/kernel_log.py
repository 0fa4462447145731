"""What a partition of the events topic may hold: offsets with holes, compaction, expired tombstones, late schemas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from hypothesis import strategies as st

from dalsegno.log.codec import place
from dalsegno.log.record import LogRecord
from dalsegno.log.schema_set import SchemaSet, WriterSchema, closed, shared_types
from dalsegno.model.amendments import Amendment, merge_amendments, read_amendment
from dalsegno.model.ids import Offset, parse_key, partition_of
from dalsegno.model.lifecycle import judge
from dalsegno.model.records import CONTROL_SEQ, Event
from dalsegno.testing.builder import SessionBuilder, Written, shipped_schemas, write
from dalsegno.testing.moves import play
from dalsegno.testing.strategies import FUTURE, MOVES, PROFILES, History, histories

NEWER_NOTE = WriterSchema(
    closed(
        {
            "type": "record",
            "name": "dalsegno.event.v2.NoteRecorded",
            "fields": [
                {"name": "meta", "type": "dalsegno.event.v1.Meta"},
                {"name": "kind", "type": "string"},
                {"name": "added", "type": "long", "default": 0},
            ],
        },
        shared_types(),
    )
)
"""A later version of a known type: unreadable until its schema arrives, then folded as this build knows the type."""

LATE_SCHEMAS = (FUTURE, NEWER_NOTE)


def late_schemas() -> SchemaSet:
    schemas = SchemaSet.load()
    for writer in LATE_SCHEMAS:
        schemas.add(writer.json)
    return schemas


def newer_note(builder: SessionBuilder) -> Written:
    """A note behind the builder's last event, in the schema that arrives late; the session goes on behind it."""
    tip = builder.tip
    assert tip is not None
    bare = write(NEWER_NOTE, builder.envelope(tip.seq + 1, tip.hash, "NoteRecorded"), {"kind": "note", "added": 1})
    event = place(late_schemas(), bare.key, bare.value, 0, 1)
    assert isinstance(event, Event)
    record = bare._replace(event=event)
    builder.records.append(record)
    builder.verdicts.append(judge(builder.session, builder.ops, event))
    return record


@st.composite
def late_sessions(draw: st.DrawFn) -> SessionBuilder:
    """A session with notes in the late schema among its events."""
    builder = SessionBuilder("late", profile=draw(st.sampled_from(PROFILES))).begin()
    for _ in range(draw(st.integers(1, 2))):
        newer_note(builder)
        play(builder, draw(MOVES)[:8])
    return builder


class Story:
    """A history that a failing example does not print in full."""

    def __init__(self, history: History) -> None:
        self.history = history

    def __repr__(self) -> str:
        names = sorted({builder.session_id for builder in self.history.sessions})
        return f"<{len(self.history.records)} records, {len(self.history.tombstones)} tombstones of {names}>"


@st.composite
def kernel_histories(draw: st.DrawFn) -> Story:
    """As ``histories``, and perhaps a session whose schemas arrive late, and records sent again after a tombstone."""
    history = draw(histories(max_sessions=2))
    if draw(st.integers(0, 2)) == 0:
        builder = draw(late_sessions())
        history.sessions.append(builder)
        history.records += builder.records
    return Story(history)


GARBAGE = (b"no frame", b"\xc3\x01" + b"\x00" * 8 + b"?", b"\xc3\x01" + b"\x00" * 8 + b"!")
"""What a broken producer may write under the key of an event, or before it."""

JUNK = (
    (None, b"no key"),
    (b"not a key of ours", b"\xc3\x01"),
    (b"s-1:1:" + b"0" * 64, b"no frame"),
    (b"s-1:1:" + b"0" * 64, b"\xc3\x01" + b"\x00" * 8 + b"?"),
)


@dataclass
class Log:
    """One partition. ``records`` is what is left of it, ``everything`` what was ever appended."""

    partition: int
    partitions: int
    records: list[LogRecord] = field(default_factory=list)
    everything: list[LogRecord] = field(default_factory=list)
    end: int = 0

    def append(self, key: bytes | None, value: bytes | None, hole: int = 0) -> None:
        """``hole``: offsets before the record that hold none, as a transaction's marker does."""
        record = LogRecord(Offset(self.end + hole), key, value, 1_767_225_600_000 + self.end, 0)
        self.records.append(record)
        self.everything.append(record)
        self.end = record.offset + 1

    def read(self, start: int, limit: int) -> tuple[list[LogRecord], int]:
        """The next records and the offset to read next: behind the last one, or the log's end."""
        found = [record for record in self.records if record.offset >= start]
        return (found, self.end) if len(found) <= limit else (found[:limit], found[limit - 1].offset + 1)

    def compact(self, below: int) -> None:
        """Below this offset the last record of a key stays; tombstones of amended events expire."""
        last = {record.key: record.offset for record in self.records if record.offset < below}
        amended = self.amended()
        self.records = [
            record
            for record in self.records
            if record.offset >= below
            or record.key is None
            or (last[record.key] == record.offset and not (record.value is None and _hash(record.key) in amended))
        ]

    def amended(self) -> dict[bytes, str]:
        """Hash -> strongest action, of the events that an amendment in the log takes out of the history."""
        return {hash_: stub.action for hash_, stub in merge_amendments(self._amendments()).stubs.items()}

    def _amendments(self) -> Iterator[Amendment]:
        last = {record.key: record for record in self.everything}
        for record in last.values():
            placed = place(shipped_schemas(), record.key, record.value, self.partition, self.partitions)
            if isinstance(placed, Event) and placed.type == "HistoryAmended":
                yield read_amendment(placed.body)

    def ever(self) -> list[LogRecord]:
        """The set that the log stands for: of everything that was appended, per key the last."""
        last = {record.key: record.offset for record in self.everything if record.key is not None}
        return [record for record in self.everything if record.key is not None and last[record.key] == record.offset]


def _hash(key: bytes) -> bytes | None:
    parsed = parse_key(key)
    return None if parsed is None else parsed.hash


def arrivals(history: History, rnd: Random, partitions: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """(partition, key, value) in a random order with repeats, resends behind tombstones, and what is none of ours."""
    records = history.arrivals(rnd)
    gone = {stone.key for stone in history.tombstones}
    records += [record for record in history.records if record.key in gone and rnd.random() < 0.2]
    found: list[tuple[int, bytes | None, bytes | None]] = []
    for record in records:
        parsed = parse_key(record.key)
        assert parsed is not None
        right = partition_of(parsed.session_id, partitions)
        found.append((right, record.key, record.value))
        if rnd.random() < 0.02:
            found.append(((right + 1) % partitions, record.key, record.value))  # in its own again where there is one
        if rnd.random() < 0.02:
            found.append((rnd.randrange(partitions), *rnd.choice(JUNK)))
        if rnd.random() < 0.02 and parsed.seq != CONTROL_SEQ:
            found.append((right, record.key, rnd.choice(GARBAGE)))
    return found

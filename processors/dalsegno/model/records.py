"""What a record of the log is once it has been read: an event in its place, or the reason why it is none. Pure.

``Placed`` is the result of decoding one (key, value) pair. It is total: whatever the bytes are, one of the four comes
out and nothing is raised. Per key the last record in offset order counts, which is what compaction keeps: a tombstone
removes its event, and sending the event again brings it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec

from dalsegno.model.ids import EventKey, Seq

CONTROL_SEQ = 0
"""The seq of control events (``HistoryAmended``), which stand outside the chain."""
FIRST_SEQ = 1
"""The seq of a session's first event."""

UNKNOWN_SCHEMA = "UNKNOWN_SCHEMA"
UNDECODABLE = "UNDECODABLE"
UNKNOWN_SYMBOL = "UNKNOWN_SYMBOL"
UNREADABLE_REASONS = frozenset({UNKNOWN_SCHEMA, UNDECODABLE, UNKNOWN_SYMBOL})

ERASED = "ERASED"
SKIPPED = "SKIPPED"
LOST = "LOST"

AMENDMENT_TYPE = "HistoryAmended"


class Actor(NamedTuple):
    """Who did it: USER, AGENT, MODEL, TOOL, POLICY, VALIDATOR, HARNESS, SCHEDULER, OPERATOR, IMPORTER, and a name."""

    kind: str
    id: str


class Link(NamedTuple):
    """What the path needs to know of one record: enough to order it, no payload."""

    seq: int
    hash: bytes
    prev_hash: bytes | None
    epoch: int


class Event(msgspec.Struct):
    """One decoded record, placed in its session.

    ``type`` is the short name (``"ToolReceiptRecorded"``). ``known`` is False for a type that this build's catalogue
    lacks; such an event is folded only if it is ``ignorable``. ``body`` is the whole decoded record in raw values
    (ints, bytes, str, dict, list, None) and ``body["meta"]`` is ``meta``. ``stub`` is None, or the amendment action
    (ERASED, SKIPPED, LOST) that put a stub in this place; then ``meta`` and ``body`` are empty.
    """

    session_id: str
    seq: int
    hash: bytes
    prev_hash: bytes | None
    epoch: int
    type: str
    known: bool
    ignorable: bool
    meta: Mapping[str, Any]
    body: Mapping[str, Any]
    stub: str | None = None

    @property
    def link(self) -> Link:
        return Link(self.seq, self.hash, self.prev_hash, self.epoch)

    @property
    def key(self) -> EventKey:
        return EventKey(self.session_id, Seq(self.seq), self.hash)


class Tombstone(msgspec.Struct, frozen=True):
    """A key of ours without a value: the bytes of that event are gone."""

    key: EventKey


class Unreadable(msgspec.Struct, frozen=True):
    """The key parses and lies where it should, but its bytes cannot be read here.

    ``reason`` is UNKNOWN_SCHEMA (tried again when schemas arrive), UNDECODABLE (the hash follows from the bytes, but
    the body does not decode exactly) or UNKNOWN_SYMBOL (an enum symbol that this build lacks, in an event that may not
    be ignored). It holds its session if nothing else stands at its seq.
    """

    key: EventKey
    reason: str


class SetAside(msgspec.Struct, frozen=True):
    """Not a record of ours: no key, a key that does not follow from the bytes, another partition. Reported only."""

    reason: str


Placed: TypeAlias = Event | Tombstone | Unreadable | SetAside


def stub_event(session_id: str, link: Link, type_: str, action: str) -> Event:
    """The event that stands where an amendment took one away: its place and hash stay, its content is gone."""
    nothing: dict[str, Any] = {}
    return Event(
        session_id, link.seq, link.hash, link.prev_hash, link.epoch, type_, True, True, nothing, nothing, action
    )

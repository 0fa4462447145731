"""A session's history for its writer: its records from some source, the path through them, and what is open.

A ``SessionSource`` gives the records. Here is the one that needs nothing but the log: it reads the partition from its
start. Sources over local state read a shard or a snapshot and only the tail of the log (``read_family`` is theirs too).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from dalsegno.errors import SessionHeld
from dalsegno.log.codec import place
from dalsegno.log.schema_set import SchemaSet
from dalsegno.log.transport import Transport
from dalsegno.model.amendments import Amended, amended_links, merge_amendments, read_amendment
from dalsegno.model.ids import EventKey, Offset, parse_key, partition_of, root_of
from dalsegno.model.lifecycle import MemoryOps, SessionState, inherit, judge
from dalsegno.model.path import BROKEN_CHAIN, EPOCH_BELOW, GAP, PARENT_MISSING, UNKNOWN_TYPE, Head, chain_ending_in
from dalsegno.model.path import choose_path as _choose_path
from dalsegno.model.records import AMENDMENT_TYPE, FIRST_SEQ, UNKNOWN_SCHEMA, Event, Link, Unreadable, stub_event

log = logging.getLogger("dalsegno.log")

STALL_SECONDS = 60.0
SCHEMA_TIMEOUT_SECONDS = 30.0

# A writer goes on past these: what stands behind the break was never acknowledged as following it, or was fenced.
_WRITER_GOES_ON = frozenset({GAP, BROKEN_CHAIN, EPOCH_BELOW})


class SessionRecords(NamedTuple):
    """What a source knows of one session: the last record under every key, tombstoned ones left out."""

    placed: Mapping[EventKey, Event | Unreadable]
    read_up_to: Offset
    """Every record of the log below this offset was seen."""
    records_read: int
    """How many records of the log were read for this answer: the cost."""
    snapshot_id: str | None = None
    anchor: tuple[Offset, bytes] | None = None
    """Offset and key of the session's newest record, if it was not read from the log just now: the log must have it."""


class SessionSource(Protocol):
    """Where a session's records come from when its writer resumes."""

    def read(self, session_id: str, up_to: Offset) -> SessionRecords:
        """All records of the session below ``up_to``, however it is done; none at all is an empty answer."""
        ...


class Family(NamedTuple):
    """Values by key of all sessions with one root, as a stretch of the log leaves them (None: tombstone)."""

    values: dict[bytes, bytes | None]
    records_read: int


def read_family(
    transport: Transport,
    topic: str,
    partition: int,
    root: str,
    start: Offset | None,
    up_to: Offset,
    stall_seconds: float = STALL_SECONDS,
) -> Family:
    """Read [``start``, ``up_to``) of a partition (None: from its start) and keep what belongs to the root.

    What came with the last batch from behind ``up_to`` is kept too: more is known, and nothing is missing.
    """
    prefix = root.encode("utf-8")
    values: dict[bytes, bytes | None] = {}
    count = 0
    for batch in transport.read(topic, partition, start, up_to, stall_seconds):
        count += len(batch.records)
        for record in batch.records:
            key = record.key
            if key is not None and key.startswith(prefix):
                values[key] = record.value
    return Family(values, count)


class PartitionSource:
    """Reads the session's partition from its start: right everywhere, and slow on a large log, so it says so."""

    def __init__(self, transport: Transport, prefix: str, topic: str, partitions: int, schemas: SchemaSet) -> None:
        self._transport, self._prefix, self._topic = transport, prefix, topic
        self._partitions, self._schemas = partitions, schemas
        self._read: dict[tuple[str, Offset], Family] = {}

    def read(self, session_id: str, up_to: Offset) -> SessionRecords:
        partition, root = partition_of(session_id, self._partitions), root_of(session_id)
        family = self._read.get((root, up_to))
        if family is None:
            family = read_family(self._transport, self._topic, partition, root, None, up_to)
            # A fork's ancestors are asked for next, and they are in the same stretch.
            self._read = {(root, up_to): family}
            log.warning(
                "session_read_from_log_start",
                extra={"session_id": session_id, "partition": partition, "records": family.records_read},
            )
        placed = place_family(family.values, session_id, partition, self._partitions, self._schemas)
        if any(isinstance(p, Unreadable) and p.reason == UNKNOWN_SCHEMA for p in placed.values()):
            self._transport.refresh_schemas(self._prefix, self._schemas, SCHEMA_TIMEOUT_SECONDS)
            placed = place_family(family.values, session_id, partition, self._partitions, self._schemas)
        return SessionRecords(placed, up_to, family.records_read)


def place_family(
    values: Mapping[bytes, bytes | None], session_id: str, partition: int, partitions: int, schemas: SchemaSet
) -> dict[EventKey, Event | Unreadable]:
    """The session's own events among a family's values; what is set aside or tombstoned is left out."""
    placed: dict[EventKey, Event | Unreadable] = {}
    for key, value in values.items():
        parsed = parse_key(key)
        if parsed is None or parsed.session_id != session_id or value is None:
            continue
        found = place(schemas, key, value, partition, partitions)
        if isinstance(found, Event | Unreadable):
            placed[parsed] = found
    return placed


class History(NamedTuple):
    """A session as its next writer must know it."""

    head: Head
    tip: Event | None
    highest_epoch: int
    recorded_at: int
    """The greatest writer's time on the path, microseconds UTC; 0 if none is known."""
    state: SessionState
    ops: MemoryOps
    keys: frozenset[EventKey]


def understand(session_id: str, records: SessionRecords, source: SessionSource, up_to: Offset) -> History:
    """Choose the path of a session's records, and fold the lifecycle along it (``source``: for a fork's ancestors).

    Raises SessionHeld where a writer must not go on: what cannot be read here might be a good continuation.
    """
    events, amended, dark = _sort(records)
    links = _links(events, amended)
    unfoldable = {
        event.hash: UNKNOWN_TYPE
        for event in events.values()
        if not event.known and not event.ignorable and event.hash not in amended.stubs
    }
    path = _choose_path(
        links.values(),
        unreadable=[(seq, reason) for seq, hash_, reason in dark if hash_ not in amended.stubs],
        unfoldable=unfoldable,
        erased=amended.whole_session,
    )
    if path.held is not None and (path.held.reason not in _WRITER_GOES_ON or not path.hashes):
        raise held(session_id, path.held.reason, path.held.seq)
    chain = _events(session_id, path.hashes, events, amended)
    state, ops = SessionState(), MemoryOps()
    _fold(chain, state, ops, source, up_to)
    times = [event.meta.get("recorded_at", 0) for event in chain if event.stub is None]
    return History(
        path.head,
        chain[-1] if chain else None,
        max((link.epoch for link in links.values()), default=0),
        max(times, default=0),
        state,
        ops,
        frozenset(records.placed),
    )


def state_at(session_id: str, hash_: bytes, source: SessionSource, up_to: Offset) -> SessionState:
    """The lifecycle at the record ``hash_`` of a session, as its fork takes it over. Raises SessionHeld."""
    events, amended, _ = _sort(source.read(session_id, up_to))
    chain = chain_ending_in(_links(events, amended), hash_)
    if chain is None:
        raise held(session_id, PARENT_MISSING, FIRST_SEQ)
    state = SessionState()
    _fold(_events(session_id, [link.hash for link in chain], events, amended), state, MemoryOps(), source, up_to)
    return state


def inherit_from_parent(event: Event, child: SessionState, source: SessionSource, up_to: Offset) -> None:
    """Give a fork its parent's state before its ``SessionForked`` is judged. Raises SessionHeld."""
    parent, at = event.body.get("parent_session"), event.body.get("parent_at")
    hash_ = at.get("hash") if isinstance(at, Mapping) else None
    # One that names no parent of its own root inherits nothing: the rules then refuse it.
    if isinstance(parent, str) and isinstance(hash_, bytes) and root_of(parent) == root_of(event.session_id):
        inherit(state_at(parent, hash_, source, up_to), child)


def held(session_id: str, reason: str, seq: int) -> SessionHeld:
    return SessionHeld(
        f"session {session_id} is held at seq {seq}: {reason}",
        wanted="a history that can be read to its end here",
        todo="use a build that knows its types, or amend the record",
        session_id=session_id,
        reason=reason,
        seq=seq,
    )


def _sort(records: SessionRecords) -> tuple[dict[bytes, Event], Amended, list[tuple[int, bytes, str]]]:
    events: dict[bytes, Event] = {}
    amendments = []
    dark: list[tuple[int, bytes, str]] = []
    for key, found in records.placed.items():
        if isinstance(found, Unreadable):
            dark.append((key.seq, key.hash, found.reason))
        elif key.seq >= FIRST_SEQ:
            events[key.hash] = found
        elif found.type == AMENDMENT_TYPE:
            amendments.append(read_amendment(found.body))
    return events, merge_amendments(amendments), dark


def _links(events: Mapping[bytes, Event], amended: Amended) -> dict[bytes, Link]:
    return {link.hash: link for link in amended_links((event.link for event in events.values()), amended.stubs)}


def _events(session_id: str, hashes: Iterable[bytes], events: Mapping[bytes, Event], amended: Amended) -> list[Event]:
    chain = []
    for hash_ in hashes:
        stub = amended.stubs.get(hash_)
        chain.append(events[hash_] if stub is None else stub_event(session_id, stub.link, stub.type, stub.action))
    return chain


def _fold(chain: Iterable[Event], state: SessionState, ops: MemoryOps, source: SessionSource, up_to: Offset) -> None:
    for event in chain:
        if event.type == "SessionForked" and event.stub is None and event.seq == FIRST_SEQ + 1:
            inherit_from_parent(event, state, source, up_to)
        judge(state, ops, event)

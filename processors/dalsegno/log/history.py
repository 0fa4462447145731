"""A session's history for its writer: its records from some source, the path through them, and what is open.

A ``SessionSource`` gives the records. Here is the one that needs nothing but the log: it reads the partition from its
start. Sources over local state read a shard or a snapshot and only the tail of the log (``read_family`` is theirs too).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from dalsegno.errors import SessionHeld
from dalsegno.log.codec import place
from dalsegno.log.schema_set import SchemaSet
from dalsegno.log.transport import Transport
from dalsegno.model.history import events_along, gather, is_fork, state_after, taken_over
from dalsegno.model.ids import FORK_MARK, EventKey, Offset, parse_key, partition_of, root_of
from dalsegno.model.lifecycle import MemoryOps, SessionState, inherit, judge
from dalsegno.model.path import BROKEN_CHAIN, EPOCH_BELOW, GAP, PARENT_MISSING, Head, extends, head_at
from dalsegno.model.records import UNKNOWN_SCHEMA, Event, Unreadable

log = logging.getLogger("dalsegno.log")

STALL_SECONDS = 60.0
SCHEMA_TIMEOUT_SECONDS = 30.0
# So many records take about a second at the worst; whoever waits longer should learn why.
SLOW_READ_RECORDS = 10_000

# A writer goes on past these: what stands behind the break was never acknowledged as following it, or was fenced.
_WRITER_GOES_ON = frozenset({GAP, BROKEN_CHAIN, EPOCH_BELOW})


class Standing(NamedTuple):
    """Where a state has the end of a session's path, with all that its next writer must know of what lies below."""

    tip: Event
    state: SessionState
    ops: MemoryOps


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
    standing: Standing | None = None
    """Given: ``placed`` holds only what goes on behind it, each event from the one before it."""


class SessionSource(Protocol):
    """Where a session's records come from when its writer resumes."""

    def read(self, session_id: str, up_to: Offset) -> SessionRecords:
        """All records of the session below ``up_to``, however it is done; none at all is an empty answer."""
        ...


@runtime_checkable
class StandingSource(SessionSource, Protocol):
    """A source that need not give all records."""

    def stand(self, session_id: str, up_to: Offset) -> SessionRecords:
        """As ``read``, or a standing and the records behind it: never where the two could differ."""
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
    # What may stand behind a root in a key; ids may hold colons, so others of that beginning come along.
    beginnings = tuple((root + mark).encode("utf-8") for mark in (":", FORK_MARK))
    values: dict[bytes, bytes | None] = {}
    count = 0
    for batch in transport.read(topic, partition, start, up_to, stall_seconds):
        count += len(batch.records)
        for record in batch.records:
            key = record.key
            if key is not None and key.startswith(beginnings):
                values[key] = record.value
    return Family(values, count)


class PartitionSource:
    """Reads the session's partition from its start: right everywhere, and slow on a large log, so it says so: loudly
    where it was."""

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
            log.log(
                logging.INFO if family.records_read < SLOW_READ_RECORDS else logging.WARNING,
                "session_read_from_log_start",
                extra={"session_id": session_id, "partition": partition, "records": family.records_read},
            )
        placed = place_family(
            family.values, session_id, partition, self._partitions, self._schemas, self._learn_schemas
        )
        return SessionRecords(placed, up_to, family.records_read)

    def _learn_schemas(self) -> None:
        self._transport.refresh_schemas(self._prefix, self._schemas, SCHEMA_TIMEOUT_SECONDS)


def place_family(
    values: Mapping[bytes, bytes | None],
    session_id: str,
    partition: int,
    partitions: int,
    schemas: SchemaSet,
    learn: Callable[[], object] | None = None,
) -> dict[EventKey, Event | Unreadable]:
    """The session's own events among a family's values: see ``place_values``."""
    own: dict[EventKey, bytes] = {}
    for key, value in values.items():
        parsed = parse_key(key)
        if parsed is not None and parsed.session_id == session_id and value is not None:
            own[parsed] = value
    return place_values(own, partition, partitions, schemas, learn)


def place_values(
    values: Mapping[EventKey, bytes],
    partition: int,
    partitions: int,
    schemas: SchemaSet,
    learn: Callable[[], object] | None = None,
) -> dict[EventKey, Event | Unreadable]:
    """What these values are; what is set aside is left out. ``learn`` adds the schemas that the log knows: it is called
    once, if one is unknown, before a record is given up as unreadable."""
    placed = _place(values, partition, partitions, schemas)
    if learn is not None and has_unknown_schema(placed):
        learn()
        placed = _place(values, partition, partitions, schemas)
    return placed


def has_unknown_schema(placed: Mapping[EventKey, Event | Unreadable]) -> bool:
    return any(isinstance(found, Unreadable) and found.reason == UNKNOWN_SCHEMA for found in placed.values())


def _place(
    values: Mapping[EventKey, bytes], partition: int, partitions: int, schemas: SchemaSet
) -> dict[EventKey, Event | Unreadable]:
    placed: dict[EventKey, Event | Unreadable] = {}
    for key, value in values.items():
        found = place(schemas, key.encode(), value, partition, partitions)
        if isinstance(found, Event | Unreadable):
            placed[key] = found
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
    counted: Sequence[Event] = ()
    """Behind a standing: the events of the path that break no rule, which alone have an effect."""


Examine: TypeAlias = Callable[[SessionRecords, History], object]
"""Is told what a resume read, before anything is written; what it raises ends the resume."""


def understand(session_id: str, records: SessionRecords, source: SessionSource, up_to: Offset) -> History:
    """Choose the path of a session's records, and fold the lifecycle along it (``source``: for a fork's ancestors).

    Raises SessionHeld where a writer must not go on: what cannot be read here might be a good continuation.
    """
    if records.standing is not None:
        return _go_on(records.standing, records)
    gathered = gather(records.placed.values())
    path = gathered.known.choose()
    if path.held is not None and (path.held.reason not in _WRITER_GOES_ON or not path.hashes):
        raise held(session_id, path.held.reason, path.held.seq)
    chain = list(events_along(session_id, gathered, path.hashes))
    state, ops = SessionState(), MemoryOps()
    for event in chain:
        if is_fork(event):
            inherit_from_parent(event, state, source, up_to)
        judge(state, ops, event)
    times = [event.meta.get("recorded_at", 0) for event in chain if event.stub is None]
    return History(
        path.head,
        chain[-1] if chain else None,
        max((link.epoch for link in gathered.known.links.values()), default=0),
        max(times, default=0),
        state,
        ops,
        frozenset(records.placed),
    )


def going_on(tip: Event, found: Collection[Event | Unreadable]) -> list[Event] | None:
    """These records in order, if each is an event that can only follow the one before it, the first one ``tip``, behind
    which nothing else is known. None: the path must be chosen from all records."""
    if not all(isinstance(each, Event) and (each.known or each.ignorable) for each in found):
        return None
    events = sorted((each for each in found if isinstance(each, Event)), key=lambda event: event.seq)
    head = head_at(tip.link)
    for event in events:
        if not extends(head, event.link):
            return None
        head = head_at(event.link)
    return events


def _go_on(standing: Standing, records: SessionRecords) -> History:
    """What is true behind the standing's tip, folded on; writers let ``recorded_at`` never fall, so the last is the
    greatest."""
    behind = [each for each in records.placed.values() if isinstance(each, Event)]
    events = [standing.tip, *sorted(behind, key=lambda event: event.seq)]
    counted = [event for event in events[1:] if not judge(standing.state, standing.ops, event).violations]
    tip = events[-1]
    return History(
        head_at(tip.link),
        tip,
        tip.epoch,
        max(event.meta.get("recorded_at", 0) for event in events),
        standing.state,
        standing.ops,
        frozenset(records.placed),
        counted,
    )


def inherit_from_parent(event: Event, child: SessionState, source: SessionSource, up_to: Offset) -> None:
    """Give a fork its parent's state before its ``SessionForked`` is judged.

    Raises SessionHeld where the parent's records are not all there, as every reader will hold the fork then.
    """
    prefixes = taken_over(event, lambda name: gather(source.read(name, up_to).placed.values()))
    if prefixes is None:
        raise held(event.session_id, PARENT_MISSING, event.seq)
    inherit(state_after(prefixes), child)


def held(session_id: str, reason: str, seq: int) -> SessionHeld:
    return SessionHeld(
        f"session {session_id} is held at seq {seq}: {reason}",
        wanted="a history that can be read to its end here",
        todo="use a build that knows its types, or amend the record",
        session_id=session_id,
        reason=reason,
        seq=seq,
    )

"""``settle``: what a set of records means, computed the slow and plain way, to compare faster code against.

Everything is done from the start for every session, from the records alone: per key the last record, amendments to
stubs, the path, then every event of the path through the lifecycle rules. No index, nothing incremental, no storage.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dalsegno.log.codec import place
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.amendments import Amended, amended_links, merge_amendments, read_amendment
from dalsegno.model.ids import partition_of
from dalsegno.model.lifecycle import MemoryOps, SessionState, Verdict, inherit, judge
from dalsegno.model.path import PARENT_MISSING, UNKNOWN_TYPE, Held, Path, chain_ending_in, choose_path
from dalsegno.model.records import AMENDMENT_TYPE, CONTROL_SEQ, Event, Link, Unreadable, stub_event
from dalsegno.testing.builder import shipped_schemas


@dataclass
class Settled:
    """One session. ``events`` stand on the path and can be folded; ``held`` says why it does not go on."""

    path: Path
    events: list[Event] = field(default_factory=list)
    held: Held | None = None
    verdicts: list[Verdict] = field(default_factory=list)
    session: SessionState = field(default_factory=SessionState)
    inherited: SessionState | None = None
    """Of a fork: the state where it left its parent."""
    ops: MemoryOps = field(default_factory=MemoryOps)


@dataclass
class _Records:
    """All that is known of one session, by hash."""

    events: dict[bytes, Event] = field(default_factory=dict)
    unreadable: dict[bytes, tuple[int, str]] = field(default_factory=dict)
    amendments: list[Event] = field(default_factory=list)

    def amended(self) -> Amended:
        return merge_amendments(read_amendment(event.body) for event in self.amendments)

    def links(self) -> dict[bytes, Link]:
        own = (event.link for event in self.events.values())
        return {link.hash: link for link in amended_links(own, self.amended().stubs)}

    def event(self, session_id: str, hash_: bytes) -> Event:
        stub = self.amended().stubs.get(hash_)
        return self.events[hash_] if stub is None else stub_event(session_id, *stub)


def settle(
    records: Iterable[tuple[bytes | None, bytes | None]], *, partitions: int = 1, schemas: SchemaSet | None = None
) -> dict[str, Settled]:
    """Session id -> what its records mean. ``records``: (key, value) in log order, of all partitions."""
    last = {key: value for key, value in records if key is not None}
    known: dict[str, _Records] = {}
    for key, value in last.items():
        for partition in range(partitions):
            placed = place(schemas or shipped_schemas(), key, value, partition, partitions)
            if isinstance(placed, Event) and partition == partition_of(placed.session_id, partitions):
                of_session = known.setdefault(placed.session_id, _Records())
                if placed.seq != CONTROL_SEQ:
                    of_session.events[placed.hash] = placed
                elif placed.type == AMENDMENT_TYPE:
                    of_session.amendments.append(placed)
            elif isinstance(placed, Unreadable) and placed.key.seq != CONTROL_SEQ:
                of_session = known.setdefault(placed.key.session_id, _Records())
                of_session.unreadable[placed.key.hash] = (placed.key.seq, placed.reason)
    return {session_id: _settle(session_id, known) for session_id in sorted(known)}


def _settle(session_id: str, known: dict[str, _Records]) -> Settled:
    own = known[session_id]
    amended = own.amended()
    stubs = amended.stubs
    strange = {hash_: UNKNOWN_TYPE for hash_, event in own.events.items() if _may_not_fold(event)}
    path = choose_path(
        own.links().values(),
        unreadable=[dark for hash_, dark in own.unreadable.items() if hash_ not in stubs],
        unfoldable={hash_: reason for hash_, reason in strange.items() if hash_ not in stubs},
        erased=amended.whole_session,
    )
    settled = Settled(path, [own.event(session_id, hash_) for hash_ in path.hashes], path.held)
    prefix = _parent_prefix(settled.events, known)
    if prefix is None:
        settled.events, settled.held = settled.events[:1], Held(PARENT_MISSING, 2)
    elif prefix:
        settled.inherited = _fold_prefix(prefix)
        inherit(settled.inherited, settled.session)
    settled.verdicts = [judge(settled.session, settled.ops, event) for event in settled.events]
    return settled


def _may_not_fold(event: Event) -> bool:
    return not event.known and not event.ignorable


def _parent_prefix(events: list[Event], known: dict[str, _Records]) -> list[list[Event]] | None:
    """The chains that a fork goes on from, its parent's first; [] if it is no fork; None if a part is not there."""
    prefix: list[list[Event]] = []
    while len(events) > 1 and events[1].type == "SessionForked" and events[1].stub is None:
        parent_id, hash_ = events[1].body["parent_session"], events[1].body["parent_at"]["hash"]
        parent = known.get(parent_id)
        if parent is None or parent.amended().whole_session:
            return None
        chain = chain_ending_in(parent.links(), hash_)
        if chain is None:
            return None
        events = [parent.event(parent_id, link.hash) for link in chain]
        if any(_may_not_fold(event) for event in events if event.stub is None):
            return None
        prefix.append(events)
    return prefix


def _fold_prefix(prefix: list[list[Event]]) -> SessionState:
    """The state at the end of the chains, the oldest ancestor's first."""
    state: SessionState | None = None
    for events in reversed(prefix):
        session, ops = SessionState(), MemoryOps()
        if state is not None:
            inherit(state, session)
        for event in events:
            judge(session, ops, event)
        state = session
    assert state is not None
    return state

"""A session's history from its records: what is known of it, its path, its events, what a fork takes over. Pure.

Whoever holds the records (a writer in memory, a shard in its journal) says how one of them is read; what follows from
them is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from dalsegno.model.amendments import Amended, Amendment, amended_links, merge_amendments, read_amendment
from dalsegno.model.ids import root_of
from dalsegno.model.lifecycle import MemoryOps, SessionState, inherit, judge
from dalsegno.model.path import UNKNOWN_TYPE, Path, chain_ending_in, choose_path
from dalsegno.model.records import AMENDMENT_TYPE, CONTROL_SEQ, FIRST_SEQ, Event, Link, Unreadable, stub_event

FORK_TYPE = "SessionForked"
FORK_SEQ = FIRST_SEQ + 1
"""Where a fork says what it is a fork of."""


class Known(NamedTuple):
    """What is known of one session, without payloads."""

    links: Mapping[bytes, Link]
    """The candidates by hash, stubs in the places of amended records."""
    dark: tuple[tuple[int, str], ...]
    """Seq and reason of every record that cannot be read here and that no amendment names."""
    unfoldable: Mapping[bytes, str]
    """Readable records that this build may not fold, with the reason."""
    amended: Amended

    def choose(self, refused: Mapping[bytes, str] | None = None) -> Path:
        """The path; ``refused`` are further records that cannot be folded, with the reason."""
        unfoldable = {**self.unfoldable, **refused} if refused else self.unfoldable
        return choose_path(
            self.links.values(), unreadable=self.dark, unfoldable=unfoldable, erased=self.amended.whole_session
        )


class Gathered(NamedTuple):
    """What is known of one session, and how one of its readable records (seq, hash) is read."""

    known: Known
    event: Callable[[int, bytes], Event]


def know(
    links: Iterable[Link],
    dark: Iterable[tuple[int, bytes, str]],
    unfoldable: Mapping[bytes, str],
    amendments: Iterable[Amendment],
) -> Known:
    """What the records of a session say together; ``dark`` is seq, hash and reason. Control events stay out of it."""
    amended = merge_amendments(amendments)
    stubs = amended.stubs
    return Known(
        {link.hash: link for link in amended_links(links, stubs)},
        tuple((seq, reason) for seq, hash_, reason in dark if hash_ not in stubs),
        {hash_: reason for hash_, reason in unfoldable.items() if hash_ not in stubs},
        amended,
    )


def gather(records: Iterable[Event | Unreadable]) -> Gathered:
    """All that is known of a session whose records are in memory: the last one under each of its keys."""
    events: dict[bytes, Event] = {}
    amendments: list[Amendment] = []
    dark: list[tuple[int, bytes, str]] = []
    for record in records:
        seq = record.key.seq
        if isinstance(record, Unreadable):
            if seq != CONTROL_SEQ:
                dark.append((seq, record.key.hash, record.reason))
        elif seq != CONTROL_SEQ:
            events[record.hash] = record
        elif record.type == AMENDMENT_TYPE:
            amendments.append(read_amendment(record.body))
    links = (event.link for event in events.values())
    unfoldable = {event.hash: UNKNOWN_TYPE for event in events.values() if not (event.known or event.ignorable)}
    return Gathered(know(links, dark, unfoldable, amendments), lambda _, hash_: events[hash_])


def events_along(
    session_id: str, gathered: Gathered, hashes: Iterable[bytes], *, first_seq: int = FIRST_SEQ
) -> Iterator[Event]:
    """The events (and stubs) at these places of a chain, in order."""
    stubs = gathered.known.amended.stubs
    for seq, hash_ in enumerate(hashes, first_seq):
        stub = stubs.get(hash_)
        if stub is None:
            yield gathered.event(seq, hash_)
        else:
            yield stub_event(session_id, stub.link, stub.type, stub.action)


# --- forks ------------------------------------------------------------------------------------------------------------


class ForkPoint(NamedTuple):
    """Where a fork left its parent: the last of the parent's records that belong to it."""

    seq: int
    hash: bytes


class Prefix(NamedTuple):
    """What one ancestor gives to a fork: its chain up to the record where the next session left it."""

    session_id: str
    gathered: Gathered
    hashes: tuple[bytes, ...]

    def events(self) -> Iterator[Event]:
        return events_along(self.session_id, self.gathered, self.hashes)


def is_fork(event: Event) -> bool:
    """Whether this event, in its place, says that the session's history begins in its parent."""
    return event.type == FORK_TYPE and event.seq == FORK_SEQ and event.stub is None


def fork_origin(event: Event) -> tuple[str, ForkPoint | None]:
    """The parent that a ``SessionForked`` names, and where it was left; no place if the event does not say it."""
    parent, at = event.body.get("parent_session"), event.body.get("parent_at")
    seq, hash_ = (at.get("seq"), at.get("hash")) if isinstance(at, Mapping) else (None, None)
    if not isinstance(parent, str) or type(seq) is not int or not isinstance(hash_, bytes) or seq < FIRST_SEQ:
        return parent if isinstance(parent, str) else "", None
    return parent, ForkPoint(seq, hash_)


def ancestry(
    child: str,
    parent: str,
    at: ForkPoint,
    gather: Callable[[str], Gathered],
    looked_at: list[tuple[str, ForkPoint]] | None = None,
) -> list[Prefix] | None:
    """What a fork's ancestors give to it, the oldest first; None if any record of it is missing.

    A prefix is the chain of records that ends where the next session left it, whether or not it is the parent's path.
    ``looked_at`` is given every place that was looked at, also the one that is missing: the answer depends on them all.
    """
    prefixes: list[Prefix] = []
    seen: set[tuple[str, bytes]] = set()
    before = child
    while True:
        # No record can name one that names it, but a stub has the hash that its amendment gives it.
        if parent == before or (parent, at.hash) in seen or root_of(parent) != root_of(child):
            return None
        seen.add((parent, at.hash))
        if looked_at is not None:
            looked_at.append((parent, at))
        gathered = gather(parent)
        known = gathered.known
        chain = None if known.amended.whole_session else chain_ending_in(known.links, at.hash)
        if chain is None or chain[-1].seq != at.seq or any(link.hash in known.unfoldable for link in chain):
            return None
        prefix = Prefix(parent, gathered, tuple(link.hash for link in chain))
        prefixes.append(prefix)
        forked = _forked(prefix)
        if forked is None:
            prefixes.reverse()
            return prefixes
        before = parent
        parent, above = fork_origin(forked)
        if above is None:
            return None
        at = above


def taken_over(forked: Event, gather: Callable[[str], Gathered]) -> list[Prefix] | None:
    """What the fork that this ``SessionForked`` makes takes over, as of ``ancestry``."""
    parent, at = fork_origin(forked)
    return None if at is None else ancestry(forked.session_id, parent, at, gather)


def _forked(prefix: Prefix) -> Event | None:
    """The record that makes the ancestor a fork itself."""
    if len(prefix.hashes) < FORK_SEQ:
        return None
    hash_ = prefix.hashes[FORK_SEQ - 1]
    if hash_ in prefix.gathered.known.amended.stubs:
        return None
    event = prefix.gathered.event(FORK_SEQ, hash_)
    return event if is_fork(event) else None


def whole_history(own: Iterable[Event], gather: Callable[[str], Gathered]) -> Iterator[Event]:
    """The events (and stubs) of a session's path; of a fork's, behind those that it takes over from its ancestors, the
    oldest first. Each says by session id and seq which record it is. ``own``: the path.

    Where a record of an ancestor is missing it ends before the ``SessionForked``, as it does for every reader.
    """
    path = iter(own)
    beginning = list(islice(path, FORK_SEQ))
    if len(beginning) == FORK_SEQ and is_fork(beginning[-1]):
        prefixes = taken_over(beginning[-1], gather)
        if prefixes is None:
            yield beginning[0]
            return
        for prefix in prefixes:
            yield from prefix.events()
    yield from beginning
    yield from path


def state_after(prefixes: Iterable[Prefix]) -> SessionState:
    """The lifecycle's state where a fork begins: ``prefixes`` as of ``ancestry``."""
    above: SessionState | None = None
    for prefix in prefixes:
        state, ops = SessionState(), MemoryOps()
        for event in prefix.events():
            if above is not None and is_fork(event):
                inherit(above, state)
            judge(state, ops, event)
        above = state
    return above or SessionState()


def counting(history: Iterable[Event]) -> Iterator[Event]:
    """The events of a whole history without those that break a rule: these have no effect."""
    state, ops, above = SessionState(), MemoryOps(), SessionState()
    current = None
    for event in history:
        if event.session_id != current:
            current, above = event.session_id, state
            state, ops = SessionState(), MemoryOps()
        if is_fork(event):
            inherit(above, state)
        if not judge(state, ops, event).violations:
            yield event

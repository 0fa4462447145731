"""Events into rows: the lifecycle judges, then every projection that handles the type folds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

from dalsegno.model.ids import root_of
from dalsegno.model.lifecycle import inherit, judge
from dalsegno.model.lifecycle.state import MemoryOps, SessionState, Verdict
from dalsegno.model.path import chain_ending_in
from dalsegno.model.records import Event
from dalsegno.projections.base import ALL, HeadFacts, Projection
from dalsegno.state.history import Journal, Records, events_of
from dalsegno.state.layout import ForkLink
from dalsegno.state.session import Session, facts_of
from dalsegno.state.tables import encode_row

FORK_TYPE: Final = "SessionForked"
FORK_SEQ: Final = 2

_Fold = Callable[[Any, Event, Verdict], None]


class Folder:
    """The folds of one shard."""

    def __init__(self, projections: Sequence[Projection[Any]]) -> None:
        self._projections = list(projections)
        self._by_type: dict[str, tuple[tuple[_Fold, int], ...]] = {}
        self._on_violation = [
            (projection.fold_violation, place)
            for place, projection in enumerate(projections)
            if type(projection).fold_violation is not Projection.fold_violation
        ]
        self._on_stub = [
            (projection.fold_stub, place)
            for place, projection in enumerate(projections)
            if type(projection).fold_stub is not Projection.fold_stub
        ]
        self._on_head: list[tuple[Callable[[Any, HeadFacts], None], int]] = [
            (projection.fold_head, place)
            for place, projection in enumerate(projections)
            if type(projection).fold_head is not Projection.fold_head
        ]

    def fold(self, session: Session, event: Event) -> None:
        """Take the next event of the path into the session's rows."""
        verdict = judge(session.state or session.lifecycle(), session.ops, event)
        rows = session.rows
        if verdict.violations:
            for fold, place in self._on_violation:
                fold(rows[place], event, verdict)
        elif event.stub is None:
            for take, place in self._by_type.get(event.type) or self._find(event.type):
                take(rows[place], event, verdict)
        else:
            for skip, place in self._on_stub:
                skip(rows[place], event)

    def finish(self, session: Session) -> None:
        """Tell the projections of the path's end, if it changed."""
        facts = facts_of(session.head)
        if facts != session.facts:
            for fold, place in self._on_head:
                fold(session.rows[place], facts)
            session.facts = facts

    def _find(self, type_: str) -> tuple[tuple[_Fold, int], ...]:
        found = tuple(
            (projection.fold, place)
            for place, projection in enumerate(self._projections)
            if type_ in projection.handles or projection.handles == ALL
        )
        self._by_type[type_] = found
        return found


class Inheritance(NamedTuple):
    """The state of a fork's ancestors at the point where it begins; ``name`` changes whenever it might."""

    state: SessionState
    name: bytes


class _Prefix(NamedTuple):
    session_id: str
    records: Records
    hashes: tuple[bytes, ...]


def inheritance(
    journal: Journal, child: str, parent: str, link: ForkLink, gather: Callable[[str], Records]
) -> Inheritance | None:
    """What a fork takes over from its parent, and the parent from its own; None if any record of it is missing.

    The prefix is the chain of records that ends in ``link.hash``, whether or not it is the parent's path.
    """
    prefixes: list[_Prefix] = []
    before = child
    while True:
        if parent == before or root_of(parent) != root_of(child):
            return None
        records = gather(parent)
        chain = None if records.amended.whole_session else chain_ending_in(records.links, link.hash)
        if chain is None or chain[-1].seq != link.seq or any(part.hash in records.unfoldable for part in chain):
            return None
        hashes = tuple(part.hash for part in chain)
        prefixes.append(_Prefix(parent, records, hashes))
        forking = records.forking(FORK_SEQ, hashes[FORK_SEQ - 1]) if len(hashes) >= FORK_SEQ else None
        if forking is None:
            break
        event = journal.event(parent, FORK_SEQ, hashes[FORK_SEQ - 1], forking.offset)
        above, above_link = fork_origin(event)
        if above_link is None:
            return None
        before, parent, link = parent, above, above_link
    prefixes.reverse()
    return Inheritance(_fold_prefixes(journal, prefixes), _name(prefixes))


def fork_origin(event: Event) -> tuple[str, ForkLink | None]:
    """The parent that a ``SessionForked`` names, and where it was left; no place if the event does not say it."""
    parent, at = event.body.get("parent_session"), event.body.get("parent_at")
    seq, hash_ = (at.get("seq"), at.get("hash")) if isinstance(at, dict) else (None, None)
    if not isinstance(parent, str) or type(seq) is not int or not isinstance(hash_, bytes) or seq < 1:
        return parent if isinstance(parent, str) else "", None
    return parent, ForkLink(seq, hash_)


def _fold_prefixes(journal: Journal, prefixes: Iterable[_Prefix]) -> SessionState:
    above: SessionState | None = None
    for prefix in prefixes:
        state, ops = SessionState(), MemoryOps()
        for event in events_of(journal, prefix.session_id, prefix.records, prefix.hashes):
            if above is not None and event.seq == FORK_SEQ and event.type == FORK_TYPE and event.stub is None:
                inherit(above, state)
            judge(state, ops, event)
        above = state
    if above is None:
        raise AssertionError("a fork has a parent")
    return above


def _name(prefixes: Iterable[_Prefix]) -> bytes:
    parts = [
        [prefix.session_id, [(hash_, _stub(prefix.records, hash_)) for hash_ in prefix.hashes]] for prefix in prefixes
    ]
    return sha256(encode_row(parts)).digest()


def _stub(records: Records, hash_: bytes) -> tuple[str, str] | None:
    stub = records.amended.stubs.get(hash_)
    return None if stub is None else (stub.action, stub.type)

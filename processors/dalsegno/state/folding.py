"""Events into rows: the lifecycle judges, then every projection that handles the type folds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

from dalsegno.model.history import ForkPoint, Prefix, ancestry, fork_origin, state_after
from dalsegno.model.lifecycle import inherit, judge
from dalsegno.model.lifecycle.state import SessionState, Verdict
from dalsegno.model.records import FIRST_SEQ, Event
from dalsegno.projections.base import ALL, HeadFacts, Projection
from dalsegno.state.history import Journal, Records, gathered
from dalsegno.state.ladder import LEAST_WINDOW_EVENTS, UNTOLD, WINDOW_EVENTS
from dalsegno.state.layout import ForkLink
from dalsegno.state.session import Session, facts_of
from dalsegno.state.tables import encode_row

GATHERED_MAX: Final = 8
"""Ancestors whose records are kept while the forks of a batch are settled; they may be long."""

_NO_RUNG: Final = sys.maxsize
_Fold = Callable[[Any, Event, Verdict], None]


class Folder:
    """The folds of one shard. ``window_events``: there is a rung of the ladder at every so many of a session's events;
    None keeps no ladder."""

    def __init__(self, projections: Sequence[Projection[Any]], window_events: int | None = WINDOW_EVENTS) -> None:
        if window_events is not None and window_events < LEAST_WINDOW_EVENTS:
            raise ValueError(f"wanted: window_events >= {LEAST_WINDOW_EVENTS}")
        self._window_events = _NO_RUNG if window_events is None else window_events
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

    def fold(self, session: Session, event: Event) -> Verdict:
        """Take the next event of the path into the session's rows."""
        if event.seq % self._window_events == FIRST_SEQ and event.seq != FIRST_SEQ:
            self._close(session, event)
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
        return verdict

    def _close(self, session: Session, event: Event) -> None:
        """The event is the first of a window: what the one below it leaves to the ladder is kept."""
        for fold, place in self._on_head:
            fold(session.rows[place], UNTOLD)
        session.facts = None
        session.close(event.seq - 1, event.prev_hash or b"")

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


def take_over(
    journal: Journal, gather: Callable[[str], Records], session_id: str, forked: Event, state: SessionState
) -> None:
    """Before a ``SessionForked`` is judged: the session begins with the state that its ancestors leave to it."""
    parent, at = fork_origin(forked)
    inherited = Inheritances(journal, gather)
    above = None if at is None else inherited.of(session_id, parent, at)[0]
    if above is not None:
        inherit(inherited.state(above), state)


class Inheritance(NamedTuple):
    """What a fork takes over from its ancestors, the oldest first; ``name`` changes whenever it might."""

    prefixes: tuple[Prefix, ...]
    name: bytes


class Inheritances:
    """What the forks of one batch take over, found once for all that begin at one place, and folded only where a fork
    is folded again. Of use while the records stay what they are."""

    def __init__(self, journal: Journal, gather: Callable[[str], Records]) -> None:
        self._journal = journal
        self._gather = gather
        self._records: dict[str, Records] = {}
        self._states: dict[bytes, SessionState] = {}

    def of(self, child: str, parent: str, at: ForkPoint) -> tuple[Inheritance | None, dict[str, ForkLink]]:
        """None if any record of it is missing; and every session that was read for it, with the highest place there."""
        read: list[tuple[str, ForkPoint]] = []
        prefixes = ancestry(child, parent, at, lambda name: gathered(self._journal, name, self._records_of(name)), read)
        links = {name: ForkLink(*place) for name, place in sorted(read, key=lambda each: each[1].seq)}
        return None if prefixes is None else Inheritance(tuple(prefixes), _name(prefixes)), links

    def state(self, above: Inheritance) -> SessionState:
        """The lifecycle's state where the fork begins. Not to be changed."""
        found = self._states.get(above.name)
        if found is None:
            found = self._states[above.name] = state_after(above.prefixes)
        return found

    def _records_of(self, session_id: str) -> Records:
        found = self._records.get(session_id)
        if found is None:
            if len(self._records) >= GATHERED_MAX:
                del self._records[next(iter(self._records))]
            found = self._records[session_id] = self._gather(session_id)
        return found


def _name(prefixes: Iterable[Prefix]) -> bytes:
    parts = [[prefix.session_id, [(hash_, _stub(prefix, hash_)) for hash_ in prefix.hashes]] for prefix in prefixes]
    return sha256(encode_row(parts)).digest()


def _stub(prefix: Prefix, hash_: bytes) -> tuple[str, str] | None:
    stub = prefix.gathered.known.amended.stubs.get(hash_)
    return None if stub is None else (stub.action, stub.type)

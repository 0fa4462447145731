"""Events into rows: the lifecycle judges, then every projection that handles the type folds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from dalsegno.model.history import ForkPoint, Prefix, ancestry, state_after
from dalsegno.model.lifecycle import judge
from dalsegno.model.lifecycle.state import SessionState, Verdict
from dalsegno.model.records import Event
from dalsegno.projections.base import ALL, HeadFacts, Projection
from dalsegno.state.history import Journal, Records, gathered
from dalsegno.state.session import Session, facts_of
from dalsegno.state.tables import encode_row

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


def inheritance(
    journal: Journal, child: str, parent: str, at: ForkPoint, gather: Callable[[str], Records]
) -> Inheritance | None:
    """What a fork takes over from its ancestors; None if any record of it is missing."""
    prefixes = ancestry(child, parent, at, lambda name: gathered(journal, name, gather(name)))
    return None if prefixes is None else Inheritance(state_after(prefixes), _name(prefixes))


def _name(prefixes: Iterable[Prefix]) -> bytes:
    parts = [[prefix.session_id, [(hash_, _stub(prefix, hash_)) for hash_ in prefix.hashes]] for prefix in prefixes]
    return sha256(encode_row(parts)).digest()


def _stub(prefix: Prefix, hash_: bytes) -> tuple[str, str] | None:
    stub = prefix.gathered.known.amended.stubs.get(hash_)
    return None if stub is None else (stub.action, stub.type)

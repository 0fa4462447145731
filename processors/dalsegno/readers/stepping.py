"""A session stepped through, in both directions: what each event changed, and what the model and the validators saw.

A step back folds at most one window of the ladder. In memory are one window's events and rows, and one pack.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from heapq import nlargest
from typing import Any, Final, TypeVar

from dalsegno.errors import NotFound
from dalsegno.model.lifecycle import Verdict
from dalsegno.model.lifecycle.state import bounded
from dalsegno.model.lifecycle.tables import STRICT
from dalsegno.model.records import FIRST_SEQ, Event
from dalsegno.projections.base import values_of
from dalsegno.projections.rows import ValidationRow
from dalsegno.readers.breakpoints import Breakpoint
from dalsegno.readers.learning import once_more
from dalsegno.readers.local import LocalReader
from dalsegno.readers.own_texts import own_texts
from dalsegno.readers.packs import PACKS, Pack, pack_of, with_rules, with_texts
from dalsegno.readers.sessions import SESSIONS, Found
from dalsegno.state.walk import Change, Walk

VALIDATIONS: Final = "validations"
VALIDATIONS_SHOWN: Final = 50
"""The newest ones; how many there are in all is told."""

T = TypeVar("T")


@dataclass(frozen=True)
class Validations:
    """``outcomes``: how many there are by verdict, and by status where there is none; ``newest`` first."""

    outcomes: Mapping[str, int]
    newest: tuple[tuple[str, ValidationRow], ...]


@dataclass(frozen=True)
class Step:
    """A session where one event has been folded, and nothing above it."""

    session_id: str
    seq: int
    end: int
    event: Event
    verdict: Verdict
    changes: tuple[Change, ...]
    state: Any
    """The session's own row; None where it has none."""
    open: tuple[tuple[str, str], ...]
    pack: Pack | None
    """The newest one that was built."""
    validations: Validations


class Stepper:
    """Stands at one event of a session. Every move answers the step it came to, or None where there is nowhere to go;
    then it stands where it stood."""

    def __init__(
        self,
        walk: Walk,
        seq: int,
        learn_schemas: Callable[[], int] = lambda: 0,
        texts_at: Callable[[int, Collection[str]], Mapping[str, str]] = lambda _at, _wanted: {},
    ) -> None:
        """``texts_at``: of the pack that was built at a seq, for these items, what no event holds.

        Raises NotFound where the path has no such event.
        """
        self._walk, self._learn, self._texts_at = walk, learn_schemas, texts_at
        self.end = walk.end
        self.breakpoints: list[Breakpoint] = []
        self._pack: Pack | None = None
        self._newest_pack = (0, 0)
        """At or below the first seq the newest pack was built at the second; 0: there is none."""
        self.step = self.to(seq)

    @property
    def seq(self) -> int:
        return self.step.seq

    @property
    def folded(self) -> int:
        """Events folded since it was opened."""
        return self._walk.folded

    def pack(self) -> Pack | None:
        """The newest pack with all its texts; those that no event holds are found now, not at every step."""
        pack, state = self.step.pack, self.step.state
        if pack is None or pack.row.seq is None or state is None or state.profile != STRICT:
            return pack
        built_at, wanted = pack.row.seq, {item.row.item_id or "" for item in pack.items if item.content is None}
        return with_texts(pack, self._reading(lambda: self._texts_at(built_at, wanted)))

    # --- moves -------------------------------------------------------------------------------------------------------

    def to(self, seq: int) -> Step:
        """Raises NotFound where the path has no such event."""
        if not FIRST_SEQ <= seq <= self.end:
            raise NotFound(
                f"session {self._walk.session_id} has no event at seq {seq}",
                wanted=f"a seq of its path, from {FIRST_SEQ} to {self.end}",
                session=self._walk.session_id,
                seq=seq,
            )
        self.step = self._reading(lambda: self._step(seq))
        return self.step

    def forward(self) -> Step | None:
        return self.to(self.seq + 1) if self.seq < self.end else None

    def back(self) -> Step | None:
        return self.to(self.seq - 1) if self.seq > FIRST_SEQ else None

    def to_next(self, type_: str) -> Step | None:
        """To the next event of this type. Nothing on the way is folded but in the window that it stands in."""
        return self._to(self._reading(lambda: _first(self._walk.above(self.seq), lambda each: each.type == type_)))

    def to_previous(self, type_: str) -> Step | None:
        return self._to(self._reading(lambda: _first(self._walk.below(self.seq), lambda each: each.type == type_)))

    def continue_(self, *, backwards: bool = False) -> Step | None:
        """To the nearest event at which a breakpoint holds."""
        if not self.breakpoints:
            return None
        found = self._reading(lambda: self._nearest(backwards))
        return None if found is None else self.to(found)

    def _to(self, seq: int | None) -> Step | None:
        return None if seq is None else self.to(seq)

    def _reading(self, read: Callable[[], T]) -> T:
        return once_more(read, self._learn)

    # --- breakpoints -------------------------------------------------------------------------------------------------

    def _nearest(self, backwards: bool) -> int | None:
        if not any(each.needs_state for each in self.breakpoints):
            events = self._walk.below(self.seq) if backwards else self._walk.above(self.seq)
            return _first(events, lambda event: self._breaks(event, {}))
        if not backwards:
            return self._first_break(self.seq + 1, self.end)
        # Folds go upwards only: of each window, from here down, the highest hit is the nearest one.
        size, top = self._walk.window_events, self.seq - 1
        while top >= FIRST_SEQ:
            bottom = (top - FIRST_SEQ) // size * size + FIRST_SEQ
            hit = None
            for seq in range(bottom, top + 1):
                if self._breaks_at(seq):
                    hit = seq
            if hit is not None:
                return hit
            top = bottom - 1
        return None

    def _first_break(self, bottom: int, top: int) -> int | None:
        return next((seq for seq in range(bottom, top + 1) if self._breaks_at(seq)), None)

    def _breaks_at(self, seq: int) -> bool:
        self._walk.to(seq)
        state = state_values(self._walk.row(SESSIONS), self._walk.open())
        return self._breaks(self._walk.event(seq), state)

    def _breaks(self, event: Event, state: Mapping[str, Any]) -> bool:
        return any(each.holds(event, state) for each in self.breakpoints)

    # --- what is so at a step ----------------------------------------------------------------------------------------

    def _step(self, seq: int) -> Step:
        walk = self._walk
        walk.to(seq)
        return Step(
            session_id=walk.session_id,
            seq=seq,
            end=self.end,
            event=walk.event(seq),
            verdict=walk.verdict,
            changes=tuple(walk.changes()),
            state=walk.row(SESSIONS),
            open=tuple(walk.open()),
            pack=self._pack_at(seq),
            validations=_validations(walk),
        )

    def _pack_at(self, seq: int) -> Pack | None:
        """It is put together once for all the steps at which it is the newest."""
        built_at = self._newest_pack_at(seq)
        if built_at == 0:
            self._pack = None
        elif self._pack is None or self._pack.row.seq != built_at:
            self._pack = pack_of(self._walk, bounded(self._walk.event(built_at).body["pack_id"]))
        return None if self._pack is None else with_rules(self._walk, self._pack)

    def _newest_pack_at(self, seq: int) -> int:
        """The seq at which the newest pack was built, 0 where there is none; what was looked at once is not again."""
        known_at, known = self._newest_pack
        if known <= seq < known_at:
            return known
        bottom = known_at if seq >= known_at else 0
        for at in range(seq, bottom, -1):
            if self._is_pack(self._walk.event(at)):
                self._newest_pack = (seq, at)
                return at
        found = known if bottom else 0
        self._newest_pack = (seq, found)
        return found

    def _is_pack(self, event: Event) -> bool:
        """Whether it built a pack: one that breaks a rule, or that was amended away, did not."""
        if event.type != "ContextPackBuilt" or event.stub is not None:
            return False
        row = self._walk.row(PACKS, (bounded(event.body["pack_id"]),))
        return row is not None and row.seq == event.seq


def state_values(row: Any, open: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """What a condition on the state may ask for: the fields of the session's row, and what is open."""
    values = {} if row is None else values_of(row)
    return {**values, "open": [{"kind": kind, "id": id} for kind, id in open]}


def _first(events: Iterable[Event], wanted: Callable[[Event], bool]) -> int | None:
    return next((event.seq for event in events if wanted(event)), None)


def _validations(walk: Walk) -> Validations:
    outcomes: dict[str, int] = {}
    found: list[tuple[str, ValidationRow]] = []
    for row_id, row in walk.rows(VALIDATIONS):
        outcome = row.verdict or row.status
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        found.append((str(row_id[0]), row))
    newest = nlargest(VALIDATIONS_SHOWN, found, key=lambda each: (last_seq(each[1]), each[0]))
    return Validations(dict(sorted(outcomes.items())), tuple(deepcopy(newest)))


def last_seq(row: ValidationRow) -> int:
    """Of the newest event that changed a validation."""
    return max(row.requested_seq, row.reported_seq or 0, row.decided_seq or 0, row.amended_seq or 0)


def open_stepper(reader: LocalReader, found: Found, seq: int | None = None) -> Stepper:
    """At a seq of the session's path; without one, at its end. Raises NotFound."""
    reads, session_id = found.view.reads, found.session_id
    walk = reads.walk(session_id)
    texts_at = partial(own_texts, reads, session_id)
    return Stepper(walk, walk.end if seq is None else seq, reader.learn_schemas, texts_at)

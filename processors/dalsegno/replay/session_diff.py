"""Two histories side by side: what is the same, what changed, what only one of them has. Pure.

1. Both are read once, and of each event is kept which one it is and a digest of what it says (``Outline``).
2. They are aligned on that.
3. Where something changed, both are read again, in step, for the fields.
So memory holds a line an event, and of payloads those that are shown.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from dalsegno.model.catalogue import CATALOGUE
from dalsegno.model.ids import FORK_MARK
from dalsegno.model.records import Event
from dalsegno.replay.align import Element, Pair, pair_up
from dalsegno.replay.comparable import Cause, Comparable, Comparer, Identity, cause_of
from dalsegno.replay.divergence import Ancestor, FieldDifference, causal_ancestors, compare_payloads, subject_of

_FORK_FRAME_SEQ: Final = 2
_ANCESTORS_BELOW: Final = 1_000
"""So far back the causes of the first difference are looked for."""

ChangeKind: TypeAlias = Literal["changed", "only-a", "only-b"]
History: TypeAlias = Callable[[], Iterable[Event]]
"""Reads the same events each time it is called."""


class At(NamedTuple):
    """Which record it is, of which history: a fork's begins with its parent's records."""

    session: str
    seq: int
    subject: str
    """The id that the event is about; "" if it has none."""


class Change(NamedTuple):
    """One step that is not the same in both."""

    kind: ChangeKind
    cause: Cause
    identity: Identity
    a: At | None
    b: At | None
    fields: tuple[FieldDifference, ...]
    """Of a changed one: causes before effects, names in the place of ids. ``expected`` is A's side."""

    @property
    def event_class(self) -> str:
        """X, D or L; "" for a type that this build does not know."""
        known = CATALOGUE.get(self.identity.type)
        return "" if known is None else known.cls

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "cause": self.cause.name.lower(),
            **self.identity._asdict(),
            "class": self.event_class,
            "a": None if self.a is None else self.a._asdict(),
            "b": None if self.b is None else self.b._asdict(),
            "fields": [each.to_json() for each in self.fields],
        }


class SessionDiff(NamedTuple):
    """How two histories differ. ``changes``: as many as were asked for, in order."""

    events: tuple[int, int]
    same: int
    kinds: dict[ChangeKind, int]
    causes: dict[str, int]
    last_common: tuple[At, At] | None
    """The last step before the first difference."""
    changes: tuple[Change, ...]
    led_to_first: tuple[Ancestor, ...]
    """Causal ancestors of the first difference, nearest first."""

    @property
    def differences(self) -> int:
        return sum(self.kinds.values())


def diff_histories(a: History, b: History, most: int) -> SessionDiff:
    """Compare two histories. ``most``: changes to keep, of all that are counted; the first one is always among them."""
    outline_a, outline_b = _outline(a()), _outline(b())
    pairs = pair_up(outline_a, outline_b)
    kinds: Counter[ChangeKind] = Counter()
    causes: Counter[Cause] = Counter()
    changes: list[Change] = []
    reading_a, reading_b = _Reading(a()), _Reading(b())
    last_common: tuple[At, At] | None = None
    led_to_first: tuple[Ancestor, ...] = ()
    same = 0
    for i, j in _steps(pairs, len(outline_a), len(outline_b)):
        one = None if i is None else reading_a.at(i)
        other = None if j is None else reading_b.at(j)
        equal = i is not None and j is not None and outline_a[i] == outline_b[j]
        change = None if equal else _change(one, other)
        if change is None:
            same += 1
            if not changes and one is not None and other is not None:
                last_common = one.place, other.place
            continue
        if not changes:
            led_to_first = (reading_a if one is not None else reading_b).ancestors()
        kinds[change.kind] += 1
        causes[change.cause] += 1
        if len(changes) < max(1, most):
            changes.append(change)
    named_causes = {cause.name.lower(): causes[cause] for cause in Cause}
    numbers: dict[ChangeKind, int] = {kind: kinds[kind] for kind in ("changed", "only-a", "only-b")}
    events = len(outline_a), len(outline_b)
    return SessionDiff(events, same, numbers, named_causes, last_common, tuple(changes), led_to_first)


class _Read(NamedTuple):
    event: Event
    comparable: Comparable

    @property
    def place(self) -> At:
        return At(self.event.session_id, self.event.seq, subject_of(self.event))


class _Reading:
    """One history, read in step with the other."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = _without_fork_frames(events)
        self._comparer = Comparer()
        self._recent: deque[Event] = deque(maxlen=_ANCESTORS_BELOW)
        self._next = 0

    def at(self, place: int) -> _Read:
        """The event there; places rise."""
        for event in islice(self._events, place - self._next + 1):
            self._recent.append(event)
            comparable = self._comparer.take(event)
        self._next = place + 1
        return _Read(event, comparable)

    def ancestors(self) -> tuple[Ancestor, ...]:
        """Of the event read last."""
        before = reversed(self._recent)
        return causal_ancestors(next(before), before)


def _outline(events: Iterable[Event]) -> list[Element]:
    comparer = Comparer()
    known: dict[Identity, Identity] = {}
    found = map(comparer.take, _without_fork_frames(events))
    return [Element(known.setdefault(each.identity, each.identity), each.digest) for each in found]


def _without_fork_frames(events: Iterable[Event]) -> Iterator[Event]:
    """A fork's history goes on where its parent's was left: how it says so is no step of either."""
    return (event for event in events if event.seq > _FORK_FRAME_SEQ or FORK_MARK not in event.session_id)


def _steps(pairs: list[Pair], events_a: int, events_b: int) -> Iterator[tuple[int | None, int | None]]:
    """Places in order: of pairs both, of what is alone one, A's before B's."""
    i = j = 0
    for next_i, next_j in pairs:
        yield from ((at, None) for at in range(i, next_i))
        yield from ((None, at) for at in range(j, next_j))
        yield next_i, next_j
        i, j = next_i + 1, next_j + 1
    yield from ((at, None) for at in range(i, events_a))
    yield from ((None, at) for at in range(j, events_b))


def _change(a: _Read | None, b: _Read | None) -> Change | None:
    """What is not the same in a step; None if nothing is."""
    if a is not None and b is not None:
        type_ = a.event.type
        fields = compare_payloads(a.comparable.body, b.comparable.body)
        if not fields:
            return None
        by_cause = sorted(fields, key=lambda field: _cause(type_, field))
        return Change("changed", _cause(type_, by_cause[0]), a.comparable.identity, a.place, b.place, tuple(by_cause))
    alone = a or b
    assert alone is not None, "a step has a side"
    identity, here = alone.comparable.identity, alone.place
    kind: ChangeKind = "only-b" if a is None else "only-a"
    return Change(kind, cause_of(identity.type), identity, a and here, b and here, ())


def _cause(type_: str, field: FieldDifference) -> Cause:
    return cause_of(type_, field.pointer.split("/")[1])

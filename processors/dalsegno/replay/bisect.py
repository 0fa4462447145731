"""Where a condition on a session flips, found by halving. Pure.

As with git bisect it is taken for granted that the condition flips once between a good end and a bad end; both are
judged first, and with ``verify`` places around what was found are too. Where it cannot be judged, a place near by is
asked instead; if in the end only such places are left, the answer is a range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

Holds: TypeAlias = Callable[[int], bool | None]
"""Whether the condition holds at a seq; None: it cannot be judged there."""

SKIPPED_MAX: Final = 256
"""So many places that cannot be judged are asked; then what is left is the range."""


class Flip(NamedTuple):
    """The condition is ``before`` up to ``last_before`` and no longer so from ``first_after`` on; what lies between
    could not be judged. ``against``: judged places that say it flips more than once."""

    before: bool
    last_before: int
    first_after: int
    against: tuple[int, ...] = ()

    @property
    def is_exact(self) -> bool:
        return self.first_after == self.last_before + 1


class Bisected(NamedTuple):
    """``flip`` None: the condition is the same at both ends, or cannot be judged at one of them. ``good``, ``bad``:
    what it is at the ends. ``unjudged``: the places where it could not be told, in order."""

    flip: Flip | None
    good: bool | None
    bad: bool | None
    evaluations: int
    unjudged: tuple[int, ...]


def find_flip(holds: Holds, good: int, bad: int, *, verify: bool = False) -> Bisected:
    """Search between two seqs, ``good`` <= ``bad``. Where all can be judged, ``holds`` is asked at most
    ``ceil(log2(bad - good)) + 2`` times, and no seq twice."""
    search = _Search(holds)
    before, after = search.judge(good), search.judge(bad)
    flip = None
    if before is not None and after is not None and before != after:
        low, high = search.between(good, bad, before)
        against = tuple(search.contradictions(good, low, high, bad, before)) if verify else ()
        flip = Flip(before, low, high, against)
    return Bisected(flip, before, after, len(search.told), search.unjudged())


class _Search:
    def __init__(self, holds: Holds) -> None:
        self._holds = holds
        self.told: dict[int, bool | None] = {}

    def judge(self, seq: int) -> bool | None:
        if seq not in self.told:
            self.told[seq] = self._holds(seq)
        return self.told[seq]

    def unjudged(self) -> tuple[int, ...]:
        return tuple(sorted(seq for seq, told in self.told.items() if told is None))

    def between(self, low: int, high: int, before: bool) -> tuple[int, int]:
        """The last seq that is as before, and the first one that is not, as near to each other as they can be told."""
        skipped = 0
        while (seq := next((each for each in _from_middle(low, high) if each not in self.told), None)) is not None:
            told = self.judge(seq)
            if told is None:
                skipped += 1
                if skipped >= SKIPPED_MAX:
                    break
            elif told == before:
                low = seq
            else:
                high = seq
        return low, high

    def contradictions(self, good: int, low: int, high: int, bad: int, before: bool) -> Iterator[int]:
        """Places at growing distances from the flip at which the condition is not as it should be on that side."""
        for distance in _distances(max(low - good, bad - high)):
            if low - distance > good and self.judge(low - distance) is (not before):
                yield low - distance
            if high + distance < bad and self.judge(high + distance) is before:
                yield high + distance


def _from_middle(low: int, high: int) -> Iterator[int]:
    """The seqs between two, the middle first, then both ways at growing distances, so that a stretch that cannot be
    judged is soon left; then all that are left, the nearest first."""
    middle = (low + high) // 2
    if not low < middle < high:
        return
    reach = high - low
    for distance in (0, *_distances(reach), *range(1, reach)):
        for seq in (middle + distance, middle - distance):
            if low < seq < high:
                yield seq


def _distances(most: int) -> Iterator[int]:
    """1, 2, 4, ... up to ``most``."""
    distance = 1
    while distance <= most:
        yield distance
        distance *= 2

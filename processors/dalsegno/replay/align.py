"""Two sequences side by side: which element of one stands for which of the other. Pure.

An element has an identity and a content. Elements of one identity may be paired; one that has no partner costs
``_ALONE``, a pair whose contents differ costs ``_CHANGED``, and the cheapest pairing is taken. So what was inserted
into a loop is found as that, wherever it stands and however much the loop repeats itself.

The search goes by cost, not by length ("wavefronts": per cost and diagonal, how far one can get), so its work grows
with the square of the differences and only linearly with what is equal. It is bounded by ``_COST_MAX``: two sequences
that differ by more are cut at the elements that each of them has exactly once, and where those are few or in another
order, at the place that was reached. Then what is paired is still of one identity and in order, but it is perhaps not
the cheapest pairing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

_CHANGED: Final = 1
_ALONE: Final = 2
_COST_MAX: Final = 512
"""Up to 256 elements without a partner are placed at the least cost, whatever the length; some 100 ms of work."""
_COST_MAX_BEHIND_CUT: Final = 64
"""Less where many searches follow one another: 2 x 100,000 elements without any order in common take up to 50 s."""

_NOWHERE: Final = -1


class Element(NamedTuple):
    """What is compared of one element; ``content`` counts only among those of one identity."""

    identity: Hashable
    content: bytes


Pair = tuple[int, int]
"""Places of two elements that stand for each other, in the first and in the second sequence."""


def pair_up(a: Sequence[Element], b: Sequence[Element]) -> list[Pair]:
    """The pairs in order, of equal identity each. ``pair_up(b, a)`` gives the same ones, turned round."""
    # Of equally cheap pairings the same one must be found from both sides.
    if _rank(a) > _rank(b):
        return [(i, j) for j, i in pair_up(b, a)]
    first, last = _ends(a, b)
    pairs = [(at, at) for at in range(first)]
    # What the other side has nothing like is alone in every pairing.
    common = {each.identity for each in a[first : len(a) - last]} & {each.identity for each in b[first : len(b) - last]}
    left = [at for at in range(first, len(a) - last) if a[at].identity in common]
    right = [at for at in range(first, len(b) - last) if b[at].identity in common]
    inner = _Search([a[at] for at in left], [b[at] for at in right]).pairs()
    pairs += [(left[i], right[j]) for i, j in inner]
    pairs += [(len(a) - back, len(b) - back) for back in range(last, 0, -1)]
    return pairs


def _rank(elements: Sequence[Element]) -> tuple[int, list[bytes], list[str]]:
    return len(elements), [each.content for each in elements], [repr(each.identity) for each in elements]


def _ends(a: Sequence[Element], b: Sequence[Element]) -> tuple[int, int]:
    """How many elements are equal at the beginning, and at the end of the rest."""
    shorter = min(len(a), len(b))
    first = 0
    while first < shorter and a[first] == b[first]:
        first += 1
    last = 0
    while last < shorter - first and a[-1 - last] == b[-1 - last]:
        last += 1
    return first, last


class _Region(NamedTuple):
    """``a[a_from:a_to]`` beside ``b[b_from:b_to]``, to be searched up to a cost."""

    a_from: int
    a_to: int
    b_from: int
    b_to: int
    cost_max: int


class _Search:
    def __init__(self, a: Sequence[Element], b: Sequence[Element]) -> None:
        self._a, self._b = _numbered(a, b)
        self._a_identity, self._b_identity = _numbered([each.identity for each in a], [each.identity for each in b])

    def pairs(self) -> list[Pair]:
        found: list[Pair] = []
        regions = [_Region(0, len(self._a), 0, len(self._b), _COST_MAX)]
        while regions:
            region = regions.pop()
            pairs, rest = self._cheapest(region)
            if rest is None:
                found += pairs
            elif anchors := self._anchors(region):
                regions += self._between(region, anchors)[::-1]
            else:
                found += pairs
                regions.append(rest)
        return found

    # --- the cheapest pairing ----------------------------------------------------------------------------------------

    def _cheapest(self, region: _Region) -> tuple[list[Pair], _Region | None]:
        """The pairs, and what is left where the bound did not reach the end of both.

        ``fronts[cost][d]`` is how far into ``a`` one gets at that cost on the diagonal ``d`` = place in a - place in b.
        """
        a_from, a_to, b_from, b_to, cost_max = region
        if a_from == a_to or b_from == b_to:
            return [], None
        start, goal = a_from - b_from, a_to - b_to
        fronts: list[dict[int, int]] = []
        for cost in range(cost_max + 1):
            front: dict[int, int] = {}
            reach = cost // _ALONE
            for diagonal in range(start - reach, start + reach + 1):
                at = self._step(fronts, cost, diagonal, region)[0] if cost else a_from
                if at != _NOWHERE:
                    front[diagonal] = self._equal_until(at, diagonal, region)
            fronts.append(front)
            if front.get(goal) == a_to:
                return self._back(fronts, goal, region), None
        diagonal = max(front, key=lambda d: (2 * front[d] - d, -abs(d - goal), d))
        reached = front[diagonal]
        return self._back(fronts, diagonal, region), _Region(
            reached, a_to, reached - diagonal, b_to, min(cost_max, _COST_MAX_BEHIND_CUT)
        )

    def _step(self, fronts: list[dict[int, int]], cost: int, diagonal: int, region: _Region) -> tuple[int, int, int]:
        """The furthest place that one step leads to, and the cost and diagonal from where; ``_NOWHERE`` if none."""
        _, a_to, _, b_to, _ = region
        best, from_cost, from_diagonal = _NOWHERE, 0, 0
        if cost >= _CHANGED:
            at = fronts[cost - _CHANGED].get(diagonal, _NOWHERE)
            there = 0 <= at < a_to and at - diagonal < b_to
            if there and self._a_identity[at] == self._b_identity[at - diagonal]:
                best, from_cost, from_diagonal = at + 1, cost - _CHANGED, diagonal
        if cost >= _ALONE:
            before = fronts[cost - _ALONE]
            at = before.get(diagonal - 1, _NOWHERE)
            if 0 <= at < a_to and at + 1 > best:
                best, from_cost, from_diagonal = at + 1, cost - _ALONE, diagonal - 1
            at = before.get(diagonal + 1, _NOWHERE)
            if at > best and at - diagonal <= b_to:
                best, from_cost, from_diagonal = at, cost - _ALONE, diagonal + 1
        return best, from_cost, from_diagonal

    def _equal_until(self, at: int, diagonal: int, region: _Region) -> int:
        a, b = self._a, self._b
        end = min(region.a_to, region.b_to + diagonal)
        while at < end and a[at] == b[at - diagonal]:
            at += 1
        return at

    def _back(self, fronts: list[dict[int, int]], diagonal: int, region: _Region) -> list[Pair]:
        """The pairs on the way to where the last front got on this diagonal."""
        cost, at = len(fronts) - 1, fronts[-1][diagonal]
        pairs: list[Pair] = []
        while cost:
            stepped, from_cost, from_diagonal = self._step(fronts, cost, diagonal, region)
            pairs += [(i, i - diagonal) for i in range(at - 1, stepped - 1, -1)]
            at = fronts[from_cost][from_diagonal]
            if from_diagonal == diagonal:
                pairs.append((at, at - diagonal))
            cost, diagonal = from_cost, from_diagonal
        pairs += [(i, i - diagonal) for i in range(at - 1, region.a_from - 1, -1)]
        return pairs[::-1]

    # --- where they differ by more -----------------------------------------------------------------------------------

    def _anchors(self, region: _Region) -> list[Pair]:
        """Elements that both have exactly once, as many as stand in one order; none if most of them do not."""
        a, b = self._a[region.a_from : region.a_to], self._b[region.b_from : region.b_to]
        counts_a, counts_b = Counter(a), Counter(b)
        in_b = {each: region.b_from + at for at, each in enumerate(b) if counts_b[each] == 1}
        unique = [(region.a_from + at, in_b[each]) for at, each in enumerate(a) if counts_a[each] == 1 and each in in_b]
        rising = _rising(unique)
        return rising if 2 * len(rising) > len(unique) else []

    def _between(self, region: _Region, anchors: list[Pair]) -> list[_Region]:
        """The anchors and what is between them, in order."""
        places = [(region.a_from - 1, region.b_from - 1), *anchors, (region.a_to, region.b_to)]
        found: list[_Region] = []
        for (a_before, b_before), (a_at, b_at) in pairwise(places):
            found.append(_Region(a_before + 1, a_at, b_before + 1, b_at, region.cost_max))
            if a_at < region.a_to:
                found.append(_Region(a_at, a_at + 1, b_at, b_at + 1, region.cost_max))
        return found


def _numbered(a: Sequence[Hashable], b: Sequence[Hashable]) -> tuple[list[int], list[int]]:
    """Small numbers that are equal where the elements are: compared much faster."""
    numbers: dict[Hashable, int] = {}
    return tuple([numbers.setdefault(each, len(numbers)) for each in some] for some in (a, b))  # type: ignore[return-value]


def _rising(pairs: list[Pair]) -> list[Pair]:
    """The longest run of pairs that rise on both sides; they rise on the first one already."""
    tops: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for at, (_, b) in enumerate(pairs):
        length = bisect_left(tops, b)
        before.append(last[length - 1] if length else _NOWHERE)
        if length == len(tops):
            tops.append(b)
            last.append(at)
        else:
            tops[length], last[length] = b, at
    found: list[Pair] = []
    at = last[-1] if last else _NOWHERE
    while at != _NOWHERE:
        found.append(pairs[at])
        at = before[at]
    return found[::-1]

"""The cheapest pairing of two sequences, beside a table of all of them; and what holds beyond the bound."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.replay import align
from dalsegno.replay.align import Element, Pair, pair_up

sequences = st.lists(st.builds(Element, st.sampled_from("xyz"), st.sampled_from([b"0", b"1", b"2"])), max_size=14)


def cost(a: list[Element], b: list[Element], pairs: list[Pair]) -> int:
    return sum(a[i] != b[j] for i, j in pairs) + 2 * (len(a) + len(b) - 2 * len(pairs))


def least_cost(a: list[Element], b: list[Element]) -> int:
    """By trying everything."""
    row = [2 * j for j in range(len(b) + 1)]
    for i, one in enumerate(a, 1):
        above, row = row, [2 * i]
        for j, other in enumerate(b, 1):
            paired = [above[j - 1] + (one != other)] if one.identity == other.identity else []
            row.append(min([above[j] + 2, row[j - 1] + 2, *paired]))
    return row[-1]


def check_pairing(a: list[Element], b: list[Element]) -> list[Pair]:
    pairs = pair_up(a, b)
    assert all(one[0] < other[0] and one[1] < other[1] for one, other in pairwise(pairs))
    assert all(a[i].identity == b[j].identity for i, j in pairs)
    assert pair_up(b, a) == [(j, i) for i, j in pairs]
    return pairs


@given(sequences, sequences)
def test_the_pairing_is_the_cheapest_and_the_same_from_both_sides(a: list[Element], b: list[Element]) -> None:
    assert cost(a, b, check_pairing(a, b)) == least_cost(a, b)


@given(sequences, sequences)
def test_beyond_the_bound_it_is_still_a_pairing(a: list[Element], b: list[Element]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(align, "_COST_MAX", 4)
        patch.setattr(align, "_COST_MAX_BEHIND_CUT", 2)
        check_pairing(a, b)


def a_loop(rounds: int) -> list[Element]:
    return [Element(step, f"{turn}".encode() if step == "call" else b"") for turn in range(rounds) for step in _ROUND]


_ROUND = ("begin", "ask", "answer", "call", "end")


@given(st.lists(st.tuples(st.integers(0, 100), st.sampled_from(_ROUND)), min_size=1, max_size=12))
def test_steps_inserted_into_a_loop_are_so_many_insertions(inserted: list[tuple[int, str]]) -> None:
    a = a_loop(20)
    b = list(a)
    for number, (at, step) in enumerate(inserted):
        b.insert(at, Element(step, f"new {number}".encode()))
    pairs = pair_up(a, b)
    assert [a[i] for i, _ in pairs] == a == [b[j] for _, j in pairs]


def test_long_sequences_with_more_insertions_than_are_searched_for_are_cut_at_what_is_unique() -> None:
    a = a_loop(4_000)
    b = [
        each
        for turn in range(4_000)
        for each in (*a[5 * turn : 5 * turn + 5], *[Element("call", b"new")] * (turn % 8 == 0))
    ]
    pairs = pair_up(a, b)
    assert len(b) - len(a) == 500
    assert [a[i] for i, _ in pairs] == a == [b[j] for _, j in pairs]


def test_what_is_unique_but_in_another_order_is_no_place_to_cut() -> None:
    a = [Element(f"{at % 7}", f"{at}".encode()) for at in range(2_000)]
    pairs = check_pairing(a, a[::-1])
    assert len(pairs) > 200

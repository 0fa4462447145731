"""A flip found by halving: how often it asks, what cannot be judged, and what is no flip."""

from __future__ import annotations

import pytest

from dalsegno.replay.bisect import SKIPPED_MAX, Bisected, Flip, find_flip


def counted(kth: int, asked: list[int]) -> Bisected:
    def holds(seq: int) -> bool:
        asked.append(seq)
        return seq >= kth

    return find_flip(holds, 1, 100_000)


@pytest.mark.parametrize("kth", [2, 3, 50_000, 99_999, 100_000])
def test_a_hundred_thousand_places_take_nineteen_looks(kth: int) -> None:
    asked: list[int] = []
    found = counted(kth, asked)
    assert found.flip == Flip(False, kth - 1, kth)
    assert found.flip.is_exact
    assert found.evaluations == len(asked) == len(set(asked)) <= 19
    assert asked[:2] == [1, 100_000], "both ends are judged first"


def test_it_flips_from_true_to_false_as_well() -> None:
    assert find_flip(lambda seq: seq < 7, 1, 20).flip == Flip(True, 6, 7)


@pytest.mark.parametrize(("told", "value"), [(True, True), (False, False)])
def test_what_is_the_same_at_both_ends_is_not_searched(told: bool, value: bool) -> None:
    assert find_flip(lambda _: told, 1, 1_000) == Bisected(None, value, value, 2, ())


def test_an_end_that_cannot_be_judged_is_said() -> None:
    found = find_flip(lambda seq: None if seq == 1 else True, 1, 1_000)
    assert found == Bisected(None, None, True, 2, (1,))


def test_two_neighbours_need_no_search() -> None:
    assert find_flip(lambda seq: seq == 2, 1, 2) == Bisected(Flip(False, 1, 2), False, True, 2, ())


def test_what_cannot_be_judged_is_stepped_around() -> None:
    found = find_flip(lambda seq: None if 480 <= seq <= 530 else seq >= 700, 1, 1_000)
    assert found.flip == Flip(False, 699, 700)
    assert len(found.unjudged) <= 12, "a stretch that cannot be judged is left by doubled steps"


def test_where_only_such_places_are_left_the_answer_is_a_range() -> None:
    found = find_flip(lambda seq: None if 41 <= seq <= 44 else seq >= 43, 1, 100)
    assert found.flip == Flip(False, 40, 45)
    assert not found.flip.is_exact
    assert found.unjudged == (41, 42, 43, 44)


def test_so_many_are_asked_and_no_more() -> None:
    found = find_flip(lambda seq: True if seq == 100_000 else False if seq == 1 else None, 1, 100_000)
    assert found.flip == Flip(False, 1, 100_000)
    assert len(found.unjudged) == SKIPPED_MAX
    assert found.evaluations == SKIPPED_MAX + 2


def test_verifying_finds_a_second_flip_near_by_which_halving_alone_does_not_see() -> None:
    def holds(seq: int) -> bool:
        return seq >= 60 and seq not in (61, 64)

    assert find_flip(holds, 1, 100).flip == Flip(False, 59, 60)
    assert find_flip(holds, 1, 100, verify=True).flip == Flip(False, 59, 60, (61, 64))
    assert find_flip(lambda seq: seq >= 60, 1, 100, verify=True).flip == Flip(False, 59, 60)

"""Whatever flips once is found, whatever cannot be judged is no reason to be wrong."""

from __future__ import annotations

from math import ceil, log2

from hypothesis import given
from hypothesis import strategies as st

from dalsegno.replay.bisect import SKIPPED_MAX, find_flip


@given(st.data(), st.integers(2, 5_000), st.booleans(), st.booleans())
def test_the_flip_is_found_in_log2_looks(data: st.DataObject, end: int, before: bool, verify: bool) -> None:
    start = data.draw(st.integers(1, end - 1))
    kth = data.draw(st.integers(start + 1, end))
    asked: list[int] = []

    def holds(seq: int) -> bool:
        asked.append(seq)
        assert start <= seq <= end
        return before if seq < kth else not before

    found = find_flip(holds, start, end, verify=verify)
    assert found.flip is not None
    assert (found.flip.before, found.flip.last_before, found.flip.first_after) == (before, kth - 1, kth)
    assert found.flip.against == ()
    assert len(asked) == len(set(asked)) == found.evaluations
    looks = ceil(log2(end - start)) + 2
    assert found.evaluations <= (3 * looks if verify else looks)


@given(st.data(), st.integers(2, 2_000))
def test_the_range_holds_the_flip_and_nothing_in_it_can_be_judged(data: st.DataObject, end: int) -> None:
    kth = data.draw(st.integers(2, end))
    stretches = data.draw(st.lists(st.tuples(st.integers(2, end), st.integers(0, 120)), max_size=2))
    blank = {seq for first, length in stretches for seq in range(first, first + length) if 1 < seq < end}
    found = find_flip(lambda seq: None if seq in blank else seq >= kth, 1, end)
    assert found.flip is not None
    assert found.flip.last_before < kth <= found.flip.first_after
    assert set(found.unjudged) <= blank
    assert len(blank) < SKIPPED_MAX
    assert set(range(found.flip.last_before + 1, found.flip.first_after)) <= blank, "the narrowest range there is"

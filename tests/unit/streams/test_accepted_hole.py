"""An accepted hole is stepped over as far as the log lacks records, and not one record further."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dalsegno.streams.opening import step_over_hole
from shard_lab import Lab

OFFSETS = st.integers(0, 30) | st.sampled_from([2**62, 10**19 - 1])


@given(st.integers(0, 20), st.none() | OFFSETS, st.integers(0, 30))
def test_no_record_that_is_there_is_stepped_over(cursor: int, hole_to: int | None, log_start: int) -> None:
    shard = Lab().open()
    shard.apply("g", 0, cursor, [])
    step_over_hole(shard, hole_to, log_start)
    assert shard.cursor.next_offset == max(cursor, min(hole_to or 0, log_start))

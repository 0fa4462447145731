"""A line of forks that comes back to itself ends, in the shard as in the model."""

from __future__ import annotations

import pytest

from dalsegno.testing.builder import SessionBuilder, Written, write
from shard_lab import Lab, apply, folded, paths


def ring(size: int) -> list[Written]:
    """Sessions that each fork the next one, at a place that only an amendment puts there: no record can name one that
    names it, but a stub has any hash that its amendment gives it."""
    builders = [SessionBuilder(f"r~{n}", profile="OBSERVED") for n in range(size)]
    places = [bytes([n + 1]) * 32 for n in range(size)]
    records: list[Written] = []
    for n, builder in enumerate(builders):
        parent, there = builders[(n + 1) % size].session_id, places[(n + 1) % size]
        builder.append("SessionCreated", profile="OBSERVED", workflow_name="w", relation="FORK", parent_session=parent)
        builder.append("SessionForked", parent_session=parent, parent_at={"seq": 3, "hash": there})
        tip = builder.tip
        assert tip is not None
        target = {"seq": 3, "hash": places[n], "prev_hash": tip.hash, "epoch": 0, "type": "NoteRecorded"}
        envelope = builder.envelope(0, None, "HistoryAmended")
        fields = {"request_id": "r", "action": "LOST", "reason": "x", "targets": [target], "whole_session": False}
        records += [*builder.records, write("HistoryAmended", envelope, fields)]
    return records


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_forks_in_a_ring_are_held_and_end(size: int) -> None:
    records = ring(size)
    straight = folded(records)
    assert {head.held_reason for head, _ in paths(straight).values()} == {"PARENT_MISSING"}
    shard = Lab().open()
    for record in reversed(records):
        apply(shard, [record])
    assert shard.digests() == straight.digests()

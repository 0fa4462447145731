"""Folds are total: whatever an event holds, and whatever came before it, no fold raises, and every row can be kept."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dalsegno.log.codec import encode
from dalsegno.model.lifecycle import MemoryOps, SessionState, judge
from dalsegno.projections.base import HeadFacts, Projection, values_of
from dalsegno.projections.registry import built_in
from dalsegno.state.outbox import row_schema
from dalsegno.testing.builder import shipped_schemas
from examples import examples
from fold_lab import check_kept, event_of, events_for
from plain_rows import PlainRows, fold_one

PROFILES = st.sampled_from(["STRICT", "OBSERVED", "IMPORTED"])


@pytest.mark.parametrize("projection", built_in(), ids=lambda each: each.name)
@settings(deadline=None, max_examples=examples(25), suppress_health_check=list(HealthCheck))
@given(profile=PROFILES, data=st.data())
def test_no_fold_raises_and_every_row_can_be_kept(
    projection: Projection[Any], profile: str, data: st.DataObject
) -> None:
    # As if the session ran: what is not about another event's operation is folded.
    state, ops, rows = SessionState(status="RUNNING", profile=profile), MemoryOps(), PlainRows()
    events = data.draw(events_for(projection))
    for seq, (type_, body, stub) in enumerate(events, 1):
        event = event_of(seq, type_, body, stub)
        fold_one(projection, rows, event, judge(state, ops, event))
    projection.fold_head(rows, HeadFacts(len(events), b"\x01" * 32, 0, "GAP", len(events) + 1, 1, 2))
    writer = row_schema(projection, shipped_schemas()) if projection.public else None
    for row in [*rows.kept.values(), *rows.added.values()]:
        assert values_of(row)
        assert writer is None or encode(writer, values_of(row))
        check_kept(row, projection.row)
    if projection.private_row is not None:
        for row in rows.private.kept.values():
            check_kept(row, projection.private_row)

"""Folds are total: whatever an event holds, and whatever came before it, no fold raises, and every row can be kept."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from avro_strategies import records
from dalsegno.log.codec import encode
from dalsegno.model.catalogue import CATALOGUE
from dalsegno.model.lifecycle import MemoryOps, SessionState, judge
from dalsegno.model.records import Event
from dalsegno.projections.base import ALL, HeadFacts, Projection, values_of
from dalsegno.projections.registry import built_in
from dalsegno.state.outbox import row_schema
from dalsegno.state.tables import encode_row
from dalsegno.testing.builder import shipped_schemas
from examples import examples
from plain_rows import PlainRows

LARGEST = 32_000
"""Bytes of a row with every list at its limit and every text at the longest that is kept."""
# Few different ids, so that events meet each other's rows; and some that are long.
TEXTS = st.sampled_from(["a", "b", "", "x" * 300, "ü" * 70_000])
BODIES = {type_: records(shipped_schemas().event(type_).schema, TEXTS) for type_ in CATALOGUE}
PROFILES = st.sampled_from(["STRICT", "OBSERVED", "IMPORTED"])
ONE_IN_TEN = st.integers(0, 9).map(lambda number: number == 0)


def events_for(projection: Projection[Any]) -> st.SearchStrategy[list[tuple[str, dict[str, Any], bool]]]:
    """(type, body, whether a stub stands there) of events that the projection takes."""
    types = sorted(CATALOGUE if projection.handles == ALL else projection.handles)
    one = st.sampled_from(types).flatmap(lambda type_: st.tuples(st.just(type_), BODIES[type_], ONE_IN_TEN))
    return st.lists(one, min_size=1, max_size=15)


def event_of(seq: int, type_: str, body: dict[str, Any], stub: bool) -> Event:
    hash_ = sha256(f"{seq}".encode()).digest()
    meta = {**body["meta"], "seq": seq}
    known = (True, bool(meta["ignorable"]), {} if stub else meta, {} if stub else {**body, "meta": meta})
    event = Event("s", seq, hash_, None if seq == 1 else b"\x00" * 32, meta["epoch"], type_, *known)
    event.stub = "ERASED" if stub else None
    return event


def fold(projection: Projection[Any], rows: PlainRows, event: Event, state: SessionState, ops: MemoryOps) -> None:
    verdict = judge(state, ops, event)
    if verdict.violations:
        projection.fold_violation(rows, event, verdict)
    elif event.stub is not None:
        projection.fold_stub(rows, event)
    elif projection.handles == ALL or event.type in projection.handles:
        projection.fold(rows, event, verdict)


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
        fold(projection, rows, event_of(seq, type_, body, stub), state, ops)
    projection.fold_head(rows, HeadFacts(len(events), b"\x01" * 32, 0, "GAP", len(events) + 1, 1, 2))
    writer = row_schema(projection, shipped_schemas())
    for row in [*rows.kept.values(), *rows.added.values()]:
        assert encode(writer, values_of(row))
        check_kept(row, projection.row)
    if projection.private_row is not None:
        for row in rows.private.kept.values():
            check_kept(row, projection.private_row)


def check_kept(row: Any, kind: type[Any]) -> None:
    raw = encode_row(row)
    assert len(raw) < LARGEST
    assert msgspec.msgpack.decode(raw, type=kind) == row

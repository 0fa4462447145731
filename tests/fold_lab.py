"""Any events of any types for folds, and what holds of every row."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
from hypothesis import strategies as st

from avro_strategies import records
from dalsegno.model.catalogue import CATALOGUE
from dalsegno.model.records import Event
from dalsegno.projections.base import ALL, Projection
from dalsegno.state.tables import encode_row
from dalsegno.testing.builder import shipped_schemas

LARGEST = 32_000
"""Bytes of a row with every list at its limit and every text at the longest that is kept."""
# Few different ids, so that events meet each other's rows; and some that are long.
TEXTS = st.sampled_from(["a", "b", "", "x" * 300, "ü" * 70_000])
BODIES = {type_: records(shipped_schemas().event(type_).schema, TEXTS) for type_ in CATALOGUE}
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


def check_kept(row: Any, kind: type[Any]) -> None:
    raw = encode_row(row)
    assert len(raw) < LARGEST
    assert msgspec.msgpack.decode(raw, type=kind) == row

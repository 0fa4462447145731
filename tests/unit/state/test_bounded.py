"""A session's length costs nothing: rows touched and bytes written per event stay what they were."""

from __future__ import annotations

import pytest

from dalsegno.projections.registry import built_in
from dalsegno.state.cells import CellTable
from dalsegno.state.ladder import WINDOW_EVENTS
from dalsegno.state.shard import Shard
from dalsegno.testing.bench_flat import long_session
from dalsegno.testing.builder import SessionBuilder, Written
from shard_lab import Lab, apply


def cost(shard: Shard, records: list[Written]) -> tuple[int, int]:
    applied = [apply(shard, [record]) for record in records]
    return sum(each.rows_touched for each in applied), sum(each.bytes_written for each in applied)


@pytest.mark.parametrize("events", [20_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_the_last_thousand_events_cost_what_the_first_did(events: int, monkeypatch: pytest.MonkeyPatch) -> None:
    records = long_session(events)
    assert len(records) >= events
    shard = Lab().open(built_in(), cached_rows=1_000, window_events=WINDOW_EVENTS)
    apply(shard, records[:6_002])
    loads = 0
    load = CellTable.load

    def counted(table: CellTable, row_id: tuple[str | int, ...]) -> object:
        nonlocal loads
        loads += 1
        return load(table, row_id)

    monkeypatch.setattr(CellTable, "load", counted)
    first = cost(shard, records[6_002:7_202])
    first_loads, loads = loads, 0
    apply(shard, records[7_202 : events - 1_200])
    loads = 0
    last_1200 = records[events - 1_200 : events]
    last = cost(shard, last_1200)
    assert last[0] == first[0]
    assert last[1] == pytest.approx(first[1], rel=0.02)  # numbers in rows get longer by a byte or two
    assert loads <= first_loads + 6
    kept = sum(len(table.cells) for session in shard._work.sessions.values() for table in session.tables)
    assert kept < 2_000


def test_memory_does_not_grow_with_sessions() -> None:
    shard = Lab().open(cached_rows=500)
    for number in range(300):
        apply(shard, SessionBuilder(f"s-{number}").begin().records)
    kept = sum(len(table.cells) for session in shard._work.sessions.values() for table in session.tables)
    assert kept <= 500
    assert shard.counts.sessions == 300
    assert shard.recompute_digests() == shard.digests()

"""The state of a session at any seq is the fold of its path up to there, from whatever rows the shard has."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dalsegno.model.history import is_fork
from dalsegno.model.lifecycle import MemoryOps, SessionState, Verdict, inherit, judge
from dalsegno.model.lifecycle.state import COUNTED, OPEN_PHASES
from dalsegno.model.records import Event
from dalsegno.projections.base import ALL, HeadFacts, Projection, RowId, Rows
from dalsegno.projections.registry import built_in
from dalsegno.state.keys import LADDER
from dalsegno.state.kv import STATE, scan_prefix
from dalsegno.state.shard import Shard
from dalsegno.testing.reference import Settled, settle
from dalsegno.testing.strategies import History, histories
from examples import examples
from plain_rows import PlainRows, fold_one
from shard_lab import Lab, apply_in_batches, folded, reads

RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=examples(30))
WINDOWS = st.sampled_from([2, 3, 5])


# --- projections that do what the built-in ones seldom do -------------------------------------------------------------


class Seen(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    seq: int


class Blinks(Projection[Seen]):
    """Rows that are changed in many windows, go, and come again; some by violations and stubs."""

    name, version, handles, row, private_row = "blinks", 1, ALL, Seen, Seen

    def fold(self, rows: Rows[Seen], event: Event, _: Verdict) -> None:
        for number in (2, 3, 7):
            if event.seq % number:
                rows.put((number, "x"), Seen(event.seq))
            else:
                rows.delete((number, "x"))
        rows.private.put((event.seq % 3,), Seen(event.seq))
        if event.seq % 4 == 0:
            rows.private.delete((0,))

    def fold_violation(self, rows: Rows[Seen], event: Event, _: Verdict) -> None:
        rows.put(("broken",), Seen(event.seq))

    def fold_stub(self, rows: Rows[Seen], event: Event) -> None:
        rows.put(("stub", str(event.stub)), Seen(event.seq))


class Tip(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    seq: int = 0
    held: str | None = None
    forks: int = 0


class Tips(Projection[Tip]):
    """Rows that follow from the path's end: one beside a field of the fold, one alone, and one only while held."""

    name, version, handles, row = "tips", 1, frozenset({"TurnStarted"}), Tip

    def fold(self, rows: Rows[Tip], _event: Event, _: Verdict) -> None:
        row = rows.get() or Tip()
        row.forks += 1
        rows.put((), row)

    def fold_head(self, rows: Rows[Tip], head: HeadFacts) -> None:
        row = rows.get() or Tip()
        row.seq, row.held = head.seq, head.held_reason
        rows.put((), row)
        rows.put(("alone",), Tip(head.seq, head.held_reason))
        if head.held_reason is None:
            rows.delete(("held",))
        else:
            rows.put(("held",), Tip(head.seq))


def projections() -> list[Projection[Any]]:
    return [*built_in(), Blinks(), Tips()]


# --- the plain way ----------------------------------------------------------------------------------------------------


class Noting(PlainRows):
    """``PlainRows`` that say what was put or taken away."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: set[RowId] = set()

    def put(self, row_id: RowId, row: Any) -> None:
        super().put(row_id, row)
        self.touched.add(row_id)

    def delete(self, row_id: RowId) -> None:
        super().delete(row_id)
        self.touched.add(row_id)

    def add(self, key: RowId, amounts: Any) -> None:
        super().add(key, amounts)
        self.touched.add(key)

    def shown(self) -> dict[RowId, Any]:
        sums = {key: row for key, row in self.added.items() if any(getattr(row, n) for n in row.__struct_fields__)}
        return self.kept | sums


class Plain:
    """A session folded event by event over dictionaries."""

    def __init__(self, settled: Settled) -> None:
        self._settled = settled
        self.state, self.ops = SessionState(), MemoryOps()
        self._rows = {each.name: (each, Noting()) for each in projections()}
        self.stubs = 0

    def steps(self) -> Iterator[Event]:
        for event in self._settled.events:
            if is_fork(event) and self._settled.inherited is not None:
                inherit(self._settled.inherited, self.state)
            verdict = judge(self.state, self.ops, event)
            self.stubs += event.stub is not None
            for projection, rows in self._rows.values():
                rows.touched.clear()
                fold_one(projection, rows, event, verdict)
            yield event

    def touched(self) -> dict[str, set[RowId]]:
        return {name: set(rows.touched) for name, (_, rows) in self._rows.items() if rows.touched}

    def rows(self, event: Event) -> dict[str, dict[RowId, Any]]:
        """The rows of every projection, told that the path ends with this event."""
        found = {}
        for name, (projection, rows) in self._rows.items():
            told = copy.deepcopy(rows)
            projection.fold_head(told, HeadFacts(event.seq, event.hash, event.epoch, None, None, 0, self.stubs))
            found[name] = told.shown()
        return found

    def private(self) -> dict[str, dict[RowId, Any]]:
        return {
            name: rows.private.kept
            for name, (projection, rows) in self._rows.items()
            if projection.private_row is not None
        }


def check_every_seq(shard: Shard, settled: dict[str, Settled]) -> None:
    reader = reads(shard)
    for name, of_session in settled.items():
        plain = Plain(of_session)
        for event in plain.steps():
            found = reader.at(name, event.seq)
            assert (found.event, found.folded <= shard._work.window_events) == (event, True)
            assert found.state == plain.state
            assert dict(found.operations()) == plain.ops.rows
            assert set(found.open()) == {
                key for key, op in plain.ops.rows.items() if key[0] in COUNTED and op.phase in OPEN_PHASES
            }
            assert {each: set(ids) for each, ids in found.changed.items()} == plain.touched()
            rows = plain.rows(event)
            assert {each.name: dict(found.rows(each.name)) for each in projections()} == rows
            assert {each: dict(found.private_rows(each)) for each in plain.private()} == plain.private()
            for row_id, row in rows["tools"].items():
                assert found.row("tools", row_id) == row


def ladder(shard: Shard) -> dict[bytes, bytes]:
    return dict(scan_prefix(shard.kv, STATE, LADDER))


@RELAXED
@given(histories(max_sessions=2), st.randoms(use_true_random=False), WINDOWS)
def test_any_seq_is_the_fold_of_the_path_up_to_there(history: History, rnd: Random, window_events: int) -> None:
    lab = Lab()
    shard = lab.open(projections(), window_events=window_events)
    shard = apply_in_batches(
        lab, shard, history.arrivals(rnd), rnd, projections=projections(), window_events=window_events
    )
    check_every_seq(shard, settle((record.key, record.value) for record in history.compacted()))


@RELAXED
@given(histories(max_sessions=2), st.randoms(use_true_random=False), WINDOWS)
def test_the_ladder_is_the_same_however_the_records_arrived(history: History, rnd: Random, window_events: int) -> None:
    straight = folded(history.compacted(), projections=projections(), window_events=window_events)
    lab = Lab()
    shard = lab.open(projections(), window_events=window_events)
    shard = apply_in_batches(
        lab, shard, history.arrivals(rnd), rnd, projections=projections(), window_events=window_events
    )
    assert ladder(shard) == ladder(straight)
    assert shard.digests() == straight.digests() == shard.recompute_digests()
    shard.refold(rnd.sample(["lifecycle", *(each.name for each in projections())], 3))
    assert ladder(shard) == ladder(straight)
    assert shard.digests() == straight.digests() == shard.recompute_digests()

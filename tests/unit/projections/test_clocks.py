"""Clocks order nothing: whatever they say, sessions of the same events have the same rows but for the times in them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from dalsegno.projections.base import values_of
from dalsegno.projections.registry import built_in
from dalsegno.testing.builder import START_MICROS, SessionBuilder
from dalsegno.testing.moves import play
from shard_lab import folded, reads

MINUTE = 60_000_000
CLOCKS: dict[str, Callable[[int], int]] = {
    "all at one moment": lambda _: START_MICROS,
    "backwards": lambda seq: START_MICROS - seq * MINUTE,
    "back by ten minutes in the middle": lambda seq: START_MICROS + seq - (10 * MINUTE if seq > 25 else 0),
    "by chance": lambda seq: START_MICROS + Random(seq).randrange(-100 * MINUTE, 100 * MINUTE),
}


class ByClock(SessionBuilder):
    """``recorded_at`` never falls, as no writer lets it."""

    def __init__(self, clock: Callable[[int], int] | None) -> None:
        super().__init__("s", profile="OBSERVED")
        self._clock = clock

    def envelope(self, seq: int, prev_hash: bytes | None, type_: str) -> dict[str, Any]:
        found = super().envelope(seq, prev_hash, type_)
        if self._clock is not None:
            before = self.events[-1].meta["recorded_at"] if self.events else 0
            now = self._clock(seq)
            found |= {"occurred_at": now, "recorded_at": max(before, now)}
        return found


def session(clock: Callable[[int], int] | None = None) -> SessionBuilder:
    """More than fifty events of all kinds."""
    builder = ByClock(clock).begin().start()
    moves = Random(7)
    while len(builder.records) < 80:
        play(builder, [moves.getrandbits(16) for _ in range(4)])
    builder.append("SessionCompleted", outcome="SUCCESS")
    return builder


def timeless(value: Any) -> Any:
    """Without times, and without hashes, which cover them."""
    if isinstance(value, dict):
        return {
            name: timeless(each)
            for name, each in value.items()
            if name not in ("at", "head_hash") and not name.endswith("_at")
        }
    return [timeless(each) for each in value] if isinstance(value, list | tuple) else value


def rows_of(builder: SessionBuilder) -> dict[str, Any]:
    """Without the rollups, which sum by day, and so by clock."""
    reader = reads(folded(builder.records))
    names = [each.name for each in built_in() if each.public and not each.rollup]
    return {name: [(id, timeless(values_of(row))) for id, row in reader.rows(name, "s")] for name in names}


@pytest.mark.parametrize("clock", CLOCKS.values(), ids=CLOCKS)
def test_rows_are_the_same_whatever_the_clocks_say(clock: Callable[[int], int]) -> None:
    # case C50
    straight, odd = session(), session(clock)
    assert [event.type for event in odd.events] == [event.type for event in straight.events]
    assert [verdict.violations for verdict in odd.verdicts] == [verdict.violations for verdict in straight.verdicts]
    assert rows_of(odd) == rows_of(straight)


def test_a_receipt_of_before_its_call_is_the_calls_and_no_duration_is_below_zero() -> None:
    # case C50
    builder = SessionBuilder("s", profile="OBSERVED").begin()
    builder.append("ToolCallRequested", tool_call_id="c", name="n")
    builder.append("ToolCallAuthorized", tool_call_id="c", basis="POLICY_ALLOW")
    builder.append("ToolCallStarted", tool_call_id="c", attempt=1)
    early = builder.events[-1].meta["occurred_at"] - 10 * MINUTE
    builder.append("ToolReceiptRecorded", meta={"occurred_at": early}, tool_call_id="c", attempt=1, status="OK")
    builder.append("SessionCompleted", meta={"occurred_at": early}, outcome="SUCCESS")
    assert not any(verdict.violations for verdict in builder.verdicts)
    reader = reads(folded(builder.records))
    row = reader.row("tools", "s", ("c",))
    assert (row.status, row.receipts) == ("OK", 1)
    ((_, sums),) = reader.rollups("outcomes")
    assert (sums.sessions, sums.timed, sums.duration_micros) == (1, 0, 0)

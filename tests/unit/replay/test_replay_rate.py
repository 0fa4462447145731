"""How fast decisions are checked beside the folding of the same events: 1,000 decided sessions, in one run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

import pytest

from dalsegno.cli.frame import run
from reader_lab import PREFIX, House
from replay_lab import decided, records_of

SESSIONS, TURNS = 1_000, 6
AT_LEAST = 0.5


class Timed(NamedTuple):
    wall: float
    cpu: float


def timed(do: Callable[[], object]) -> Timed:
    wall, cpu = perf_counter(), process_time()
    do()
    return Timed(perf_counter() - wall, process_time() - cpu)


@pytest.mark.long
def test_inference_skipping_is_at_least_half_as_fast_as_projection_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one process: the processor time of check (reading the shard included) beside that of folding the same records
    into all projections, RocksDB and digests included. Then on all cores, which starts their processes too."""
    monkeypatch.chdir(tmp_path)
    events = decided(TURNS)
    records = [each for number in range(SESSIONS) for each in records_of(f"s-{number:04}", events).records]
    with House(tmp_path) as house:
        folded = timed(lambda: house.shard(records))
        alone = timed(lambda: _replayed(house, 1, capsys))
        cores = os.cpu_count() or 1
        together = timed(lambda: _replayed(house, cores, capsys))
    rates = [len(records) / seconds for seconds in (folded.wall, alone.wall, together.wall)]
    with capsys.disabled():
        print(
            f"\n{len(records)} events, load {os.getloadavg()[0]:.1f}: projection-only {rates[0]:.0f}/s, "
            f"inference-skipping {rates[1]:.0f}/s, on {cores} cores {rates[2]:.0f}/s; "
            f"by processor time {folded.cpu / alone.cpu:.2f} of projection-only's rate"
        )
    assert folded.cpu / alone.cpu >= AT_LEAST
    assert folded.wall / together.wall >= AT_LEAST


def _replayed(house: House, jobs: int, capsys: pytest.CaptureFixture[str]) -> None:
    mode = ("replay", "run", "--mode", "inference-skipping", "--all", "--jobs", str(jobs))
    assert run(["--data", str(house.data), "--prefix", PREFIX, "-o", "json", *mode]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["verdict"] for each in found] == ["EQUAL"] * SESSIONS

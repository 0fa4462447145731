"""What ``dalsegno bench`` publishes, counts and says of its bars, without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dalsegno.cli.frame import run
from dalsegno.log.record import LogRecord
from dalsegno.model.ids import Offset
from dalsegno.projections.registry import built_in
from dalsegno.state.memory import MemoryStore
from dalsegno.state.shard import Shard, ShardIdentity
from dalsegno.testing.bench_child import peak_bytes
from dalsegno.testing.bench_flat import Flat, measure
from dalsegno.testing.bench_loops import Nowhere
from dalsegno.testing.bench_report import STAGES, Raw, bars
from dalsegno.testing.bench_world import Mix
from dalsegno.testing.builder import shipped_schemas

MIX = Mix(events=700, sessions=30, active=5, evenly=False)
FLAT = Flat(100_000, 4.5, 4.5, 1_000.0, 1_005.0)


def pairs(seed: int = 1) -> list[tuple[bytes, bytes]]:
    return [(record.key, record.value) for record in MIX.part(MIX.events, MIX.sessions, seed).records()]


def test_the_mix_has_as_many_events_as_were_asked_for_and_is_the_same_every_time() -> None:
    assert len(pairs()) == MIX.events
    assert pairs() == pairs()
    assert not {key for key, _ in pairs()} & {key for key, _ in pairs(seed=2)}


def test_a_shard_over_nowhere_folds_as_one_that_keeps_its_rows() -> None:
    records = [LogRecord(Offset(at), key, value, 0, 0) for at, (key, value) in enumerate(pairs())]
    identity = ShardIdentity("bench", "bench", "0" * 32, 0, 1, "bench", "-")
    digests = []
    for store in (Nowhere(), MemoryStore()):
        shard = Shard.open(store, identity=identity, schemas=shipped_schemas(), projections=built_in())
        for at in range(0, len(records), 100):
            shard.apply("bench", at, min(at + 100, len(records)), records[at : at + 100])
        digests.append(shard.digests())
    assert digests[0] == digests[1]


def raw(**seconds: float) -> dict[str, Raw]:
    return {name: Raw(name, 1_000, took, took, 400_000_000, 0.1) for name, took in seconds.items()}


def verdicts(found: dict[str, Raw], flat: Flat | None = FLAT) -> list[bool | None]:
    return [bar.passed for bar in bars(found, flat)]


def test_every_bar_says_whether_it_is_reached() -> None:
    good = raw(decode=1.0, journal=4.0, worker=10.0, two=6.25, tail=0.5, memory=3.0)
    assert verdicts(good) == [True] * 6
    bad = raw(decode=1.0, journal=4.01, worker=10.0, two=6.26, tail=0.51, memory=3.0)
    bad["worker"] = bad["worker"]._replace(peak_bytes=500_000_001)
    assert verdicts(bad, FLAT._replace(last_rows=4.6)) == [False] * 6
    assert verdicts(good, FLAT._replace(last_bytes=1_021.0))[-1] is False


def test_what_was_not_measured_is_neither_reached_nor_missed() -> None:
    assert verdicts(raw(decode=1.0), None) == [None] * 6
    assert [bar.found for bar in bars({}, None)] == ["not measured"] * 6


def test_an_event_of_a_long_session_costs_what_one_of_a_short_one_does() -> None:
    found = measure(12_000)
    assert found.first_rows == found.last_rows > 1
    assert found.last_bytes == pytest.approx(found.first_bytes, rel=0.01)


def test_the_peak_is_at_least_what_was_held() -> None:
    held = bytearray(200_000_000)
    held[::4096] = b"x" * len(held[::4096])
    assert peak_bytes() >= len(held)


def test_a_stage_that_does_not_exist_is_refused(capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALSEGNO_DATA", str(tmp_path))
    assert run(["bench", "--stages", "decode,nothing"]) == 2
    said = capsys.readouterr().err
    assert "nothing" in said
    assert STAGES[0] in said

"""``dalsegno bench`` on a real broker, with few events: what it measures, what it keeps, what it says."""

from __future__ import annotations

import pytest

from dalsegno.log.admin import watermarks
from dalsegno.testing.bench_report import STAGES
from harness_cli import Cli
from harness_worker import World

pytestmark = pytest.mark.broker

MIX = ("--events", "2000", "--sessions", "40", "--active", "8")


def test_all_stages_are_measured_and_the_events_are_published_once(world: World, cli: Cli) -> None:
    stages = [name for name in STAGES if name != "flat"]
    said = cli("bench", *MIX, "--stages", ",".join(stages))
    assert "2000 events published" in said.err
    found = {line["stage"]: line for line in said.json["stages"]}
    # With fewer events than the small figure there is nothing to compare the memory with.
    assert list(found) == [name for name in stages if name != "memory"]
    assert all(line["per_second"] > 0 and line["peak_mib"] > 20 for line in found.values())
    assert {name: line["events"] for name, line in found.items() if name != "tail"} == dict.fromkeys(
        [name for name in found if name != "tail"], 2000
    )
    assert found["tail"]["events"] == 100
    assert found["decode"]["ratio"] == 1.0
    assert found["journal"]["ratio"] > 0
    judged = {bar["bar"]: bar["passed"] for bar in said.json["bars"]}
    assert [passed is None for passed in judged.values()] == [False, False, False, False, True, True]
    assert said.json["machine"]["cores"] >= 1

    topic = f"{world.prefix}-bench-2000-40-8.events"
    ends = watermarks(world.config, topic)
    assert sum(marks.high for marks in ends.values()) == 2100
    again = cli("bench", *MIX, "--stages", "decode", text=True)
    assert "2100 events of an earlier run are used again" in again.err
    assert "decode" in again.out
    assert "not measured" in again.out
    assert watermarks(world.config, topic) == ends

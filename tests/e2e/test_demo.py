"""The demo from end to end, as a user runs it: another process, a folder of its own, a broker of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from inspect_logs import THEORY, needs_traces

pytestmark = pytest.mark.broker
ENTRY = "from dalsegno.cli import main; main()"
EFFECTS = "resumed: SUCCESS; done outside: 1 escalate, 2 refund, 4 reply"
# Of examples/triage: up to there, the log of a run is the same whatever it is killed behind.
FIRST_DIFFERENCE = """
   seq 69  PolicyEvaluated (D)  CONFIG  act.1/t1/c0/d1
     /decision  - ALLOW
                + REQUIRE_APPROVAL
"""
Demo = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, broker_data: Path) -> Iterator[Demo]:
    data = tmp_path_factory.mktemp("demo") / "data"
    jars = data / "broker" / "jars"
    jars.parent.mkdir(parents=True)
    jars.symlink_to(broker_data / "broker" / "jars")  # fetched once for all tests

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        settings = {k: v for k, v in os.environ.items() if not k.startswith("DALSEGNO_")}
        return subprocess.run(
            [sys.executable, "-c", ENTRY, "-o", "json", "demo", *arguments],
            env={**settings, "DALSEGNO_DATA": str(data), "DALSEGNO_PARTITIONS": "4"},
            cwd=data,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    yield run
    done = run("--clean")
    assert done.returncode == 0, done.stderr
    assert not (data / "demo").exists()


def table(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return {row["what"]: row for row in json.loads(done.stdout)}


def test_the_demo_loses_nothing_and_finds_the_planted_byte(demo: Demo) -> None:
    done = demo("--sessions", "20")
    rows = table(done)
    assert rows["events lost"]["found"] == 0
    assert rows["events folded"]["found"] == rows["events acknowledged by Kafka"]["found"] > 500
    assert [row["good"] for row in rows.values() if row["good"] is not None] == [True] * 9
    for told in ("goal      The nightly export", "needs approval", "maria granted it after 4 min", "verdict   PASS"):
        assert told in done.stderr
    assert EFFECTS in done.stderr
    for mode in ("projection-only", "full", "inference-skipping", "simulation", "partial"):
        (told,) = re.findall(rf"^   {mode} +(\d+) of (\d+) (?:rows|decisions) equal", done.stderr, re.MULTILINE)
        assert told[0] == told[1] != "0", mode
    assert rows["effects of it that happened once"]["found"] == 7
    assert FIRST_DIFFERENCE in done.stderr
    session = next(line.split()[-1] for line in done.stderr.splitlines() if " session show " in line)
    assert session.startswith("story-")
    assert re.search(r" replay run .* --session desk-\S+ --policy \S+/changed/policy\.yaml$", done.stderr, re.MULTILINE)


@pytest.mark.long
@needs_traces
def test_the_demo_tells_a_recording(demo: Demo) -> None:
    done = demo("--sessions", "20", str(THEORY))
    assert table(done)["events lost"]["found"] == 0
    assert "one of 100 imported from theory-of-mind.eval" in done.stderr
    assert "verdict   PASS (C) by model_graded_fact" in done.stderr

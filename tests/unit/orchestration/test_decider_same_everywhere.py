"""Equal facts give equal decisions in every process, whatever its hash seed, its time zone and its locale."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dalsegno.model.catalogue import CATALOGUE
from decider_lab import Scene
from decider_variants import recorded
from decider_world import COMPRESSIONS, POLICIES, TRANSITIONS, Oracle, Stage, all_stages

TESTS = Path(__file__).parents[2]
PLACES = [("0", "UTC", "C.UTF-8"), ("1", "Asia/Kathmandu", "C"), ("4242", "America/St_Johns", "C.UTF-8")]
"""Hash seed, time zone, locale."""


def decided(scene: Scene) -> list[list[Any]]:
    """Type and payload of every decision, as JSON has it."""
    return [
        [event.type, json.loads(json.dumps(event.body | {"meta": None}, default=bytes.hex))]
        for event in scene.events
        if CATALOGUE[event.type].cls == "D"
    ]


def busy(seed: int) -> Scene:
    """A session of many stages, calls, judges and compressions, answered first come, first served."""
    stages: list[Stage] = all_stages()
    scene = Scene(
        stages, transitions=TRANSITIONS, policy=POLICIES, rules=COMPRESSIONS, labels=[("team", "x")], begun=False
    )
    oracle = Oracle(seed, scene)
    while scene.conductor.running and (ready := oracle.ready()):
        ready[0]()
    return scene


def all_decisions() -> list[list[list[Any]]]:
    return [decided(scene) for scene in (recorded(), *(busy(seed) for seed in range(6)))]


def test_three_processes_decide_alike() -> None:
    said = []
    for seed, zone, locale in PLACES:
        environment = os.environ | {
            "PYTHONHASHSEED": seed, "TZ": zone, "LC_ALL": locale,
            "PYTHONPATH": os.pathsep.join([str(TESTS), str(Path(__file__).parent)]),
        }  # fmt: skip
        child = subprocess.run(
            [sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        said.append(child.stdout)
    assert said[0] == said[1] == said[2]
    sessions = json.loads(said[0])
    assert sessions == all_decisions()
    assert sum(len(each) for each in sessions) > 300
    kinds = {each[0] for session in sessions for each in session}
    assert kinds >= {"CompressionCompleted", "ApprovalRequested", "ValidationDecided", "ToolRetryDecided"}


def _backwards(scene: Scene) -> int:
    scene.now -= 600_000_000
    return scene.now


@pytest.mark.parametrize(
    "tick", [lambda _scene: 4_102_444_800_000_000, _backwards], ids=["it stands still", "each event is 10 min earlier"]
)
def test_the_clock_decides_nothing(tick: Callable[[Scene], int], monkeypatch: pytest.MonkeyPatch) -> None:
    now = all_decisions()
    monkeypatch.setattr(Scene, "_tick", tick)
    assert all_decisions() == now


if __name__ == "__main__":
    print(json.dumps(all_decisions()))

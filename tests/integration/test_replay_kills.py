"""``kill -9`` after each numbered step of a reset: the same plan is gone on with, or given up, and nothing is lost."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from dalsegno.model.cursor import parse_metadata
from dalsegno.streams.faults import KILL_VARIABLE
from harness_cli import Cli
from harness_worker import World

pytestmark = pytest.mark.broker
STEPS = [f"reset.{n}" for n in range(1, 6)]
MOVE = ("--yes", "--no-worker", "--timeout-seconds", "0")


def killed_at(step: str, replay_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the plan in a process of its own that ends by SIGKILL after the step."""
    with monkeypatch.context() as patch:
        patch.setenv(KILL_VARIABLE, step)
        command = [sys.executable, "-c", "from dalsegno.cli import main; main()", "replay", "run", replay_id, *MOVE]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, f"{step}: {done.stdout}{done.stderr}"


def generation_of(world: World, number: int) -> str | None:
    parsed = parse_metadata(world.committed()[number].metadata)
    return None if parsed is None else parsed[0]


def test_a_reset_that_ends_after_any_step_is_gone_on_with_or_given_up(
    world: World, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.produce(200)
    world.start()
    world.settle()
    cli("snapshot", "take")
    world.produce(60)
    world.settle()
    world.workers[0].stop()
    world.wait_until_group_is_empty()
    size, start = world.topic_sizes(), world.committed()

    for step in STEPS:
        before = world.committed()
        replay_id = cli("replay", "plan", "--from", "latest-snapshot").json["id"]
        killed_at(step, replay_id, monkeypatch)
        moved = step in ("reset.4", "reset.5")
        assert (world.committed() != before) is moved, step
        assert cli("replay", "show", replay_id).json["state"] == ("PLANNED" if step < "reset.3" else "STARTED")
        # Given up: everything is where it was.
        other = cli("replay", "cancel", replay_id, "--yes").json
        assert other["state"] == "CANCELLED"
        assert world.committed() == before, step
        # Once more, and gone on with.
        replay_id = cli("replay", "plan", "--from", "latest-snapshot").json["id"]
        killed_at(step, replay_id, monkeypatch)
        assert cli("replay", "run", replay_id, *MOVE).json["state"] == "RUNNING"
        assert {generation_of(world, number) for number in start} == {replay_id}

    # Only a part of the partitions was moved when the process ended.
    replay_id = cli("replay", "plan", "--from", "earliest").json["id"]
    world.reset({0: 0}, f"ds1:{replay_id}:-")
    assert cli("replay", "run", replay_id, *MOVE).json["state"] == "RUNNING"
    assert {generation_of(world, number) for number in start} == {replay_id}

    world.start()
    world.settle()
    world.check()
    assert world.topic_sizes() == size
    assert cli("replay", "show", replay_id).json["state"] == "COMPLETED"

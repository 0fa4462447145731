"""kill -9 after each numbered step of each protocol, and at random moments: a crash there changes nothing that is read.

After each kill a worker starts again on the same folder (or another one, for take-overs), and the three views of
``harness_worker`` must agree. The normal tier has a sample of the steps, ``--long`` all of them.
"""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from dalsegno.snapshots.catalog import read_catalog
from harness_worker import World, wait_for

pytestmark = pytest.mark.broker

LIVE_STEPS = ["apply.1", "apply.2", "emit.1", "emit.2", "emit.3", "emit.4", "emit.5"]
SNAPSHOT_STEPS = ["snapshot.1", "snapshot.2", "snapshot.3", "snapshot.4", "snapshot.5"]
RESTART_STEPS = ["assign.1", "assign.2", "assign.4", "assign.5", "assign.6", "assign.7"]
STOP_STEPS = ["stop.1", "stop.2", "stop.3"]
RESTORE_STEPS = ["restore.1", "restore.2", "restore.3", "restore.4", "restore.5"]
RESET_STEPS = ["assign.1", "assign.2", "assign.3", *RESTORE_STEPS, "assign.4", "assign.5", "assign.6", "assign.7"]
SWITCH_STEPS = ["switch.1", "switch.2", "switch.3", "switch.4"]


def begin(world: World) -> None:
    """A world with some history, a settled worker that has stopped, and a snapshot of every partition."""
    world.produce(200)
    worker = world.start()
    world.settle()
    wait_for(
        lambda: len(read_catalog(world.config, world.prefix).pointers) >= world.partitions,
        "a snapshot of every partition",
    )
    worker.stop()


def killed_at(world: World, step: str, data: str = "a", **settings: Any) -> None:
    """Start a worker that must die at this step, while events keep coming."""
    worker = world.start(data, kill_at=step, **settings)
    world.produce(60)

    def dead() -> bool:
        if worker.parts():
            world.produce(20)
        return worker.process.poll() is not None

    wait_for(dead, f"the worker dies at {step}", 40)
    assert worker.process.returncode == -9, worker.tail()
    world.produce(30)


def goes_on(world: World, data: str = "a") -> None:
    world.start(data)
    world.settle()
    world.check()
    assert world.rows_that_went_backwards() == []


# case C22
@pytest.mark.parametrize("step", ["apply.2", "emit.3", "emit.4"])
def test_kill_while_live(world: World, step: str) -> None:
    begin(world)
    killed_at(world, step)
    goes_on(world)


def test_kill_while_live_and_another_worker_takes_over(world: World) -> None:
    begin(world)
    killed_at(world, "emit.3:2")
    goes_on(world, "b")


def test_kill_between_the_new_base_and_the_switch(world: World) -> None:
    """Somebody reset the group: the base is committed first, the build is resumed, the switch is done again."""
    begin(world)
    world.produce(60)
    world.wait_until_group_is_empty()
    world.reset({number: end // 2 for number, end in world.ends().items()})
    for step in ("assign.3", "switch.2", "switch.3"):
        worker = world.start(kill_at=step)
        assert worker.wait_dead(40) == -9, worker.tail()
    goes_on(world)


@pytest.mark.long
@pytest.mark.parametrize("step", [*LIVE_STEPS, *RESTART_STEPS])
def test_kill_at_each_step_of_daily_life(world: World, step: str) -> None:
    begin(world)
    # Step 1 of an assignment is done once for all partitions, the others for each of the two.
    for count in (1, 3) if step in LIVE_STEPS else (1,) if step == "assign.1" else (1, 2):
        killed_at(world, f"{step}:{count}")
        goes_on(world)
        world.alive()[0].stop()


@pytest.mark.long
@pytest.mark.parametrize("step", SNAPSHOT_STEPS)
def test_kill_at_each_step_of_a_snapshot(world: World, step: str) -> None:
    begin(world)
    killed_at(world, step, snapshot_every_events=20)
    goes_on(world)
    goes_on(world, "b")  # a second worker restores what was left


@pytest.mark.long
@pytest.mark.parametrize("step", STOP_STEPS)
def test_kill_at_each_step_of_a_stop(world: World, step: str) -> None:
    begin(world)
    worker = world.start(kill_at=step)
    world.produce(60)
    wait_for(worker.parts, "partitions")
    worker.process.terminate()
    assert worker.wait_dead(40) == -9, worker.tail()
    goes_on(world)


@pytest.mark.long
@pytest.mark.parametrize("step", [*RESTORE_STEPS, "assign.4", "assign.5", "assign.6", "assign.7"])
def test_kill_at_each_step_of_a_take_over(world: World, step: str) -> None:
    begin(world)
    killed_at(world, step, "b", max_behind_offsets=0)
    goes_on(world, "b")


@pytest.mark.long
@pytest.mark.parametrize("step", [*RESET_STEPS, "apply.1", "apply.2", *SWITCH_STEPS])
def test_kill_at_each_step_after_a_reset(world: World, step: str) -> None:
    begin(world)
    world.produce(60)
    world.wait_until_group_is_empty()
    world.reset({number: end - 5 for number, end in world.ends().items()})
    size = world.topic_sizes()
    worker = world.start(kill_at=step)
    assert worker.wait_dead(40) == -9, worker.tail()
    goes_on(world)
    assert world.topic_sizes() - size <= len(world.straight_fold()[0]), "only changed rows are sent"


@pytest.mark.long
def test_kill_at_ten_random_moments(world: World) -> None:
    """While folding, at distinct offsets, with a live producer."""
    rng = random.Random(11)
    begin(world)
    for _ in range(10):
        worker = world.start()
        wait_for(worker.parts, "partitions")
        world.produce(rng.randrange(20, 200))
        until = time.monotonic() + rng.random() * 0.8
        wait_for(lambda until=until: time.monotonic() >= until, "a random moment")
        worker.kill()
    goes_on(world)

"""Workers that stop for longer than their session and wake up again: what they had in hand must change nothing."""

from __future__ import annotations

import signal

import pytest

from dalsegno.log.admin import describe_group
from harness_worker import World, wait_for

pytestmark = pytest.mark.broker


# case C56
def test_a_stopped_worker_wakes_up_after_another_took_over(world: World) -> None:
    world.produce(200)
    first = world.start("a")
    world.settle()
    world.produce(100)  # in the middle of these
    first.process.send_signal(signal.SIGSTOP)
    second = world.start("b")
    wait_for(lambda: len(second.parts()) == world.partitions, "the second worker holds everything", 40)
    world.produce(100)
    ends = world.ends()
    wait_for(
        lambda: all(part["committed"] == ends[n] and part["outbox_empty"] for n, part in second.parts().items()),
        "the second worker is at the end",
    )
    taken_over = world.topic_rows()
    assert taken_over == world.straight_fold()[0]
    first.process.send_signal(signal.SIGCONT)
    wait_for(lambda: len(describe_group(world.config, world.group).members) == 2, "the first worker joined again", 40)
    wait_for(lambda: len(first.parts()) == len(second.parts()) == 1, "one partition each", 40)
    world.produce(100)
    world.settle()
    world.check()
    assert world.rows_that_went_backwards() == []


# case C56
def test_a_worker_stopped_within_its_transaction(world: World) -> None:
    """Offsets are sent, the commit is not: the new owner waits in ``committed()`` until that transaction has ended."""
    world.produce(200)
    first = world.start("a", stop_at="emit.3:2")

    def stopped() -> bool:
        world.produce(10)  # the transaction before may have held all that there was
        return first.is_stopped()

    wait_for(stopped, "the first worker stopped itself within a transaction", 40)
    world.produce(100)
    second = world.start("b")
    wait_for(lambda: len(second.parts()) == world.partitions, "the second worker holds everything", 60)
    first.process.send_signal(signal.SIGCONT)
    wait_for(lambda: len(first.parts()) == len(second.parts()) == 1, "one partition each", 60)
    world.produce(60)
    world.settle()
    world.check()
    assert world.rows_that_went_backwards() == []

"""What a person is told about a plan beside its table."""

from __future__ import annotations

import pytest

from dalsegno.cli.common import partition_ranges
from dalsegno.cli.plan_view import explain
from dalsegno.replay.plan import PartitionWorld, World, plan
from dalsegno.replay.target import parse_target


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([3], "partition 3"),
        ([3, 4], "partitions 3-4"),
        ([0, 1, 2, 5, 7, 8], "partitions 0-2, 5, 7-8"),
        (list(range(16)), "partitions 0-15"),
    ],
)
def test_partitions_that_follow_one_another_are_a_range(numbers: list[int], text: str) -> None:
    assert partition_ranges(numbers) == text


def test_what_is_the_same_of_all_partitions_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    world = World(
        group="p.worker", cluster_id="c", topic="p.events", topic_id="t", members=(), projections={}, named={},
        partitions={number: PartitionWorld(number, 0, 5) for number in range(16)},
    )  # fmt: skip
    explain(plan("r1", parse_target("earliest"), world))
    assert capsys.readouterr().err.splitlines() == [
        "partitions 0-15: no usable snapshot at or below the target; built from the log start"
    ]

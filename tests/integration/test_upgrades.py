"""The rule of upgrades: workers of two releases in one group, shards of another format."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dalsegno.log import topics
from dalsegno.projections.base import Projection
from dalsegno.projections.registry import built_in
from dalsegno.state.kv import STATE
from dalsegno.state.layout import FORMAT, POSITION_KEY
from dalsegno.state.rocks import RocksStore
from harness_worker import RunningWorker, World, of_the_next_release, wait_for

pytestmark = pytest.mark.broker


def expect(world: World, projections: list[Projection[Any]]) -> None:
    """Everything is as a worker with these projections alone would have left it."""
    world.projections = projections
    world.settle()
    world.check()


def test_two_releases_in_one_group_and_the_way_back(world: World) -> None:
    """Each emits its own version to that version's topic, and folds again what it takes over."""
    now, later = list(built_in()), of_the_next_release()
    world.produce(200)
    old = [world.start("a"), world.start("b")]
    expect(world, now)
    topics.apply(
        world.config, world.prefix, partitions=world.partitions, projections=[(p.name, p.version) for p in later]
    )

    old[0].stop()
    first = world.start("a", next_release=True)
    wait_for(lambda: len(first.parts()) == len(old[1].parts()) == 1, "both releases have a partition")
    world.produce(100)
    world.settle()

    old[1].stop()
    expect(world, later)
    assert "projections_folded_again" in first.tail(100_000)

    # The way back: a release that was rolled back finds its own topic, and brings it up to date.
    back = world.start("b")
    wait_for(lambda: len(back.parts()) == 1, "the old release has a partition")
    first.stop()
    world.produce(50)
    expect(world, now)


def age(worker: RunningWorker, world: World, number: int) -> Path:
    """Let a stopped worker's shard look as one that another format wrote; its folder."""
    folder = world.folder_of(worker, number)
    shard = folder.path / str(folder.current())
    store: Any = RocksStore.open(shard, create=False)
    raw = store.get(STATE, POSITION_KEY)
    batch = store.batch()
    batch.put(STATE, POSITION_KEY, msgspec.msgpack.encode({**msgspec.msgpack.decode(raw), "format": FORMAT - 1}))
    store.write(batch)
    store.close()
    return shard


@pytest.mark.parametrize("snapshots", [True, False], ids=["from a snapshot", "from the log"])
def test_shards_of_another_format_are_built_again(world: World, snapshots: bool) -> None:
    world.produce(200)
    worker = world.start()
    world.settle()
    worker.stop()
    aged = [age(worker, world, number) for number in range(world.partitions)]
    if not snapshots:
        shutil.rmtree(world.store)
    again = world.start()
    world.settle()
    world.check()
    for number, old in enumerate(aged):
        folder = world.folder_of(again, number)
        assert [each.name for each in folder.path.iterdir() if each.is_dir()] == [folder.current()]
        assert not old.exists()

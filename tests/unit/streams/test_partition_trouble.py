"""A partition that is tried again stays red until it goes well: no health check sees it green between two failures."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dalsegno.errors import StoreDamaged
from dalsegno.snapshots.folders import RocksFolders
from dalsegno.state.generations import PartitionFolder
from dalsegno.state.kv import STATE
from dalsegno.state.rocks import RocksStore
from dalsegno.streams import partition as room
from dalsegno.streams.config import no_fault
from dalsegno.streams.partition import Partition, PartitionState
from dalsegno.testing.builder import SessionBuilder
from shard_lab import Lab, apply


class Shard:
    """One whose batches fail for a while."""

    held_sessions = 0

    def __init__(self) -> None:
        self.cursor = SimpleNamespace(next_offset=0)
        self.fails = True

    def apply(self, _generation: str, _start: int, end: int, _records: Any) -> Any:
        if self.fails:
            raise StoreDamaged("a planted failure")
        self.cursor = SimpleNamespace(next_offset=end)
        return SimpleNamespace(set_aside=())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    now = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(room, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    return now


def batch_for(partition: Partition) -> Any:
    return SimpleNamespace(assignment=partition.assignment, start=0, end=5, records=[])


@pytest.mark.usefixtures("clock")
def test_red_through_every_retry_and_green_after_the_first_batch(tmp_path: Path) -> None:
    partition = Partition(0, PartitionFolder(tmp_path, "0" * 32, 0), no_fault)
    shard: Any = Shard()
    partition.shard, partition.end = shard, 5
    for attempt in range(1, 4):
        with pytest.raises(StoreDamaged) as failure:
            partition.apply(batch_for(partition))
        partition.stop(failure.value)
        assert (partition.state, partition.failures) == (PartitionState.STOPPED, attempt)
        partition.try_again()
        assert partition.error is None, "it does go on"
        assert partition.status()["state"] == "STOPPED"
        assert "planted" in partition.status()["reason"]
    shard.fails = False
    partition.apply(batch_for(partition))
    assert partition.status()["state"] == "LIVE"
    assert partition.status()["reason"] is None


def test_where_nothing_comes_a_retry_that_went_well_turns_green(tmp_path: Path, clock: SimpleNamespace) -> None:
    partition = Partition(0, PartitionFolder(tmp_path, "0" * 32, 0), no_fault)
    shard: Any = Shard()
    partition.shard = shard
    partition.stop(StoreDamaged("a planted failure"))
    partition.try_again()
    assert partition.state == PartitionState.STOPPED
    clock.seconds += room.TRIAL_SECONDS
    assert partition.state == PartitionState.LIVE


def test_what_is_said_of_a_damaged_table_is_enough_to_get_on(tmp_path: Path) -> None:
    partition = Partition(0, PartitionFolder(tmp_path / "slot", "0" * 32, 0), no_fault)
    folder = partition.folder.path / "g.1"
    folder.parent.mkdir(parents=True)
    partition.folder.point_to("g.1")
    lab = Lab(folder)
    shard = lab.open()
    apply(shard, [record for n in range(300) for record in SessionBuilder(f"s-{n}").begin().start().records])
    shard.close()
    lab.open().close()  # a second opening makes tables of what the first one wrote
    partition.stop(damaged_where_it_does_not_show_at_once(folder))
    said = partition.status()["reason"]
    assert "store-damaged" in said
    assert str(folder) in said
    assert "from the newest good snapshot, or from the log" in said
    (named,) = re.findall(r"stop this worker, move the folder (\S+) away, and start", said)
    Path(named).rename(tmp_path / "aside")
    partition.folder.sweep()
    assert (partition.folder.folders(), partition.folder.current()) == ([], None), "as on a machine without it"


def damaged_where_it_does_not_show_at_once(folder: Path) -> Exception:
    """Flip a byte of a table so that the shard looks whole until its rows are read; what reading them says."""
    for table in folder.glob("*.sst"):
        whole = table.read_bytes()
        for at in range(len(whole) // 10, len(whole), len(whole) // 10):
            table.write_bytes(whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :])
            try:
                RocksFolders().marks(folder)
                store = RocksStore.open(folder)
            except StoreDamaged:
                continue  # a worker that starts on it takes a snapshot instead
            try:
                list(store.scan(STATE))
            except StoreDamaged as error:
                return error
            finally:
                store.close()
        table.write_bytes(whole)
    raise AssertionError("no byte did harm")

"""What one machine can answer by itself: from its workers' shards, else from snapshots, without disturbing anybody."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno.errors import BrokerUnavailable, NotFound, StoreDamaged, Usage
from dalsegno.log.kafka import KafkaConfig
from dalsegno.model.ids import partition_of
from dalsegno.readers import cache, local
from dalsegno.readers.local import LocalReader
from dalsegno.readers.sessions import find_session, list_sessions
from dalsegno.snapshots.catalog import TopicIdentity
from dalsegno.snapshots.ports import file_key
from dalsegno.state.generations import PartitionFolder
from dalsegno.testing.builder import SessionBuilder, Written
from reader_lab import PREFIX, TOPIC_ID, House
from shard_lab import apply

# An account that owns nothing here.
NOBODY = 65534


def begun(*names: str) -> list[Written]:
    return [record for name in names for record in SessionBuilder(name).begin().records]


@pytest.fixture
def tmp_path(open_tmp_path: Path) -> Path:
    return open_tmp_path


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path) as found:
        yield found


# With two partitions, s-3 lies in partition 0, s-1 and s-2 in partition 1.
@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """Two partitions, and a broker that says so and has the catalogue."""
    with House(tmp_path, partitions=2) as found:
        monkeypatch.setattr(LocalReader, "_identity", lambda _: TopicIdentity("c", TOPIC_ID, 2))
        monkeypatch.setattr(local, "read_catalog", lambda *_: found.catalog)
        yield found


def broker() -> KafkaConfig:
    return KafkaConfig("nowhere:1")


def no_answer() -> KafkaConfig:
    raise BrokerUnavailable("nobody answers")


def names(reader: LocalReader) -> set[str]:
    return {found.session_id for found in list_sessions(reader, 100)}


# --- shards -----------------------------------------------------------------------------------------------------------


def test_a_shard_that_a_worker_holds_is_read_and_no_broker_is_asked(house: House) -> None:
    shard = house.shard(begun("s-1"))
    reader = house.reader()
    assert names(reader) == {"s-1"}
    view = reader.views()[0]
    assert (view.position, view.source) == (f"0@{len(begun('s-1'))}", "slot 0")
    apply(shard, begun("s-2"))
    assert names(reader) == {"s-1"}, "all answers of one reader are of one moment"
    assert names(house.reader()) == {"s-1", "s-2"}


def test_a_shard_that_another_process_holds_is_read(house: House) -> None:
    house.shard(begun("s-1")).close()
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(house.folder())], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert names(house.reader()) == {"s-1"}
    finally:
        holder.kill()
        holder.communicate()
    assert names(house.reader()) == {"s-1"}, "a holder that was killed is no obstacle"


_HOLD = """
import sys
import time
from pathlib import Path
from dalsegno.state.rocks import RocksStore
store = RocksStore.open(Path(sys.argv[1]), create=False)
print("held", flush=True)
sys.stdin.read()
"""


def test_of_two_slots_the_furthest_cursor_answers(house: House) -> None:
    house.shard(begun("s-1"), slot=0)
    house.shard(begun("s-1", "s-2"), slot=1)
    house.shard(slot=2)
    reader = house.reader()
    assert names(reader) == {"s-1", "s-2"}
    assert reader.views()[0].source == "slot 1"


def test_a_switch_between_looking_and_opening_is_followed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    old = house.shard(begun("s-1"))
    house.shard(begun("s-1", "s-2"), name="h.1")
    pointer = PartitionFolder(house.folder().parent.parent.parent, TOPIC_ID, 0)
    pointer.point_to("g.1")
    opening = local.open_secondary

    def switching(path: Path, scratch: Path) -> Any:
        if path.name == "g.1":
            pointer.point_to("h.1")
            old.close()
            pointer.delete("g.1")
        return opening(path, scratch)

    monkeypatch.setattr(local, "open_secondary", switching)
    reader = house.reader()
    assert names(reader) == {"s-1", "s-2"}
    assert reader.views()[0].folder.name == "h.1"


def test_one_session_opens_its_partition_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with House(tmp_path, partitions=16) as house:
        for partition in range(16):
            house.shard(partition=partition)
        number = partition_of("s-1", 16)
        apply(house.shard(partition=number, slot=1), begun("s-1"))
        opened = list[int]()
        opening = local.open_secondary

        def counting(path: Path, scratch: Path) -> Any:
            opened.append(int(path.parent.name))
            return opening(path, scratch)

        monkeypatch.setattr(local, "open_secondary", counting)
        assert house.reader().of_session("s-1").source == "slot 1"
        assert opened == [number, number], "one per slot"
        opened.clear()
        reader = house.reader()
        assert find_session(reader, "s-1").session_id == "s-1"
        assert opened == [number, number]
        assert len(reader.views()) == 16
        assert len(opened) == 17, "what is open stays open"


def test_the_number_of_partitions_is_asked_of_a_shard_that_can_be_read(tmp_path: Path) -> None:
    with House(tmp_path, partitions=16) as house:
        number = partition_of("s-1", 16)
        house.shard(begun("s-1"), partition=number)
        house.shard(partition=0).close()
        (house.folder(partition=0) / "CURRENT").write_text("MANIFEST-999999\n")
        assert house.reader().of_session("s-1").partition == number


def test_a_damaged_shard_is_passed_over_where_another_slot_has_the_partition(house: House) -> None:
    house.shard(begun("s-1"), slot=0)
    house.shard(begun("s-1", "s-2"), slot=1).close()
    (house.folder(1) / "CURRENT").write_text("MANIFEST-999999\n")
    reader = house.reader()
    assert names(reader) == {"s-1"}
    assert isinstance(reader.unreadable[0], StoreDamaged)


def test_a_damaged_shard_alone_is_the_error(house: House) -> None:
    house.shard(begun("s-1")).close()
    (house.folder() / "CURRENT").write_text("MANIFEST-999999\n")
    with pytest.raises(StoreDamaged, match="cannot be read"):
        house.reader().views()


def test_a_damaged_shard_is_the_answer_about_its_sessions_and_not_that_they_are_not_here(two: House) -> None:
    for partition in range(2):
        two.shard(partition=partition).close()
    damaged = partition_of("s-1", 2)
    (two.folder(partition=damaged) / "CURRENT").write_text("MANIFEST-999999\n")
    with pytest.raises(StoreDamaged, match="cannot be read"):
        two.reader().of_session("s-1")


def test_a_partition_that_cannot_be_read_hides_no_session_of_another(two: House) -> None:
    two.shard(begun("s-3"))
    two.shard(begun("s-1"), partition=1).close()
    (two.folder(partition=1) / "CURRENT").write_text("MANIFEST-999999\n")
    assert {partition_of(word, 2) for word in ("last", "s", "nope")} == {1}, "as ids they would lie where none is read"
    for word in ("s-3", "s", "last"):
        assert find_session(two.reader(), word).session_id == "s-3"
    for word in ("s-1", "nope"):
        with pytest.raises(StoreDamaged, match="cannot be read"):
            find_session(two.reader(), word)


def test_an_answer_that_may_lack_sessions_says_of_which_partitions(two: House) -> None:
    two.shard(begun("s-3", "s-6"))
    two.shard(partition=1).close()
    (two.folder(partition=1) / "CURRENT").write_text("MANIFEST-999999\n")
    with pytest.raises(Usage) as several:
        find_session(two.reader(), "s")
    assert several.value.todo == "give more of the id; partitions [1] cannot be read here"


def test_without_a_broker_the_last_session_here_is_found(two: House) -> None:
    two.shard(begun("s-3"))
    with House(two.data.parent / "elsewhere", partitions=2) as other:
        two.snapshot(other.shard(begun("s-1"), partition=1))
    reader = two.reader(kafka=no_answer)
    reader._identity = no_answer  # type: ignore[assignment, method-assign]
    assert find_session(reader, "last").session_id == "s-3"
    with pytest.raises(BrokerUnavailable):
        find_session(reader, "s-1")


def test_a_shard_in_another_partitions_folder_is_refused(two: House) -> None:
    two.shard(begun("s-3")).close()
    shutil.copytree(two.folder(0, 0).parent, two.folder(0, 1).parent)
    reader = two.reader(kafka=broker)
    assert set(reader.views()) == {0}
    assert "holds partition 0" in str(reader.unreadable[1])


def test_of_a_topic_that_was_made_again_only_todays_shards_answer(two: House) -> None:
    two.shard(begun("s-3"))
    stale = two.data / PREFIX / "slots" / "0" / ("cd" * 16) / "0"
    stale.mkdir(parents=True)
    (stale / "g.1").mkdir()
    (stale / "CURRENT").write_text("g.1")
    assert names(two.reader(kafka=broker)) == {"s-3"}


# --- snapshots --------------------------------------------------------------------------------------------------------


def test_a_partition_elsewhere_is_answered_from_its_snapshot_fetched_once(
    two: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.shard(begun("s-3"))
    with House(two.data.parent / "elsewhere", partitions=2) as other:
        taken = two.snapshot(other.shard(begun("s-1"), partition=1))
    reader = two.reader(kafka=broker)
    assert names(reader) == {"s-1", "s-3"}
    assert (reader.views()[1].source, reader.missing()) == (f"snapshot {taken.id[:12]}", [])

    def again(*_: object) -> None:
        raise AssertionError("fetched a second time")

    monkeypatch.setattr(cache, "fetch", again)
    assert names(two.reader(kafka=broker)) == {"s-1", "s-3"}


def test_a_newer_snapshot_takes_the_place_of_the_cached_one(two: House) -> None:
    with House(two.data.parent / "elsewhere", partitions=2) as other:
        shard = other.shard(begun("s-1"), partition=1)
        two.snapshot(shard)
        assert names(two.reader(kafka=broker)) == {"s-1"}
        apply(shard, begun("s-2"))
        taken = two.snapshot(shard)
    assert names(two.reader(kafka=broker)) == {"s-1", "s-2"}
    cached = two.data / PREFIX / cache.CACHE / "1"
    assert [entry.name for entry in cached.iterdir()] == [taken.id]


def test_a_cached_snapshot_that_a_crash_tore_is_fetched_again_the_next_time(two: House) -> None:
    with House(two.data.parent / "elsewhere", partitions=2) as other:
        taken = two.snapshot(other.shard(begun("s-1"), partition=1))
    assert names(two.reader(kafka=broker)) == {"s-1"}
    cached = two.data / PREFIX / cache.CACHE / "1" / taken.id
    (cached / "CURRENT").write_bytes(b"")
    with pytest.raises(NotFound):
        two.reader(kafka=broker).views()
    assert not cached.exists()
    assert names(two.reader(kafka=broker)) == {"s-1"}


def test_what_a_killed_reader_left_half_fetched_goes_after_a_day(two: House) -> None:
    cached = two.data / PREFIX / cache.CACHE / "1"
    for age_seconds in (60, 2 * 24 * 3600):
        half = cached / f"{'0' * 64}.{age_seconds}.tmp"
        (half / "shard").mkdir(parents=True)
        os.utime(half, (time.time() - age_seconds,) * 2)
    with House(two.data.parent / "elsewhere", partitions=2) as other:
        taken = two.snapshot(other.shard(begun("s-1"), partition=1))
    assert names(two.reader(kafka=broker)) == {"s-1"}
    assert sorted(entry.name for entry in cached.iterdir()) == sorted([taken.id, f"{'0' * 64}.60.tmp"])


def test_a_damaged_newest_snapshot_gives_way_to_an_older_one(two: House) -> None:
    with House(two.data.parent / "elsewhere", partitions=2) as other:
        shard = other.shard(begun("s-1"), partition=1)
        older = two.snapshot(shard)
        apply(shard, begun("s-2"))
        newer = two.snapshot(shard)
    kept = {file.sha256 for file in older.manifest.files}
    file = next(file for file in newer.manifest.files if file.sha256 not in kept)
    path = two.store_folder / file_key(PREFIX, file.sha256)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    reader = two.reader(kafka=broker)
    assert names(reader) == {"s-1"}
    assert reader.views()[1].source == f"snapshot {older.id[:12]}"
    assert reader.missing() == [0]


def test_without_a_broker_what_is_here_answers_and_the_rest_is_named(two: House) -> None:
    two.shard(begun("s-3"))
    with House(two.data.parent / "elsewhere", partitions=2) as other:
        two.snapshot(other.shard(begun("s-1"), partition=1))
    reader = two.reader(kafka=no_answer)
    reader._identity = no_answer  # type: ignore[assignment, method-assign]
    assert names(reader) == {"s-3"}
    assert reader.missing() == [1]
    with pytest.raises(BrokerUnavailable):  # not that there is no snapshot: there is one, of which only the log knows
        reader.of_session("s-1")


def test_nothing_at_all_is_not_found_and_starts_no_broker(house: House) -> None:
    with pytest.raises(NotFound) as caught:
        house.reader().views()
    assert "dalsegno worker run" in caught.value.todo
    assert not house.data.exists()


# --- rights -----------------------------------------------------------------------------------------------------------

_AS_NOBODY = f"""
import os, sys
import dalsegno.cli.session
from dalsegno.cli.frame import run
if os.getuid() == 0:
    # after the imports, for the interpreter may lie where only root can read
    os.setgid({NOBODY}); os.setuid({NOBODY})
sys.exit(run(["--data", sys.argv[1], "--prefix", "{PREFIX}", "session", "list"]))
"""


@pytest.mark.parametrize("closed", ["slots", "shard"])
def test_files_of_another_user_are_not_permitted(house: House, tmp_path: Path, closed: str) -> None:
    house.shard(begun("s-1")).close()
    for parent in (tmp_path, *tmp_path.parents):
        if len(parent.parts) > 2:
            parent.chmod(parent.stat().st_mode | 0o055)
    folder = house.data / PREFIX / "slots" if closed == "slots" else house.folder()
    folder.chmod(0o000)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, str(house.data)],
            capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "HOME": "/"},
        )  # fmt: skip
    finally:
        folder.chmod(0o755)
    assert (done.returncode, done.stdout) == (7, ""), done.stderr
    assert "Permission denied" in done.stderr
    assert str(folder) in done.stderr

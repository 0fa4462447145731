"""What every store must do, whichever it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from dalsegno.errors import Conflict
from dalsegno.state.kv import JOURNAL, SCAN_CHUNK_ROWS, STATE, KeyValue, after_prefix, scan_prefix
from dalsegno.state.memory import MemoryStore
from dalsegno.state.rocks import RocksStore

Opener = Callable[[Path], KeyValue]


@pytest.fixture(params=["memory", "disk"])
def load(request: pytest.FixtureRequest) -> Opener:
    return MemoryStore.load if request.param == "memory" else RocksStore.open


@pytest.fixture
def kv(load: Opener, tmp_path: Path) -> Iterator[KeyValue]:
    store = MemoryStore() if load == MemoryStore.load else load(tmp_path / "store")
    yield store
    store.close()


def put(kv: KeyValue, family: str, rows: dict[bytes, bytes]) -> None:
    batch = kv.batch()
    for key, value in rows.items():
        batch.put(family, key, value)
    kv.write(batch)


def test_families_are_apart_and_values_may_be_empty(kv: KeyValue) -> None:
    put(kv, STATE, {b"k": b"", b"\x00": b"zero"})
    put(kv, JOURNAL, {b"k": b"journal"})
    assert kv.get(STATE, b"k") == b""
    assert kv.get(JOURNAL, b"k") == b"journal"
    assert kv.get(STATE, b"absent") is None
    assert kv.multi_get(STATE, [b"absent", b"\x00", b"k"]) == [None, b"zero", b""]
    assert kv.multi_get(STATE, []) == []


def test_later_changes_of_a_batch_win(kv: KeyValue) -> None:
    put(kv, STATE, {b"a": b"1", b"b": b"1", b"c": b"1", b"d": b"1"})
    batch = kv.batch()
    batch.put(STATE, b"b1", b"2")
    batch.delete_range(STATE, b"b", b"d")
    batch.put(STATE, b"c", b"2")
    batch.delete(STATE, b"d")
    batch.delete(STATE, b"never there")
    assert batch.size_bytes > 0
    assert kv.get(STATE, b"b") == b"1"
    kv.write(batch)
    assert list(kv.scan(STATE)) == [(b"a", b"1"), (b"c", b"2")]


def test_a_putter_writes_into_its_family(kv: KeyValue) -> None:
    batch = kv.batch()
    batch.putter(JOURNAL)(b"k", b"v")
    kv.write(batch)
    assert kv.get(JOURNAL, b"k") == b"v"
    assert kv.get(STATE, b"k") is None


@pytest.mark.parametrize("rows", [0, 1, SCAN_CHUNK_ROWS - 1, SCAN_CHUNK_ROWS, SCAN_CHUNK_ROWS + 1, 3 * SCAN_CHUNK_ROWS])
def test_scans_see_every_row_once_in_order(kv: KeyValue, rows: int) -> None:
    keys = [n.to_bytes(2, "big") for n in range(rows)]
    shuffled = list(keys)
    Random(1).shuffle(shuffled)
    put(kv, STATE, {key: b"v" + key for key in shuffled})
    assert [key for key, _ in kv.scan(STATE)] == keys
    assert [key for key, _ in kv.scan(STATE, reverse=True)] == keys[::-1]
    for start, end in ((b"\x00\x05", b"\x01\x07"), (b"\x00", None), (b"", b"\x00\x01"), (b"\x05", b"\x01")):
        inside = [key for key in keys if key >= start and (end is None or key < end)]
        assert [key for key, _ in kv.scan(STATE, start, end)] == inside
        assert [key for key, _ in kv.scan(STATE, start, end, reverse=True)] == inside[::-1]


def test_a_prefix_ends_where_it_should(kv: KeyValue) -> None:
    put(kv, STATE, {b"a": b"", b"a\xff": b"", b"a\xff\xff": b"", b"a\xff\xff\x01": b"", b"b": b""})
    assert [key for key, _ in scan_prefix(kv, STATE, b"a\xff")] == [b"a\xff", b"a\xff\xff", b"a\xff\xff\x01"]
    assert after_prefix(b"a\xff\xff") == b"b"


def test_rows_may_be_written_during_a_scan(kv: KeyValue) -> None:
    put(kv, STATE, {n.to_bytes(2, "big"): b"" for n in range(2 * SCAN_CHUNK_ROWS)})
    seen = []
    for key, _ in kv.scan(STATE):
        seen.append(key)
        batch = kv.batch()
        batch.delete(STATE, key)
        kv.write(batch)
    assert len(seen) == len(set(seen)) == 2 * SCAN_CHUNK_ROWS
    assert list(kv.scan(STATE)) == []


def test_a_checkpoint_is_of_one_moment(kv: KeyValue, load: Opener, tmp_path: Path) -> None:
    put(kv, STATE, {b"k": b"before"})
    put(kv, JOURNAL, {b"j": b"before"})
    kv.checkpoint(tmp_path / "deep" / "copy")
    put(kv, STATE, {b"k": b"after"})
    copy = load(tmp_path / "deep" / "copy")
    assert copy.get(STATE, b"k") == b"before"
    assert copy.get(JOURNAL, b"j") == b"before"
    put(copy, STATE, {b"k": b"elsewhere"})
    assert kv.get(STATE, b"k") == b"after"
    copy.close()


def test_closing_twice_is_nothing(kv: KeyValue) -> None:
    put(kv, STATE, {b"k": b"v"})
    kv.flush()
    kv.close()
    kv.close()


def test_what_was_written_is_there_after_reopening(tmp_path: Path) -> None:
    for round_ in range(3):
        store = RocksStore.open(tmp_path / "store")
        assert sum(1 for _ in store.scan(STATE)) == round_
        # A scan that nobody finished must not keep the folder's lock.
        iterator = store.scan(STATE)
        next(iterator, None)
        put(store, STATE, {bytes((round_,)): b""})
        store.close()
        with pytest.raises(Conflict, match="closed"):
            store.get(STATE, b"k")
        with pytest.raises(Conflict, match="closed"):
            store.write(MemoryStore().batch())

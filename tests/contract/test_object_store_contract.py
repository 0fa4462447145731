"""What every object store must do: a folder, and S3 (a server in this process, real HTTP)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dalsegno.errors import BlobMissing, Usage
from dalsegno.storage.blobs import Blobs
from dalsegno.storage.object_store import FolderStore, Store
from s3_lab import S3Server


@pytest.fixture(params=["folder", "s3"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Makes stores on one and the same place."""
    if request.param == "folder":
        return lambda: FolderStore(tmp_path / "deep" / "store")
    server: S3Server = request.getfixturevalue("server")
    location = f"{server.bucket()}/deep/store"
    return lambda: server.store(location)


@pytest.fixture
def store(make: Callable[[], Store]) -> Store:
    return make()


def test_an_object_comes_back_whole_from_bytes_and_from_a_file(store: Store, tmp_path: Path) -> None:
    source, content = tmp_path / "source", bytes(range(256)) * 50_000
    source.write_bytes(content)
    store.put("a/b", b"one")
    store.put("c", source)
    assert store.put_if_absent("d", source)
    assert (store.read("a/b"), store.read("c"), store.read("d")) == (b"one", content, content)
    target = tmp_path / "target"
    target.write_bytes(b"what was there before")
    assert store.download("c", target)
    assert target.read_bytes() == content
    assert source.exists()


def test_what_is_not_there_is_none_and_not_an_error(store: Store, tmp_path: Path) -> None:
    assert list(store.list()) == []
    store.put("a", b"1")
    for key in ("b", "a/b", "x/y/z"):
        assert store.read(key) is None
        assert store.info(key) is None
        assert not store.download(key, tmp_path / "target")
        store.delete(key)
    assert not (tmp_path / "target").exists()


def test_put_if_absent_never_changes_what_is_there(store: Store, make: Callable[[], Store]) -> None:
    assert store.put_if_absent("k", b"first")
    assert not make().put_if_absent("k", b"second")
    assert store.read("k") == b"first"
    store.put("k", b"third")
    assert make().read("k") == b"third"


def test_of_many_at_once_exactly_one_wins(make: Callable[[], Store]) -> None:
    ready, won = threading.Barrier(8), []

    def write(n: int) -> None:
        mine = make()
        ready.wait(10)
        if mine.put_if_absent("k", str(n).encode()):
            won.append(n)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(won) == 1
    assert make().read("k") == str(won[0]).encode()


def test_list_gives_what_begins_with_the_prefix_in_order(store: Store) -> None:
    for key in ("p/files/b", "p/files/a", "p/filesystem", "p2/files/c", "p/manifests/m.json", "p-1/x"):
        store.put(key, b"12345")
    assert [s.key for s in store.list("p/files/")] == ["p/files/a", "p/files/b"]
    assert [s.key for s in store.list("p/files")] == ["p/files/a", "p/files/b", "p/filesystem"]
    assert [s.key for s in store.list("p/f")] == ["p/files/a", "p/files/b", "p/filesystem"]
    assert [s.key for s in store.list("nothing/")] == []
    every = [s.key for s in store.list()]
    assert every == sorted(every)
    assert len(every) == 6
    assert all(s.size == 5 and abs(s.modified - time.time()) < 3600 for s in store.list())
    store.delete("p/files/a")
    assert [s.key for s in store.list("p/files/")] == ["p/files/b"]


def test_more_objects_than_one_page_of_a_listing(store: Store) -> None:
    for n in range(1_005):
        store.put(f"many/{n:04}", b"")
    assert [s.key for s in store.list("many/")] == [f"many/{n:04}" for n in range(1_005)]


@pytest.mark.parametrize("key", ["", "/a", "../a", "a/../b", "a//b", "./a", "a/", ".tmp/a", "a\x00b"])
def test_a_key_cannot_leave_the_store(store: Store, key: str, tmp_path: Path) -> None:
    calls: list[Callable[[str], object]] = [
        store.read, store.delete, store.info, lambda k: store.put(k, b""), lambda k: store.put_if_absent(k, b""),
        lambda k: store.download(k, tmp_path / "t"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(Usage):
            call(key)


def test_large_contents_of_events_lie_in_it(store: Store) -> None:
    blob = Blobs(store).put(b"x" * 100_000)
    assert blob.inline is None
    assert Blobs(store).get(blob) == b"x" * 100_000
    for stored in list(store.list()):
        store.delete(stored.key)
    with pytest.raises(BlobMissing):
        Blobs(store).get(blob)

"""The folder store: whole objects or none, durable, its refusals by name."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from dalsegno.errors import DiskFull, NotPermitted
from dalsegno.storage import object_store
from dalsegno.storage.object_store import TEMPORARY, FolderStore


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "deep" / "store")


def temporary_files(store: FolderStore) -> list[str]:
    return os.listdir(store.root / TEMPORARY)


def test_of_many_at_once_exactly_one_wins(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    # All writers are past the look whether the key is taken before the first of them claims it.
    all_ready = threading.Barrier(8)
    claim = object_store._claim

    def claim_together(temporary: Path, target: Path) -> bool:
        all_ready.wait(10)
        return claim(temporary, target)

    monkeypatch.setattr(object_store, "_claim", claim_together)
    won: list[int] = []

    def write(n: int) -> None:
        if store.put_if_absent("k", str(n).encode()):
            won.append(n)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(won) == 1
    assert store.read("k") == str(won[0]).encode()
    assert temporary_files(store) == []


def test_putting_again_makes_an_object_young(store: FolderStore) -> None:
    store.put("k", b"1")
    os.utime(store.root / "k", (1000, 1000))
    old = store.info("k")
    assert old is not None
    assert old.modified == 1000
    store.put("k", b"1")
    assert temporary_files(store) == []
    young = store.info("k")
    assert young is not None
    assert young.modified > 1000


@pytest.mark.parametrize("step", ["fsync", "link"])
def test_a_full_disk_leaves_nothing_behind(store: FolderStore, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    store.put("other", b"1")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, step, full)
        with pytest.raises(DiskFull, match="No space left"):
            store.put_if_absent("k", b"12345")
    assert store.read("k") is None
    assert temporary_files(store) == []
    assert store.put_if_absent("k", b"12345")


def test_a_file_system_without_links_is_served_too(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_links)
    assert store.put_if_absent("k", b"1")
    assert not store.put_if_absent("k", b"2")
    assert store.read("k") == b"1"


def test_a_store_that_one_may_not_write_says_so(store: FolderStore) -> None:
    """In a child under another uid, since root may write everywhere."""
    store.put("k", b"1")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            else:
                store.root.chmod(0o500)
                (store.root / TEMPORARY).chmod(0o500)
            try:
                store.put("other", b"2")
            except NotPermitted as error:
                code = 0 if error.exit_code == 7 and "Permission denied" in error.found else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_a_crashed_writer_left_goes_after_a_day(store: FolderStore) -> None:
    store.put("k", b"1")
    old, young = store.root / TEMPORARY / "old", store.root / TEMPORARY / "young"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1000, 1000))
    FolderStore(store.root).put("k2", b"2")
    assert temporary_files(store) == ["young"]
    assert [s.key for s in store.list()] == ["k", "k2"]

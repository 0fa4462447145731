"""What RocksDB says, as errors of ours that name the folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dalsegno.errors import DiskFull, Failed, NotFound, NotPermitted, StoreDamaged, StoreLocked
from dalsegno.state import rocks
from dalsegno.state.kv import STATE
from dalsegno.state.rocks import RocksStore, open_secondary, raise_file_limit, translate

HOLD = """
import sys
from pathlib import Path
from dalsegno.state.rocks import RocksStore
store = RocksStore.open(Path(sys.argv[1]))
batch = store.batch()
batch.put("state", b"k", b"v")
store.write(batch)
print("open", flush=True)
sys.stdin.read()
"""


def test_a_second_open_in_this_process_is_refused_by_name(tmp_path: Path) -> None:
    # case C52
    store = RocksStore.open(tmp_path / "s")
    with pytest.raises(StoreLocked, match="this process") as caught:
        RocksStore.open(tmp_path / "s")
    assert caught.value.data["path"] == str(tmp_path / "s")
    store.close()
    RocksStore.open(tmp_path / "s").close()


def test_a_second_process_is_refused_and_a_dead_one_is_no_obstacle(tmp_path: Path) -> None:
    # case C52
    folder = tmp_path / "s"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreLocked, match="another process"):
            RocksStore.open(folder)
        assert (folder / "LOCK").exists()
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
    assert (folder / "LOCK").exists()
    store = RocksStore.open(folder)
    assert store.get(STATE, b"k") == b"v"
    store.close()


def test_damage_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    RocksStore.open(folder).close()
    manifest = next(folder.glob("MANIFEST-*"))
    content = bytearray(manifest.read_bytes())
    content[len(content) // 2] ^= 1
    manifest.write_bytes(content)
    with pytest.raises(StoreDamaged) as caught:
        RocksStore.open(folder)
    assert caught.value.data["path"] == str(folder)


def test_a_flipped_byte_in_a_table_is_found_when_it_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    store = RocksStore.open(folder)
    batch = store.batch()
    for n in range(2_000):
        batch.put(STATE, n.to_bytes(4, "big"), os.urandom(50))
    store.write(batch)
    store.close()
    RocksStore.open(folder).close()  # opening replays the log into a table
    table = max(folder.glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(table.read_bytes())
    content[len(content) // 3] ^= 1
    table.write_bytes(content)
    damaged = RocksStore.open(folder)
    with pytest.raises(StoreDamaged):
        list(damaged.scan(STATE))
    damaged.close()


def test_absent_and_foreign_folders(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        RocksStore.open(tmp_path / "none", create=False)
    with pytest.raises((NotFound, StoreDamaged)):
        open_secondary(tmp_path / "none", tmp_path / "scratch")
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreDamaged):
        RocksStore.open(tmp_path / "file")


def test_refusals_of_the_system_by_their_text() -> None:
    space = Exception("IO error: No space left on device: While appending to file: /d/000012.log")
    access = Exception("IO error: While open a file for appending: /d/LOCK: Permission denied")
    assert isinstance(translate(space, "/d"), DiskFull)
    assert isinstance(translate(access, "/d"), NotPermitted)
    assert isinstance(translate(PermissionError(13, "Permission denied"), "/d"), NotPermitted)
    assert translate(KeyError("ours"), "/d") is None


def test_a_folder_without_access(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    folder = tmp_path / "s"
    RocksStore.open(folder).close()
    folder.chmod(0)
    try:
        with pytest.raises(NotPermitted):
            RocksStore.open(folder)
    finally:
        folder.chmod(0o700)


def test_the_limit_of_open_files_is_raised_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"now": (100, 1_000_000)}
    monkeypatch.setattr(rocks.resource, "getrlimit", lambda _: limits["now"])
    monkeypatch.setattr(rocks.resource, "setrlimit", lambda _, limit: limits.update(now=limit))
    assert raise_file_limit(64) == limits["now"][0] == 64 * 128 + 512
    assert raise_file_limit(1) == limits["now"][0]
    limits["now"] = (100, 1_000)
    with pytest.raises(Failed, match="1000 files"):
        raise_file_limit(64)

"""The store in memory: a real filling of the contract, for tests, small jobs and checks beside a live shard."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from dalsegno.errors import StoreDamaged
from dalsegno.state.kv import FAMILIES, SCAN_CHUNK_ROWS, WriteBatch

_FILE = "memory.msgpack"
# Above this many new keys, sorting once is cheaper than inserting one by one.
_INSERT_ONE_BY_ONE = 256


class MemoryBatch:
    """A list of changes, kept in order."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, bytes, bytes | None, bytes | None]] = []
        self.size_bytes = 0

    def put(self, family: str, key: bytes, value: bytes) -> None:
        self.changes.append((family, key, value, None))
        self.size_bytes += len(key) + len(value)

    def putter(self, family: str) -> Callable[[bytes, bytes], None]:
        return partial(self.put, family)

    def delete(self, family: str, key: bytes) -> None:
        self.changes.append((family, key, None, None))
        self.size_bytes += len(key)

    def delete_range(self, family: str, start: bytes, end: bytes) -> None:
        self.changes.append((family, start, None, end))
        self.size_bytes += len(start) + len(end)


class _Family:
    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self._keys: list[bytes] | None = []
        self._fresh: list[bytes] = []

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self.rows:
            self._fresh.append(key)
        self.rows[key] = value

    def delete(self, key: bytes) -> None:
        if self.rows.pop(key, None) is not None:
            self._keys, self._fresh = None, []

    def delete_range(self, start: bytes, end: bytes) -> None:
        for key in [key for key in self.rows if start <= key < end]:
            self.delete(key)

    def keys(self) -> list[bytes]:
        if self._keys is None or len(self._fresh) > _INSERT_ONE_BY_ONE:
            self._keys = sorted(self.rows)
        else:
            for key in self._fresh:
                insort(self._keys, key)
        self._fresh = []
        return self._keys


class MemoryStore:
    """Two sorted dictionaries."""

    def __init__(self) -> None:
        self._families = {family: _Family() for family in FAMILIES}

    @classmethod
    def load(cls, folder: Path) -> MemoryStore:
        """The store of which ``folder`` is a checkpoint."""
        store = cls()
        try:
            saved = msgspec.msgpack.decode((folder / _FILE).read_bytes(), type=dict[str, dict[bytes, bytes]])
        except (OSError, msgspec.MsgspecError) as error:
            raise StoreDamaged(
                f"no checkpoint of a memory store in {folder}: {error}",
                wanted=f"a whole file {_FILE}",
                path=str(folder),
            ) from error
        for family, rows in saved.items():
            for key, value in rows.items():
                store._families[family].put(key, value)
        return store

    def get(self, family: str, key: bytes) -> bytes | None:
        return self._families[family].rows.get(key)

    def multi_get(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        rows = self._families[family].rows
        return [rows.get(key) for key in keys]

    def scan(
        self, family: str, start: bytes = b"", end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        source = self._families[family]
        while True:
            keys = source.keys()
            first, last = bisect_left(keys, start), len(keys) if end is None else bisect_left(keys, end)
            if reverse:
                chunk = keys[max(first, last - SCAN_CHUNK_ROWS) : last][::-1]
            else:
                chunk = keys[first : min(last, first + SCAN_CHUNK_ROWS)]
            rows = [(key, source.rows[key]) for key in chunk]
            if not rows:
                return
            yield from rows
            if reverse:
                end = chunk[-1]
            else:
                start = chunk[-1] + b"\x00"

    def batch(self) -> MemoryBatch:
        return MemoryBatch()

    def write(self, batch: WriteBatch) -> None:
        if not isinstance(batch, MemoryBatch):
            raise TypeError(f"a {type(batch).__name__} of another store")
        for family, key, value, end in batch.changes:
            target = self._families[family]
            if end is not None:
                target.delete_range(key, end)
            elif value is None:
                target.delete(key)
            else:
                target.put(key, value)

    def checkpoint(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        rows = {family: content.rows for family, content in self._families.items()}
        (folder / _FILE).write_bytes(msgspec.msgpack.encode(rows))

    def flush(self) -> None:
        """Nothing to do: there is no disk."""

    def close(self) -> None:
        """Nothing to give back; the rows stay, so that a shard can be opened on them again."""

"""The store on disk: RocksDB by rocksdict. The only module that imports it.

A RocksDB folder has one owner. ``LOCK`` is never deleted: a file that a dead process left is no obstacle, and one that
is held belongs to somebody. Iterators, checkpoints and family handles must be gone before ``close()``, or the lock
stays and a later read crashes the process; so scans hold none between chunks, and ``close`` drops the rest.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import rocksdict as rd

from dalsegno.errors import Conflict, DalsegnoError, DiskFull, Failed, NotFound, NotPermitted, StoreDamaged, StoreLocked
from dalsegno.state.kv import FAMILIES, JOURNAL, SCAN_CHUNK_ROWS, STATE, WriteBatch

_MIB: Final = 1024 * 1024
_BLOOM_BITS_PER_KEY: Final = 10
_OPEN_FILES_PER_SHARD: Final = 128
_OPEN_FILES_SPARE: Final = 512
"""Sockets, logs, libraries: what a process needs beside its shards."""
_OPENINGS: Final = 50
"""An opening takes milliseconds, and a shard is flushed every few seconds at most."""


@dataclass(frozen=True)
class RocksBudget:
    """Memory for all shards of a process together, in bytes: one block cache, one budget of write buffers."""

    cache_bytes: int = 64 * _MIB
    write_buffer_bytes: int = 64 * _MIB
    wal_bytes: int = 64 * _MIB
    """Per shard: the write-ahead log is flushed into tables when it is longer."""

    @cached_property
    def cache(self) -> rd.Cache:
        return rd.Cache(self.cache_bytes)

    @cached_property
    def write_buffers(self) -> rd.WriteBufferManager:
        return rd.WriteBufferManager(self.write_buffer_bytes, False)


DEFAULT_BUDGET: Final = RocksBudget()


def raise_file_limit(shards: int) -> int:
    """Make room for the files of so many shards, as far as the system allows; returns the limit then in force.

    Raises Failed if even the hard limit is too low.
    """
    wanted = shards * _OPEN_FILES_PER_SHARD + _OPEN_FILES_SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if limit < wanted:
        raise Failed(
            f"a process may open {hard} files",
            wanted=f"{wanted} for {shards} partitions",
            todo="raise the limit (ulimit -n), or give this worker fewer partitions",
            limit=hard,
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return limit


def translate(error: Exception, path: str) -> DalsegnoError | None:
    """Our error for one of RocksDB's, which are told apart by their text alone; None if it is none of RocksDB's."""
    if type(error) not in (Exception, OSError, PermissionError, FileExistsError, rd.DbClosedError):
        return None
    text = str(error)
    low = text.lower()
    if "lock hold by current process" in low or "while lock file" in low:
        here = "this process" if "current process" in low else "another process"
        return StoreLocked(
            f"the store {path} is open in {here}",
            wanted="one owner at a time",
            todo="stop the other worker, or give this one another slot; never delete the file LOCK",
            path=path,
        )
    if "permission denied" in low or "read-only file system" in low or isinstance(error, PermissionError):
        return NotPermitted(
            f"no access to the store {path}: {text}", todo="give this user read and write access", path=path
        )
    if "no space left" in low or "disk quota exceeded" in low:
        return DiskFull(
            f"no space left for the store {path}", todo="free space; the shard goes on by itself", path=path
        )
    if isinstance(error, rd.DbClosedError) or "already closed" in low:
        return Conflict(f"the store {path} is closed", path=path)
    if "does not exist (create_if_missing is false)" in low:
        return NotFound(f"no store in {path}", path=path)
    # A secondary says "try again" where the owner has just begun another MANIFEST, and where that file is gone.
    damaged = low.startswith(("corruption", "operation failed. try again"))
    if damaged or "no such file" in low or "io error" in low or "file exists" in low:
        return StoreDamaged(
            f"the store {path} cannot be read: {text}",
            todo="set the folder aside; the shard is built again from a snapshot or from the log",
            path=path,
        )
    return None


def _translated(error: Exception, path: str) -> Exception:
    return translate(error, path) or error


def _options(budget: RocksBudget, family: str, *, create: bool) -> rd.Options:
    options = rd.Options(raw_mode=True)
    options.create_if_missing(create)
    options.create_missing_column_families(create)
    table = rd.BlockBasedOptions()
    table.set_block_cache(budget.cache)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    if family == JOURNAL:
        # Read in order or by known offsets only: large blocks pack better, and a filter would never say no.
        table.set_block_size(32 * 1024)
    else:
        table.set_bloom_filter(_BLOOM_BITS_PER_KEY, False)
    options.set_block_based_table_factory(table)
    options.set_compression_type(rd.DBCompressionType.zstd() if family == JOURNAL else rd.DBCompressionType.lz4())
    options.set_write_buffer_manager(budget.write_buffers)
    options.set_write_buffer_size(16 * _MIB)
    # An eighth of that by default, which the empty families of 16 shards would fill the whole budget with.
    options.set_arena_block_size(256 * 1024)
    options.set_max_total_wal_size(budget.wal_bytes)
    options.set_max_open_files(_OPEN_FILES_PER_SHARD)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(_MIB)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def _check_end(db: rd.Rdict, bounds: rd.ReadOptions, last: bytes, reverse: bool) -> None:
    """Make sure that a scan ended because there was no more.

    ``items()`` also ends, without a word, at a damaged block; an iterator that is asked for its status says so.
    ``last``: the last key seen, or where an empty scan began (reverse: b"").
    """
    probe = db.iter(read_opt=bounds)
    if reverse:
        probe.seek_for_prev(last) if last else probe.seek_to_last()
    else:
        probe.seek(last)
    if probe.valid():
        (probe.prev if reverse else probe.next)()
    probe.status()
    del probe


class RocksReader:
    """A RocksDB folder that is read: the half that primary and secondary share."""

    def __init__(self, path: Path, db: rd.Rdict) -> None:
        self.path = path
        self._db: rd.Rdict | None = db
        self._families: dict[str, rd.Rdict] = {family: db.get_column_family(family) for family in FAMILIES}

    def get(self, family: str, key: bytes) -> bytes | None:
        db = self._family(family)
        try:
            value: bytes | None = db.get(key)
        except Exception as error:
            raise _translated(error, str(self.path)) from error
        return value

    def multi_get(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        if not keys:
            return []
        db = self._family(family)
        try:
            values: list[bytes | None] = db.get(list(keys))  # type: ignore[assignment]
        except Exception as error:
            raise _translated(error, str(self.path)) from error
        return values

    def scan(
        self, family: str, start: bytes = b"", end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        while True:
            rows = self._chunk(family, start, end, reverse)
            yield from rows
            if len(rows) < SCAN_CHUNK_ROWS:
                return
            if reverse:
                end = rows[-1][0]
            else:
                start = rows[-1][0] + b"\x00"

    def _chunk(self, family: str, start: bytes, end: bytes | None, reverse: bool) -> list[tuple[bytes, bytes]]:
        # rocksdict 0.3.29 takes no notice of a lower bound in the options, so the start is given by hand.
        bounds = rd.ReadOptions()
        if end is not None:
            bounds.set_iterate_upper_bound(end)
        rows: list[tuple[bytes, bytes]] = []
        db = self._family(family)
        try:
            items: Any = db.items(backwards=reverse, from_key=None if reverse or not start else start, read_opt=bounds)
            for row in items:
                if reverse and row[0] < start:
                    break
                rows.append(row)
                if len(rows) == SCAN_CHUNK_ROWS:
                    break
            else:
                _check_end(db, bounds, rows[-1][0] if rows else b"" if reverse else start, reverse)
            del items
        except Exception as error:
            raise _translated(error, str(self.path)) from error
        return rows

    def _family(self, family: str) -> rd.Rdict:
        self._open_db()
        return self._families[family]

    def _open_db(self) -> rd.Rdict:
        if self._db is None:
            raise Conflict(f"the store {self.path} is closed", path=str(self.path))
        return self._db

    def close(self) -> None:
        db, self._db = self._db, None
        self._families.clear()
        if db is not None:
            db.close()


class RocksSecondary(RocksReader):
    """Another process's shard, read while that process writes it: as it was when it was opened."""


class RocksBatch:
    """A RocksDB write batch: one record of the write-ahead log, so it is there whole or not at all."""

    def __init__(self, families: dict[str, rd.ColumnFamily]) -> None:
        self.raw = rd.WriteBatch(raw_mode=True)
        self._families = families

    def put(self, family: str, key: bytes, value: bytes) -> None:
        self.raw.put(key, value, self._families[family])

    def putter(self, family: str) -> Callable[[bytes, bytes], None]:
        return partial(self.raw.put, column_family=self._families[family])

    def delete(self, family: str, key: bytes) -> None:
        self.raw.delete(key, self._families[family])

    def delete_range(self, family: str, start: bytes, end: bytes) -> None:
        self.raw.delete_range(start, end, self._families[family])

    @property
    def size_bytes(self) -> int:
        return self.raw.size_in_bytes()


class RocksStore(RocksReader):
    """The shard's own store, held for writing."""

    def __init__(self, path: Path, db: rd.Rdict) -> None:
        super().__init__(path, db)
        self._handles = {family: db.get_column_family_handle(family) for family in FAMILIES}

    @classmethod
    def open(cls, path: Path, budget: RocksBudget = DEFAULT_BUDGET, *, create: bool = True) -> RocksStore:
        """Open the folder for writing, and create it if it is not there and ``create``.

        Raises StoreLocked, NotPermitted, StoreDamaged, DiskFull, NotFound; each names the path.
        """
        try:
            if create:
                path.parent.mkdir(parents=True, exist_ok=True)
            options = {family: _options(budget, family, create=create) for family in FAMILIES}
            db = rd.Rdict(str(path), _options(budget, STATE, create=create), options)
        except Exception as error:
            raise _translated(error, str(path)) from error
        return cls(path, db)

    def batch(self) -> RocksBatch:
        return RocksBatch(self._handles)

    def write(self, batch: WriteBatch) -> None:
        db = self._open_db()
        if not isinstance(batch, RocksBatch):
            raise TypeError(f"a {type(batch).__name__} of another store")
        try:
            db.write(batch.raw)
        except Exception as error:
            raise _translated(error, str(self.path)) from error

    def checkpoint(self, folder: Path) -> None:
        db = self._open_db()
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            maker = rd.Checkpoint(db)
            try:
                maker.create_checkpoint(str(folder))
            finally:
                del maker
        except Exception as error:
            raise _translated(error, str(folder)) from error

    def flush(self) -> None:
        db = self._open_db()
        try:
            db.flush_wal(True)
        except Exception as error:
            raise _translated(error, str(self.path)) from error

    def close(self) -> None:
        self._handles.clear()
        super().close()


def open_secondary(path: Path, scratch: Path, budget: RocksBudget = DEFAULT_BUDGET) -> RocksSecondary:
    """Read a shard that another process holds. ``scratch``: a folder of the reader's own, for RocksDB's log.

    RocksDB's secondary reads the list of tables first, then the write-ahead logs. Where the owner flushes between the
    two, what was flushed is in neither, and the families show different moments, without an error; nor does
    ``try_catch_up_with_primary`` put that right. So an opening counts only if no table and no log came or went in it.

    Raises NotFound if there is no store in ``path``, else as ``RocksStore.open``.
    """
    for attempt in range(_OPENINGS):
        before = _files(path)
        reader = _open_secondary(path, scratch / str(attempt), budget)
        if before == _files(path):
            return reader
        reader.close()
    raise StoreDamaged(
        f"the store {path} was flushed by its owner during each of {_OPENINGS} looks",
        wanted="a moment between two flushes",
        todo="try again",
        path=str(path),
    )


def _open_secondary(path: Path, scratch: Path, budget: RocksBudget) -> RocksSecondary:
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        options = {family: _options(budget, family, create=False) for family in FAMILIES}
        for each in options.values():
            each.set_max_open_files(-1)  # a secondary must hold the files that its owner may delete
        main = _options(budget, STATE, create=False)
        main.set_max_open_files(-1)
        db = rd.Rdict(str(path), main, options, access_type=rd.AccessType.secondary(str(scratch)))
    except Exception as error:
        raise _translated(error, str(path)) from error
    return RocksSecondary(path, db)


def _files(path: Path) -> tuple[str, int, tuple[str, ...]] | None:
    """What a flush changes: the list of tables gets longer, or another one, and logs come and go. None: it is gone."""
    try:
        manifest = (path / "CURRENT").read_text().strip()
        size = (path / manifest).stat().st_size
        return manifest, size, tuple(sorted(each.name for each in path.iterdir() if each.suffix == ".log"))
    except OSError:
        return None

"""One small object store for snapshots and blobs: keys, bytes, nothing else. Here the filling that is a folder.

What every filling promises: a key holds the whole object or nothing (a reader never sees half of one), and a write
that returned is on the disk. Writing goes (1) to a temporary file, (2) fsync, (3) one rename or link to the key,
(4) fsync of the folder. A crash before (3) leaves a temporary file that no key names; such files go after a day.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Protocol

from dalsegno.errors import DiskFull, NotPermitted, StoreDamaged, Usage
from dalsegno.storage.files import sync_file, sync_folder

TEMPORARY = ".tmp"
TEMPORARY_MAX_AGE_SECONDS = 24 * 60 * 60.0

_FULL = {errno.ENOSPC, errno.EDQUOT}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class Stored(NamedTuple):
    """An object of the store: its size in bytes, and when it was written (seconds since 1970)."""

    key: str
    size: int
    modified: float


class Store(Protocol):
    """Objects by key. Keys are relative paths with ``/``; every write is atomic and durable.

    Raises DiskFull, NotPermitted, StoreUnavailable, and Usage for a key that is no such path.
    """

    @property
    def location(self) -> str:
        """Where it is, for messages to people."""
        ...

    def put_if_absent(self, key: str, source: Path | bytes) -> bool:
        """Write the object unless the key is taken; True if this call wrote it. Of two at once, one gets True."""
        ...

    def put(self, key: str, source: Path | bytes) -> None:
        """Write the object, in place of another if there is one; its age starts anew."""
        ...

    def read(self, key: str) -> bytes | None:
        """The whole object; None if there is none."""
        ...

    def download(self, key: str, target: Path) -> bool:
        """Copy the object to a file, which is replaced; False (and no file) if there is none."""
        ...

    def info(self, key: str) -> Stored | None: ...

    def list(self, prefix: str = "") -> Iterator[Stored]:
        """Every object whose key begins with ``prefix``, in key order."""
        ...

    def delete(self, key: str) -> None:
        """Take the object away; nothing happens if there is none."""
        ...


class FolderStore:
    """A store in a folder, made at the first write. Several processes may share it."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._swept = False

    @property
    def location(self) -> str:
        return str(self.root)

    def put_if_absent(self, key: str, source: Path | bytes) -> bool:
        target = self._path(key)
        with os_errors(f"write {key}"):
            if target.exists():
                return False
            with self._temporary(source) as temporary:
                self._make_folder(target.parent)
                written = _claim(temporary, target)
                sync_folder(target.parent)
            return written

    def put(self, key: str, source: Path | bytes) -> None:
        target = self._path(key)
        with os_errors(f"write {key}"), self._temporary(source) as temporary:
            self._make_folder(target.parent)
            os.replace(temporary, target)
            sync_folder(target.parent)

    def read(self, key: str) -> bytes | None:
        path = self._path(key)
        with os_errors(f"read {key}"):
            try:
                return path.read_bytes()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None

    def download(self, key: str, target: Path) -> bool:
        path = self._path(key)
        with os_errors(f"read {key}"):
            if not path.is_file():
                return False
            try:
                shutil.copyfile(path, target)
                sync_file(target)
            except BaseException:
                target.unlink(missing_ok=True)
                raise
            return True

    def info(self, key: str) -> Stored | None:
        with os_errors(f"look at {key}"):
            return _stored(key, self._path(key))

    def list(self, prefix: str = "") -> Iterator[Stored]:
        folder = self.root / (prefix.rpartition("/")[0] or ".")
        with os_errors(f"list {prefix or self.root}"):
            found = sorted(self._keys_below(folder))
        for key in found:
            if not key.startswith(prefix):
                continue
            with os_errors(f"look at {key}"):
                stored = _stored(key, self.root / key)
            if stored is not None:
                yield stored

    def delete(self, key: str) -> None:
        path = self._path(key)
        with os_errors(f"delete {key}"):
            try:
                path.unlink()
            except (FileNotFoundError, NotADirectoryError):
                return
            sync_folder(path.parent)

    def _keys_below(self, folder: Path) -> Iterator[str]:
        # Without this a folder that may not be read would look empty, and what its objects name would look unneeded.
        for where, folders, files in os.walk(folder, onerror=_unless_missing):
            at = Path(where)
            if at == self.root and TEMPORARY in folders:
                folders.remove(TEMPORARY)
            for name in files:
                yield (at / name).relative_to(self.root).as_posix()

    def _path(self, key: str) -> Path:
        return self.root.joinpath(*check_key(key))

    @contextmanager
    def _temporary(self, source: Path | bytes) -> Iterator[Path]:
        """The source in a temporary file of the store, on the disk; taken away at the end, whatever happens."""
        folder = self.root / TEMPORARY
        self._make_folder(folder)
        self._sweep(folder)
        path = folder / uuid.uuid4().hex
        try:
            if isinstance(source, Path):
                shutil.copyfile(source, path)
            else:
                path.write_bytes(source)
            sync_file(path)
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _make_folder(self, folder: Path) -> None:
        """Make the folder and those above it, each on the disk before what it holds."""
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)

    def _sweep(self, folder: Path) -> None:
        """Take away what crashed writers left, once per process."""
        if self._swept:
            return
        self._swept = True
        for path in folder.iterdir():
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > TEMPORARY_MAX_AGE_SECONDS:
                    path.unlink()


@contextmanager
def os_errors(doing: str) -> Iterator[None]:
    """The operating system's errors as ours: DiskFull, NotPermitted, else StoreDamaged with what it said."""
    try:
        yield
    except OSError as error:
        where = str(error.filename or "")
        if error.errno in _FULL:
            raise DiskFull(
                f"could not {doing}: {error.strerror}",
                wanted="free space",
                todo="free space, then try again; nothing was changed",
                path=where,
            ) from error
        if error.errno in _DENIED:
            raise NotPermitted(
                f"could not {doing}: {error.strerror}{f' ({where})' if where else ''}",
                wanted="read and write access for this user",
                todo="correct owner or mode; nothing was changed",
                path=where,
            ) from error
        raise StoreDamaged(
            f"could not {doing}: {error.strerror or error}{f' ({where})' if where else ''}",
            wanted="a working file system and a path that it takes",
            todo="look at the disk and at the path; nothing was changed",
            path=where,
        ) from error


def check_key(key: str) -> tuple[str, ...]:
    """The parts of a key. Raises Usage for what is no relative path."""
    parts = PurePosixPath(key).parts
    plain = "/".join(parts) == key and key and not key.startswith("/")
    if not plain or ".." in parts or parts[0] == TEMPORARY or "\x00" in key:
        raise Usage(f"{key!r} is no key of a store", wanted="a relative path such as files/1a2b", key=key)
    return parts


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _claim(temporary: Path, target: Path) -> bool:
    """Give the file its name unless the name is taken: a link fails on a taken name, a rename would replace it."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS or target.exists():
            raise
        os.replace(temporary, target)  # a file system without links: here two at once may both say True
    return True


def _stored(key: str, path: Path) -> Stored | None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Stored(key, found.st_size, found.st_mtime) if path.is_file() else None

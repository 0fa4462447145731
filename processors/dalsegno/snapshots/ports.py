"""What taking and restoring a snapshot asks of the rooms around it, and where things lie in the store."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from dalsegno.errors import DiskFull, NotPermitted
from dalsegno.snapshots.manifest import Marks

_CHUNK_BYTES = 1024 * 1024
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_NO_RIGHT = {errno.EACCES, errno.EPERM, errno.EROFS}

Fault = Callable[[str], None]
"""Called with the name of each step of a protocol when it is done; a test may end the process there."""


def no_fault(step: str) -> None:
    """The fault hook of a process that is not under test."""


class Stored(NamedTuple):
    """An object of the store: its size in bytes, and when it was written (seconds since 1970)."""

    key: str
    size: int
    modified: float


class Store(Protocol):
    """The part of the object store that snapshots use. Writes are atomic and durable."""

    def put_if_absent(self, key: str, source: Path | bytes) -> bool: ...

    def put(self, key: str, source: Path | bytes) -> None: ...

    def read(self, key: str) -> bytes | None: ...

    def download(self, key: str, target: Path) -> bool: ...

    def info(self, key: str) -> Stored | None: ...

    def list(self, prefix: str) -> Iterable[Stored]: ...

    def delete(self, key: str) -> None: ...


class StateFolders(Protocol):
    """Looks into a folder that holds a shard's state and that nobody has open."""

    def marks(self, folder: Path) -> Marks:
        """What the state says of itself. Raises StoreDamaged when it cannot be opened."""

    def adopt(self, folder: Path, generation: str, base: str) -> None:
        """Make it the state of another generation."""


def files_prefix(prefix: str) -> str:
    """Where the content-addressed files of a topic prefix lie."""
    return f"{prefix}/files/"


def file_key(prefix: str, sha256: str) -> str:
    return files_prefix(prefix) + sha256


def manifests_prefix(prefix: str) -> str:
    return f"{prefix}/manifests/"


def manifest_key(prefix: str, snapshot_id: str) -> str:
    return f"{manifests_prefix(prefix)}{snapshot_id}.json"


@contextmanager
def os_errors(doing: str) -> Iterator[None]:
    """The operating system's refusals as errors of ours: DiskFull, NotPermitted. Others pass as they are."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise DiskFull(
                f"could not {doing}: no space left ({error.filename or 'unknown file'})",
                wanted="free space for a copy of the state",
                todo="free space, then try again; nothing was changed",
            ) from error
        if error.errno in _NO_RIGHT:
            raise NotPermitted(
                f"could not {doing}: {error.strerror} ({error.filename or 'unknown file'})",
                wanted="read and write access for this user",
                todo="correct owner or mode; nothing was deleted",
                path=str(error.filename),
            ) from error
        raise


def sha256_of(path: Path) -> tuple[str, int]:
    """SHA-256 in hex and size in bytes of a file."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size

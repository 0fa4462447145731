"""What taking and restoring a snapshot asks of the rooms around it, and where things lie in the store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from dalsegno.snapshots.manifest import Marks

_CHUNK_BYTES = 1024 * 1024

Fault = Callable[[str], None]
"""Called with the name of each step of a protocol when it is done; a test may end the process there."""


def no_fault(step: str) -> None:
    """The fault hook of a process that is not under test."""


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


def sha256_of(path: Path) -> tuple[str, int]:
    """SHA-256 in hex and size in bytes of a file."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size

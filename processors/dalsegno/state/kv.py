"""What a shard asks of its store: two ordered families of bytes, atomic batches, checkpoints.

Two fillings, one contract (``tests/contract``): ``rocks.RocksStore`` on disk and ``memory.MemoryStore``. A third view,
``rocks.open_secondary``, only reads. Keys are compared byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

JOURNAL: Final = "journal"
"""Big-endian offset -> the record's schema, key and body. Append-only, so compaction moves files and rewrites none."""
STATE: Final = "state"
"""Everything else; the first byte of the key says what kind of row it is (``keys.py``)."""
FAMILIES: Final = (JOURNAL, STATE)

SCAN_CHUNK_ROWS: Final = 512
"""Rows fetched at once by a scan: no iterator of the store is open while the caller looks at them."""


class KeyReader(Protocol):
    """The reading half; a secondary and a snapshot have only this."""

    def get(self, family: str, key: bytes) -> bytes | None:
        """The value, or None. Raises StoreDamaged if the store cannot be read."""

    def multi_get(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values in the order of the keys."""

    def scan(
        self, family: str, start: bytes = b"", end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Rows with start <= key < end in key order, or from the last to the first if ``reverse``.

        Fetched in chunks: a row that is written or deleted meanwhile may or may not be seen, each row at most once.
        """

    def close(self) -> None:
        """Give the files back; a second call does nothing."""


class WriteBatch(Protocol):
    """Changes that become visible together or not at all. Later ones win over earlier ones for the same key."""

    def put(self, family: str, key: bytes, value: bytes) -> None: ...

    def putter(self, family: str) -> Callable[[bytes, bytes], None]:
        """``put`` for one family, for long loops."""

    def delete(self, family: str, key: bytes) -> None: ...

    def delete_range(self, family: str, start: bytes, end: bytes) -> None:
        """Delete every row with start <= key < end that is in the store or earlier in this batch."""

    @property
    def size_bytes(self) -> int:
        """Bytes of keys and values put or deleted so far."""


class KeyValue(KeyReader, Protocol):
    """A store that one process holds for reading and writing."""

    def batch(self) -> WriteBatch: ...

    def write(self, batch: WriteBatch) -> None:
        """Apply all of the batch, or nothing. It survives the death of the process. Raises DiskFull, StoreDamaged."""

    def checkpoint(self, folder: Path) -> None:
        """A copy of this moment in ``folder``, which must not exist; later writes do not touch it."""

    def flush(self) -> None:
        """Bring everything written so far onto the disk itself."""


def after_prefix(prefix: bytes) -> bytes:
    """The first key behind all keys that begin with ``prefix`` (which holds a byte below 255)."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes((head[-1] + 1,))


def scan_prefix(reader: KeyReader, family: str, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """All rows whose key begins with ``prefix``, in key order."""
    return reader.scan(family, prefix, after_prefix(prefix))

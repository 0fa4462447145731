"""The digest of a projection's rows: a sum, so that a change costs one subtraction and one addition. Pure.

Sum modulo 2^256 of SHA-256 over (projection, version, key, row), each with its length before it. Equal sums at equal
cursors show equal rows against faults; against forgers they prove nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple

MODULUS: Final = 1 << 256


class ProjectionDigest(NamedTuple):
    """Version of the fold and the digest of its rows, 64 hex digits."""

    version: int
    digest: str


def row_hasher(projection: str, version: int) -> Callable[[bytes, bytes], int]:
    """The function (key, row bytes) -> the row's summand."""
    name = projection.encode("utf-8")
    head = struct.pack(">H", len(name)) + name + struct.pack(">I", version)
    lengths = struct.Struct(">II").pack
    from_bytes = int.from_bytes

    def summand(key: bytes, row: bytes) -> int:
        return from_bytes(sha256(head + lengths(len(key), len(row)) + key + row).digest(), "big")

    return summand


def to_hex(total: int) -> str:
    return f"{total % MODULUS:064x}"

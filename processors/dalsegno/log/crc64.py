"""CRC-64-AVRO, the fingerprint of single-object encoding (Avro specification, "Schema Fingerprints"). Pure."""

from __future__ import annotations

_EMPTY = 0xC15D213AA4D7A795


def _table() -> tuple[int, ...]:
    rows = []
    for row in range(256):
        for _ in range(8):
            row = (row >> 1) ^ (_EMPTY if row & 1 else 0)
        rows.append(row)
    return tuple(rows)


_TABLE = _table()


def crc64_avro(data: bytes) -> bytes:
    """The fingerprint of ``data``, 8 bytes, little endian as single-object encoding writes it."""
    crc = _EMPTY
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc.to_bytes(8, "little")

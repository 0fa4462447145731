"""The keys of a shard's rows. Pure.

The first byte says what kind of row it is. Text stands behind its length, numbers are big-endian: no two different
sessions or ids share a key, whatever characters they hold, and one session's rows stand together.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

import msgspec

RowId: TypeAlias = tuple[str | int, ...]
"""The id of a row within its projection and session, or the key of a rollup."""

META: Final = b"m"
INDEX: Final = b"i"
"""session, seq, hash -> ``IndexEntry``."""
HEAD: Final = b"h"
"""session -> ``SessionHead``."""
ROW: Final = b"p"
"""projection, session, id -> row."""
PRIVATE: Final = b"q"
"""projection, session, id -> a row that the fold keeps for itself."""
TOTAL: Final = b"r"
"""rollup projection, key (its first part is the partition) -> sums."""
CONTRIBUTION: Final = b"c"
"""rollup projection, session, key -> what this session has added to the total."""
OUTBOX: Final = b"o"
"""projection, kind and rest of the row's key -> token: a public row that changed and is not emitted yet."""
FORK: Final = b"f"
"""ancestor, fork -> ``ForkLink``: a change in a session concerns every fork that reads it, however far below."""
ANCESTORS: Final = b"a"
"""fork -> the sessions that it reads, which have a ``FORK`` row of it."""
WAITING: Final = b"u"
"""session, seq, hash -> frame id and reason: a record that this build cannot read or fold."""
LADDER: Final = b"l"
"""key of a row, window -> the version of it that this window was the first to change; for a head: ``Rung``. See
``ladder.py``."""

STATE_KINDS: Final = frozenset(
    {META, INDEX, HEAD, ROW, PRIVATE, TOTAL, CONTRIBUTION, OUTBOX, FORK, ANCESTORS, WAITING, LADDER}
)
"""Every kind of row there is."""

_as_json = msgspec.json.Encoder().encode
_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_LONG_TEXT = 0xFFFF
_SIGN = 1 << 63
_TEXT_MARK, _NUMBER_MARK = b"s", b"n"


def text_part(text: str | bytes) -> bytes:
    """Text behind its length: 2 bytes, or FFFF and 4 bytes."""
    raw = text.encode("utf-8") if isinstance(text, str) else text
    size = len(raw)
    if size < _LONG_TEXT:
        return size.to_bytes(2, "big") + raw
    return _U16.pack(_LONG_TEXT) + _U32.pack(size) + raw


def take_text(key: bytes, at: int) -> tuple[str, int]:
    """The text that begins at ``at``, and where it ends."""
    (size,) = _U16.unpack_from(key, at)
    at += 2
    if size == _LONG_TEXT:
        (size,) = _U32.unpack_from(key, at)
        at += 4
    return key[at : at + size].decode("utf-8"), at + size


def id_part(row_id: RowId) -> bytes:
    """An id's parts one after the other; numbers sort as numbers (signed, 64 bits)."""
    parts = b""
    for part in row_id:
        if type(part) is str:
            raw = part.encode("utf-8")
            size = len(raw)
            parts += _TEXT_MARK + (size.to_bytes(2, "big") + raw if size < _LONG_TEXT else text_part(raw))
        else:
            parts += _NUMBER_MARK + _U64.pack(part + _SIGN)  # type: ignore[operator]
    return parts


def take_id(key: bytes, at: int) -> RowId:
    """The id whose parts fill the rest of ``key``."""
    parts: list[str | int] = []
    while at < len(key):
        mark = key[at : at + 1]
        if mark == _TEXT_MARK:
            text, at = take_text(key, at + 1)
            parts.append(text)
        elif mark == _NUMBER_MARK:
            parts.append(_U64.unpack_from(key, at + 1)[0] - _SIGN)
            at += 9
        else:
            raise ValueError(f"no id at byte {at} of key {key!r}")
    return tuple(parts)


def family_prefix(kind: bytes, projection: str) -> bytes:
    """What all rows of one kind and projection begin with."""
    return kind + text_part(projection)


def session_row_key(kind: bytes, projection: str, session_id: str, row_id: RowId = ()) -> bytes:
    return family_prefix(kind, projection) + text_part(session_id) + id_part(row_id)


def split_session_row(key: bytes, at: int = 1) -> tuple[str, str, RowId]:
    """Projection, session and id of a row key whose projection begins at ``at``."""
    projection, at = take_text(key, at)
    session_id, at = take_text(key, at)
    return projection, session_id, take_id(key, at)


def split_total(key: bytes, at: int = 1) -> tuple[str, RowId]:
    """Projection and key (partition first) of a rollup's total."""
    projection, at = take_text(key, at)
    return projection, take_id(key, at)


def head_key(session_id: str) -> bytes:
    return HEAD + text_part(session_id)


def index_prefix(session_id: str) -> bytes:
    return INDEX + text_part(session_id)


def index_key(session_id: str, seq: int, hash_: bytes) -> bytes:
    return INDEX + text_part(session_id) + _U64.pack(seq) + hash_


def split_index(key: bytes, at: int) -> tuple[int, bytes]:
    """Seq and hash of an index key whose session ends at ``at``."""
    return _U64.unpack_from(key, at)[0], key[at + 8 :]


def fork_key(parent: str, child: str) -> bytes:
    return FORK + text_part(parent) + text_part(child)


def ancestors_key(fork: str) -> bytes:
    return ANCESTORS + text_part(fork)


def waiting_key(session_id: str, seq: int, hash_: bytes) -> bytes:
    return WAITING + text_part(session_id) + _U64.pack(seq) + hash_


def split_waiting(key: bytes) -> tuple[str, int, bytes]:
    session_id, at = take_text(key, 1)
    return session_id, *split_index(key, at)


def journal_key(offset: int) -> bytes:
    return _U64.pack(offset)


def outbox_key(row_key: bytes) -> bytes:
    """Where the outbox notes that the public row (ROW or TOTAL) under ``row_key`` changed; sorted by projection."""
    _, at = take_text(row_key, 1)
    return OUTBOX + row_key[1:at] + row_key[:1] + row_key[at:]


def outbox_row_key(key: bytes) -> bytes:
    """The row key that an outbox key stands for."""
    _, at = take_text(key, 1)
    return key[at : at + 1] + key[1:at] + key[at + 1 :]


def topic_key(parts: RowId) -> bytes:
    """The key of a row in its topic: its parts as canonical JSON (RFC 8785, which for text and integers is this)."""
    return _as_json(parts)

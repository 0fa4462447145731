"""Names and numbers that place a record: session ids, keys, partitions. Pure.

Source of the rules: ``schemas/README.md``, sections "Key" and "Partition".
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple, NewType

from dalsegno.errors import InvalidSessionId

Seq = NewType("Seq", int)
"""Number of an event in its session, from 1; control events have 0."""
Offset = NewType("Offset", int)
"""Offset of a record in its partition."""

HASH_BYTES = 32
SESSION_ID_MAX_BYTES = 200
SEQ_MAX = 2**63 - 1
"""What an Avro long holds."""
FORK_MARK = "~"

_KEY_TAIL = re.compile(rb":(0|[1-9][0-9]{0,18}):([0-9a-f]{64})\Z")


class EventKey(NamedTuple):
    """A record's key: which session, which seq, which event (SHA-256, 32 bytes)."""

    session_id: str
    seq: Seq
    hash: bytes

    def encode(self) -> bytes:
        return f"{self.session_id}:{self.seq}:{self.hash.hex()}".encode()


def parse_key(key: bytes) -> EventKey | None:
    """The key's parts, read from the right because ids may hold colons; None if it is not a key of ours."""
    match = _KEY_TAIL.search(key)
    if match is None or match.start() == 0 or match.start() > SESSION_ID_MAX_BYTES or int(match.group(1)) > SEQ_MAX:
        return None
    try:
        session_id = key[: match.start()].decode("utf-8")
    except UnicodeDecodeError:
        return None
    return EventKey(session_id, Seq(int(match.group(1))), bytes.fromhex(match.group(2).decode("ascii")))


def root_of(session_id: str) -> str:
    """The id that decides the partition: what stands before the first ``~``, so that forks share it."""
    return session_id.split(FORK_MARK, 1)[0]


def check_session_id(session_id: str, *, fork: bool = False) -> str:
    """Refuse an id that a caller may not choose. Raises InvalidSessionId."""
    problem = ""
    try:
        size = len(session_id.encode("utf-8"))
    except AttributeError:
        size, problem = 0, f"a {type(session_id).__name__}"
    except UnicodeEncodeError:
        size, problem = 0, "a lone surrogate"
    if not problem:
        if size == 0:
            problem = "an empty id"
        elif size > SESSION_ID_MAX_BYTES:
            problem = f"{size} bytes"
        elif any(ord(c) < 0x20 or ord(c) == 0x7F for c in session_id):
            problem = "a control character"
        elif (FORK_MARK in session_id) != fork or (fork and root_of(session_id) == ""):
            problem = "'~', which marks forks" if not fork else "no '<root>~<suffix>'"
    if problem:
        raise InvalidSessionId(
            f"session id {str(session_id)[:80]!r} holds {problem}",
            wanted=f"1 to {SESSION_ID_MAX_BYTES} bytes of UTF-8 without control characters and '~'",
            todo="choose another session id",
            field="session_id",
        )
    return session_id


def murmur2(data: bytes) -> int:
    """Java Kafka's murmur2 (seed 0x9747b28c), as an unsigned 32-bit number."""
    length = len(data)
    m = 0x5BD1E995
    h = (0x9747B28C ^ length) & 0xFFFFFFFF
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little")
        k = (k * m) & 0xFFFFFFFF
        k ^= k >> 24
        k = (k * m) & 0xFFFFFFFF
        h = ((h * m) & 0xFFFFFFFF) ^ k
    tail = data[whole:]
    if tail:
        h ^= int.from_bytes(tail, "little")
        h = (h * m) & 0xFFFFFFFF
    h ^= h >> 13
    h = (h * m) & 0xFFFFFFFF
    h ^= h >> 15
    return h


@lru_cache(maxsize=65_536)
def partition_of(session_id: str, partitions: int) -> int:
    """The partition of a session and of all its forks: murmur2 (as Java's default partitioner) of the root id."""
    return (murmur2(root_of(session_id).encode("utf-8")) & 0x7FFFFFFF) % partitions

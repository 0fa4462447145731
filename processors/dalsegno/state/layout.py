"""What stands in a shard's own rows: index, head, forks, journal, position. Pure.

None of it is emitted. The head is part of the digest of ``lifecycle``; index, journal, position and the rest hold
offsets or follow from what is digested, and stay outside.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

import msgspec

from dalsegno.errors import StoreDamaged
from dalsegno.model.cursor import Cursor
from dalsegno.model.records import UNDECODABLE, UNKNOWN_SCHEMA, UNKNOWN_SYMBOL

FORMAT: Final = 4
"""Of the rows here and of the keys. A shard of another format is built again."""

# --- index: what is known of one record ------------------------------------------------------------------------------

READABLE: Final = 0
FORKING: Final = 1
"""A readable ``SessionForked``: the session's history begins in its parent."""
UNFOLDABLE: Final = 2
"""Its bytes decode, but its type is unknown to this build and it may not be ignored."""
DARK: Final = {3: UNKNOWN_SCHEMA, 4: UNDECODABLE, 5: UNKNOWN_SYMBOL}
DARK_CODES: Final = {reason: code for code, reason in DARK.items()}

_INDEX = struct.Struct(">QqB")


class IndexEntry(NamedTuple):
    """Where a record lies in the journal, and its place in the chain. ``kind`` is one of the numbers above."""

    offset: int
    epoch: int
    kind: int
    prev_hash: bytes | None

    def encode(self) -> bytes:
        return encode_index(*self)

    @classmethod
    def decode(cls, raw: bytes) -> IndexEntry:
        offset, epoch, kind = _INDEX.unpack_from(raw)
        return cls(offset, epoch, kind, raw[_INDEX.size :] or None)


def encode_index(offset: int, epoch: int, kind: int, prev_hash: bytes | None) -> bytes:
    return _INDEX.pack(offset, epoch, kind) + (prev_hash or b"")


# --- head: the end of a session's path -------------------------------------------------------------------------------


class SessionHead(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The end of a session's path, and what was known when it was chosen. A function of the session's records alone."""

    seq: int = 0
    hash: bytes | None = None
    epoch: int = 0
    highest: int = 0
    erased: bool = False
    held_reason: str | None = None
    held_seq: int | None = None
    superseded: int = 0
    stubs: int = 0
    """Of those on the path."""
    amended: bytes = b""
    """Names all stubs of the session; empty while there are none."""
    parent: str | None = None
    inherited: bytes = b""
    """Names what a fork took over from its parent."""
    state: Any = None
    """The ``SessionState`` there, in the same row because both change with every event. Read as a plain list, so that
    a head can be read whatever shape the lifecycle had then; ``session.state_of`` gives it its type."""


class ForkLink(msgspec.Struct, array_like=True, frozen=True):
    """Where a fork left its parent: the last of the parent's records that belong to it."""

    seq: int
    hash: bytes


# --- journal ---------------------------------------------------------------------------------------------------------

_EVENT_FORM, _RAW_FORM = 0, 1
_FRAME_BYTES: Final = 8
_SCHEMA_BYTES: Final = 32
_JOURNAL_KEY = struct.Struct(">H")


class JournalEntry(NamedTuple):
    """A record as it is kept: ``schema`` is the writer schema's hash (32 bytes), or the frame id (8 bytes) while the
    schema is unknown."""

    schema: bytes
    key: bytes
    body: bytes

    @property
    def is_raw(self) -> bool:
        return len(self.schema) == _FRAME_BYTES

    @staticmethod
    def form_of(schema: bytes) -> bytes:
        """What an entry with this schema begins with."""
        return bytes((_RAW_FORM if len(schema) == _FRAME_BYTES else _EVENT_FORM,)) + schema

    def encode(self) -> bytes:
        return self.form_of(self.schema) + _JOURNAL_KEY.pack(len(self.key)) + self.key + self.body

    @classmethod
    def decode(cls, raw: bytes) -> JournalEntry:
        size = 1 + (_FRAME_BYTES if raw[0] == _RAW_FORM else _SCHEMA_BYTES)
        (key_size,) = _JOURNAL_KEY.unpack_from(raw, size)
        at = size + _JOURNAL_KEY.size
        return cls(raw[1:size], raw[at : at + key_size], raw[at + key_size :])


# --- position: what moves with every batch ---------------------------------------------------------------------------


class ShardIdentity(msgspec.Struct, frozen=True):
    """Which partition of which topic a shard is of, and which building of it."""

    topic: str
    cluster_id: str
    topic_id: str
    """In hex."""
    partition: int
    partitions: int
    generation: str
    base: str
    """Shard snapshot that the generation began from; "-" for none."""


class Counts(msgspec.Struct):
    """Of this building: how much was applied, and what there is now."""

    records: int = 0
    """Records applied, repeats and tombstones among them."""
    events: int = 0
    """Records in the journal."""
    sessions: int = 0
    held: int = 0
    forks: int = 0
    waiting: int = 0


BUILDING: Final = -1
"""Version of a projection whose rows are being folded again: nothing of them counts yet."""


class StoredDigest(msgspec.Struct):
    version: int
    total: bytes


class Position(msgspec.Struct):
    """One row, written with every batch: cursor, digests and counts can never disagree."""

    format: int
    cursor: Cursor
    digests: dict[str, StoredDigest]
    counts: Counts
    batch: int = 0
    """Number of the last batch; the token of the outbox rows that it wrote."""
    catalogue: str = ""
    """The event types that the records were last read with."""


IDENTITY_KEY: Final = b"midentity"
POSITION_KEY: Final = b"mposition"
COPY_KEY: Final = b"mcopy"
"""A name that this copy of the shard shares with no other, not even with one that was restored from it."""

_encode = msgspec.msgpack.Encoder().encode
_identity_decoder = msgspec.msgpack.Decoder(ShardIdentity)
_position_decoder = msgspec.msgpack.Decoder(Position)


def encode_meta(row: Position | ShardIdentity | ForkLink | tuple[str, ...]) -> bytes:
    return _encode(row)


def decode_identity(raw: bytes, path: str) -> ShardIdentity:
    try:
        return _identity_decoder.decode(raw)
    except msgspec.MsgspecError as error:
        raise _damaged("ShardIdentity", path, error) from error


def decode_position(raw: bytes, path: str) -> Position:
    """Raises StoreDamaged, also for a format that is not ours."""
    try:
        position = _position_decoder.decode(raw)
    except msgspec.MsgspecError as error:
        raise _damaged("Position", path, error) from error
    if position.format != FORMAT:
        raise _damaged("Position", path, ValueError(f"format {position.format}, this build reads {FORMAT}"))
    return position


decode_names = msgspec.msgpack.Decoder(tuple[str, ...]).decode
decode_fork = msgspec.msgpack.Decoder(ForkLink).decode


def _damaged(name: str, path: str, error: Exception) -> StoreDamaged:
    return StoreDamaged(
        f"the shard's {name} does not have the shape of this build: {error}",
        wanted=f"format {FORMAT}",
        todo="set the folder aside; the shard is built again from a snapshot or from the log",
        type=name,
        path=path,
    )

"""Between bytes and events. ``place`` is total: whatever a record's bytes are, it says what they are and never raises.

An event written with another version of a known type is given in the shape of the newest version that this build
knows, matched by name. The stored bytes, and with them the hash, stay what they were. A symbol of an enum that this
build lacks is never taken for another: the event is Unreadable, or UNKNOWN stands there if the event is ignorable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from io import BytesIO
from typing import Any

import fastavro
from fastavro._read_common import SchemaResolutionError

from dalsegno.errors import RecordDamaged
from dalsegno.log.encode import check
from dalsegno.log.schema_set import SchemaSet, WriterSchema
from dalsegno.model.ids import SESSION_ID_MAX_BYTES, EventKey, parse_key, partition_of
from dalsegno.model.records import (
    UNDECODABLE,
    UNKNOWN_SCHEMA,
    UNKNOWN_SYMBOL,
    Event,
    Placed,
    SetAside,
    Tombstone,
    Unreadable,
)

__all__ = [
    "MARKER",
    "check",
    "decode_body",
    "decode_record",
    "encode",
    "encode_record",
    "event_hash",
    "frame",
    "place",
    "read_meta",
    "unframe",
]

MARKER = b"\xc3\x01"
FRAME_BYTES = 10

NO_KEY = "NO_KEY"
BAD_KEY = "BAD_KEY"
WRONG_PARTITION = "WRONG_PARTITION"
NO_FRAME = "NO_FRAME"
NOT_AN_EVENT = "NOT_AN_EVENT"
WRONG_HASH = "WRONG_HASH"
WRONG_PLACE = "WRONG_PLACE"
"""Reasons of SetAside: no key; a key that is none of ours; another partition than the session's; a value without the
marker of single-object encoding; a record that is no event; a key whose hash, or whose session and seq, do not follow
from the bytes (WRONG_PLACE also: ``prev_hash`` is null although the seq is neither 0 nor 1, or the other way round)."""

# A key of at most this many bytes holds no session id that is too long: id, two colons, a digit, 64 of the hash.
_SURELY_SHORT = SESSION_ID_MAX_BYTES + 67

_read: Callable[..., Any] = fastavro.schemaless_reader
_write: Callable[..., None] = fastavro.schemaless_writer


def place(schemas: SchemaSet, key: bytes | None, value: bytes | None, partition: int, partitions: int) -> Placed:
    """What one record of the events topic is. Never raises."""
    if key is not None and value is not None and value[:2] == MARKER:
        writer = schemas.current.get(value[2:FRAME_BYTES])
        if writer is not None:
            event = _event_of_its_key(writer, key, value[FRAME_BYTES:], partition, partitions)
            if event is not None:
                return event
    return _place_step_by_step(schemas, key, value, partition, partitions)


def _event_of_its_key(writer: WriterSchema, key: bytes, body: bytes, partition: int, partitions: int) -> Event | None:
    """The common case, where the key need not be taken apart: what the body says gives it. None: look in detail."""
    try:
        digest = sha256(writer.schema_hash + body)
        stream = BytesIO(body)
        record = _read(stream, writer.raw, None)
        meta = record["meta"]
        session_id, seq, prev_hash = meta["session_id"], meta["seq"], meta["prev_hash"]
        if (
            f"{session_id}:{seq}:{digest.hexdigest()}".encode() != key
            or stream.tell() != len(body)
            or not (seq > 1 if prev_hash is not None else 0 <= seq <= 1)
            or not session_id
            or len(key) > _SURELY_SHORT
            or partition_of(session_id, partitions) != partition
        ):
            return None
        return Event(
            session_id,
            seq,
            digest.digest(),
            prev_hash,
            meta["epoch"],
            writer.type,
            True,
            meta["ignorable"],
            meta,
            record,
        )
    except Exception:
        return None


def _place_step_by_step(
    schemas: SchemaSet, key: bytes | None, value: bytes | None, partition: int, partitions: int
) -> Placed:
    if key is None:
        return SetAside(NO_KEY)
    parsed = parse_key(key)
    if parsed is None:
        return SetAside(BAD_KEY)
    if partition_of(parsed.session_id, partitions) != partition:
        return SetAside(WRONG_PARTITION)
    if value is None:
        return Tombstone(parsed)
    if len(value) < FRAME_BYTES or value[:2] != MARKER:
        return SetAside(NO_FRAME)
    frame_id = value[2:FRAME_BYTES]
    writers = schemas.all_by_frame(frame_id)
    if not writers:
        schemas.miss(frame_id)
        return Unreadable(parsed, UNKNOWN_SCHEMA)
    body = value[FRAME_BYTES:]
    for writer in writers:
        if sha256(writer.schema_hash + body).digest() == parsed.hash:
            return _decode_event(schemas, writer, parsed, body)
    return SetAside(WRONG_HASH)


def decode_body(schemas: SchemaSet, schema_hash: bytes, key: EventKey, body: bytes) -> Placed:
    """As ``place``, for a body that the journal kept beside its schema hash and key."""
    writer = schemas.by_hash(schema_hash)
    if writer is None:
        return Unreadable(key, UNKNOWN_SCHEMA)
    if sha256(schema_hash + body).digest() != key.hash:
        return SetAside(WRONG_HASH)
    return _decode_event(schemas, writer, key, body)


def _decode_event(schemas: SchemaSet, writer: WriterSchema, key: EventKey, body: bytes) -> Placed:
    """The event in a body whose hash is known to be the key's."""
    if not writer.is_event:
        return SetAside(NOT_AN_EVENT)
    newest = schemas.newest(writer)
    try:
        if newest is None or newest is writer:
            record = _exactly(writer.raw, None, body)
        else:
            try:
                record = _exactly(writer.raw, newest.raw_strict, body)
            except SchemaResolutionError:
                record = _exactly(writer.raw, newest.raw, body)
                if not record["meta"]["ignorable"]:
                    return Unreadable(key, UNKNOWN_SYMBOL)
        meta = record["meta"]
        session_id, seq, hash_ = key
        prev_hash = meta["prev_hash"]
        if meta["session_id"] != session_id or meta["seq"] != seq or (prev_hash is None) != (seq <= 1):
            return SetAside(WRONG_PLACE)
        known = newest is not None
        return Event(
            session_id, seq, hash_, prev_hash, meta["epoch"], writer.type, known, meta["ignorable"], meta, record
        )
    except Exception:
        # Bytes from outside may break a decoder in any way it knows (end of data, UTF-8, index, overflow, recursion).
        return Unreadable(key, UNDECODABLE)


def _exactly(writer: Any, reader: Any, body: bytes) -> Any:
    """Decode a body that must hold one record and nothing behind it. Raises whatever fastavro raises, or ValueError."""
    stream = BytesIO(body)
    record = _read(stream, writer, reader)
    if stream.tell() != len(body):
        raise ValueError(f"{len(body) - stream.tell()} bytes behind the record")
    return record


def read_meta(schemas: SchemaSet, value: bytes) -> dict[str, Any] | None:
    """The envelope alone, without decoding what follows it; None if the value is no event that can be read here."""
    if value[:2] != MARKER:
        return None
    writer = schemas.by_frame(value[2:FRAME_BYTES])
    if writer is None or not writer.is_event:
        return None
    try:
        meta: dict[str, Any] = _read(BytesIO(value[FRAME_BYTES:]), writer.raw_meta, None)["meta"]
    except Exception:
        return None
    return meta


def encode(writer: WriterSchema, record: Mapping[str, Any]) -> bytes:
    """The Avro body of a record that ``check`` has let pass; the same record gives the same bytes."""
    stream = BytesIO()
    _write(stream, writer.raw, record, strict=True)
    return stream.getvalue()


def frame(writer: WriterSchema, body: bytes) -> bytes:
    """The value of a Kafka record: single-object encoding."""
    return writer.prefix + body


def event_hash(writer: WriterSchema, body: bytes) -> bytes:
    """SHA-256 over the schema hash and the body: the identity of an event."""
    return sha256(writer.schema_hash + body).digest()


# --- records of the other topics --------------------------------------------------------------------------------------


@cache
def _shipped() -> SchemaSet:
    return SchemaSet.load()


def encode_record(name: str | WriterSchema, record: Mapping[str, Any]) -> bytes:
    """Check and frame a record of another topic, or a row. ``name`` is short ("Snapshot"), full, or a schema.

    Raises SchemaUnknown, or InvalidEvent naming the field.
    """
    writer = name if isinstance(name, WriterSchema) else _shipped().named(name)
    return frame(writer, encode(writer, check(writer, record)))


def decode_record(value: bytes, schemas: SchemaSet | None = None) -> tuple[str, dict[str, Any]]:
    """A framed record as (short name, raw values), in the newest shape that this build knows. Raises RecordDamaged."""
    known = schemas or _shipped()
    writer, body = unframe(known, value)
    newest = known.newest(writer)
    reader = newest.raw if newest is not None and newest is not writer else None
    try:
        record = _exactly(writer.raw, reader, body)
    except Exception as error:
        raise RecordDamaged(
            f"a record of {writer.name} does not decode: {type(error).__name__}: {error}",
            wanted="one Avro record and nothing behind it",
            todo="look at who wrote it; the record is not used",
            schema=writer.name,
        ) from error
    return writer.name.rpartition(".")[2], record


def unframe(schemas: SchemaSet, value: bytes) -> tuple[WriterSchema, bytes]:
    """The writer schema and the body of a framed value. Raises RecordDamaged."""
    writer = schemas.by_frame(value[2:FRAME_BYTES]) if value[:2] == MARKER else None
    if writer is None:
        raise RecordDamaged(
            f"a value of {len(value)} bytes begins with {value[:FRAME_BYTES].hex() or 'nothing'}",
            wanted="C3 01 and the fingerprint of a schema that is known here",
            todo="read the schema topic, or look at who wrote it",
        )
    return writer, value[FRAME_BYTES:]

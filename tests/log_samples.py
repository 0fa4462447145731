"""Small events and test-only schemas for the tests of the codec."""

from __future__ import annotations

import copy
from typing import Any

from dalsegno.log.codec import check, encode, event_hash, frame
from dalsegno.log.schema_set import SchemaSet, WriterSchema, shared_types
from dalsegno.model.ids import EventKey, Seq, partition_of

PARTITIONS = 16


def meta(session_id: str = "s-1", seq: int = 1, prev_hash: bytes | None = None, **other: Any) -> dict[str, Any]:
    return {
        "session_id": session_id,
        "seq": seq,
        "epoch": 0,
        "prev_hash": prev_hash,
        "recorded_at": 1_767_225_600_000_000 + seq,
        "event_id": "0198c7a2-7f7a-7f0e-8f5b-4b0b7b9a0a11",
        "actor_kind": "AGENT",
        "actor_id": "a",
        "writer": "test/1/0",
        **other,
    }


def pack(writer: WriterSchema, record: dict[str, Any]) -> tuple[bytes, bytes]:
    """The (key, value) of an event."""
    body = encode(writer, check(writer, record))
    place = record["meta"]
    key = EventKey(place["session_id"], Seq(place["seq"]), event_hash(writer, body))
    return key.encode(), frame(writer, body)


def rekeyed(writer: WriterSchema, session_id: str, seq: int, body: bytes) -> tuple[bytes, bytes]:
    """A (key, value) whose key follows from bytes that need not decode."""
    return EventKey(session_id, Seq(seq), event_hash(writer, body)).encode(), frame(writer, body)


def home(session_id: str) -> int:
    return partition_of(session_id, PARTITIONS)


def chain(schemas: SchemaSet, session_id: str, count: int) -> list[tuple[bytes, bytes]]:
    """A session's first ``count`` records, linked."""
    out: list[tuple[bytes, bytes]] = []
    prev: bytes | None = None
    for seq in range(1, count + 1):
        name = "SessionCreated" if seq == 1 else "MessageReceived"
        fields: dict[str, Any] = {"profile": "OBSERVED", "workflow_name": "w"}
        if seq > 1:
            fields = {"message_id": f"m{seq}", "role": "USER", "parts": [{"kind": "TEXT", "text": f"text {seq}"}]}
        key, value = pack(schemas.event(name), {"meta": meta(session_id, seq, prev), **fields})
        prev = bytes.fromhex(key.decode().rpartition(":")[2])
        out.append((key, value))
    return out


def toy(version: int = 1, *fields: Any, name: str = "Toy") -> dict[str, Any]:
    """A closed schema of a test-only event type, ``fields`` behind meta."""
    meta_schema = copy.deepcopy(shared_types()["dalsegno.event.v1.Meta"])
    return {
        "type": "record",
        "name": name,
        "namespace": f"dalsegno.event.v{version}",
        "class": "X",
        "fields": [{"name": "meta", "type": meta_schema}, *fields],
    }


def writer_of(schema: dict[str, Any]) -> WriterSchema:
    from dalsegno.log.schema_set import closed

    return WriterSchema(closed(schema, shared_types()))


def knowing(*schemas: dict[str, Any]) -> SchemaSet:
    """A process whose build ships these test-only schemas and no others."""
    known = SchemaSet()
    for schema in schemas:
        known.ship(writer_of(schema))
    return known

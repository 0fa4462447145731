"""Imported sessions as the records that will stand in the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from dalsegno.errors import InvalidEvent
from dalsegno.importers.base import ImportedSession
from dalsegno.log.codec import check, encode, event_hash, frame
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.events import NewEvent, SessionCreated, SessionForked, to_record
from dalsegno.model.ids import EventKey, Seq


class ChainedRecord(NamedTuple):
    """One record to append: its place, its identity, its bytes, and where in the recording it comes from."""

    key: EventKey
    value: bytes
    type: str
    native_ref: str


def chained(session: ImportedSession, schemas: SchemaSet) -> list[ChainedRecord]:
    """Number, link and encode a session's events. Raises InvalidEvent, naming session, event and field."""
    ancestors = [session]
    while (parent := ancestors[-1].parent) is not None:
        ancestors.append(parent)
    records: list[ChainedRecord] = []
    for each in reversed(ancestors):
        records = _chained(each, schemas, records)
    return records


def _chained(session: ImportedSession, schemas: SchemaSet, parent: Sequence[ChainedRecord]) -> list[ChainedRecord]:
    records: list[ChainedRecord] = []
    prev_hash: bytes | None = None
    for seq, (event, parts, native_ref) in enumerate(session.events, start=1):
        if session.parent is not None:
            event = _with_hash_of(parent, event)
        writer = schemas.event(event.TYPE)
        meta = {"session_id": session.session_id, "seq": seq, "prev_hash": prev_hash, **parts}
        try:
            body = encode(writer, check(writer, {"meta": meta, **to_record(event)}))
        except InvalidEvent as error:
            error.found = (
                f"{session.session_id} seq {seq} ({event.TYPE} from {native_ref or 'the file'}): {error.found}"
            )
            raise
        prev_hash = event_hash(writer, body)
        key = EventKey(session.session_id, Seq(seq), prev_hash)
        records.append(ChainedRecord(key, frame(writer, body), event.TYPE, native_ref))
    return records


def _with_hash_of(parent: Sequence[ChainedRecord], event: NewEvent) -> NewEvent:
    """The event with the hash of the parent's event that it names, which only the encoded parent knows."""
    if not isinstance(event, SessionCreated | SessionForked) or event.parent_at is None:
        return event
    at = msgspec.structs.replace(event.parent_at, hash=parent[event.parent_at.seq - 1].key.hash)
    return msgspec.structs.replace(event, parent_at=at)

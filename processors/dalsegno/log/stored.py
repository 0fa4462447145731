"""What may be sent as it is: the bytes of an event under its own key, or its tombstone, within the limit."""

from __future__ import annotations

from dalsegno.errors import EventTooLarge, InvalidEvent
from dalsegno.log.codec import place
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.ids import EventKey, parse_key
from dalsegno.model.records import AMENDMENT_TYPE, CONTROL_SEQ, Event, SetAside, Tombstone, Unreadable

# The client cuts batches at 1,000,000 bytes, below the topic's 1 MiB; a record needs room beside its value for the key
# (at most 285 bytes), the headers and the framing of the batch.
VALUE_MAX_BYTES = 1_000_000 - 1_024


def check_stored(schemas: SchemaSet, key: EventKey | bytes | None, value: bytes | None) -> EventKey:
    """Refuse, before anything leaves the process, what the broker or a reader would refuse for good."""
    raw = key.encode() if isinstance(key, EventKey) else key
    parsed = parse_key(raw) if raw is not None else None
    if parsed is None:
        raise InvalidEvent(
            "a record without a key" if raw is None else f"the key {raw[:80]!r}",
            wanted="<session id>:<seq>:<hash in hex>",
            todo="send the record under the key of its event; nothing was sent",
            field="key",
        )
    if value is not None and len(value) > VALUE_MAX_BYTES:
        raise too_large("value", len(value))
    found = place(schemas, raw, value, 0, 1)
    if parsed.seq == CONTROL_SEQ and not (isinstance(found, Event) and found.type == AMENDMENT_TYPE):
        raise InvalidEvent(
            f"{'a tombstone' if value is None else 'a record that is no amendment'} under the key {raw!r}",
            wanted=f"a {AMENDMENT_TYPE}: nothing else stands at seq {CONTROL_SEQ}, and none is ever taken back",
            todo="amend again if an amendment was wrong; nothing was sent",
            field="key" if value is None else "value",
        )
    if isinstance(found, SetAside | Unreadable):
        raise InvalidEvent(
            f"the value of {raw!r} is no event that this build can read: {found.reason}",
            wanted="the bytes of the event that the key names",
            todo="send stored bytes under their own key; nothing was sent",
            field="value",
            reason=found.reason,
        )
    assert isinstance(found, Tombstone) or value is not None
    return parsed


def too_large(field: str, size: int) -> EventTooLarge:
    return EventTooLarge(
        f"the event has {size} bytes, most of them in {field}",
        wanted=f"at most {VALUE_MAX_BYTES} bytes",
        todo="put large contents into blobs, and give the publisher a store for them; nothing was sent",
        field=field,
        size=size,
    )

"""Contents of imported events: blobs, digests, texts, times, always the same for the same input. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from typing import Any

from dalsegno.model.events import Blob
from dalsegno.storage.blobs import INLINE_MAX_BYTES, SCHEME

EVENT_MAX_BYTES = 524_288
"""What the contents of one event take up at most together, so that its record stays below the broker's 1 MiB."""

JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain; charset=utf-8"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def json_bytes(value: Any) -> bytes:
    """Compact JSON in the order of the source. Lone surrogates, which UTF-8 cannot hold, are written as escapes."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def clean_text(text: str) -> str:
    """The text with lone surrogates replaced by U+FFFD, since Avro strings are UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def text_bytes(text: str) -> bytes:
    return clean_text(text).encode("utf-8")


def digest_of(data: bytes) -> bytes:
    return sha256(data).digest()


def blob_uri(digest: bytes) -> str:
    """The name of a content that does not stand in the event: its digest, which says nothing of where it lies."""
    return SCHEME + digest.hex()


def digest_json(value: Any) -> bytes:
    return sha256(json_bytes(value)).digest()


class BlobMaker:
    """Makes blobs and keeps the contents that are too large to stand in an event."""

    def __init__(self, uri_of: Callable[[bytes], str]) -> None:
        self._uri_of = uri_of
        self._left = EVENT_MAX_BYTES
        self.outside: dict[str, bytes] = {}

    def next_event(self) -> None:
        """What was made since the last call stands in one event; what is made from now on, in the next one."""
        self._left = EVENT_MAX_BYTES

    def takes(self, size: int) -> bool:
        """Whether a content of that size still fits into the event; if so it is counted."""
        if size > min(INLINE_MAX_BYTES, self._left):
            return False
        self._left -= size
        return True

    def of_bytes(self, data: bytes, media_type: str) -> Blob:
        digest = sha256(data).digest()
        if self.takes(len(data)):
            return Blob(digest=digest, size=len(data), media_type=media_type, inline=data)
        uri = self._uri_of(digest)
        self.outside[uri] = data
        return Blob(digest=digest, size=len(data), media_type=media_type, uri=uri)

    def of_json(self, value: Any) -> Blob:
        return self.of_bytes(json_bytes(value), JSON_TYPE)

    def of_text(self, text: str) -> Blob:
        return self.of_bytes(text_bytes(text), TEXT_TYPE)

    def of_value(self, value: Any) -> Blob:
        """A text as text, anything else as JSON."""
        return self.of_text(value) if isinstance(value, str) else self.of_json(value)


def parse_time(value: Any) -> tuple[int | None, bool]:
    """(microseconds since 1970 UTC, or None where there is no readable time; whether the zone was missing).

    A time without a zone is taken as UTC. Numbers are seconds since 1970.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _seconds_to_micros(value), False
    if not isinstance(value, str):
        return None, False
    try:
        moment = datetime.fromisoformat(value)
        naive = moment.tzinfo is None
        delta = (moment.replace(tzinfo=UTC) if naive else moment) - _EPOCH
    except (ValueError, OverflowError):
        return None, False
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds, naive


def _seconds_to_micros(value: int | float) -> int | None:
    number = Decimal(repr(value))
    return int((number * 1_000_000).to_integral_value()) if number.is_finite() and abs(number) < 10**12 else None


def decimal_text(value: int | float) -> str | None:
    """A number as a plain decimal string; None for what is no number (NaN, infinities)."""
    number = Decimal(repr(value))
    return format(number, "f") if number.is_finite() else None

"""Contents of imported events: blobs, digests, texts, times, always the same for the same input. Pure."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from typing import Any

from dalsegno.model.events import Blob, ErrorInfo, Part
from dalsegno.model.payloads import PartKind
from dalsegno.storage.blobs import INLINE_MAX_BYTES, SCHEME

EVENT_MAX_BYTES = 524_288
"""What the contents of one event take up at most together, so that its record stays below the broker's 1 MiB."""

PART_MAX_BYTES = 32_768
"""A longer text of a message stands in a blob."""

MESSAGE_MAX_CHARACTERS = 8192
"""Longest message of an error or a limit; a traceback has its own place."""

TEXT_KINDS = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})
"""What providers call the items of a content that are texts."""
_MEDIA = ("image", "audio", "video", "document")

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


def short_text(value: Any, limit: int = 1024) -> str:
    """A name or the like as text, cut where it is so long that it is none; None is empty."""
    return clean_text("" if value is None else str(value))[:limit]


def content_text(content: Any) -> str:
    """The text of a message's content, which may be a list of texts and other things."""
    items = content if isinstance(content, list) else [{"text": content}]
    texts = [item.get("text") for item in items if isinstance(item, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


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

    def __init__(self) -> None:
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
        uri = blob_uri(digest)
        self.outside[uri] = data
        return Blob(digest=digest, size=len(data), media_type=media_type, uri=uri)

    def of_json(self, value: Any) -> Blob:
        return self.of_bytes(json_bytes(value), JSON_TYPE)

    def of_text(self, text: str) -> Blob:
        return self.of_bytes(text_bytes(text), TEXT_TYPE)

    def of_value(self, value: Any) -> Blob:
        """A text as text, anything else as JSON."""
        return self.of_text(value) if isinstance(value, str) else self.of_json(value)

    def part(self, text: str, kind: PartKind = "TEXT", *, name: str | None = None, call_id: str | None = None) -> Part:
        """A text as a part of a message; a long one stands in a blob."""
        size = len(text_bytes(text))
        if size > PART_MAX_BYTES or not self.takes(size):
            return Part(kind=kind, name=name, call_id=call_id, blob=self.of_text(text))
        return Part(kind=kind, name=name, call_id=call_id, text=clean_text(text))

    def parts(self, content: Any) -> list[Part]:
        """The content of a message: a text, or a list of texts and other things, as providers write it."""
        items = content if isinstance(content, list) else [content]
        return [part for item in items if item not in (None, "") for part in self._item(item)]

    def _item(self, item: Any) -> list[Part]:
        """A text as text, and what else is said of it behind it; anything else whole."""
        if isinstance(item, str):
            return [self.part(item)]
        kind = short_text(item.get("type")) if isinstance(item, dict) else ""
        if kind in TEXT_KINDS and isinstance(item.get("text"), str):
            rest = {name: value for name, value in item.items() if name not in ("type", "text") and value}
            more = [Part(kind="OTHER", name=kind, blob=self.of_json(rest))] if rest else []
            return [self.part(item["text"]), *more]
        media = any(word in kind for word in _MEDIA)
        return [Part(kind="MEDIA" if media else "OTHER", name=kind or None, blob=self.of_json(item))]

    def error(self, error_class: Any, message: Any, detail: Any = None) -> ErrorInfo:
        """``detail``, which is kept whole, holds what else is said (a traceback), and a message that is too long."""
        text = short_text(message, MESSAGE_MAX_CHARACTERS)
        if len(str(message)) > MESSAGE_MAX_CHARACTERS:
            detail = {"message": message, "detail": detail} if detail else message
        blob = self.of_value(detail) if detail else None
        return ErrorInfo(error_class=short_text(error_class), message=text, detail=blob)


def parse_time(value: Any) -> tuple[int | None, bool]:
    """(microseconds since 1970 UTC, or None where there is no readable time; whether the zone was missing).

    A time without a zone is taken as UTC. Numbers are seconds since 1970.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return micros(value), False
    if not isinstance(value, str):
        return None, False
    try:
        moment = datetime.fromisoformat(value)
        naive = moment.tzinfo is None
        delta = (moment.replace(tzinfo=UTC) if naive else moment) - _EPOCH
    except (ValueError, OverflowError):
        return None, False
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds, naive


def count(value: Any) -> int | None:
    """A number of tokens or the like, as the recording has it; None for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def exit_code(value: Any) -> int | None:
    """That of a command; None for what is none."""
    return count(value) if -(2**31) <= (count(value) or 0) < 2**31 else None


def micros(value: Any) -> int | None:
    """Dollars or seconds in millionths."""
    return _scaled(value, 1_000_000)


def milliseconds(seconds: Any) -> int | None:
    return _scaled(seconds, 1_000)


def _scaled(value: Any, factor: int) -> int | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    number = Decimal(repr(value))
    return int((number * factor).to_integral_value()) if number.is_finite() and abs(number) < 10**12 else None


def decimal_text(value: int | float) -> str | None:
    """A number as a plain decimal string; None for what is no number (NaN, infinities)."""
    number = Decimal(repr(value))
    return format(number, "f") if number.is_finite() else None

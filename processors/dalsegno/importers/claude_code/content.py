"""The blocks of messages as parts, calls and results. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

from dalsegno.importers.payload import BlobMaker, count, short_text
from dalsegno.importers.wanted import Wanted, call_part, wanted_call
from dalsegno.model.events import Part, Usage

COPY_MIN_CHARACTERS = 200
"""A text shorter than this is no copy worth leaving out."""


def parts_of(blocks: Iterable[dict[str, Any]], blobs: BlobMaker) -> list[Part]:
    return [part for block in blocks for part in _block(block, blobs)]


def _block(block: dict[str, Any], blobs: BlobMaker) -> list[Part]:
    """A picture is its bytes; what has no form of its own here is kept as that of any provider."""
    kind = short_text(block.get("type"))
    if kind == "thinking" and isinstance(block.get("thinking"), str):
        return [blobs.part(block["thinking"], "REASONING")]
    if kind == "tool_use":
        return [call_part(wanted_of(block), blobs)]
    given = block.get("source")
    source: dict[str, Any] = given if kind in ("image", "document") and isinstance(given, dict) else {}
    data = _decoded(source.get("data")) if source.get("type") == "base64" else None
    if data is None:
        return blobs.parts([block])
    media_type = short_text(source.get("media_type") or "application/octet-stream")
    return [Part(kind="MEDIA", name=kind, blob=blobs.of_bytes(data, media_type))]


def wanted_of(block: dict[str, Any]) -> Wanted:
    return wanted_call(block.get("id"), block.get("name"), block.get("input"))


def usage_of(message: dict[str, Any]) -> Usage:
    given = message.get("usage")
    usage: dict[str, Any] = given if isinstance(given, dict) else {}
    return Usage(
        input=count(usage.get("input_tokens")),
        output=count(usage.get("output_tokens")),
        cache_read=count(usage.get("cache_read_input_tokens")),
        cache_creation=count(usage.get("cache_creation_input_tokens")),
    )


def without_copies(value: Any, *originals: tuple[str, Any]) -> Any:
    """The value with every longer text that one of the originals holds too replaced by ``{"copy_of": <its name>}``."""
    where: dict[str, str] = {}
    for name, original in originals:
        for text in texts_in(original):
            if len(text) >= COPY_MIN_CHARACTERS:
                where.setdefault(text, name)
    return _cut(value, where)


def _cut(value: Any, where: dict[str, str]) -> Any:
    if isinstance(value, str):
        return {"copy_of": where[value]} if value in where else value
    if isinstance(value, list):
        return [_cut(item, where) for item in value]
    if isinstance(value, dict):
        return {name: _cut(item, where) for name, item in value.items()}
    return value


def texts_in(value: Any) -> Iterable[str]:
    """Every text in a value, names left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts_in(item)


def _decoded(data: Any) -> bytes | None:
    if not isinstance(data, str):
        return None
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None

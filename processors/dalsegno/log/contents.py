"""Contents that are too large for an event: out of its record, into the store, named by digest.

A producer gives a content inline, whatever its size (``dalsegno.blob``); what is above the limit stands in the store by
the time its event is sent.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from dalsegno.log.encode import refuse
from dalsegno.model.events import Blob
from dalsegno.storage.blobs import INLINE_MAX_BYTES, SCHEME, Blobs

_FIELDS = frozenset(Blob.__struct_fields__)


def move_out(value: Any, large: list[dict[str, Any]], path: str = "") -> Any:
    """``value`` with its large contents named by digest; ``large`` gets the blobs as they were. Raises InvalidEvent
    for one whose digest or size is another than its content's."""
    if isinstance(value, dict) and value.keys() == _FIELDS:
        return _move_out(value, large, path)
    if isinstance(value, dict):
        prefix = f"{path}." if path else ""
        return {name: move_out(each, large, prefix + name) for name, each in value.items()}
    if isinstance(value, list):
        return [move_out(each, large, f"{path}[{index}]") for index, each in enumerate(value)]
    return value


def _move_out(blob: dict[str, Any], large: list[dict[str, Any]], path: str) -> dict[str, Any]:
    content = blob["inline"]
    if not isinstance(content, bytes | bytearray | memoryview) or len(content) <= INLINE_MAX_BYTES:
        return blob
    digest = sha256(content)
    if (blob["digest"], blob["size"]) != (digest.digest(), len(content)):
        refuse(path, "a blob with another digest or size than its content's", "those of the content: blob(content)")
    large.append(blob)
    return {**blob, "inline": None, "uri": SCHEME + digest.hexdigest()}


def put_away(blobs: Blobs | None, large: list[dict[str, Any]]) -> None:
    for blob in large:
        assert blobs is not None, "only what has a store is moved out"
        blobs.put(blob["inline"], blob["media_type"])

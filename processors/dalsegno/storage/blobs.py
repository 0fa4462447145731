"""Contents of events: small ones stand in the event, large ones in a content-addressed store, named by digest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from dalsegno.errors import BlobDamaged, BlobMissing, EventTooLarge, InvalidEvent
from dalsegno.model.events import Blob
from dalsegno.storage.object_store import Store

INLINE_MAX_BYTES = 65_536
"""Contents above this do not stand in an event."""
SCHEME = "blob:"
DEFAULT_MEDIA_TYPE = "application/octet-stream"


def blob(content: Any, media_type: str | None = None) -> Blob:
    """A blob that holds its content, whatever its size: text, bytes, or anything that JSON can say.

    Text becomes UTF-8; bytes are kept as they are; the rest is written as JSON with sorted keys. What came from outside
    as text or bytes is given as that, since its digest is over the bytes received. A session puts what is too large for
    an event into its publisher's store. Raises InvalidEvent for what is none of these.
    """
    if not isinstance(content, str | bytes | bytearray | memoryview):
        content, media_type = _as_json(content), media_type or "application/json"
    data, kind = _as_bytes(content, media_type)
    return Blob(digest=sha256(data).digest(), size=len(data), media_type=kind, inline=data)


def inline_blob(content: bytes | str, media_type: str | None = None) -> Blob:
    """A blob that stands in the event itself. Text becomes UTF-8. Raises EventTooLarge above 64 KiB, and
    InvalidEvent for what is neither text nor bytes."""
    data, kind = _as_bytes(content, media_type)
    if len(data) > INLINE_MAX_BYTES:
        raise EventTooLarge(
            f"a content of {len(data)} bytes",
            wanted=f"at most {INLINE_MAX_BYTES} bytes in an event",
            todo="use blob(content), and give the publisher a store: Publisher(..., blobs=Blobs(store))",
            field="inline",
            size=len(data),
        )
    return Blob(digest=sha256(data).digest(), size=len(data), media_type=kind, inline=data)


class Blobs:
    """Puts contents and gets them back, each checked against its digest."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, content: bytes | str, media_type: str | None = None) -> Blob:
        """A blob with this content: inline up to 64 KiB, else stored once under its digest, before this returns."""
        data, kind = _as_bytes(content, media_type)
        if len(data) <= INLINE_MAX_BYTES:
            return inline_blob(data, kind)
        digest = sha256(data)
        self._store.put_if_absent(blob_key(digest.hexdigest()), data)
        return Blob(digest=digest.digest(), size=len(data), media_type=kind, uri=SCHEME + digest.hexdigest())

    def get(self, blob: Blob | Mapping[str, Any]) -> bytes:
        """The content of a blob, as written or as decoded from an event. Raises BlobMissing, BlobDamaged."""
        fields = {f: getattr(blob, f) for f in blob.__struct_fields__} if isinstance(blob, Blob) else blob
        digest, uri, content = fields["digest"], fields["uri"], fields["inline"]
        if content is None:
            content = self._fetch(digest, uri)
        if sha256(content).digest() != digest:
            raise BlobDamaged(
                f"a content of {len(content)} bytes does not have the digest {digest.hex()}",
                wanted="the bytes that the event names",
                todo="put the right content into the store again",
                digest=digest.hex(),
            )
        return bytes(content)

    def _fetch(self, digest: bytes, uri: str | None) -> bytes:
        named = uri.removeprefix(SCHEME) if uri is not None and uri.startswith(SCHEME) else None
        content = self._store.read(blob_key(digest.hex())) if named == digest.hex() else None
        if content is None:
            raise BlobMissing(
                f"the content {uri or digest.hex()} is not in the store",
                wanted=f"an object {blob_key(digest.hex())}",
                todo="look whether it was erased, or name the store that holds it",
                digest=digest.hex(),
            )
        return content


def _as_json(content: Any) -> str:
    try:
        _check_keys(content)
        return json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEvent(
            f"a content that JSON cannot say: {error}",
            wanted="text, bytes, or lists and dicts of text, finite numbers, booleans and None",
            todo="write it as text yourself, and give that",
        ) from error


def _check_keys(content: Any) -> None:
    """json.dumps would write a key 1 as "1", and two keys as one."""
    if isinstance(content, dict):
        for key, value in content.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is no text")
            _check_keys(value)
    elif isinstance(content, list | tuple):
        for value in content:
            _check_keys(value)


def blob_key(digest_hex: str) -> str:
    """Where a content lies in the store: spread over 256 folders."""
    return f"blobs/{digest_hex[:2]}/{digest_hex}"


def _as_bytes(content: bytes | str, media_type: str | None) -> tuple[bytes, str]:
    if isinstance(content, str):
        try:
            return content.encode("utf-8"), media_type or "text/plain; charset=utf-8"
        except UnicodeEncodeError as error:
            raise InvalidEvent(
                f"a content with a lone surrogate at character {error.start}",
                wanted="text that UTF-8 can hold, or bytes",
                todo="encode it yourself, and give the bytes",
            ) from error
    if not isinstance(content, bytes | bytearray | memoryview):
        raise InvalidEvent(
            f"a content of type {type(content).__name__}",
            wanted="text or bytes",
            todo="write it as text first, for example with json.dumps(content)",
        )
    return bytes(content), media_type or DEFAULT_MEDIA_TYPE

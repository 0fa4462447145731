"""The store that a setting names: a folder, or ``s3://bucket/prefix``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from dalsegno.errors import Usage
from dalsegno.storage.object_store import FolderStore, Store

S3 = "s3://"
_MASK = "********"
_USER = re.compile(r"://[^/@\s]*@")
_QUERY = re.compile(r"(://[^?\s]*\?)\S+")
_SECRETS = ("key", "token", "password", "secret")


def open_store(location: str | Path, options: Mapping[str, str] | None = None) -> Store:
    """The store at ``location``. ``options`` are those of S3: ``endpoint``, ``region``, ``access_key_id``,
    ``secret_access_key`` and the like; what is not given is taken from the environment (``AWS_*``), as every S3 client
    does. Raises Usage for another kind of place, and for options that it does not have."""
    text = str(location)
    _check(text)
    if text.startswith(S3):
        from dalsegno.storage.s3 import S3Store

        if masked_url(endpoint := (options or {}).get("endpoint", "")) != endpoint:
            raise _credentials(f"endpoint {masked_url(endpoint)!r}")
        return S3Store(text, options or {})
    if options:
        raise Usage(f"options for the store in folder {text}", wanted=f"a store at {S3}...", todo="drop them")
    return FolderStore(text)


def _check(text: str) -> None:
    if masked_url(text) != text:
        raise _credentials(f"store {masked_url(text)!r}")
    if text.startswith(S3) and ({"..", "."} & set(text.split("/")) or {"?", "#"} & set(text)):
        raise Usage(f"store {text.partition('?')[0]!r}", wanted=f"{S3}bucket/prefix", todo="correct DALSEGNO_STORE")
    if "://" in text and not text.startswith(S3):
        raise Usage(f"store {text!r}", wanted=f"a folder, or {S3}bucket/prefix", todo="correct DALSEGNO_STORE")
    if not text.removeprefix(S3).strip("/") and text.startswith(S3):
        raise Usage(f"store {text!r} names no bucket", wanted=f"{S3}bucket/prefix", todo="correct DALSEGNO_STORE")


def masked(options: Mapping[str, str]) -> dict[str, str]:
    """Options for people: without secrets."""
    return {
        name: _MASK if any(word in name.lower() for word in _SECRETS) else masked_url(value)
        for name, value in options.items()
    }


def masked_url(text: str) -> str:
    """A URL, or a text with URLs, without user, password and query."""
    return _QUERY.sub(rf"\1{_MASK}", _USER.sub(rf"://{_MASK}@", text))


def _credentials(found: str) -> Usage:
    return Usage(
        f"{found} holds credentials, which would stand in every message",
        wanted="access_key_id and secret_access_key",
        todo="put them into DALSEGNO_STORE_OPTIONS, or into AWS_*",
    )

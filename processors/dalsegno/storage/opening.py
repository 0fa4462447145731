"""The store that a setting names: a folder, or ``s3://bucket/prefix``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dalsegno.errors import Usage
from dalsegno.storage.object_store import FolderStore, Store

S3 = "s3://"
_MASK = "********"
_SECRETS = ("key", "token", "password", "secret")


def open_store(location: str | Path, options: Mapping[str, str] | None = None) -> Store:
    """The store at ``location``. ``options`` are those of S3: ``endpoint``, ``region``, ``access_key_id``,
    ``secret_access_key`` and the like; what is not given is taken from the environment (``AWS_*``), as every S3 client
    does. Raises Usage for another kind of place, and for options that it does not have."""
    text = str(location)
    _check(text)
    if text.startswith(S3):
        from dalsegno.storage.s3 import S3Store

        return S3Store(text, options or {})
    if options:
        raise Usage(f"options for the store in folder {text}", wanted=f"a store at {S3}...", todo="drop them")
    return FolderStore(text)


def _check(text: str) -> None:
    if "://" in text and not text.startswith(S3):
        raise Usage(f"store {text!r}", wanted=f"a folder, or {S3}bucket/prefix", todo="correct DALSEGNO_STORE")
    if not text.removeprefix(S3).strip("/") and text.startswith(S3):
        raise Usage(f"store {text!r} names no bucket", wanted=f"{S3}bucket/prefix", todo="correct DALSEGNO_STORE")


def masked(options: Mapping[str, str]) -> dict[str, str]:
    """Options for people: without secrets."""
    return {name: _MASK if any(word in name.lower() for word in _SECRETS) else value for name, value in options.items()}

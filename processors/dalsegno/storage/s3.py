"""A store in S3, or in whatever speaks its protocol, by ``obstore``.

A write is whole and durable when S3 has answered, and a conditional write (``If-None-Match``) lets one of two writers
win: both are S3's own promises, so nothing here needs a second step.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import from_url

from dalsegno.errors import DalsegnoError, NotPermitted, StoreUnavailable, Usage
from dalsegno.storage.files import sync_file
from dalsegno.storage.object_store import Stored, check_key, os_errors

# One request, and all tries of it together: a store that is away for longer is an error, and the caller tries again.
_REQUEST_SECONDS = 30
_RETRY_SECONDS = 60
_RETRIES = 5
_CHUNK_BYTES = 1 << 20
_NO_BUCKET = "NoSuchBucket"
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


class S3Store:
    """The objects below ``s3://bucket/prefix``. Several processes and machines may share it."""

    def __init__(self, location: str, options: Mapping[str, str]) -> None:
        self.location = location
        self._looked = False
        client: dict[str, Any] = {"timeout": timedelta(seconds=_REQUEST_SECONDS), "allow_http": _is_plain_http(options)}
        retry: dict[str, Any] = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)}
        try:
            self._objects = from_url(
                location,
                config=dict(options),
                client_options=client,
                retry_config=retry,  # type: ignore[call-overload]
            )
        except UnknownConfigurationKeyError as error:
            raise Usage(
                f"options for the store {location}: {_first_line(error)}",
                wanted="endpoint, region, access_key_id, secret_access_key and other options of S3",
                todo="correct DALSEGNO_STORE_OPTIONS",
            ) from None  # its cause may show a secret
        except (BaseError, ValueError, TypeError) as error:
            raise Usage(f"store {location}: {_first_line(error)}", todo="correct DALSEGNO_STORE") from None

    def put_if_absent(self, key: str, source: Path | bytes) -> bool:
        with os_errors(f"write {key}"), self._errors(f"write {key}"):
            try:
                obstore.put(self._at(key), key, source, mode="create")
            except AlreadyExistsError:
                return False
        return True

    def put(self, key: str, source: Path | bytes) -> None:
        with os_errors(f"write {key}"), self._errors(f"write {key}"):
            obstore.put(self._at(key), key, source)

    def read(self, key: str) -> bytes | None:
        with self._errors(f"read {key}"):
            try:
                return bytes(obstore.get(self._at(key), key).bytes())
            except FileNotFoundError as error:
                self._refuse_missing_bucket(error)
                return None

    def download(self, key: str, target: Path) -> bool:
        with self._errors(f"read {key}"):
            try:
                found = obstore.get(self._at(key), key)
            except FileNotFoundError as error:
                self._refuse_missing_bucket(error)
                return False
            with os_errors(f"read {key}"):
                try:
                    with target.open("wb") as file:
                        for chunk in found.stream(min_chunk_size=_CHUNK_BYTES):
                            file.write(chunk)
                    sync_file(target)
                except BaseException:
                    target.unlink(missing_ok=True)
                    raise
        return True

    def info(self, key: str) -> Stored | None:
        with self._errors(f"look at {key}"):
            try:
                return _stored(obstore.head(self._at(key), key))
            except FileNotFoundError:
                return None

    def list(self, prefix: str = "") -> Iterator[Stored]:
        folder = prefix.rpartition("/")[0]
        with self._errors(f"list {prefix or self.location}"):
            # S3 gives them in the order of their bytes, which is the order of the keys.
            for part in obstore.list(self._objects, prefix=folder or None):
                yield from (_stored(each) for each in part if each["path"].startswith(prefix))

    def delete(self, key: str) -> None:
        with self._errors(f"delete {key}"):
            try:
                obstore.delete(self._at(key), key)
            except FileNotFoundError as error:
                self._refuse_missing_bucket(error)

    def _at(self, key: str) -> Any:
        """The bucket, once it was seen to be there: a missing one must not look like a missing object."""
        check_key(key)
        if not self._looked:
            next(iter(obstore.list(self._objects, prefix=key, chunk_size=1)), None)
            self._looked = True
        return self._objects

    def _refuse_missing_bucket(self, error: FileNotFoundError) -> None:
        if _NO_BUCKET in str(error):
            raise self._no_bucket() from error

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise NotPermitted(
                f"could not {doing} in {self.location}: {_first_line(error)}",
                wanted="credentials with the rights to list, read, write and delete there",
                todo="check DALSEGNO_STORE_OPTIONS or AWS_*; nothing was changed",
                path=self.location,
            ) from error
        except (BaseError, FileNotFoundError) as error:
            if _NO_BUCKET in str(error):
                raise self._no_bucket() from error
            raise self._unavailable(doing, error) from error

    def _no_bucket(self) -> DalsegnoError:
        return StoreUnavailable(
            f"there is no bucket of {self.location}",
            wanted="a bucket that exists",
            todo="make it, or correct DALSEGNO_STORE",
            path=self.location,
        )

    def _unavailable(self, doing: str, error: Exception) -> DalsegnoError:
        return StoreUnavailable(
            f"could not {doing} in {self.location}: {_first_line(error)}",
            wanted="an answer of the store",
            todo="check that it is up and that DALSEGNO_STORE_OPTIONS name it; then try again",
            path=self.location,
        )


def _is_plain_http(options: Mapping[str, str]) -> bool:
    """Whoever names an endpoint by plain HTTP wants it; where we name limits, the client does not look by itself."""
    named = [value for name, value in options.items() if "endpoint" in name.lower()]
    return any(each.startswith("http://") for each in named or map(os.environ.get, _ENDPOINTS) if each)


def _stored(meta: Any) -> Stored:
    return Stored(meta["path"], meta["size"], meta["last_modified"].timestamp())


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]

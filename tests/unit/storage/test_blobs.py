"""Contents: inline or by reference, and never other bytes than were put."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from dalsegno.errors import BlobDamaged, BlobMissing, EventTooLarge
from dalsegno.storage.blobs import INLINE_MAX_BYTES, Blobs, blob_key, inline_blob
from dalsegno.storage.object_store import FolderStore


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "store")


def test_a_content_up_to_the_limit_stands_in_the_event(store: FolderStore) -> None:
    content = bytes(INLINE_MAX_BYTES)
    blob = Blobs(store).put(content)
    assert (blob.inline, blob.uri, blob.size) == (content, None, INLINE_MAX_BYTES)
    assert list(store.list()) == []


def test_a_larger_content_is_stored_once_under_its_digest(store: FolderStore) -> None:
    content = bytes(INLINE_MAX_BYTES + 1)
    blobs = Blobs(store)
    blob = blobs.put(content, "image/png")
    assert blobs.put(content, "image/png") == blob
    digest = sha256(content).hexdigest()
    assert (blob.inline, blob.uri, blob.digest.hex(), blob.media_type) == (None, f"blob:{digest}", digest, "image/png")
    assert [s.key for s in store.list()] == [blob_key(digest)]
    assert blobs.get(blob) == content
    # As an event gives it back.
    assert blobs.get({"digest": blob.digest, "size": blob.size, "uri": blob.uri, "inline": None}) == content


def test_threads_that_store_one_content_at_once_all_succeed(store: FolderStore) -> None:
    contents = [bytes([number]) * 100_000 for number in range(3)]
    blobs = Blobs(store)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(blobs.put, contents * 40))
    assert {blobs.get(each) for each in found} == set(contents)
    assert len(list(store.list())) == len(contents)


def test_bytes_that_do_not_have_the_digest_are_never_given(store: FolderStore) -> None:
    blobs = Blobs(store)
    blob = blobs.put(b"x" * 100_000)
    store.put(blob_key(blob.digest.hex()), b"y" * 100_000)
    with pytest.raises(BlobDamaged, match=blob.digest.hex()):
        blobs.get(blob)
    with pytest.raises(BlobDamaged):
        blobs.get({"digest": blob.digest, "uri": None, "inline": b"other"})


def test_a_content_that_is_gone_is_named(store: FolderStore) -> None:
    blobs = Blobs(store)
    blob = blobs.put(b"x" * 100_000)
    store.delete(blob_key(blob.digest.hex()))
    with pytest.raises(BlobMissing, match=blob.uri):
        blobs.get(blob)
    with pytest.raises(BlobMissing):  # an address that is not of our making is not followed
        blobs.get({"digest": blob.digest, "uri": "file:///etc/passwd", "inline": None})


def test_text_becomes_utf8_and_too_much_inline_is_refused() -> None:
    assert inline_blob("é").inline == b"\xc3\xa9"
    assert inline_blob("é").media_type == "text/plain; charset=utf-8"
    with pytest.raises(EventTooLarge):
        inline_blob(bytes(INLINE_MAX_BYTES + 1))

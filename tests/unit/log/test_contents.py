"""Contents of events: made of what a producer has, and stored by themselves where they are too large."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from dalsegno import Blobs, FolderStore, blob, events
from dalsegno.errors import InvalidEvent
from dalsegno.storage.blobs import INLINE_MAX_BYTES
from dalsegno.testing import MemoryPublisher, memory_publisher


def begin(publisher: MemoryPublisher) -> Any:
    session = publisher.session("s-1")
    session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
    return session


@pytest.mark.parametrize(
    ("content", "inline", "media_type"),
    [
        ("é", "é".encode(), "text/plain; charset=utf-8"),
        (b"\xff\x00", b"\xff\x00", "application/octet-stream"),
        (bytearray(b"a"), b"a", "application/octet-stream"),
        ({"b": [1, None, True], "a": "é"}, '{"a":"é","b":[1,null,true]}'.encode(), "application/json"),
        ((1, 2**70), b"[1,1180591620717411303424]", "application/json"),
        (None, b"null", "application/json"),
        (0.5, b"0.5", "application/json"),
    ],
)
def test_a_blob_of_what_a_producer_has(content: Any, inline: bytes, media_type: str) -> None:
    made = blob(content)
    assert (made.inline, made.media_type, made.size) == (inline, media_type, len(inline))
    assert made.digest == sha256(inline).digest()
    assert blob(content, "text/x").media_type == "text/x"


@pytest.mark.parametrize(
    "content",
    [
        {1: "a"},
        [{"a": {2: 1}}],
        float("nan"),
        {"a": datetime(2026, 1, 1, tzinfo=UTC)},
        object(),
        {"a": "\ud800"},
        {1, 2},
    ],
    ids=["a number as key", "deep", "no number", "a time", "an object", "half a pair", "a set"],
)
def test_what_json_cannot_say_is_refused(content: Any) -> None:
    with pytest.raises(InvalidEvent):
        blob(content)


def test_a_content_above_the_limit_is_stored_before_its_event(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    large, exact = blob("x" * (INLINE_MAX_BYTES + 1)), blob("y" * INLINE_MAX_BYTES)
    with memory_publisher(blobs=Blobs(store)) as publisher, begin(publisher) as session:
        session.append(
            events.MessageReceived(
                message_id="m", role="USER",
                parts=[events.Part(kind="OTHER", blob=large), events.Part(kind="OTHER", blob=exact)],
            )
        )  # fmt: skip
        session.append(events.NoteRecorded(kind="k", data=large))
        _, message, note = publisher.events("s-1")
    first, second = (part["blob"] for part in message.body["parts"])
    assert (first["inline"], first["uri"]) == (None, "blob:" + large.digest.hex())
    assert (first["digest"], first["size"], first["media_type"]) == (large.digest, large.size, large.media_type)
    assert (second["inline"], second["uri"]) == (exact.inline, None)
    assert note.body["data"] == first
    assert Blobs(store).get(first) == large.inline
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


def test_without_a_store_it_is_refused_and_the_store_is_named() -> None:
    with memory_publisher() as publisher, begin(publisher) as session:
        with pytest.raises(InvalidEvent, match="give the publisher a store") as caught:
            session.append(events.NoteRecorded(kind="k", data=blob("x" * 70_000)))
        assert caught.value.data["field"] == "data.inline"
        assert session.append(events.NoteRecorded(kind="k")).result(5).seq == 2


def test_a_large_content_with_a_wrong_digest_is_neither_stored_nor_sent(tmp_path: Path) -> None:
    wrong = events.Blob(digest=bytes(32), size=70_000, media_type="a", inline=bytes(70_000))
    with memory_publisher(blobs=Blobs(FolderStore(tmp_path))) as publisher, begin(publisher) as session:
        note = events.NoteRecorded(kind="k", data=wrong)
        with pytest.raises(InvalidEvent, match="another digest or size") as caught:
            session.append(note)
    assert caught.value.data["field"] == "data"
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_store_that_fails_leaves_the_session_as_it_was(tmp_path: Path) -> None:
    class Full(Blobs):
        def put(self, *_content: Any) -> events.Blob:
            raise OSError("full")

    with memory_publisher(blobs=Full(FolderStore(tmp_path))) as publisher, begin(publisher) as session:
        with pytest.raises(OSError, match="full"):
            session.append(events.NoteRecorded(kind="k", data=blob("x" * 70_000)))
        assert session.broken is None
        assert session.append(events.NoteRecorded(kind="k")).result(5).seq == 2

"""Contents of messages as parts: the same for every format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dalsegno.importers.payload import PART_MAX_BYTES, BlobMaker


def told(content: Any) -> list[tuple[str, str | None, Any]]:
    """(kind, name, text or what the blob holds as JSON) of each part."""
    return [
        (part.kind, part.name, part.text if part.blob is None else json.loads(part.blob.inline or b""))
        for part in BlobMaker().parts(content)
    ]


@pytest.mark.parametrize("nothing", [None, "", [], [None, ""]])
def test_nothing_has_no_parts(nothing: Any) -> None:
    assert told(nothing) == []


@pytest.mark.parametrize("kind", ["text", "input_text", "output_text", "summary_text", "reasoning_text"])
def test_a_text_is_a_text_however_it_is_wrapped(kind: str) -> None:
    plain = [("TEXT", None, "a")]
    assert told("a") == told(["a"]) == told([{"type": kind, "text": "a"}]) == plain
    assert told([{"type": kind, "text": "a", "annotations": [], "logprobs": None, "cache_prompt": False}]) == plain


def test_what_else_is_said_of_a_text_stands_behind_it() -> None:
    item = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    assert told([item]) == [("TEXT", None, "a"), ("OTHER", "text", {"cache_control": {"type": "ephemeral"}})]


@pytest.mark.parametrize(
    ("item", "kind", "name"),
    [
        ({"type": "image_url", "image_url": {"url": "u"}}, "MEDIA", "image_url"),
        ({"type": "input_audio", "data": "d"}, "MEDIA", "input_audio"),
        ({"type": "refusal", "refusal": "no"}, "OTHER", "refusal"),
        ({"type": "text", "text": 3}, "OTHER", "text"),
        ({"text": "of no type"}, "OTHER", None),
        (7, "OTHER", None),
    ],
)
def test_anything_else_stands_whole(item: Any, kind: str, name: str | None) -> None:
    assert told([item]) == [(kind, name, item)]


def test_a_long_text_stands_in_a_blob() -> None:
    long = "x" * (PART_MAX_BYTES + 1)
    (part,) = BlobMaker().parts(long)
    assert part.text is None
    assert part.blob is not None
    assert part.blob.inline == long.encode()

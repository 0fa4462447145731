"""What may be put into a blob, and what is said of anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dalsegno import Blobs, inline_blob
from dalsegno.errors import InvalidEvent
from dalsegno.storage.object_store import FolderStore


@pytest.mark.parametrize("content", [b"ab", bytearray(b"ab"), memoryview(b"ab"), "ab"])
def test_text_and_bytes_are_contents(content: Any) -> None:
    assert inline_blob(content).inline == b"ab"


@pytest.mark.parametrize("content", [{"a": 1}, {"x": float("nan")}, 1.5, 3, [1], None, "a\ud800"])
def test_anything_else_is_refused_before_anything_is_stored(content: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidEvent, match=r"a content (of type|with a lone surrogate)"):
        inline_blob(content)
    with pytest.raises(InvalidEvent, match=r"a content (of type|with a lone surrogate)"):
        Blobs(FolderStore(tmp_path)).put(content)
    assert list(tmp_path.rglob("*.*")) == []

"""What a stage may fetch: files below one folder and nothing beside it, texts in memory; and the clock."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from dalsegno.errors import Failed, Forbidden, NotFound
from dalsegno.harness.clock import SystemClock
from dalsegno.harness.retrieval import ByKind, FileRetriever, MemoryRetriever


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "allowed"
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "a.json").write_bytes(b"{}")
    (tmp_path / "allowed-not").mkdir()
    (tmp_path / "allowed-not" / "secret").write_bytes(b"secret")
    return root


def fetch(root: Path, query: Any, **settings: Any) -> tuple[bytes, str, str | None]:
    return FileRetriever(root, **settings).fetch("s", "plan.1/r.kb", "FILE", query)


def test_a_file_below_the_root_is_fetched_with_where_it_came_from(root: Path) -> None:
    wanted = (b"{}", "application/json", "file:docs/a.json")
    assert fetch(root, "docs/a.json") == wanted
    assert fetch(root, "docs/../docs/./a.json") == wanted
    assert fetch(root, str(root / "docs" / "a.json")) == wanted
    (root / "inside").symlink_to(root / "docs")
    assert fetch(root, "inside/a.json") == wanted
    (root / "notes").write_bytes(b"n")
    assert fetch(root, "notes") == (b"n", "text/plain", "file:notes")


def test_whatever_leads_out_of_the_root_is_refused(root: Path) -> None:
    (root / "link").symlink_to(root.parent / "allowed-not" / "secret")
    (root / "folder").symlink_to(root.parent)
    outside = (
        "../allowed-not/secret",
        "docs/../../allowed-not/secret",
        "/etc/passwd",
        "link",
        "folder/allowed-not/secret",
    )
    for query in (*outside, "..", str(root.parent / "allowed-not" / "secret")):
        with pytest.raises(Forbidden, match=r"plan\.1/r\.kb asks for .* outside of"):
            fetch(root, query)


def test_a_root_that_is_a_link_is_the_folder_it_leads_to(root: Path) -> None:
    link = root.parent / "root-link"
    link.symlink_to(root)
    assert fetch(link, "docs/a.json")[0] == b"{}"


def test_what_is_no_file_to_show_is_refused(root: Path) -> None:
    os.mkfifo(root / "pipe")
    for query in ("docs", "gone", "pipe", "x" * 5000):
        with pytest.raises(NotFound, match=r"plan\.1/r\.kb asks for"):
            fetch(root, query)
    for query in (None, "", 3, {"path": "a"}, "a\0b"):
        with pytest.raises(Failed, match="wanted: a path as text"):
            fetch(root, query)
    (root / "loop").symlink_to(root / "loop")
    with pytest.raises(NotFound):
        fetch(root, "loop")
    (root / "big").write_bytes(b"12345")
    assert fetch(root, "big", max_bytes=5)[0] == b"12345"
    with pytest.raises(Failed, match="more than 4 bytes"):
        fetch(root, "big", max_bytes=4)


def test_memory_and_kinds(root: Path) -> None:
    memory = MemoryRetriever({"style": b"be brief"})
    both = ByKind({"FILE": FileRetriever(root), "MEMORY": memory})
    assert both.fetch("s", "r", "MEMORY", "style") == (b"be brief", "text/plain", "memory:style")
    assert both.fetch("s", "r", "FILE", "docs/a.json")[0] == b"{}"
    with pytest.raises(NotFound, match="wanted: one of style"):
        both.fetch("s", "r", "MEMORY", "gone")
    with pytest.raises(NotFound, match="wanted: one of style"):
        memory.fetch("s", "r", "MEMORY", ["style"])
    with pytest.raises(NotFound, match=r"r is a RETRIEVED.*wanted: one of FILE, MEMORY"):
        both.fetch("s", "r", "RETRIEVED", "x")


def test_the_clock_tells_microseconds_since_1970() -> None:
    before = time.time()
    assert before - 1 < SystemClock().now() / 1_000_000 < time.time() + 1

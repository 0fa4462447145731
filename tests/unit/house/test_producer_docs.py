"""The snippets of docs/producers.md run as they stand, in order, and so does README's, but for its broker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dalsegno.testing import MemoryPublisher, memory_publisher

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "producers.md"


def snippets(document: Path) -> list[str]:
    """Each Python block, behind as many empty lines as the page has above it: what fails is named by its line."""
    page = document.read_text("utf-8")
    found = re.finditer(r"^```python\n(.*?)^```$", page, re.M | re.S)
    return ["\n" * page.count("\n", 0, match.start(1)) + match[1] for match in found]


def test_the_snippets_of_the_page_run_in_order() -> None:
    found = snippets(PAGE)
    assert len(found) > 8
    names: dict[str, Any] = {}
    for text in found:
        exec(compile(text, str(PAGE), "exec"), names)
    assert sum(text.count("assert ") for text in found) >= len(found), "each says what it comes to"


def test_the_quickstart_has_five_lines_and_writes_a_session(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """README's own words; the broker that they name is run by tests/e2e/test_docs_commands.py."""
    (text,) = snippets(ROOT / "README.md")
    assert len([line for line in text.splitlines() if line.strip()]) == 5
    made: list[MemoryPublisher] = []

    def publisher(kafka: Any) -> MemoryPublisher:
        assert kafka.bootstrap_servers == "127.0.0.1:9092"
        made.append(memory_publisher())
        return made[0]

    monkeypatch.setattr("dalsegno.Publisher", publisher)
    exec(compile(text, "README.md", "exec"), {})
    assert "Receipt(partition=" in capsys.readouterr().out
    types = [event.type for event in made[0].events("my-first-session")]
    assert types == ["SessionCreated", "SessionStarted", "SessionCompleted"]

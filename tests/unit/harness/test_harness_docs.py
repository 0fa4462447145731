"""The snippets of docs/harness.md run as they stand, in order."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "harness.md"


def test_the_snippets_of_the_page_run_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    page = PAGE.read_text("utf-8")
    monkeypatch.setenv("MY_KEY", "")  # so that what the page sets is taken back
    module = ModuleType("harness_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    snippets = list(re.finditer(r"^```python\n(.*?)^```$", page, re.M | re.S))
    assert len(snippets) > 6
    for snippet in snippets:
        assert "assert " in snippet[1], "each says what it comes to"
        text = "\n" * page.count("\n", 0, snippet.start(1)) + snippet[1]  # what fails is named by its line
        exec(compile(text, str(PAGE), "exec"), vars(module))

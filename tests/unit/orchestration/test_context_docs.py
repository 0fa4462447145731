"""The snippets of docs/context.md run as they stand, in order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "context.md"


def test_the_snippets_of_the_page_run_in_order() -> None:
    page = PAGE.read_text("utf-8")
    snippets = list(re.finditer(r"^```python\n(.*?)^```$", page, re.M | re.S))
    assert len(snippets) > 3
    names: dict[str, Any] = {"__name__": "context_page"}
    for snippet in snippets:
        assert "assert " in snippet[1], "each says what it comes to"
        text = "\n" * page.count("\n", 0, snippet.start(1)) + snippet[1]  # what fails is named by its line
        exec(compile(text, str(PAGE), "exec"), names)

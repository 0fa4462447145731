"""Each rule that is judged has its words, and its row in the contract."""

from __future__ import annotations

import re
from pathlib import Path

from dalsegno.model import lifecycle
from dalsegno.model.lifecycle import RULES

ROOT = Path(__file__).parents[3]


def test_every_rule_that_is_judged_has_words_and_stands_in_the_contract() -> None:
    sources = "".join(each.read_text() for each in Path(lifecycle.__path__[0]).glob("*.py") if each.stem != "rules")
    judged = set(re.findall(r'"([A-Z][0-9])"', sources))
    section = (ROOT / "schemas" / "README.md").read_text().partition("## Lifecycle")[2].partition("## Evolution")[0]
    told = {rule for row in re.findall(r"^\| ([A-Z0-9, ]+) \|", section, re.MULTILINE) for rule in row.split(", ")}
    assert judged == set(RULES) == told

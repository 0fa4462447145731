"""docs/specification.md has a row for each line of the specification; what it names is there, and each row begins with
a test of its own on a real broker."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LINES = {"2": 5, "3": 7, "4": 6, "5": 4, "6": 5, "7": 2, "8": 4}
"""Rows and bullets of each section; in 4 and 5 the sentence behind the bullets is one too."""
_ROW = re.compile(r"^\| (\d) \|([^|]+)\|([^|]+)\|([^|]+)\|$", re.MULTILINE)
_SHOWN = "tests/integration/test_specification.py"
_NODE = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_MODULE = re.compile(r"`dalsegno\.([\w.]+)`")

Row = tuple[str, str, str, str]


def rows() -> list[Row]:
    text = (ROOT / "docs" / "specification.md").read_text("utf-8")
    return [(section, *(cell.strip() for cell in cells)) for section, *cells in _ROW.findall(text)]  # type: ignore[misc]


@cache
def parsed(path: str) -> tuple[frozenset[str], bool]:
    """Test functions of a file, and whether all of them are given a broker."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    tests = frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    marks = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)]
    return tests, "pytestmark = pytest.mark.broker" in marks


def test_every_line_is_there_in_order() -> None:
    sections = [section for section, *_ in rows()]
    assert sections == sorted(sections)
    assert Counter(sections) == LINES


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row[0]} {row[1][:40]}")
def test_what_a_row_names_is_there(row: Row) -> None:
    _, _, where, shown = row
    for module in _MODULE.findall(where):
        place = ROOT / "processors" / "dalsegno" / Path(*module.split("."))
        assert place.with_suffix(".py").is_file() or (place / "__init__.py").is_file(), f"there is no dalsegno.{module}"
    for path, name in _NODE.findall(shown):
        assert name in parsed(path)[0], f"{path} has no {name}"


def test_each_row_begins_with_a_test_of_its_own_on_a_broker() -> None:
    named = [_NODE.findall(shown) for *_, shown in rows()]
    assert [nodes[0][0] for nodes in named] == [_SHOWN] * len(named)
    tests, broker = parsed(_SHOWN)
    assert broker
    there = [name for nodes in named for path, name in nodes if path == _SHOWN]
    assert Counter(there) == Counter({name for name in tests if name.startswith("test_")})

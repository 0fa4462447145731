"""docs/cases.md names a test for every case, and the test is there and says which case it shows; docs/peers.md names
one for every weakness."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_ROW = re.compile(r"^\| (C\d+) \|([^|]+)\|([^|]+)\|([^|]+)\|$", re.MULTILINE)
_NODE = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_CASE = re.compile(r"\bcase (C\d+)\b")


def rows() -> list[tuple[str, str, str, str]]:
    text = (ROOT / "docs" / "cases.md").read_text("utf-8")
    return [(case, *(cell.strip() for cell in cells)) for case, *cells in _ROW.findall(text)]  # type: ignore[misc]


def cases_of(file: Path) -> Iterator[tuple[str, set[str]]]:
    """Each test function of a file and the cases that comments name inside it or right above it."""
    text = file.read_text("utf-8")
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef):
            continue
        start = min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 1
        while start and lines[start - 1].lstrip().startswith("#"):
            start -= 1
        comments = (line.partition("#")[2] for line in lines[start : node.end_lineno])
        yield node.name, {case for comment in comments for case in _CASE.findall(comment)}


def test_every_case_is_told_whole_and_once() -> None:
    found = rows()
    assert len(found) >= 30
    numbers = [int(case[1:]) for case, *_ in found]
    assert numbers == sorted(set(numbers))
    for case, promise, tests, red in found:
        assert len(promise) > 20, f"{case}: what is promised"
        assert _NODE.search(tests), f"{case}: its tests"
        assert len(red) > 20, f"{case}: how it was seen red"


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_the_tests_of_a_case_exist_and_name_it(row: tuple[str, str, str, str]) -> None:
    case, _, tests, _ = row
    for path, name in _NODE.findall(tests):
        functions = dict(cases_of(ROOT / path))
        assert name in functions, f"{case}: {path} has no {name}"
        assert case in functions[name], f"{path}::{name} has no comment 'case {case}'"


def test_every_weakness_of_others_has_a_test_that_is_there() -> None:
    text = (ROOT / "docs" / "peers.md").read_text("utf-8")
    found = re.findall(r"^\| (?!What was)([^|]+)\|([^|]+)\|$", text, re.MULTILINE)
    assert len(found) > 30
    for what, tests in found:
        nodes = _NODE.findall(tests)
        assert nodes, what
        for path, name in nodes:
            assert name in dict(cases_of(ROOT / path)), f"{what}: {path} has no {name}"

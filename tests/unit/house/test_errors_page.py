"""docs/errors.md is held to the tree of errors: no class without a line, a place that raises it, and a test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from dalsegno import errors
from dalsegno.errors import DalsegnoError

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "errors.md"
SOURCE = ROOT / "processors" / "dalsegno"
EXIT_CODES = {1, 2, 3, 4, 5, 6, 7, 70}


class Line(NamedTuple):
    name: str
    slug: str
    exit_code: str
    cause: str
    message: str
    todo: str
    test: str


def tree(root: type[DalsegnoError] = DalsegnoError) -> Iterator[type[DalsegnoError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


CLASSES = list(tree())


@cache
def lines() -> dict[str, Line]:
    rows = [line.strip().strip("|").split(" | ") for line in PAGE.read_text("utf-8").splitlines()]
    found = [Line(*(cell.strip() for cell in row)) for row in rows if len(row) == 7 and row[0].strip() != "Class"]
    assert len({line.name for line in found}) == len(found), "a class stands twice"
    return {line.name: line for line in found}


@cache
def made() -> frozenset[str]:
    """Names of the classes that the code makes an error of."""
    names = set()
    for path in SOURCE.rglob("*.py"):
        if path.name == "errors.py" and path.parent == SOURCE:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                names.add(getattr(node.func, "id", None) or getattr(node.func, "attr", ""))
    return frozenset(names)


def test_the_page_has_exactly_the_classes_of_the_tree() -> None:
    assert set(lines()) == {kind.__name__ for kind in CLASSES}


def test_every_error_in_the_module_is_in_the_tree() -> None:
    defined = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)}
    assert defined == {kind.__name__ for kind in CLASSES}


def test_slugs_are_unique_and_readable() -> None:
    slugs = [kind.slug for kind in CLASSES]
    assert len(set(slugs)) == len(slugs)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", slug) for slug in slugs)
    assert all("slug" in vars(kind) for kind in CLASSES), "each class has its own"


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_the_line_of_a_class_says_what_the_class_says(kind: type[DalsegnoError]) -> None:
    line = lines()[kind.__name__]
    assert line.slug == f"`{kind.slug}`"
    assert line.exit_code == str(kind.exit_code)
    assert kind.exit_code in EXIT_CODES
    assert kind.retryable == (kind.exit_code == 6)
    assert all((line.cause, line.message, line.todo))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_class_is_raised_or_is_only_a_kind(kind: type[DalsegnoError]) -> None:
    if kind.__name__ not in made():
        assert kind.__subclasses__(), f"nothing raises {kind.__name__}"
        assert lines()[kind.__name__].cause.startswith("Kind: ")


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_the_named_test_exists_and_provokes_the_class(kind: type[DalsegnoError]) -> None:
    path, _, name = lines()[kind.__name__].test.partition("::")
    module = ast.parse((ROOT / path).read_text("utf-8"))
    (function,) = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == name]
    assert name.startswith("test_")
    text = ast.unparse(function)
    # By its class, by its exit code (of a command or a process), or in the table that the test is run with.
    by_name = re.search(rf"\b{kind.__name__}\b", text) is not None
    by_code = f"code={kind.exit_code}" in text or f"returncode, done.stdout) == ({kind.exit_code}," in text
    by_status = any(child.__name__ in text for child in kind.__subclasses__())
    assert by_name or by_code or by_status, f"{name} shows no {kind.__name__}"

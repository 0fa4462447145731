"""Golden references in pytest. In ``conftest.py``: ``pytest_plugins = ["dalsegno.testing.pytest_plugin"]``.

    def test_triage(golden):
        golden.check(simulate("triage.yaml", goal="...", script="script.yaml", tools=TOOLS).events)

The reference lies beside the test, ``golden/<module>/<test>.jsonl``. A test whose reference is missing, or another,
fails and says which decision changed; ``--golden-update`` writes it, for a review to look at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from dalsegno.model.records import Event
from dalsegno.replay.golden import compare, lines_of, read, written

OPTION = "--golden-update"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("dalsegno").addoption(
        OPTION, action="store_true", help="write golden references that are missing or differ, instead of failing"
    )


class Golden:
    """The reference of one test. ``check`` once, or with a name each."""

    def __init__(self, folder: Path, test: str, *, update: bool) -> None:
        self._folder, self._test, self._update = folder, test, update
        self.checked: list[Path] = []

    def check(self, events: Iterable[Event], name: str = "") -> None:
        """Fails the test where the decisions of these events are not those of the reference."""
        file = self._folder / f"{self._test}{f'.{name}' if name else ''}.jsonl"
        if file in self.checked:
            pytest.fail(f"{file.name} is checked twice in one test: give each check a name", pytrace=False)
        self.checked.append(file)
        lines = lines_of(events)
        if self._update:
            _write(file, written(lines))
            return
        if not file.exists():
            pytest.fail(f"no golden reference {file}: look at the decisions, then run pytest {OPTION}", pytrace=False)
        found = compare(read(file.read_bytes(), file.name), lines)
        if found is not None:
            more = f" ({found.more} more lines differ)" if found.more else ""
            pytest.fail(f"{file.name}, {found}{more}", pytrace=False)


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_suffix(".tmp")
    beside.write_bytes(content)
    os.replace(beside, file)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Iterator[Golden]:
    """The golden reference of this test; a test that asks for it and checks nothing fails."""
    test = re.sub(r"[^A-Za-z0-9_.-]", "_", request.node.name)
    module = request.path
    found = Golden(module.parent / "golden" / module.stem, test, update=bool(request.config.getoption(OPTION)))
    yield found
    if not found.checked:
        pytest.fail("the fixture 'golden' was asked for and nothing was checked", pytrace=False)

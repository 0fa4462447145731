"""A world of its own for every test with whole workers, and the command line in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness_cli import Cli
from harness_worker import World


@pytest.fixture
def world(kafka: Any, tmp_path: Path) -> Iterator[World]:
    found = World(kafka.config, kafka.prefix, tmp_path)
    yield found
    found.close()


@pytest.fixture
def cli(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(world, monkeypatch, capsys)

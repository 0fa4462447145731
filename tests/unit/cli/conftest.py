"""Commands on the shards of one machine, without a broker."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dalsegno.cli.frame import run
from reader_lab import PREFIX, House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path) as found:
        yield found


@pytest.fixture
def say(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[str, str]]:
    """Runs a command on the house's shards, and gives what it says on stdout and stderr."""
    for name in [name for name in os.environ if name.startswith("DALSEGNO_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(house.data.parent)

    def command(*arguments: str, code: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        found = run(["--data", str(house.data), "--prefix", PREFIX, *arguments])
        said = capsys.readouterr()
        assert found == code, said.err
        return said.out, said.err

    return command

"""The command line in this process: its exit code, its JSON, and what it said on stderr."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dalsegno.cli.frame import run
from harness_worker import World


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cli:
    """Runs commands for a world's prefix, with the data folder of one of its workers."""

    def __init__(
        self, world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: str = "a"
    ) -> None:
        self._capsys = capsys
        settings = {
            "DALSEGNO_KAFKA__BOOTSTRAP_SERVERS": world.config.bootstrap_servers,
            "DALSEGNO_DATA": str(world.folder / data),
            "DALSEGNO_STORE": str(world.store),
            "DALSEGNO_PREFIX": world.prefix,
            "DALSEGNO_WORKER__SESSION_TIMEOUT_SECONDS": "6",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)

    def __call__(self, *arguments: str | Path, code: int = 0, text: bool = False) -> Said:
        """Run one command; it must end with this exit code."""
        self._capsys.readouterr()
        found = run([*([] if text else ["-o", "json"]), *map(str, arguments)])
        said = Said(found, *self._capsys.readouterr())
        assert found == code, f"exit code {found}, not {code}\n{said.out}\n{said.err}"
        return said

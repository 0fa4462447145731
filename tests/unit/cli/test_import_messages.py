"""What an import says that it wrote, to people and to programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dalsegno.cli import import_
from dalsegno.cli.frame import run
from dalsegno.log.publisher import Publisher
from dalsegno.testing.memory_log import MemoryLog
from inspect_logs import sample, write_json


def test_the_sessions_that_were_written_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = MemoryLog(partitions=4)
    monkeypatch.setattr(import_, "Publisher", lambda *_, **__: Publisher(log.connect(), prefix="t"))
    few, many = (
        write_json(tmp_path / f"{count}.json", *[sample([], id=number) for number in range(1, count + 1)])
        for count in (2, 5)
    )

    def imported(path: Path, *more: str) -> tuple[dict[str, Any], str]:
        assert run(["--bootstrap-servers", "none:1", "-o", "json", "import", "inspect", str(path), *more]) == 0
        out, err = capsys.readouterr()
        return json.loads(out)[0], next(line.strip() for line in err.splitlines() if "sessions" in line)

    told, said = imported(many, "--dry-run")
    ids = told["session_ids"]
    assert told["written"] == ids
    assert len(ids) == 5
    assert said == f"would write 5 of 5 sessions: {', '.join(ids[:3])} and 2 more"
    told, said = imported(few)
    assert (told["written"], said) == (ids[:2], f"wrote 2 of 2 sessions: {', '.join(ids[:2])}")
    told, said = imported(many)
    assert (told["written"], said) == (ids[2:], f"wrote 3 of 5 sessions: {', '.join(ids[2:])}")
    told, said = imported(many)
    assert (told["session_ids"], told["written"]) == (ids, [])
    assert said == "wrote 0 of 5 sessions; the log lacks nothing of them"

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


def test_reports_are_for_formats_that_take_them_and_for_sessions_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = MemoryLog(partitions=4)
    monkeypatch.setattr(import_, "Publisher", lambda *_, **__: Publisher(log.connect(), prefix="t"))
    inspect = write_json(tmp_path / "log.json", sample([]))
    info = {"mini_version": "1", "exit_status": "Submitted"}
    for name in ("a", "b"):
        (tmp_path / f"{name}.traj.json").write_text(json.dumps({"info": info, "messages": [], "instance_id": name}))
        (tmp_path / f"{name}.report.json").write_text(json.dumps({"resolved": name == "a"}))
    a, b = ([str(tmp_path / f"{name}.{kind}.json") for kind in ("traj", "report")] for name in ("a", "b"))

    def imported(*words: str) -> tuple[int, str, str]:
        code = run(["--bootstrap-servers", "none:1", "-o", "json", "import", *words])
        return code, *capsys.readouterr()

    code, _, said = imported("inspect", str(inspect), "--report", a[1])
    assert (code, log.records("t.events")) == (2, [])
    assert "--report with the format inspect" in said
    assert "mini-swe-agent" in said
    code, _, said = imported("mini-swe-agent", a[0], "--report", a[1], "--report", b[1])
    assert (code, log.records("t.events")) == (1, [])
    assert "b.report.json belongs to no session of these files" in said
    code, out, said = imported("mini-swe-agent", a[0], b[0], "--report", a[1], "--report", b[1])
    assert code == 0
    assert "not in the recording: when a session began (1), when an event happened (9)" in said
    assert [told["report"]["events"]["ValidationDecided"] for told in json.loads(out)] == [1, 1]


def test_what_waits_for_a_longer_file_is_told_and_comes_with_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = MemoryLog(partitions=4)
    monkeypatch.setattr(import_, "Publisher", lambda *_, **__: Publisher(log.connect(), prefix="t"))
    meta = {"type": "session_meta", "payload": {"id": "s"}}
    said = {"type": "response_item", "payload": {"type": "message", "role": "assistant", "content": []}}
    path = tmp_path / "rollout.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (meta, said)))

    def imported(*more: str) -> tuple[dict[str, Any], str]:
        assert run(["--bootstrap-servers", "none:1", "-o", "json", "import", "codex", str(path), *more]) == 0
        out, err = capsys.readouterr()
        return json.loads(out)[0], err

    told, text = imported()
    assert told["report"]["waiting"] == {"response_item.message": 1}
    assert "left out until the file has grown, or --ended is given: response_item.message (1)" in text
    told, text = imported("--ended")
    assert (told["grew"], told["appended"], told["report"]["waiting"]) == (1, 1, {})
    assert "until the file has grown" not in text
    told, _ = imported()
    assert (told["ahead"], told["appended"]) == (1, 0)


def test_of_many_warnings_people_see_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = MemoryLog(partitions=4)
    monkeypatch.setattr(import_, "Publisher", lambda *_, **__: Publisher(log.connect(), prefix="t"))
    event = {"timestamp": "2025-01-01T10:00:00Z", "source": "agent", "action": "null", "args": {}}
    path = tmp_path / "gaps.json"
    path.write_text(json.dumps([{**event, "id": 2 * number} for number in range(16)]))
    assert run(["--bootstrap-servers", "none:1", "-o", "json", "import", "openhands", str(path)]) == 0
    out, err = capsys.readouterr()
    assert len(json.loads(out)[0]["report"]["warnings"]) == 15
    assert (err.count("warning: "), err.count("and 3 more warnings, in the data (-o json)")) == (12, 1)

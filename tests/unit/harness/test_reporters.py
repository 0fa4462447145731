"""Who reports from outside: programs in a folder, functions, and those of other packages."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from dalsegno.errors import Failed, NotFound
from dalsegno.harness import loading
from dalsegno.harness.reporters import open_reporter
from dalsegno.orchestration.ports import Reporter, Verdict


def python(code: str, **settings: Any) -> Reporter:
    return open_reporter("program", {"command": [sys.executable, "-Sc", code], **settings})


def report(reporter: Reporter, target: bytes = b"") -> Verdict:
    return reporter.report("s", "plan.1/t2/v.tests", "tests", target)


def test_a_program_passes_by_its_exit_code_and_its_output_is_the_evidence(tmp_path: Path) -> None:
    code = (
        "import os, sys; print(os.getcwd(), os.environ['DALSEGNO_SESSION_ID'], os.environ['DALSEGNO_VALIDATION_ID'],"
        "os.environ['DALSEGNO_VALIDATOR'], sys.stdin.read(), flush=True); print('bad', file=sys.stderr);"
    )
    passed = report(python(code, folder=str(tmp_path)), b"target")
    assert (passed.verdict, passed.label) == ("PASS", "exit code 0")
    assert passed.evidence == (f"{tmp_path.resolve()} s plan.1/t2/v.tests tests target\nbad\n".encode(),)
    rejected = report(python("raise SystemExit(3)"))
    assert (rejected.verdict, rejected.label) == ("REJECT", "exit code 3")


def test_a_program_that_reads_nothing_of_a_long_target_still_reports() -> None:
    assert report(python("pass"), b"x" * 1_000_000).verdict == "PASS"


def test_the_end_of_a_long_output_is_kept() -> None:
    said = report(python("print('x' * 100_000 + 'end', end='')", output_bytes=10))
    assert said.evidence == (b"xxxxxxxend",)


def test_a_program_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    command = ["sh", "-c", "sleep 60 & echo $! > pid; echo begun; wait"]
    settings = {"command": command, "folder": str(tmp_path), "timeout_seconds": 0.5}
    late = report(open_reporter("program", settings))
    assert (late.verdict, late.label, late.evidence) == ("ERROR", "no end in 0.5 s", (b"begun\n",))
    wait_until(lambda: gone(int((tmp_path / "pid").read_text())))


def test_what_a_program_leaves_behind_ends_too_and_nobody_waits_for_it(tmp_path: Path) -> None:
    settings = {"command": ["sh", "-c", "sleep 60 & echo $! > pid"], "folder": str(tmp_path), "timeout_seconds": 30}
    assert report(open_reporter("program", settings)).verdict == "PASS"
    wait_until(lambda: gone(int((tmp_path / "pid").read_text())))


def test_a_program_that_is_killed_or_not_there_gives_no_verdict() -> None:
    killed = report(python("import os; os.kill(os.getpid(), 9)"))
    assert (killed.verdict, killed.label) == ("ERROR", "killed by signal 9")
    missing = report(open_reporter("program", {"command": ["/nowhere/pytest"]}))
    assert (missing.verdict, missing.label) == ("ERROR", "not started")
    assert b"/nowhere/pytest" in missing.evidence[0]


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, "command"),
        ({"command": []}, "an empty command"),
        ({"command": "pytest"}, "Expected `array`"),
        ({"command": ["x"], "folder": "/nowhere/at/all"}, "/nowhere/at/all is no folder"),
        ({"command": ["x"], "shell": True}, "shell"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], found: str) -> None:
    with pytest.raises(Failed, match=found):
        open_reporter("program", settings)


def by_length(session_id: str, validation_id: str, validator: str, target: bytes) -> Verdict:
    if target == b"raise":
        raise ValueError("no")
    if target == b"wrong":
        return True  # type: ignore[return-value]
    return Verdict("PASS" if target else "REJECT", label=f"{session_id} {validation_id} {validator}")


def test_a_function_reports_and_what_it_does_wrong_is_an_error() -> None:
    reporter = open_reporter(f"{__name__}:by_length", {})
    assert report(reporter, b"x") == Verdict("PASS", label="s plan.1/t2/v.tests tests")
    assert report(reporter).verdict == "REJECT"
    assert report(reporter, b"raise") == Verdict("ERROR", label="it raised", evidence=(b"ValueError: no",))
    assert report(reporter, b"wrong") == Verdict("ERROR", label="it returned a bool")
    with pytest.raises(Failed, match="settings"):
        open_reporter(f"{__name__}:by_length", {"x": 1})
    with pytest.raises(Failed, match="a str"):
        open_reporter(f"{__name__}:__name__", {})


class Constant:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.verdict = Verdict(settings["verdict"])

    def report(self, *_: Any) -> Verdict:
        return self.verdict


def test_reporters_of_other_packages_come_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [EntryPoint("constant", f"{__name__}:Constant", "dalsegno.reporters")]
    monkeypatch.setattr(loading, "entry_points", lambda group: entries if group == "dalsegno.reporters" else [])
    assert report(open_reporter("constant", {"verdict": "PASS"})) == Verdict("PASS")
    with pytest.raises(NotFound, match="no reporter 'gone'; wanted: one of constant, program"):
        open_reporter("gone", {})
    entries.append(EntryPoint("program", f"{__name__}:Constant", "dalsegno.reporters"))
    with pytest.raises(Failed, match="a second 'program'"):
        open_reporter("program", {})


def gone(pid: int) -> bool:
    """Ended, though nobody may have asked for its exit code yet."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return False
    return True


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)

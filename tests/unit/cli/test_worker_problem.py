"""What ``worker status`` calls a problem and what it waits for, and what ``worker run`` says on a terminal."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno.cli import worker
from dalsegno.cli.context import Context
from dalsegno.cli.frame import run
from dalsegno.cli.worker import NOT_SENDING_SECONDS, _problem
from dalsegno.settings import load_settings
from dalsegno.state.slot import Slot, open_slot

SLOT = Path("data/p/slots/1")
WAIT_SECONDS = 20.0


def status(**more: Any) -> dict[str, Any]:
    return {"state": "RUNNING", "updated_at": time.time(), "partitions": {}, "emitter": None, **more}


def test_a_worker_that_has_sent_nothing_for_long_is_not_well() -> None:
    since = time.time() - NOT_SENDING_SECONDS - 5
    problem = _problem(status(emitter="TOPIC_AUTHORIZATION_FAILED: no", emitter_failing_since=since), True, SLOT)
    assert problem is not None
    assert "TOPIC_AUTHORIZATION_FAILED" in problem


def test_a_transaction_that_met_a_rebalance_is_no_problem() -> None:
    failing = status(emitter="ILLEGAL_GENERATION: no", emitter_failing_since=time.time() - 1)
    assert _problem(failing, True, SLOT) is None
    assert _problem(status(emitter_failing_since=None), True, SLOT) is None


def test_a_worker_that_is_gone_comes_with_what_to_do() -> None:
    problem = _problem(status(pid=7), False, SLOT)
    assert problem is not None
    assert "pid 7) is gone" in problem
    assert "'dalsegno worker run --slot 1'" in problem
    assert f"delete {SLOT}" in problem


# --- waiting for live partitions ------------------------------------------------------------------------------------


def parts(**states: str) -> dict[str, Any]:
    return {
        number[1:]: {
            "state": state, "cursor": 1, "committed": 1, "end": 1, "behind": 0, "held_sessions": 0, "reason": None,
        }
        for number, state in states.items()
    }  # fmt: skip


@pytest.fixture
def slot(tmp_path: Path) -> Iterator[Slot]:
    slot = open_slot(tmp_path, "p", 0)
    yield slot
    slot.close()


def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, list[dict[str, Any]]]:
    code = run(["--data", str(tmp_path), "--prefix", "p", "-o", "json", "worker", "status", *more])
    return code, json.loads(capsys.readouterr().out)


def while_asked(monkeypatch: pytest.MonkeyPatch, then: Any) -> list[int]:
    """Call ``then`` with the number of each look that was in vain, instead of waiting for the next one."""
    looks: list[int] = []

    def between(_: float) -> None:
        looks.append(len(looks))
        then(looks[-1])

    monkeypatch.setattr(worker.time, "sleep", between)
    return looks


def test_status_waits_until_every_partition_is_live(
    tmp_path: Path, slot: Slot, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ways = [{}, parts(p0="RESTORING"), parts(p0="LIVE", p1="CATCHING_UP"), parts(p0="LIVE", p1="LIVE")]
    looks = while_asked(monkeypatch, lambda look: slot.write_status(status(partitions=ways[look])))
    code, seen = ask(tmp_path, capsys, "--wait-seconds", "60")
    assert (code, len(looks)) == (0, len(ways))
    assert {part["state"] for part in seen[0]["partitions"].values()} == {"LIVE"}


def test_status_waits_no_longer_than_it_is_told(tmp_path: Path, slot: Slot, capsys: pytest.CaptureFixture[str]) -> None:
    slot.write_status(status(partitions=parts(p0="CATCHING_UP")))
    assert ask(tmp_path, capsys, "--wait-seconds", "0.05")[0] == 1
    slot.write_status(status(partitions=parts(p0="LIVE", p1="STOPPED")))
    assert ask(tmp_path, capsys, "--wait-seconds", "0.05")[0] == 1
    slot.close()
    slot.write_status(status(state="STOPPED", partitions=parts(p0="LIVE")))
    assert ask(tmp_path, capsys, "--wait-seconds", "0.05")[0] == 6


@pytest.mark.parametrize("form", ["text", "json", "none"])
def test_a_wait_in_vain_fails_and_says_for_what(
    form: str, tmp_path: Path, slot: Slot, capsys: pytest.CaptureFixture[str]
) -> None:
    def waited() -> tuple[int, str]:
        command = ["--data", str(tmp_path), "--prefix", "p", "-o", form, "worker", "status", "--wait-seconds", "0.05"]
        return run(command), capsys.readouterr().err

    slot.write_status(status(partitions=parts(p0="LIVE", p1="CATCHING_UP", p2="RESTORING", p3="CATCHING_UP")))
    assert waited() == (1, "not live after 0.05 s: slot 0: 2 CATCHING_UP, 1 RESTORING\n")
    slot.write_status(status())
    assert waited() == (1, "not live after 0.05 s: slot 0: no partitions\n")
    slot.write_status(status(partitions=parts(p0="LIVE")))
    assert waited() == (0, "")


def test_status_does_not_wait_unless_it_is_told(
    tmp_path: Path, slot: Slot, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = while_asked(monkeypatch, lambda _: pytest.fail("it waits"))
    slot.write_status(status(partitions=parts(p0="CATCHING_UP")))
    assert ask(tmp_path, capsys)[0] == 0
    assert looks == []


class Notes:
    """What is said, which can be waited for."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._more = threading.Condition()

    def take(self, text: str) -> None:
        with self._more:
            self.lines.append(text)
            self._more.notify_all()

    def are(self, lines: list[str]) -> bool:
        with self._more:
            return self._more.wait_for(lambda: self.lines == lines, WAIT_SECONDS)


def test_a_worker_on_a_terminal_says_when_its_partitions_are_live(
    tmp_path: Path, slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Semaphore(0)
    own_states = worker._own_states

    def own(*where: Any) -> dict[str, str]:
        looked.release()
        return own_states(*where)

    def told(**states: str) -> None:
        """Write a status, and wait until it was looked at: the second look from now begins after the writing."""
        slot.write_status(status(pid=os.getpid(), partitions=parts(**states)))
        while looked.acquire(blocking=False):
            pass
        for _ in range(3):
            assert looked.acquire(timeout=WAIT_SECONDS)

    monkeypatch.setattr(worker, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(worker, "_own_states", own)
    notes = Notes()
    monkeypatch.setattr(worker, "note", notes.take)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with worker._tell_when_live(Context(load_settings({"data": tmp_path, "prefix": "p"}))):
        told()
        told(p0="LIVE", p1="CATCHING_UP")
        assert notes.lines == []
        told(p0="LIVE", p1="LIVE")
        assert notes.are(["live: 2 partitions"])
        told(p0="LIVE", p1="CATCHING_UP")  # new events, no news
        told(p0="LIVE", p1="LIVE")
        told(p1="LIVE")  # the other one went to another worker
        assert notes.are(["live: 2 partitions", "live: 1 partition"])
        told(p1="STOPPED")
        told(p1="LIVE")
        assert notes.are(["live: 2 partitions", "live: 1 partition", "live: 1 partition"])
    assert not [each for each in threading.enumerate() if each.name == "dalsegno-live"]


def test_without_a_terminal_nothing_is_said(tmp_path: Path, slot: Slot, capsys: pytest.CaptureFixture[str]) -> None:
    slot.write_status(status(pid=os.getpid(), partitions=parts(p0="LIVE")))
    with worker._tell_when_live(Context(load_settings({"data": tmp_path, "prefix": "p"}))):
        assert not [each for each in threading.enumerate() if each.name == "dalsegno-live"]
    assert capsys.readouterr().err == ""

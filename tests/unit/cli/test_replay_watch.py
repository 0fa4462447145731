"""What a person who waits for a replay is told."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from dalsegno.cli import replay_projections
from dalsegno.replay.execute import Progress

REASON = "an open transaction begins at offset 7, below the end bound 9"


class Standing:
    """A conductor whose replay stands before an open transaction, in one partition of two."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.enough = threading.Event()

    def progress(self, _: Any) -> list[Progress]:
        return [Progress(0, 0, 7, 9, False), Progress(1, 0, len(self.asked), 9, False)]

    def pinned(self, parts: list[Progress]) -> dict[int, str]:
        self.asked.append([part.partition for part in parts])
        if len(self.asked) == 4:
            self.enough.set()
        return {part.partition: REASON for part in parts}


def test_what_a_run_waits_for_is_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    # case C10
    monkeypatch.setattr(replay_projections, "LOOK_SECONDS", 0.001)
    shown: list[list[Progress]] = []
    conductor: Any = Standing()
    with replay_projections._watch(conductor, Any, shown.append):
        assert conductor.enough.wait(30)
    assert capsys.readouterr().err.splitlines() == [f"partition 0 waits: {REASON}"]
    # Only a partition that stood still between two looks is asked about.
    assert conductor.asked[:2] == [[], [0]]
    assert len(shown) == len(conductor.asked)

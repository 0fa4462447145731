"""A recorded session decided again from its own facts: as it was recorded, whatever happened to its writer."""

from __future__ import annotations

from pathlib import Path

import pytest

from dalsegno.errors import NotReconstructable
from dalsegno.model.records import Event
from dalsegno.replay.again import decide_again
from dalsegno.replay.forked import run_in_fork
from dalsegno.replay.golden import compare, lines_of
from dalsegno.replay.strategy import Strategy
from dalsegno.testing import MemoryPublisher
from workflow_lab import CODING, PREFIX, SESSION, TRIAGE, WIRE, Example, Point, Run

EVERY = 15
"""Of an example's records: a process dies around each so many."""


def differs(history: list[Event]) -> str | None:
    events, run = decide_again(history)
    assert (run.counts.inexact, run.counts.missed) == (0, 0)
    found = compare(lines_of(history), lines_of(events))
    return None if found is None else str(found)


@pytest.mark.parametrize("example", [TRIAGE, CODING, WIRE], ids=lambda each: each.name)
def test_each_example_killed_and_resumed_is_decided_again_as_recorded(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Run(example, tmp_path / "whole", monkeypatch)
    whole.to_its_end()
    assert differs(whole.recorded()) is None
    for number in range(1, len(whole.sent[0]), EVERY):
        for stored in (False, True):
            killed = Run(example, tmp_path / f"{number}-{stored}", monkeypatch)
            killed.to_its_end([Point(number, stored)])
            assert differs(killed.recorded()) is None, (number, stored)


def test_a_fork_of_an_unchanged_workflow_has_the_reference_of_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(TRIAGE, tmp_path / "whole", monkeypatch)
    run.to_its_end()
    publisher = MemoryPublisher(run.log, prefix=PREFIX, writer="fork/1/a")
    events = publisher.events(SESSION)
    for turn in [event.seq for event in events if event.type == "TurnStarted"][::2]:
        fork = run_in_fork(publisher, SESSION, turn, Strategy(on_miss="stop"), suffix=f"at-{turn}")
        child = run_in_fork(publisher, fork.session_id, None, Strategy(on_miss="stop"), suffix=f"below-{turn}")
        for name in (fork.session_id, child.session_id):
            history = publisher.history(name)
            assert differs(history) is None
            assert compare(lines_of(events), lines_of(history)) is None


def test_a_session_that_never_started_decided_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(WIRE, tmp_path / "whole", monkeypatch)
    run.to_its_end()
    with pytest.raises(NotReconstructable, match="never started"):
        decide_again(run.recorded()[:5])

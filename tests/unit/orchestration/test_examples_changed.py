"""One line of an example's documents, or of the decider, is another one: the first decision that differs is found where
it was written down beforehand, by computing every decision of a recording anew.

The recording, of ``examples/triage``, one step at a time::

    10 SessionStarted · 11 TransitionTaken · 12 StageScheduled sort.1 · 14 TurnStarted t1 · 15 ContextPackBuilt
    18-22 list_tickets · 24 TurnStarted t2 · 28-47 read_ticket, four at once · 49 TurnStarted t3
    54 ValidationRequested every-ticket · 55 ValidationDecided · 56 StageCompleted · 57 TransitionTaken
    58 StageScheduled act.1 · 60 TurnStarted t1 · 61 CompressionStarted · 64 CompressionCompleted · 65 ContextPackBuilt
    69 PolicyEvaluated refund of 15.00 · 72, 75 refunds that need an approval · 78 PolicyEvaluated escalate
    80 ToolCallStarted, while two approvals are waited for · 92 TurnStarted t2 · 97 PolicyEvaluated reply
    117 TurnStarted t3 · 122 ValidationRequested short · 124 ValidationRequested polite · 128 StageCompleted
    129 SessionCompleted
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dalsegno.harness.files import load
from dalsegno.harness.sessions import build
from dalsegno.harness.tools import load_tools
from dalsegno.model.events import NewEvent
from dalsegno.model.records import Event
from dalsegno.orchestration.configuration import configuration_of, documents
from dalsegno.orchestration.decider import World
from dalsegno.orchestration.documents import Configuration
from dalsegno.projections.decider.rows import APPROVAL
from dalsegno.replay.check import Checked, Checker, check
from dalsegno.testing.simulation import simulate
from decider_variants import VARIANTS, install
from workflow_lab import TRIAGE

TOOLS = load_tools(str(TRIAGE.folder / "tools.py"))


def person(world: World) -> NewEvent | None:
    waiting = (id for id, approval in world.rows.family(APPROVAL).items() if approval.phase == "OPEN")
    return next((TRIAGE.person[id](world.rows.get((APPROVAL, id)).arguments) for id in waiting), None)


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Event]]:
    monkeypatch.setenv("EXAMPLE_FOLDER", str(tmp_path))
    simulation = simulate(
        TRIAGE.folder / "workflow.yaml",
        goal=TRIAGE.goal,
        script=TRIAGE.folder / "script.yaml",
        tools=TOOLS,
        people=person,
        labels=TRIAGE.labels,
    )
    assert simulation.outcome == "SUCCESS"
    return simulation.events


def changed(folder: Path, file: str, line: str, other: str) -> Configuration:
    """The example's, with another line in one of its files."""
    copy = folder / "changed"
    shutil.copytree(TRIAGE.folder, copy)
    text = (copy / file).read_text("utf-8")
    assert text.count(line) == 1
    (copy / file).write_text(text.replace(line, other), "utf-8")
    loaded = load(copy / "workflow.yaml", tools=[tool.spec for tool in TOOLS])
    return configuration_of({each.kind: each.content for each in documents(loaded, build("simulation"))})


def by(configuration: Configuration, recorded: list[Event]) -> Checked:
    # That a policy has another digest says nothing of what it decides.
    return check(recorded, Checker(override=lambda _: configuration, ignore=frozenset({"/policy_digest"})))


def test_unchanged_nothing_differs(recorded: list[Event], tmp_path: Path) -> None:
    result = by(changed(tmp_path, "workflow.yaml", "name: triage", "name: triage"), recorded)
    assert (result.diverged, result.compared, result.unreconstructable) == (0, 83, None)


@pytest.mark.parametrize(
    ("file", "line", "other", "seq", "subject"),
    [
        ("policy.yaml", "cents > 2000", "cents > 1000", 69, "act.1/t1/c0/d1"),
        ("policy.yaml", "decision: DENY", "decision: REQUIRE_APPROVAL", None, ""),  # it was never night
        ("policy.yaml", "signature: The shop", "signature: The desk", 97, "act.1/t2/c0/d1"),
        ("workflow.yaml", "validators: [short, polite]", "validators: [short]", 124, "act.1/t3/v.polite"),
        ("workflow.yaml", "limits: {turns: 5}", "limits: {turns: 2}", 49, "sort.1/t3"),
        ("workflow.yaml", "history: session", "history: stage", 61, "act.1/t1/k1"),
        ("workflow.yaml", "budget_tokens: 8000", "budget_tokens: 500", 65, "act.1/t1/p"),
        ("workflow.yaml", "service desk of a small shop", "service desk of a large shop", 15, "sort.1/t1/p"),
        ("compression.yaml", "stage_boundary: true, overflow: true", "overflow: true", 61, "act.1/t1/k1"),
    ],
)
def test_a_changed_line_is_found_at_the_first_decision_that_differs(
    recorded: list[Event], tmp_path: Path, file: str, line: str, other: str, seq: int | None, subject: str
) -> None:
    result = by(changed(tmp_path, file, line, other), recorded)
    assert result.unreconstructable is None
    if seq is None:
        assert result.diverged == 0
    else:
        assert result.first is not None
        assert (result.first.seq, result.first.subject) == (seq, subject)


@pytest.mark.parametrize(
    ("name", "seq"), [("an extra validation", 56), ("a stage ended early", 24), ("a question while waiting", 80)]
)
def test_a_changed_decider_is_found_too(
    recorded: list[Event], monkeypatch: pytest.MonkeyPatch, name: str, seq: int
) -> None:
    install(monkeypatch, next(each for each in VARIANTS if each.name == name))
    first = check(recorded).first
    assert first is not None
    assert first.seq == seq

"""Runs written as forks: the same workflow forked at every event, another policy, another model, forks of forks."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dalsegno.errors import NotReconstructable
from dalsegno.harness.past import StoredContents, configuration_in_log
from dalsegno.harness.performing import Ports
from dalsegno.harness.providers.scripted import Scripted, read_script
from dalsegno.model.forking import Boundary, fork_point
from dalsegno.model.records import Event
from dalsegno.orchestration.configuration import PinnedDocument, pinned
from dalsegno.orchestration.documents import Policy, PolicyRule
from dalsegno.orchestration.ports import Answer, Request
from dalsegno.replay.changes import Changes
from dalsegno.replay.compared import compare_run
from dalsegno.replay.forked import Forked, run_in_fork
from dalsegno.replay.serving import EXACT
from dalsegno.replay.session_replay import Asked as Replay
from dalsegno.replay.session_replay import replay_session
from dalsegno.replay.strategy import Strategy
from dalsegno.testing import MemoryPublisher
from examples import examples
from workflow_lab import CLOCK, CODING, EXAMPLES, PREFIX, SESSION, TRIAGE, Example, Run

RECORDED = Strategy(on_miss="stop")


def session_of(example: Example, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[MemoryPublisher, list[Event]]:
    run = Run(example, folder / "work", monkeypatch)
    assert run.to_its_end().why == "ENDED"
    publisher = MemoryPublisher(run.log, prefix=PREFIX, writer="fork/1/a")
    return publisher, publisher.events(SESSION)


def first_turn(events: list[Event]) -> int:
    return next(event.seq for event in events if event.type == "TurnStarted")


def places(events: list[Event]) -> list[int]:
    """Where to fork: at every event at full counts; else at each turn's start and end, as often as there are runs."""
    first = first_turn(events)
    if examples(1) > 1:
        return list(range(first, events[-1].seq + 1))
    starts = [event.seq for event in events if event.type == "TurnStarted"]
    return [*starts, events[-1].seq]


def boundary_of(events: list[Event], at: int) -> int:
    """The last event before the last turn that begins at or below ``at``."""
    return max(event.seq for event in events if event.type == "TurnStarted" and event.seq <= at) - 1


@pytest.mark.parametrize("example", [TRIAGE, CODING], ids=lambda each: each.name)
def test_an_unchanged_workflow_forked_at_every_event_decides_the_same(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher, events = session_of(example, tmp_path, monkeypatch)
    before = [(event.seq, event.hash) for event in events]
    for at in range(first_turn(events), events[-1].seq + 1):
        point = fork_point(events, SESSION, at)
        assert isinstance(point, Boundary)
        assert point.at.seq == boundary_of(events, at)
    for at in places(events):
        forked = run_in_fork(publisher, SESSION, at, RECORDED, suffix=f"at-{at}")
        assert forked.boundary.at.seq == boundary_of(events, at), at
        assert (forked.result.ended, forked.result.stopped) == (True, None), at
        counts = forked.result.counts
        assert (counts.inexact, counts.missed, counts.rerun, counts.simulated) == (0, 0, 0, 0), at
        assert not forked.result.left_over, at
        compared = compare_run(forked.recorded, forked.result.events)
        assert compared.divergences == [], at
        assert compared.equal == compared.compared > 0, at
        served = [event for event in forked.result.events if event.meta["origin"] is not None]
        assert len(served) == counts.exact
        assert {event.meta["origin"]["importer"] for event in served} <= {EXACT}
    assert [(event.seq, event.hash) for event in publisher.events(SESSION)] == before


def test_a_run_that_fails_names_the_fork_that_it_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher, _ = session_of(TRIAGE, tmp_path, monkeypatch)
    with pytest.raises(NotReconstructable) as caught:
        run_in_fork(publisher, SESSION, 15, Strategy(), documents=[denying("refund")], suffix="left")
    assert caught.value.data["fork"] == f"{SESSION}~left"
    assert caught.value.todo.endswith(f"stands in {SESSION}~left")
    assert publisher.events(f"{SESSION}~left")


def denying(tool: str) -> PinnedDocument:
    rule = PolicyRule(id="no", decision="DENY", when=f'call.tool == "{tool}"')
    return pinned("POLICY", Policy(name="stricter", rules=[rule]), "stricter", "1")


def test_what_a_policy_denies_is_started_in_no_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher, events = session_of(TRIAGE, tmp_path, monkeypatch)
    names = {event.body["tool_call_id"]: event.body["name"] for event in events if event.type == "ToolCallRequested"}
    started = {names[event.body["tool_call_id"]] for event in events if event.type == "ToolCallStarted"}
    assert "refund" in started
    asked = 0
    for at in places(events):
        forked = run_in_fork(publisher, SESSION, at, RECORDED, documents=[denying("refund")], suffix=f"no-{at}")
        requested = {e.body["tool_call_id"] for e in forked.events if e.type == "ToolCallRequested" and
                     e.body["name"] == "refund"}  # fmt: skip
        asked += len(requested)
        assert not requested & {e.body["tool_call_id"] for e in forked.events if e.type == "ToolCallStarted"}, at
    assert asked > 0


class Asked:
    """A model that answers as the script does, but for the last report; ``requests``: what it was asked."""

    def __init__(self, script: Scripted) -> None:
        self._script = script
        self.requests: list[Request] = []

    def complete(self, request: Request) -> Answer:
        self.requests.append(request)
        answer = self._script.complete(request)
        return replace(answer, text="Everybody was answered.") if answer.text.startswith("T-1:") else answer


def test_a_model_that_is_asked_again_writes_new_answers_into_the_fork_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher, events = session_of(TRIAGE, tmp_path, monkeypatch)
    last_turn = max(event.seq for event in events if event.type == "TurnStarted")
    model = Asked(read_script(EXAMPLES / "triage" / "script.yaml"))
    ports = Ports(clock=CLOCK, providers={"*": model})
    strategy = Strategy(inference="rerun", on_miss="stop")
    forked: Forked = run_in_fork(publisher, SESSION, last_turn, strategy, ports, suffix="again", purpose="DATASET")
    assert forked.result.ended
    assert forked.result.counts.rerun == len(model.requests) == 2
    answers = [event for event in forked.result.events if event.type == "InferenceCompleted"]
    assert all(event.meta["origin"] is None for event in answers)
    compared = compare_run(forked.recorded, forked.result.events)
    assert compared.first is not None
    assert compared.first.type != "ContextPackBuilt"
    assert publisher.events(SESSION)[-1].hash == events[-1].hash


def test_a_fork_of_a_fork_keeps_its_own_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher, events = session_of(TRIAGE, tmp_path, monkeypatch)
    turns = [event.seq for event in events if event.type == "TurnStarted"]
    first = run_in_fork(publisher, SESSION, turns[-2], RECORDED, documents=[denying("reply")], suffix="one")
    assert first.result.counts.missed == 0 or first.result.stopped
    child = publisher.history(first.session_id)
    second = run_in_fork(publisher, first.session_id, None, RECORDED, suffix="two")
    line = publisher.history(second.session_id)
    shared = [(event.session_id, event.seq) for event in line if event.session_id != second.session_id]
    assert shared == [(event.session_id, event.seq) for event in child][: len(shared)]
    assert first.session_id in {owner for owner, _ in shared}
    denied = [event for event in line if event.type == "ToolCallRejected" and event.body["basis"] == "POLICY_DENY"]
    assert denied


def changes_by(what: str, folder: Path) -> Changes:
    if what == "model":
        return Changes(model="larger")
    if what == "policy":
        (folder / "own.yaml").write_text(
            "name: own\nrules: [{id: none, decision: DENY, when: 'call.tool == \"refund\"'}]\n"
        )
        return Changes(policy=folder / "own.yaml")
    other = Path(shutil.copytree(EXAMPLES / "triage", folder / "other"))
    text = (other / "workflow.yaml").read_text()
    (other / "workflow.yaml").write_text(text.replace("You work at the service desk", "You are at the service desk"))
    (other / "policy.yaml").write_text("name: none\n")
    return Changes(workflow=other / "workflow.yaml")


@pytest.mark.parametrize("mode", ["inference-skipping", "full", "simulation"])
@pytest.mark.parametrize("what", ["policy", "workflow", "model"])
def test_an_untouched_fork_by_other_documents_is_equal_in_every_mode(
    what: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher, events = session_of(TRIAGE, tmp_path, monkeypatch)
    changed = changes_by(what, tmp_path).of(configuration_in_log(events, publisher.blobs))
    assert {each.kind for each in changed} >= {
        "POLICY" if what == "policy" else "WORKFLOW" if what == "model" else "PROMPT_TEMPLATE"
    }
    forks = [run_in_fork(publisher, SESSION, first_turn(events), RECORDED, documents=changed, suffix="one").session_id]
    for at, suffix in ((None, "two"), (first_own_turn(publisher, forks[0]), "three")):  # forks of the fork
        again = run_in_fork(publisher, forks[0], at, RECORDED, documents=[denying("reply")], suffix=suffix)
        forks.append(again.session_id)
    for fork in forks:
        history = publisher.history(fork)
        assert [event.type for event in history if event.session_id == fork][1:3] == ["SessionForked", "ConfigPinned"]
        found = replay_session(Replay(history, Strategy(mode=mode, on_miss="stop"), StoredContents(publisher.blobs)))
        assert (found.verdict, found.divergences, found.tainted) == ("EQUAL", [], False), fork
        assert found.equal == found.compared > 0


def first_own_turn(publisher: MemoryPublisher, fork: str) -> int:
    return next(event.seq for event in publisher.events(fork) if event.type == "TurnStarted")

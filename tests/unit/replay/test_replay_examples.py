"""Examples, forks, crashed and imported sessions replayed in each mode; changed deciders found by deciding again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dalsegno.harness.performing import Ports
from dalsegno.model.records import Event
from dalsegno.orchestration.ports import Answer, Request
from dalsegno.replay.divergence import Divergence
from dalsegno.replay.forked import run_in_fork
from dalsegno.replay.replayed import Replayed
from dalsegno.replay.session_replay import Asked, replay_session
from dalsegno.replay.strategy import Strategy
from dalsegno.testing import MemoryPublisher
from decider_variants import VARIANTS, Variant, install, recorded
from recordings import events_of, recording_of
from workflow_lab import CODING, PREFIX, SESSION, TRIAGE, Example, Point, Run

MODES = ("inference-skipping", "full", "simulation")
RUNS = ("full", "simulation")


def replayed(events: list[Event], mode: str, **given: Any) -> Replayed:
    return replay_session(Asked(events, Strategy(mode=mode, on_miss="stop"), **given))


def first(found: Replayed) -> Divergence:
    assert found.verdict == "DIVERGED"
    return found.divergences[0]


def equal(found: Replayed, stopped: str | None = None) -> None:
    assert found.divergences == []
    assert (found.verdict, found.stopped, found.left_over, found.unreconstructable) == ("EQUAL", stopped, 0, None)
    assert (found.counts.inexact, found.counts.missed, found.counts.rerun, found.counts.simulated) == (0, 0, 0, 0)
    assert found.equal == found.compared > 0


@pytest.mark.parametrize("deaths", [[], [Point(60, stored=True)]], ids=["at once", "with a crash"])
@pytest.mark.parametrize("example", [TRIAGE, CODING], ids=lambda each: each.name)
def test_an_example_is_equal_in_every_mode(
    example: Example, deaths: list[Point], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(example, tmp_path / "work", monkeypatch)
    assert run.to_its_end(deaths).why == "ENDED"
    events = run.recorded()
    assert any(event.type == "SessionRecovered" for event in events) == bool(deaths)
    middle = [event.seq for event in events if event.type == "ContextPackBuilt"][-1]
    for mode in MODES:
        whole = replayed(events, mode)
        equal(whole)
        rest = replayed(events, mode, start=middle)
        equal(rest)
        assert rest.compared < whole.compared
        equal(replayed(events, mode, until=middle), "the recording ends here" if mode in RUNS else None)


def test_a_fork_is_replayed_as_its_own_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(TRIAGE, tmp_path / "work", monkeypatch)
    run.to_its_end()
    publisher = MemoryPublisher(run.log, prefix=PREFIX, writer="fork/1/a")
    turns = [event.seq for event in publisher.events(SESSION) if event.type == "TurnStarted"]
    fork = run_in_fork(publisher, SESSION, turns[-2], Strategy(on_miss="stop"), suffix="f").session_id
    events = publisher.history(fork)
    own = [event for event in events if event.session_id == fork]
    turn = next(event.seq for event in own if event.type == "TurnStarted")
    assert turn == 3
    for mode in MODES:
        whole = replayed(events, mode)
        equal(whole)
        assert whole.compared < replayed(publisher.events(SESSION), mode).compared
        # Its first seqs are no turn of its own; those of its parent are not replayed for that.
        for start in (2, 3):
            before_its_turn = replayed(events, mode, start=start)
            equal(before_its_turn)
            assert (before_its_turn.compared, before_its_turn.snapped_back) == (whole.compared, 0), (mode, start)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: each.name)
@pytest.mark.parametrize("mode", MODES)
def test_a_changed_decider_is_found(mode: str, variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    events = recorded().events
    equal(replayed(events, mode))
    install(monkeypatch, variant)
    found = first(replayed(events, mode))
    assert found.seq == variant.differs_at
    missing = mode == "inference-skipping" and found.type == "ApprovalGranted"
    assert found.kind == ("MISSING_RECORD" if missing else "CODE")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["POLICY", "WORKFLOW"])
def test_without_a_document_no_decision_can_be_reconstructed(kind: str, mode: str) -> None:
    events = [e for e in recorded().events if e.type != "ConfigPinned" or e.body["kind"] != kind]
    found = replayed(events, mode)
    started = next(event.seq for event in events if event.type == "SessionStarted")
    assert found.unreconstructable == (started + 1, f"no {kind} document was pinned")
    assert (found.verdict, found.compared, found.diverged) == ("NOT_COMPARED", 0, 0)


@pytest.mark.parametrize("mode", MODES)
def test_of_a_session_whose_creation_was_erased_nothing_is_said(mode: str) -> None:
    events = recorded().events
    erased = [msgspec.structs.replace(events[0], stub="ERASED"), *events[1:]]
    found = replayed(erased, mode)
    assert found.unreconstructable == (1, "the SessionCreated at seq 1 was erased")
    assert (found.verdict, found.compared) == ("NOT_COMPARED", 0)


@pytest.mark.parametrize("mode", RUNS)
def test_a_run_that_lacks_a_fact_says_so_and_is_not_equal(mode: str) -> None:
    events = recorded().events
    without = [event for event in events if event.type != "ApprovalGranted"]
    found = replayed(without, mode)
    assert found.stopped is not None
    assert found.verdict != "EQUAL"


@pytest.mark.parametrize("mode", MODES)
def test_another_version_of_the_decider_is_told(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    events = recorded().events
    assert replayed(events, mode).what_if == []
    monkeypatch.setattr("dalsegno.replay.check.DECIDER_VERSION", 2)
    assert replayed(events, mode).what_if == ["decided by decider 1; this build has 2"]


class Model:
    """Answers all alike."""

    def complete(self, _request: Request) -> Answer:
        return Answer(text="done")

    def now(self) -> int:
        return 1


def test_what_follows_from_answers_of_now_has_no_identity() -> None:
    model = Model()
    strategy = Strategy(mode="simulation", inference="scripted", on_miss="stop")
    ports = Ports(clock=model, providers={"*": model})
    found = replay_session(Asked(recorded().events, strategy, ports=ports))
    assert found.counts.rerun > 0
    assert (found.identity, found.verdict) == ("", "DIVERGED")
    assert replayed(recorded().events, "simulation").identity


def test_an_imported_session_is_checked_on_what_it_says_and_cannot_be_run() -> None:
    events = list(events_of(recording_of("inspect-ai", "browser.json"))[0])
    found = replayed(events, "inference-skipping")
    assert (found.verdict, found.equal, found.compared, found.derived) == ("EQUAL", 4, 4, 0)
    assert sum(found.not_comparable.values()) == 16
    for mode in RUNS:
        run = replayed(events, mode)
        assert (run.verdict, run.compared) == ("NOT_COMPARED", 0)
        assert run.not_comparable == {"the session is not decided by a decider": 1}

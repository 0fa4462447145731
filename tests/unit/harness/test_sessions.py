"""Sessions that are begun, killed and taken over: equal outcomes, each effect once, nothing that was open forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dalsegno import events
from dalsegno.errors import Conflict, InvalidEvent, SessionMissing, SessionSuperseded
from dalsegno.harness.past import history
from dalsegno.harness.sessions import begin, resume
from dalsegno.model.records import Event
from dalsegno.orchestration.recovery import resolutions
from dalsegno.projections.decider.fold import fold_event
from dalsegno.projections.decider.table import MemoryRows
from dalsegno.storage.blobs import blob
from session_lab import SESSION, Killed, Process, World, killed_behind, outcome, stage

C0, C1 = "work.1/t1/c0", "work.1/t1/c1"
SCRIPT: list[dict[str, Any]] = [
    {
        "match": "work.1/t1/i",
        "calls": [{"name": "look", "arguments": {"what": "it"}}, {"name": "pay", "arguments": {"cents": 5}}],
    },
    {"match": "*", "text": "done"},
]
WIRE: list[dict[str, Any]] = [
    {"match": "work.1/t1/i", "calls": [{"name": "wire", "arguments": {"cents": 7}}]},
    {"match": "*", "text": "done"},
]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dalsegno.harness.live.LOOK_SECONDS", 0.005)


def paying(folder: Path) -> World:
    folder.mkdir(exist_ok=True)
    return World(folder, SCRIPT, [stage("work", validators=["said"])])


def finished(world: World) -> Process:
    """Processes, until one of them reaches the end."""
    process = world.process()
    assert process.resume().why == "ENDED"
    return process


def test_a_session_runs_to_its_end(tmp_path: Path) -> None:
    process = paying(tmp_path).process()
    assert process.begin().why == "ENDED"
    found = outcome(process.events())
    assert found["end"] == ("SUCCESS", b"done", [])
    assert found["verdicts"] == {"work.1/t2/v.said": "PASS"}
    assert set(found["calls"]) == {C0, C1}
    assert len(process.world.effects.lines()) == 1


def test_a_goal_that_no_agent_would_be_shown_begins_nothing(tmp_path: Path) -> None:
    process = paying(tmp_path).process()
    session = process.publisher.session(SESSION)
    with pytest.raises(InvalidEvent, match="a goal of 65537 bytes"):
        begin(session, process.world.documents, goal="x" * 65_537, clock=process.world.clock)
    assert session.seq == 0


def test_killed_behind_each_append_it_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    undisturbed = paying(tmp_path / "undisturbed")
    whole = undisturbed.process()
    whole.begin()
    expected, count = outcome(whole.events()), len(whole.events())
    assert count > 25
    for kill in range(1, count):
        world = paying(tmp_path / str(kill))
        with pytest.raises(Killed):
            world.process().begin(after=killed_behind(kill))
        found = finished(world).events()
        assert outcome(found) == expected, f"killed behind append {kill}"
        assert world.effects.lines() == undisturbed.effects.lines(), f"killed behind append {kill}"
        _check_recoveries(found)


def _check_recoveries(found: list[Event]) -> None:
    """What each recovery says follows from the events before it, as a replay computes it."""
    rows = MemoryRows()
    for event in found:
        if event.type == "SessionRecovered":
            said = {(each["kind"], each["id"]): each["resolution"] for each in event.body["in_flight"]}
            assert said == resolutions(rows)
        fold_event(rows, event)


def test_an_effect_behind_which_the_process_is_killed_happens_once_where_the_tool_honours_its_key(
    tmp_path: Path,
) -> None:
    world = paying(tmp_path)
    world.effects.kill_in = "pay"
    with pytest.raises(Killed):
        world.process().begin()
    assert len(world.effects.lines()) == 1
    world.effects.kill_in = ""
    process = finished(world)
    assert [body["attempt"] for body in process.of_type("ToolCallStarted") if body["tool_call_id"] == C1] == [1, 2]
    assert len(world.effects.lines()) == 1


def test_a_tool_without_a_key_is_not_run_again_and_its_late_receipt_closes_its_very_call(tmp_path: Path) -> None:
    """C40: the process dies behind the effect and before the result."""
    world = World(tmp_path, WIRE)
    world.effects.kill_in = "wire"
    with pytest.raises(Killed):
        world.process().begin()
    for _ in range(2):  # however often it is resumed
        process = world.process()
        stopped = process.resume()
        assert (stopped.why, stopped.waits_for) == ("WAITING", (C0,))
        assert process.of_type("SessionRecovered")[-1]["in_flight"] == [
            {"kind": "TOOL", "id": C0, "resolution": "UNKNOWN_OUTCOME"}
        ]
        assert not process.of_type("ToolCallFailed")
    content = blob("sent, says the bank")
    process.send(
        events.ToolReceiptRecorded(
            tool_call_id=C0, attempt=1, status="OK", receipt_id="bank-1", result=content, result_digest=content.digest,
            started_at=1, ended_at=2, simulated=False,
        )
    )  # fmt: skip
    process = finished(world)
    assert outcome(process.events())["calls"] == {C0: ("OK", b"sent, says the bank")}
    assert world.effects.lines() == ["wire 7"]


def test_who_was_superseded_begins_nothing_more(tmp_path: Path) -> None:
    """Somebody took the session over while its harness was believed dead."""
    world = World(tmp_path, WIRE)

    def taken_over(event: Event) -> None:
        if event.type == "ToolCallStarted":
            with pytest.raises(Killed):
                world.process().resume(after=killed_behind(1))

    with pytest.raises(SessionSuperseded):
        world.process().begin(after=taken_over)
    assert world.effects.lines() == []


def test_a_crash_before_the_start_is_finished_with_the_documents_given(tmp_path: Path) -> None:
    world = paying(tmp_path)
    with pytest.raises(Killed):
        world.process().begin(after=killed_behind(4))
    with pytest.raises(Conflict, match="it lacks TOOL_CATALOG"):
        resume(world.process().publisher, SESSION, clock=world.clock)
    world.documents = world.pinned([stage("other", agent="a")])
    with pytest.raises(Conflict, match="with another WORKFLOW"):
        world.process().resume()
    assert "SessionRecovered" not in [event.type for event in world.process().events()]
    world.documents = world.pinned([stage("work", validators=["said"])])
    pinned = finished(world).of_type("ConfigPinned")
    assert len({body["kind"] for body in pinned}) == len(pinned) == 8


def test_what_has_ended_or_is_not_there_is_not_taken_over(tmp_path: Path) -> None:
    process = paying(tmp_path).process()
    with pytest.raises(SessionMissing):
        process.resume()
    process.begin()
    before = len(process.events())
    with pytest.raises(Conflict, match="ended by SessionCompleted"):
        process.resume()
    assert len(process.events()) == before


def test_a_session_that_another_program_decides_is_not_taken_over(tmp_path: Path) -> None:
    process = paying(tmp_path).process()
    with process.publisher.session(SESSION) as session:
        session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
        session.append(events.SessionStarted())
    with pytest.raises(Conflict, match="decided by another program"):
        process.resume()


def test_a_session_of_another_version_of_the_decider_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = paying(tmp_path)
    with pytest.raises(Killed):
        world.process().begin(after=killed_behind(20))
    monkeypatch.setattr("dalsegno.harness.sessions.DECIDER_VERSION", 1000)
    with pytest.raises(Conflict, match="this build has 1000"):
        world.process().resume()


def test_a_content_that_is_too_large_for_an_event_comes_from_the_store(tmp_path: Path) -> None:
    large = "x" * 100_000
    script = [{"match": "*/t1/i", "calls": [{"name": "look", "arguments": {"what": large}}]}, *SCRIPT[1:]]
    world = World(tmp_path, script)
    with pytest.raises(Killed):
        world.process().begin(after=killed_behind(20))
    process = world.process()
    assert [body["result"]["inline"] for body in process.of_type("ToolReceiptRecorded")] == []
    process.resume()
    [receipt] = process.of_type("ToolReceiptRecorded")
    assert receipt["result"]["inline"] is None
    assert receipt["result"]["size"] > len(large)


def test_a_fork_goes_on_from_the_prefix_that_it_takes_over(tmp_path: Path) -> None:
    process = paying(tmp_path).process()
    process.begin()
    fork = process.publisher.fork(SESSION, purpose="RECOVERY", suffix="f")
    fork.close()
    conductor = resume(process.publisher, fork.session_id, clock=process.world.clock)
    assert process._live(conductor, 0.0).why == "ENDED"
    whole = history(process.publisher, fork.session_id)
    assert outcome(whole)["end"] == ("SUCCESS", b"done", [])
    assert whole[0].session_id == SESSION
    assert whole[-1].session_id == fork.session_id


@pytest.mark.parametrize("purpose", ["WHAT_IF", "DATASET", "DEBUG"])
def test_a_fork_in_which_something_is_tried_acts_only_where_somebody_says_so(tmp_path: Path, purpose: Any) -> None:
    process = paying(tmp_path).process()
    process.begin()
    with process.publisher.fork(SESSION, purpose=purpose, suffix="f") as fork:
        pass
    before = len(history(process.publisher, fork.session_id))
    with pytest.raises(Conflict, match=f"is a fork for {purpose}") as refused:
        resume(process.publisher, fork.session_id, clock=process.world.clock)
    assert "--act-in-fork" in refused.value.todo
    assert len(history(process.publisher, fork.session_id)) == before, "not even a recovery is written"
    conductor = resume(process.publisher, fork.session_id, clock=process.world.clock, act_in_fork=True)
    assert process._live(conductor, 0.0).why == "ENDED"


def test_a_fork_of_a_trial_that_is_to_go_on_goes_on(tmp_path: Path) -> None:
    """What counts is what the fork itself is for."""
    process = paying(tmp_path).process()
    process.begin()
    with process.publisher.fork(SESSION, purpose="WHAT_IF", suffix="f") as tried:
        pass
    conductor = resume(process.publisher, tried.session_id, clock=process.world.clock, act_in_fork=True)
    assert process._live(conductor, 0.0).why == "ENDED"
    with process.publisher.fork(tried.session_id, purpose="RETRY", suffix="g") as fork:
        pass
    resume(process.publisher, fork.session_id, clock=process.world.clock)

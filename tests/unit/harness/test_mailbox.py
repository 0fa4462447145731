"""What people ask of a session that is run: taken up where nothing is due, first of all after a crash, and once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from dalsegno import events
from dalsegno.errors import WaitTimeout
from dalsegno.harness.live import COMMANDS_IN_A_ROW, Stopped
from dalsegno.model.records import Event
from dalsegno.orchestration.documents import Obligation, PolicyRule, Question
from dalsegno.storage.blobs import blob
from session_lab import MARIA, Killed, World, killed_behind, notes, outcome, stage

C0, A1 = "work.1/t1/c0", "work.1/t1/c0/a1"
Q = "work.1/q.file"
SCRIPT: list[dict[str, Any]] = [
    {"match": "work.1/t1/i", "calls": [{"name": "pay", "arguments": {"cents": 5}}]},
    {"match": "*", "text": "done"},
]
HOUR = 3_600_000_000
NONSENSE = events.InputProvided(request_id="nothing", outcome="DECLINED")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dalsegno.harness.live.LOOK_SECONDS", 0.005)


class Later:
    """The clock of a machine on which some time has passed."""

    def __init__(self, micros: int) -> None:
        self._micros = micros

    def now(self) -> int:
        return time.time_ns() // 1000 + self._micros


def asking(folder: Path, **given: Any) -> World:
    """A world in which payments need leave."""
    rule = PolicyRule(id="ask", decision="REQUIRE_APPROVAL", when='call.tool == "pay"', approval=Obligation(**given))
    return World(folder, SCRIPT, policy=[rule])


# case C38
def test_an_approval_is_waited_for_with_the_same_id_over_crashes(tmp_path: Path) -> None:
    """C38: the waiting list is rebuilt from the log, and the answer counts for the id that was asked with."""
    world = asking(tmp_path)
    assert world.process().begin().waits_for == (C0, A1)
    process = world.process()
    assert process.resume().waits_for == (C0, A1)
    assert [body["approval_id"] for body in process.of_type("ApprovalRequested")] == [A1]
    process.grant(A1)
    process = world.process()
    assert process.resume().why == "ENDED"
    [granted] = [event for event in process.events() if event.type == "ApprovalGranted"]
    assert (granted.meta["actor_kind"], granted.meta["actor_id"]) == MARIA
    assert len(world.effects.lines()) == 1


def test_an_approval_that_is_answered_twice_counts_once_and_the_other_answer_is_a_note(tmp_path: Path) -> None:
    world = asking(tmp_path)
    process = world.process()
    process.begin()
    process.grant(A1)
    process.grant(A1)
    process = world.process()
    assert process.resume().why == "ENDED"
    assert len(process.of_type("ApprovalGranted")) == 1
    assert notes(process.events()) == [("inbox-repeat", f"APPROVAL {A1} is GRANTED")]
    assert process.inbox.commands_of(["s-1"]).new() == []


# case C38
def test_a_granted_call_whose_process_dies_before_it_starts_is_started_by_the_next_one(tmp_path: Path) -> None:
    """C38: 'approved, not started' stays visible, and is not used up."""
    world = asking(tmp_path)
    process = world.process()
    process.begin()
    process.grant(A1)
    with pytest.raises(Killed):
        world.process().resume(after=killed_behind(3))  # SessionRecovered, ApprovalGranted, ToolCallAuthorized
    assert process.of_type("ToolCallAuthorized")
    assert not process.of_type("ToolCallStarted")
    process = world.process()
    assert process.resume().why == "ENDED"
    assert len(process.of_type("ApprovalRequested")) == 1
    assert len(world.effects.lines()) == 1


def test_after_a_crash_the_inbox_comes_before_expiry(tmp_path: Path) -> None:
    """The grant was stored in time, while no process was there to take it up."""
    world = asking(tmp_path, ttl_seconds=60)
    process = world.process()
    process.begin()
    process.grant(A1)
    world.clock = Later(HOUR)
    process = world.process()
    assert process.resume().why == "ENDED"
    assert not process.of_type("ApprovalExpired")
    assert len(world.effects.lines()) == 1


def test_nobody_answers_in_time_and_the_approval_expires(tmp_path: Path) -> None:
    world = asking(tmp_path, ttl_seconds=60)
    world.process().begin()
    world.clock = Later(HOUR)
    process = world.process()
    assert process.resume().why == "ENDED"
    assert [body["approval_id"] for body in process.of_type("ApprovalExpired")] == [A1]
    assert world.effects.lines() == []


def test_an_answer_of_somebody_who_was_not_asked_is_a_note(tmp_path: Path) -> None:
    world = asking(tmp_path, to=[["lead"]])
    process = world.process()
    process.begin()
    process.grant(A1)
    process = world.process()
    assert process.resume().why == "WAITING"
    assert notes(process.events()) == [("inbox-refused", "maria is not among those who were asked: lead")]
    process.grant(A1, actor=("USER", "lead"))
    assert world.process().resume().why == "ENDED"


def test_an_answer_must_fit_the_schema_of_its_question(tmp_path: Path) -> None:
    question = Question(id="file", prompt="which file?", schema={"type": "object", "required": ["path"]})
    world = World(tmp_path, SCRIPT, [stage("work", ask=[question])])
    process = world.process()
    assert process.begin().waits_for == (Q,)
    for given in ("no JSON", '{"a": 1}', '{"path": "a.py"}'):
        process.send(events.InputProvided(request_id=Q, outcome="ACCEPTED", content=blob(given)))
    process = world.process()
    assert process.resume().why == "ENDED"
    [first, second] = notes(process.events())
    assert first[1].startswith("it is no JSON")
    assert "required" in second[1] or "path" in second[1]
    [provided] = process.of_type("InputProvided")
    assert provided["content"]["inline"] == b'{"path": "a.py"}'


def test_a_large_answer_is_checked_where_it_lies(tmp_path: Path) -> None:
    question = Question(id="file", prompt="which?", schema={"type": "string", "maxLength": 10})
    world = World(tmp_path, SCRIPT, [stage("work", ask=[question])])
    process = world.process()
    process.begin()
    process.send(events.InputProvided(request_id=Q, outcome="ACCEPTED", content=blob('"' + "x" * 100_000 + '"')))
    process = world.process()
    assert process.resume().why == "WAITING"
    assert [kind for kind, _ in notes(process.events())] == ["inbox-refused"]


def test_a_command_that_was_applied_and_not_taken_out_is_not_applied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = asking(tmp_path)
    process = world.process()
    process.begin()
    process.grant(A1, command_id="one")

    def lost(*_: Any) -> None:
        raise WaitTimeout("no report")

    dying = world.process()
    monkeypatch.setattr(dying.inbox, "take_out", lost)
    with pytest.raises(WaitTimeout):
        dying.resume()
    process = world.process()
    assert process.resume().why == "ENDED"
    assert len(process.of_type("ApprovalGranted")) == 1
    assert notes(process.events()) == []


def test_a_session_is_cancelled_by_a_command(tmp_path: Path) -> None:
    world = asking(tmp_path)
    process = world.process()
    process.begin()
    process.send(events.CancelRequested(reason="no more money"))
    process = world.process()
    assert process.resume().why == "ENDED"
    assert process.events()[-1].type == "SessionCancelled"
    assert outcome(process.events())["calls"] == {}
    assert world.effects.lines() == []


def test_an_answer_that_comes_with_the_end_is_told_that_it_came_too_late(tmp_path: Path) -> None:
    world = asking(tmp_path)
    process = world.process()
    process.begin()
    process.grant(A1)

    def again(event: Event) -> None:
        if event.type == "SessionCompleted":
            process.grant(A1)

    process = world.process()
    assert process.resume(after=again).why == "ENDED"
    assert notes(process.events()) == [("inbox-refused", "the session is COMPLETED")]
    assert process.inbox.commands_of(["s-1"]).new() == []


def test_command_after_command_does_not_keep_a_session_from_its_work(tmp_path: Path) -> None:
    """Whoever sends nonsense faster than it is taken up neither stops a session nor suspends its limits."""
    process = World(tmp_path, SCRIPT).process()
    send, sent = process.inbox.commands_of, [0]

    class Flood:
        def __init__(self, ids: Any) -> None:
            self._commands = send(ids)

        def new(self) -> Any:
            sent[0] += 1
            if sent[0] <= 10 * COMMANDS_IN_A_ROW:
                process.send(NONSENSE)
            return self._commands.new()

    process.inbox.commands_of = Flood  # type: ignore[assignment,method-assign]
    assert process.begin() == Stopped("ENDED")
    recorded = [event.type for event in process.events()]
    assert recorded.index("InferenceRequested") <= COMMANDS_IN_A_ROW + 20
    assert sent[0] < 10 * COMMANDS_IN_A_ROW


def test_an_answer_behind_many_commands_is_taken_up_before_anybody_stops_waiting(tmp_path: Path) -> None:
    world = asking(tmp_path)
    process = world.process()
    process.begin()
    for _ in range(2 * COMMANDS_IN_A_ROW + 1):
        process.send(NONSENSE)
    process.grant(A1)
    assert world.process().resume() == Stopped("ENDED")
    assert len(world.effects.lines()) == 1

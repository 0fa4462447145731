"""The live loop with ports in memory: what is begun, what is waited for, what becomes of an answer nobody wants."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from dalsegno import events
from dalsegno.errors import InvalidEvent
from dalsegno.harness.conductor import Conductor
from dalsegno.harness.live import Live, Mail, NoMail, Stopped
from dalsegno.harness.performing import Ports
from dalsegno.harness.providers.scripted import Scripted
from dalsegno.model.events import NewEvent
from dalsegno.model.records import Event
from dalsegno.orchestration.documents import PolicyRule, Retrieval
from dalsegno.orchestration.ports import ToolFailed, ToolResult, ToolRun, Verdict
from decider_lab import APPROVE, Scene, check_log, stage

C0 = "work.1/t1/c0"
LOOKS = [{"match": "*/t1/i", "calls": [{"name": "look"}]}, {"match": "*", "text": "done"}]
WRITES = [{"match": "*/t1/i", "calls": [{"name": "write", "arguments": {"n": 1}}]}, {"match": "*", "text": "done"}]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dalsegno.harness.live.LOOK_SECONDS", 0.01)


class Clock:
    """A second passes at each look."""

    def __init__(self) -> None:
        self.moment = 0

    def now(self) -> int:
        self.moment += 1_000_000
        return self.moment


class Tools:
    """``does``: what a call gives, by its id."""

    name = "lab"

    def __init__(self, does: Callable[[ToolRun], ToolResult] = lambda _run: ToolResult(b"seen")) -> None:
        self._does = does
        self.ran: list[tuple[str, int]] = []

    def run(self, call: ToolRun) -> ToolResult:
        self.ran.append((call.tool_call_id, call.attempt))
        return self._does(call)


class Fails:
    """A port that breaks."""

    def report(self, *_: Any) -> Verdict:
        raise OSError("no such program")

    def fetch(self, *_: Any) -> tuple[bytes, str, str | None]:
        raise OSError("no such host")


def run(scene: Scene, script: list[Any], mail: Mail | None = None, **ports: Any) -> Stopped:
    given = {"clock": Clock(), "providers": {"*": Scripted(script)}, "tools": Tools()} | ports
    return Live(scene.conductor, Ports(**given), mail, patience_seconds=3).run()


def notes(scene: Scene) -> list[str]:
    found = [event.body["data"]["inline"].decode() for event in scene.events if event.type == "NoteRecorded"]
    return [note.partition(":")[0] for note in found]


def test_a_session_runs_to_its_end() -> None:
    scene = Scene([stage("plan"), stage("work")], begun=False)
    assert run(scene, LOOKS) == Stopped("ENDED")
    assert scene.events[-1].type == "SessionCompleted"
    check_log(scene)


def test_a_lost_call_is_waited_for_by_name_and_begun_once() -> None:
    def lose(_run: ToolRun) -> ToolResult:
        raise ToolFailed("TIMEOUT", "no word of it")

    scene, tools = Scene(), Tools(lose)
    assert run(scene, WRITES, tools=tools) == Stopped("WAITING", (C0,))
    assert tools.ran == [(C0, 1)]
    check_log(scene)


def test_an_approval_is_waited_for_by_name() -> None:
    scene = Scene(policy=[APPROVE])
    assert run(scene, WRITES).waits_for == (C0, f"{C0}/a1")


def test_ports_that_break_are_facts() -> None:
    scene = Scene([stage(validators=["tests"], retrieve=[Retrieval(id="kb")])], begun=False)
    run(scene, LOOKS, reporters={"tests": Fails()}, retriever=Fails())
    assert scene.body("VerdictReported")["label"] == "OSError: no such program"
    assert b"no such host" in scene.body("ContextItemRetrieved")["content"]["inline"]
    assert scene.body("SessionFailed")["error"]["error_class"] == "rejected"
    check_log(scene)


def test_a_simulated_call_begins_no_sub_session() -> None:
    began: list[str] = []

    def begin(child: str, *_: Any) -> events.SubSessionEnded:
        began.append(child)
        raise AssertionError

    script = [{"match": "*/t1/i", "calls": [{"name": "delegate"}]}, {"match": "*", "text": "done"}]
    scene = Scene(policy=[PolicyRule(id="sim", decision="SIMULATE")])
    assert run(scene, script, sub_session=begin).why == "ENDED"
    assert not began
    assert scene.body("ToolCallStarted")["child_session"] is None


def test_what_an_approver_ends_is_called_off() -> None:
    class Denies(NoMail):
        def __init__(self) -> None:
            self.done = False

        def take_up(self, conductor: Conductor) -> bool:
            if self.done or not scene.open("approval"):
                return False
            self.done = True
            [approval] = scene.open("approval")
            conductor.append(
                events.ApprovalDenied(approval_id=approval, effect="ABORT_TURN", rejection_source="USER")
            )  # fmt: skip
            return True

    script = [{"match": "*/t1/i", "calls": [{"name": "look"}, {"name": "write", "arguments": {"n": 1}}]}]
    scene, tools = Scene(policy=[APPROVE]), Tools()
    assert run(scene, script, Denies(), tools=tools).why == "ENDED"
    assert tools.ran == [], "the denial came before anything was begun"
    assert scene.body("ToolCallFailed")["reason"] == "CANCELLED"
    assert scene.body("SessionFailed")["open_ops"] == []
    check_log(scene)


@pytest.mark.parametrize("family", ["InferenceCompleted", "ToolReceiptRecorded", "VerdictReported"])
def test_an_answer_that_the_log_cannot_hold_is_a_failure(family: str) -> None:
    scene = Scene([stage(validators=["tests"])])
    append = scene.recorder.append

    def refuse(event: NewEvent, **how: Any) -> Event:
        if family == event.TYPE and getattr(event, "label", None) is None:
            raise InvalidEvent("too large", wanted="a smaller one")
        return append(event, **how)

    scene.recorder.append = refuse  # type: ignore[method-assign]
    reporters = {"tests": type("Passes", (), {"report": lambda *_: Verdict("PASS")})()}
    stopped = run(scene, WRITES, reporters=reporters)
    assert notes(scene)[0] == family
    if family == "ToolReceiptRecorded":
        assert stopped == Stopped("WAITING", (C0,)), "it ran"
    else:
        assert stopped.why == "ENDED"
    check_log(scene)


@pytest.mark.parametrize("number", [64, 65])
def test_an_answer_with_more_calls_than_are_decided_on_is_a_failed_one(number: int) -> None:
    script = [{"match": "*/t1/i", "calls": [{"name": "look"}] * number}, {"match": "*", "text": "done"}]
    scene, tools = Scene(), Tools()
    run(scene, script, tools=tools)
    failed = [event.body["error"]["error_class"] for event in scene.events if event.type == "InferenceFailed"]
    requested = sum(event.type == "ToolCallRequested" for event in scene.events)
    if number == 64:
        assert (failed, requested, len(tools.ran)) == ([], 64, 64)
        assert scene.events[-1].type == "SessionCompleted"
    else:
        assert (failed, requested, tools.ran) == (["too-many-calls"], 0, [])
    check_log(scene)


def cancelled_during(does: Callable[[threading.Event], ToolResult]) -> Scene:
    """A session that is cancelled while its call runs; ``does`` is told of the cancel."""
    begun, cancelled = threading.Event(), threading.Event()

    def slow(_run: ToolRun) -> ToolResult:
        begun.set()
        return does(cancelled)

    class Cancels(NoMail):
        def take_up(self, conductor: Conductor) -> bool:
            if cancelled.is_set() or not begun.is_set():
                return False
            conductor.append(events.CancelRequested(requested_by="maria", reason=None))
            cancelled.set()
            return True

    scene = Scene()
    assert run(scene, WRITES, Cancels(), tools=Tools(slow)) == Stopped("ENDED")
    assert scene.body("SessionCancelled")["open_ops"] == [C0]
    return scene


def test_what_a_call_did_is_recorded_behind_the_sessions_end() -> None:
    def answers(cancelled: threading.Event) -> ToolResult:
        assert cancelled.wait(10)
        return ToolResult(b"it is written")

    scene = cancelled_during(answers)
    assert scene.events[-1].type == "ToolReceiptRecorded"
    check_log(scene)


def test_that_a_call_failed_is_noted_behind_the_sessions_end() -> None:
    def fails(cancelled: threading.Event) -> ToolResult:
        assert cancelled.wait(10)
        raise ToolFailed("TIMEOUT", "no word of it")

    assert notes(cancelled_during(fails)) == ["ToolCallFailed"]


def test_the_end_waits_for_a_call_no_longer_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dalsegno.harness.live.LAST_RECEIPTS_SECONDS", 0.01)
    released = threading.Event()

    def hangs(_cancelled: threading.Event) -> ToolResult:
        assert released.wait(30)
        return ToolResult(b"too late")

    assert cancelled_during(hangs).events[-1].type == "SessionCancelled"
    released.set()


def test_a_pause_waits_for_what_is_under_way() -> None:
    begun, paused = threading.Event(), threading.Event()

    def slow(_run: ToolRun) -> ToolResult:
        begun.set()
        assert paused.wait(10)
        return ToolResult(b"seen")

    class Pauses(NoMail):
        def take_up(self, conductor: Conductor) -> bool:
            if paused.is_set() or not begun.is_set():
                return False
            conductor.append(events.SessionPaused(reason="lunch", by_limit=False))
            paused.set()
            return True

    scene = Scene()
    assert run(scene, LOOKS, Pauses(), tools=Tools(slow)) == Stopped("PAUSED")
    assert scene.events[-1].type == "ToolReceiptRecorded"
    check_log(scene)

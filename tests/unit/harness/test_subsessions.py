"""Tool calls that are sessions of their own: begun once, taken over where they were left, told to the caller."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from dalsegno import events
from dalsegno.errors import BrokerUnavailable
from dalsegno.harness.live import Live, Stopped
from dalsegno.harness.mailbox import Mailbox
from dalsegno.harness.past import history, read_past
from dalsegno.harness.sessions import After, begin, resume
from dalsegno.harness.subsessions import SubSessions, cancel_below
from dalsegno.model.records import Event
from dalsegno.orchestration.documents import PolicyRule, ToolSpec
from session_lab import SESSION, Killed, Process, World, stage

LABELS = [events.Label(key="shift", value="night")]
C0 = "work.1/t1/c0"
CHILD = f"{SESSION}/{C0}"
ASK = ToolSpec(name="ask_other", parameters={"type": "object"}, workflow="other")
_ASK_FIRST = PolicyRule(id="ask", decision="REQUIRE_APPROVAL", when='call.tool == "pay"')
SCRIPT: list[dict[str, Any]] = [
    {"session": SESSION, "match": "work.1/t1/i", "calls": [{"name": "ask_other", "arguments": {"about": "money"}}]},
    {"session": SESSION, "match": "*", "text": "asked"},
    {"session": CHILD, "match": "sub.1/t1/i", "calls": [{"name": "pay", "arguments": {"cents": 5}}]},
    {"session": CHILD, "match": "*", "text": "the other's answer"},
]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dalsegno.harness.live.LOOK_SECONDS", 0.005)


class Family:
    """A session that asks another one, in one process after the other."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.world = World(folder, SCRIPT, [stage("work", tools=["ask_other"])], delegated=[ASK])
        self.other = self.world.pinned([stage("sub", tools=["pay"])])
        self.process = self.world.process()
        self.patience: float | None = 0.0

    def run(self, *, after: After | None = None, given: bool = True) -> Stopped:
        """Begin it, or go on with it in a process of its own."""
        self.process = process = self.world.process()
        workflows = {"other": self.other} if given else {}
        below = SubSessions(
            process.publisher, workflows, process.ports(), process.inbox, after=after, labels=LABELS,
            live=lambda conductor, ports, mail: Live(conductor, ports, mail, patience_seconds=self.patience),
        )  # fmt: skip
        clock = self.world.clock
        if history(process.publisher, SESSION):
            conductor = resume(process.publisher, SESSION, clock=clock, documents=self.world.documents, after=below.see)
        else:
            session = process.publisher.session(SESSION)
            conductor = begin(session, self.world.documents, goal="g", clock=clock, after=below.see)
        return Live(conductor, below.ports, Mailbox(process.inbox, SESSION), patience_seconds=self.patience).run()

    def of(self, session_id: str) -> list[Event]:
        return history(self.process.publisher, session_id)


def killed_behind(session_id: str, count: int) -> After:
    """Kills the process behind so many events of one of the sessions."""
    left = [count]

    def after(event: Event) -> None:
        if event.session_id == session_id:
            left[0] -= 1
        if left[0] <= 0:
            raise Killed

    return after


def check(family: Family) -> None:
    parent, child = family.of(SESSION), family.of(CHILD)
    [ended] = [event.body for event in parent if event.type == "SubSessionEnded"]
    assert (ended["child_session"], ended["outcome"], ended["tool_call_id"]) == (CHILD, "SUCCESS", C0)
    assert ended["child_final_hash"] == child[-1].hash
    assert ended["result"]["inline"] == b"the other's answer"
    assert parent[-1].body["outcome"] == "SUCCESS"
    assert (child[0].body["relation"], child[0].body["parent_session"]) == ("CHILD", SESSION)
    [first, *_] = [event for event in parent if event.type == "ToolCallStarted"]
    assert child[0].body["parent_at"]["hash"] == first.hash
    assert len(family.world.effects.lines()) == 1


def test_a_call_is_a_session_whose_result_it_gets(tmp_path: Path) -> None:
    family = Family(tmp_path)
    assert family.run().why == "ENDED"
    check(family)
    assert family.of(CHILD)[0].body["goal"]["inline"] == b'{"about":"money"}'


def test_a_policy_below_looks_at_the_labels_of_the_session_above(tmp_path: Path) -> None:
    family = Family(tmp_path)
    at_night = PolicyRule(id="night", decision="DENY", when='has(labels.shift) && labels.shift == "night"')
    family.other = family.world.pinned([stage("sub", tools=["pay"])], policy=[at_night])
    assert family.run().why == "ENDED"
    decided = [event.body["decision"] for event in family.of(CHILD) if event.type == "PolicyEvaluated"]
    assert decided == ["DENY"]
    assert family.world.effects.lines() == []


def test_killed_at_any_event_of_the_child_it_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = Family(tmp_path / "whole")
    whole.run()
    for count in range(1, len(whole.of(CHILD)) + 1):
        family = Family(tmp_path / str(count))
        with pytest.raises(Killed):
            family.run(after=killed_behind(CHILD, count))
        assert family.run().why == "ENDED", f"killed behind event {count} of the child"
        check(family)


def test_without_the_workflow_the_call_fails_as_not_started(tmp_path: Path) -> None:
    family = Family(tmp_path)
    assert family.run(given=False).why == "ENDED"
    failures = [event.body for event in family.of(SESSION) if event.type == "ToolCallFailed"]
    assert failures
    assert all(body["not_started"] for body in failures)
    assert family.of(CHILD) == []


def test_a_child_that_waits_for_people_leaves_its_call_open(tmp_path: Path) -> None:
    family = Family(tmp_path)
    family.other = family.world.pinned([stage("sub", tools=["pay"])], policy=[_ASK_FIRST])
    stopped = family.run()
    assert (stopped.why, stopped.waits_for) == ("WAITING", (C0,))
    process: Process = family.process
    asked = next(event.body for event in family.of(CHILD) if event.type == "ApprovalRequested")
    granted = events.ApprovalGranted(approval_id=asked["approval_id"], arguments_digest=asked["arguments_digest"])
    process.inbox.send(CHILD, granted, actor=("USER", "maria"))
    assert family.run().why == "ENDED"
    check(family)


# --- the session above ends -------------------------------------------------------------------------------------------


def cancelled(family: Family, at: str, session_id: str = SESSION) -> After:
    """Cancels the session above as soon as the child has come to an event of this type."""

    def after(event: Event) -> None:
        if (event.session_id, event.type) == (CHILD, at):
            family.process.inbox.send(session_id, events.CancelRequested(reason="enough"), actor=("OPERATOR", "maria"))

    return after


def check_cancelled(family: Family) -> None:
    parent, child = family.of(SESSION), family.of(CHILD)
    assert [event.type for event in child].count("SessionCancelled") == 1
    [asked] = [event.body for event in child if event.type == "CancelRequested"]
    assert asked["reason"] == f"session {SESSION}, whose call it is, has ended"
    [end] = [event for event in parent if event.type == "SessionCancelled"]
    assert end.body["open_ops"] == [C0]
    assert parent[-1].type == "SubSessionEnded", "what became of the call stands behind the end"
    assert (parent[-1].body["outcome"], parent[-1].body["child_final_hash"]) == ("CANCELLED", child[-1].hash)
    assert family.process.inbox.commands_of([SESSION, CHILD]).new() == []


def test_cancelled_while_its_sub_session_waits_for_people_both_end(tmp_path: Path) -> None:
    family = Family(tmp_path)
    family.other = family.world.pinned([stage("sub", tools=["pay"])], policy=[_ASK_FIRST])
    family.patience = None
    assert family.run(after=cancelled(family, "ApprovalRequested")).why == "ENDED"
    check_cancelled(family)
    assert [event.type for event in family.of(CHILD)].count("ApprovalWithdrawn") == 1


def test_cancelled_while_a_tool_of_its_sub_session_runs_the_receipt_is_still_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = Family(tmp_path)
    over, happen = threading.Event(), family.world.effects.happen

    def slow(what: str) -> str:
        assert over.wait(10)
        return happen(what)

    monkeypatch.setattr(family.world.effects, "happen", slow)
    ask = cancelled(family, "ToolCallStarted")

    def after(event: Event) -> None:
        ask(event)
        if (event.session_id, event.type) == (CHILD, "SessionCancelled"):
            over.set()

    assert family.run(after=after).why == "ENDED"
    assert family.of(CHILD)[-1].type == "ToolReceiptRecorded"
    check_cancelled(family)


def test_a_sub_session_that_ends_by_itself_is_asked_for_nothing(tmp_path: Path) -> None:
    family = Family(tmp_path)
    family.run()
    assert [event.type for event in family.of(CHILD)].count("CancelRequested") == 0
    assert family.process.inbox.commands_of([CHILD]).new() == []


def test_an_inbox_that_cannot_be_reached_does_not_keep_the_session_above_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dalsegno.harness.live.LAST_RECEIPTS_SECONDS", 0.05)
    family = Family(tmp_path)
    family.other = family.world.pinned([stage("sub", tools=["pay"])], policy=[_ASK_FIRST])
    family.patience = None
    ask = cancelled(family, "ApprovalRequested")

    def after(event: Event) -> None:
        ask(event)
        if (event.session_id, event.type) == (SESSION, "SessionCancelled"):
            monkeypatch.setattr(family.process.inbox, "send", _unreachable)

    assert family.run(after=after).why == "ENDED"
    assert family.of(SESSION)[-1].type == "SessionCancelled"
    monkeypatch.undo()
    family.process.inbox.send(CHILD, events.CancelRequested(), actor=("USER", "maria"))  # its thread ends too


def _unreachable(*_: Any, **__: Any) -> None:
    raise BrokerUnavailable("no broker", todo="start one")


def test_a_sub_session_that_another_process_took_over_is_waited_for(tmp_path: Path) -> None:
    """Who has the session above still has it: its own receipts are in no danger."""
    family = Family(tmp_path)

    def taken_over(event: Event) -> None:
        if (event.session_id, event.type) == (CHILD, "ToolCallStarted"):
            resume(family.world.process().publisher, CHILD, clock=family.world.clock, documents=family.other)

    stopped = family.run(after=taken_over)
    assert (stopped.why, stopped.waits_for) == ("WAITING", (C0,))
    assert "SessionRecovered" not in [event.type for event in family.of(SESSION)]
    assert family.run().why == "ENDED"
    check(family)


def test_a_session_that_was_killed_before_it_asked_its_sub_sessions_to_end_asks_them_when_it_is_found_ended(
    tmp_path: Path,
) -> None:
    family = Family(tmp_path)
    family.other = family.world.pinned([stage("sub", tools=["pay"])], policy=[_ASK_FIRST])
    assert family.run().why == "WAITING"
    with family.process.publisher.resume(SESSION) as session:
        session.append(events.SessionCancelled(requested_by="maria", open_ops=[C0]))
    past = read_past(family.process.publisher, SESSION)
    assert past.end is not None
    for _ in range(2):
        assert cancel_below(past.rows, SESSION, family.process.inbox) == [CHILD]
    child = resume(family.process.publisher, CHILD, clock=family.world.clock, documents=family.other)
    mail = Mailbox(family.process.inbox, CHILD)
    assert Live(child, family.process.ports(), mail, patience_seconds=0).run().why == "ENDED"
    assert [event.type for event in family.of(CHILD)].count("SessionCancelled") == 1

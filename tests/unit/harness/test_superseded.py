"""Two processes that run one session: the second takes it over, and is handed what the first one's tools did."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dalsegno import events
from dalsegno.errors import BrokerUnavailable, DalsegnoError, InvalidEvent, SessionSuperseded
from dalsegno.harness.live import Live, Stopped
from dalsegno.harness.mailbox import Mailbox
from dalsegno.harness.sessions import begin
from session_lab import SESSION, Process, World, notes, outcome

C0, C1 = "work.1/t1/c0", "work.1/t1/c1"
WIRE = {"name": "wire", "arguments": {"cents": 1}}
ONE: list[dict[str, Any]] = [{"match": "work.1/t1/i", "calls": [WIRE]}, {"match": "*", "text": "done"}]
TWO: list[dict[str, Any]] = [
    {"match": "work.1/t1/i", "calls": [WIRE, {"name": "wire", "arguments": {"cents": 2}}]},
    {"match": "*", "text": "done"},
]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dalsegno.harness.live.LOOK_SECONDS", 0.005)


def takes_over(process: Process) -> None:
    process.resume()


class First:
    """A process that begins a session, and does something else while one of its tools runs."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[str], None]) -> None:
        self.process: Process = world.process()
        self.told: list[str] = []
        happen = world.effects.happen

        def happening(what: str) -> str:
            said = happen(what)
            meanwhile(what)
            return said

        monkeypatch.setattr(world.effects, "happen", happening)
        self._world = world

    def run(self) -> Stopped:
        session = self.process.publisher.session(SESSION)
        conductor = begin(session, self._world.documents, goal="g", clock=self._world.clock)
        mail = Mailbox(self.process.inbox, SESSION)
        return Live(conductor, self.process.ports(), mail, patience_seconds=0.0, tell=self.told.append).run()


def test_a_receipt_that_came_behind_the_takeover_is_handed_to_the_new_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, ONE)
    second = world.process()
    waits: list[Stopped] = []
    first = First(world, monkeypatch, lambda _: waits.append(second.resume()))
    with pytest.raises(SessionSuperseded):
        first.run()
    assert waits == [Stopped("WAITING", (C0,))], "it runs nothing again whose outcome it does not know"
    assert first.told == [
        f"another process took the session over; the receipt of {C0} was handed to it through the inbox"
    ]  # fmt: skip
    third = world.process()
    assert third.resume() == Stopped("ENDED")
    assert len(world.effects.lines()) == 1
    found = outcome(third.events())
    assert found["calls"] == {C0: ("OK", b"did wire 1")}
    assert found["end"][0] == "SUCCESS"
    assert third.inbox.commands_of([SESSION]).new() == []


def test_two_that_live_at_once_come_to_one_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, ONE)
    second, ends = world.process(), list[Stopped]()
    recovered = threading.Event()

    def after(event: Any) -> None:
        if event.type == "SessionRecovered":
            recovered.set()

    other = threading.Thread(target=lambda: ends.append(second.resume(after=after, patience=30)))

    def meanwhile(_what: str) -> None:
        other.start()
        assert recovered.wait(10)

    first = First(world, monkeypatch, meanwhile)
    with pytest.raises(SessionSuperseded):
        first.run()
    other.join(30)
    assert ends == [Stopped("ENDED")]
    assert len(world.effects.lines()) == 1
    [receipt] = [event for event in second.events() if event.type == "ToolReceiptRecorded"]
    assert receipt.meta["actor_kind"] == "HARNESS"
    assert receipt.meta["origin"]["importer"] == "inbox"


def test_a_call_that_still_runs_has_a_last_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one finds out by a command that it takes up while its second call runs."""
    world = World(tmp_path, TWO)
    second = world.process()
    both_run, found_out = threading.Event(), threading.Event()

    def meanwhile(what: str) -> None:
        if "1" in what:
            assert both_run.wait(10)
            second.resume()
            second.send(events.CancelRequested(reason="enough"))  # which the first one cannot take up
        else:
            both_run.set()
            assert found_out.wait(10)

    first = First(world, monkeypatch, meanwhile)
    read_back = SessionSuperseded.__init__

    def finds_out(self: SessionSuperseded, *given: Any, **more: Any) -> None:
        read_back(self, *given, **more)
        found_out.set()

    monkeypatch.setattr(SessionSuperseded, "__init__", finds_out)
    with pytest.raises(SessionSuperseded):
        first.run()
    assert sorted(line.split()[9] for line in first.told) == [C0, C1]
    third = world.process()
    assert third.resume() == Stopped("ENDED")
    assert set(outcome(third.events())["calls"]) == {C0, C1}


def test_a_receipt_that_the_new_writer_has_read_is_not_handed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came before the takeover: the session goes on without any help."""
    world = World(tmp_path, ONE)
    second = world.process()
    first = First(world, monkeypatch, lambda _: None)
    append, ends = first.process.publisher.session, list[Stopped]()

    def session(name: str, **given: Any) -> Any:
        made = append(name, **given)
        one = made.append

        def appended(event: events.NewEvent, **how: Any) -> Any:
            pending = one(event, **how)
            if event.TYPE == "ToolReceiptRecorded":
                pending.result()
                ends.append(second.resume())
            return pending

        made.append = appended
        return made

    monkeypatch.setattr(first.process.publisher, "session", session)
    with pytest.raises(SessionSuperseded):
        first.run()
    assert ends == [Stopped("ENDED")]
    assert first.told == []
    assert notes(second.events()) == []
    assert second.inbox.commands_of([SESSION]).new() == []


@pytest.mark.parametrize(
    ("error", "handed"), [(InvalidEvent("no", wanted="yes"), 1), (BrokerUnavailable("gone"), 0)], ids=["bad", "gone"]
)
def test_a_receipt_that_no_command_can_hold_keeps_no_other_one_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: DalsegnoError, handed: int
) -> None:
    world = World(tmp_path, TWO)
    second = world.process()
    other, taken = threading.Event(), threading.Event()

    def meanwhile(what: str) -> None:
        if "1" in what:
            assert other.wait(10)
            second.resume()
            taken.set()
        else:
            other.set()
            assert taken.wait(10)

    first = First(world, monkeypatch, meanwhile)
    send, tried = first.process.inbox.send, list[str]()

    def sending(session_id: str, event: Any, **how: Any) -> Any:
        tried.append(event.tool_call_id)
        if len(tried) == 1:
            raise error
        return send(session_id, event, **how)

    monkeypatch.setattr(first.process.inbox, "send", sending)
    with pytest.raises(SessionSuperseded):
        first.run()
    assert len(first.told) == 2, "of each it is told what became of it"
    assert len([line for line in first.told if "was handed to it" in line]) == handed
    assert len(second.inbox.commands_of([SESSION]).new()) == handed
    assert len(tried) == 1 + handed, "nothing more is sent to a broker that is gone"


def test_where_the_inbox_cannot_be_reached_it_is_told_which_receipt_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, ONE)
    second = world.process()

    def unreachable(*_: Any, **__: Any) -> None:
        raise BrokerUnavailable("no broker", todo="start one")

    first = First(world, monkeypatch, lambda _: takes_over(second))
    monkeypatch.setattr(first.process.inbox, "send", unreachable)
    with pytest.raises(SessionSuperseded):
        first.run()
    [line] = first.told
    assert line.startswith(f"another process took the session over; what came of {C0} could not be handed to it")

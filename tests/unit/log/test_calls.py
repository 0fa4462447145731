"""Tool calls and sub-sessions by the methods that take their work off a producer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from typing import Any

import pytest

from dalsegno import Session, blob, events
from dalsegno.errors import Conflict, InvalidEvent, SessionBroken, SessionOpen, Unsent, Usage
from dalsegno.testing import MemoryPublisher, memory_publisher


@pytest.fixture
def publisher() -> Iterator[MemoryPublisher]:
    found = memory_publisher()
    yield found
    with suppress(Unsent):
        found.close(1)


def begin(publisher: MemoryPublisher, session_id: str = "s-1", **options: Any) -> Session:
    session = publisher.session(session_id, **options)
    session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
    session.append(events.SessionStarted())
    return session


def of(publisher: MemoryPublisher, session_id: str = "s-1", skip: int = 2) -> list[Any]:
    return publisher.events(session_id)[skip:]


def test_a_call_from_the_wish_to_the_receipt(publisher: MemoryPublisher) -> None:
    times = iter(range(1_000_000))
    session = begin(publisher, clock=lambda: next(times))
    turn = session.append(events.TurnStarted(turn_id="plan.1/t1"))
    call = session.tool_call("search", {"q": "x"}, effect="READ", turn_id="plan.1/t1", cause=turn)
    assert (call.id, call.attempt) == ("plan.1/t1/c0", 0)
    call.authorize("SIMULATED")
    call.start(executor="local")
    last = call.receipt(["hit"], exit_code=0)
    assert last.violations == ()
    turned, requested, authorized, started, receipt = of(publisher)
    arguments = sha256(b'{"q":"x"}').digest()
    assert requested.body["arguments_digest"] == authorized.body["effective_arguments_digest"] == arguments
    assert requested.body["arguments"]["inline"] == b'{"q":"x"}'
    assert (started.body["attempt"], receipt.body["attempt"]) == (1, 1)
    assert receipt.body["result_digest"] == sha256(b'["hit"]').digest()
    assert receipt.body["receipt_id"] == "plan.1/t1/c0/r1"
    assert started.meta["recorded_at"] < receipt.body["started_at"] < receipt.body["ended_at"]
    chain = [turned, requested, authorized, started, receipt]
    assert [event.meta["causation_id"] for event in chain[1:]] == [event.meta["event_id"] for event in chain[:-1]]
    assert {event.meta["turn_id"] for event in chain[1:]} == {"plan.1/t1"}


def test_ids_go_on_where_the_session_stands_also_after_a_resume(publisher: MemoryPublisher) -> None:
    session = begin(publisher)
    assert [session.tool_call("t", {}).id for _ in range(2)] == ["c0", "c1"]
    assert session.tool_call("t", {}, id="c2").id == "c2"
    assert session.tool_call("t", {}, turn_id="t1").id == "t1/c0"
    assert session.tool_call("t", {}).id == "c3"
    assert publisher.resume("s-1").tool_call("t", {}).id == "c4"


def test_a_call_that_fails_is_tried_again(publisher: MemoryPublisher) -> None:
    session = begin(publisher)
    call = session.tool_call("t", "raw text", effect="READ")
    call.authorize("SIMULATED")
    call.start()
    call.fail("TIMEOUT", TimeoutError("after 3 s"))
    session.append(events.ToolRetryDecided(tool_call_id=call.id, attempt=1, retry=True))
    call.start()
    assert call.attempt == 2
    assert call.receipt(b"\x00", status="ERROR", started_at=5).violations == ()
    failed, receipt = of(publisher)[3], of(publisher)[-1]
    assert failed.body["error"]["error_class"] == "TimeoutError"
    assert failed.body["error"]["message"] == "after 3 s"
    assert (receipt.body["attempt"], receipt.body["started_at"]) == (2, 5)


class _Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError("no file a\udcff"), "no file a\\udcff"),
        (_Speechless(), "its text could not be made: RuntimeError"),
        (ValueError("x" * 2_000_000), "x" * 10_000 + "… (1990000 more characters)"),
    ],
)
def test_any_exception_of_a_tool_can_be_told(publisher: MemoryPublisher, error: Exception, message: str) -> None:
    call = begin(publisher).tool_call("search", "{}")
    call.authorize("SIMULATED")
    call.start()
    call.fail("INFRA", error)
    assert of(publisher)[-1].body["error"]["message"] == message


def test_a_call_that_never_ran(publisher: MemoryPublisher) -> None:
    session = begin(publisher)
    call = session.tool_call("t", blob({}))
    assert call.reject("UNKNOWN_TOOL", message="no such tool").violations == ()
    second = session.tool_call("t", {})
    second.authorize("SIMULATED")
    assert second.fail("INFRA", not_started=True).violations == ()


def test_a_cause_is_an_event_of_this_session(publisher: MemoryPublisher) -> None:
    session = begin(publisher)
    first = session.append(events.NoteRecorded(kind="n"))
    session.append(events.NoteRecorded(kind="m"), cause=first)
    assert of(publisher)[-1].meta["causation_id"] == first.event_id
    foreign = begin(publisher, "s-2").append(events.NoteRecorded(kind="n"))
    for cause, how in ((foreign, {}), ("c", {}), (first, {"causation_id": "other"})):
        with pytest.raises(InvalidEvent) as caught:
            session.append(events.NoteRecorded(kind="m"), cause=cause, **how)  # type: ignore[arg-type]
        assert caught.value.data["field"] == "cause"


# --- sub-sessions -----------------------------------------------------------------------------------------------------


def delegate(session: Session) -> Any:
    call = session.tool_call("delegate", {"task": "part"})
    call.authorize("SIMULATED")
    return call


def start(session: Session, **options: Any) -> Session:
    child = session.child(delegate(session), workflow_name="part", **options)
    child.append(events.SessionStarted())
    return child


def test_a_child_from_its_start_to_its_end(publisher: MemoryPublisher) -> None:
    session = begin(publisher, actor=("AGENT", "boss"))
    call = delegate(session)
    with session.child(call, workflow_name="part", goal=blob("do it"), executor="pool") as child:
        child.append(events.SessionStarted())
        child.append(events.SessionCompleted(outcome="PARTIAL"))
    pending = session.child_ended(child, result={"found": 3})
    assert pending.violations == ()
    started, ended = of(publisher)[2:]
    created = publisher.events(child.session_id)[0]
    assert child.session_id == started.body["child_session"] == ended.body["child_session"] == "s-1/c0/a1"
    assert (created.body["relation"], created.body["parent_session"]) == ("CHILD", "s-1")
    assert created.body["parent_at"] == {
        "seq": started.seq, "hash": started.hash, "event_id": started.meta["event_id"]
    }  # fmt: skip
    assert created.meta["actor_id"] == "boss"
    assert (ended.body["tool_call_id"], ended.body["outcome"]) == ("c0", "PARTIAL")
    assert ended.body["child_final_hash"] == publisher.events(child.session_id)[-1].hash == child.head_hash
    assert ended.body["result"]["inline"] == b'{"found":3}'
    assert session.append(events.SessionCompleted(outcome="SUCCESS")).violations == ()  # the call is closed


def test_a_child_that_has_no_end_gets_none(publisher: MemoryPublisher) -> None:
    session = begin(publisher)
    child = start(session)
    with pytest.raises(Conflict, match="session s-1/c0/a1 is RUNNING"):
        session.child_ended(child)
    assert session.append(events.NoteRecorded(kind="n")).violations == ()
    child.append(events.SessionFailed(error=events.ErrorInfo(error_class="E")))
    session.child_ended(child)
    assert of(publisher)[-1].body["outcome"] == "FAILED"


def test_a_child_whose_end_was_not_stored_is_not_named(publisher: MemoryPublisher) -> None:
    session = begin(publisher)
    child = start(session)
    publisher.flush(5)
    publisher.transport.fail_next()  # type: ignore[attr-defined]
    child.append(events.SessionCancelled())
    with pytest.raises(Unsent, match="1 events were not acknowledged: s-1/c0/a1:3"):
        session.child_ended(child)
    with pytest.raises(SessionBroken):
        session.child_ended(child)
    assert of(publisher)[-1].type == "ToolCallStarted"
    again = publisher.resume(child.session_id)
    again.append(events.SessionCancelled())
    session.child_ended(again)
    assert of(publisher)[-1].body["outcome"] == "CANCELLED"


@pytest.mark.parametrize(
    "wrong", [{"profile": "NONE"}, {"labels": [7]}, {"session_id": "a~b"}, {"traceparent": "x"}, {"workflow_name": 1}]
)
def test_a_child_that_is_refused_starts_no_call(publisher: MemoryPublisher, wrong: dict[str, Any]) -> None:
    session = begin(publisher)
    call = session.tool_call("delegate", "{}")
    call.authorize("SIMULATED")
    with pytest.raises(InvalidEvent):
        session.child(call, **{"workflow_name": "w", **wrong})
    assert [event.type for event in of(publisher)] == ["ToolCallRequested", "ToolCallAuthorized"]
    assert session.child(call, workflow_name="w").session_id == "s-1/c0/a1"


def test_a_start_that_is_refused_opens_no_child(publisher: MemoryPublisher) -> None:
    session = publisher.session("s-1")
    session.append(events.SessionCreated(workflow_name="w", profile="STRICT"))
    with pytest.raises(InvalidEvent) as caught:
        session.child("c0", workflow_name="part", session_id="kid")
    publisher.session("kid").close()
    assert caught.tb  # what it holds, the child too, was not let go by chance
    with pytest.raises(SessionOpen):
        begin(publisher, "s-2").child("c0", workflow_name="part", session_id="s-1")


def test_after_a_resume_the_log_says_which_call_it_was(publisher: MemoryPublisher) -> None:
    session = begin(publisher)
    child = start(session, session_id="kid")
    child.append(events.SessionCompleted(outcome="SUCCESS"))
    child.close()
    later = publisher.resume("s-1", resolve={("TOOL", "c0"): "AWAIT_RECEIPT"})
    kid = publisher.resume("kid")
    with pytest.raises(Usage, match="how session kid ended is not known here"):
        later.child_ended(kid)
    assert later.child_ended(kid, outcome="SUCCESS").violations == ()
    assert of(publisher)[-1].body["tool_call_id"] == "c0"

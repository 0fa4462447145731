"""Where a fork may begin: at the turn's beginning at or below any event, where nothing is open."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dalsegno.model.forking import Boundary, fork_point
from dalsegno.model.history import Gathered, gather, whole_history
from dalsegno.model.records import Event
from dalsegno.testing.builder import SessionBuilder


def turn(builder: SessionBuilder, name: str) -> None:
    """Five events: the turn's frame, a message, an input asked for and given."""
    builder.append("TurnStarted", turn_id=name)
    builder.append("MessageReceived", message_id=f"m-{name}", role="USER")
    builder.append("InputRequested", request_id=f"q-{name}")
    builder.append("InputProvided", request_id=f"q-{name}")
    builder.append("TurnCompleted", turn_id=name)


def session(turns: int = 3, session_id: str = "s") -> SessionBuilder:
    builder = SessionBuilder(session_id, profile="OBSERVED").begin()
    for number in range(1, turns + 1):
        turn(builder, f"t{number}")
    assert not any(verdict.violations for verdict in builder.verdicts)
    return builder


def history(builder: SessionBuilder, *ancestors: SessionBuilder) -> Iterator[Event]:
    known: dict[str, Gathered] = {each.session_id: gather(each.events) for each in (builder, *ancestors)}
    return whole_history(builder.events, known.__getitem__)


def found(builder: SessionBuilder, at: int | None, *ancestors: SessionBuilder) -> Boundary:
    point = fork_point(history(builder, *ancestors), builder.session_id, at)
    assert isinstance(point, Boundary), point
    return point


def test_at_every_event_it_is_the_beginning_of_the_turn_at_or_below_it() -> None:
    builder = session()
    first = len(builder.events) - 15
    for at in range(first + 1, len(builder.events) + 1):
        number, into = divmod(at - first - 1, 5)
        point = found(builder, at)
        before = builder.events[first + 5 * number - 1]
        assert (point.session_id, point.at) == ("s", (before.seq, before.hash))
        assert (point.turn_id, point.snapped_back) == (f"t{number + 1}", into)
        assert point.event_id == before.meta["event_id"]
    assert found(builder, None) == found(builder, len(builder.events))


def test_where_a_turn_begins_while_something_is_open_an_earlier_one_is_taken() -> None:
    builder = session(1)
    first = len(builder.events) - 5
    builder.append("InputRequested", request_id="long")
    turn(builder, "t2")
    builder.append("InputProvided", request_id="long")
    turn(builder, "t3")
    for at in range(first + 1, first + 13):
        assert (found(builder, at).turn_id, found(builder, at).snapped_back) == ("t1", at - first - 1)
    assert found(builder, first + 13).turn_id == "t3"


def test_before_the_first_turn_without_one_and_with_something_always_open_there_is_none() -> None:
    builder = session(0)
    builder.append("InputRequested", request_id="long")
    start = len(builder.events)
    assert fork_point(builder.events, "s", None) == "no turn begins in it"
    assert fork_point(builder.events, "s", 2) == "no turn begins at or below seq 2"
    turn(builder, "t1")
    assert fork_point(builder.events, "s", start) == f"no turn begins at or below seq {start}"
    reason = fork_point(builder.events, "s", start + 3)
    assert reason == f"something is open before each turn that begins at or below seq {start + 3}"


def test_a_turn_that_the_rules_refuse_is_no_beginning() -> None:
    builder = session(1)
    builder.append("SessionCompleted", outcome="SUCCESS")
    builder.append("TurnStarted", turn_id="too late")
    assert builder.verdicts[-1].violations
    assert found(builder, None).turn_id == "t1"


def test_a_fork_of_a_fork_begins_in_the_fork_or_in_the_ancestor_whose_turn_it_is() -> None:
    root = session()
    first = len(root.events) - 15
    child = root.fork(first + 5, "a")
    child.append("NoteRecorded", kind="n")
    turn(child, "x")
    for at in (1, 2, 3):
        point = found(child, at, root)
        assert (point.session_id, point.at.seq, point.turn_id) == ("s", first, "t1")
        assert point.snapped_back == 4 + at, "the rest of t1, and the fork's own events"
    for at in range(4, 9):
        point = found(child, at, root)
        assert (point.session_id, point.at.seq, point.snapped_back) == ("s~a", 3, at - 4)
    grandchild = child.fork(3, "b")
    assert found(grandchild, None, child, root).session_id == "s"
    turn(grandchild, "y")
    point = found(grandchild, None, child, root)
    assert (point.session_id, point.at.seq, point.turn_id) == ("s~b", 2, "y")


@pytest.mark.parametrize("profile", ["STRICT", "OBSERVED"])
def test_the_rules_find_nothing_wrong_with_a_fork_that_begins_there(profile: str) -> None:
    builder = session()
    for at in range(len(builder.events) - 14, len(builder.events) + 1):
        fork = builder.fork(found(builder, at).at.seq, f"f{at}", profile=profile)
        turn(fork, "again")
        assert not any(verdict.violations for verdict in fork.verdicts[1:2])
        assert fork.verdicts[2].violations == ()


def test_a_grant_that_stands_in_the_parent_has_ended_in_the_fork() -> None:
    def allowed(builder: SessionBuilder) -> tuple[str, ...]:
        digest = bytes(32)
        builder.append("ToolCallRequested", tool_call_id="d", name="t", arguments_digest=digest)
        builder.append("PolicyEvaluated", decision_id="x", subject="TOOL_CALL", subject_id="d", decision="ALLOW")
        by_grant = {"basis": "STANDING_GRANT", "effective_arguments_digest": digest}
        builder.append("ToolCallAuthorized", tool_call_id="d", **by_grant)
        return builder.verdicts[-1].findings

    builder = session(0)
    builder.append("ToolCallRequested", tool_call_id="c", name="t")
    builder.append("ApprovalRequested", approval_id="a", subject="TOOL_CALL", subject_id="c")
    builder.append("ApprovalGranted", approval_id="a", scope="SESSION")
    builder.append("ToolCallRejected", tool_call_id="c")
    turn(builder, "t1")
    fork = builder.fork(found(builder, None).at.seq, "f")
    assert (builder.session.grants, fork.session.grants) == (1, 0)
    assert (allowed(builder), allowed(fork)) == ((), ("U2",))

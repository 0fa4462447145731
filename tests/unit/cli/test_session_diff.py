"""`dalsegno session diff`: what it prints and ends with, over the shards of one machine."""

from __future__ import annotations

import json
from collections.abc import Callable

from dalsegno.testing.builder import SessionBuilder, blob
from reader_lab import PREFIX, House

Say = Callable[..., tuple[str, str]]


def a_session(session_id: str, result: str, notes: int = 0) -> SessionBuilder:
    builder = SessionBuilder(session_id, profile="OBSERVED", writer=session_id).begin()
    builder.append("TurnStarted", turn_id="t1")
    builder.append("ToolCallRequested", tool_call_id="c", name="search")
    builder.append("ToolCallAuthorized", tool_call_id="c", basis="POLICY_ALLOW")
    builder.append("ToolCallStarted", tool_call_id="c", attempt=1)
    for _ in range(notes):
        builder.append("NoteRecorded", kind="hint")
    builder.append("ToolReceiptRecorded", tool_call_id="c", attempt=1, status="OK", result=blob(result.encode()))
    builder.append("TurnCompleted", turn_id="t1")
    return builder


def test_two_runs_that_are_the_same(house: House, say: Say) -> None:
    one, other = a_session("run-1", "found"), a_session("run-2", "found")
    house.shard([*one.records, *other.records])
    text, err = say("session", "diff", "run-1", "run-2")
    assert f"{len(one.events)} events compared" in text
    assert text.splitlines()[-1] == f"   {len(one.records)} the same, nothing else"
    assert err.count(f"true at {PREFIX}.events:0@") == 1  # both lie in one partition
    found = json.loads(say("-o", "json", "session", "diff", "run-1", "run-2")[0])
    assert (found["identical"], found["same"], found["changes"]) == (True, len(one.records), [])
    assert (found["a"]["session"], found["b"]["session"]) == ("run-1", "run-2")


def test_the_first_difference_is_shown_with_its_values_and_the_rest_as_a_list(house: House, say: Say) -> None:
    one, other = a_session("run-1", "found"), a_session("run-2", "nothing", notes=2)
    house.shard([*one.records, *other.records])
    at = len(one.records) - 1
    text, err = say("session", "diff", "run-1", "run-2", code=3)
    lines = text.splitlines()
    assert lines[2:4] == [f"   {len(one.records) - 1} the same, 1 changed, 2 only b", "   about: 1 output, 2 status"]
    first = lines.index(f"the first difference, behind A {at - 1} B {at - 1}")
    assert lines[first + 1].split() == ["+", "B", str(at), "NoteRecorded", "(X)", "hint", "status"]
    listed = [line.split() for line in lines[first + 3 :]]
    assert [line[:4] for line in listed] == [["+", "B", str(at + 1), "NoteRecorded"], ["~", "A", str(at), "B"]]
    assert "error" not in err
    back = say("session", "diff", "run-2", "run-1", "--limit", "1", code=3)
    assert "and 2 more differences; --limit shows more" in back[1]


def test_a_changed_step_shows_both_values_and_nothing_that_acts_on_a_terminal(house: House, say: Say) -> None:
    one, other = a_session("run-1", "found \x1b[2J"), a_session("run-3", "nothing")
    house.shard([*one.records, *other.records])
    at = len(one.records) - 1
    text = say("session", "diff", "run-1", "run-3", code=3)[0]
    assert f"~ A {at} B {at}" in text
    assert "found \\u001b[2J" in text
    assert "\x1b" not in text
    rows = say("-o", "jsonl", "session", "diff", "run-1", "run-3", code=3)[0].splitlines()
    head, change = map(json.loads, rows)
    assert (head["identical"], head["changed"], head["causes"]["output"]) == (False, 1, 1)
    assert change["fields"][0]["pointer"] == "/result"
    assert (change["a"]["seq"], change["type"], change["name"], change["class"]) == (
        at, "ToolReceiptRecorded", "search", "X",
    )  # fmt: skip


def test_a_fork_is_compared_as_its_whole_history(house: House, say: Say) -> None:
    parent = a_session("run-1", "found")
    parent.append("TurnStarted", turn_id="t2")
    at = len(parent.records) - 1
    fork = parent.fork(at, "f")
    fork.append("TurnStarted", turn_id="t2")
    house.shard([*parent.records, *fork.records])
    assert f"   {at + 1} the same, nothing else" in say("session", "diff", "run-1", "run-1~f")[0]
    assert f"fork of run-1 at {at}" in say("session", "diff", "run-1~f", "run-1")[0]


def test_a_session_that_is_not_there(house: House, say: Say) -> None:
    house.shard(a_session("run-1", "found").records)
    assert "no session 'absent'" in say("session", "diff", "run-1", "absent", code=4)[1]
    assert say("-o", "none", "session", "diff", "run-1", "last")[0] == ""

"""Two histories side by side: what is found, what is not looked at, and how it is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dalsegno.model.records import Event
from dalsegno.replay.comparable import Cause, Comparer, shape
from dalsegno.replay.divergence import FieldDifference
from dalsegno.replay.session_diff import Change, SessionDiff, diff_histories
from dalsegno.testing.builder import SessionBuilder, blob
from examples import examples
from recordings import Recording, each_recording, events_of

TOOLS = ("search", "write")
Turn = tuple[str, str, str]
"""Tool, arguments, result."""

turns = st.lists(st.tuples(st.sampled_from(TOOLS), st.sampled_from("abc"), st.sampled_from("xy")), max_size=8)


def session(
    turns: list[Turn], session_id: str = "s", *, writer: str = "w", answer: str = "ok", name: Callable[[str], str] = str
) -> list[Event]:
    """A session that calls one tool a turn. ``name``: gives an id for a path."""
    builder = SessionBuilder(session_id, profile="OBSERVED", writer=writer).begin()
    stage = {"meta": {"stage_id": "plan.1"}}
    builder.append("StageScheduled", stage_id="plan.1", stage_name="plan", attempt=1)
    for number, (tool, arguments, result) in enumerate(turns, 1):
        turn, inference, call = (name(f"plan.1/t{number}{end}") for end in ("", "/i", "/c0"))
        builder.append("TurnStarted", turn_id=turn, **stage)
        builder.append("InferenceRequested", inference_id=inference, attempt=1, model="m", provider="p", **stage)
        calls = [{"tool_call_id": call, "name": tool, "arguments_digest": None}]
        said = [{"kind": "TOOL_CALL", "text": arguments, "call_id": call, "name": tool, "blob": None}]
        timing = {"latency_ms": len(session_id), "response_id": f"{session_id}{number}"}
        completed = {"inference_id": inference, "attempt": 1, "tool_calls": calls, "output": said, "complete": True}
        builder.append("InferenceCompleted", **completed, **timing, **stage)
        asked = {
            "tool_call_id": call,
            "inference_id": inference,
            "name": tool,
            "native_call_id": f"{session_id}{number}",
        }
        builder.append("ToolCallRequested", **asked, arguments=blob(arguments.encode()), **stage)
        builder.append("ToolCallAuthorized", tool_call_id=call, basis="POLICY_ALLOW", **stage)
        builder.append("ToolCallStarted", tool_call_id=call, attempt=1, executor=writer, **stage)
        receipt = {"tool_call_id": call, "attempt": 1, "status": "OK", "receipt_id": f"r{writer}{number}"}
        builder.append("ToolReceiptRecorded", **receipt, result=blob(result.encode()), **stage)
        builder.append("TurnCompleted", turn_id=turn, **stage)
    builder.append("SessionCompleted", outcome="SUCCESS", result=blob(answer.encode()))
    return builder.events


PER_TURN = 8


def diff(a: list[Event], b: list[Event], most: int = 1_000) -> SessionDiff:
    return diff_histories(lambda: a, lambda: b, most)


def what(found: SessionDiff) -> list[tuple[str, str, str]]:
    return [(each.kind, each.identity.type, each.identity.name) for each in found.changes]


# --- nothing differs --------------------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(turns)
def test_a_session_is_itself_also_under_another_id_writer_and_clock(turns: list[Turn]) -> None:
    one, other = session(turns), session(turns, "other", writer="somebody/else")
    assert diff(one, one).differences == 0
    found = diff(one, other)
    assert (found.differences, found.same, found.changes, found.led_to_first) == (0, len(one), (), ())


@settings(max_examples=examples(60))
@given(turns)
def test_ids_of_foreign_harnesses_are_named_by_what_introduced_them(turns: list[Turn]) -> None:
    one, other = (
        session(turns, salt, name=lambda path, salt=salt: uuid5(NAMESPACE_URL, salt + path).hex) for salt in "ab"
    )
    assert diff(one, other).differences == 0


@pytest.mark.parametrize("recording", each_recording())
def test_a_recording_of_another_harness_is_itself(recording: Recording) -> None:
    for events in events_of(recording)[:3]:
        found = diff(list(events), list(events))
        assert (found.differences, found.same) == (0, len(events))


# --- something differs ------------------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(turns, st.lists(st.tuples(st.integers(0, 8), st.sampled_from(TOOLS)), min_size=1, max_size=4))
def test_so_many_inserted_turns_are_so_many_insertions_and_nothing_else(
    turns: list[Turn], inserted: list[tuple[int, str]]
) -> None:
    longer = list(turns)
    for number, (at, tool) in enumerate(inserted):
        longer.insert(at, (tool, f"new {number}", "new"))
    found = diff(session(turns), session(longer))
    assert found.kinds == {"changed": 0, "only-a": 0, "only-b": PER_TURN * len(inserted)}
    assert found.same == len(session(turns))


@settings(max_examples=examples(60))
@given(turns, turns)
def test_what_a_has_alone_b_lacks(one: list[Turn], other: list[Turn]) -> None:
    a, b = session(one), session(other, "other")
    there, back = diff(a, b), diff(b, a)
    assert there.same == back.same
    assert there.kinds == {
        "changed": back.kinds["changed"], "only-a": back.kinds["only-b"], "only-b": back.kinds["only-a"],
    }  # fmt: skip
    assert (there.differences == 0) == (one == other)

    def turned(each: Change) -> tuple[Any, ...]:
        return each.identity, each.b, each.a, sorted((f.pointer, repr(f.actual), repr(f.expected)) for f in each.fields)

    def straight(each: Change) -> tuple[Any, ...]:
        return each.identity, each.a, each.b, sorted((f.pointer, repr(f.expected), repr(f.actual)) for f in each.fields)

    assert sorted(map(straight, there.changes), key=repr) == sorted(map(turned, back.changes), key=repr)


def test_the_same_input_with_another_output_is_not_identical() -> None:
    turns = [("search", "a", "x"), ("search", "b", "x")]
    found = diff(session(turns), session([turns[0], ("search", "b", "y")], "other"))
    (change,) = found.changes
    assert (change.kind, change.cause, change.identity) == (
        "changed", Cause.OUTPUT, ("ToolReceiptRecorded", "plan", "search"),
    )  # fmt: skip
    assert [(each.pointer, each.expected["inline"], each.actual["inline"]) for each in change.fields] == [
        ("/result", b"x", b"y")
    ]
    assert found.last_common is not None
    assert [at.seq for at in found.last_common] == [change.a.seq - 1 if change.a else None] * 2
    assert diff(session([]), session([], answer="another")).causes == {
        "configuration": 0, "input": 0, "output": 1, "status": 0,
    }  # fmt: skip


def test_causes_stand_before_effects() -> None:
    def one(provider: str, digest: bytes, attempt: int) -> list[Event]:
        builder = SessionBuilder("s", profile="OBSERVED").begin()
        asked = {"attempt": attempt, "provider": provider, "model": provider, "request_digest": digest}
        builder.append("InferenceRequested", inference_id="plan.1/t1/i", **asked)
        usage = {"input": attempt, "output": 1, "cache_read": None, "cache_creation": None, "reasoning": None}
        answer = {"attempt": 1, "model": "m", "usage": usage, "complete": True}
        builder.append("InferenceCompleted", inference_id="plan.1/t1/i", **answer)
        return builder.events

    asked, answered = diff(one("p", bytes(32), 1), one("q", bytes([1]) * 32, 2)).changes
    assert [each.pointer for each in asked.fields] == ["/provider", "/model", "/request_digest", "/attempt"]
    assert (asked.cause, answered.cause) == (Cause.CONFIGURATION, Cause.STATUS)
    assert answered.fields == (FieldDifference("/usage/input", 1, 2),)


def test_the_first_difference_comes_with_what_led_to_it_and_the_rest_is_counted() -> None:
    def one(answer: str) -> list[Event]:
        builder = SessionBuilder("s", profile="OBSERVED").begin()
        started = builder.append("TurnStarted", turn_id="plan.1/t1")
        assert started.event is not None
        caused = {"causation_id": started.event.meta["event_id"]}
        builder.append("MessageReceived", message_id="m1", role="USER")
        builder.append("NoteRecorded", kind="k", data=blob(answer.encode()), meta=caused)
        builder.append("SessionCompleted", outcome="SUCCESS", result=blob(answer.encode()))
        return builder.events

    found = diff(one("yes"), one("no"), most=0)
    assert [each.type for each in found.led_to_first] == ["TurnStarted"]
    assert (what(found), found.differences) == ([("changed", "NoteRecorded", "k")], 2)


def test_a_fork_goes_on_where_its_parent_was_left() -> None:
    parent = SessionBuilder("s", profile="OBSERVED").begin()
    parent.append("TurnStarted", turn_id="plan.1/t1")
    parent.append("TurnCompleted", turn_id="plan.1/t1")
    at = len(parent.records)
    fork = parent.fork(at, "f")
    for builder in (parent, fork):
        builder.append("TurnStarted", turn_id="plan.1/t2")
    history = [*parent.events[:at], *fork.events]
    assert diff(parent.events, history).differences == 0
    fork.append("TurnCompleted", turn_id="plan.1/t2")
    (change,) = diff(parent.events, [*parent.events[:at], *fork.events]).changes
    assert change.b is not None
    assert (change.kind, change.b.session, change.b.seq) == ("only-b", "s~f", 4)


def test_what_was_amended_away_is_the_same_only_where_it_is_the_same_record() -> None:
    def erased(writer: str) -> Event:
        event = SessionBuilder("s", writer=writer).append("NoteRecorded", kind="k").event
        assert event is not None
        return Event("s", 1, event.hash, None, 0, "NoteRecorded", True, True, {}, {}, "ERASED")

    assert diff([erased("a")], [erased("a")]).differences == 0
    (change,) = diff([erased("a")], [erased("b")]).changes
    assert (change.kind, [each.pointer for each in change.fields]) == ("changed", ["/record"])


def test_a_type_of_a_later_build_is_compared_by_what_it_says() -> None:
    def one(output: str) -> list[Event]:
        body = {"meta": {}, "later_id": "x", "tool_calls": ["c"], "output": output}
        return [Event("s", 1, output.encode(), None, 0, "FromLater", False, True, {}, body)]

    assert diff(one("a"), one("a")).differences == 0
    (change,) = diff(one("a"), one("b")).changes
    assert (change.event_class, change.fields) == ("", (FieldDifference("/output", "a", "b"),))


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id_", "wanted"),
    [
        ("plan.1/t12/c0/a1", "plan/t/c/a"),
        ("plan.2", "plan"),
        ("plan.1/r.kb2", "plan/r.kb2"),
        ("call_8Xy1", ""),
        ("7f3a", ""),
        ("", ""),
    ],
)
def test_a_path_without_its_ordinals(id_: str, wanted: str) -> None:
    assert shape(id_) == wanted


def test_a_call_and_what_is_decided_about_it_are_named_by_its_tool() -> None:
    builder = SessionBuilder("s", profile="OBSERVED").begin()
    calls = [{"tool_call_id": "c", "name": "rm", "arguments_digest": None}]
    builder.append("InferenceCompleted", inference_id="i", attempt=1, tool_calls=calls, complete=True)
    builder.append("PolicyEvaluated", decision_id="d", subject="TOOL_CALL", subject_id="c", decision="ALLOW")
    builder.append("ApprovalRequested", approval_id="a", subject="TOOL_CALL", subject_id="c")
    builder.append("ApprovalGranted", approval_id="a", scope="ONCE")
    comparer = Comparer()
    assert [comparer.take(event).identity.name for event in builder.events[-3:]] == ["", "", ""]
    comparer = Comparer()
    assert [comparer.take(event).identity.name for event in builder.events][-3:] == ["rm", "rm", "rm"]


def test_a_long_session_with_one_turn_more_in_its_middle() -> None:
    turns = [("search", f"{number}", "x") for number in range(examples(100))]
    found = diff(session(turns), session([*turns[:50], ("search", "new", "x"), *turns[50:]], "other"))
    assert found.kinds == {"changed": 0, "only-a": 0, "only-b": PER_TURN}

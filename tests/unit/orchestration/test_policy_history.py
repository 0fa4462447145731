"""Recorded tool calls as a policy would have seen them, and what policies do to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dalsegno.model.records import ERASED, stub_event
from dalsegno.orchestration.documents import Obligation, Policy
from dalsegno.orchestration.policy_effects import TOOLS_MOST, Backtest, Coverage, Difference, change
from dalsegno.orchestration.policy_history import RecordedCall
from policy_lab import Calls, by_tool, calls_in, rule
from recordings import Recording, each_recording, events_of

# --- what is read of a session ----------------------------------------------------------------------------------------


def only(calls: Calls) -> RecordedCall:
    (call,) = calls.calls
    return call


@pytest.mark.parametrize(
    ("calls", "then"),
    [
        (Calls().asked("c").ran("c"), "ran"),
        (Calls().asked("c").approved("c"), "approved"),
        (Calls().asked("c").evaluated("c", "REQUIRE_APPROVAL").ran("c", "STANDING_GRANT"), "approved"),
        (Calls().asked("c").ran("c", "SIMULATED"), "simulated"),
        (Calls().asked("c").rejected("c", "POLICY_DENY"), "denied"),
        (Calls().asked("c").asks("c").rejected("c", "APPROVAL_DENIED"), "refused"),
        (Calls().asked("c").asks("c").rejected("c", "APPROVAL_EXPIRED"), "refused"),
        (Calls().asked("c").asks("c"), "waiting"),
        (Calls().asked("c"), "open"),
        (Calls().asked("c").add("ToolCallAuthorized", tool_call_id="c", basis="POLICY_ALLOW"), "open"),
    ],
)
def test_what_became_of_a_call(calls: Calls, then: str) -> None:
    assert only(calls).then == then
    assert only(calls).unfit is None


@pytest.mark.parametrize(
    ("calls", "unfit"),
    [
        (Calls().asked("c", arguments=b'{"n": 9223372036854775808}').ran("c"), "INVALID_ARGUMENTS"),
        (Calls().asked("c", arguments=b'{"a": 1, "a": 2}'), "INVALID_ARGUMENTS"),
        (Calls().asked("c").rejected("c", "INVALID_ARGUMENTS"), "INVALID_ARGUMENTS"),
        (Calls().asked("c").rejected("c", "UNKNOWN_TOOL"), "UNKNOWN_TOOL"),
        (Calls().asked("c").rejected("c", "LIMIT"), "LIMIT"),
        (Calls().asked("c").ran("c"), None),
        (Calls().add("ToolCallRequested", tool_call_id="c", name="shell", arguments=None), "ARGUMENTS_MISSING"),
        (Calls().asked("c").asks("c").rejected("c", "INVALID_ARGUMENTS"), None),
    ],
)
def test_calls_that_no_policy_is_asked_about_are_told_apart(calls: Calls, unfit: str | None) -> None:
    assert only(calls).unfit == unfit
    tally = Backtest(Policy(default="DENY"), 9)
    tally.add(only(calls))
    assert tally.as_data()["calls"] == (unfit is None)
    assert tally.as_data()["not_evaluated"] == ({} if unfit is None else {unfit: 1})


def test_an_erased_call_is_counted_and_what_followed_it_is_not() -> None:
    session = Calls().asked("c").ran("c").asked("d").ran("d")
    history = session.history
    place = next(n for n, event in enumerate(history) if event.type == "ToolCallRequested")
    old = history[place]
    history[place] = stub_event(old.session_id, old.link, old.type, ERASED)
    found = list(calls_in("s-1", history))
    assert [(call.call_id, call.seq, call.unfit) for call in found] == [
        ("", old.seq, "ERASED"),
        ("d", old.seq + 3, None),
    ]


def test_inputs_are_those_of_the_moment_of_the_evaluation() -> None:
    labels = [{"key": "tier", "value": "gold"}]
    session = (
        Calls(labels=labels)
        .add("StageScheduled", stage_id="plan.1", stage_name="plan", attempt=1)
        .add("StageStarted", stage_id="plan.1")
        .add("TurnStarted", turn_id="plan.1/t1")
        .asked("a", effect="WRITE", risk="HIGH")
        .asked("b")
        .evaluated("a", "ALLOW", input_digest=b"d" * 32)
        .ran("a")
        .ran("b")
        .add("TurnCompleted", turn_id="plan.1/t1")
        .add("StageCompleted", stage_id="plan.1")
        .asked("c")
    )
    a, b, c = session.calls
    assert (a.stage, dict(a.labels), a.session) == (
        "plan",
        {"tier": "gold"},
        {"turns": 1, "tool_calls": 2, "tokens": 0},
    )
    assert (a.facts.effect, a.facts.risk, a.decision, a.input_digest) == ("WRITE", "HIGH", "ALLOW", b"d" * 32)
    assert (b.session["tool_calls"], b.decision) == (2, None)
    assert (c.stage, c.session["tool_calls"], c.then) == (None, 3, "open")


def test_a_call_of_a_forks_prefix_is_its_parents() -> None:
    parent = Calls().asked("a").ran("a").add("ToolReceiptRecorded", tool_call_id="a", status="OK", receipt_id="r")
    fork = parent.fork("f").asked("b").ran("b")
    assert [call.call_id for call in parent.calls] == ["a"]
    found = only(fork)
    assert (found.session_id, found.call_id) == (fork.builder.session_id, "b")
    assert found.session["tool_calls"] == 2, "the counters go on from the parent's"


def test_where_an_id_stands_twice_both_calls_are_given() -> None:
    calls = Calls().asked("c", "first").asked("c", "second").ran("c").calls
    assert [(call.facts.tool, call.then) for call in calls] == [("first", "open"), ("second", "ran")]


# --- a backtest -------------------------------------------------------------------------------------------------------


def everything() -> Calls:
    """A call of tool ``<then>`` for each thing that can become of one."""
    return (
        Calls()
        .asked("1", "ran").ran("1")
        .asked("2", "approved").approved("2")
        .asked("3", "simulated").ran("3", "SIMULATED")
        .asked("4", "denied").rejected("4", "POLICY_DENY")
        .asked("5", "refused").asks("5").rejected("5", "APPROVAL_DENIED")
        .asked("6", "waiting").asks("6")
        .asked("7", "open")
    )  # fmt: skip


THENS = ("ran", "approved", "simulated", "denied", "refused", "waiting", "open")
CHANGED = {
    "ALLOW": {
        "approved": "approval-saved",
        "waiting": "approval-saved",
        "denied": "removed-block",
        "refused": "removed-block",
    },
    "DENY": {"ran": "introduced-block", "approved": "introduced-block", "simulated": "introduced-block"},
    "REQUIRE_APPROVAL": {"ran": "approval-added", "simulated": "approval-added", "denied": "removed-block"},
}  # fmt: skip
CHANGED["MODIFY"] = CHANGED["SIMULATE"] = CHANGED["ALLOW"]


def backtest(policy: Policy, calls: Calls, examples: int = 3) -> dict[str, Any]:
    tally = Backtest(policy, examples)
    for call in calls.calls:
        tally.add(call)
    return tally.as_data()


@pytest.mark.parametrize("now", sorted(CHANGED))
def test_every_cell_says_what_is_other_than_it_was(now: str) -> None:
    rules = [rule("force", "MODIFY", merge={"dry": True})] if now == "MODIFY" else [rule("all", now)]
    data = backtest(Policy(rules=rules), everything())
    assert data["calls"] == 7
    cells = {cell["then"]: cell for cell in data["cells"]}
    assert [(cell["now"], cell["calls"]) for cell in cells.values()] == [(now, 1)] * 7
    assert {then: cells[then]["change"] for then in THENS if cells[then]["change"]} == CHANGED[now]
    assert data["changes"] == {
        name: list(CHANGED[now].values()).count(name)
        for name in ("introduced-block", "removed-block", "approval-saved", "approval-added")
    }
    for then, cell in cells.items():
        (example,) = cell["examples"]
        assert (example["session"], example["tool"], example["arguments"]) == ("s-1", then, "{}")


def test_a_rule_counts_what_it_matched_what_it_decided_and_where_it_failed() -> None:
    policy = Policy(
        rules=[
            rule("cap", "MODIFY", 'call.tool == "pay"', merge={"amount": 5}),
            rule("big", "DENY", "call.arguments.amount > 7"),
            rule("ask", "REQUIRE_APPROVAL", 'call.tool == "pay"'),
            rule("read", "ALLOW", 'call.tool == "read"'),
        ],
        default="REQUIRE_APPROVAL",
    )
    calls = (
        Calls()
        .asked("1", "pay", {"amount": 9})
        .asked("2", "send", {"amount": 9})
        .asked("3", "read", {"amount": 1})
        .asked("4", "read")
        .asked("5", "other", {"amount": 1})
    )
    counts = {
        each["rule"]: (each["matched"], {name: n for name, n in each["decided"].items() if n}, each["errors"])
        for each in backtest(policy, calls)["rules"]
    }
    assert counts == {
        "cap": (1, {"MODIFY": 1}, 0),
        "big": (1, {"DENY": 2}, 1),
        "ask": (1, {"REQUIRE_APPROVAL": 1}, 0),
        "read": (1, {"ALLOW": 1}, 0),
        None: (1, {"REQUIRE_APPROVAL": 1}, 0),
    }


def test_what_was_decided_then_is_compared() -> None:
    calls = Calls().asked("1").evaluated("1", "ALLOW", input_digest=b"x" * 32).ran("1")
    calls.asked("2").evaluated("2", "DENY").rejected("2", "POLICY_DENY").asked("3").ran("3")
    data = backtest(Policy(), calls)
    assert data["recorded"] == {"same": 1, "other": 1, "inputs_same": 0, "inputs_other": 1}
    assert data["recorded_other"] == {"DENY->ALLOW": 1}
    assert data["missing"] == {"stage": 3, "labels": 3, "effect": 3, "risk": 3}


def test_examples_are_limited_and_long_arguments_are_cut() -> None:
    calls = Calls()
    for n in range(5):
        calls.asked(f"c{n}", arguments={"text": "ä" * 1000}).ran(f"c{n}")
    (cell,) = backtest(Policy(), calls, examples=2)["cells"]
    assert (cell["calls"], [each["call"] for each in cell["examples"]]) == (5, ["c0", "c1"])
    assert len(cell["examples"][0]["arguments"]) == 201
    assert backtest(Policy(), calls, examples=0)["cells"][0]["examples"] == []


def test_every_change_is_named_or_none() -> None:
    for now, expected in CHANGED.items():
        assert {then: change(then, now) for then in THENS} == {then: expected.get(then) for then in THENS}


# --- a difference -----------------------------------------------------------------------------------------------------


def difference(a: Policy, b: Policy, calls: Calls) -> dict[str, Any]:
    tally = Difference(a, b, 1)
    for call in calls.calls:
        tally.add(call)
    assert tally.as_data()["different"] == tally.different
    return tally.as_data()


def test_calls_are_grouped_by_what_the_two_decide_and_why() -> None:
    a = by_tool(shell="DENY", read="ALLOW", same="DENY")
    b = by_tool(shell="ALLOW", read="REQUIRE_APPROVAL", same="DENY", web="DENY")
    calls = Calls()
    for n, tool in enumerate(["shell", "read", "read", "same", "web", "other"]):
        calls.asked(f"c{n}", tool)
    data = difference(a, b, calls)
    assert (data["calls"], data["different"]) == (6, 4)
    assert [
        (each["a"], each["rule_a"], each["b"], each["rule_b"], each["differs"], each["calls"])
        for each in data["groups"]
    ] == [
        ("ALLOW", "read", "REQUIRE_APPROVAL", "read", "decision", 2),
        ("ALLOW", None, "DENY", "web", "decision", 1),
        ("DENY", "shell", "ALLOW", "shell", "decision", 1),
    ]
    assert [len(each["examples"]) for each in data["groups"]] == [1, 1, 1]


def test_other_arguments_and_another_approval_are_differences_too() -> None:
    def two(merge: int, to: str) -> Policy:
        return Policy(
            rules=[
                rule("cap", "MODIFY", 'call.tool == "pay"', merge={"amount": merge}),
                rule("ask", "REQUIRE_APPROVAL", 'call.tool == "send"', approval=Obligation(to=[[to]])),
            ]
        )

    calls = Calls().asked("1", "pay").asked("2", "send").asked("3", "read")
    groups = difference(two(1, "ann"), two(2, "bob"), calls)["groups"]
    assert [(each["a"], each["differs"], each["rule_a"]) for each in groups] == [
        ("MODIFY", "arguments", "cap"),
        ("REQUIRE_APPROVAL", "approval", "ask"),
    ]
    assert difference(two(1, "ann"), two(1, "ann"), calls)["groups"] == []


# --- coverage ---------------------------------------------------------------------------------------------------------


def coverage(policy: Policy, calls: Calls) -> dict[str, Any]:
    tally = Coverage(policy, 2)
    for call in calls.calls:
        tally.add(call)
    return tally.as_data()


def test_calls_that_no_rule_decides_are_counted_by_tool() -> None:
    policy = Policy(
        rules=[
            rule("shell", "ALLOW", 'call.tool == "shell" && has(call.arguments.ok)'),
            rule("note", "MODIFY", 'call.tool == "note"', merge={"a": 1}),
            rule("after", "DENY", 'call.tool == "shell" && has(call.arguments.ok)'),
            rule("never", "DENY", "false"),
        ]
    )
    calls = Calls().asked("1", "shell", {"ok": 1}).asked("2", "shell").asked("3", "note").asked("4", "shell", {"ok": 1})
    data = coverage(policy, calls)
    assert (data["calls"], data["uncovered"], data["uncovered_percent"]) == (4, 2, 50.0)
    assert [(each["tool"], each["calls"], each["uncovered"], each["uncovered_percent"]) for each in data["tools"]] == [
        ("shell", 3, 1, 33.3),
        ("note", 1, 1, 100.0),
    ]
    assert [example["call"] for example in data["tools"][0]["examples"]] == ["2"]
    assert data["never_matched"] == [
        {"rule": "after", "looked_at": 2, "errors": 0},
        {"rule": "never", "looked_at": 2, "errors": 0},
    ]


def test_without_a_call_nothing_is_claimed() -> None:
    data = coverage(Policy(), Calls())
    assert (data["calls"], data["uncovered_percent"], data["tools"]) == (0, None, [])


def test_tools_without_end_are_counted_together() -> None:
    tally = Coverage(Policy(), 0)
    (call,) = Calls().asked("c").calls
    for n in range(TOOLS_MOST + 5):
        tally.add(call._replace(facts=replace(call.facts, tool=f"t{n}")))
    tools = tally.as_data()["tools"]
    assert (len(tools), tools[0]["tool"], tools[0]["calls"]) == (TOOLS_MOST + 1, "(others)", 5)


# --- recordings of other harnesses ------------------------------------------------------------------------------------


@pytest.mark.parametrize("recording", each_recording())
def test_every_call_of_an_imported_session_is_given_once(recording: Recording) -> None:
    for events in events_of(recording):
        asked = [event.seq for event in events if event.type == "ToolCallRequested"]
        found = list(calls_in(events[0].session_id, list(events)))
        assert sorted(call.seq for call in found) == asked
        tally = Backtest(Policy(), 1)
        for call in found:
            tally.add(call)
        data = tally.as_data()
        assert data["calls"] + sum(data["not_evaluated"].values()) == len(asked)

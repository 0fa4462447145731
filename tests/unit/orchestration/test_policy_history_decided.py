"""Policies on the history of a session that the product's decider decided: the same inputs, the same decisions."""

from __future__ import annotations

from dalsegno.orchestration.documents import Policy
from dalsegno.orchestration.policy_effects import Backtest
from decider_lab import Scene, stage
from policy_lab import calls_in, rule

RULES = [
    rule("no-7", "DENY", 'call.tool == "write" && call.arguments.n == 7'),
    rule("cap", "MODIFY", 'call.tool == "write" && call.arguments.n > 100', merge={"n": 100}),
    rule("staged", "REQUIRE_APPROVAL", 'call.tool == "put" && stage.name == "work" && labels.tier == "gold"'),
    rule(
        "busy", "SIMULATE", 'call.tool == "put" && session.turns > 1 && session.tool_calls > 5 && session.tokens > 20'
    ),
]


def scene() -> Scene:
    """Two stages, with calls that run, are denied, changed, approved with other arguments, simulated, refused."""
    found = Scene([stage("plan"), stage("work")], policy=RULES, labels=[("tier", "gold")])
    found.answer("", ("write", {"n": 7}), ("write", {"n": 500}), ("look", {}), ("nope", {}), ("write", {"n": "x"}))
    found.run("plan.1/t1/c1")
    found.run("plan.1/t1/c2")
    found.answer("", ("put", {"a": 1}), ("write", {"n": 1.0}))
    found.run("plan.1/t2/c0")
    found.run("plan.1/t2/c1")
    found.answer("planned")
    found.begin_stage()
    found.answer("", ("put", {"a": 1}), ("put", {"a": 2}), ("look", {}))
    found.grant("work.1/t1/c0/a1", modified={"a": 3})
    found.run("work.1/t1/c2")
    found.run("work.1/t1/c0")
    return found


def test_under_its_own_policy_every_decision_and_every_input_is_as_recorded() -> None:
    found = scene()
    evaluated = {event.body["subject_id"] for event in found.events if event.type == "PolicyEvaluated"}
    tally = Backtest(Policy(rules=RULES), 1)
    thens = {}
    for call in calls_in("s", found.events):
        tally.add(call)
        thens[call.call_id] = (call.then, call.unfit)
    data = tally.as_data()
    assert len(evaluated) == 8
    assert data["recorded"] == {"same": 8, "other": 0, "inputs_same": 8, "inputs_other": 0}
    assert data["calls"] == 8
    assert data["not_evaluated"] == {"INVALID_ARGUMENTS": 1, "UNKNOWN_TOOL": 1}
    assert data["missing"]["stage"] == data["missing"]["labels"] == 0
    assert set(data["changes"].values()) == {0}
    assert thens == {
        "plan.1/t1/c0": ("denied", None),
        "plan.1/t1/c1": ("ran", None),
        "plan.1/t1/c2": ("ran", None),
        "plan.1/t1/c3": ("refused", "UNKNOWN_TOOL"),
        "plan.1/t1/c4": ("refused", "INVALID_ARGUMENTS"),
        "plan.1/t2/c0": ("simulated", None),
        "plan.1/t2/c1": ("ran", None),
        "work.1/t1/c0": ("approved", None),
        "work.1/t1/c1": ("waiting", None),
        "work.1/t1/c2": ("ran", None),
    }


def test_a_session_of_our_own_without_labels_had_none() -> None:
    found = Scene([stage("plan")])
    found.answer("", ("look", {}))
    tally = Backtest(Policy(), 1)
    for call in calls_in("s", found.events):
        tally.add(call)
    data = tally.as_data()
    assert data["calls"] == 1
    assert data["missing"]["labels"] == 0

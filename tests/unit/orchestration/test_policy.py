"""What a policy says of a call: the order of rules, modification, errors, approval; and what it leaves to read."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.orchestration.documents import Obligation, Policy, PolicyRule
from dalsegno.orchestration.policy import CallFacts, PolicyOutcome, evaluate, explain, guard, merged

SESSION = {"turns": 2, "tool_calls": 5, "tokens": 900}


def rule(id: str, decision: Any, when: str = "true", **more: Any) -> PolicyRule:
    return PolicyRule(id=id, decision=decision, when=when, **more)


def said(policy: Policy, arguments: Any = None, *, tool: str = "shell", approved: bool = False) -> PolicyOutcome:
    raw = arguments if isinstance(arguments, bytes) else json.dumps(arguments or {}).encode()
    call = CallFacts(tool=tool, arguments=raw, effect="WRITE", risk="HIGH")
    return evaluate(policy, call, "plan", {"tier": "gold"}, SESSION, approved=approved)


FORCE = rule("dry", "MODIFY", 'call.tool == "shell"', merge={"dry_run": True, "force": None})
LAYERED = Policy(
    rules=[
        rule("no-rm", "DENY", 'has(call.arguments.command) && call.arguments.command.startsWith("rm")'),
        FORCE,
        rule("ask", "REQUIRE_APPROVAL", 'call.risk == "HIGH" && stage.name == "deploy"'),
        rule("gold", "ALLOW", 'labels.tier == "gold" && session.turns < 9', explanation="gold may"),
    ],
    default="DENY",
)


def test_the_first_rule_that_matches_decides() -> None:
    found = said(LAYERED, {"command": "rm -rf"})
    assert (found.decision, found.rule_ids, found.decided_by) == ("DENY", ("no-rm",), "no-rm")
    assert [look.rule_id for look in found.looked_at] == ["no-rm"]
    assert found.explanation == "rule no-rm"


def test_if_none_matches_the_default_decides_and_says_so() -> None:
    found = said(Policy(rules=[rule("a", "ALLOW", "false")], default="DENY"))
    assert (found.decision, found.rule_ids, found.decided_by) == ("DENY", (), None)
    assert found.explanation == "no rule decides; the default is DENY"
    assert said(Policy()).decision == "ALLOW"


def test_modify_goes_on_with_the_modified_arguments() -> None:
    found = said(LAYERED, {"command": "ls", "force": True, "n": 1.0})
    assert (found.decision, found.rule_ids, found.decided_by) == ("MODIFY", ("dry", "gold"), "gold")
    assert found.modified == b'{"command":"ls","dry_run":true,"n":1}'
    assert found.explanation == "gold may"


@pytest.mark.parametrize("stricter", ["DENY", "REQUIRE_APPROVAL", "SIMULATE"])
def test_a_stricter_rule_behind_modify_sees_what_was_modified_and_wins(stricter: Any) -> None:
    found = said(Policy(rules=[FORCE, rule("then", stricter, "call.arguments.dry_run")]), {"x": 1})
    assert (found.decision, found.rule_ids) == (stricter, ("dry", "then"))
    assert (found.modified is None) == (stricter == "DENY")


def test_a_modification_that_changes_nothing_is_none() -> None:
    found = said(Policy(rules=[FORCE]), {"dry_run": True})
    assert (found.decision, found.modified, found.rule_ids) == ("ALLOW", None, ("dry",))


def test_an_expression_that_errors_denies_and_is_recorded() -> None:
    found = said(Policy(rules=[rule("a", "ALLOW", "call.arguments.path == '/tmp'"), rule("b", "ALLOW")]))
    assert (found.decision, found.decided_by) == ("DENY", "a")
    assert found.errors == ("a: no such key",)
    assert found.explanation == "the condition of rule a cannot be evaluated: no such key"
    assert found.looked_at[0].error == "no such key"


@pytest.mark.parametrize("raw", [b" ", b"[]", b'{"a":1,"a":2}', b'{"n":9223372036854775808}', b'{"n":NaN}', b"\xff"])
def test_arguments_that_are_none_are_denied(raw: bytes) -> None:
    found = said(Policy(), raw)
    assert found.decision == "DENY"
    assert "cannot be read" in found.explanation
    assert found.input != said(Policy(), raw + b" ").input


def test_whoever_is_to_be_asked_is_told_of() -> None:
    whom = Obligation(to=[["lead"], ["boss"]], ttl_seconds=60, on_expiry="ESCALATE")
    assert said(Policy(rules=[rule("a", "REQUIRE_APPROVAL", approval=whom)])).obligation == whom
    assert said(Policy(rules=[rule("a", "REQUIRE_APPROVAL")])).obligation == Obligation()
    assert said(Policy(default="REQUIRE_APPROVAL", default_approval=whom)).obligation == whom
    assert said(Policy(rules=[rule("a", "ALLOW", approval=whom)])).obligation is None


def test_arguments_that_an_approver_changed_may_be_denied_but_need_no_second_approval() -> None:
    policy = Policy(rules=[LAYERED.rules[0], rule("ask", "REQUIRE_APPROVAL")])
    assert said(policy, {"command": "ls"}).decision == "REQUIRE_APPROVAL"
    granted = said(policy, {"command": "ls"}, approved=True)
    assert (granted.decision, granted.obligation, granted.decided_by) == ("ALLOW", None, "ask")
    assert said(policy, {"command": "rm"}, approved=True).decision == "DENY"
    assert said(Policy(rules=[FORCE, *policy.rules]), {"command": "ls"}, approved=True).decision == "MODIFY"


def test_the_input_is_all_that_the_outcome_depends_on() -> None:
    policy = Policy(rules=[rule("n", "DENY", "call.arguments.n + 1 == 2")])
    one, same = said(policy, b'{"n": 1.0, "m": 1e20}'), said(policy, b'{"m":100000000000000000000.0,"n":1}')
    assert one == same
    assert one.decision == "DENY"
    assert one.input_digest == sha256(one.input).digest()
    assert one.input == (
        b'{"call":{"arguments":{"m":100000000000000000000,"n":1},"effect":"WRITE","risk":"HIGH","tool":"shell"},'
        b'"labels":{"tier":"gold"},"session":{"tokens":900,"tool_calls":5,"turns":2},"stage":{"name":"plan"}}'
    )


def test_neighbours_beyond_what_a_double_holds_are_told_apart() -> None:
    policy = Policy(rules=[rule("n", "DENY", "call.arguments.n == 9007199254740993"), FORCE])
    assert said(policy, {"n": 2**53 + 1}).decision == "DENY"
    kept = said(policy, {"n": 2**53 + 3})
    assert kept.modified == b'{"dry_run":true,"n":9007199254740995}'


def test_people_are_told_why() -> None:
    assert explain(LAYERED, said(LAYERED, {"command": "ls"}))[1:] == [
        'dry: matches: call.tool == "shell" -> MODIFY',
        'ask: does not match: call.risk == "HIGH" && stage.name == "deploy" -> REQUIRE_APPROVAL',
        'gold: matches: labels.tier == "gold" && session.turns < 9 -> ALLOW',
        "MODIFY: gold may",
    ]


def test_a_guard_that_errors_is_false() -> None:
    values = {
        "stage": {"name": "plan", "attempt": 1, "status": "COMPLETED", "output": "done", "verdicts": []},
        "session": SESSION,
        "labels": {},
        "stages": [],
    }
    assert guard('stage.status == "COMPLETED"', values) == (True, None)
    assert guard("stage.output", values) == (False, "not a bool")
    assert guard('labels.tier == "gold"', values) == (False, "no such key")


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # of RFC 7396, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patches(target: Any, patch: Any, result: Any) -> None:
    assert merged(target, patch) == result


conditions = st.sampled_from(["true", "false", "call.arguments.a == 1", "has(call.arguments.dry_run)", "stage.name"])
decisions = st.sampled_from(["ALLOW", "DENY", "REQUIRE_APPROVAL", "MODIFY", "SIMULATE"])


@given(st.lists(st.tuples(decisions, conditions), max_size=5), st.booleans(), st.binary(max_size=20))
def test_no_policy_raises_and_its_record_explains_it(rules: list[Any], approved: bool, raw: bytes) -> None:
    policy = Policy(rules=[rule(f"r{n}", one, when, merge={"dry_run": True}) for n, (one, when) in enumerate(rules)])
    for arguments in (raw, b"{}", b'{"a":1}'):
        found = said(policy, arguments, approved=approved)
        assert found == said(
            msgspec.json.decode(msgspec.json.encode(policy), type=Policy), arguments, approved=approved
        )
        assert set(found.rule_ids) <= {look.rule_id for look in found.looked_at}
        assert found.decided_by is None or found.rule_ids[-1] == found.decided_by
        assert not found.errors or found.decision == "DENY"
        assert not (approved and found.decision == "REQUIRE_APPROVAL")
        assert found.decision != "MODIFY" or found.modified is not None

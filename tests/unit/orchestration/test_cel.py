"""Conditions: what is taken, what is refused before it is pinned, and that each has one outcome."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.errors import InvalidDocument
from dalsegno.harness.files import load
from dalsegno.harness.tools import load_tools
from dalsegno.orchestration import cel
from dalsegno.orchestration.canonical import MAX_DEPTH
from dalsegno.orchestration.policy import GUARD_INPUTS, POLICY_INPUTS
from dalsegno.orchestration.validation import INPUTS as PREDICATE_INPUTS
from examples import examples

INPUTS: cel.Inputs = {
    "call": "value",
    "labels": "value",
    "stage": "value",
    "stage.verdicts": "list",
    "stages": "list",
}
VALUES: dict[str, Any] = {
    "call": {"tool": "shell", "arguments": {"command": "rm -rf /", "n": 3, "half": 0.5, "big": 2**63 - 1, "no": None}},
    "labels": {"team": "a", "tier": "gold"},
    "stage": {"name": "plan", "verdicts": [{"validator": "tests", "verdict": "PASS"}]},
    "stages": [{"name": "plan", "status": "COMPLETED"}, {"name": "code", "status": "FAILED"}],
}


def outcome(text: str, **changed: Any) -> cel.Outcome:
    return cel.compile(text, INPUTS, where="policy.yaml, line 3").holds({**VALUES, **changed})


TAKEN = [
    ("true", True),
    ('call.tool == "shell" && call.arguments.command.startsWith("rm")', True),
    ('call.arguments.command.matches(r"rm\\s+-rf")', True),
    ("call.arguments.n + 1 == 4 && call.arguments.n > 0 ? true : false", True),
    ("call.arguments.no == null", True),
    ("has(call.arguments.path)", False),
    ('"team" in labels && labels["tier"] == "gold"', True),
    ("size(labels) == 2", True),
    ('stage.verdicts.all(each, each.verdict == "PASS")', True),
    ('stages . exists\n(each, each.status == "FAILED")', True),
    ('stages.exists_one(each, each.name == "plan")', True),
    ("stages.filter(each, each.status != 'FAILED').size() == 1", True),
    ('stages.map(each, each.name) == ["plan", "code"]', True),
    ("stages.all(each, stage.verdicts.exists(other, other.validator != each.name))", True),
    ('call.tool in ["shell", "python"]', True),
    ('labels == {"tier": "gold", "team": "a"}', True),
    ('call.tool == "labels.all(k, true)" // labels.all(k, true)', False),
    ('"\\" || labels.all(k, true) || \\"" == call.tool', False),
]


@pytest.mark.parametrize(("text", "value"), TAKEN)
def test_what_has_one_outcome_is_taken(text: str, value: bool) -> None:
    assert outcome(text) == cel.Outcome(value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("call.arguments.path == 'x'", "no such key"),
        ("stages[7].name == 'x'", "no such index"),
        ("call.arguments.n / 0 == 1", "division by zero"),
        ("call.arguments.big + 1 > 0", "overflow"),
        ("call.arguments.half + 1 > 0", "types that do not go together"),
        ("call.tool < 3", "types that do not go together"),
        ("call.tool.matches('(')", "it cannot be evaluated"),
        ("call.tool", "not a bool"),
        ("call.arguments.n", "not a bool"),
    ],
)
def test_an_error_is_an_outcome_with_words_of_ours(text: str, error: str) -> None:
    found = outcome(text)
    assert found.error == error
    assert found.detail or error == "overflow"


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"stages": {"plan": 1}}, "an input is no list"),
        ({"stage": {}}, "an input is missing"),
        ({"labels": {"n": 2**63}}, "an input does not fit"),
        ({"labels": {"n": -(2**63) - 1}}, "an input does not fit"),
        ({"call": {"tool": "\ud800"}}, "an input does not fit"),
    ],
)
def test_inputs_that_are_none_are_errors_too(changed: dict[str, Any], error: str) -> None:
    assert outcome('call.tool == "shell"', **changed).error == error


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # Over anything but a list of ours, however it is written: maps are walked in another order in each process.
        ("labels.all(k, true)", "'all' stands over 'labels'"),
        ("labels . exists\n( k, true)", "'exists' stands over 'labels'"),
        ("call.arguments.map(k, k) == []", "'map' stands over 'call.arguments'"),
        ("stage.exists_one(k, true)", "'exists_one' stands over 'stage'"),
        ("{'a': 1}.filter(k, true) == []", "'filter' stands over 'something that has no name'"),
        ("[labels][0].all(k, true)", "something that has no name"),
        ("(stages).all(k, true)", "something that has no name"),
        (".stages.all(k, true)", "something that has no name"),
        ("labels.stages.all(k, true)", "'all' stands over 'labels.stages'"),
        ("stages.map(each, each).all(each, true)", "something that has no name"),
        ('r"\\" == "" || labels.all(k, true) || call.tool == r"\\"', "'all' stands over 'labels'"),
        ("stages.all(labels, true)", "'all' binds 'labels', which is an input"),
        ("stages.all(each, stages.all(other, stages.all(third, true)))", "macros stand within macros"),
        ("stages.all(true)", "'all' names no variable"),
        ("all(stages, each, true)", "'all' stands over nothing"),
        # Unknown, or of the clock, or of the machine.
        ("now() > 3", "calls 'now'"),
        ("timestamp('2026-01-01T00:00:00Z') < timestamp('2027-01-01T00:00:00Z')", "calls 'timestamp'"),
        ("cal.tool == 'x'", "uses 'cal'"),
        ("each.name == '' || stages.all(each, true)", "uses 'each'"),
        ("optional.of(1) == 1", "uses 'optional'"),
        ("Call{tool: 'x'} == call", "uses 'Call'"),
        ("_f(call)", "calls '_f'"),
        # No condition.
        ("", "no CEL"),
        ("call.tool ==", "no CEL"),
        ("call.tool == 'x", "at character 14"),
        ("call.tool == `x`", "at character 14"),
        ('"""x""" == call.tool', "three quotes"),
        ("'yes'", "gives 'yes' whatever its inputs"),
        ("1 / 0 == 1", "gives 'division by zero' whatever its inputs"),
        # Too deep for the engine, which would end the process.
        ("(" * 25 + "true" + ")" * 25, "nested too deep"),
        ("+".join(["1"] * 201) + " == 1", "403 parts"),
    ],
)
def test_whatever_could_have_two_outcomes_is_refused_when_it_is_compiled(text: str, found: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        cel.compile(text, INPUTS, where="policy.yaml, line 3")
    assert found in caught.value.found
    assert caught.value.found.startswith("policy.yaml, line 3: ")
    assert caught.value.wanted


def test_a_wrong_name_is_answered_with_the_likely_one() -> None:
    with pytest.raises(InvalidDocument, match="wanted: labels"):
        cel.compile("label.tier == 'gold'", INPUTS, where="x")
    with pytest.raises(InvalidDocument, match="wanted: startsWith"):
        cel.compile("call.tool.startswith('x')", INPUTS, where="x")


WORDS = r"""stages labels stage.verdicts call x . ( ) [ ] { } all map exists , : ? && == true 1 'a' r'\' " ' in ! each
    stages.all(x, labels.exists( true)"""
words = st.sampled_from(WORDS.split())


@given(st.lists(words, max_size=14))
def test_what_is_taken_of_any_words_never_walks_a_map(parts: list[str]) -> None:
    """Whatever is taken gives the same over labels in two orders of their keys, and never raises."""
    try:
        expression = cel.compile(" ".join(parts), INPUTS, where="x")
    except InvalidDocument:
        return
    mapped = [{"a": "b", "b": "a"}, {"b": "a", "a": "b"}]
    found = [expression.evaluate({**VALUES, "labels": labels}) for labels in mapped]
    assert found[0] == found[1]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_no_value_makes_an_evaluation_raise(value: Any) -> None:
    for text in ("call.tool == 'x'", "call == labels", "size(call) > 1 || call", "call in [labels]"):
        assert isinstance(outcome(text, call=value), cel.Outcome)


def test_a_value_as_deep_as_is_let_in_does_not_end_the_process_on_a_small_stack() -> None:
    code = (
        "import threading; from dalsegno.orchestration import cel\n"
        f"deep = 1\nfor _ in range({MAX_DEPTH}): deep = [deep]\n"
        "texts = ['v == v', '+'.join(['1'] * 198) + ' == 1', 'v' + '[0]' * 130 + ' == 1']\n"
        "run = lambda: print([cel.compile(t, {'v': 'value'}, where='').holds({'v': deep}).value for t in texts])\n"
        "threading.stack_size(512 * 1024); thread = threading.Thread(target=run); thread.start(); thread.join()\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (0, "[True, False, None]\n"), ran.stderr


EVERYWHERE = """
import json, sys
from dalsegno.orchestration import cel
outcomes = [cel.compile(t, inputs, where="").evaluate(values) for inputs, values, t in json.load(sys.stdin)]
print(json.dumps([[str(each.value), each.error] for each in outcomes]))
"""


def in_processes(conditions: list[tuple[cel.Inputs, dict[str, Any], str]], processes: int) -> set[str]:
    """What fresh processes say, each with hash seed, and time zone, of its own. ``conditions``: inputs, their values,
    the text."""
    told = json.dumps([(dict(inputs), values, text) for inputs, values, text in conditions])
    zones = ("UTC", "Asia/Kathmandu", "America/St_Johns")
    found = set()
    for seed in range(processes):
        env = {**os.environ, "PYTHONHASHSEED": str(seed), "TZ": zones[seed % len(zones)]}
        ran = subprocess.run(
            [sys.executable, "-c", EVERYWHERE],
            input=told,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        found.add(ran.stdout)
    return found


VALUES_OF_EXAMPLES: dict[str, Any] = {
    **VALUES,
    "call": {"tool": "refund", "arguments": {"cents": 2001, "path": "a/test_b.py"}, "effect": "DESTRUCTIVE"},
    "labels": {"shift": "night", "tier": "gold", "team": "a"},
    "stage": {"status": "COMPLETED", "output": "{}", "verdicts": [{"validator": "v", "verdict": "PASS"}] * 3},
    "session": {"turns": 1, "tool_calls": 2, "tokens": 3},
    "output": '{"steps": ["one"]}',
    "json": {"steps": ["one"]},
    "facts": {},
}
OTHER_VALUES: dict[str, Any] = {
    **VALUES_OF_EXAMPLES,
    "call": {"tool": "refund", "arguments": {}, "effect": "READ"},
    "labels": {},
    "stage": {
        "status": "FAILED",
        "output": "",
        "verdicts": [{"validator": "v", "verdict": "PASS"}, {"verdict": "REJECT"}],
    },
    "output": "x" * 1000,
    "json": None,
}
"""With which they do not hold, or cannot be evaluated."""


def conditions_of_examples() -> list[tuple[cel.Inputs, str]]:
    """Every condition of the documents in ``examples/``, with the names that it may use."""
    found: list[tuple[cel.Inputs, str]] = []
    for file in sorted((Path(__file__).parents[3] / "examples").glob("*/workflow.yaml")):
        loaded = load(file, tools=[each.spec for each in load_tools(str(file.with_name("tools.py")))])
        found += [(POLICY_INPUTS, rule.when) for rule in loaded.policy.rules]
        found += [(GUARD_INPUTS, each.when) for each in loaded.workflow.transitions if each.when is not None]
        predicates = (each.predicate for each in loaded.validators.validators)
        found += [(PREDICATE_INPUTS, each) for each in predicates if each is not None]
    assert len(found) == 8
    return found


def test_the_conditions_of_the_examples_can_be_evaluated() -> None:
    for inputs, text in conditions_of_examples():
        assert cel.compile(text, inputs, where="").holds(VALUES_OF_EXAMPLES).error is None, text
        assert cel.compile(text, inputs, where="").holds(OTHER_VALUES).value is not True, text


def test_every_condition_has_one_outcome_in_all_processes() -> None:
    texts = [text for text, _ in TAKEN] + ["call.arguments.path == 'x'", "call.arguments.big + 1 > 0"]
    conditions = [(INPUTS, VALUES, text) for text in texts]
    conditions += [
        (inputs, values, text)
        for inputs, text in conditions_of_examples()
        for values in (VALUES_OF_EXAMPLES, OTHER_VALUES)
    ]
    assert len(in_processes(conditions, min(50, examples(5)))) == 1


def test_the_engine_is_named_with_its_version() -> None:
    name, _, version = cel.ENGINE.partition("/")
    assert name == "common-expression-language"
    assert version in Path(__file__).parents[3].joinpath("requirements/service.txt").read_text("utf-8")

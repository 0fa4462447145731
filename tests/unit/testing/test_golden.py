"""Golden references: what stands in them, what they find, and the fixture that a harness's tests use."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dalsegno.errors import BadInputFile
from dalsegno.harness.tools import tool
from dalsegno.replay.golden import compare, lines_of, read, written
from dalsegno.testing import Simulation, simulate
from dalsegno.testing.simulation import START
from looking_lab import WORKFLOW

SCRIPT = [
    {"match": "work.1/t1/i", "calls": [{"name": "look", "arguments": {"what": "x"}}]},
    {"match": "work.1/t2/i", "text": "done"},
]


@tool(effect="READ")
def look(what: str) -> str:
    """Look at something."""
    return f"saw {what}"


def run(folder: Path, workflow: str = WORKFLOW) -> Simulation:
    file = folder / "workflow.yaml"
    file.write_text(workflow)
    return simulate(file, goal="find it", script=SCRIPT, tools=[look])


def test_equal_runs_have_equal_references_and_files_come_back(tmp_path: Path) -> None:
    one, other = run(tmp_path), run(tmp_path)
    assert (one.outcome, one.stopped) == ("SUCCESS", None)
    lines = lines_of(one.events)
    assert written(lines) == written(lines_of(other.events))
    assert read(written(lines), "g") == lines
    assert compare(lines, lines) is None


@pytest.mark.parametrize("prompts", ['main: "Task: {goal}"', 'main: "Task: {goal}", more: "{clock_start}"'])
def test_a_simulations_time_begins_at_the_same_moment_whatever_it_pins(tmp_path: Path, prompts: str) -> None:
    started = run(tmp_path, WORKFLOW.replace('main: "Task: {goal}"', prompts)).decisions("SessionStarted")
    assert [body["clock_start"] for body in started] == [START]


def test_a_changed_line_of_policy_is_named_and_the_configuration_comes_first(tmp_path: Path) -> None:
    lines = lines_of(run(tmp_path).events)
    changed = lines_of(run(tmp_path, WORKFLOW.replace('== "y"', '== "x"')).events)
    found = compare(lines, changed)
    assert found is not None
    assert (found.line, found.what) == (1, "another configuration: POLICY")
    decision = compare(lines[1:], changed[1:])
    assert decision is not None
    assert decision.expected is not None
    assert decision.actual is not None
    assert decision.expected["type"] == decision.actual["type"] == "PolicyEvaluated"
    assert "decision 'ALLOW' -> 'DENY'" in decision.what


def test_a_file_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    content = written(lines_of(run(tmp_path).events))
    with pytest.raises(BadInputFile, match="cut off"):
        read(content[: content.rindex(b'{"end"')], "g")
    with pytest.raises(BadInputFile, match="line 1"):
        read(b"{}\n", "g")
    with pytest.raises(BadInputFile, match="line 2"):
        read(content.replace(b'{"decision": 1', b'{"decision" 1', 1), "g")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"golden": 1, "session": 7}\n{"end": 0}', 1),
        ('{"golden": 1, "configuration": "x"}\n{"end": 0}', 1),
        ('{"golden": 2}\n{"end": 0}', 1),
        ('{"golden": 1}\n{"says": []}\n{"end": 0}', 2),
        ('{"golden": 1}\n[]\n{"end": 0}', 2),
        ('{"golden": 1}\n' + "[" * 100_000, 2),
        ("", 1),
        ("\xff", 1),
    ],
)
def test_what_is_no_reference_is_named_by_its_line(text: str, line: int) -> None:
    with pytest.raises(BadInputFile, match=f"line {line}: "):
        read(text.encode("latin-1"), "g")


TEST = """
from conftest import SCRIPT, look
from dalsegno.testing import simulate

def test_decides(golden):
    golden.check(simulate("workflow.yaml", goal="find it", script=SCRIPT, tools=[look]).events)

def test_forgets(golden):
    pass
"""
CONFTEST = f"""
from dalsegno.harness.tools import tool
pytest_plugins = ["dalsegno.testing.pytest_plugin"]
SCRIPT = {SCRIPT!r}

@tool(effect="READ")
def look(what: str) -> str:
    return f"saw {{what}}"
"""


def test_the_fixture_fails_where_a_decision_changed_and_says_which(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_agent=TEST)
    pytester.path.joinpath("workflow.yaml").write_text(WORKFLOW)
    options = ("-p", "no:randomly", "-q", "-k", "decides")
    missing = pytester.runpytest_inprocess(*options)
    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines(["*no golden reference*"])
    pytester.runpytest_inprocess(*options, "--golden-update").assert_outcomes(passed=1)
    pytester.runpytest_inprocess(*options).assert_outcomes(passed=1)
    reference = pytester.path / "golden" / "test_agent" / "test_decides.jsonl"
    before = reference.read_bytes()
    changed = WORKFLOW.replace("validators: [said]}", "validators: []}")
    pytester.path.joinpath("workflow.yaml").write_text(changed)
    failed = pytester.runpytest_inprocess(*options)
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(["*test_decides.jsonl, line 1: another configuration: WORKFLOW*"])
    assert reference.read_bytes() == before
    pytester.runpytest_inprocess("-q", "-k", "forgets").assert_outcomes(passed=1, errors=1)


def test_the_test_that_the_page_shows_passes_and_fails_as_it_says(pytester: pytest.Pytester) -> None:
    page = (Path(__file__).parents[3] / "docs" / "golden.md").read_text("utf-8")
    [shown] = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    [plugins] = re.findall(r"^ {4}(pytest_plugins = .*)$", page, re.M)
    pytester.makeconftest(plugins)
    pytester.makepyfile(test_mine=shown)
    pytester.path.joinpath("workflow.yaml").write_text(WORKFLOW)
    pytester.runpytest_subprocess("-p", "no:randomly").assert_outcomes(failed=1)
    pytester.runpytest_subprocess("-p", "no:randomly", "--golden-update").assert_outcomes(passed=1)
    assert pytester.path.joinpath("golden", "test_mine", "test_my_agent.jsonl").exists()
    pytester.runpytest_subprocess("-p", "no:randomly").assert_outcomes(passed=1)

"""The decisions of the example workflows, against references that are never written to turn a test green.

One file for each example and version of the decider: whoever changes what is decided raises the version, and adds a
file; a change that is not meant is named here with its decision.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dalsegno.harness.reporters import Function
from dalsegno.harness.tools import load_tools
from dalsegno.model.events import NewEvent
from dalsegno.orchestration.decider import DECIDER_VERSION, World
from dalsegno.orchestration.ports import ToolResult, Verdict
from dalsegno.projections.decider.rows import APPROVAL
from dalsegno.replay.golden import compare, lines_of, read, written  # noqa: F401 - written: for the program below
from dalsegno.testing import Simulation, simulate
from dalsegno.testing.pytest_plugin import Golden
from workflow_lab import CODING, EXAMPLES, TRIAGE, WIRE, Example

VERSION = f"decider-{DECIDER_VERSION}"
ALL = pytest.mark.parametrize("example", [TRIAGE, CODING, WIRE], ids=lambda each: each.name)


def run(example: Example, work: Path, folder: Path | None = None) -> Simulation:
    """The example, or the changed one in a folder, as it is simulated here. ``work``: where its tools work."""
    folder = folder or example.folder
    work.mkdir(parents=True)
    os.environ["EXAMPLE_FOLDER"] = str(work)
    if example is CODING:
        shutil.copytree(folder / "program", work, dirs_exist_ok=True)

    def person(world: World) -> NewEvent | None:
        waiting = [id for id, approval in world.rows.family(APPROVAL).items() if approval.phase == "OPEN"]
        answers = ((id, example.person[id]) for id in sorted(waiting) if id in example.person)
        return next((answer(world.rows.get((APPROVAL, id)).arguments) for id, answer in answers), None)

    verdicts = iter([Verdict("REJECT", evidence=(b"FAILED (failures=1)",)), Verdict("PASS")])
    ran = ToolResult(b"FAILED (failures=2)", exit_code=1)
    return simulate(
        folder / "workflow.yaml",
        goal=example.goal,
        script=folder / "script.yaml",
        # What programs print differs from machine to machine.
        tools=[
            replace(tool, function=lambda: ran) if tool.spec.name == "run_tests" else tool
            for tool in load_tools(str(folder / "tools.py"))
        ],
        reporters={"unittest": Function(lambda *_: next(verdicts))},
        people=person,
        labels=example.labels,
    )


@ALL
def test_an_example_decides_as_it_did(
    example: Example, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXAMPLE_FOLDER", "")
    simulation = run(example, tmp_path / "work")
    assert (simulation.outcome, simulation.stopped) == ("SUCCESS", None)
    golden.check(simulation.events, VERSION)


def reference(example: Example) -> bytes:
    name = f"test_an_example_decides_as_it_did_{example.name}_.{VERSION}.jsonl"
    return (Path(__file__).parent / "golden" / "test_examples_golden" / name).read_bytes()


@ALL
def test_another_hash_seed_time_zone_and_folder_give_the_same_bytes(example: Example, tmp_path: Path) -> None:
    tests = Path(__file__).parents[2]
    program = (
        "import sys; from pathlib import Path; from test_examples_golden import *\n"
        f"example = next(each for each in (TRIAGE, CODING, WIRE) if each.name == {example.name!r})\n"
        "sys.stdout.buffer.write(written(lines_of(run(example, Path(sys.argv[1])).events)))"
    )
    places = [str(Path(__file__).parent), str(tests), str(tests.parent / "processors")]
    for seed, zone in (("1", "Asia/Kathmandu"), ("4711", "America/St_Johns")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone, "PYTHONPATH": os.pathsep.join(places)}
        ended = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / seed / "a folder")],
            cwd=tmp_path, env=environment, capture_output=True, timeout=120,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr.decode()
        assert ended.stdout == reference(example)


@pytest.mark.parametrize(
    ("file", "line", "other", "said"),
    [
        ("policy.yaml", "cents > 2000", "cents > 1000", "act.1/t1/c0/d1: decision 'ALLOW' -> 'REQUIRE_APPROVAL'"),
        ("workflow.yaml", "validators: [short, polite]", "validators: [short]", "in the place of"),
        ("workflow.yaml", "limits: {turns: 5}", "limits: {turns: 2}", "in the place of TurnStarted of sort.1/t3"),
        ("workflow.yaml", "of a small shop", "of a large shop", "ContextPackBuilt of sort.1/t1/p: "),
        ("compression.yaml", "stage_boundary: true, overflow: true", "overflow: true", "CompressionStarted"),
    ],
)
def test_a_changed_line_is_named_by_the_first_decision_that_it_changes(
    file: str, line: str, other: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXAMPLE_FOLDER", "")
    folder = tmp_path / "changed"
    shutil.copytree(EXAMPLES / "triage", folder)
    text = (folder / file).read_text("utf-8")
    assert text.count(line) == 1
    (folder / file).write_text(text.replace(line, other), "utf-8")
    found = compare(read(reference(TRIAGE), "triage"), lines_of(run(TRIAGE, tmp_path / "work", folder).events))
    assert found is not None
    assert found.what.startswith("another configuration: ")
    assert found.led_to is not None
    assert said in found.led_to.what


@ALL
def test_a_reference_says_nothing_of_the_machine(example: Example) -> None:
    text = reference(example).decode()
    for word in ("/tmp", "/home", "/work", sys.prefix, "python3", "simulation"):
        assert word not in text
    assert json.loads(text.splitlines()[0])["decided_by"]["decider"] == DECIDER_VERSION

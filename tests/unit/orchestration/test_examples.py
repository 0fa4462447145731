"""The workflows in ``examples/``: their documents load, and their tools do what they declare."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dalsegno.harness.files import load
from dalsegno.harness.providers.scripted import read_script
from dalsegno.harness.tools import PythonTools, load_tools
from dalsegno.orchestration.ports import ToolResult, ToolRun

EXAMPLES = Path(__file__).parents[3] / "examples"
WORKFLOWS = sorted(path.parent.name for path in EXAMPLES.glob("*/workflow.yaml"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the tools work, with the program that the coding agent repairs; beside it a file that is none of theirs."""
    inside = tmp_path / "inside"
    shutil.copytree(EXAMPLES / "coding" / "program", inside)
    (tmp_path / "secret").write_text("not yours")
    monkeypatch.setenv("EXAMPLE_FOLDER", str(inside))
    return inside


def run(example: str, name: str, arguments: dict[str, object], key: str = "key-1") -> ToolResult:
    tools = PythonTools(load_tools(str(EXAMPLES / example / "tools.py")))
    return tools.run(ToolRun("s", "plan.1/t1/c0", 1, name, json.dumps(arguments).encode(), key))


def test_there_are_three() -> None:
    assert WORKFLOWS == ["coding", "triage", "wire"]


@pytest.mark.parametrize("example", WORKFLOWS)
def test_its_documents_load(example: str) -> None:
    tools = load_tools(str(EXAMPLES / example / "tools.py"))
    loaded = load(EXAMPLES / example / "workflow.yaml", tools=[tool.spec for tool in tools])
    assert loaded.workflow.name == example
    used = {name for stage in loaded.workflow.stages for name in stage.tools}
    assert used == {tool.spec.name for tool in tools}
    read_script(EXAMPLES / example / "script.yaml")


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "/etc/passwd",
        "link",
        "sub/../../secret",
        ".writes",
        "sub/../.writes",
        "away/secret",
        "",
        ".",
        "sub/..",
    ],
)
def test_no_path_leads_out_of_the_folder(folder: Path, path: str) -> None:
    (folder / "link").symlink_to(folder.parent / "secret")
    (folder / "away").symlink_to(folder.parent)
    assert run("coding", "read_file", {"path": path}).status == "ERROR"
    assert run("coding", "write_file", {"path": path, "content": "x"}).status == "ERROR"
    assert (folder.parent / "secret").read_text() == "not yours"
    assert not (folder / ".writes").exists()
    assert sorted(path.name for path in folder.parent.iterdir()) == ["inside", "secret"]


def test_a_file_is_written_once_for_each_key(folder: Path) -> None:
    for key, content in [("key-12", "first"), ("key-1", "second"), ("key-12", "first")]:
        assert run("coding", "write_file", {"path": "new/a.py", "content": content}, key).status == "OK"
    assert (folder / "new/a.py").read_text() == "second"


def test_a_run_of_the_tests_leaves_the_folder_as_it_is(folder: Path) -> None:
    def listed() -> list[str]:
        return sorted(str(path) for path in folder.rglob("*"))

    before = listed()
    first, second = (run("coding", "run_tests", {}) for _ in range(2))
    assert first.exit_code == 1
    assert b"FAILED (failures=2)" in first.result
    assert first.result == second.result
    assert listed() == before


def test_no_refund_takes_money(folder: Path) -> None:
    assert run("triage", "refund", {"ticket": "T-1", "cents": -1500, "reason": "x"}).status == "ERROR"
    assert not (folder / "outbox.jsonl").exists()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("refund", {"ticket": "T-1", "cents": 1500, "reason": "broken"}),
        ("reply", {"ticket": "T-1", "text": "sorry", "signature": "us"}),
        ("escalate", {"ticket": "T-4", "to": "insurance"}),
    ],
)
def test_what_the_service_desk_does_outside_is_done_once_for_each_key(
    folder: Path, name: str, arguments: dict[str, object]
) -> None:
    answers = [run("triage", name, arguments, key).result for key in ("key-1", "key-1", "key-2")]
    assert len(set(answers)) == 1
    keys = [json.loads(line)["key"] for line in (folder / "outbox.jsonl").read_text().splitlines()]
    assert keys == ["key-1", "key-2"]


def test_the_wire_goes_as_often_as_it_is_sent(folder: Path) -> None:
    for _ in range(2):
        run("wire", "send_wire", {"to": "ACME", "cents": 1})
    assert len((folder / "wires.jsonl").read_text().splitlines()) == 2
    (declared,) = load_tools(str(EXAMPLES / "wire" / "tools.py"))
    assert not declared.spec.idempotent

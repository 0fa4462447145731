"""From what a command line gives to documents and ports."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dalsegno.errors import Failed, NotFound, Usage
from dalsegno.harness.opening import Options, missing, open_documents, open_ports
from dalsegno.harness.providers.scripted import Scripted
from dalsegno.orchestration.configuration import configuration_of
from dalsegno.orchestration.documents import KINDS
from dalsegno.orchestration.ports import Request

TOOLS = """
from dalsegno.harness.tools import tool
from dalsegno.orchestration.ports import Verdict

@tool(effect="READ", risk="LOW")
def look(what: str) -> str:
    "Looks at it."
    return what

def judge(session_id, validation_id, validator, target):
    return Verdict("PASS" if target == b"good" else "REJECT")
"""
WORKFLOW = """
name: w
agents:
  a: {provider: main, model: m, prompt: sys}
stages:
  - {name: work, agent: a, tools: [look, other], validators: [checked], retrieve: [{id: notes, query: notes.txt}]}
tools:
  - {name: other, workflow: child}
prompts: {sys: do it}
validators:
  - {name: checked, reporter: check}
"""
CHILD = """
name: child
agents:
  a: {provider: main, model: m, prompt: sys}
stages:
  - {name: sub, agent: a}
prompts: {sys: do it}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {
        "tools.py": TOOLS, "workflow.yaml": WORKFLOW, "child.yaml": CHILD, "notes.txt": "remember",
        "script.yaml": "- {text: from the script}", "program.yaml": f"command: [{sys.executable}, -c, pass]",
        "list.yaml": "[1]",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
    return tmp_path


def asked(provider: Scripted) -> str:
    return provider.complete(Request("s", "work.1/t1/i", 1, "p", "m", {}, [], [], b"")).text


def test_all_that_a_workflow_uses_is_opened(folder: Path) -> None:
    opened = open_ports(
        Options(
            tools=[f"{folder}/tools.py"],
            providers=[f"main=scripted:{folder}/script.yaml"],
            reporters=[f"check={folder}/tools.py:judge"],
            files=folder,
            workflows=[f"child={folder}/child.yaml"],
        )
    )
    pinned = open_documents(folder / "workflow.yaml", opened.tools)
    assert [each.kind for each in pinned] == list(KINDS)
    configuration = configuration_of({each.kind: each.content for each in pinned})
    assert configuration.build.harness.startswith("dalsegno/")
    assert {tool.name for tool in configuration.tools.tools} == {"look", "other"}
    assert missing(configuration, opened) == []
    assert asked(opened.ports.providers["main"]) == "from the script"  # type: ignore[arg-type]
    assert opened.ports.reporters["check"].report("s", "v", "checked", b"bad").verdict == "REJECT"
    assert opened.ports.retriever is not None
    assert opened.ports.retriever.fetch("s", "i", "FILE", "notes.txt")[0] == b"remember"
    assert [each.kind for each in opened.workflows["child"]] == list(KINDS)


def test_what_is_missing_is_told_as_the_options_that_would_give_it(folder: Path) -> None:
    whole = open_ports(Options(tools=[f"{folder}/tools.py"]))
    pinned = open_documents(folder / "workflow.yaml", whole.tools)
    configuration = configuration_of({each.kind: each.content for each in pinned})
    assert sorted(missing(configuration, open_ports(Options()))) == [
        "--files FOLDER", "--provider main=KIND:VALUE", "--reporter check=CODE", "--tools with look",
        "--workflow child=FILE",
    ]  # fmt: skip


@pytest.mark.parametrize("given", ["scripted:{}/script.yaml", "*=scripted:{}/script.yaml"])
def test_a_provider_without_a_name_answers_for_all(folder: Path, given: str) -> None:
    ports = open_ports(Options(providers=[given.format(folder)])).ports
    assert asked(ports.providers["*"]) == "from the script"  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["openai:http://localhost:1/v1", "main=openai:http://localhost:1/v1?", "x=openai:"])
def test_a_url_of_a_model_is_taken_as_it_is(given: str) -> None:
    if given.endswith(("?", ":")):
        with pytest.raises(Failed, match="base_url"):
            open_ports(Options(providers=[given]))
    else:
        assert list(open_ports(Options(providers=[given])).ports.providers) == ["*"]


def test_a_program_reports_by_its_exit_code(folder: Path) -> None:
    given = [f"a=program:{sys.executable} -c 'raise SystemExit(3)'", f"b=program:{folder}/program.yaml"]
    reporters = open_ports(Options(reporters=given)).ports.reporters
    assert [reporters[name].report("s", "v", "x", b"").verdict for name in "ab"] == ["REJECT", "PASS"]


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        (Options(reporters=["check"]), Usage, "--reporter NAME=VALUE"),
        (Options(reporters=["=x.py:f"]), Usage, "--reporter NAME=VALUE"),
        (Options(workflows=["child.yaml"]), Usage, "--workflow NAME=VALUE"),
        (Options(providers=["a=nobody:x.yaml"]), Usage, "No such file"),
        (Options(providers=["a=nobody"]), NotFound, "no provider"),
        (Options(providers=["scripted:gone.yaml"]), Failed, "gone.yaml"),
        (Options(providers=["a=openai:list.yaml"]), Usage, "holds a list"),
        (Options(tools=["gone.py"]), Failed, "gone.py"),
    ],
)
def test_what_cannot_be_opened_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: Options, kind: type[Exception], said: str
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(kind) as raised:
        open_ports(options)
    assert said in str(raised.value)


def test_a_name_that_is_given_twice_is_refused(folder: Path) -> None:
    script = f"scripted:{folder}/script.yaml"
    with pytest.raises(Usage, match="a second one for"):
        open_ports(Options(providers=[script, f"*={script}"]))

"""What ``dalsegno run`` says of a session: how it ended, what it waits for, the command that goes on with it."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from dalsegno import events
from dalsegno.cli import run_text, running
from dalsegno.cli.context import Context
from dalsegno.cli.frame import run
from dalsegno.errors import Conflict
from dalsegno.harness.opening import Options
from dalsegno.harness.past import StoredContents
from dalsegno.harness.sessions import resume
from dalsegno.model.records import Event
from dalsegno.orchestration.documents import PolicyRule, Question
from dalsegno.settings import Settings
from dalsegno.storage.blobs import Blobs
from dalsegno.testing.in_memory import MemoryPublisher, memory_publisher
from session_lab import SESSION, Killed, World, stage

ASK = PolicyRule(id="ask", decision="REQUIRE_APPROVAL", when='call.tool == "pay"')
TWO = [
    {
        "match": "*/t1/i",
        "calls": [{"name": "wire", "arguments": {"cents": 1}}, {"name": "pay", "arguments": {"cents": 1}}],
    }
]


def context(**flags: Any) -> Context:
    return Context(settings=Settings(), flags=flags, output="json")


def ended_by(event: events.NewEvent) -> Event:
    publisher = memory_publisher()
    with publisher.session("s") as session:
        session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
        session.append(events.SessionStarted())
        session.append(event)
    return publisher.events("s")[-1]


ERROR = events.ErrorInfo(error_class="stage-failed", message="stage work: it failed", retryable=False)


@pytest.mark.parametrize(
    ("end", "code", "outcome"),
    [
        (events.SessionCompleted(outcome="SUCCESS"), 0, "SUCCESS"),
        (events.SessionCompleted(outcome="PARTIAL"), 3, "PARTIAL"),
        (events.SessionCompleted(outcome="GIVEN_UP"), 3, "GIVEN_UP"),
        (events.SessionFailed(error=ERROR), 1, "FAILED"),
        (events.SessionCancelled(reason="enough"), 3, "CANCELLED"),
    ],
)
def test_the_exit_code_says_how_it_ended(
    capsys: pytest.CaptureFixture[str], end: events.NewEvent, code: int, outcome: str
) -> None:
    assert running._print_end(context(), ended_by(end), StoredContents(None)) == code
    told = json.loads(capsys.readouterr().out)
    assert (told["session"], told["outcome"], told["seq"]) == ("s", outcome, 3)
    assert (told["error"] is None) == (outcome != "FAILED")


def test_a_result_that_lies_in_the_store_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(tmp_path, [{"match": "*", "text": "long " * 20_000}])
    process = world.process()
    process.begin()
    end = process.events()[-1]
    assert end.body["result"]["inline"] is None
    assert running._print_end(context(), end, StoredContents(Blobs(world.store))) == 0
    assert json.loads(capsys.readouterr().out)["result"] == "long " * 20_000


def test_what_it_waits_for_is_told_with_the_command_that_answers(tmp_path: Path) -> None:
    world = World(tmp_path, TWO, policy=[ASK])
    world.effects.kill_in = "wire"
    with pytest.raises(Killed):
        world.process().begin()
    process = world.process()
    waits_for = process.resume().waits_for
    conductor = resume(process.publisher, SESSION, clock=world.clock)
    assert list(run_text.answers(conductor, waits_for)) == [
        "waits for the receipt of work.1/t1/c0 (wire): its outcome is unknown, and it is not run again; look it up, "
        "then: dalsegno tool receipt s-1 work.1/t1/c0 --text 'what came of it' (or --did-not-run)",
        "waits for leave: dalsegno approval grant s-1 work.1/t1/c1/a1 (or deny)",
    ]


def test_a_question_is_told_with_the_command_that_answers(tmp_path: Path) -> None:
    world = World(tmp_path, TWO, [stage("work", ask=[Question(id="file", prompt="which?")])])
    process = world.process()
    waits_for = process.begin().waits_for
    conductor = resume(process.publisher, SESSION, clock=world.clock)
    assert list(run_text.answers(conductor, waits_for)) == [
        "waits for an answer: dalsegno input answer s-1 work.1/q.file"
    ]


def test_the_command_that_goes_on_has_all_that_this_one_was_given() -> None:
    options = Options(
        tools=["a b.py"], providers=["m=scripted:s.yaml"], reporters=["t=program:make test"], files=Path("f")
    )
    line = run_text.resume_line(context(data=Path("d"), kafka={"bootstrap_servers": "k:1"}), "s-1", options)
    assert line == [
        "dalsegno", "--data", "d", "--bootstrap-servers", "k:1", "session", "resume", "s-1", "--tools", "a b.py",
        "--provider", "m=scripted:s.yaml", "--reporter", "t=program:make test", "--files", "f",
    ]  # fmt: skip
    again = run_text.resume_line(context(), "s-1~f", Options(), act_in_fork=True)
    assert again == ["dalsegno", "session", "resume", "s-1~f", "--act-in-fork"]


def test_a_wrong_workflow_is_refused_before_any_broker_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DALSEGNO_DATA", str(tmp_path / "data"))
    (tmp_path / "w.yaml").write_text("name: w\n")
    assert run(["run", str(tmp_path / "w.yaml"), "--goal", "g"]) == 1
    assert "w.yaml, line 1" in capsys.readouterr().err
    assert run(["run", str(tmp_path / "w.yaml"), "--goal", "g", "--label", "no-equals"]) == 2
    assert run(["run", str(tmp_path / "w.yaml")]) == 2
    assert not (tmp_path / "data").exists()


PORTS = ("--tools", "tools.py", "--provider", "scripted:s.yaml")


@pytest.fixture
def loud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryPublisher:
    """The folder of a workflow whose tool prints, and the log of its sessions."""
    monkeypatch.chdir(tmp_path)
    Path("w.yaml").write_text(PRINTING_WORKFLOW)
    Path("s.yaml").write_text("[{calls: [{name: loud}]}, {text: done}]")
    Path("tools.py").write_text(PRINTING_TOOLS)
    publisher = memory_publisher()
    monkeypatch.setattr(running, "_publisher", lambda _: nullcontext(publisher))
    monkeypatch.setattr(running, "shard_source", lambda _: None)
    return publisher


@pytest.mark.usefixtures("loud")
def test_what_tools_print_is_not_among_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["-o", "json", "run", "w.yaml", "--goal", "g", "--session", "s-1", *PORTS]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["result"] == "done"
    assert "printed at the beginning" in err
    assert "printed by a call" in err


def test_a_fork_in_which_something_is_tried_runs_no_tool_unless_it_is_to_act(
    loud: MemoryPublisher, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", "w.yaml", "--goal", "g", "--session", "s-1", *PORTS]) == 0
    for suffix, command in (
        ("a", ["session", "resume", "s-1~a"]),
        ("b", ["run", "w.yaml", "--goal", "g", "--session", "s-1~b"]),
    ):
        first = next(event.seq for event in loud.events("s-1") if event.type == "TurnStarted")
        loud.fork("s-1", first, purpose="WHAT_IF", suffix=suffix).close()
        capsys.readouterr()
        assert run([*command, *PORTS]) == Conflict.exit_code
        err = capsys.readouterr().err
        assert f"session s-1~{suffix} is a fork for WHAT_IF" in err
        assert "printed by a call" not in err
        assert run([*command, *PORTS, "--act-in-fork"]) == 0
        assert "printed by a call" in capsys.readouterr().err


def test_an_event_is_told_when_the_log_has_acknowledged_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.yaml").write_text(PRINTING_WORKFLOW)
    Path("s.yaml").write_text("[{calls: [{name: loud}]}, {text: done}]")
    Path("tools.py").write_text(PRINTING_TOOLS)
    publisher = memory_publisher()
    wire: Any = publisher.transport
    monkeypatch.setattr(running, "_publisher", lambda _: nullcontext(publisher))
    monkeypatch.setattr(running, "shard_source", lambda _: None)
    tell, told, early = running.Running._tell, list[str](), list[str]()

    def held(self: running.Running, event: Event) -> None:
        tell(self, event)
        wire.release()  # no report on an event comes before whoever tells of it has returned
        wire.hold()

    def note(line: str) -> None:
        told.append(line.split()[1])
        if any(f"{pending.seq}" == line.split()[0] for pending in list(publisher._unsettled.values())):
            early.append(line)

    monkeypatch.setattr(running.Running, "_tell", held)
    monkeypatch.setattr(running, "note", note)
    given = ("--session", "s-1", "--tools", "tools.py", "--provider", "scripted:s.yaml")
    assert run(["-o", "json", "run", "w.yaml", "--goal", "g", *given]) == 0
    assert early == []
    assert told[-2:] == ["StageCompleted", "SessionCompleted"]
    assert told.count("ToolReceiptRecorded") == 1


PRINTING_WORKFLOW = """
name: one
agents: {a: {provider: any, model: small, prompt: main}}
stages: [{name: work, agent: a, tools: [loud]}]
prompts: {main: "Task: {goal}"}
"""
PRINTING_TOOLS = '''
from dalsegno.harness.tools import tool

print("printed at the beginning")

@tool(effect="READ")
def loud() -> str:
    """Says it twice."""
    print("printed by a call")
    return "said"
'''

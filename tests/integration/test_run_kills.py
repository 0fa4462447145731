"""``dalsegno run`` in processes that are killed: what was begun is gone on with, and each effect happens once."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dalsegno import events
from dalsegno.harness.past import Decided, history
from dalsegno.log.inbox import Inbox
from dalsegno.log.publisher import Publisher
from dalsegno.log.transport import KafkaTransport
from dalsegno.model.records import Event
from dalsegno.readers.source import ShardSource
from harness_cli import Cli
from harness_worker import World

pytestmark = pytest.mark.broker
DEADLINE_SECONDS = 60
C0 = "work.1/t1/c0"

TOOLS = """
import os, signal, time
from pathlib import Path
from dalsegno.harness.tools import tool

HERE = Path(__file__).parent

def effect(what):
    with (HERE / "effects").open("a") as file:
        file.write(what + "\\n")
    if os.environ.get("KILL_BEHIND") == what:
        os.kill(os.getpid(), signal.SIGKILL)
    return "did " + what

@tool(effect="EXTERNAL", risk="LOW", idempotent=True)
def pay(idempotency_key: str) -> str:
    done = (HERE / "effects").exists() and "pay" in (HERE / "effects").read_text()
    return "did pay" if done else effect("pay")

@tool(effect="EXTERNAL", risk="HIGH")
def wire() -> str:
    return effect("wire")

@tool(effect="EXTERNAL", risk="LOW")
def slow() -> str:
    while not (HERE / "go").exists():
        time.sleep(0.01)
    return effect("slow")
"""
WORKFLOW = """
name: w
agents:
  a: {provider: model, model: m, prompt: sys}
stages:
  - {name: work, agent: a, tools: [pay, wire, slow]}
policy:
  name: p
  rules:
    - {id: ask, decision: REQUIRE_APPROVAL, when: 'has(labels.careful)'}
prompts: {sys: "Your task: {goal}"}
"""


class Place:
    """A workflow whose model calls the one tool that the goal names, and the commands that run it."""

    def __init__(self, folder: Path, world: World, cli: Cli) -> None:
        self.folder, self.world, self.cli = folder, world, cli
        (folder / "tools.py").write_text(TOOLS)
        (folder / "workflow.yaml").write_text(WORKFLOW)

    def options(self, tool: str) -> list[str]:
        script = self.folder / f"{tool}.yaml"
        script.write_text(f"- {{match: 'work.1/t1/i', calls: [{{name: {tool}}}]}}\n- {{match: '*', text: done}}\n")
        return ["--tools", f"{self.folder}/tools.py", "--provider", f"scripted:{script}"]

    def run_arguments(self, tool: str, *more: str) -> list[str]:
        return ["run", f"{self.folder}/workflow.yaml", "--goal", "g", "--session", tool, *self.options(tool), *more]

    def resume(self, tool: str, *more: str, code: int = 0) -> Any:
        return self.cli("session", "resume", tool, *self.options(tool), *more, code=code)

    def run(self, tool: str, *more: str, code: int = 0) -> Any:
        return self.cli(*self.run_arguments(tool, *more), code=code)

    def process(self, arguments: list[str]) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", "from dalsegno.cli import main; main()", *arguments]
        return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)

    def effects(self) -> list[str]:
        file = self.folder / "effects"
        return file.read_text().splitlines() if file.exists() else []

    def send(self, session_id: str, event: events.NewEvent) -> None:
        with closing(KafkaTransport(self.world.config)) as transport:
            Inbox(transport, prefix=self.world.prefix).send(session_id, event, actor=("USER", "maria"))

    def of_type(self, session_id: str, type_: str) -> list[dict[str, Any]]:
        with Publisher(self.world.config, prefix=self.world.prefix) as publisher:
            return [event.body for event in history(publisher, session_id) if event.type == type_]


@pytest.fixture
def place(world: World, cli: Cli, tmp_path: Path) -> Place:
    folder = tmp_path / "place"
    folder.mkdir()
    return Place(folder, world, cli)


def lines_until(process: subprocess.Popen[str], found: Callable[[str], bool]) -> list[str]:
    """What a process says, up to the line that is waited for."""
    assert process.stderr is not None
    limit = threading.Timer(DEADLINE_SECONDS, process.kill)
    limit.start()
    try:
        said: list[str] = []
        for line in process.stderr:
            said.append(line)
            if found(line):
                return said
        raise AssertionError(f"it ended before it said so: {''.join(said)}")
    finally:
        limit.cancel()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = process.communicate(timeout=DEADLINE_SECONDS)
    return process.returncode, said


def test_killed_behind_the_effect_of_a_tool_that_honours_its_key(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("KILL_BEHIND", "pay")
        code, said = ended(place.process(place.run_arguments("pay")))
    assert code == -signal.SIGKILL, said
    found = place.run("pay")  # begun by the same command, it goes on
    assert "it goes on" in found.err
    assert found.json["outcome"] == "SUCCESS"
    assert found.json["result"] == "done"
    assert place.effects() == ["pay"]
    again = place.run("pay")
    assert "had ended before" in again.err
    assert again.json["seq"] == found.json["seq"]


def test_taken_over_from_the_shard_of_a_worker_that_runs_here(
    place: Place, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows and contents are the shard's; only what came behind its cursor is read of the log."""
    worker = world.start("a", wait=True)
    with monkeypatch.context() as patch:
        patch.setenv("KILL_BEHIND", "pay")
        code, said = ended(place.process(place.run_arguments("pay")))
    assert code == -signal.SIGKILL, said
    world.settle()
    given: list[Decided | None] = []
    decided = ShardSource.decided

    def watched(source: ShardSource, session_id: str, tip: Event) -> Decided | None:
        given.append(decided(source, session_id, tip))
        return given[-1]

    monkeypatch.setattr(ShardSource, "decided", watched)
    found = place.resume("pay")
    worker.stop()
    assert found.json["outcome"] == "SUCCESS"
    assert place.effects() == ["pay"]
    assert given
    assert all(each is not None and each.rows.head_row is not None and each.contents for each in given)


# case C40
def test_killed_behind_the_effect_of_a_tool_without_a_key(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("KILL_BEHIND", "wire")
        code, said = ended(place.process(place.run_arguments("wire")))
    assert code == -signal.SIGKILL, said
    assert "--tools with" in place.cli("session", "resume", "wire", code=2).err
    assert not place.of_type("wire", "SessionRecovered"), "what is not given here is told before anything is taken over"
    waits = place.resume("wire", "--wait", "0", code=6)
    assert waits.json == {"session": "wire", "status": "WAITING", "outcome": None, "waits_for": [C0]}
    assert f"dalsegno tool receipt wire {C0}" in waits.err
    # The commands find the call by what a worker folded.
    worker = place.world.start()
    place.world.settle()
    [call] = place.cli("tool", "list").json
    worker.stop()
    assert (call["call"], call["state"], call["name"]) == (C0, "outcome unknown", "wire")
    place.cli("tool", "receipt", "wire", C0, "--text", "it went", "--receipt-id", "bank-1")
    assert place.resume("wire").json["outcome"] == "SUCCESS"
    [receipt] = place.of_type("wire", "ToolReceiptRecorded")
    assert (receipt["receipt_id"], receipt["result"]["inline"]) == ("bank-1", b"it went")
    assert place.effects() == ["wire"]


# case C38
def test_killed_and_stopped_while_it_waits_for_leave(place: Place) -> None:
    process = place.process(place.run_arguments("pay", "--label", "careful=yes"))
    lines_until(process, lambda line: "dalsegno approval grant pay" in line)
    process.kill()
    ended(process)
    waits = place.resume("pay", "--wait", "0", code=6)
    assert f"{C0}/a1" in waits.json["waits_for"]
    assert f"dalsegno approval grant pay {C0}/a1" in waits.err

    process = place.process(["session", "resume", "pay", *place.options("pay")])
    lines_until(process, lambda line: "dalsegno approval grant pay" in line)
    process.send_signal(signal.SIGTERM)
    code, said = ended(process)
    assert code == 130, said
    [told] = [line for line in said.splitlines() if line.startswith("go on with: ")]
    asked = place.of_type("pay", "ApprovalRequested")
    assert [each["approval_id"] for each in asked] == [f"{C0}/a1"]
    place.send("pay", events.ApprovalGranted(approval_id=f"{C0}/a1", arguments_digest=asked[0]["arguments_digest"]))
    code, said = ended(place.process(shlex.split(told.removeprefix("go on with: "))[1:]))
    assert code == 0, said
    assert place.effects() == ["pay"]


def test_stopped_while_a_tool_runs_it_waits_for_its_receipt(place: Place) -> None:
    process = place.process(place.run_arguments("slow"))
    lines_until(process, lambda line: "ToolCallStarted" in line)
    process.send_signal(signal.SIGINT)
    lines_until(process, lambda line: "stopping" in line)
    (place.folder / "go").touch()
    code, said = ended(process)
    assert code == 130
    assert "ToolReceiptRecorded" in said
    assert place.run("slow").json["outcome"] == "SUCCESS"
    assert place.effects() == ["slow"]

"""The demo's workflow, ``examples/triage``: run in a process that is killed, gone on with, replayed in all modes.

Effects are counted in the file that the workflow's tools append to; events are read from the log.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from dalsegno.cli.demo_findings import Findings, Say
from dalsegno.cli.demo_world import DemoWorld, wait
from dalsegno.cli.divergence_text import divergence_lines
from dalsegno.errors import Failed
from dalsegno.harness.files import load
from dalsegno.harness.past import StoredContents, history
from dalsegno.harness.sessions import build
from dalsegno.harness.tools import load_tools
from dalsegno.log.inbox import Inbox
from dalsegno.log.publisher import Publisher
from dalsegno.model.events import ApprovalDenied, ApprovalGranted, NewEvent
from dalsegno.model.records import Event
from dalsegno.orchestration.configuration import configuration_of, documents
from dalsegno.orchestration.decider import World
from dalsegno.orchestration.documents import Configuration
from dalsegno.projections import registry
from dalsegno.projections.base import Rollup
from dalsegno.projections.decider.rows import APPROVAL
from dalsegno.replay.check import Checker, check
from dalsegno.replay.compared import compare_run
from dalsegno.replay.forked import run_in_fork
from dalsegno.replay.strategy import Strategy
from dalsegno.storage.blobs import Blobs, blob
from dalsegno.storage.object_store import FolderStore
from dalsegno.testing.simulation import simulate

GOAL: Final = "Work through the open tickets."
LABELS: Final = {"shift": "day"}
SUPPORT: Final = ("USER", "support")
LINE: Final = "cents > 2000"
"""Of its policy: from where on a refund needs an approval. A refund of 1500 is the first that is decided on."""
OTHER_LINE: Final = "cents > 1000"
_FOLDER: Final = "EXAMPLE_FOLDER"
_REFUND_SECONDS: Final = 60.0
_PATIENCE_SECONDS: Final = 30
Rows: TypeAlias = dict[tuple[str, Any], Any]
"""By projection and the row's id."""


@dataclass
class Desk:
    """One session of the workflow; its tools work in a folder of its own."""

    world: DemoWorld
    session_id: str = field(default_factory=lambda: f"desk-{time.strftime('%Y%m%d-%H%M%S')}")
    events: Sequence[Event] = ()
    """As the log has them when the session has ended."""

    @property
    def folder(self) -> Path:
        return self.world.folder / self.session_id

    def rows(self) -> Rows:
        """What the workers have folded of it, by all projections that have rows of sessions."""
        names = [each.name for each in registry.chosen() if not isinstance(each, Rollup)]
        with self.world.reader() as reader:
            reads = reader.of_session(self.session_id).reads
            return {(name, id): row for name in names for id, row in reads.rows(name, self.session_id)}

    def effects(self) -> list[dict[str, Any]]:
        """What its tools did outside, a line each."""
        file = self.folder / "outbox.jsonl"
        whole = file.read_text("utf-8").splitlines(keepends=True) if file.exists() else []
        return [json.loads(line) for line in whole if line.endswith("\n")]


def example() -> Path:
    """The folder of the workflow: in the installed package, or in the checkout. Raises Failed."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_examples", package.parents[1] / "examples"):
        if (folder / "triage").is_dir():
            return folder / "triage"
    raise Failed(f"no examples beside {package}", todo="install dalsegno again")


# --- run, killed, gone on with ----------------------------------------------------------------------------------------


def run_kill_resume(desk: Desk, publisher: Publisher, found: Findings, say: Say) -> None:
    """``dalsegno run``; kill -9 once a refund is paid; answers while nothing runs; ``dalsegno session resume``."""
    world, name = desk.world, desk.session_id
    desk.folder.mkdir()
    world.variables[_FOLDER] = str(desk.folder)
    ports = ("--tools", str(example() / "tools.py"), "--provider", f"scripted:{example() / 'script.yaml'}")
    say(f"session {name}: a service desk reads tickets, answers and refunds; large refunds are for people to decide")
    _killed_behind_a_refund(desk, ports, say)
    asked = {
        event.body["approval_id"]: event.body["arguments_digest"]
        for event in history(publisher, name)
        if event.type == "ApprovalRequested"
    }
    inbox = Inbox(publisher.transport, prefix=world.prefix)
    for approval_id, digest in asked.items():
        inbox.send(name, answer(approval_id, digest), actor=SUPPORT)
    say(f"nothing runs now; {len(asked)} approvals wait, and support answers: one granted, with 48.00; one denied")
    ended, _ = world.command("session", "resume", name, *ports, "--wait", str(_PATIENCE_SECONDS))
    desk.events = history(publisher, name)
    found.acknowledged += len(desk.events)
    did = Counter(effect["do"] for effect in desk.effects())
    say(f"resumed: {ended['outcome']}; done outside: {', '.join(f'{did[each]} {each}' for each in sorted(did))}")
    once = [key for key, times in Counter(effect["key"] for effect in desk.effects()).items() if times == 1]
    found.check("workflow killed and resumed", ended["outcome"], "SUCCESS")
    found.check("effects of it that happened once", len(once), len(_calls_with_effects(desk.events)))


def _killed_behind_a_refund(desk: Desk, ports: Sequence[str], say: Say) -> None:
    labels = [f"--label={key}={value}" for key, value in LABELS.items()]
    log = desk.folder / "run.log"
    run = ("run", str(example() / "workflow.yaml"), "--goal", GOAL, "--session", desk.session_id, *labels, *ports)
    process = desk.world.start(*run, log=log)

    def paid() -> bool:
        if process.poll() is not None:
            raise Failed(f"'dalsegno run' ended with {process.returncode} before it paid a refund; see {log}")
        return any(effect["do"] == "refund" for effect in desk.effects())

    try:
        wait(paid, "the workflow to pay its first refund", _REFUND_SECONDS, look_seconds=0.002)
    finally:
        process.kill()
        process.wait()
    paid_out = next(effect for effect in desk.effects() if effect["do"] == "refund")
    say(f"kill -9 of dalsegno run (pid {process.pid}): it has just paid {paid_out['cents'] / 100:.2f} back")


def answer(approval_id: str, arguments_digest: bytes | None) -> NewEvent:
    """What support says: not twice the price, and nothing for plates of three years ago."""
    if approval_id.startswith("act.1/t1/c1/"):
        less = json.dumps({"ticket": "T-2", "cents": 4800, "reason": "charged twice"}).encode()
        return ApprovalGranted(
            approval_id=approval_id,
            arguments_digest=arguments_digest,
            modified_arguments=blob(less, "application/json"),
        )
    return ApprovalDenied(approval_id=approval_id, rejection_source="USER", explanation="older than two years")


def _calls_with_effects(events: Sequence[Event]) -> set[str]:
    """The calls that, by the log, had one."""
    may = {e.body["tool_call_id"] for e in events if e.type == "ToolCallRequested" and e.body["effect"] != "READ"}
    return may & {
        e.body["tool_call_id"] for e in events if e.type == "ToolReceiptRecorded" and e.body["status"] == "OK"
    }


# --- replayed ---------------------------------------------------------------------------------------------------------


class Mode(NamedTuple):
    """What one mode came to. ``equal`` of ``compared``; ``whole``: nothing was missing, left over or only similar."""

    name: str
    how: str
    what: str
    equal: int
    compared: int
    whole: bool = True

    @property
    def same(self) -> bool:
        return self.whole and self.equal == self.compared > 0


def replay_in_all_modes(desk: Desk, before: Rows, found: Findings, say: Say) -> None:
    """``before``: its rows as they were before step 7, which built them anew."""
    modes = [_rebuilt(desk, before)]
    blobs = Blobs(FolderStore(desk.world.store))
    turns = [event.seq for event in desk.events if event.type == "TurnStarted"]
    killed = next(event.seq for event in desk.events if event.type == "SessionRecovered")
    with Publisher(desk.world.kafka, prefix=desk.world.prefix, writer="demo/2", blobs=blobs) as publisher:
        modes += [
            _forked(desk, publisher, "full", turns[0]),
            _checked(desk, blobs),
            _simulated(desk),
            _forked(desk, publisher, "partial", max(turn for turn in turns if turn < killed)),
        ]
    for mode in modes:
        say(f"   {mode.name:<19} {mode.equal} of {mode.compared} {mode.what} equal  ({mode.how})")
    found.check("replay modes that came to the same", sum(mode.same for mode in modes), len(modes))


def _rebuilt(desk: Desk, before: Rows) -> Mode:
    now = desk.rows()
    names = before.keys() | now.keys()
    equal = sum(1 for name in names if name in before and name in now and before[name] == now[name])
    return Mode("projection-only", f"its {len(desk.events)} events folded again by step 7", "rows", equal, len(names))


def _forked(desk: Desk, publisher: Publisher, name: str, at: int) -> Mode:
    forked = run_in_fork(publisher, desk.session_id, at, Strategy(on_miss="stop"), purpose="DEBUG", suffix=name)
    result, compared = forked.result, compare_run(forked.recorded, forked.result.events)
    counts = result.counts
    exact = result.ended and not (result.left_over or counts.inexact or counts.missed or counts.rerun)
    how = f"a fork from seq {forked.boundary.at.seq} on, {counts.exact} recorded facts served"
    return Mode(name, how, "decisions", compared.equal, compared.compared, exact and not compared.divergences)


def _checked(desk: Desk, blobs: Blobs) -> Mode:
    result = check(desk.events, Checker(StoredContents(blobs)))
    whole = result.unreconstructable is None and not result.not_comparable and not result.diverged
    return Mode(
        "inference-skipping", "each from the events before it; no model asked", "decisions",
        result.equal, result.compared, whole,
    )  # fmt: skip


def _simulated(desk: Desk) -> Mode:
    def people(world: World) -> NewEvent | None:
        approvals = world.rows.family(APPROVAL)
        waiting = sorted(each for each, approval in approvals.items() if approval.phase == "OPEN")
        return answer(waiting[0], approvals[waiting[0]].arguments) if waiting else None

    sandbox = desk.folder / "simulated"
    sandbox.mkdir()
    with _tools_work_in(sandbox):
        simulation = simulate(
            example() / "workflow.yaml",
            goal=GOAL,
            script=example() / "script.yaml",
            tools=load_tools(str(example() / "tools.py")),
            people=people,
            labels=LABELS,
        )
    compared = compare_run(desk.events, simulation.events)
    how = "the goal again; scripted model, tools in a folder apart"
    return Mode("simulation", how, "decisions", compared.equal, compared.compared, not compared.divergences)


@contextmanager
def _tools_work_in(folder: Path) -> Iterator[None]:
    before = os.environ.get(_FOLDER)
    os.environ[_FOLDER] = str(folder)
    try:
        yield
    finally:
        del os.environ[_FOLDER]
        if before is not None:
            os.environ[_FOLDER] = before


# --- another policy ---------------------------------------------------------------------------------------------------


def change_the_policy(desk: Desk, found: Findings, say: Say) -> None:
    """One line of the policy is another one: every decision is computed again, and the first that differs is shown."""
    say(f"   policy.yaml  - {LINE}")
    say(f"                + {OTHER_LINE}")
    policy = _with_other_line(desk)
    found.other_policy = (desk.session_id, policy)
    other = _configuration_of(policy.parent)
    # That a policy has another digest says nothing of what it decides.
    checker = Checker(
        StoredContents(Blobs(FolderStore(desk.world.store))),
        override=lambda _: other,
        ignore=frozenset({"/policy_digest"}),
    )
    result = check(desk.events, checker)
    for divergence in result.divergences[:1]:
        for line in divergence_lines(divergence):
            say(f"   {line}")
    say(f"{result.equal} of {result.compared} decisions stay as they were")
    refunds = {
        e.body["tool_call_id"] for e in desk.events if e.type == "ToolCallRequested" and e.body["name"] == "refund"
    }
    judged = (e.seq for e in desk.events if e.type == "PolicyEvaluated" and e.body["subject_id"] in refunds)
    what = "none" if result.first is None else f"seq {result.first.seq} {result.first.type}"
    found.check("first decision of the other policy", what, f"seq {next(judged)} PolicyEvaluated")


def _with_other_line(desk: Desk) -> Path:
    copy = desk.folder / "changed"
    shutil.copytree(example(), copy, ignore=shutil.ignore_patterns("__pycache__"))
    policy = copy / "policy.yaml"
    policy.write_text(policy.read_text("utf-8").replace(LINE, OTHER_LINE), "utf-8")
    return policy


def _configuration_of(folder: Path) -> Configuration:
    tools = [tool.spec for tool in load_tools(str(folder / "tools.py"))]
    loaded = load(folder / "workflow.yaml", tools=tools)
    return configuration_of({each.kind: each.content for each in documents(loaded, build("demo"))})

"""An example's workflow over a log in memory: killed where a test says, resumed, and looked at from outside.

A process here is a publisher with its connection, its rows and its contents. When it is killed its connection sends
nothing any more, and the next process has the log alone. What the tools do outside is in a folder that outlives them.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

from dalsegno import blob, events
from dalsegno.errors import DalsegnoError
from dalsegno.harness.clock import SystemClock
from dalsegno.harness.conductor import Conductor
from dalsegno.harness.files import load
from dalsegno.harness.live import Live, Receipt, Stopped
from dalsegno.harness.mailbox import Mailbox
from dalsegno.harness.past import read_past
from dalsegno.harness.performing import Ports
from dalsegno.harness.providers.scripted import Scripted, read_script
from dalsegno.harness.reporters import open_reporter
from dalsegno.harness.sessions import begin, build, resume
from dalsegno.harness.tools import PythonTools, Tool, load_tools
from dalsegno.log.inbox import Inbox
from dalsegno.log.topics import BESIDE, EVENTS, topic_name
from dalsegno.log.transport import Done, Headers
from dalsegno.model.events import Label, NewEvent
from dalsegno.model.lifecycle import MemoryOps, SessionState, judge
from dalsegno.model.records import Event
from dalsegno.orchestration.configuration import PinnedDocument, documents
from dalsegno.orchestration.ports import ToolResult, ToolRun, Verdict
from dalsegno.projections.decider.rows import APPROVAL
from dalsegno.replay.check import Checker, check
from dalsegno.testing import MemoryLog, MemoryPublisher
from dalsegno.testing.memory_log import MemoryTransport
from standing_lab import ShardOfLog

EXAMPLES = Path(__file__).parents[1] / "examples"
SESSION = "example"
PREFIX = "t"
CLOCK = SystemClock()


# --- a process that dies ----------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone: no ``except Exception`` catches it, as none catches a signal."""


class Point(NamedTuple):
    """A process dies at the ``number``-th record that it sends: before it reached the log, or once it is ``stored``."""

    number: int
    stored: bool


class MortalLog(MemoryLog):
    """``die_at``: of the connections that are made from now on. ``watch``: is told where a process could have died."""

    die_at: Point | None = None
    watch: Callable[[Point], None] = staticmethod(lambda _point: None)

    def connect(self) -> Mortal:
        return Mortal(self, self.die_at)

    def fill_from(self, other: MemoryLog) -> None:
        """Hold what the other one holds now."""
        with other.lock:
            self.schemas = dict(other.schemas)
            for topic in (topic_name(PREFIX, EVENTS), topic_name(PREFIX, BESIDE)):
                for partition, held in enumerate(other.parts(topic)):
                    for record in held.records:
                        self.put(topic, partition, record.key, record.value)


class Mortal(MemoryTransport):
    """A connection that ends with its process. ``sent``: the topic of each record."""

    def __init__(self, log: MortalLog, die_at: Point | None) -> None:
        super().__init__(log)
        self._watch, self._die_at = log.watch, die_at
        self.sent: list[str] = []
        self.dead = False

    def send(self, topic: str, partition: int, key: bytes, value: bytes | None, headers: Headers, done: Done) -> None:
        if self.dead:
            raise Killed
        self.sent.append(topic)
        self._may_die(stored=False)
        super().send(topic, partition, key, value, headers, done)
        self._may_die(stored=True)

    def _may_die(self, *, stored: bool) -> None:
        here = Point(len(self.sent), stored)
        self._watch(here)
        if here == self._die_at:
            self.dead = True
            raise Killed


# --- examples ---------------------------------------------------------------------------------------------------------

Answers = Mapping[str, Callable[[bytes | None], NewEvent]]
"""By approval id: what the person who is asked answers, given the digest of the arguments that were shown."""


@dataclass(frozen=True)
class Example:
    name: str
    goal: str
    labels: Mapping[str, str] = field(default_factory=dict)
    person: Answers = field(default_factory=dict)
    effects: str = ""
    """The file in the folder to which the tools append a line for each effect."""

    @property
    def folder(self) -> Path:
        return EXAMPLES / self.name


def granted(call: str, arguments: dict[str, Any] | None = None) -> Callable[[bytes | None], NewEvent]:
    """``arguments``: with other ones than were asked for."""
    changed = None if arguments is None else blob(json.dumps(arguments).encode(), "application/json")
    return lambda digest: events.ApprovalGranted(
        approval_id=f"{call}/a1", arguments_digest=digest, modified_arguments=changed
    )


def denied(call: str, why: str) -> Callable[[bytes | None], NewEvent]:
    return lambda _: events.ApprovalDenied(approval_id=f"{call}/a1", rejection_source="USER", explanation=why)


CODING = Example("coding", "Make the prices right.", effects=".writes")
TRIAGE = Example(
    "triage",
    "Work through the open tickets.",
    labels={"shift": "day"},
    person={
        "act.1/t1/c1/a1": granted("act.1/t1/c1", {"ticket": "T-2", "cents": 4800, "reason": "charged twice"}),
        "act.1/t1/c2/a1": denied("act.1/t1/c2", "older than two years"),
    },
    effects="outbox.jsonl",
)
WIRE = Example("wire", "Pay the bill of ACME.", effects="wires.jsonl")


class Tools:
    """The example's. ``run_tests`` is answered from memory where the program is one that it ran for before."""

    _known: ClassVar[dict[bytes, Any]] = {}

    def __init__(self, example: Example, folder: Path) -> None:
        self._tools = PythonTools(loaded_tools(example.name))
        self._folder = folder
        self.name = self._tools.name

    def run(self, call: ToolRun) -> ToolResult:
        if call.name != "run_tests":
            return self._tools.run(call)
        found: ToolResult = self._once(b"tool", lambda: self._tools.run(call))
        return found

    def report(self, *asked: Any) -> Verdict:
        """The verdict of the program's own tests, run by the reporter ``program``."""
        settings = {"command": [sys.executable, "-B", "-m", "unittest"], "folder": str(self._folder)}
        found: Verdict = self._once(b"reporter", lambda: open_reporter("program", settings).report(*asked))
        return found

    def _once(self, what: bytes, do: Callable[[], Any]) -> Any:
        files = sorted(self._folder.rglob("*.py"))
        key = sha256(what + b"\0".join(str(file.name).encode() + file.read_bytes() for file in files)).digest()
        if key not in self._known:
            self._known[key] = do()
        return self._known[key]


# --- a run ------------------------------------------------------------------------------------------------------------


class Desk:
    """The session's mailbox, and the person whom it asks, who answers by a command of the inbox. The person outlives
    the process, and answers each question once."""

    def __init__(self, run: Run, publisher: MemoryPublisher) -> None:
        self._run = run
        self._mailbox = Mailbox(Inbox(publisher.transport, prefix=PREFIX), SESSION)

    def take_up(self, conductor: Conductor) -> bool:
        for id, approval in conductor.rows.family(APPROVAL).items():
            answer = self._run.example.person.get(id)
            if approval.phase == "OPEN" and answer is not None and id not in self._run.answered:
                self._run.tell(answer(approval.arguments))
                self._run.answered.add(id)
        return self._mailbox.take_up(conductor)

    def hand_in(self, conductor: Conductor, receipts: Sequence[Receipt]) -> Mapping[str, DalsegnoError | None]:
        return self._mailbox.hand_in(conductor, receipts)


class Run:
    """One example in a folder, over one log. ``behind``: sessions are taken over from a shard that lacks so many of the
    newest records; None: from the log alone."""

    def __init__(
        self, example: Example, folder: Path, monkeypatch: pytest.MonkeyPatch, behind: int | None = None
    ) -> None:
        self.example, self.folder, self.behind = example, folder, behind
        folder.mkdir()
        program = example.folder / "program"
        if program.is_dir():
            shutil.copytree(program, folder, dirs_exist_ok=True)
        self._monkeypatch = monkeypatch
        self.log = MortalLog()
        self.sent: list[list[str]] = []
        """By process, the topics of the records that it sent."""
        self.answered: set[str] = set()

    def copy(self, folder: Path) -> Run:
        """What a process that is killed now leaves behind: the log, and what the tools did outside."""
        other = Run(self.example, folder, self._monkeypatch, self.behind)
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        other.log.fill_from(self.log)
        other.answered = set(self.answered)
        return other

    def to_its_end(self, deaths: Sequence[Point] = ()) -> Stopped:
        """Each process dies at its point; the last one goes on until the session ends or waits for somebody."""
        for point in [*deaths, None]:
            try:
                return self._process(point)
            except Killed:
                pass
        raise AssertionError("the last process was not to die")

    def _process(self, point: Point | None) -> Stopped:
        self._monkeypatch.setenv("EXAMPLE_FOLDER", str(self.folder))
        self.log.die_at = point
        publisher = MemoryPublisher(self.log, prefix=PREFIX, writer="lab/1/a")
        transport = publisher.transport
        assert isinstance(transport, Mortal)
        tools = Tools(self.example, self.folder)
        ports = Ports(
            clock=CLOCK,
            providers={"*": script_of(self.example.name)},
            tools=tools,
            reporters={"unittest": tools},
        )
        try:
            conductor = self._conductor(publisher)
            if conductor is None:
                return Stopped("ENDED")
            return Live(conductor, ports, Desk(self, publisher), patience_seconds=0).run()
        finally:
            self.sent.append(transport.sent)
            for thread in threading.enumerate():
                if thread.name.startswith("port"):  # a process that is killed takes its threads along
                    thread.join(30)
            with suppress(DalsegnoError):
                publisher.close()

    def _conductor(self, publisher: MemoryPublisher) -> Conductor | None:
        """None: the process that died had ended the session."""
        source = None if self.behind is None else ShardOfLog(self.log, PREFIX, SESSION, behind=self.behind)
        past = read_past(publisher, SESSION, source)
        if past.end is not None:
            return None
        documents = pinned(self.example.name)
        if past.known:
            return resume(publisher, SESSION, clock=CLOCK, documents=documents, source=source)
        labels = [Label(key=key, value=value) for key, value in self.example.labels.items()]
        return begin(publisher.session(SESSION), documents, goal=self.example.goal, clock=CLOCK, labels=labels)

    # --- from outside ---------------------------------------------------------------------------------------------

    def tell(self, event: NewEvent) -> None:
        """Somebody sends a command to the session's inbox."""
        connection = MemoryTransport(self.log)
        Inbox(connection, prefix=PREFIX).send(SESSION, event, actor=("USER", "support"))
        connection.close()

    def recorded(self) -> list[Event]:
        with MemoryPublisher(self.log, prefix=PREFIX, writer="reader/1/a") as reader:
            return reader.events(SESSION)

    def effects(self) -> list[str]:
        """The lines that the tools appended, sorted: calls at once are in no order."""
        file = self.folder / self.example.effects
        return sorted(file.read_text("utf-8").splitlines()) if file.exists() else []

    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.folder.iterdir() if path.suffix == ".py"}


@cache
def loaded_tools(name: str) -> list[Tool]:
    return load_tools(str(EXAMPLES / name / "tools.py"))


@cache
def script_of(name: str) -> Scripted:
    """Its rules have patterns alone, so that it answers every process alike."""
    return read_script(EXAMPLES / name / "script.yaml")


@cache
def pinned(name: str) -> list[PinnedDocument]:
    tools = [each.spec for each in loaded_tools(name)]
    return documents(load(EXAMPLES / name / "workflow.yaml", tools=tools), build("lab"))


# --- what must hold of every recording --------------------------------------------------------------------------------

OUTCOMES = {
    "StageCompleted": ("stage_id", "outputs"),
    "StageFailed": ("stage_id", "error"),
    "TransitionTaken": ("transition_id", "to_stage"),
    "ValidationDecided": ("validation_id", "verdict", "basis"),
    "ToolCallRejected": ("tool_call_id", "basis", "cites", "message"),
    "ToolReceiptRecorded": ("tool_call_id", "status", "result"),
    "ApprovalGranted": ("approval_id", "modified_arguments"),
    "ApprovalDenied": ("approval_id", "explanation"),
    "CompressionCompleted": ("compression_id", "method", "forgotten", "summary"),
    "SessionCompleted": ("outcome", "result"),
    "SessionFailed": ("error",),
}
"""What a session comes to: not how often anything was tried, nor in which order calls at once were answered."""


def outcome(recorded: Iterable[Event]) -> list[str]:
    found = [
        f"{event.type} {[_text(event.body[name]) for name in OUTCOMES[event.type]]}"
        for event in recorded
        if event.type in OUTCOMES
    ]
    return sorted(found)


def _text(value: Any) -> Any:
    return value["inline"].decode() if isinstance(value, dict) and value.get("inline") is not None else value


def violations(recorded: Iterable[Event]) -> list[tuple[int, str, tuple[str, ...]]]:
    state, ops = SessionState(), MemoryOps()
    judged = ((event, judge(state, ops, event)) for event in recorded)
    return [(event.seq, event.type, verdict.violations) for event, verdict in judged if verdict.violations]


def undecided(recorded: Sequence[Event], *, since: int = 1) -> list[str]:
    """Where the recording, from this seq on, is not what its decider gives from the events before it."""
    result = check(recorded, Checker(first_seq=since))
    found = [f"{each.seq} {each.type}: {each.because or each.fields}" for each in result.divergences]
    return found + [f"{why}" for why in (result.unreconstructable, *result.not_comparable) if why is not None]


def recovered_at(recorded: Iterable[Event]) -> int:
    """The seq of the first recovery; 1 where there is none."""
    return next((event.seq for event in recorded if event.type == "SessionRecovered"), 1)


def keys(recorded: Iterable[Event]) -> dict[str, set[str | None]]:
    """The idempotency keys of each call's attempts."""
    found: dict[str, set[str | None]] = defaultdict(set)
    for event in recorded:
        if event.type == "ToolCallStarted":
            found[event.body["tool_call_id"]].add(event.body["idempotency_key"])
    return found


def doubled(effects: Iterable[str]) -> list[str]:
    """Effects that stand there more than once."""
    return [line for line, count in Counter(effects).items() if count > 1]

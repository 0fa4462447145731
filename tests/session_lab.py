"""A workflow that dalsegno orchestrates over a log in memory, in processes that crash; effects are counted in a file.

``Process`` is one process's life: what it knows, it has from the log. Effects outlive it, as do those of a killed one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dalsegno import events
from dalsegno.harness.clock import SystemClock
from dalsegno.harness.live import Live, Stopped
from dalsegno.harness.mailbox import Mailbox
from dalsegno.harness.past import history
from dalsegno.harness.performing import Ports
from dalsegno.harness.providers.scripted import Scripted
from dalsegno.harness.sessions import After, begin, build, resume
from dalsegno.harness.tools import PythonTools, Tool, tool
from dalsegno.log.inbox import Inbox
from dalsegno.model.records import Event
from dalsegno.orchestration.configuration import Loaded, PinnedDocument, documents
from dalsegno.orchestration.documents import (
    Agent,
    CompressionRule,
    CompressionRules,
    Policy,
    PolicyRule,
    Prompts,
    Stage,
    Tokenizer,
    ToolCatalog,
    ToolSpec,
    Validators,
    ValidatorSpec,
    Workflow,
)
from dalsegno.storage.blobs import Blobs
from dalsegno.storage.object_store import FolderStore
from dalsegno.testing.in_memory import MemoryPublisher
from dalsegno.testing.memory_log import MemoryLog

SESSION = "s-1"
MARIA = ("USER", "maria")


class Killed(BaseException):
    """The process ends here."""


class Effects:
    """What happened outside: a line a time. ``kill_in``: the tool whose process is killed behind its effect."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.kill_in = ""

    def lines(self) -> list[str]:
        return self._file.read_text().splitlines() if self._file.exists() else []

    def happen(self, what: str) -> str:
        with self._file.open("a") as file:
            file.write(what + "\n")
        if self.kill_in and what.startswith(self.kill_in):
            raise Killed
        return f"did {what}"


def tools_of(effects: Effects) -> list[Tool]:
    @tool(effect="READ", risk="LOW")
    def look(what: str) -> str:
        return f"saw {what}"

    @tool(effect="EXTERNAL", risk="LOW", idempotent=True)
    def pay(cents: int, idempotency_key: str) -> str:
        once = f"pay {cents} {idempotency_key}"
        return effects.happen(once) if once not in effects.lines() else f"did {once}"

    @tool(effect="EXTERNAL", risk="HIGH")
    def wire(cents: int) -> str:
        return effects.happen(f"wire {cents}")

    return [look, pay, wire]


def stage(name: str, **given: Any) -> Stage:
    return Stage(**({"name": name, "agent": "a", "tools": ["look", "pay", "wire"]} | given))


class World:
    """The log, what happens outside, and what is the same in every process."""

    def __init__(
        self,
        folder: Path,
        script: Sequence[dict[str, Any]],
        stages: Sequence[Stage] = (stage("work"),),
        *,
        policy: Sequence[PolicyRule] = (),
        delegated: Sequence[ToolSpec] = (),
        compression: Sequence[CompressionRule] = (),
    ) -> None:
        self.log = MemoryLog(partitions=2)
        self.store = FolderStore(folder / "store")
        self.effects = Effects(folder / "effects")
        self.script = Scripted(script)
        self.clock: Any = SystemClock()
        self.tools = tools_of(self.effects)
        self.documents = self.pinned(stages, policy, delegated, compression)

    def pinned(
        self,
        stages: Sequence[Stage],
        policy: Sequence[PolicyRule] = (),
        delegated: Sequence[ToolSpec] = (),
        compression: Sequence[CompressionRule] = (),
    ) -> list[PinnedDocument]:
        catalog = [*(each.spec for each in self.tools), *delegated]
        loaded = Loaded(
            workflow=Workflow(
                name="w", agents={"a": Agent(provider="p", model="m", prompt="sys")}, stages=list(stages)
            ),
            policy=Policy(rules=list(policy)),
            compression=CompressionRules(rules=list(compression)),
            tools=ToolCatalog(tools=catalog),
            prompts=Prompts(templates={"sys": "Your task: {goal}"}),
            validators=Validators(validators=[ValidatorSpec(name="said", predicate='output != ""')]),
            tokenizer=Tokenizer(),
        )  # fmt: skip
        return documents(loaded, build("lab/1"))

    def process(self) -> Process:
        return Process(self)


class Process:
    """From its start to its end, or until it is killed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.publisher = MemoryPublisher(world.log, prefix="t", blobs=Blobs(world.store))
        self.inbox = Inbox(self.publisher.transport, prefix="t", blobs=self.publisher.blobs)

    def ports(self, **more: Any) -> Ports:
        return Ports(
            clock=self.world.clock, providers={"*": self.world.script}, tools=PythonTools(self.world.tools), **more
        )

    def begin(self, *, after: After | None = None, patience: float = 0.0) -> Stopped:
        session = self.publisher.session(SESSION)
        conductor = begin(session, self.world.documents, goal="the goal", clock=self.world.clock, after=after)
        return self._live(conductor, patience)

    def resume(self, *, after: After | None = None, patience: float = 0.0) -> Stopped:
        conductor = resume(
            self.publisher, SESSION, clock=self.world.clock, documents=self.world.documents, after=after
        )  # fmt: skip
        return self._live(conductor, patience)

    def _live(self, conductor: Any, patience: float) -> Stopped:
        mail = Mailbox(self.inbox, SESSION)
        return Live(conductor, self.ports(), mail, patience_seconds=patience).run()

    def events(self) -> list[Event]:
        return history(self.publisher, SESSION)

    def of_type(self, type_: str) -> list[dict[str, Any]]:
        return [event.body for event in self.events() if event.type == type_]

    def send(self, event: events.NewEvent, actor: tuple[str, str] = MARIA, **given: Any) -> str:
        return self.inbox.send(SESSION, event, actor=actor, **given).command_id

    def grant(self, approval: str, **given: Any) -> str:
        asked = next(body for body in self.of_type("ApprovalRequested") if body["approval_id"] == approval)
        return self.send(
            events.ApprovalGranted(approval_id=approval, arguments_digest=asked["arguments_digest"]), **given
        )  # fmt: skip


def killed_behind(count: int) -> After:
    """Kills a process behind this many appends."""
    left = [count]

    def after(_event: Event) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    return after


def outcome(events_: Sequence[Event]) -> dict[str, Any]:
    """What came of a session, whatever happened on the way: results by call, verdicts, outputs, its end."""
    found: dict[str, Any] = {"calls": {}, "verdicts": {}, "stages": {}}
    for event in events_:
        body = event.body
        if event.type == "ToolReceiptRecorded":
            found["calls"][body["tool_call_id"]] = (body["status"], body["result"]["inline"])
        elif event.type == "ValidationDecided":
            found["verdicts"][body["validation_id"]] = body["verdict"]
        elif event.type == "StageCompleted":
            found["stages"][body["stage_id"]] = body["outputs_digest"]
        elif event.type == "SessionCompleted":
            found["end"] = (body["outcome"], body["result"]["inline"], body["open_ops"])
    return found


def notes(events_: Sequence[Event]) -> list[tuple[str, str]]:
    """Kind of each note, and why it was made."""
    return [
        (event.body["kind"], json.loads(event.body["data"]["inline"])["why"])
        for event in events_
        if event.type == "NoteRecorded"
    ]

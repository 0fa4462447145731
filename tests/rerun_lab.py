"""Runs of recorded sessions in memory, and a model and tools that count how often they are asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from dalsegno.harness.conductor import Conductor
from dalsegno.harness.performing import Ports
from dalsegno.harness.writers import Recorder
from dalsegno.model.events import NewEvent, Usage
from dalsegno.model.records import Event
from dalsegno.orchestration.decider import MemoryContents, World
from dalsegno.orchestration.documents import Policy, PolicyRule
from dalsegno.orchestration.ports import Answer, AnsweredCall, Request, ToolResult, ToolRun
from dalsegno.replay.check import Override
from dalsegno.replay.rerun import Rerun, Runner
from dalsegno.replay.serving import Recording
from dalsegno.replay.strategy import Strategy
from decider_lab import APPROVE, Scene, stage

STOP = Strategy(on_miss="stop")


def scene(**given: Any) -> Scene:
    """One turn that looks and writes, one that writes once more, one that ends the work."""
    found = Scene([stage(validators=["said"])], **given)
    found.answer("", ("look", {"what": "a"}), ("write", {"n": 1}))
    found.run("work.1/t1/c0")
    found.run("work.1/t1/c1")
    found.answer("", ("write", {"n": 2}))
    found.run("work.1/t2/c0")
    found.answer("done")
    assert found.events[-1].type == "SessionCompleted"
    return found


def approved() -> Scene:
    found = Scene([stage(validators=["said"])], policy=[APPROVE])
    found.answer("", ("write", {"n": 1}))
    found.grant("work.1/t1/c0/a1")
    found.run("work.1/t1/c0")
    found.answer("done")
    assert found.events[-1].type == "SessionCompleted"
    return found


def crashed() -> Scene:
    found = Scene([stage(validators=["said"])])
    found.answer("", ("look", {"what": "a"}), ("put", {"n": 1}))
    found.start("work.1/t1/c0")
    found.start("work.1/t1/c1")
    found.recover()
    found.run("work.1/t1/c0")
    found.run("work.1/t1/c1")
    found.answer("done")
    assert found.events[-1].type == "SessionCompleted"
    return found


def again(
    events: Sequence[Event],
    strategy: Strategy = STOP,
    *,
    override: Override | None = None,
    ports: Ports | None = None,
    step: Callable[[Event], None] | None = None,
    people: Callable[[World], NewEvent | None] | None = None,
) -> Rerun:
    begun = next(place for place, event in enumerate(events, 1) if event.type == "SessionStarted")
    conductor = Conductor(Recorder("s", lambda: 0, after=list(events[:begun])), MemoryContents())
    conductor.take_in(events[:begun])
    recording = Recording.of(events[begun:])
    return Runner(conductor, recording, strategy, ports, override=override, step=step, people=people).run()


def policy(*rules: PolicyRule) -> Override:
    return lambda pinned: msgspec.structs.replace(pinned, policy=Policy(rules=list(rules)))


def deny(tool: str) -> Override:
    return policy(PolicyRule(id="no", decision="DENY", when=f'call.tool == "{tool}"'))


def started(events: Sequence[Event]) -> set[str]:
    return {event.body["tool_call_id"] for event in events if event.type == "ToolCallStarted"}


class Counted:
    """A model and tools that count how often they are asked."""

    name = "counted"

    def __init__(self, text: str = "other") -> None:
        self.text = text
        self.requests: list[Request] = []
        self.runs: list[ToolRun] = []

    def complete(self, request: Request) -> Answer:
        self.requests.append(request)
        return Answer(text=self.text)

    def run(self, call: ToolRun) -> ToolResult:
        self.runs.append(call)
        return ToolResult(b"simulated" if call.simulate else b"executed", "OK")

    @property
    def ports(self) -> Ports:
        return Ports(clock=self, providers={"*": self}, tools=self)

    def now(self) -> int:
        return 1


class Same(Counted):
    """Answers each inference as it was recorded; ``other``: another answer, by inference."""

    def __init__(self, events: Sequence[Event], other: Mapping[str, Answer] | None = None) -> None:
        super().__init__()
        self.answers = {e.body["inference_id"]: _answer(e) for e in events if e.type == "InferenceCompleted"}
        self.answers.update(other or {})

    def complete(self, request: Request) -> Answer:
        self.requests.append(request)
        return self.answers[request.inference_id]


def _answer(event: Event) -> Answer:
    body = event.body
    asked = [part["blob"]["inline"] for part in body["output"] if part["kind"] == "TOOL_CALL"]
    calls = zip(body["tool_calls"], asked, strict=True)
    return Answer(
        text="".join(part["text"] for part in body["output"] if part["kind"] == "TEXT"),
        calls=tuple(AnsweredCall(name=call["name"], arguments=arguments) for call, arguments in calls),
        usage=Usage(input=body["usage"]["input"], output=body["usage"]["output"]),
    )

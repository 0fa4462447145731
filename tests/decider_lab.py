"""A session in memory that the product's decider decides: a test states facts, and reads the decisions they lead to.

No ports, no threads, no clock but a counter. ``Scene(...)`` begins a session; each method is one fact, or intent, after
which all that is due is decided; it returns those decisions as ``Type subject``. The lifecycle judges every event.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from dalsegno import events
from dalsegno.harness import facts
from dalsegno.harness.conductor import Conductor
from dalsegno.harness.writers import Recorder
from dalsegno.log.contents import move_out
from dalsegno.log.recovery import default_resolution, in_flight, open_operations
from dalsegno.model.catalogue import CATALOGUE
from dalsegno.model.events import NewEvent, Ref, Usage, to_record
from dalsegno.model.lifecycle import MemoryOps, SessionState, config_set_digest, judge
from dalsegno.model.records import Event
from dalsegno.orchestration import cel
from dalsegno.orchestration.configuration import Loaded, documents, pins
from dalsegno.orchestration.decider import (
    DECIDER_VERSION,
    Due,
    MemoryContents,
    World,
    configuration_in_force,
    due,
    payload,
)
from dalsegno.orchestration.decider.packs import request
from dalsegno.orchestration.decider.payload import open_operations as decider_open
from dalsegno.orchestration.documents import (
    Agent,
    CompressionRule,
    CompressionRules,
    HarnessBuild,
    Policy,
    PolicyRule,
    Prompts,
    SessionLimits,
    Stage,
    Tokenizer,
    ToolCatalog,
    ToolSpec,
    Transition,
    Validators,
    ValidatorSpec,
    Workflow,
)
from dalsegno.orchestration.ports import Answer, AnsweredCall, InferenceError, ToolFailed, ToolResult, Verdict
from dalsegno.orchestration.recovery import resolutions
from dalsegno.projections.decider.fold import fold_event
from dalsegno.projections.decider.rendering import BUILDER_VERSION
from dalsegno.projections.decider.table import MemoryRows

NUMBER = {
    "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False,
}  # fmt: skip
TOOLS = [
    ToolSpec(name="look", parameters={"type": "object"}, effect="READ", risk="LOW"),
    ToolSpec(name="write", parameters=NUMBER, effect="WRITE", risk="HIGH"),
    ToolSpec(name="put", parameters={"type": "object"}, effect="WRITE", idempotent=True),
    ToolSpec(name="delegate", parameters={"type": "object"}, workflow="child"),
]
"""One that only reads, one that may not be repeated and takes a number ``n``, one that honours its key, one that is a
session of its own."""
NAMES = [tool.name for tool in TOOLS]
AGENTS = {
    "main": Agent(provider="scripted", model="m", prompt="main"),
    "judge": Agent(provider="scripted", model="j", prompt="judge"),
}
TEMPLATES = {"main": "You work on {goal}, stage {stage}.", "judge": "Judge it.", "shorter": "Say it shorter."}
VALIDATORS = [
    ValidatorSpec(name="said", predicate='output != ""'),
    ValidatorSpec(name="judged", agent="judge", prompt="judge"),
    ValidatorSpec(name="tests", reporter="tests"),
]
APPROVE = PolicyRule(id="ask", decision="REQUIRE_APPROVAL", when='call.tool == "write"')


def stage(name: str = "work", **given: Any) -> Stage:
    return Stage(**({"name": name, "agent": "main", "tools": NAMES} | given))


class Scene:
    """One session. ``stages`` and the rest are its documents; ``begun``: the first stage attempt was started."""

    def __init__(
        self,
        stages: Sequence[Stage] | None = None,
        *,
        transitions: Sequence[Transition] = (),
        limits: SessionLimits | None = None,
        policy: Sequence[PolicyRule] = (),
        rules: Sequence[CompressionRule] = (),
        validators: Sequence[ValidatorSpec] = VALIDATORS,
        labels: Sequence[tuple[str, str]] = (),
        result: str | None = None,
        goal: bytes = b"the goal",
        begun: bool = True,
        default: Any = "ALLOW",
    ) -> None:
        self.loaded = Loaded(
            workflow=Workflow(
                name="w",
                agents=AGENTS,
                stages=list([stage()] if stages is None else stages),
                transitions=list(transitions),
                limits=limits or SessionLimits(),
                result=result,
            ),
            policy=Policy(rules=list(policy), default=default),
            compression=CompressionRules(rules=list(rules)),
            tools=ToolCatalog(tools=TOOLS),
            prompts=Prompts(templates=TEMPLATES),
            validators=Validators(validators=list(validators)),
            tokenizer=Tokenizer(),
        )
        self.now = 1_000_000
        self.contents = MemoryContents()
        self.recorder = Recorder("s", self._tick)
        self.conductor = Conductor(self.recorder, self.contents)
        self.decisions: list[str] = []
        self._held = False
        self._begin(goal, labels, begun)

    def _tick(self) -> int:
        self.now += 1
        return self.now

    def _begin(self, goal: bytes, labels: Sequence[tuple[str, str]], begun: bool) -> None:
        self.conductor.append(
            events.SessionCreated(
                workflow_name="w",
                profile="STRICT",
                goal=facts.content(goal),
                labels=[events.Label(key=key, value=value) for key, value in labels],
            )
        )
        pinned = pins(documents(self.loaded, BUILD))
        for pin in pinned:
            self.conductor.append(pin)
        lines = [f"{pin.kind}:{pin.name}:{(pin.digest or b'').hex()}" for pin in pinned]
        self.tell(events.SessionStarted(config_set_digest=config_set_digest(lines), clock_start=0))
        if begun:
            self.begin_stage()

    # --- what is ------------------------------------------------------------------------------------------------------

    @property
    def events(self) -> list[Event]:
        return self.recorder.events

    @property
    def world(self) -> World:
        return self.conductor.world

    @property
    def head(self) -> Any:
        return self.world.head

    def body(self, type_: str, *, nth: int = -1) -> dict[str, Any]:
        """Of the last event of that type."""
        return [event.body for event in self.events if event.type == type_][nth]

    def open(self, family: str) -> list[str]:
        return sorted(id for id, row in self.world.rows.family(family).items() if row.phase == "OPEN")

    def said(self) -> list[dict[str, Any]]:
        """Messages that the last agent inference was asked with, without the system's."""
        return request(self.world, self.head.inference).messages[1:]

    # --- how it goes on -----------------------------------------------------------------------------------------------

    def tell(self, event: NewEvent, **how: Any) -> list[str]:
        """One fact or intent, and all that follows of it."""
        self.conductor.append(event, **how)
        return [] if self._held else self.drain()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Facts that are all there before anything is decided."""
        self._held = True
        yield
        self._held = False
        self.drain()

    def drain(self, most: int = 10_000) -> list[str]:
        """``most``: decisions until a crash."""
        made: list[str] = []
        while len(made) < most and self.conductor.running:
            world = self.world
            found: Due | None = due(world)
            if found is None:
                break
            self.conductor.append(payload(world, found))
            made.append(f"{found.type} {found.subject}".rstrip())
        assert len(made) < 10_000, "it does not come to rest"
        self.decisions += made
        return made

    # --- facts --------------------------------------------------------------------------------------------------------

    def begin_stage(self) -> list[str]:
        return self.tell(events.StageStarted(stage_id=self.head.stage, worker="lab"))

    def answer(self, text: str = "", *calls: tuple[Any, ...], to: str | None = None, **given: Any) -> list[str]:
        """A model's. ``calls``: name, arguments (bytes as they are, else as JSON), provider's id."""
        asked = [
            AnsweredCall(
                name=call[0],
                arguments=_arguments(call[1] if len(call) > 1 else {}),
                native_id=call[2] if len(call) > 2 else None,
            )
            for call in calls
        ]
        said = Answer(text=text, calls=tuple(asked), **({"usage": Usage(input=10, output=5)} | given))
        id = self._asked(to)
        return self.tell(facts.completed(id, self.world.inference(id).attempt, said, latency_ms=1))

    def no_answer(self, error_class: str = "http", *, retryable: bool = True, to: str | None = None) -> list[str]:
        id = self._asked(to)
        error = InferenceError(error_class, "it failed", retryable=retryable)
        return self.tell(facts.inference_failed(id, self.world.inference(id).attempt, error))

    def _asked(self, id: str | None) -> str:
        return self.open("inference")[0] if id is None else id

    def start(self, call: str) -> list[str]:
        state = self.world.call(call)
        spec = self.world.tool(state.name)
        return self.tell(
            events.ToolCallStarted(
                tool_call_id=call,
                attempt=state.attempt + 1,
                executor="lab",
                idempotency_key="k" if spec.idempotent else None,
                child_session=f"s/{call}" if spec.workflow else None,
            )
        )

    def result(self, call: str, text: str | bytes = "done", status: Any = "OK") -> list[str]:
        state = self.world.call(call)
        attempt = 1 if state is None else max(1, state.attempt)
        content = text if isinstance(text, bytes) else text.encode()
        return self.tell(facts.receipt(call, attempt, ToolResult(content, status), started_at=1, ended_at=2))

    def run(self, call: str, text: str = "done") -> list[str]:
        return self.start(call) + self.result(call, text)

    def no_result(self, call: str, reason: Any = "TIMEOUT", *, not_started: bool = False) -> list[str]:
        error = ToolFailed(reason, "it failed", not_started=not_started)
        return self.tell(facts.tool_failed(call, self.world.call(call).attempt, error))

    def grant(self, approval: str, *, scope: Any = "ONCE", modified: Any = None) -> list[str]:
        return self.tell(
            events.ApprovalGranted(
                approval_id=approval,
                scope=scope,
                arguments_digest=self.world.rows.get(("approval", approval)).arguments,
                modified_arguments=None if modified is None else facts.content(_arguments(modified), facts.JSON),
            )
        )

    def deny(self, approval: str, effect: Any = "CONTINUE") -> list[str]:
        return self.tell(events.ApprovalDenied(approval_id=approval, effect=effect, rejection_source="USER"))

    def expire(self, approval: str) -> list[str]:
        return self.tell(events.ApprovalExpired(approval_id=approval))

    def retrieve(self, item: str, text: bytes = b"found") -> list[str]:
        return self.tell(facts.retrieved(item, text, facts.TEXT, None))

    def provide(self, request: str, outcome: Any = "ACCEPTED", text: bytes | None = b"yes") -> list[str]:
        content = None if text is None or outcome != "ACCEPTED" else facts.content(text)
        return self.tell(events.InputProvided(request_id=request, outcome=outcome, content=content))

    def report(self, validation: str, verdict: Any = "PASS", **given: Any) -> list[str]:
        return self.tell(facts.reported(validation, Verdict(verdict, **given)))

    def judge(self, validation: str, verdict: str = "PASS") -> list[str]:
        return self.answer(json.dumps({"verdict": verdict}), to=f"{validation}/i")

    def message(self, text: str = "hello", id: str | None = None) -> list[str]:
        part = events.Part(kind="TEXT", text=text)
        return self.tell(
            events.MessageReceived(message_id=id or f"m{len(self.events)}", role="USER", parts=[part])
        )  # fmt: skip

    def cancel(self, reason: str | None = "enough") -> list[str]:
        return self.tell(events.CancelRequested(requested_by="maria", reason=reason))

    def fire(self, timer: str = "wall_time") -> list[str]:
        return self.tell(events.TimerFired(timer=timer))

    def recover(self, resolve: Any = None) -> list[str]:
        """A crash, and a writer that takes over with rows folded from the log alone; ``resolve`` None: as the harness
        resolves what is open."""
        tip = self.events[-1]
        ops = self.recorder.ops
        known = resolutions(folded(self.events)[0])
        resolve = resolve or (lambda open_: known.get((open_.kind, open_.id)) or default_resolution(open_))
        event = events.SessionRecovered(
            last_good=Ref(seq=tip.seq, hash=tip.hash), crashed_instance="lab", in_flight=in_flight(ops, resolve)
        )
        self.conductor = Conductor(self.recorder, self.contents)
        self.conductor.take_in(self.events)
        return self.tell(event, epoch=tip.epoch + 1)


BUILD = HarnessBuild(harness="lab", decider=DECIDER_VERSION, builder=BUILDER_VERSION, cel_engine=cel.ENGINE)


def _arguments(given: Any) -> bytes:
    return given if isinstance(given, bytes) else json.dumps(given).encode()


# --- what is true of every session ------------------------------------------------------------------------------------


def folded(past: Sequence[Event]) -> tuple[MemoryRows, MemoryContents]:
    rows, contents = MemoryRows(), MemoryContents()
    for event in past:
        fold_event(rows, event, contents.keep)
    return rows, contents


def backwards(rows: MemoryRows) -> MemoryRows:
    """The same rows, the last id of each kind first."""
    turned = MemoryRows()
    for id, row in reversed(list(rows.all())):
        turned.put(id, row)
    return turned


def plain(rows: MemoryRows) -> list[Any]:
    return [(id, msgspec.to_builtins(row)) for id, row in rows.all()]


def check_counted(scene: Scene) -> None:
    """The decider and the lifecycle count the same operations as open, and settle them alike (rules S4 and S5)."""
    found = open_operations(scene.recorder.ops)
    assert decider_open(scene.world) == sorted({each.id for each in found})
    assert resolutions(scene.world.rows) == {(each.kind, each.id): default_resolution(each) for each in found}


def check_log(scene: Scene) -> None:
    """Every decision of the log was the one due before it; before every fact and intent nothing was due. It does not
    matter in which order the rows are held: a shard has them sorted, memory as they came."""
    rows, contents = MemoryRows(), scene.contents
    state, ops = SessionState(), MemoryOps()
    for event in scene.events:
        if rows.head_row is not None and rows.head_row.status in ("RUNNING", "PAUSED"):
            world = World(backwards(rows), configuration_in_force(rows, contents), contents)
            found = due(world)
            if CATALOGUE[event.type].cls == "D":
                assert found is not None, f"{event.seq} {event.type}: nothing was due"
                decided = payload(world, found)
                expected = {name: value for name, value in event.body.items() if name != "meta"}
                assert event.type == decided.TYPE
                assert move_out(to_record(decided), []) == expected, f"{event.seq} {event.type}"
            elif event.type not in ("SessionRecovered", "SessionForked"):
                assert found is None, f"{event.seq} {event.type}: {found} was due"
        assert not judge(state, ops, event).violations
        fold_event(rows, event, contents.keep)
    assert plain(rows) == plain(scene.conductor.rows)


def starts(scene: Scene) -> Iterator[tuple[str, list[Event]]]:
    """By call: the events of its attempts."""
    by_call: dict[str, list[Event]] = {}
    for event in scene.events:
        if event.type in ("ToolCallStarted", "ToolCallFailed"):
            by_call.setdefault(event.body["tool_call_id"], []).append(event)
    yield from by_call.items()

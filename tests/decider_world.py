"""Random workflows, and worlds that answer them: for properties of the decider.

``scenes()`` draws documents. ``moves(scene)`` lists what may happen next in a session that has come to rest, whatever
that does to it; ``Oracle`` answers by domain id alone, so that only the order of the answers is left to chance.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Literal, TypeAlias

from hypothesis import strategies as st

from dalsegno import events
from dalsegno.harness import facts
from dalsegno.orchestration.documents import (
    CompressionRule,
    Obligation,
    PolicyRule,
    Protected,
    Question,
    Recipe,
    Retrieval,
    SessionLimits,
    Stage,
    StageLimits,
    Transition,
    Triggers,
)
from dalsegno.orchestration.ports import CONTEXT_OVERFLOW, ToolFailed
from dalsegno.orchestration.work import Kind, outstanding
from dalsegno.projections.decider.rows import APPROVAL, CALL, REQUEST
from decider_lab import NAMES, Scene, stage

Move: TypeAlias = Callable[[], object]

POLICIES = [
    PolicyRule(id="deny", decision="DENY", when='call.tool == "write" && call.arguments.n > 90'),
    PolicyRule(id="more", decision="MODIFY", when='call.tool == "write" && call.arguments.n > 80', merge={"n": 7}),
    PolicyRule(id="worse", decision="MODIFY", when='call.tool == "write" && call.arguments.n > 70', merge={"n": "x"}),
    PolicyRule(id="simulate", decision="SIMULATE", when='call.tool == "put" && stage.name == "two"'),
    PolicyRule(id="broken", decision="ALLOW", when='call.tool == "look" && call.arguments.of == "x"'),
    PolicyRule(
        id="ask",
        decision="REQUIRE_APPROVAL",
        when='call.effect == "WRITE"',
        approval=Obligation(to=[["a"], ["b"]], ttl_seconds=60, on_expiry="ESCALATE"),
    ),
    PolicyRule(id="ask2", decision="REQUIRE_APPROVAL", when="session.turns < 3", approval=Obligation(ttl_seconds=9)),
]
COMPRESSIONS = [
    CompressionRule(
        id="sum", method="SUMMARY", when=Triggers(turns=1), protect=Protected(turns=0), agent="judge", prompt="shorter"
    ),
    CompressionRule(
        id="over", method="SUMMARY", when=Triggers(overflow=True), protect=Protected(turns=0), agent="judge",
        prompt="shorter",
    ),
    CompressionRule(id="trim", method="TRIM", when=Triggers(tokens=300, overflow=True), protect=Protected(turns=1)),
    CompressionRule(id="mask", method="MASK", when=Triggers(stage_boundary=True, turns=1, overflow=True)),
    CompressionRule(id="dedup", method="DEDUP", when=Triggers(turns=1), protect=Protected(turns=0)),
]  # fmt: skip
TRANSITIONS = [
    Transition(id="begin", to="one"),
    Transition(id="again", source="one", to="one", when='stage.status == "FAILED" && stage.attempt < 3'),
    Transition(id="broken", source="one", to="two", when='labels.nowhere == "x"'),
    Transition(id="on", source="one", to="two", when="session.turns > 1"),
    Transition(id="else", source="one", to="three"),
    Transition(id="last", source="two", to="three", when="stage.verdicts.all(each, each.verdict == 'PASS')"),
]


def all_stages() -> list[Stage]:
    """Three, each with all that a stage may have."""
    return [
        stage(
            name,
            validators=["said", "judged", "tests"],
            retrieve=[Retrieval(id="kb")],
            ask=[Question(id="ok", prompt="ok?", ttl_seconds=5)],
            limits=StageLimits(turns=4, attempts=2),
        )
        for name in ("one", "two", "three")
    ]


def some(values: Any) -> st.SearchStrategy[list[Any]]:
    """A part of a list, in its order."""
    return st.lists(st.sampled_from(values), unique_by=id, max_size=len(values)).map(
        lambda chosen: [each for each in values if any(each is one for one in chosen)]
    )


def rarely(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 5).flatmap(lambda number: values if number == 5 else st.none())


@st.composite
def documents(draw: st.DrawFn, *, calm: bool = False) -> dict[str, Any]:
    """What ``Scene`` takes. ``calm``: nothing in which the order of facts rightly decides."""
    stages = []
    for name in ("one", "two", "three")[: draw(st.integers(1, 3))]:
        limits = StageLimits(
            turns=draw(st.integers(1, 4)),
            tool_calls=draw(rarely(st.integers(0, 4))),
            attempts=draw(st.integers(1, 2)),
            inference_attempts=draw(st.integers(1, 3)),
            tool_attempts=draw(st.integers(1, 3)),
        )
        stages.append(
            stage(
                name,
                tools=draw(st.sampled_from([NAMES, NAMES, NAMES[:2]])),
                validators=draw(some(["said", "judged", "tests"])),
                retrieve=[Retrieval(id="kb")] if draw(st.booleans()) else [],
                ask=[Question(id="ok", prompt="ok?", ttl_seconds=5)] if draw(st.booleans()) else [],
                limits=limits,
                context=Recipe(
                    history=draw(st.sampled_from(["session", "stage"])),
                    budget_tokens=draw(rarely(st.integers(200, 2000))),
                ),
            )
        )
    names = {each.name for each in stages}
    transitions = [each for each in TRANSITIONS if {each.to, each.source or "one"} <= names]
    limits = SessionLimits(
        turns=draw(rarely(st.integers(1, 8))),
        tool_calls=draw(rarely(st.integers(0, 8))),
        tokens=None if calm else draw(rarely(st.integers(50, 300))),
        cost_usd_micros=None if calm else draw(rarely(st.integers(0, 30))),
        wall_time_seconds=None if calm else draw(rarely(st.integers(1, 100))),
    )
    return {
        "stages": stages,
        "transitions": transitions if draw(st.booleans()) else [],
        "limits": limits,
        "policy": draw(some(POLICIES)),
        "rules": draw(some(COMPRESSIONS)),
        "default": draw(st.sampled_from(["ALLOW", "ALLOW", "ALLOW", "DENY", "REQUIRE_APPROVAL"])),
        "labels": [("team", "x")],
    }


# --- anything may happen ----------------------------------------------------------------------------------------------

_CALLS = [
    ("look", {}, "call_0"),
    ("look", {"of": "x"}, "call_0"),
    ("write", {"n": 1}),
    ("write", {"n": 75}),
    ("write", {"n": 85}),
    ("write", {"n": 95}),
    ("write", {"n": "one"}),
    ("write", b"{no json"),
    ("put", {}),
    ("delegate", {}),
    ("nowhere", {}),
]


def moves(scene: Scene) -> list[Move]:
    """What may happen now, what is usual more than once; a session that is over has none."""
    if not scene.conductor.running:
        return []
    world, found = scene.world, list[Move]()
    for work in outstanding(world):
        found += _DOES.get(work.kind, _nothing)(scene, work.id)
    for id, call in world.rows.family(CALL).items():
        if call.phase in ("STARTED", "UNRESOLVED", "ATTEMPT_FAILED"):
            found += _on_started(scene, id, call)
    for id, approval in world.rows.family(APPROVAL).items():
        if approval.phase == "OPEN":
            found += _on_approval(scene, id)
    for id, request in world.rows.family(REQUEST).items():
        if request.phase == "OPEN" and request.kind == "INPUT":
            outcomes: list[Literal["ACCEPTED", "DECLINED", "CANCELLED", "EXPIRED"]]
            outcomes = ["ACCEPTED", "DECLINED", "CANCELLED", "EXPIRED"]
            found += [lambda id=id, each=each: scene.provide(id, each) for each in outcomes]
    return found


def rare(scene: Scene) -> list[Move]:
    """What may happen at any time."""
    if not scene.conductor.running:
        return []
    return [scene.message, lambda: scene.message(id="same"), scene.cancel, scene.fire, lambda: _pause(scene)]


def waits(scene: Scene) -> bool:
    """Whether a session that is not over waits for somebody, or for a receipt, that is named."""
    rows = scene.world.rows
    unresolved = any(call.phase in ("UNRESOLVED", "ATTEMPT_FAILED") for call in rows.family(CALL).values())
    return bool(unresolved or scene.open(APPROVAL) or scene.open(REQUEST) or scene.open("validation"))


def _pause(scene: Scene) -> None:
    scene.tell(events.SessionPaused(reason="lunch", by_limit=False))
    scene.tell(events.SessionResumed(reason=None, by_limit=False))


def _nothing(_scene: Scene, _id: str) -> list[Move]:
    return []


def _infer(scene: Scene, id: str) -> list[Move]:
    if id.endswith(("/v.judged/i",)):
        verdicts = ["PASS", "REJECT", "INCONCLUSIVE", "nonsense"]
        said: list[Move] = [lambda each=each: scene.answer(json.dumps({"verdict": each}), to=id) for each in verdicts]
        return [*said, lambda: scene.no_answer(to=id), lambda: scene.no_answer(retryable=False, to=id)]
    found: list[Move] = [
        lambda: scene.answer("the answer", to=id, cost_usd_micros=5),
        lambda: scene.answer("", to=id),
        lambda: scene.no_answer(to=id),
        lambda: scene.no_answer(retryable=False, to=id),
        lambda: scene.no_answer(CONTEXT_OVERFLOW, retryable=False, to=id),
    ]
    for first in range(len(_CALLS)):
        asked = [_CALLS[(first + step) % len(_CALLS)] for step in range(1 + first % 4)]
        found.append(lambda asked=asked: scene.answer("so", *asked, to=id))
    return found


def _on_started(scene: Scene, id: str, call: Any) -> list[Move]:
    if call.child and call.phase != "ATTEMPT_FAILED":
        ended = events.SubSessionEnded(
            child_session=call.child, outcome="FAILED", tool_call_id=id, child_final_hash=b"\1" * 32
        )
        return [lambda: scene.tell(ended)] * 3
    found: list[Move] = [lambda: scene.result(id, "done"), lambda: scene.result(id, "done " * 99, "ERROR")]
    if call.phase == "STARTED":
        found += [
            lambda: scene.no_result(id, "TIMEOUT"),
            lambda: scene.no_result(id, "UNKNOWN_OUTCOME"),
            lambda: scene.no_result(id, "INFRA", not_started=True),
            lambda: scene.no_result(id, "UNKNOWN_OUTCOME", not_started=True),
        ]
    return found


def _on_approval(scene: Scene, id: str) -> list[Move]:
    return [
        lambda: scene.grant(id),
        lambda: scene.grant(id, scope="SESSION"),
        lambda: scene.grant(id, scope="RULE"),
        lambda: scene.grant(id, modified={"n": 2}),
        lambda: scene.grant(id, modified={"n": 75}),
        lambda: scene.grant(id, modified={"n": 85}),
        lambda: scene.grant(id, modified={"n": 95}, scope="SESSION"),
        lambda: scene.grant(id, modified=b"[]"),
        lambda: scene.deny(id),
        lambda: scene.deny(id, "ABORT_TURN"),
        lambda: scene.deny(id, "TERMINATE_SESSION"),
        lambda: scene.expire(id),
    ]


def _report(scene: Scene, id: str) -> list[Move]:
    verdicts: list[Literal["PASS", "REJECT", "ERROR"]] = ["PASS", "REJECT", "ERROR"]
    return [lambda each=each: scene.report(id, each, evidence=(b"why",)) for each in verdicts]


_DOES: dict[Kind, Callable[[Scene, str], list[Move]]] = {
    Kind.BEGIN_STAGE: lambda scene, _id: [scene.begin_stage] * 3,
    Kind.INFER: _infer,
    Kind.RUN_TOOL: lambda scene, id: [lambda: scene.start(id)] * 3,
    Kind.CALL_OFF: lambda scene, id: [lambda: call_off(scene, id)],
    Kind.RETRIEVE: lambda scene, id: [lambda: scene.retrieve(id)] * 2,
    Kind.REPORT: _report,
}


def call_off(scene: Scene, id: str) -> list[str]:
    error = ToolFailed("CANCELLED", "its turn ends early", not_started=True)
    return scene.tell(facts.tool_failed(id, scene.world.call(id).attempt + 1, error))


# --- answers that follow from ids alone -------------------------------------------------------------------------------


class Oracle:
    """What the world answers is a function of a number and the domain id; ``ready`` lists what can be delivered."""

    def __init__(self, seed: int, scene: Scene) -> None:
        self._seed, self._scene = seed, scene

    def _pick(self, id: str, what: int) -> int:
        return sha256(f"{self._seed} {id}".encode()).digest()[0] % what

    def ready(self) -> list[Move]:
        scene, found = self._scene, list[Move]()
        for work in outstanding(scene.world):
            move = self._for(work.kind, work.id, work.attempt)
            if move is not None:
                found.append(move)
        for id, call in scene.world.rows.family(CALL).items():
            if call.phase == "STARTED":
                found.append(self._finish(id, call))
        for id in scene.open(APPROVAL):
            found.append([lambda id=id: scene.grant(id), lambda id=id: scene.deny(id), lambda id=id: scene.expire(id),
                          lambda id=id: scene.grant(id, modified={"n": 3})][self._pick(id, 4)])  # fmt: skip
        for id in scene.open(REQUEST):
            if scene.world.rows.get((REQUEST, id)).kind == "INPUT":
                found.append(lambda id=id: scene.provide(id, ("ACCEPTED", "DECLINED", "EXPIRED")[self._pick(id, 3)]))
        return found

    def _for(self, kind: Kind, id: str, attempt: int) -> Move | None:
        scene = self._scene
        if kind == Kind.INFER:
            return self._infer(id, attempt)
        if kind == Kind.REPORT:
            return lambda: scene.report(id, ("PASS", "REJECT")[self._pick(id, 2)])
        simple: dict[Kind, Move] = {
            Kind.BEGIN_STAGE: scene.begin_stage,
            Kind.RUN_TOOL: lambda: scene.start(id),
            Kind.RETRIEVE: lambda: scene.retrieve(id),
        }
        return simple.get(kind)

    def _infer(self, id: str, attempt: int) -> Move:
        scene, number = self._scene, self._pick(f"{id} {attempt}", 12)
        if id.endswith("/v.judged/i"):
            return lambda: scene.answer(json.dumps({"verdict": ("PASS", "REJECT")[number % 2]}), to=id)
        if number == 0:
            return lambda: scene.no_answer(to=id)
        if number < 4:
            return lambda: scene.answer(f"answer {number}", to=id)
        asked = [_CALLS[(number + step) % len(_CALLS)] for step in range(number - 2)]
        return lambda: scene.answer("so", *asked, to=id)

    def _finish(self, id: str, call: Any) -> Move:
        scene, number = self._scene, self._pick(f"{id} {call.attempt}", 6)
        if call.child:
            ended = events.SubSessionEnded(
                child_session=call.child, outcome="SUCCESS", tool_call_id=id, child_final_hash=b"\1" * 32
            )
            return lambda: scene.tell(ended)
        if number == 0:
            return lambda: scene.no_result(id, "INFRA", not_started=True)
        return lambda: scene.result(id, f"result {number % 2}")

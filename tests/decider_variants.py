"""Five changed deciders, and one session that the product's decider decided, in which each is found at a known seq.

``recorded()`` is that session; ``VARIANTS`` the changed deciders, each with the seq of the first event at which a check
of the record by it differs: written by hand, from the list below. ``install(monkeypatch, variant)`` puts one in the
product's place.

The record::

    1 SessionCreated · 2-9 ConfigPinned · 10 SessionStarted
    11 TransitionTaken · 12 StageScheduled plan.1 · 13 StageStarted
    14 TurnStarted plan.1/t1 · 15 ContextPackBuilt · 16 InferenceRequested · 17 InferenceCompleted (look)
    18 ToolCallRequested c0 · 19 PolicyEvaluated · 20 ToolCallAuthorized · 21 ToolCallStarted · 22 ToolCallFailed
    23 ToolRetryDecided · 24 ToolCallStarted · 25 ToolReceiptRecorded · 26 TurnCompleted
    27 TurnStarted plan.1/t2 · 28 ContextPackBuilt · 29 InferenceRequested · 30 InferenceCompleted (the plan)
    31 TurnCompleted · 32 ValidationRequested said · 33 ValidationDecided · 34 StageCompleted plan.1
    35 TransitionTaken · 36 StageScheduled work.1 · 37 StageStarted
    38 TurnStarted work.1/t1 · 39 ContextPackBuilt · 40 InferenceRequested · 41 InferenceCompleted (write)
    42 ToolCallRequested c0 · 43 PolicyEvaluated · 44 ApprovalRequested · 45 ApprovalGranted
    46 ToolCallAuthorized · 47 ToolCallStarted · 48 ToolReceiptRecorded · 49 TurnCompleted
    50 TurnStarted work.1/t2 · 51 ContextPackBuilt · 52 InferenceRequested · 53 InferenceCompleted (done)
    54 TurnCompleted · 55 ValidationRequested said · 56 ValidationDecided
    57 ValidationRequested judged · 58 InferenceRequested · 59 InferenceCompleted · 60 ValidationDecided
    61 StageCompleted work.1 · 62 SessionCompleted
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from msgspec import structs

from dalsegno.model.events import InputRequested, NewEvent, ToolRetryDecided
from dalsegno.orchestration.decider import Due, World
from dalsegno.orchestration.decider.due import due as product_due
from dalsegno.orchestration.decider.payload import payload as product_payload
from dalsegno.orchestration.documents import Stage, ValidatorSpec
from dalsegno.projections.decider.rows import APPROVAL, REQUEST
from decider_lab import APPROVE, Scene, stage


def recorded() -> Scene:
    stages = [
        stage("plan", tools=["look"], validators=["said"]),
        stage("work", tools=["look", "write"], validators=["said", "judged"]),
    ]
    scene = Scene(stages, policy=[APPROVE])
    scene.answer("", ("look",))
    scene.start("plan.1/t1/c0")
    scene.no_result("plan.1/t1/c0", "TIMEOUT")
    scene.run("plan.1/t1/c0")
    scene.answer("the plan")
    scene.begin_stage()
    scene.answer("", ("write", {"n": 1}))
    scene.grant("work.1/t1/c0/a1")
    scene.run("work.1/t1/c0")
    scene.answer("done")
    scene.judge("work.1/t2/v.judged")
    return scene


@dataclass(frozen=True)
class Variant:
    """A changed decider. ``differs_at``: seq in ``recorded()``; ``instead``: what it finds due there, or before it."""

    name: str
    differs_at: int
    instead: Due
    due: Callable[[World], Due | None] = product_due
    payload: Callable[[World, Due], NewEvent] = product_payload


# --- a skipped judge, an extra validation: other validators -----------------------------------------------------------


def _judging_by(change: Callable[[Stage], list[str]]) -> dict[str, Any]:
    """``due`` and ``payload`` of a decider that takes other validators than the workflow says."""

    def changed(world: World) -> World:
        given = world.configuration
        stages = [structs.replace(each, validators=change(each)) for each in given.workflow.stages]
        extra = structs.replace(given.validators, validators=[*given.validators.validators, _EXTRA])
        workflow = structs.replace(given.workflow, stages=stages)
        return replace(world, configuration=structs.replace(given, workflow=workflow, validators=extra))

    return {
        "due": lambda world: product_due(changed(world)),
        "payload": lambda world, due: product_payload(changed(world), due),
    }


_EXTRA = ValidatorSpec(name="extra", predicate="true")

# --- the others -------------------------------------------------------------------------------------------------------


def _ends_early(world: World) -> Due | None:
    """A stage is over with its first turn."""
    found = product_due(world)
    if found is not None and found.type == "TurnStarted" and world.head.stage_turns:
        return Due("StageCompleted", world.head.stage)
    return found


def _no_retries(world: World, due: Due) -> NewEvent:
    made = product_payload(world, due)
    return structs.replace(made, retry=False, delay_ms=None) if isinstance(made, ToolRetryDecided) else made


def _asks_meanwhile(world: World) -> Due | None:
    """Whoever waits for leave asks something else too."""
    found = product_due(world)
    if found is not None or world.rows.head_row is None or not world.head.turn:
        return found
    id = f"{world.head.stage}/q.meanwhile"
    waiting = any(approval.phase == "OPEN" for approval in world.rows.family(APPROVAL).values())
    return Due("InputRequested", id) if waiting and world.rows.get((REQUEST, id)) is None else None


def _question(world: World, due: Due) -> NewEvent:
    if due.subject.endswith("/q.meanwhile"):
        return InputRequested(request_id=due.subject, prompt=world.blob(b"anything else?"))
    return product_payload(world, due)


VARIANTS = (
    Variant(
        name="a skipped judge",
        differs_at=57,
        instead=Due("StageCompleted", "work.1"),
        **_judging_by(lambda each: [name for name in each.validators if name != "judged"]),
    ),
    Variant(
        name="an extra validation",
        differs_at=34,
        instead=Due("ValidationRequested", "plan.1/t2/v.extra"),
        **_judging_by(lambda each: [*each.validators, "extra"]),
    ),
    Variant(name="a stage ended early", differs_at=27, instead=Due("StageCompleted", "plan.1"), due=_ends_early),
    Variant(name="no retries", differs_at=23, instead=Due("ToolRetryDecided", "plan.1/t1/c0"), payload=_no_retries),
    Variant(
        name="a question while waiting",
        differs_at=45,
        instead=Due("InputRequested", "work.1/q.meanwhile"),
        due=_asks_meanwhile,
        payload=_question,
    ),
)


def install(monkeypatch: pytest.MonkeyPatch, variant: Variant) -> None:
    """In place of the product's decider, wherever decisions are made or checked."""
    for where in ("dalsegno.orchestration.decider", "dalsegno.replay.check"):
        monkeypatch.setattr(f"{where}.due", variant.due)
        monkeypatch.setattr(f"{where}.payload", variant.payload)

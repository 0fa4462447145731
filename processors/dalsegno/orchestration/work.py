"""What a session waits for from outside: what its harness has to begin, ask or watch next. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from dalsegno.orchestration.decider import World
from dalsegno.orchestration.decider.payload import open_operations
from dalsegno.projections.decider.rows import APPROVAL, CALL, INFERENCE, REQUEST, VALIDATION


class Kind(StrEnum):
    BEGIN_STAGE = "BEGIN_STAGE"
    INFER = "INFER"
    RUN_TOOL = "RUN_TOOL"
    CALL_OFF = "CALL_OFF"
    """Say of a call that it will not be started: its turn ends early."""
    RETRIEVE = "RETRIEVE"
    REPORT = "REPORT"
    EXPIRE_APPROVAL = "EXPIRE_APPROVAL"
    EXPIRE_INPUT = "EXPIRE_INPUT"
    FIRE_TIMER = "FIRE_TIMER"


class Work(NamedTuple):
    """``attempt``: of the inference or the call. ``not_before``: writer's time in microseconds from which on it is due
    (0: at once). Equal work is begun once."""

    kind: Kind
    id: str
    attempt: int = 0
    not_before: int = 0


def outstanding(world: World) -> list[Work]:
    """All of it, while nothing is due. What a person is asked for is not in it: their answers come by themselves."""
    head = world.rows.head_row
    if head is None or head.status != "RUNNING" or head.stop is not None:
        return []
    found: list[Work] = []
    if head.stage and head.stage_phase == "SCHEDULED":
        found.append(Work(Kind.BEGIN_STAGE, head.stage))
    for id, inference in world.rows.family(INFERENCE).items():
        if inference.phase == "OPEN":
            found.append(Work(Kind.INFER, id, inference.attempt))
    for id, call in world.rows.family(CALL).items():
        if call.phase == "AUTHORIZED":
            found.append(Work(Kind.CALL_OFF if head.abort else Kind.RUN_TOOL, id, call.attempt + 1))
    for id, approval in world.rows.family(APPROVAL).items():
        if approval.phase == "OPEN" and approval.ttl_ms is not None:
            found.append(Work(Kind.EXPIRE_APPROVAL, id, 0, approval.requested_at + approval.ttl_ms * 1000))
    for id, request in world.rows.family(REQUEST).items():
        if request.phase != "OPEN":
            continue
        if request.kind == "RETRIEVAL":
            found.append(Work(Kind.RETRIEVE, id))
        elif request.ttl_ms is not None:
            found.append(Work(Kind.EXPIRE_INPUT, id, 0, request.requested_at + request.ttl_ms * 1000))
    for id, validation in world.rows.family(VALIDATION).items():
        asked_outside = validation.phase == "OPEN" and not validation.reported
        if asked_outside and world.validator(validation.validator).reporter is not None:
            found.append(Work(Kind.REPORT, id))
    seconds = world.configuration.workflow.limits.wall_time_seconds
    if seconds is not None and "wall_time" not in head.timers:
        found.append(Work(Kind.FIRE_TIMER, "wall_time", 0, head.started_at + seconds * 1_000_000))
    return found


def is_under_way(world: World, work: Work) -> bool:
    """Whether the outcome of work that was begun is still asked for."""
    if world.head.status == "ENDED":
        return False
    if work.kind == Kind.RUN_TOOL:
        call = world.rows.get((CALL, work.id))
        return call is not None and call.phase == "STARTED" and bool(call.attempt == work.attempt)
    return work in outstanding(world)


def waited_for(world: World) -> list[str]:
    """Ids of what is open, and of the calls that failed and may have run: their receipts may still come."""
    lost = [id for id, call in world.rows.family(CALL).items() if call.phase == "ATTEMPT_FAILED" and not call.safe]
    return sorted({*open_operations(world), *lost})

"""Choices that decisions share: where a workflow goes, whether a call may be looked at, what ends a session. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

from dalsegno.model.lifecycle.state import bounded
from dalsegno.orchestration import policy
from dalsegno.orchestration.arguments import problem_with
from dalsegno.orchestration.canonical import canonical
from dalsegno.orchestration.decider.world import World
from dalsegno.orchestration.documents import Transition
from dalsegno.projections.decider.rows import (
    GUARD,
    ITEM,
    LISTED,
    PACKED,
    STAGE,
    VALIDATION,
    CallState,
    GuardState,
    StageState,
)
from dalsegno.projections.decider.table import BETWEEN, MEANWHILE

RETRY = "retry"
"""The transition of a stage to itself, after an attempt that failed."""
FIRST_DELAY_MS: Final = 1000
"""Before the second attempt of an inference or a call; doubled for each further one. Jitter is the port's."""
MAX_DELAY_MS: Final = 60_000


# --- calls ------------------------------------------------------------------------------------------------------------


class Refusal(NamedTuple):
    """Why a call is rejected before any policy sees it. ``basis``: a symbol of ToolCallRejected."""

    basis: str
    message: str


def refused(world: World, call: CallState) -> Refusal | None:
    if world.tool(call.name) is None:
        offered = ", ".join(world.stage.tools) or "none"
        return Refusal("UNKNOWN_TOOL", f"there is no tool {call.name!r} here; there are: {offered}")
    bad = bad_arguments(world, call)
    if bad is not None:
        return Refusal("INVALID_ARGUMENTS", bad)
    head, session, stage = world.head, world.configuration.workflow.limits, world.stage.limits
    if session.tool_calls is not None and head.tool_calls > session.tool_calls:
        return Refusal("LIMIT", f"the session may make {session.tool_calls} tool calls")
    if stage.tool_calls is not None and head.stage_calls > stage.tool_calls:
        return Refusal("LIMIT", f"a stage attempt may make {stage.tool_calls} tool calls")
    return None


def bad_arguments(world: World, call: CallState) -> str | None:
    """What is wrong with the effective arguments; None if nothing is."""
    tool = world.tool(call.name)
    return None if tool is None else problem_with(world.contents.get(call.effective), tool.parameters)


def delay_ms(failed: int, asked_ms: int | None) -> int:
    """How long to wait before the next attempt, after so many that failed."""
    return min(MAX_DELAY_MS, max(asked_ms or 0, FIRST_DELAY_MS << min(failed - 1, 10)))


# --- turns ------------------------------------------------------------------------------------------------------------


def message_unseen(world: World) -> bool:
    """Whether a message came during the last turn, or since, that none of its packs showed."""
    turn, packed = world.head.turn_ordinal, world.rows.family(PACKED)
    return any(
        item.place[:2] in ((turn, MEANWHILE), (turn, BETWEEN)) and id not in packed
        for id, item in world.rows.family(ITEM).items()
    )


# --- transitions ------------------------------------------------------------------------------------------------------


class Move(NamedTuple):
    """A transition that is taken, and what was looked at."""

    transition: Transition
    candidates: list[str]
    guard: str | None


class BadGuard(NamedTuple):
    """A guard that could not be evaluated, which counts as false."""

    transition: Transition
    error: str


class Ways(NamedTuple):
    """Where the workflow may go. ``move`` None: nowhere. ``bad``: in the order in which they were looked at."""

    move: Move | None
    bad: list[BadGuard]


def stage_state(world: World, name: str) -> StageState | None:
    found: StageState | None = world.rows.get((STAGE, name))
    return found


def ways(world: World) -> Ways:
    """Where the workflow goes from the stage that ended last (at first: from the start)."""
    last = world.head.last_stage
    state = stage_state(world, last) if last else None
    if state is not None and state.status == "FAILED" and state.failed < world.stage_named(last).limits.attempts:
        return Ways(Move(Transition(id=RETRY, to=last, source=last), [RETRY], None), [])
    candidates = [each for each in _transitions(world) if (each.source or "") == last]
    ids = [each.id for each in candidates]
    bad: list[BadGuard] = []
    values: Mapping[str, Any] | None = None
    for each in candidates:
        if not _dependencies_met(world, each.to):
            continue
        if each.when is None:
            if state is None or state.status == "COMPLETED":
                return Ways(Move(each, ids, None), bad)
            continue
        values = guard_values(world) if values is None else values
        holds, error = policy.guard(each.when, values)
        if error is not None:
            bad.append(BadGuard(each, error))
        elif holds:
            return Ways(Move(each, ids, each.when), bad)
    return Ways(None, bad)


def guard_id(world: World, transition_id: str) -> str:
    """The id of the decision that says that a guard could not be evaluated behind a stage attempt, or at the start."""
    state = stage_state(world, world.head.last_stage)
    return f"{'start' if state is None else f'{world.head.last_stage}.{state.attempt}'}/g.{transition_id}"


def untold_guard(world: World, bad: list[BadGuard]) -> BadGuard | None:
    """The first of them that no event tells of yet."""
    state: GuardState | None = world.rows.get((GUARD, world.head.last_stage))
    told = [] if state is None else state.failed
    if len(told) >= LISTED:
        return None
    return next((each for each in bad if bounded(each.transition.id) not in told), None)


def _transitions(world: World) -> list[Transition]:
    """Those of the document; without any, from each stage to the one behind it."""
    workflow = world.configuration.workflow
    if workflow.transitions:
        return workflow.transitions
    names = [stage.name for stage in workflow.stages]
    return [
        Transition(id=f"{before or 'start'}-{after}", to=after, source=before)
        for before, after in zip([None, *names], names, strict=False)
    ]


def _dependencies_met(world: World, name: str) -> bool:
    states = (stage_state(world, needed) for needed in world.stage_named(name).depends_on)
    return all(state is not None and state.status == "COMPLETED" for state in states)


def guard_values(world: World) -> dict[str, Any]:
    """What a guard may look at: see ``configuration.GUARD_INPUTS``."""
    head = world.head
    name = head.stage_name
    state = stage_state(world, name) if name else None
    verdicts = [
        {"validator": row.validator, "verdict": row.verdict}
        for row in (world.rows.get((VALIDATION, id)) for id in head.validations)
        if row is not None
    ]
    output = "" if head.answer is None else world.contents.get(head.answer).decode("utf-8", "replace")
    return {
        "stage": {
            "name": name,
            "attempt": head.stage_attempt,
            "status": "" if state is None else state.status,
            "output": output,
            "verdicts": verdicts,
        },
        "session": {"turns": head.turns, "tool_calls": head.tool_calls, "tokens": head.tokens},
        "labels": dict(head.labels),
        "stages": [
            {"name": each.name, "status": found.status, "attempts": found.attempt}
            for each in world.configuration.workflow.stages
            if (found := stage_state(world, each.name)) is not None
        ],
    }


def guard_digests(values: Mapping[str, Any]) -> list[tuple[str, bytes]]:
    """Digest of each input of a guard, in canonical JSON, by name."""
    return [(name, sha256(canonical(values[name])).digest()) for name in sorted(values)]


# --- the end ----------------------------------------------------------------------------------------------------------


def failed_in_the_end(world: World) -> bool:
    state = stage_state(world, world.head.last_stage)
    return state is None or state.status != "COMPLETED"


def result_of(world: World) -> bytes | None:
    """The digest of the session's result."""
    name = world.configuration.workflow.result or world.head.last_stage
    state = stage_state(world, name)
    return None if state is None else state.outputs


def parsed(content: bytes) -> Any:
    """A content as JSON; None if it is none."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None

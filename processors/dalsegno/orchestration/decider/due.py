"""Which decision is due: the first one, in a fixed order. Pure.

The order: an early end, limits, the turn in progress (compression, pack, inference, calls by their ordinal), the stage
in progress (what is asked before its turns, its validators, the next turn), what follows a stage. Nothing is due where
the session waits for a fact: an answer, a receipt, a person.
"""

from __future__ import annotations

from collections.abc import Iterator

from dalsegno.orchestration.decider import moves
from dalsegno.orchestration.decider.packs import asks_model, compression_due, gave_summary, overflowed
from dalsegno.orchestration.decider.world import Due, World
from dalsegno.projections.decider.calls import CLOSED
from dalsegno.projections.decider.rows import (
    APPROVAL,
    COMPRESSION,
    GRANT,
    REQUEST,
    VALIDATION,
    CallState,
    Grant,
    InferenceState,
    RequestState,
    ValidationState,
)


def due(world: World) -> Due | None:
    """The decision that is due; None: the session waits, or is over."""
    head = world.rows.head_row
    if head is None or head.status not in ("RUNNING", "PAUSED"):
        return None
    if head.stop is not None:
        return _stopping(world)
    if head.status == "PAUSED":
        return None
    limit = reached_limit(world)
    if limit is not None:
        return Due("LimitReached", limit)
    if head.turn:
        return _in_turn(world)
    if head.stage:
        return _in_stage(world) if head.stage_phase == "ACTIVE" else None
    return _between_stages(world)


# --- an early end -----------------------------------------------------------------------------------------------------


def reached_limit(world: World) -> str | None:
    """The limit of the session that was reached, as a symbol of LimitReached."""
    head, limits = world.head, world.configuration.workflow.limits
    if "wall_time" in head.timers:
        return "WALL_TIME"
    if limits.tokens is not None and head.tokens > limits.tokens:
        return "TOKENS"
    if limits.cost_usd_micros is not None and head.cost_usd_micros > limits.cost_usd_micros:
        return "COST"
    if head.turn and head.packs and not head.stale and not head.fits:
        return "CONTEXT"
    return None


def _open_approvals(world: World) -> Iterator[str]:
    for id, approval in sorted(world.rows.family(APPROVAL).items()):
        if approval.phase == "OPEN":
            yield id


def _stopping(world: World) -> Due:
    head = world.head
    assert head.stop is not None
    for approval in _open_approvals(world):
        return Due("ApprovalWithdrawn", approval)
    if head.turn:
        return Due("TurnAborted", head.turn)
    if head.stage:
        return Due("StageCancelled" if head.stop.what == "CANCEL" else "StageFailed", head.stage)
    ends = {"CANCEL": "SessionCancelled", "TERMINATE": "SessionFailed"}
    return Due(ends.get(head.stop.what, "SessionCompleted"), "")


# --- a turn -----------------------------------------------------------------------------------------------------------


def _in_turn(world: World) -> Due | None:
    head = world.head
    if head.compressing:
        return _compressing(world)
    if not head.packs or head.stale:
        return _compression(world) or Due("ContextPackBuilt", pack_id(world))
    if not head.inference:
        return Due("InferenceRequested", inference_id(world))
    inference = world.inference(head.inference)
    if inference is None or inference.phase == "OPEN":
        return None
    if inference.phase == "DONE":
        return _with_answer(world)
    if overflowed(world) and (found := _compression(world)) is not None:
        return found
    if may_ask_again(world, inference):
        return Due("InferenceRequested", head.inference)
    return Due("TurnAborted", head.turn)


def _compression(world: World) -> Due | None:
    plan = compression_due(world)
    if plan is None:
        return None
    return Due("CompressionStarted" if asks_model(plan) else "CompressionCompleted", compression_id(world))


def may_ask_again(world: World, inference: InferenceState) -> bool:
    """Whether an inference that failed, or was lost in a crash, is asked for once more."""
    if inference.phase == "RECOVERED":
        return True
    return inference.retryable and inference.failed < world.stage.limits.inference_attempts


def compression_id(world: World) -> str:
    return f"{world.head.turn}/k{world.head.windows + len(world.head.failed_rules) + 1}"


def pack_id(world: World) -> str:
    return f"{world.head.turn}/p{world.head.packs + 1 if world.head.packs else ''}"


def inference_id(world: World) -> str:
    return f"{world.head.turn}/i{world.head.packs if world.head.packs > 1 else ''}"


def _compressing(world: World) -> Due | None:
    id = world.head.compressing
    if world.rows.get((COMPRESSION, id)) is None:
        return None
    asked = world.inference(f"{id}/i")
    if asked is None:
        return Due("InferenceRequested", f"{id}/i")
    if asked.phase == "OPEN":
        return None
    if asked.phase == "DONE":
        return Due("CompressionCompleted" if gave_summary(world, id) else "CompressionFailed", id)
    return Due("InferenceRequested", f"{id}/i") if may_ask_again(world, asked) else Due("CompressionFailed", id)


def _with_answer(world: World) -> Due | None:
    head = world.head
    waits = False
    for id, call in world.turn_calls():
        if call is None:
            if head.abort:
                continue
            return Due("ToolCallRequested", id)
        found = _on_call(world, id, call)
        if found is not None:
            return found
        waits = waits or call.phase not in CLOSED
    if waits:
        return None
    return Due("TurnAborted" if head.abort else "TurnCompleted", head.turn)


def _on_call(world: World, id: str, call: CallState) -> Due | None:
    if call.phase == "REQUESTED":
        return _on_request(world, id, call)
    lost = call.phase == "UNRESOLVED" and call.reason == "UNKNOWN_OUTCOME"
    if (call.phase == "ATTEMPT_FAILED" or lost) and call.safe:
        return Due("ToolRetryDecided", id)
    return None


def _on_request(world: World, id: str, call: CallState) -> Due | None:
    if world.head.abort:
        if call.approval and not call.answer:
            return Due("ApprovalWithdrawn", call.approval)
        return Due("ToolCallRejected", id)
    if not call.evaluations:
        if moves.refused(world, call) is not None:
            return Due("ToolCallRejected", id)
        return Due("PolicyEvaluated", f"{id}/d1")
    if call.effective != call.arguments and moves.bad_arguments(world, call) is not None:
        return Due("ToolCallRejected", id)
    if call.answer == "MODIFIED":
        return Due("PolicyEvaluated", f"{id}/d{call.evaluations + 1}")
    if call.decision == "DENY":
        return Due("ToolCallRejected", id)
    if call.decision != "REQUIRE_APPROVAL":
        return Due("ToolCallAuthorized", id)
    if standing_grant(world, call) is not None:
        if call.approval and not call.answer:  # the grant came for another call while this one waited
            return Due("ApprovalWithdrawn", call.approval)
        return Due("ToolCallAuthorized", id)
    if not call.approval:
        return Due("ApprovalRequested", f"{id}/a1")
    if not call.answer:
        return None
    if call.answer == "GRANTED":
        return Due("ToolCallAuthorized", id)
    if call.answer == "EXPIRED" and call.on_expiry == "ESCALATE" and call.approvals < len(call.to):
        return Due("ApprovalRequested", f"{id}/a{call.approvals + 1}")
    return Due("ToolCallRejected", id)


def standing_grant(world: World, call: CallState) -> str | None:
    """The grant that answers this call without asking again: of those that cover it, the first by id."""
    grants: dict[str, Grant] = world.rows.family(GRANT)
    for id in sorted(grants):
        grant = grants[id]
        if grant.forks != world.head.forks:
            continue
        if grant.tool == call.name and (grant.scope == "SESSION" or grant.rule_ids == call.rule_ids):
            return id
    return None


# --- a stage ----------------------------------------------------------------------------------------------------------


def _in_stage(world: World) -> Due | None:
    head, stage = world.head, world.stage
    if head.abort:
        return Due("StageFailed", head.stage)
    wanted = [("RetrievalRequested", f"{head.stage}/r.{each.id}") for each in stage.retrieve]
    wanted += [("InputRequested", f"{head.stage}/q.{each.id}") for each in stage.ask]
    waits = False
    for type_, id in wanted:
        request: RequestState | None = world.rows.get((REQUEST, id))
        if request is None:
            return Due(type_, id)
        waits = waits or request.phase == "OPEN"
    if waits:
        return None
    most = world.configuration.workflow.limits.turns
    none_left = most is not None and head.turns >= most
    if head.answered:
        # Whoever answered did not know of what came meanwhile: the next turn shows it, if there may be one.
        unseen = head.stage_turns < stage.limits.turns and not none_left and moves.message_unseen(world)
        if not unseen or head.validations:
            found = _judging(world)
            if found is not None or not all_decided(world):
                return found
            if not head.rejected and not unseen:
                return Due("StageCompleted", head.stage)
    if head.stage_turns >= stage.limits.turns:
        return Due("StageFailed", head.stage)
    if none_left:
        return Due("LimitReached", "TURNS")
    return Due("TurnStarted", f"{head.stage}/t{head.stage_turns + 1}")


def validation_id(world: World, name: str) -> str:
    return f"{world.head.stage}/t{world.head.stage_turns}/v.{name}"


def all_decided(world: World) -> bool:
    states = (world.rows.get((VALIDATION, validation_id(world, name))) for name in world.stage.validators)
    return all(state is not None and state.phase != "OPEN" for state in states)


def _judging(world: World) -> Due | None:
    for name in world.stage.validators:
        id = validation_id(world, name)
        state: ValidationState | None = world.rows.get((VALIDATION, id))
        if state is None:
            return Due("ValidationRequested", id)
        if state.phase != "OPEN":
            continue
        spec = world.validator(name)
        if spec.reporter is not None:
            if state.reported:
                return Due("ValidationDecided", id)
            continue
        if spec.agent is None:
            return Due("ValidationDecided", id)
        asked = world.inference(f"{id}/i")
        if asked is None:
            return Due("InferenceRequested", f"{id}/i")
        if asked.phase == "OPEN":
            continue
        again = asked.phase != "DONE" and may_ask_again(world, asked)
        return Due("InferenceRequested", f"{id}/i") if again else Due("ValidationDecided", id)
    return None


# --- between stages ---------------------------------------------------------------------------------------------------


def _between_stages(world: World) -> Due | None:
    head = world.head
    if head.to_stage:
        before = moves.stage_state(world, head.to_stage)
        return Due("StageScheduled", f"{head.to_stage}.{1 if before is None else before.attempt + 1}")
    if head.moved:
        return None
    move, bad = moves.ways(world)
    untold = moves.untold_guard(world, bad)
    if untold is not None:
        return Due("PolicyEvaluated", moves.guard_id(world, untold.transition.id))
    if move is not None:
        return Due("TransitionTaken", head.last_stage)
    return Due("SessionFailed" if moves.failed_in_the_end(world) else "SessionCompleted", "")

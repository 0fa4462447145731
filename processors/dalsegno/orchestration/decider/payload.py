"""What a decision says: the event for a type and a subject. Pure.

A payload refers to others by domain id and content digest, never by event id, seq, hash or time: two runs of the same
decisions give equal payloads.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Final

from dalsegno.errors import NotReconstructable
from dalsegno.model.events import (
    ApprovalWithdrawn,
    ErrorInfo,
    GuardInput,
    InferenceRequested,
    InputRequested,
    LimitReached,
    NewEvent,
    PolicyEvaluated,
    RetrievalRequested,
    SessionCancelled,
    SessionCompleted,
    SessionFailed,
    StageCancelled,
    StageCompleted,
    StageFailed,
    StageScheduled,
    TransitionTaken,
    TurnAborted,
    TurnCompleted,
    TurnStarted,
)
from dalsegno.orchestration.canonical import canonical
from dalsegno.orchestration.decider import calls, judging, moves, packs
from dalsegno.orchestration.decider.world import JSON, Due, World
from dalsegno.orchestration.recovery import resolutions
from dalsegno.projections.decider.rows import (
    STAGE,
    VALIDATION,
    StageState,
)


def payload(world: World, due: Due) -> NewEvent:
    """The event. Raises NotReconstructable where a content or a document that it rests on is missing."""
    make = PAYLOADS.get(due.type)
    if make is None:
        raise NotReconstructable(f"{due.type} is no decision", wanted=f"one of {', '.join(sorted(PAYLOADS))}")
    return make(world, due.subject)


# --- the session ------------------------------------------------------------------------------------------------------


def open_operations(world: World) -> list[str]:
    """Ids of the operations without an end, sorted, as the lifecycle counts them: those that a recovery resolves."""
    return sorted(id for _, id in resolutions(world.rows))


def _limit(world: World, limit: str) -> NewEvent:
    head, limits = world.head, world.configuration.workflow.limits
    observed = {
        "TOKENS": (limits.tokens, head.tokens),
        "COST": (limits.cost_usd_micros, head.cost_usd_micros),
        "TURNS": (limits.turns, head.turns),
        "CONTEXT": (world.stage.context.budget_tokens if head.stage else None, None),
        "WALL_TIME": (limits.wall_time_seconds, None),
    }
    most, found = observed.get(limit, (None, None))
    return LimitReached(
        limit=limit,  # type: ignore[arg-type]
        action="STOP",
        limit_value=None if most is None else str(most),
        observed=None if found is None else str(found),
    )


def _session_completed(world: World, _: str) -> NewEvent:
    stop = world.head.stop
    result = moves.result_of(world)
    if stop is not None:
        return SessionCompleted(outcome="GIVEN_UP", open_ops=open_operations(world), result=None)
    content = None if result is None else world.blob(world.contents.get(result))
    outcome = "PARTIAL" if result is None else "SUCCESS"
    return SessionCompleted(outcome=outcome, open_ops=open_operations(world), result=content)  # type: ignore[arg-type]


def _session_failed(world: World, _: str) -> NewEvent:
    stop = world.head.stop
    if stop is not None:
        error = ErrorInfo(error_class="denied", message=stop.reason or "an approver ended the session", retryable=False)
        return SessionFailed(error=error, open_ops=open_operations(world))
    state = moves.stage_state(world, world.head.last_stage)
    if state is None:
        error = ErrorInfo(error_class="no-stage", message="no transition leads to a first stage", retryable=False)
    else:
        error = ErrorInfo(
            error_class=state.error_class or "stage-failed",
            message=f"stage {world.head.last_stage}: {state.error_message or state.status.lower()}",
            retryable=False,
        )
    return SessionFailed(error=error, open_ops=open_operations(world))


def _session_cancelled(world: World, _: str) -> NewEvent:
    stop = world.head.stop
    assert stop is not None
    return SessionCancelled(requested_by=stop.by, reason=stop.reason, open_ops=open_operations(world))


# --- stages -----------------------------------------------------------------------------------------------------------


def _transition(world: World, last: str) -> NewEvent:
    move = moves.ways(world).move
    if move is None:
        raise NotReconstructable("no transition is due", wanted="a transition whose guard holds")
    digests = [] if move.guard is None else moves.guard_digests(moves.guard_values(world))
    return TransitionTaken(
        transition_id=move.transition.id,
        from_stage=last or None,
        to_stage=move.transition.to,
        guard_id=None if move.guard is None else move.transition.id,
        guard_result=None if move.guard is None else True,
        candidates=move.candidates,
        guard_inputs=[GuardInput(name=name, digest=digest) for name, digest in digests],
    )


def _evaluated(world: World, decision_id: str) -> NewEvent:
    """Of a call, in its turn; between stages of a guard that could not be evaluated, which counts as false."""
    if world.head.turn:
        return calls.evaluated(world, decision_id)
    bad = next((one for one in moves.ways(world).bad if moves.guard_id(world, one.transition.id) == decision_id), None)
    if bad is None:
        raise NotReconstructable(f"no guard of {decision_id} is looked at", wanted="one that cannot be evaluated")
    return PolicyEvaluated(
        decision_id=decision_id,
        subject="TRANSITION",
        subject_id=bad.transition.id,
        decision="DENY",
        engine=world.configuration.build.cel_engine,
        policy_digest=world.configuration.digests["WORKFLOW"],
        input_digest=sha256(canonical(moves.guard_values(world))).digest(),
        rule_ids=[bad.transition.id],
        explanation=f"the guard of transition {bad.transition.id} cannot be evaluated: {bad.error}",
    )


def _stage_scheduled(world: World, stage_id: str) -> NewEvent:
    name, _, attempt = stage_id.rpartition(".")
    stage = world.stage_named(name)
    outputs = {}
    for needed in stage.depends_on:
        state: StageState | None = world.rows.get((STAGE, needed))
        outputs[needed] = None if state is None or state.outputs is None else state.outputs.hex()
    return StageScheduled(
        stage_id=stage_id,
        stage_name=name,
        attempt=int(attempt),
        transition_id=world.head.transition_id,
        inputs_digest=sha256(canonical(outputs)).digest(),
        depends_on=list(stage.depends_on),
    )


def _stage_completed(world: World, stage_id: str) -> NewEvent:
    answer = world.head.answer
    output = world.blob(b"" if answer is None else world.contents.get(answer))
    return StageCompleted(stage_id=stage_id, outputs_digest=output.digest, outputs=output)


def _stage_failed(world: World, stage_id: str) -> NewEvent:
    error_class, message = _stage_error(world)
    return StageFailed(stage_id=stage_id, error=ErrorInfo(error_class=error_class, message=message, retryable=False))


def _stage_cancelled(world: World, stage_id: str) -> NewEvent:
    stop = world.head.stop
    return StageCancelled(stage_id=stage_id, reason=None if stop is None else stop.reason)


def _stage_error(world: World) -> tuple[str, str]:
    head = world.head
    if head.stop is not None:
        return ("limit", f"the limit {head.stop.reason} of the session") if head.stop.what == "LIMIT" else (
            "denied", head.stop.reason or "an approver ended the session"
        )  # fmt: skip
    inference = world.inference(head.inference)
    if head.abort == "INTERRUPTED" and inference is not None:
        return inference.error_class or "inference-failed", inference.error_message
    if head.abort:
        return "denied", "an approver ended the turn"
    if head.rejected:
        names = [row.validator for row in (world.rows.get((VALIDATION, id)) for id in head.validations)
                 if row is not None and row.verdict != "PASS"]  # fmt: skip
        return "rejected", f"not passed by {', '.join(names)} after {head.stage_turns} turns"
    return "turn-limit", f"no answer after {head.stage_turns} turns"


# --- turns, packs, inferences -----------------------------------------------------------------------------------------


def _turn_aborted(world: World, turn_id: str) -> NewEvent:
    head = world.head
    if head.stop is not None:
        reason = {"CANCEL": "CANCELLED", "TERMINATE": "DENIED"}.get(head.stop.what, "LIMIT")
    else:
        reason = head.abort or "INTERRUPTED"
    return TurnAborted(turn_id=turn_id, reason=reason)  # type: ignore[arg-type]


def _inference(world: World, id: str) -> NewEvent:
    before = world.inference(id)
    asked = packs.asked(world, id)
    return InferenceRequested(
        inference_id=id,
        attempt=1 if before is None else before.attempt + 1,
        purpose=asked.purpose,
        provider=asked.agent.provider,
        model=asked.agent.model,
        pack_id=asked.pack_id,
        subject_id=asked.subject_id,
        delay_ms=moves.delay_ms(before.failed, before.retry_after_ms) if before is not None and before.failed else None,
        request_digest=asked.request_digest,
        tools_digest=asked.tools_digest,
        params=world.blob(canonical(asked.agent.params), JSON),
    )


# --- before and after turns -------------------------------------------------------------------------------------------


def _retrieval(world: World, id: str) -> NewEvent:
    wanted = next(each for each in world.stage.retrieve if id.endswith(f"/r.{each.id}"))
    query = None if wanted.query is None else world.blob(canonical(wanted.query), JSON)
    return RetrievalRequested(item_id=id, kind=wanted.kind, query=query)


def _question(world: World, id: str) -> NewEvent:
    wanted = next(each for each in world.stage.ask if id.endswith(f"/q.{each.id}"))
    return InputRequested(
        request_id=id,
        ttl_ms=None if wanted.ttl_seconds is None else wanted.ttl_seconds * 1000,
        prompt=world.blob(wanted.prompt.encode()),
        schema=None if wanted.schema is None else world.blob(canonical(wanted.schema), JSON),
    )


PAYLOADS: Final[dict[str, Callable[[World, str], NewEvent]]] = {
    "LimitReached": _limit,
    "SessionCompleted": _session_completed,
    "SessionFailed": _session_failed,
    "SessionCancelled": _session_cancelled,
    "TransitionTaken": _transition,
    "StageScheduled": _stage_scheduled,
    "StageCompleted": _stage_completed,
    "StageFailed": _stage_failed,
    "StageCancelled": _stage_cancelled,
    "TurnStarted": lambda world, id: TurnStarted(turn_id=id, agent=world.stage.agent),
    "TurnCompleted": lambda _, id: TurnCompleted(turn_id=id),
    "TurnAborted": _turn_aborted,
    "ContextPackBuilt": packs.pack_built,
    "CompressionStarted": packs.compression_started,
    "CompressionCompleted": packs.compression_completed,
    "CompressionFailed": packs.compression_failed,
    "InferenceRequested": _inference,
    "ToolCallRequested": calls.requested,
    "PolicyEvaluated": _evaluated,
    "ApprovalRequested": calls.approval_requested,
    "ApprovalWithdrawn": lambda _, id: ApprovalWithdrawn(approval_id=id, reason="the work it was for ends"),
    "ToolCallAuthorized": calls.authorized,
    "ToolCallRejected": calls.rejected,
    "ToolRetryDecided": calls.retry,
    "RetrievalRequested": _retrieval,
    "InputRequested": _question,
    "ValidationRequested": judging.validation_requested,
    "ValidationDecided": judging.validation_decided,
}
"""By event type: the event about that subject."""

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
    ApprovalRequested,
    ApprovalWithdrawn,
    Blob,
    ErrorInfo,
    GuardInput,
    InferenceRequested,
    InputRequested,
    LimitReached,
    NewEvent,
    Obligation,
    PolicyEvaluated,
    RetrievalRequested,
    SessionCancelled,
    SessionCompleted,
    SessionFailed,
    StageCancelled,
    StageCompleted,
    StageFailed,
    StageScheduled,
    ToolCallAuthorized,
    ToolCallRejected,
    ToolCallRequested,
    ToolRetryDecided,
    TransitionTaken,
    TurnAborted,
    TurnCompleted,
    TurnStarted,
    ValidationDecided,
    ValidationRequested,
)
from dalsegno.orchestration import policy
from dalsegno.orchestration.canonical import canonical
from dalsegno.orchestration.decider import judging, moves, packs
from dalsegno.orchestration.decider.due import standing_grant
from dalsegno.orchestration.decider.world import Due, World
from dalsegno.projections.decider.rows import (
    APPROVAL,
    CALL,
    COMPRESSION,
    INFERENCE,
    REQUEST,
    STAGE,
    VALIDATION,
    CallState,
    StageState,
    ValidationState,
)

JSON: Final = "application/json"
FIRST_DELAY_MS: Final = 1000
"""Before the second attempt of an inference or a call; doubled for each further one. Jitter is the port's."""
MAX_DELAY_MS: Final = 60_000
_OPEN_CALLS: Final = frozenset({"REQUESTED", "AUTHORIZED", "STARTED", "UNRESOLVED"})


def payload(world: World, due: Due) -> NewEvent:
    """The event. Raises NotReconstructable where a content or a document that it rests on is missing."""
    make = PAYLOADS.get(due.type)
    if make is None:
        raise NotReconstructable(f"{due.type} is no decision", wanted=f"one of {', '.join(sorted(PAYLOADS))}")
    return make(world, due.subject)


def delay_ms(failed: int, asked_ms: int | None) -> int:
    """How long to wait before the next attempt, after so many that failed."""
    return min(MAX_DELAY_MS, max(asked_ms or 0, FIRST_DELAY_MS << min(failed - 1, 10)))


# --- the session ------------------------------------------------------------------------------------------------------


def open_operations(world: World) -> list[str]:
    """Ids of the operations without an end, sorted, as the lifecycle counts them."""
    rows = world.rows
    found = [id for id, row in rows.family(INFERENCE).items() if row.phase == "OPEN"]
    found += [id for id, row in rows.family(CALL).items() if row.phase in _OPEN_CALLS]
    for family in (APPROVAL, REQUEST, VALIDATION, COMPRESSION):
        found += [id for id, row in rows.family(family).items() if row.phase == "OPEN"]
    return sorted(found)


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
    move = moves.transition(world)
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
        delay_ms=delay_ms(before.failed, before.retry_after_ms) if before is not None and before.failed else None,
        request_digest=asked.request_digest,
        tools_digest=asked.tools_digest,
        params=world.blob(canonical(asked.agent.params), JSON),
    )


# --- tool calls -------------------------------------------------------------------------------------------------------


def _call_requested(world: World, id: str) -> NewEvent:
    inference = world.inference(world.head.inference)
    listed = {} if inference is None else {call[0]: call for call in inference.calls}
    if id not in listed:
        raise NotReconstructable(f"no answer of this turn asks for the call {id}")
    _, native, name, digest = listed[id]
    tool = world.tool(name)
    return ToolCallRequested(
        tool_call_id=id,
        name=name,
        effect="UNKNOWN" if tool is None else tool.effect,
        risk="UNKNOWN" if tool is None else tool.risk,
        inference_id=world.head.inference,
        native_call_id=native,
        tool_version=None if tool is None else tool.version,
        arguments_digest=digest,
        arguments=world.blob(world.contents.get(digest), JSON),
    )


def _evaluated(world: World, decision_id: str) -> NewEvent:
    id = decision_id.rpartition("/")[0]
    call = world.call(id)
    document = world.configuration.policy
    outcome = policy.evaluate(
        document,
        policy.CallFacts(
            tool=call.name, arguments=world.contents.get(call.effective), effect=call.effect, risk=call.risk
        ),
        stage=world.head.stage_name,
        labels=dict(world.head.labels),
        session={"turns": world.head.turns, "tool_calls": world.head.tool_calls, "tokens": world.head.tokens},
        approved=call.answer == "MODIFIED",
    )
    duty = outcome.obligation
    return PolicyEvaluated(
        decision_id=decision_id,
        subject="TOOL_CALL",
        subject_id=id,
        decision=outcome.decision,
        engine=world.configuration.build.cel_engine,
        policy_digest=world.configuration.digests["POLICY"],
        input_digest=outcome.input_digest,
        rule_ids=list(outcome.rule_ids),
        obligation=None if duty is None else Obligation(
            to=[list(step) for step in duty.to],
            ttl_ms=None if duty.ttl_seconds is None else duty.ttl_seconds * 1000,
            on_expiry=duty.on_expiry,
        ),
        explanation=outcome.explanation or None,
        input=world.blob(outcome.input, JSON),
        modified=None if outcome.modified is None else world.blob(outcome.modified, JSON),
    )  # fmt: skip


def _approval_requested(world: World, approval_id: str) -> NewEvent:
    id = approval_id.rpartition("/")[0]
    call = world.call(id)
    step = call.approvals
    view = {"tool": call.name, "arguments": moves.parsed(world.contents.get(call.effective)), "why": call.explanation}
    return ApprovalRequested(
        approval_id=approval_id,
        subject="TOOL_CALL",
        subject_id=id,
        decision_id=call.decision_id,
        arguments_digest=call.effective,
        ttl_ms=call.ttl_ms,
        on_expiry=call.on_expiry,  # type: ignore[arg-type]
        escalated_from=call.approval or None,
        addressed_to=list(call.to[step]) if step < len(call.to) else [],
        options=["grant", "grant-session", "grant-rule", "deny"],
        view=world.blob(canonical(view), JSON),
    )


def _authorized(world: World, id: str) -> NewEvent:
    call = world.call(id)
    approval: str | None = None
    if call.decision == "SIMULATE":
        basis = "SIMULATED"
    elif call.answer == "GRANTED":
        basis, approval = "APPROVAL", call.approval
    elif call.decision == "REQUIRE_APPROVAL":
        basis, approval = "STANDING_GRANT", standing_grant(world, call)
    else:
        basis = "POLICY_ALLOW"
    return ToolCallAuthorized(
        tool_call_id=id,
        basis=basis,  # type: ignore[arg-type]
        decision_id=call.decision_id,
        approval_id=approval,
        effective_arguments_digest=call.effective,
    )


def _rejected(world: World, id: str) -> NewEvent:
    basis, cites, message = _why_rejected(world, world.call(id))
    return ToolCallRejected(tool_call_id=id, basis=basis, cites=cites, message=message)  # type: ignore[arg-type]


def _why_rejected(world: World, call: CallState) -> tuple[str, str | None, str]:
    if world.head.abort:
        return "APPROVAL_DENIED", None, "an approver ended the turn"
    if not call.evaluations:
        refusal = moves.refused(world, call)
        if refusal is not None:
            return refusal.basis, None, refusal.message
    bad = None if call.effective == call.arguments else moves.bad_arguments(world, call)
    if bad is not None:
        cited = call.approval if call.answer == "MODIFIED" else call.decision_id
        return "INVALID_ARGUMENTS", cited, f"as they were changed: {bad}"
    if call.decision == "DENY":
        return "POLICY_DENY", call.decision_id, call.explanation or "the policy denies it"
    if call.answer == "EXPIRED":
        return "APPROVAL_EXPIRED", call.approval, "nobody answered in time"
    if call.answer == "WITHDRAWN":
        return "APPROVAL_DENIED", call.approval, "nobody is asked any more"
    return "APPROVAL_DENIED", call.approval or None, "an approver denied it"


def _retry(world: World, id: str) -> NewEvent:
    call = world.call(id)
    again = call.failed < world.stage.limits.tool_attempts and not world.head.abort
    return ToolRetryDecided(
        tool_call_id=id, attempt=call.attempt, retry=again, delay_ms=delay_ms(call.failed, None) if again else None
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


def _validation_requested(world: World, id: str) -> NewEvent:
    spec = world.validator(id.rpartition("/v.")[2])
    criteria = {"schema": spec.schema, "predicate": spec.predicate, "prompt": spec.prompt, "reporter": spec.reporter}
    return ValidationRequested(
        validation_id=id,
        validator=spec.name,
        validator_version=spec.version,
        target_id=id.rpartition("/v.")[0],
        target_digest=world.head.answer,
        validator_digest=world.configuration.digests["VALIDATORS"],
        criteria_digest=sha256(canonical(criteria)).digest(),
    )


def _validation_decided(world: World, id: str) -> NewEvent:
    state: ValidationState = world.rows.get((VALIDATION, id))
    found = judging.decided(world, id)
    return ValidationDecided(
        validation_id=id,
        basis=found.basis,
        verdict=found.verdict,
        intermediate=False,
        score=found.score,
        label=found.label,
        inference_id=f"{id}/i" if found.basis == "INFERENCE" else None,
        findings=list(found.findings),
        evidence=[_evidence(world, digest) for digest in state.evidence],
    )


def _evidence(world: World, digest: bytes) -> Blob:
    return world.blob(world.contents.get(digest))


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
    "ToolCallRequested": _call_requested,
    "PolicyEvaluated": _evaluated,
    "ApprovalRequested": _approval_requested,
    "ApprovalWithdrawn": lambda _, id: ApprovalWithdrawn(approval_id=id, reason="the work it was for ends"),
    "ToolCallAuthorized": _authorized,
    "ToolCallRejected": _rejected,
    "ToolRetryDecided": _retry,
    "RetrievalRequested": _retrieval,
    "InputRequested": _question,
    "ValidationRequested": _validation_requested,
    "ValidationDecided": _validation_decided,
}
"""By event type: the event about that subject."""

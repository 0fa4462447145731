"""What is said of tool calls: what was asked for, what the policy makes of it, who is asked, how it goes on. Pure."""

from __future__ import annotations

from dalsegno.errors import NotReconstructable
from dalsegno.model.events import (
    ApprovalRequested,
    NewEvent,
    Obligation,
    PolicyEvaluated,
    ToolCallAuthorized,
    ToolCallRejected,
    ToolCallRequested,
    ToolRetryDecided,
)
from dalsegno.orchestration import policy
from dalsegno.orchestration.canonical import canonical
from dalsegno.orchestration.decider import moves
from dalsegno.orchestration.decider.due import standing_grant
from dalsegno.orchestration.decider.world import JSON, World
from dalsegno.projections.decider.rows import CallState


def requested(world: World, id: str) -> NewEvent:
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


def evaluated(world: World, decision_id: str) -> NewEvent:
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


def approval_requested(world: World, approval_id: str) -> NewEvent:
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


def authorized(world: World, id: str) -> NewEvent:
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


def rejected(world: World, id: str) -> NewEvent:
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


def retry(world: World, id: str) -> NewEvent:
    call = world.call(id)
    again = call.failed < world.stage.limits.tool_attempts and not world.head.abort
    return ToolRetryDecided(
        tool_call_id=id,
        attempt=call.attempt,
        retry=again,
        delay_ms=moves.delay_ms(call.failed, None) if again else None,
    )

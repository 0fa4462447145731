"""The part of a made-up session that runs tools, with the policies and people that allow them."""

from __future__ import annotations

from collections.abc import Generator

from dalsegno.model.events import (
    ApprovalDenied,
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRequested,
    NewEvent,
    Obligation,
    PolicyEvaluated,
    SubSessionEnded,
    ToolCallAuthorized,
    ToolCallFailed,
    ToolCallRejected,
    ToolCallRequested,
    ToolCallStarted,
    ToolReceiptRecorded,
    ToolRetryDecided,
)
from dalsegno.testing.model_script import TOOLS, Call, ModelScript
from dalsegno.testing.script import POLICY_DIGEST, Child, Script, Steps

_MAX_ATTEMPTS = 3


class CallScript(ModelScript):
    """Tool calls with their policies and approvals."""

    def run_calls(self) -> Steps:
        """All calls of the last answer: asked for, decided, run side by side, received in any order."""
        calls, self.wanted = self.wanted, []
        allowed = []
        inference_id = f"{self.turn_id}/i"
        for call in calls:
            yield self._requested(call, inference_id)
        for call in calls:
            if (yield from self._decide(call)):
                allowed.append(call)
        child = self.spawn() if allowed and self.chance() < 0.015 else None
        delegated = allowed.pop() if child is not None else None
        for call in allowed:
            yield self._started(call)
        yield from self._receive(allowed)
        if delegated is not None and child is not None:
            yield from self._delegate(delegated, child)

    def _receive(self, running: list[Call]) -> Steps:
        while running:
            if self.chance() < 0.004:
                yield from self.crash()
                for call in running:
                    if call.safe:
                        yield self._started(call)
                    else:
                        call.unresolved = True
            call = running.pop(int(self.chance() * len(running)))
            self.wait(TOOLS[call.name][1])
            if call.unresolved or self.chance() >= 0.05:
                yield self._receipt(call)
                continue
            del self.open["TOOL", call.id]
            yield ToolCallFailed(
                tool_call_id=call.id, attempt=call.attempt, reason="TIMEOUT", error=self.error("Timeout")
            )
            again = call.safe and call.attempt < _MAX_ATTEMPTS
            yield ToolRetryDecided(
                tool_call_id=call.id, attempt=call.attempt, retry=again, delay_ms=1_000 if again else None
            )
            if again:
                yield self._started(call)
                running.append(call)
            else:
                self.tally.tool_calls["failed"] += 1

    def _delegate(self, call: Call, child: Script) -> Steps:
        """A call that is done by a session of its own."""
        call.attempt += 1
        self.open["TOOL", call.id] = "AWAIT_RECEIPT"
        yield ToolCallStarted(tool_call_id=call.id, attempt=call.attempt, child_session=child.session_id)
        yield Child(child)
        self.now = max(self.now, child.now)
        del self.open["TOOL", call.id]
        self.tally.tool_calls["sub_session"] += 1
        assert isinstance(child, CallScript)
        yield SubSessionEnded(
            child_session=child.session_id,
            tool_call_id=call.id,
            outcome=child.outcome,  # type: ignore[arg-type]
            child_final_hash=child.tip,
            result=self.texts.blob(300),
        )

    def _decide(self, call: Call) -> Generator[NewEvent | Child, None, bool]:
        """Policy and, where it says so, a person. True if the call may run."""
        chance = self.chance()
        risky = call.effect in ("DESTRUCTIVE", "EXTERNAL")
        if chance < (0.45 if risky else 0.03):
            return (yield from self._approval(call))
        decision_id = f"{call.id}/d1"
        denied = chance > 0.96
        yield self._evaluated(call, decision_id, "DENY" if denied else "ALLOW")
        if denied:
            yield self._rejected(call, "POLICY_DENY", decision_id)
            return False
        yield self._authorized(call, "POLICY_ALLOW", decision_id=decision_id)
        return True

    def _approval(self, call: Call) -> Generator[NewEvent | Child, None, bool]:
        approval_id = yield from self._ask(call)
        chance = self.chance()
        if chance < 0.05:
            yield from self.crash()
        self.wait(90)
        del self.open["APPROVAL", approval_id]
        if chance < 0.75:
            self.tally.approvals["granted"] += 1
            yield ApprovalGranted(approval_id=approval_id, arguments_digest=call.digest, explanation="looks right")
            yield self._authorized(call, "APPROVAL", approval_id=approval_id)
            return True
        if chance < 0.9:
            self.tally.approvals["denied"] += 1
            yield ApprovalDenied(approval_id=approval_id, rejection_source="USER", explanation=self.texts.text(60))
            yield self._rejected(call, "APPROVAL_DENIED", approval_id)
            return False
        self.tally.approvals["expired"] += 1
        yield ApprovalExpired(approval_id=approval_id)
        yield self._rejected(call, "APPROVAL_EXPIRED", approval_id)
        return False

    def _ask(self, call: Call) -> Generator[NewEvent, None, str]:
        decision_id, approval_id = f"{call.id}/d1", f"{call.id}/a1"
        yield self._evaluated(call, decision_id, "REQUIRE_APPROVAL")
        self.open["APPROVAL", approval_id] = "KEEP_WAITING"
        yield ApprovalRequested(
            approval_id=approval_id,
            subject="TOOL_CALL",
            subject_id=call.id,
            decision_id=decision_id,
            arguments_digest=call.digest,
            ttl_ms=86_400_000,
            on_expiry="DENY",
            addressed_to=("team-lead",),
            options=("grant", "deny"),
            view=call.arguments,
        )
        return approval_id

    def ask_for_approval(self, inference_id: str, name: str) -> Steps:
        """Ask for the only call of the last answer, and leave it at that."""
        (call,), self.wanted = self.wanted, []
        assert call.name == name
        yield self._requested(call, inference_id)
        yield from self._ask(call)
        self.tally.approvals["open"] += 1
        self.tally.tool_calls["open"] += 1

    def start_unfinished(self, inference_id: str, name: str) -> Generator[NewEvent, None, Call]:
        """Start the only call of the last answer, and leave it at that."""
        (call,), self.wanted = self.wanted, []
        assert call.name == name
        yield self._requested(call, inference_id)
        decision_id = f"{call.id}/d1"
        yield self._evaluated(call, decision_id, "ALLOW")
        yield self._authorized(call, "POLICY_ALLOW", decision_id=decision_id)
        yield self._started(call)
        self.tally.tool_calls["open"] += 1
        return call

    # --- single events ---------------------------------------------------------------------------------------------

    def _requested(self, call: Call, inference_id: str) -> ToolCallRequested:
        self.open["TOOL", call.id] = "KEEP_WAITING"
        return ToolCallRequested(
            tool_call_id=call.id,
            name=call.name,
            effect=call.effect,  # type: ignore[arg-type]
            risk="HIGH" if call.effect == "DESTRUCTIVE" else "LOW",
            inference_id=inference_id,
            arguments_digest=call.digest,
            arguments=call.arguments,
        )

    def _evaluated(self, call: Call, decision_id: str, decision: str) -> PolicyEvaluated:
        asks = decision == "REQUIRE_APPROVAL"
        return PolicyEvaluated(
            decision_id=decision_id,
            subject="TOOL_CALL",
            subject_id=call.id,
            decision=decision,  # type: ignore[arg-type]
            engine="rules/1",
            policy_digest=POLICY_DIGEST,
            input_digest=call.digest,
            rule_ids=(f"tools.{call.name}",),
            obligation=Obligation(ttl_ms=86_400_000, on_expiry="DENY", to=[["team-lead"]]) if asks else None,
        )

    def _authorized(
        self, call: Call, basis: str, *, decision_id: str | None = None, approval_id: str | None = None
    ) -> ToolCallAuthorized:
        return ToolCallAuthorized(
            tool_call_id=call.id,
            basis=basis,  # type: ignore[arg-type]
            decision_id=decision_id,
            approval_id=approval_id,
            effective_arguments_digest=call.digest,
        )

    def _rejected(self, call: Call, basis: str, cites: str) -> ToolCallRejected:
        del self.open["TOOL", call.id]
        self.tally.tool_calls["rejected"] += 1
        return ToolCallRejected(tool_call_id=call.id, basis=basis, cites=cites, message=self.texts.text(50))  # type: ignore[arg-type]

    def _started(self, call: Call) -> ToolCallStarted:
        call.attempt += 1
        call.keyed = call.effect == "EXTERNAL"
        self.open["TOOL", call.id] = "RETRY" if call.safe else "AWAIT_RECEIPT"
        key = f"{self.session_id}/{call.id}" if call.keyed else None
        return ToolCallStarted(
            tool_call_id=call.id, attempt=call.attempt, executor="sandbox-1", sandbox="docker", idempotency_key=key
        )

    def _receipt(self, call: Call) -> ToolReceiptRecorded:
        del self.open["TOOL", call.id]
        self.items.append((call.id, "TOOL_RESULT"))
        failed = self.chance() < 0.07
        self.tally.tool_calls["error" if failed else "ok"] += 1
        result = self.texts.blob(1_200)
        return ToolReceiptRecorded(
            tool_call_id=call.id,
            attempt=call.attempt,
            status="ERROR" if failed else "OK",
            receipt_id=f"{call.id}/r{call.attempt}",
            exit_code=1 if failed else 0,
            started_at=self.now - 400_000,
            ended_at=self.now,
            result_digest=result.digest,
            result=result,
        )

    def late_receipt(self, call: Call) -> Steps:
        """The result of a call that the end of the session did not wait for."""
        self.tally.tool_calls["open"] -= 1
        yield self._receipt(call)

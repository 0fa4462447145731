"""What approvers said to tool calls: an automatic one decides as a policy does, a person answers a request."""

from __future__ import annotations

from dalsegno.importers.builder import Source
from dalsegno.importers.inspect_ai.calls import Call, Calls
from dalsegno.importers.inspect_ai.record import Native
from dalsegno.importers.inspect_ai.stages import HARNESS
from dalsegno.importers.payload import clean_text, json_bytes
from dalsegno.model.events import ApprovalDenied, ApprovalGranted, ApprovalRequested, Blob, PolicyEvaluated
from dalsegno.model.records import Actor

_HUMAN = "human"
_POLICY = {
    "approve": "ALLOW",
    "modify": "MODIFY",
    "reject": "DENY",
    "terminate": "DENY",
    "escalate": "REQUIRE_APPROVAL",
}
_GRANTS = ("approve", "modify")


class Approvals:
    """The approvals of one sample."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._blobs = calls.builder.blobs

    def approve(self, native: Native, source: Source, stage_id: str | None) -> bool:
        """Map an approval; False where it is none of a call that is still to be decided."""
        target, decision = native.data.get("call"), str(native.data.get("decision"))
        if native.data.get("stage", "call") != "call" or not isinstance(target, dict) or decision not in _POLICY:
            return False
        native_id = str(target.get("id"))
        call = self._calls.open_call(native_id)
        if call is None or not call.undecided:
            if call is not None and not call.tool.done:
                return False
            name, arguments = str(target.get("function")), target.get("arguments")
            call = self._calls.request(native_id, name, arguments, source, stage_id)
        native.take_each("call", "stage", "decision")
        approver = str(native.take("approver", "unknown"))
        if approver.rsplit("/", 1)[-1] == _HUMAN and decision != "escalate":
            self._answered(call, native, source, decision, approver)
        else:
            self._evaluated(call, native, source, decision, approver)
        if call.begun is not None:
            self._calls.start(call, source)
        return True

    def _evaluated(self, call: Call, native: Native, source: Source, decision: str, approver: str) -> None:
        tools, tool = self._calls.tools, call.tool
        decision_id = self._calls.builder.number(f"{tool.id}/d")
        modified = self._modified(native, decision)
        explanation = native.take_text("explanation")
        event = PolicyEvaluated(
            decision_id=decision_id,
            subject="TOOL_CALL",
            subject_id=tool.id,
            decision=_POLICY[decision],  # type: ignore[arg-type]
            engine=clean_text(f"inspect_ai approver {approver}"),
            explanation=None if explanation is None else clean_text(explanation),
            input_digest=tool.arguments_digest,
            modified=modified,
        )
        tools.add(tool, event, source, Actor("POLICY", clean_text(approver)))
        if decision == "escalate":
            call.pending_decision = decision_id
        elif decision in _GRANTS:
            tool.arguments_digest = tool.arguments_digest if modified is None else modified.digest
            tools.let_run(tool, source, "POLICY_ALLOW", decision_id=decision_id)
        else:
            tools.reject(tool, source, "POLICY_DENY", explanation, decision_id)

    def _answered(self, call: Call, native: Native, source: Source, decision: str, approver: str) -> None:
        """That a person was asked follows from the answer; when, the log does not say."""
        tools, tool = self._calls.tools, call.tool
        approval_id = self._calls.builder.number(f"{tool.id}/a")
        view = native.take("view")
        explanation = native.take_text("explanation")
        text = None if explanation is None else clean_text(explanation)
        asked = ApprovalRequested(
            approval_id=approval_id,
            subject="TOOL_CALL",
            subject_id=tool.id,
            decision_id=call.pending_decision,
            arguments_digest=tool.arguments_digest,
            view=None if view is None else self._blobs.of_json(self._calls.resolver.value(view)),
        )
        tools.add(tool, asked, source, HARNESS, synthesized=True)
        person = Actor("USER", clean_text(approver))
        if decision in _GRANTS:
            modified = self._modified(native, decision)
            granted = ApprovalGranted(
                approval_id=approval_id,
                arguments_digest=tool.arguments_digest,
                explanation=text,
                modified_arguments=modified,
            )
            tools.add(tool, granted, source, person)
            tool.arguments_digest = tool.arguments_digest if modified is None else modified.digest
            tools.let_run(tool, source, "APPROVAL", approval_id=approval_id)
            return
        denied = ApprovalDenied(
            approval_id=approval_id,
            effect="CONTINUE" if decision == "reject" else "TERMINATE_SESSION",
            rejection_source="USER",
            explanation=text,
        )
        tools.add(tool, denied, source, person)
        tools.reject(tool, source, "APPROVAL_DENIED", explanation, approval_id)

    def _modified(self, native: Native, decision: str) -> Blob | None:
        if decision != "modify":
            return None
        arguments = native.take_object("modified").get("arguments")
        if arguments is None:
            return None
        return self._blobs.of_bytes(json_bytes(self._calls.resolver.value(arguments)), "application/json")

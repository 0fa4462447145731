"""Sessions with tool calls to whom this and that happened, for the tests of policies on history."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dalsegno.model.records import Event
from dalsegno.orchestration.documents import Policy, PolicyRule
from dalsegno.orchestration.policy_history import RecordedCall, calls_of
from dalsegno.testing.builder import blob
from observed_lab import Observed


def rule(id: str, decision: Any, when: str = "true", **more: Any) -> PolicyRule:
    return PolicyRule(id=id, decision=decision, when=when, **more)


def by_tool(**decisions: Any) -> Policy:
    """One rule a tool."""
    return Policy(rules=[rule(tool, decision, f'call.tool == "{tool}"') for tool, decision in decisions.items()])


class Calls(Observed):
    """A session of profile OBSERVED, call by call."""

    def add(self, type_: str, **fields: Any) -> Calls:
        self.builder.append(type_, **fields)
        return self

    def asked(self, id: str, tool: str = "shell", arguments: Any = None, **fields: Any) -> Calls:
        raw = arguments if isinstance(arguments, bytes) else json.dumps(arguments or {}).encode()
        content = blob(raw, "application/json")
        return self.add("ToolCallRequested", **{"tool_call_id": id, "name": tool, "arguments": content, **fields})

    def evaluated(self, id: str, decision: str, **fields: Any) -> Calls:
        named = {"decision_id": f"{id}/d1", "subject": "TOOL_CALL", "subject_id": id}
        return self.add("PolicyEvaluated", **named, decision=decision, **fields)

    def asks(self, id: str) -> Calls:
        return self.add("ApprovalRequested", approval_id=f"{id}/a1", subject="TOOL_CALL", subject_id=id)

    def rejected(self, id: str, basis: str) -> Calls:
        return self.add("ToolCallRejected", tool_call_id=id, basis=basis)

    def ran(self, id: str, basis: str = "POLICY_ALLOW", **fields: Any) -> Calls:
        return self.add("ToolCallAuthorized", tool_call_id=id, basis=basis, **fields).add(
            "ToolCallStarted", tool_call_id=id
        )

    def approved(self, id: str) -> Calls:
        self.asks(id).add("ApprovalGranted", approval_id=f"{id}/a1", scope="ONCE")
        return self.ran(id, "APPROVAL", approval_id=f"{id}/a1")

    def fork(self, suffix: str) -> Calls:
        return Calls(builder=self.builder.fork(len(self.records), suffix))

    @property
    def history(self) -> list[Event]:
        """Of a fork, behind that of its parent. No event may break a rule."""
        assert [verdict.violations for verdict in self.builder.verdicts if verdict.violations] == []
        parent = self.builder.parent
        return [*([] if parent is None else parent.events), *self.builder.events]

    @property
    def calls(self) -> list[RecordedCall]:
        return list(calls_in(self.builder.session_id, self.history))


def calls_in(session_id: str, history: list[Event]) -> Iterator[RecordedCall]:
    """With the contents that stand in events."""
    return calls_of(session_id, history, lambda content: content["inline"])

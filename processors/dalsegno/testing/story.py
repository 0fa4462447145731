"""One session that a person can follow from its goal to its verdict: what the demo tells, and example data.

An agent is asked to repair an export. It looks, finds why it fails, and wants to change rows of a database; the policy
asks for somebody's approval, Maria grants it, the change runs, and the checks pass.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar

from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.events import (
    ApprovalGranted,
    ApprovalRequested,
    ContextPackBuilt,
    InferenceCompleted,
    InferenceRequested,
    Label,
    MessageReceived,
    Obligation,
    PackItem,
    Part,
    PolicyEvaluated,
    RequestedCall,
    SessionCompleted,
    SessionCreated,
    StageCompleted,
    StageScheduled,
    StageStarted,
    ToolCallAuthorized,
    ToolCallRequested,
    ToolCallStarted,
    ToolReceiptRecorded,
    TransitionTaken,
    TurnCompleted,
    TurnStarted,
    Usage,
    ValidationDecided,
    ValidationRequested,
)
from dalsegno.testing.script import POLICY_DIGEST, TEMPLATE_DIGEST, TOOLS_DIGEST, VALIDATORS_DIGEST, Script, Steps
from dalsegno.testing.script_writer import ScriptWriter, WorkloadRecord
from dalsegno.testing.texts import blob_of

SESSION_ID = "story-export-fix"
GOAL = "The nightly export stops at customers without a country. Find out why, and repair it."
START_MICROS = 1_767_254_400_000_000
"""2026-01-01 08:00 UTC."""
_PROVIDER, _MODEL = "anthropic", "sonnet-9"
_JSON = "application/json"


class Story(Script):
    """The session; ``steps`` are its events, always the same."""

    actors: ClassVar = {
        "ValidationRequested": ("VALIDATOR", "export-check"),
        "ValidationDecided": ("VALIDATOR", "export-check"),
        "ToolReceiptRecorded": ("TOOL", "database-proxy"),
    }

    def __init__(self, session_id: str = SESSION_ID) -> None:
        super().__init__(session_id, Random("story"), profile="STRICT", start=START_MICROS)

    def steps(self) -> Steps:
        goal = blob_of(GOAL.encode())
        yield SessionCreated(
            profile="STRICT", workflow_name="repair", goal=goal, labels=[Label(key="team", value="data")]
        )
        yield from self.start()
        yield MessageReceived(message_id="m1", role="USER", channel="chat", parts=[Part(kind="TEXT", text=GOAL)])
        yield from self._stage_begins(None, "investigate")
        yield from self._asked(
            "The export reads the country of each row. I search for rows without one.",
            "query_database",
            '{"sql":"SELECT count(*) FROM customers WHERE country IS NULL"}',
            1_850,
        )
        yield from self._allowed("READ")
        yield from self._run("17 rows", 1)
        yield from self._stage_ends("17 customers have no country; the export expects one.")
        yield from self._stage_begins("investigate", "repair")
        yield from self._asked(
            "These 17 came from the old import, which knew one country only. I set it.",
            "change_database",
            '{"sql":"UPDATE customers SET country = \'NZ\' WHERE country IS NULL"}',
            2_420,
        )
        yield from self._approved()
        yield from self._run("17 rows changed", 3)
        yield from self._stage_ends("The 17 rows have a country again.")
        yield from self._judged()
        yield SessionCompleted(outcome="SUCCESS", result=blob_of(b"The export runs again; 17 rows were corrected."))

    def _stage_begins(self, before: str | None, name: str) -> Steps:
        transition = f"{before or 'start'}-{name}"
        yield TransitionTaken(
            transition_id=transition,
            from_stage=before,
            to_stage=name,
            guard_result=True,
            candidates=("investigate", "repair"),
        )
        self.stage_id = f"{name}.1"
        yield StageScheduled(
            stage_id=self.stage_id, stage_name=name, transition_id=transition, inputs_digest=self.digest()
        )
        yield StageStarted(stage_id=self.stage_id, worker="agent-host-1")
        self.turn_id = f"{name}.1/t1"
        self.call_id = f"{self.turn_id}/c0"
        yield TurnStarted(turn_id=self.turn_id, agent="repairer")

    def _stage_ends(self, outputs: str) -> Steps:
        assert self.stage_id is not None
        assert self.turn_id is not None
        yield TurnCompleted(turn_id=self.turn_id)
        self.turn_id = None
        content = blob_of(outputs.encode())
        yield StageCompleted(stage_id=self.stage_id, outputs_digest=content.digest, outputs=content)
        self.stage_id = None

    def _asked(self, says: str, tool: str, arguments: str, tokens: int) -> Steps:
        """The model is asked, and asks for one call."""
        inference_id, request = f"{self.turn_id}/i", self.texts.digest()
        self.arguments = blob_of(arguments.encode(), _JSON)
        first = self.stage_id == "investigate.1"
        item = "m1" if first else "investigate.1/t1/c0"
        yield ContextPackBuilt(
            pack_id="p1" if first else "p2",
            base_pack_id=None if first else "p1",
            builder_version="1",
            token_total=tokens,
            token_budget=128_000,
            tokenizer="bytes/4",
            template_digest=TEMPLATE_DIGEST,
            tools_digest=TOOLS_DIGEST,
            request_digest=request,
            added=[
                PackItem(
                    item_id=item,
                    kind="MESSAGE" if first else "TOOL_RESULT",
                    mode="FULL",
                    position=0 if first else 1,
                    digest=self.texts.digest(),
                )
            ],
        )
        yield InferenceRequested(
            inference_id=inference_id,
            purpose="AGENT",
            provider=_PROVIDER,
            model=_MODEL,
            pack_id="p1" if first else "p2",
            request_digest=request,
            tools_digest=TOOLS_DIGEST,
        )
        self.tally.used(f"{_PROVIDER}/{_MODEL}", {"inferences": 1, "input": tokens, "output": 90})
        yield InferenceCompleted(
            inference_id=inference_id,
            usage=Usage(input=tokens, output=90),
            model=_MODEL,
            output_digest=self.texts.digest(),
            finish_reasons=("tool_calls",),
            tool_calls=[RequestedCall(tool_call_id=self.call_id, name=tool, arguments_digest=self.arguments.digest)],
            output=[
                Part(kind="TEXT", text=says),
                Part(kind="TOOL_CALL", call_id=self.call_id, name=tool, blob=self.arguments),
            ],
        )
        yield ToolCallRequested(
            tool_call_id=self.call_id,
            name=tool,
            effect="READ" if first else "WRITE",
            risk="LOW" if first else "HIGH",
            inference_id=inference_id,
            arguments_digest=self.arguments.digest,
            arguments=self.arguments,
        )

    def _decision(self, decision: str, rule: str, obligation: Obligation | None = None) -> PolicyEvaluated:
        return PolicyEvaluated(
            decision_id=f"{self.call_id}/d1",
            subject="TOOL_CALL",
            subject_id=self.call_id,
            decision=decision,  # type: ignore[arg-type]
            engine="rules/1",
            policy_digest=POLICY_DIGEST,
            input_digest=self.arguments.digest,
            rule_ids=(rule,),
            obligation=obligation,
        )

    def _allowed(self, effect: str) -> Steps:
        yield self._decision("ALLOW", f"allow-{effect.lower()}")
        yield ToolCallAuthorized(
            tool_call_id=self.call_id,
            basis="POLICY_ALLOW",
            decision_id=f"{self.call_id}/d1",
            effective_arguments_digest=self.arguments.digest,
        )

    def _approved(self) -> Steps:
        approval_id = f"{self.call_id}/a1"
        asks = Obligation(ttl_ms=86_400_000, on_expiry="DENY", to=[["data-owners"]])
        yield self._decision("REQUIRE_APPROVAL", "ask-before-writes", asks)
        yield ApprovalRequested(
            approval_id=approval_id,
            subject="TOOL_CALL",
            subject_id=self.call_id,
            decision_id=f"{self.call_id}/d1",
            arguments_digest=self.arguments.digest,
            ttl_ms=86_400_000,
            on_expiry="DENY",
            addressed_to=("data-owners",),
            options=("grant", "deny"),
            view=self.arguments,
        )
        self.now += 4 * 60 * 1_000_000
        self.tally.approvals["granted"] += 1
        why = "Checked with sales: all 17 are from New Zealand."
        yield ApprovalGranted(approval_id=approval_id, arguments_digest=self.arguments.digest, explanation=why)
        yield ToolCallAuthorized(
            tool_call_id=self.call_id,
            basis="APPROVAL",
            approval_id=approval_id,
            effective_arguments_digest=self.arguments.digest,
        )

    def _run(self, result: str, seconds: int) -> Steps:
        yield ToolCallStarted(tool_call_id=self.call_id, executor="database-proxy")
        began = self.now
        self.now += seconds * 1_000_000
        content = blob_of(result.encode())
        self.tally.tool_calls["ok"] += 1
        yield ToolReceiptRecorded(
            tool_call_id=self.call_id,
            status="OK",
            receipt_id=f"{self.call_id}/r1",
            started_at=began,
            ended_at=self.now,
            result_digest=content.digest,
            result=content,
        )

    def _judged(self) -> Steps:
        yield ValidationRequested(
            validation_id="export-check/v1",
            validator="export-check",
            validator_version="2",
            target_id="repair.1/t1/c0",
            target_digest=self.texts.digest(),
            validator_digest=VALIDATORS_DIGEST,
            criteria_digest=self.texts.digest(),
        )
        self.tally.verdicts["PASS"] += 1
        evidence = [blob_of(b"export of 48 210 customers: 0 errors")]
        yield ValidationDecided(
            validation_id="export-check/v1", basis="PURE", verdict="PASS", score="1.0", evidence=evidence
        )


def story_records(session_id: str = SESSION_ID, schemas: SchemaSet | None = None) -> list[WorkloadRecord]:
    """The story's records, in order; under another session id the same events."""
    return ScriptWriter(schemas or SchemaSet.load()).write_all(Story(session_id))

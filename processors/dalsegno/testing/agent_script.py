"""A made-up agent's session: stages of turns, model calls, parallel tools, approvals, failures, crashes, a verdict."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import NamedTuple, Protocol

from dalsegno.model.events import (
    CancelRequested,
    CheckpointMarked,
    ContextItemRetrieved,
    ErrorRecorded,
    FeedbackRecorded,
    Finding,
    InputProvided,
    InputRequested,
    LimitReached,
    MessageReceived,
    NewEvent,
    NoteRecorded,
    Part,
    Ref,
    RetrievalRequested,
    SessionCancelled,
    SessionCompleted,
    SessionFailed,
    SessionPaused,
    SessionResumed,
    StageCompleted,
    StageFailed,
    StageScheduled,
    StageStarted,
    TransitionTaken,
    TurnAborted,
    TurnCompleted,
    TurnStarted,
    ValidationDecided,
    ValidationRequested,
    VerdictReported,
)
from dalsegno.testing.call_script import CallScript
from dalsegno.testing.model_script import Call
from dalsegno.testing.script import VALIDATORS_DIGEST, Child, Script, Steps

STAGES = ("plan", "act", "review")
_NO_WORK = 8
"""A session of fewer events is given up before anything was done."""
_VERDICTS = (("PASS", 0.7), ("REJECT", 0.2), ("INCONCLUSIVE", 0.1))


class Spawner(Protocol):
    """Gives a child session's script, or None where the workload has no session left to give."""

    def __call__(self, parent: Script) -> Script | None: ...


class Plan(NamedTuple):
    """What a session is going to be. ``events`` is about how many it has."""

    events: int
    profile: str
    parent: Script | None = None


class AgentScript(CallScript):
    """One session of about ``plan.events`` events."""

    def __init__(self, session_id: str, rng: Random, plan: Plan, *, start: int, spawn: Spawner) -> None:
        super().__init__(session_id, rng, profile=plan.profile, start=start)
        self._plan = plan
        self.spawn = lambda: spawn(self)
        self._attempts = dict.fromkeys(STAGES, 0)
        self._stage_before: str | None = None
        self._validations = 0
        self._inputs = 0

    def steps(self) -> Steps:
        yield from self.create("agent-loop", self._plan.parent)
        yield from self.message()
        if self._plan.events < _NO_WORK:
            yield from self.finish()
            return
        whole = self._plan.events - 6
        stages = STAGES if whole > 40 else STAGES[1:2]
        share = max(4, whole // len(stages))
        for stage in stages:
            begin = self.seq
            while self.seq - begin < share - 6 or self.seq == begin:
                # Long sessions come back to a stage; 400 events in one attempt is much.
                yield from self.stage(stage, min(400, share - (self.seq - begin)))
        if whole > 12:
            yield from self.validation()
        yield from self.finish()

    # --- frames ----------------------------------------------------------------------------------------------------

    def stage(self, name: str, events: int) -> Steps:
        self._attempts[name] += 1
        attempt = self._attempts[name]
        stage_id = f"{name}.{attempt}"
        transition_id = f"{self._stage_before or 'start'}-{name}"
        if self.strict:
            yield TransitionTaken(
                transition_id=transition_id,
                from_stage=self._stage_before,
                to_stage=name,
                guard_result=True,
                candidates=STAGES,
            )
        self.stage_id = stage_id
        self.tally.stages["begun"] += 1
        yield StageScheduled(
            stage_id=stage_id,
            stage_name=name,
            attempt=attempt,
            transition_id=transition_id,
            inputs_digest=self.digest(),
        )
        yield StageStarted(stage_id=stage_id, worker="w-1")
        self.turns = 0
        begin = self.seq
        while self.turns == 0 or self.seq - begin < events - 3:
            yield from self.turn()
        if self.chance() < 0.04:
            self.tally.stages["failed"] += 1
            yield StageFailed(stage_id=stage_id, error=self.error("StageError"))
        else:
            self.tally.stages["completed"] += 1
            yield StageCompleted(stage_id=stage_id, outputs_digest=self.digest(), outputs=self.texts.blob(120))
        self.stage_id = None
        self._stage_before = name

    def turn(self) -> Steps:
        yield from self.begin_turn()
        chance = self.chance()
        if chance < 0.1:
            yield from self.retrieval()
        elif chance < 0.15:
            yield from self.compression()
        elif chance < 0.19:
            yield from self.human_input()
        elif chance < 0.21:
            yield from self.limit()
        elif chance < 0.4:
            yield from self.message()
        elif chance < 0.43:
            yield NoteRecorded(kind="harness.stats", data=self.texts.blob(200, "application/json"))
        elif chance < 0.44:
            yield ErrorRecorded(error=self.error("TelemetryError"))
        yield from self.agent_inference()
        yield from self.run_calls()
        if self.chance() < 0.02:
            self.tally.turns["aborted"] += 1
            yield TurnAborted(turn_id=self.turn_id or "", reason="INTERRUPTED")
        else:
            self.tally.turns["completed"] += 1
            yield TurnCompleted(turn_id=self.turn_id or "")
        self.turn_id = None
        if self.chance() < 0.03:
            yield CheckpointMarked(checkpoint_id=f"k{self.seq}", kind="STABLE")

    def begin_turn(self) -> Steps:
        self.turns += 1
        self.turn_id = f"{self.stage_id}/t{self.turns}"
        self.tally.turns["begun"] += 1
        yield TurnStarted(turn_id=self.turn_id, agent="coder")

    # --- what a turn may hold beside model and tools ---------------------------------------------------------------

    def message(self) -> Steps:
        message_id = f"m{self.seq + 1}"
        self.items.append((message_id, "MESSAGE"))
        part = Part(kind="TEXT", text=self.texts.text(220))
        yield MessageReceived(message_id=message_id, role="USER", channel="chat", parts=[part])

    def retrieval(self) -> Steps:
        item_id = f"{self.turn_id}/r"
        self.open["RETRIEVAL", item_id] = "KEEP_WAITING"
        yield RetrievalRequested(item_id=item_id, kind="FILE", query=self.texts.blob(60))
        if self.chance() < 0.05:
            yield from self.crash()
        del self.open["RETRIEVAL", item_id]
        self.items.append((item_id, "FILE"))
        yield ContextItemRetrieved(
            item_id=item_id, source_uri="file:///repo/src/parser.py", content=self.texts.blob(700)
        )

    def human_input(self) -> Steps:
        self._inputs += 1
        request_id = f"{self.turn_id}/in{self._inputs}"
        self.open["INPUT", request_id] = "KEEP_WAITING"
        yield InputRequested(request_id=request_id, ttl_ms=3_600_000, on_expiry="DECLINED", prompt=self.texts.blob(120))
        if self.chance() < 0.2:
            yield from self.crash()
        self.wait(120)
        del self.open["INPUT", request_id]
        yield InputProvided(request_id=request_id, outcome="ACCEPTED", content=self.texts.blob(80))

    def limit(self) -> Steps:
        yield LimitReached(limit="TURNS", action="PAUSE", limit_value="50", observed="50")
        yield SessionPaused(by_limit=True, reason="turn limit")
        self.wait(600)
        yield SessionResumed(by_limit=True, reason="limit raised by operator")

    # --- verdict and end -------------------------------------------------------------------------------------------

    def validation(self) -> Steps:
        self._validations += 1
        validation_id = f"tests/v{self._validations}"
        self.open["VALIDATION", validation_id] = "KEEP_WAITING"
        yield ValidationRequested(
            validation_id=validation_id,
            validator="tests",
            validator_version="3",
            target_id=self.last_inference,
            target_digest=self.digest(),
            validator_digest=VALIDATORS_DIGEST,
            criteria_digest=self.digest(),
        )
        chance, verdict = self.chance(), pick(_VERDICTS, self.chance())
        basis, inference_id = "PURE", None
        if chance < 0.4:
            basis, inference_id = "INFERENCE", f"{validation_id}/i"
            yield from self.inference(inference_id, "VALIDATION", subject_id=validation_id)
        elif chance < 0.6:
            basis = "REPORTED"
            evidence = [self.texts.blob(300)]
            yield VerdictReported(validation_id=validation_id, verdict=verdict, label="ci", evidence=evidence)  # type: ignore[arg-type]
        if self.chance() < 0.03:
            yield from self.crash()
        del self.open["VALIDATION", validation_id]
        self.tally.verdicts[verdict] += 1
        findings = [Finding(code="T1", severity="error", message=self.texts.text(90))] if verdict == "REJECT" else []
        yield ValidationDecided(
            validation_id=validation_id,
            basis=basis,  # type: ignore[arg-type]
            verdict=verdict,  # type: ignore[arg-type]
            score="1.0" if verdict == "PASS" else "0.25",
            inference_id=inference_id,
            findings=findings,
        )

    def finish(self) -> Steps:
        chance = self.chance()
        idle = self._plan.events < _NO_WORK
        if chance < 0.05 and self._plan.parent is None and not idle:
            yield from self._left_waiting()
            return
        late: Call | None = None
        if chance < 0.08 and not idle:
            late = yield from self._one_left_running()
        open_ops = [id_ for _, id_ in self.open]
        if chance < 0.11:
            self.outcome = "FAILED"
            yield SessionFailed(open_ops=open_ops, error=self.error("HarnessError"))
        elif chance < 0.15:
            self.outcome = "CANCELLED"
            yield CancelRequested(requested_by="ops", reason="no longer needed")
            yield SessionCancelled(open_ops=open_ops, requested_by="ops", reason="no longer needed")
        else:
            self.outcome = "PARTIAL" if chance < 0.25 else "GIVEN_UP" if chance < 0.3 else "SUCCESS"
            yield SessionCompleted(outcome=self.outcome, open_ops=open_ops, result=self.texts.blob(400))  # type: ignore[arg-type]
        self.tally.outcomes[self.outcome if self.outcome in ("FAILED", "CANCELLED") else "COMPLETED"] += 1
        if late is not None and self.chance() < 0.6:
            yield from self.late_receipt(late)
        if self.chance() < 0.1:
            yield FeedbackRecorded(kind="rating", value="4", target=Ref(seq=1), comment=self.texts.blob(60))

    def _left_waiting(self) -> Steps:
        """The session stands where many do: a call waits for somebody's approval."""
        yield from self._another_turn()
        yield from self.inference(f"{self.turn_id}/i", "AGENT", names=("deploy",))
        yield from self.ask_for_approval(f"{self.turn_id}/i", "deploy")
        self.tally.outcomes["RUNNING"] += 1
        self.tally.stages["open"] += 1
        self.tally.turns["open"] += 1

    def _one_left_running(self) -> Generator[NewEvent | Child, None, Call]:
        """A call that has no result when the session ends."""
        yield from self._another_turn()
        yield from self.inference(f"{self.turn_id}/i", "AGENT", names=("build",))
        call = yield from self.start_unfinished(f"{self.turn_id}/i", "build")
        self.tally.stages["open"] += 1
        self.tally.turns["open"] += 1
        return call

    def _another_turn(self) -> Steps:
        self._attempts["act"] += 1
        self.stage_id = f"act.{self._attempts['act']}"
        self.tally.stages["begun"] += 1
        if self.strict:
            yield TransitionTaken(transition_id="again-act", to_stage="act", guard_result=True, candidates=STAGES)
        yield StageScheduled(
            stage_id=self.stage_id, stage_name="act", attempt=self._attempts["act"], inputs_digest=self.digest()
        )
        yield StageStarted(stage_id=self.stage_id, worker="w-1")
        self.turns = 0
        yield from self.begin_turn()


def pick(table: tuple[tuple[str, float], ...], chance: float) -> str:
    """The entry in whose part of 0..1 the chance falls; parts add up to 1."""
    for name, part in table:
        chance -= part
        if chance < 0:
            return name
    return table[-1][0]

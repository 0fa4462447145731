"""What decisions say, beyond that they are made: what they cite, why something ended, what was asked."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest

from dalsegno.errors import NotReconstructable
from dalsegno.orchestration.decider import Due, payload
from dalsegno.orchestration.documents import PolicyRule, Question, Retrieval, SessionLimits, StageLimits, Transition
from decider_lab import APPROVE, NUMBER, Scene, stage

T1 = "work.1/t1"
C0 = f"{T1}/c0"


def inline(blob: dict[str, Any]) -> Any:
    return json.loads(blob["inline"])


def test_a_stage_says_what_it_builds_on() -> None:
    scene = Scene([stage("plan"), stage("work", depends_on=["plan"])])
    scene.answer("the plan")
    said = f'{{"plan":"{sha256(b"the plan").hexdigest()}"}}'
    assert scene.body("StageScheduled")["inputs_digest"] == sha256(said.encode()).digest()
    assert scene.body("StageScheduled", nth=0)["inputs_digest"] == sha256(b"{}").digest()


def test_a_transition_names_its_guard_if_it_has_one() -> None:
    ways = [Transition(id="in", to="work"), Transition(id="again", source="work", to="work", when="session.turns < 2")]
    scene = Scene(transitions=ways)
    scene.answer("done")
    first, second = scene.body("TransitionTaken", nth=0), scene.body("TransitionTaken")
    assert (first["guard_id"], first["guard_result"], first["guard_inputs"]) == (None, None, [])
    assert (second["guard_id"], second["guard_result"]) == ("again", True)
    assert {each["name"] for each in second["guard_inputs"]} == {"stage", "session", "labels", "stages"}
    assert scene.body("StageScheduled")["transition_id"] == "again"


def test_a_guard_sees_the_verdicts_of_the_last_answer() -> None:
    ways = [
        Transition(id="in", to="work"),
        Transition(id="pass", source="work", to="more", when='stage.verdicts.exists(each, each.verdict == "PASS")'),
        Transition(id="mend", source="work", to="mend", when='stage.verdicts.exists(each, each.validator == "tests")'),
    ]
    stages = [stage(validators=["tests"], limits=StageLimits(turns=1)), stage("more"), stage("mend")]
    for verdict, to in (("PASS", "more"), ("REJECT", "mend")):
        scene = Scene(stages, transitions=ways)
        scene.answer("done")
        scene.report(f"{T1}/v.tests", verdict)
        assert scene.body("TransitionTaken")["to_stage"] == to


def test_a_call_says_what_was_asked_for() -> None:
    scene = Scene()
    scene.answer("", ("write", b'{ "n": 1 }', "call_7"), ("nowhere",))
    first, second = scene.body("ToolCallRequested", nth=0), scene.body("ToolCallRequested")
    assert (first["native_call_id"], first["effect"], first["risk"], first["tool_version"]) == (
        "call_7", "WRITE", "HIGH", "1",
    )  # fmt: skip
    assert first["arguments"]["inline"] == b'{ "n": 1 }', "the bytes as they were received"
    assert (second["native_call_id"], second["effect"], second["tool_version"]) == (None, "UNKNOWN", None)


def test_who_is_asked_for_leave_sees_the_call_as_it_would_run() -> None:
    rules = [PolicyRule(id="seven", decision="MODIFY", merge={"n": 7}),
             PolicyRule(id="ask", decision="REQUIRE_APPROVAL", explanation="it writes")]  # fmt: skip
    scene = Scene(policy=rules)
    scene.answer("", ("write", {"n": 1}))
    asked = scene.body("ApprovalRequested")
    assert inline(asked["view"]) == {"tool": "write", "arguments": {"n": 7}, "why": "it writes"}
    assert asked["arguments_digest"] == sha256(b'{"n":7}').digest()
    assert (asked["decision_id"], asked["escalated_from"], asked["ttl_ms"]) == (f"{C0}/d1", None, None)
    evaluated = scene.body("PolicyEvaluated")
    assert evaluated["rule_ids"] == ["seven", "ask"]
    assert evaluated["policy_digest"] == scene.world.configuration.digests["POLICY"]


def test_questions_and_retrievals_say_what_is_wanted() -> None:
    asks = [Question(id="n", prompt="how many?", schema=NUMBER, ttl_seconds=5), Question(id="why", prompt="why?")]
    wanted = [Retrieval(id="kb", kind="FILE", query={"path": "x"}), Retrieval(id="all")]
    scene = Scene([stage(retrieve=wanted, ask=asks)])
    file, everything = scene.body("RetrievalRequested", nth=0), scene.body("RetrievalRequested")
    assert (file["kind"], inline(file["query"])) == ("FILE", {"path": "x"})
    assert (everything["kind"], everything["query"]) == ("RETRIEVED", None)
    number, why = scene.body("InputRequested", nth=0), scene.body("InputRequested")
    assert (number["prompt"]["inline"], inline(number["schema"]), number["ttl_ms"]) == (b"how many?", NUMBER, 5000)
    assert (why["schema"], why["ttl_ms"]) == (None, None)


@pytest.mark.parametrize(
    ("effect", "answer", "message"),
    [
        ("deny", "APPROVAL_DENIED", "an approver denied it"),
        ("expire", "APPROVAL_EXPIRED", "nobody answered in time"),
        ("withdraw", "APPROVAL_DENIED", "nobody is asked any more"),
    ],
)
def test_a_rejection_cites_the_approval(effect: str, answer: str, message: str) -> None:
    scene = Scene(policy=[APPROVE])
    scene.answer("", ("write", {"n": 1}))
    approval = f"{C0}/a1"
    if effect == "deny":
        scene.deny(approval)
    elif effect == "expire":
        scene.expire(approval)
    else:
        scene.recover({("APPROVAL", approval): "ABANDONED"})
    body = scene.body("ToolCallRejected")
    assert (body["basis"], body["cites"], body["message"]) == (answer, approval, message)


def test_why_a_stage_failed() -> None:
    def failed(scene: Scene) -> tuple[str, str]:
        error = scene.body("StageFailed")["error"]
        return error["error_class"], error["message"]

    limited = Scene(limits=SessionLimits(tokens=1))
    limited.answer("done")
    assert failed(limited) == ("limit", "the limit TOKENS of the session")
    denied = Scene(policy=[APPROVE])
    denied.answer("", ("write", {"n": 1}))
    denied.deny(f"{C0}/a1", "TERMINATE_SESSION")
    assert failed(denied) == ("denied", "an approver ended the session")
    assert denied.body("SessionFailed")["error"]["message"] == "an approver ended the session"
    rejected = Scene([stage(validators=["said", "tests"], limits=StageLimits(turns=1))])
    rejected.answer("done")
    rejected.report(f"{T1}/v.tests", "INCONCLUSIVE")
    assert failed(rejected) == ("rejected", "not passed by tests after 1 turns")


def test_a_cancel_says_who_and_why() -> None:
    scene = Scene()
    scene.cancel("enough")
    assert scene.body("StageCancelled")["reason"] == "enough"
    body = scene.body("SessionCancelled")
    assert (body["requested_by"], body["reason"]) == ("maria", "enough")


def test_a_verdict_cites_what_it_rests_on() -> None:
    scene = Scene([stage(validators=["judged", "tests"])])
    scene.answer("done")
    v = f"{T1}/v"
    requested = scene.body("ValidationRequested")
    assert (requested["target_id"], requested["target_digest"]) == (T1, sha256(b"done").digest())
    scene.report(f"{v}.tests", "PASS", score="0.5", label="fine", evidence=(b"log",))
    body = scene.body("ValidationDecided")
    assert (body["basis"], body["score"], body["label"], body["inference_id"]) == ("REPORTED", "0.5", "fine", None)
    assert [each["inline"] for each in body["evidence"]] == [b"log"]
    scene.judge(f"{v}.judged")
    body = scene.body("ValidationDecided")
    assert (body["basis"], body["inference_id"], body["evidence"]) == ("INFERENCE", f"{v}.judged/i", [])


def test_what_is_no_decision_has_no_payload() -> None:
    with pytest.raises(NotReconstructable, match="SessionPaused is no decision"):
        payload(Scene().world, Due("SessionPaused", ""))
    with pytest.raises(NotReconstructable, match="no answer of this turn asks for the call"):
        payload(Scene().world, Due("ToolCallRequested", C0))

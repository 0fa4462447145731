"""What the decider makes of tool calls: policy, approvals, receipts, failures, retries."""

from __future__ import annotations

import json

import pytest

from dalsegno import events
from dalsegno.errors import InvalidEvent
from dalsegno.harness import facts
from dalsegno.orchestration.documents import Obligation, PolicyRule, SessionLimits, StageLimits
from dalsegno.orchestration.ports import ToolFailed
from dalsegno.orchestration.work import Kind, Work, outstanding
from dalsegno.projections.decider.rows import GRANT, ITEM
from decider_lab import APPROVE, Scene, check_counted, check_log, stage

T1 = "work.1/t1"
C0, C1, C2 = f"{T1}/c0", f"{T1}/c1", f"{T1}/c2"
NEXT_TURN = ["TurnCompleted work.1/t1", "TurnStarted work.1/t2", "ContextPackBuilt work.1/t2/p",
             "InferenceRequested work.1/t2/i"]  # fmt: skip
WRITE = ("write", {"n": 1})


def allowed(call: str) -> list[str]:
    return [f"ToolCallRequested {call}", f"PolicyEvaluated {call}/d1", f"ToolCallAuthorized {call}"]


def asked(call: str) -> list[str]:
    return [f"ToolCallRequested {call}", f"PolicyEvaluated {call}/d1", f"ApprovalRequested {call}/a1"]


def results(scene: Scene) -> list[str]:
    """What the model is told of its calls."""
    return [message["content"] for message in scene.said() if message["role"] == "tool"]


def test_calls_are_decided_in_their_order_and_the_turn_ends_with_the_last_result() -> None:
    scene = Scene()
    assert scene.answer("", ("look",), WRITE) == allowed(C0) + allowed(C1)
    assert scene.start(C0) + scene.start(C1) + scene.result(C1, "one") == []
    assert scene.result(C0, "nought") == NEXT_TURN
    assert results(scene) == ["nought", "one"], "in the order of the calls, not of the receipts"
    check_log(scene)


def test_many_results_stand_in_the_order_of_their_calls() -> None:
    scene = Scene()
    scene.answer("", *[("look", {"of": number}) for number in range(12)])
    for number in reversed(range(12)):
        scene.run(f"{T1}/c{number}", str(number))
    assert results(scene) == [str(number) for number in range(12)]


# case C43
def test_ids_of_providers_may_repeat() -> None:
    """The same provider's id in one answer and in the next turns."""
    scene = Scene()
    scene.answer("", ("look", {"of": 1}, "call_0"), ("look", {"of": 2}, "call_0"))
    scene.run(C0, "first")
    scene.run(C1, "second")
    scene.answer("", ("look", {"of": 3}, "call_0"))
    scene.run("work.1/t2/c0", "third")
    assert results(scene) == ["first", "second", "third"]
    ids = [message["tool_call_id"] for message in scene.said() if message["role"] == "tool"]
    assert len(set(ids)) == 3
    with pytest.raises(InvalidEvent, match="U4"):
        scene.result(C1, "second")  # a true resend


@pytest.mark.parametrize(
    ("call", "basis"),
    [
        (("nowhere",), "UNKNOWN_TOOL"),
        (("write", b"{no json"), "INVALID_ARGUMENTS"),
        (("write", b'{"n": 9223372036854775808}'), "INVALID_ARGUMENTS"),
        (("write", {"n": "one"}), "INVALID_ARGUMENTS"),
        (("write", b""), "INVALID_ARGUMENTS"),
        (("write", b"[1]"), "INVALID_ARGUMENTS"),
    ],
)
def test_what_no_tool_takes_is_rejected_before_any_policy_sees_it(call: tuple[object, ...], basis: str) -> None:
    scene = Scene()
    assert scene.answer("", call) == [f"ToolCallRequested {C0}", f"ToolCallRejected {C0}", *NEXT_TURN]
    assert scene.body("ToolCallRejected")["basis"] == basis
    assert results(scene)[0].startswith("[not run] ")


def test_a_tool_of_another_stage_is_unknown() -> None:
    scene = Scene([stage(tools=["look"])])
    scene.answer("", WRITE)
    assert "there are: look" in scene.body("ToolCallRejected")["message"]


@pytest.mark.parametrize(
    ("limits", "given"),
    [
        (StageLimits(tool_calls=1), None),
        (StageLimits(), SessionLimits(tool_calls=1)),
    ],
)
def test_calls_above_a_limit_are_rejected(limits: StageLimits, given: SessionLimits | None) -> None:
    scene = Scene([stage(limits=limits)], limits=given)
    made = scene.answer("", ("look",), ("look",), WRITE)
    assert made == [*allowed(C0), f"ToolCallRequested {C1}", f"ToolCallRejected {C1}",
                    f"ToolCallRequested {C2}", f"ToolCallRejected {C2}"]  # fmt: skip
    assert scene.body("ToolCallRejected")["basis"] == "LIMIT"


# --- policies ---------------------------------------------------------------------------------------------------------


def test_a_policy_denies() -> None:
    scene = Scene(policy=[PolicyRule(id="no", decision="DENY", when='call.effect == "WRITE"', explanation="not today")])
    scene.answer("", WRITE, ("look",))
    assert scene.body("ToolCallRejected") | {"meta": None} == {
        "meta": None, "tool_call_id": C0, "basis": "POLICY_DENY", "cites": f"{C0}/d1", "message": "not today",
    }  # fmt: skip
    scene.run(C1)
    assert results(scene)[0] == "[not run] not today"


def test_a_condition_that_cannot_be_evaluated_denies_and_says_so() -> None:
    scene = Scene(policy=[PolicyRule(id="broken", decision="ALLOW", when='call.arguments.nowhere == "x"')])
    scene.answer("", ("look",))
    assert scene.body("PolicyEvaluated")["decision"] == "DENY"
    assert "cannot be evaluated" in scene.body("PolicyEvaluated")["explanation"]


def test_a_policy_changes_arguments() -> None:
    scene = Scene(policy=[PolicyRule(id="seven", decision="MODIFY", merge={"n": 7})])
    assert scene.answer("", WRITE) == allowed(C0)
    assert scene.body("PolicyEvaluated")["decision"] == "MODIFY"
    effective = scene.body("ToolCallAuthorized")["effective_arguments_digest"]
    assert scene.contents.get(effective) == b'{"n":7}'


def test_arguments_that_a_policy_broke_do_not_run() -> None:
    scene = Scene(policy=[PolicyRule(id="worse", decision="MODIFY", merge={"n": "x"})])
    assert scene.answer("", WRITE) == [*allowed(C0)[:2], f"ToolCallRejected {C0}", *NEXT_TURN]
    body = scene.body("ToolCallRejected")
    assert (body["basis"], body["cites"]) == ("INVALID_ARGUMENTS", f"{C0}/d1")


def test_a_policy_has_a_call_simulated() -> None:
    scene = Scene(policy=[PolicyRule(id="sim", decision="SIMULATE")])
    scene.answer("", WRITE)
    assert scene.body("ToolCallAuthorized")["basis"] == "SIMULATED"
    assert scene.world.call(C0).simulate


def test_what_a_person_changed_is_simulated_where_the_policy_says_so() -> None:
    rules = [APPROVE, PolicyRule(id="sim", decision="SIMULATE")]
    rules[0] = PolicyRule(id="ask", decision="REQUIRE_APPROVAL", when="call.arguments.n < 5")
    scene = Scene(policy=rules)
    scene.answer("", WRITE)
    scene.grant(f"{C0}/a1", modified={"n": 9})
    assert scene.body("ToolCallAuthorized")["basis"] == "SIMULATED"
    assert scene.world.call(C0).simulate


# --- approvals --------------------------------------------------------------------------------------------------------


def test_a_call_waits_for_leave_and_the_others_go_on() -> None:
    scene = Scene(policy=[APPROVE])
    assert scene.answer("", WRITE, ("look",)) == asked(C0) + allowed(C1)
    scene.run(C1)
    assert scene.grant(f"{C0}/a1") == [f"ToolCallAuthorized {C0}"]
    body = scene.body("ToolCallAuthorized")
    assert (body["basis"], body["approval_id"]) == ("APPROVAL", f"{C0}/a1")


# case C37
def test_each_of_two_approvals_has_an_id_of_its_own() -> None:
    """An answer to the second leaves the first waiting."""
    scene = Scene(policy=[APPROVE])
    scene.answer("", WRITE, ("write", {"n": 2}))
    assert scene.grant(f"{C1}/a1") == [f"ToolCallAuthorized {C1}"]
    assert scene.open("approval") == [f"{C0}/a1"]
    check_log(scene)


# case C38
def test_a_waiting_approval_keeps_its_id_over_a_crash() -> None:
    """Also after two crashes, the answer to the id that was asked is taken."""
    scene = Scene(policy=[APPROVE])
    scene.answer("", WRITE)
    assert scene.recover() == scene.recover() == []
    assert scene.open("approval") == [f"{C0}/a1"]
    assert scene.grant(f"{C0}/a1") == [f"ToolCallAuthorized {C0}"]
    scene.recover()
    assert outstanding(scene.world) == [Work(Kind.RUN_TOOL, C0, 1)], "approved, not started"
    check_log(scene)


def test_leave_for_other_arguments_is_no_leave() -> None:
    scene = Scene(policy=[APPROVE])
    scene.answer("", WRITE)
    grant = events.ApprovalGranted(approval_id=f"{C0}/a1", scope="SESSION", arguments_digest=b"\1" * 32)
    assert scene.tell(grant)[0] == f"ToolCallRejected {C0}"
    assert not scene.world.rows.family(GRANT)


def test_a_refusal_is_the_calls_result() -> None:
    scene = Scene(policy=[APPROVE])
    scene.answer("", WRITE)
    assert scene.deny(f"{C0}/a1") == [f"ToolCallRejected {C0}", *NEXT_TURN]
    assert scene.body("ToolCallRejected")["basis"] == "APPROVAL_DENIED"


def test_changed_arguments_are_evaluated_again_and_a_denial_wins() -> None:
    scene = Scene(policy=[PolicyRule(id="no", decision="DENY", when="call.arguments.n > 90"), APPROVE])
    scene.answer("", WRITE, WRITE, WRITE)
    assert scene.grant(f"{C0}/a1", modified={"n": 95}) == [f"PolicyEvaluated {C0}/d2", f"ToolCallRejected {C0}"]
    assert scene.body("ToolCallRejected")["basis"] == "POLICY_DENY"
    # That it needs leave counts as done.
    assert scene.grant(f"{C1}/a1", modified={"n": 5}) == [f"PolicyEvaluated {C1}/d2", f"ToolCallAuthorized {C1}"]
    assert scene.contents.get(scene.body("ToolCallAuthorized")["effective_arguments_digest"]) == b'{"n": 5}'
    assert scene.grant(f"{C2}/a1", modified={"n": "x"}) == [f"ToolCallRejected {C2}"]
    assert (scene.body("ToolCallRejected")["basis"], scene.body("ToolCallRejected")["cites"]) == (
        "INVALID_ARGUMENTS", f"{C2}/a1",
    )  # fmt: skip
    check_log(scene)


def test_an_approval_that_expires_goes_up_step_by_step() -> None:
    duty = Obligation(to=[["a"], ["b", "c"]], ttl_seconds=60, on_expiry="ESCALATE")
    scene = Scene(policy=[PolicyRule(id="ask", decision="REQUIRE_APPROVAL", approval=duty)])
    scene.answer("", WRITE)
    requested = scene.body("ApprovalRequested")
    assert (requested["addressed_to"], requested["ttl_ms"]) == (["a"], 60_000)
    assert scene.expire(f"{C0}/a1") == [f"ApprovalRequested {C0}/a2"]
    requested = scene.body("ApprovalRequested")
    assert (requested["addressed_to"], requested["escalated_from"]) == (["b", "c"], f"{C0}/a1")
    assert scene.expire(f"{C0}/a2")[0] == f"ToolCallRejected {C0}"
    assert scene.body("ToolCallRejected")["basis"] == "APPROVAL_EXPIRED"


def test_an_approval_that_expires_denies_where_it_says_so() -> None:
    duty = Obligation(to=[["a"], ["b"]], ttl_seconds=60, on_expiry="DENY")
    scene = Scene(policy=[PolicyRule(id="ask", decision="REQUIRE_APPROVAL", approval=duty)])
    scene.answer("", WRITE)
    asked_at = next(event for event in scene.events if event.type == "ApprovalRequested").meta["recorded_at"]
    assert outstanding(scene.world) == [Work(Kind.EXPIRE_APPROVAL, f"{C0}/a1", 0, asked_at + 60_000_000)]
    assert scene.expire(f"{C0}/a1")[0] == f"ToolCallRejected {C0}"


def test_leave_for_the_session_answers_later_calls_of_that_tool() -> None:
    scene = Scene(policy=[PolicyRule(id="ask", decision="REQUIRE_APPROVAL")])
    scene.answer("", WRITE)
    scene.grant(f"{C0}/a1", scope="SESSION")
    scene.run(C0)
    later = "work.1/t2/c"
    assert scene.answer("", ("write", {"n": 2}), ("look",)) == allowed(f"{later}0") + asked(f"{later}1")
    body = scene.body("ToolCallAuthorized")
    assert (body["basis"], body["approval_id"]) == ("STANDING_GRANT", f"{C0}/a1")
    check_log(scene)


def test_leave_for_a_rule_answers_only_what_that_rule_asks() -> None:
    rules = [
        PolicyRule(id="much", decision="REQUIRE_APPROVAL", when="call.arguments.n > 10"),
        PolicyRule(id="little", decision="REQUIRE_APPROVAL"),
    ]
    scene = Scene(policy=rules)
    scene.answer("", WRITE)
    scene.grant(f"{C0}/a1", scope="RULE")
    scene.run(C0)
    later = "work.1/t2/c"
    assert scene.answer("", ("write", {"n": 2}), ("write", {"n": 20})) == allowed(f"{later}0") + asked(f"{later}1")


def test_leave_that_comes_while_another_call_waits_takes_its_question_back() -> None:
    scene = Scene(policy=[APPROVE])
    scene.answer("", WRITE, WRITE)
    assert scene.grant(f"{C0}/a1", scope="SESSION") == [
        f"ToolCallAuthorized {C0}", f"ApprovalWithdrawn {C1}/a1", f"ToolCallAuthorized {C1}",
    ]  # fmt: skip
    check_counted(scene)
    assert not scene.open("approval")


def test_a_fork_ends_standing_leave() -> None:
    scene = Scene(policy=[APPROVE])
    scene.answer("", WRITE)
    scene.grant(f"{C0}/a1", scope="SESSION")
    scene.run(C0)
    scene.head.forks += 1  # as SessionForked says it
    assert scene.answer("", WRITE) == asked("work.1/t2/c0")


def test_a_refusal_can_end_the_turn() -> None:
    """What runs is waited for, what was not started is called off, what waits is withdrawn; then the stage fails."""
    scene = Scene([stage(limits=StageLimits(attempts=2))], policy=[APPROVE])
    scene.answer("", ("look",), ("look",), WRITE, WRITE)
    c3 = f"{T1}/c3"
    scene.start(C0)
    made = scene.deny(f"{C2}/a1", "ABORT_TURN")
    assert made == [f"ToolCallRejected {C2}", f"ApprovalWithdrawn {c3}/a1", f"ToolCallRejected {c3}"]
    assert outstanding(scene.world) == [Work(Kind.CALL_OFF, C1, 1)]
    off = ToolFailed("CANCELLED", "its turn ends", not_started=True)
    assert scene.tell(facts.tool_failed(C1, 1, off)) == [f"ToolRetryDecided {C1}"]
    assert scene.body("ToolRetryDecided")["retry"] is False
    assert scene.result(C0) == [
        f"TurnAborted {T1}", "StageFailed work.1", "TransitionTaken work", "StageScheduled work.2",
    ]  # fmt: skip
    assert scene.body("TurnAborted")["reason"] == "DENIED"
    assert scene.body("StageFailed")["error"]["error_class"] == "denied"
    check_counted(scene)
    scene.begin_stage()
    ended = "[not run] an approver ended the turn"
    assert results(scene) == ["done", "[no result] CANCELLED", ended, ended], "each call has its result, and one"
    check_log(scene)


def test_a_turn_that_ends_in_the_midst_of_a_call_leaves_a_pair() -> None:
    """Whoever is shown the session afterwards (a fork of it, a data set) is shown a result for every call."""
    scene = Scene()
    scene.answer("", ("look",), WRITE, ("nowhere",))
    scene.run(C0, "seen")
    scene.start(C1)
    scene.cancel()
    shown = {id: json.loads(scene.contents.get(item.digest)) for id, item in scene.world.rows.family(ITEM).items()}
    assert shown[C0]["content"] == "seen"
    assert shown[C1]["content"] == "[no result] CANCELLED"
    assert shown[f"{T1}/c2"]["content"].startswith("[not run] there is no tool")


def test_a_refusal_can_end_the_session() -> None:
    scene = Scene(policy=[APPROVE])
    scene.answer("", WRITE, WRITE, ("look",))
    assert scene.deny(f"{C0}/a1", "TERMINATE_SESSION") == [
        f"ApprovalWithdrawn {C1}/a1", f"TurnAborted {T1}", "StageFailed work.1", "SessionFailed",
    ]  # fmt: skip
    assert scene.body("SessionFailed")["open_ops"] == [C0, C1, C2]
    check_log(scene)


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["TIMEOUT", "EXECUTOR_CRASH", "INFRA", "CANCELLED", "UNKNOWN_OUTCOME"])
@pytest.mark.parametrize("tool", ["look", "put"])
def test_what_may_run_twice_is_tried_again(reason: str, tool: str) -> None:
    scene = Scene([stage(limits=StageLimits(tool_attempts=2))])
    scene.answer("", (tool,))
    scene.start(C0)
    assert scene.no_result(C0, reason) == [f"ToolRetryDecided {C0}"]
    assert (scene.body("ToolRetryDecided")["retry"], scene.body("ToolRetryDecided")["delay_ms"]) == (True, 1000)
    scene.start(C0)
    assert scene.no_result(C0, reason) == [f"ToolRetryDecided {C0}", *NEXT_TURN]
    assert scene.body("ToolRetryDecided")["retry"] is False
    assert results(scene) == [f"[no result] {reason}"]


# case C40
@pytest.mark.parametrize("reason", ["TIMEOUT", "EXECUTOR_CRASH", "INFRA", "CANCELLED", "UNKNOWN_OUTCOME"])
def test_what_may_not_run_twice_waits_for_its_receipt(reason: str) -> None:
    """The outcome is unknown, neither failed nor cancelled; nothing runs; the late receipt closes that call."""
    scene = Scene()
    scene.answer("", WRITE)
    scene.start(C0)
    assert scene.no_result(C0, reason) == []
    assert outstanding(scene.world) == []
    assert scene.recover() == []
    assert outstanding(scene.world) == []
    assert scene.result(C0, "it did run") == NEXT_TURN
    assert results(scene) == ["it did run"]
    check_log(scene)


@pytest.mark.parametrize("reason", ["INFRA", "UNKNOWN_OUTCOME"])
def test_what_surely_did_not_start_is_tried_again(reason: str) -> None:
    scene = Scene()
    scene.answer("", WRITE)
    scene.start(C0)
    assert scene.no_result(C0, reason, not_started=True) == [f"ToolRetryDecided {C0}"]
    scene.start(C0)
    assert scene.no_result(C0, "TIMEOUT") == [], "this attempt may have had its effect"


def test_a_crash_counts_against_no_limit() -> None:
    scene = Scene([stage(limits=StageLimits(tool_attempts=1))])
    scene.answer("", ("look",), WRITE)
    scene.start(C0)
    scene.start(C1)
    assert scene.recover() == []
    assert outstanding(scene.world) == [Work(Kind.RUN_TOOL, C0, 2)], "the reading call alone is begun again"
    scene.run(C0)
    assert scene.result(C1) == NEXT_TURN
    check_log(scene)


def test_a_call_that_a_recovery_gives_up_has_a_result_that_says_so() -> None:
    scene = Scene()
    scene.answer("", WRITE)
    scene.start(C0)
    assert scene.recover({("TOOL", C0): "ABANDONED"}) == NEXT_TURN
    assert results(scene) == ["[no result] ABANDONED"]


def test_an_error_of_a_tool_is_its_result() -> None:
    scene = Scene()
    scene.answer("", WRITE)
    scene.start(C0)
    assert scene.result(C0, "no such file", "ERROR") == NEXT_TURN
    assert results(scene) == ["[write: ERROR]\nno such file"]


def test_a_call_that_is_a_session_ends_with_it() -> None:
    scene = Scene()
    scene.answer("", ("delegate", {"goal": "x"}))
    scene.start(C0)
    ended = events.SubSessionEnded(
        child_session=f"s/{C0}", outcome="SUCCESS", tool_call_id=C0, child_final_hash=b"\1" * 32,
        result=facts.content(b"the child's answer"),
    )  # fmt: skip
    assert scene.tell(ended) == NEXT_TURN
    assert results(scene) == ["the child's answer"]


def test_a_result_above_what_an_event_holds_is_named_in_its_place() -> None:
    scene = Scene()
    scene.answer("", ("look",), ("put", {"text": "x" * 70_000}))
    scene.start(C0)
    scene.result(C0, b"y" * 70_000)
    assert scene.events[-1].body["result"]["inline"] is None
    assert scene.run(C1) == NEXT_TURN
    assert results(scene)[0].startswith("[content of 70000 bytes")
    check_log(scene)

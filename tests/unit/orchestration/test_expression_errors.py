"""Conditions that cannot be evaluated: each leaves a record that says so, and denies (policy) or is false (guard)."""

from __future__ import annotations

from dalsegno.cli.run_text import told
from dalsegno.orchestration.documents import PolicyRule, Transition, ValidatorSpec
from dalsegno.projections.decider.rows import GUARD, LISTED
from decider_lab import Scene, check_log, stage

BROKEN = 'labels.nowhere == "x"'
"""Sound as a text, and wrong wherever the session has no such label."""
IN = Transition(id="in", to="plan")


def behind_plan(*ways: Transition) -> Scene:
    """Where the workflow goes when the stage ``plan`` has ended."""
    return Scene([stage("plan"), stage("work")], transitions=[IN, *ways])


def guard_errors(scene: Scene) -> list[dict[str, object]]:
    found = [event.body for event in scene.events if event.type == "PolicyEvaluated"]
    return [body for body in found if body["subject"] == "TRANSITION"]


def test_a_guard_that_cannot_be_evaluated_is_recorded_and_the_next_way_is_looked_at() -> None:
    ways = [
        IN,
        Transition(id="broken", source="plan", to="work", when=BROKEN),
        Transition(id="else", source="plan", to="other"),
    ]
    scene = Scene([stage("plan"), stage("work"), stage("other")], transitions=ways)
    said = scene.answer("done")[2:]
    assert said == ["PolicyEvaluated plan.1/g.broken", "TransitionTaken plan", "StageScheduled other.1"]
    [body] = guard_errors(scene)
    told_of = {name: body[name] for name in ("subject", "subject_id", "decision", "rule_ids", "explanation")}
    assert told_of == {
        "subject": "TRANSITION", "subject_id": "broken", "decision": "DENY", "rule_ids": ["broken"],
        "explanation": "the guard of transition broken cannot be evaluated: no such key",
    }  # fmt: skip
    assert body["policy_digest"] == scene.world.configuration.digests["WORKFLOW"]
    assert not scene.world.rows.family(GUARD), "what a transition left behind is forgotten"
    check_log(scene)


def test_guards_behind_the_one_that_holds_are_not_looked_at() -> None:
    ways = [
        Transition(id="holds", source="plan", to="work", when='stage.output == "done"'),
        Transition(id="broken", source="plan", to="work", when=BROKEN),
    ]
    scene = behind_plan(*ways)
    scene.answer("done")
    assert guard_errors(scene) == []
    check_log(scene)


def test_where_no_way_is_left_the_errors_stand_before_the_end() -> None:
    ways = [
        Transition(id="first", source="plan", to="work", when=BROKEN),
        Transition(id="second", source="plan", to="work", when="stage.verdicts[3].verdict == 'PASS'"),
    ]
    scene = behind_plan(*ways)
    said = scene.answer("done")[2:]
    assert said == ["PolicyEvaluated plan.1/g.first", "PolicyEvaluated plan.1/g.second", "SessionCompleted"]
    check_log(scene)


def test_a_failed_attempt_that_leads_back_looks_at_the_same_guards_under_other_ids() -> None:
    ways = [
        Transition(id="broken", source="plan", to="work", when=BROKEN),
        Transition(id="mend", source="plan", to="plan", when='stage.status == "FAILED" && stage.attempt < 2'),
    ]
    scene = behind_plan(*ways)
    scene.no_answer(retryable=False)
    scene.begin_stage()
    scene.no_answer(retryable=False)
    ids = [body["decision_id"] for body in guard_errors(scene)]
    assert ids == ["plan.1/g.broken", "plan.2/g.broken"]
    check_log(scene)


def test_the_way_in_is_guarded_too() -> None:
    ways = [Transition(id="broken", to="work", when=BROKEN), IN]
    scene = Scene([stage("plan"), stage("work")], transitions=ways)
    assert [body["decision_id"] for body in guard_errors(scene)] == ["start/g.broken"]
    assert scene.head.stage == "plan.1"
    check_log(scene)


def test_more_broken_guards_than_are_remembered_do_not_keep_a_session_from_its_end() -> None:
    broken = [Transition(id=f"b{number}", source="plan", to="work", when=BROKEN) for number in range(LISTED + 3)]
    scene = Scene([stage("plan"), stage("work")], transitions=[IN, *broken])
    assert scene.answer("done")[-1] == "SessionCompleted"
    assert len(guard_errors(scene)) == LISTED
    check_log(scene)


def test_a_crash_between_the_record_and_the_transition_changes_nothing() -> None:
    ways = [
        IN,
        Transition(id="broken", source="plan", to="work", when=BROKEN),
        Transition(id="e", source="plan", to="o"),
    ]
    scene = Scene([stage("plan"), stage("work"), stage("o")], transitions=ways)
    with scene.together():
        scene.answer("done")
        assert scene.drain(most=3)[-1] == "PolicyEvaluated plan.1/g.broken"
        scene.recover()
    assert scene.head.stage == "o.1"
    assert len(guard_errors(scene)) == 1
    check_log(scene)


def test_a_policy_rule_that_cannot_be_evaluated_denies_and_says_so() -> None:
    scene = Scene(policy=[PolicyRule(id="bad", decision="ALLOW", when=BROKEN)])
    scene.answer("", ("look",))
    body = scene.body("PolicyEvaluated")
    assert (body["decision"], body["rule_ids"]) == ("DENY", ["bad"])
    assert body["explanation"] == "the condition of rule bad cannot be evaluated: no such key"
    assert scene.body("ToolCallRejected")["message"] == body["explanation"]
    check_log(scene)


def test_a_predicate_that_cannot_be_evaluated_is_a_verdict_of_its_own_and_says_so() -> None:
    validators = [ValidatorSpec(name="bad", predicate="json.title == 'x'")]
    scene = Scene([stage(validators=["bad"])], validators=validators)
    scene.answer("no JSON")
    body = scene.body("ValidationDecided")
    assert body["verdict"] == "ERROR"
    assert body["findings"][0]["message"].endswith(": json.title == 'x'")
    check_log(scene)


def test_who_watches_a_session_is_told_of_a_guard_and_not_of_each_call() -> None:
    ways = [IN, Transition(id="broken", source="plan", to="work", when=BROKEN)]
    scene = Scene([stage("plan"), stage("work")], transitions=ways, policy=[PolicyRule(id="ok", decision="ALLOW")])
    scene.answer("", ("look",))
    scene.run("plan.1/t1/c0")
    scene.answer("done")
    lines = [told(event) for event in scene.events if event.type == "PolicyEvaluated"]
    seq = max(event.seq for event in scene.events if event.type == "PolicyEvaluated")
    assert lines == [None, f"{seq} PolicyEvaluated the guard of transition broken cannot be evaluated: no such key"]

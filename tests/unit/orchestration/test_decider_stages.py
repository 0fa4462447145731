"""What the decider makes of a session around its calls: stages, turns, inferences, contexts, limits, ends."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno import events
from dalsegno.orchestration.configuration import pinned, pins
from dalsegno.orchestration.decider import World, due
from dalsegno.orchestration.documents import (
    CompressionRule,
    Prompts,
    Protected,
    Question,
    Recipe,
    Retrieval,
    SessionLimits,
    StageLimits,
    Transition,
    Triggers,
)
from dalsegno.orchestration.ports import CONTEXT_OVERFLOW
from dalsegno.orchestration.work import Kind, Work, outstanding
from dalsegno.projections.decider.rows import CALL, INFERENCE, ITEM
from dalsegno.projections.decider.table import MemoryRows
from dalsegno.replay.check import Checker, check
from decider_lab import APPROVE, TEMPLATES, Scene, check_counted, check_log, stage

T1, T2 = "work.1/t1", "work.1/t2"


def turn(id: str) -> list[str]:
    return [f"TurnStarted {id}", f"ContextPackBuilt {id}/p", f"InferenceRequested {id}/i"]


# --- from begin to end ------------------------------------------------------------------------------------------------


def test_nothing_is_due_of_a_session_without_rows() -> None:
    world = Scene().world
    assert due(World(MemoryRows(), world.configuration, world.contents)) is None


def test_a_session_of_one_stage() -> None:
    scene = Scene(begun=False)
    assert scene.decisions == ["TransitionTaken", "StageScheduled work.1"]
    assert scene.begin_stage() == turn(T1)
    assert scene.answer("done") == [f"TurnCompleted {T1}", "StageCompleted work.1", "SessionCompleted"]
    body = scene.body("SessionCompleted")
    assert (body["outcome"], body["open_ops"], body["result"]["inline"]) == ("SUCCESS", [], b"done")
    check_log(scene)


def test_an_empty_answer_is_an_answer() -> None:
    scene = Scene()
    assert scene.answer("")[-1] == "SessionCompleted"
    assert scene.body("StageCompleted")["outputs"]["size"] == 0


def test_stages_follow_each_other_and_are_shown_what_came_before() -> None:
    scene = Scene([stage("plan"), stage("work", depends_on=["plan"], context=Recipe(history="stage"))])
    scene.answer("the plan")
    scene.begin_stage()
    assert [message["content"] for message in scene.said()] == ["the goal", "[output of plan.1]\nthe plan"]
    assert scene.body("StageScheduled")["depends_on"] == ["plan"]


def test_a_message_during_a_turn_stands_behind_its_results() -> None:
    scene = Scene()
    scene.answer("", ("look",))
    scene.start("work.1/t1/c0")
    scene.message("wait", id="m")
    scene.result("work.1/t1/c0", "seen")
    scene.message("wait", id="m")  # sent again: it changes nothing
    said = [(message["role"], message["content"]) for message in scene.said()]
    assert said == [("user", "the goal"), ("assistant", None), ("tool", "seen"), ("user", "wait")]
    check_log(scene)


def test_a_message_that_came_while_the_model_answered_is_shown_before_the_stage_completes() -> None:
    scene = Scene([stage(validators=["said"])])
    scene.message("wait, in English", id="m")
    assert scene.answer("fertig")[-2:] == ["ContextPackBuilt work.1/t2/p", "InferenceRequested work.1/t2/i"]
    said = [(message["role"], message["content"]) for message in scene.said()]
    assert said == [("user", "the goal"), ("assistant", "fertig"), ("user", "wait, in English")]
    assert scene.answer("done")[-2:] == ["StageCompleted work.1", "SessionCompleted"]
    assert [event.body["turn_id"] for event in scene.events if event.type == "TurnStarted"] == [
        "work.1/t1",
        "work.1/t2",
    ]
    assert scene.body("SessionCompleted")["result"]["inline"] == b"done"
    assert sum(event.type == "ValidationDecided" for event in scene.events) == 1, "an answer that is not the last"
    check_log(scene)


def test_a_message_that_came_while_an_answer_was_judged_is_shown_when_that_is_done() -> None:
    scene = Scene([stage(validators=["tests"])])
    scene.answer("first")
    assert scene.message("wait") == [], "the verdict is waited for"
    assert scene.report("work.1/t1/v.tests")[:2] == ["ValidationDecided work.1/t1/v.tests", "TurnStarted work.1/t2"]
    scene.answer("second")
    assert scene.report("work.1/t2/v.tests")[-1] == "SessionCompleted"
    check_log(scene)


def test_a_message_that_a_pack_showed_asks_for_no_other_turn() -> None:
    scene = Scene()
    scene.answer("", ("look",))
    scene.start("work.1/t1/c0")
    scene.message("wait")
    scene.result("work.1/t1/c0", "seen")
    assert scene.answer("done")[-1] == "SessionCompleted"
    check_log(scene)


@pytest.mark.parametrize(
    "given",
    [{"stages": [stage(limits=StageLimits(turns=1))]}, {"limits": SessionLimits(turns=1)}],
    ids=["of the stage", "of the session"],
)
def test_a_message_asks_for_no_turn_that_a_limit_forbids(given: dict[str, Any]) -> None:
    scene = Scene(**given)
    scene.message("wait")
    assert scene.answer("done")[-2:] == ["StageCompleted work.1", "SessionCompleted"]
    check_log(scene)


def test_a_message_between_two_stages_is_shown_by_the_next_one_alone() -> None:
    scene = Scene([stage("plan"), stage("work")])
    scene.answer("the plan")
    scene.message("wait")
    scene.begin_stage()
    assert scene.said()[-1]["content"] == "wait"
    assert scene.answer("done")[-1] == "SessionCompleted"
    check_log(scene)


def test_a_content_above_what_an_event_holds_goes_through_a_whole_session() -> None:
    scene = Scene([stage("plan"), stage("work", validators=["said"])], goal=b"g" * 70_000)
    scene.answer("p" * 70_000)
    scene.begin_stage()
    assert scene.said()[0]["content"].startswith("[content of 70000 bytes")
    scene.answer("w" * 70_000)
    assert scene.body("SessionCompleted")["result"]["inline"] is None
    checked = check(scene.events, Checker(scene.contents))
    assert (checked.diverged, checked.unreconstructable) == (0, None)
    check_log(scene)


# --- transitions ------------------------------------------------------------------------------------------------------


def test_the_first_guard_that_holds_is_taken_and_one_that_cannot_be_evaluated_is_false() -> None:
    ways = [
        Transition(id="in", to="plan"),
        Transition(id="broken", source="plan", to="work", when='labels.nowhere == "x"'),
        Transition(id="no", source="plan", to="work", when='stage.output == "no"'),
        Transition(id="yes", source="plan", to="other", when='stage.output == "yes"'),
        Transition(id="else", source="plan", to="work"),
    ]
    scene = Scene([stage("plan"), stage("work"), stage("other")], transitions=ways)
    told = ["PolicyEvaluated plan.1/g.broken", "TransitionTaken plan", "StageScheduled other.1"]
    assert scene.answer("yes")[2:] == told
    body = scene.body("TransitionTaken")
    assert (body["transition_id"], body["guard_result"]) == ("yes", True)
    assert body["candidates"] == ["broken", "no", "yes", "else"]
    assert [each["name"] for each in body["guard_inputs"]] == ["labels", "session", "stage", "stages"]
    check_log(scene)


def test_a_transition_waits_for_what_its_stage_depends_on() -> None:
    ways = [Transition(id="in", to="plan"), Transition(id="on", source="plan", to="work")]
    scene = Scene([stage("plan"), stage("work", depends_on=["other"]), stage("other")], transitions=ways)
    assert scene.answer("done")[-1] == "SessionCompleted"


def test_a_failed_stage_is_left_by_a_guarded_transition_only() -> None:
    ways = [
        Transition(id="in", to="plan"),
        Transition(id="on", source="plan", to="work"),
        Transition(id="mend", source="plan", to="mend", when='stage.status == "FAILED"'),
    ]
    scene = Scene([stage("plan"), stage("work"), stage("mend")], transitions=ways)
    scene.no_answer(retryable=False)
    assert scene.head.stage == "mend.1"


def test_a_failed_stage_is_tried_again_as_often_as_its_limit_says() -> None:
    scene = Scene([stage(limits=StageLimits(attempts=2))])
    again = ["TransitionTaken work", "StageScheduled work.2"]
    assert scene.no_answer(retryable=False) == [f"TurnAborted {T1}", "StageFailed work.1", *again]
    scene.begin_stage()
    assert scene.no_answer(retryable=False) == ["TurnAborted work.2/t1", "StageFailed work.2", "SessionFailed"]
    error = scene.body("SessionFailed")["error"]
    assert (error["error_class"], error["message"]) == ("http", "stage work: it failed")
    check_log(scene)


def test_without_a_first_stage_the_session_fails() -> None:
    ways = [Transition(id="never", to="work", when="false")]
    scene = Scene(transitions=ways, begun=False)
    assert scene.decisions == ["SessionFailed"]


def test_a_result_that_its_stage_never_gave_makes_the_session_partial() -> None:
    ways = [Transition(id="in", to="plan")]
    scene = Scene([stage("plan"), stage("work")], transitions=ways, result="work")
    scene.answer("done")
    assert scene.body("SessionCompleted")["outcome"] == "PARTIAL"


# --- inferences -------------------------------------------------------------------------------------------------------


def test_an_inference_that_failed_is_asked_again_each_time_later() -> None:
    scene = Scene([stage(limits=StageLimits(inference_attempts=3))])
    assert scene.no_answer() == [f"InferenceRequested {T1}/i"]
    first, second = scene.body("InferenceRequested", nth=0), scene.body("InferenceRequested")
    assert (second["attempt"], second["delay_ms"]) == (2, 1000)
    assert second["request_digest"] == first["request_digest"]
    scene.no_answer()
    assert scene.body("InferenceRequested")["delay_ms"] == 2000
    assert scene.no_answer() == [f"TurnAborted {T1}", "StageFailed work.1", "SessionFailed"]
    check_log(scene)


def test_a_provider_says_how_long_to_wait() -> None:
    scene = Scene()
    failed = events.InferenceFailed(
        inference_id=f"{T1}/i", attempt=1, retry_after_ms=7_000,
        error=events.ErrorInfo(error_class="rate", message="slow down", retryable=True),
    )  # fmt: skip
    scene.tell(failed)
    assert scene.body("InferenceRequested")["delay_ms"] == 7_000


def test_a_lost_attempt_counts_against_no_limit() -> None:
    scene = Scene([stage(limits=StageLimits(inference_attempts=1))])
    for attempt in (2, 3, 4):
        assert scene.recover() == [f"InferenceRequested {T1}/i"]
        body = scene.body("InferenceRequested")
        assert (body["attempt"], body["delay_ms"]) == (attempt, None)
    assert scene.no_answer()[0] == f"TurnAborted {T1}"
    check_log(scene)


# --- compression ------------------------------------------------------------------------------------------------------

SUMMARY = CompressionRule(
    id="sum", method="SUMMARY", when=Triggers(overflow=True), protect=Protected(turns=0), agent="judge",
    prompt="shorter",
)  # fmt: skip
K1 = "work.1/t2/k1"


def overflown(*rules: CompressionRule) -> tuple[Scene, list[str]]:
    """A second turn whose request was too long."""
    scene = Scene(rules=rules)
    scene.answer("", ("look",))
    scene.run("work.1/t1/c0", "a long story " * 50)
    return scene, scene.no_answer(CONTEXT_OVERFLOW, retryable=False)


def test_a_request_that_is_too_long_is_summed_up_and_asked_anew() -> None:
    scene, made = overflown(SUMMARY)
    assert made == [f"CompressionStarted {K1}", f"InferenceRequested {K1}/i"]
    assert scene.body("CompressionStarted")["trigger"] == "OVERFLOW_ERROR"
    assert scene.answer("short") == [f"CompressionCompleted {K1}", f"ContextPackBuilt {T2}/p2",
                                     f"InferenceRequested {T2}/i2"]  # fmt: skip
    said = [message["content"] for message in scene.said()]
    assert said == ["the goal", "[in place of earlier items]\nshort"]
    assert scene.answer("done")[-1] == "SessionCompleted"
    check_log(scene)


@pytest.mark.parametrize("empty", [True, False])
def test_a_summary_that_fails_or_says_nothing_leaves_the_context_as_it_was(empty: bool) -> None:
    scene, _ = overflown(SUMMARY)
    made = scene.answer(" \n") if empty else scene.no_answer(retryable=False)
    assert made == [f"CompressionFailed {K1}", f"TurnAborted {T2}", "StageFailed work.1", "SessionFailed"]
    assert scene.body("CompressionFailed")["error"]["error_class"] == ("empty-summary" if empty else "http")
    assert not scene.world.rows.family("compression")
    check_log(scene)


def test_where_one_rule_fails_the_next_one_is_tried() -> None:
    trim = CompressionRule(id="trim", method="TRIM", when=Triggers(overflow=True), protect=Protected(turns=0))
    scene, _ = overflown(SUMMARY, trim)
    assert scene.no_answer(retryable=False) == [
        f"CompressionFailed {K1}", "CompressionCompleted work.1/t2/k2", f"ContextPackBuilt {T2}/p2",
        f"InferenceRequested {T2}/i2",
    ]  # fmt: skip
    check_log(scene)


def test_what_was_too_long_counts_until_something_was_compressed() -> None:
    """Then what is due before the next pack is looked at anew, and the overflow rule is not."""
    mask = CompressionRule(id="mask", method="MASK", when=Triggers(overflow=True), protect=Protected(turns=0))
    trim = CompressionRule(id="trim", method="TRIM", when=Triggers(turns=0), protect=Protected(turns=1))
    scene = Scene(rules=[mask, SUMMARY, trim])
    scene.answer("", ("look",))
    scene.run("work.1/t1/c0", "a long story " * 50)
    made = scene.no_answer(CONTEXT_OVERFLOW, retryable=False)
    assert made == ["CompressionCompleted work.1/t2/k1", f"ContextPackBuilt {T2}/p2", f"InferenceRequested {T2}/i2"]
    check_log(scene)


def test_a_compression_that_a_crash_cut_short_goes_on() -> None:
    scene, _ = overflown(SUMMARY)
    assert scene.recover() == [f"InferenceRequested {K1}/i"]
    assert scene.answer("short")[0] == f"CompressionCompleted {K1}"
    check_log(scene)


# --- what is asked before, and judged after ---------------------------------------------------------------------------


def test_a_stage_begins_with_what_it_asked_for() -> None:
    asks = [Question(id="ok", prompt="ok?", ttl_seconds=5), Question(id="how", prompt="how?")]
    scene = Scene([stage(retrieve=[Retrieval(id="kb")], ask=asks)], begun=False)
    assert scene.begin_stage() == ["RetrievalRequested work.1/r.kb", "InputRequested work.1/q.ok",
                                   "InputRequested work.1/q.how"]  # fmt: skip
    assert scene.provide("work.1/q.how", "DECLINED") == []
    assert scene.recover() == []
    assert scene.provide("work.1/q.ok", "EXPIRED") == []
    assert scene.retrieve("work.1/r.kb", b"facts") == turn(T1)
    assert [message["content"] for message in scene.said()[1:]] == [
        "[retrieved work.1/r.kb]\nfacts",
        "[question work.1/q.ok]\nok?", "[answer to work.1/q.ok: EXPIRED]\n",
        "[question work.1/q.how]\nhow?", "[answer to work.1/q.how: DECLINED]\n",
    ]  # fmt: skip
    check_log(scene)


def test_an_answer_that_no_validator_rejects_completes_the_stage() -> None:
    scene = Scene([stage(validators=["said", "judged", "tests"])])
    v = f"{T1}/v"
    assert scene.answer("done") == [
        f"TurnCompleted {T1}", f"ValidationRequested {v}.said", f"ValidationDecided {v}.said",
        f"ValidationRequested {v}.judged", f"InferenceRequested {v}.judged/i", f"ValidationRequested {v}.tests",
    ]  # fmt: skip
    assert scene.report(f"{v}.tests") == [f"ValidationDecided {v}.tests"]
    assert scene.judge(f"{v}.judged") == [f"ValidationDecided {v}.judged", "StageCompleted work.1", "SessionCompleted"]
    check_log(scene)


def test_a_rejected_answer_is_tried_again_with_the_findings() -> None:
    scene = Scene([stage(validators=["tests"], limits=StageLimits(turns=2))])
    scene.answer("bad")
    assert scene.report(f"{T1}/v.tests", "REJECT", evidence=(b"it is red",)) == [
        f"ValidationDecided {T1}/v.tests", *turn(T2),
    ]  # fmt: skip
    assert scene.said()[-1]["content"] == "[tests: REJECT]\n- error reported: it is red"
    scene.answer("still bad")
    assert scene.report(f"{T2}/v.tests", "REJECT")[1:] == ["StageFailed work.1", "SessionFailed"]
    assert scene.body("StageFailed")["error"]["message"] == "not passed by tests after 2 turns"
    check_log(scene)


def test_a_judge_that_gives_no_answer_is_an_error_and_leaves_nothing_behind() -> None:
    scene = Scene([stage(validators=["judged"])])
    scene.answer("done")
    judged = f"{T1}/v.judged"
    assert scene.no_answer(to=f"{judged}/i") == [f"InferenceRequested {judged}/i"]
    assert scene.no_answer(retryable=False, to=f"{judged}/i")[0] == f"ValidationDecided {judged}"
    assert scene.body("ValidationDecided")["verdict"] == "ERROR"
    assert list(scene.world.rows.family(INFERENCE)) == [f"{T2}/i"]


# --- limits -----------------------------------------------------------------------------------------------------------


def test_a_stage_that_has_no_turns_left_fails() -> None:
    scene = Scene([stage(limits=StageLimits(turns=1))])
    assert scene.answer("", ("nowhere",))[-3:] == [f"TurnCompleted {T1}", "StageFailed work.1", "SessionFailed"]
    assert scene.body("StageFailed")["error"]["error_class"] == "turn-limit"


@pytest.mark.parametrize(
    ("limits", "limit", "most", "observed"),
    [
        (SessionLimits(turns=1), "TURNS", "1", "1"),
        (SessionLimits(tokens=14), "TOKENS", "14", "15"),
        (SessionLimits(cost_usd_micros=4), "COST", "4", "5"),
    ],
)
def test_a_limit_of_the_session_ends_it(limits: SessionLimits, limit: str, most: str, observed: str) -> None:
    scene = Scene(limits=limits)
    made = scene.answer("", ("nowhere",), cost_usd_micros=5)
    ends = ["StageFailed work.1", "SessionCompleted"]
    assert made[-3:] == ([f"LimitReached {limit}", *ends] if limit == "TURNS" else [f"TurnAborted {T1}", *ends])
    body = scene.body("LimitReached")
    assert (body["limit"], body["limit_value"], body["observed"]) == (limit, most, observed)
    assert scene.body("SessionCompleted")["outcome"] == "GIVEN_UP"
    check_log(scene)


@pytest.mark.parametrize("limits", [SessionLimits(tokens=15), SessionLimits(cost_usd_micros=5), SessionLimits(turns=1)])
def test_what_is_just_within_a_limit_is_not_stopped(limits: SessionLimits) -> None:
    scene = Scene(limits=limits)
    scene.answer("done", cost_usd_micros=5)
    assert scene.body("SessionCompleted")["outcome"] == "SUCCESS"


def test_a_context_that_fits_nowhere_ends_the_session() -> None:
    scene = Scene([stage(context=Recipe(budget_tokens=1))], begun=False)
    assert scene.begin_stage() == [
        f"TurnStarted {T1}", f"ContextPackBuilt {T1}/p", "LimitReached CONTEXT", f"TurnAborted {T1}",
        "StageFailed work.1", "SessionCompleted",
    ]  # fmt: skip


def test_wall_time_is_a_fact() -> None:
    scene = Scene(limits=SessionLimits(wall_time_seconds=9))
    started = next(event for event in scene.events if event.type == "SessionStarted").meta["recorded_at"]
    assert Work(Kind.FIRE_TIMER, "wall_time", 0, started + 9_000_000) in outstanding(scene.world)
    made = scene.fire()
    assert made == ["LimitReached WALL_TIME", f"TurnAborted {T1}", "StageFailed work.1", "SessionCompleted"]
    assert scene.body("SessionCompleted")["open_ops"] == [f"{T1}/i"]
    check_log(scene)


# --- cancel -----------------------------------------------------------------------------------------------------------


def scheduled() -> Scene:
    return Scene(begun=False)


def asking() -> Scene:
    return Scene([stage(retrieve=[Retrieval(id="kb")], ask=[Question(id="ok", prompt="ok?")])])


def inferring() -> Scene:
    return Scene()


def compressing() -> Scene:
    return overflown(SUMMARY)[0]


def calling() -> Scene:
    """One call of each kind: started, authorised, waiting, lost, failed, done, rejected."""
    scene = Scene(policy=[APPROVE])
    scene.answer("", ("look",), ("look",), ("write", {"n": 1}), ("put",), ("delegate",), ("look",), ("nowhere",))
    scene.start(f"{T1}/c0")
    scene.start(f"{T1}/c4")
    scene.no_result(f"{T1}/c4", "UNKNOWN_OUTCOME")
    scene.run(f"{T1}/c5")
    return scene


def judging() -> Scene:
    scene = Scene([stage(validators=["judged", "tests"])])
    scene.answer("done")
    return scene


@pytest.mark.parametrize(
    ("begin", "open_ops"),
    [
        (scheduled, []),
        (asking, ["work.1/q.ok", "work.1/r.kb"]),
        (inferring, [f"{T1}/i"]),
        (compressing, [K1, f"{K1}/i"]),
        (calling, [f"{T1}/c{n}" for n in (0, 1, 2, 3, 4)]),
        (judging, [f"{T1}/v.judged", f"{T1}/v.judged/i", f"{T1}/v.tests"]),
    ],
)
@pytest.mark.parametrize("how", ["cancel", "cancel while paused", "limit"])
def test_an_end_at_any_time_lists_what_is_open(begin: object, open_ops: list[str], how: str) -> None:
    scene: Scene = begin()  # type: ignore[operator]
    if how == "cancel while paused":
        assert scene.tell(events.SessionPaused(reason="lunch", by_limit=False)) == []
    made = scene.fire() if how == "limit" else scene.cancel()
    assert made[-1] == ("SessionCompleted" if how == "limit" else "SessionCancelled")
    assert scene.events[-1].body["open_ops"] == open_ops
    assert not outstanding(scene.world)
    check_log(scene)


def test_a_receipt_after_the_end_closes_its_call() -> None:
    scene = calling()
    scene.cancel()
    assert scene.result(f"{T1}/c0") == []
    check_counted(scene)
    assert f"{T1}/c0" not in scene.world.rows.family(CALL)


def test_a_paused_session_decides_nothing() -> None:
    scene = Scene()
    scene.tell(events.SessionPaused(reason="lunch", by_limit=False))
    assert scene.answer("done") == []
    assert scene.tell(events.SessionResumed(reason=None, by_limit=False))[-1] == "SessionCompleted"
    check_log(scene)


# --- pins -------------------------------------------------------------------------------------------------------------


def changed(effective: object) -> events.ConfigPinned:
    prompts = Prompts(templates=TEMPLATES | {"main": "Now: {goal}"})
    return pins([pinned("PROMPT_TEMPLATE", prompts, "w", "2")], effective)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("effective", ["NEXT_TURN", "NEXT_STAGE"])
def test_a_document_comes_into_force_when_it_says(effective: str) -> None:
    from dalsegno.orchestration.decider.packs import request

    scene = Scene([stage("work"), stage("more")])

    def system() -> str:
        return str(request(scene.world, scene.head.inference).messages[0]["content"])

    before = system()
    scene.tell(changed(effective))
    assert system() == before
    scene.answer("", ("nowhere",))
    assert system() == (before if effective == "NEXT_STAGE" else "Now: the goal")
    scene.answer("done")
    scene.begin_stage()
    assert system() == "Now: the goal"
    check_log(scene)


# --- rows -------------------------------------------------------------------------------------------------------------


def test_what_is_done_with_leaves_no_rows() -> None:
    scene = Scene([stage(validators=["judged"], retrieve=[Retrieval(id="kb")])], policy=[APPROVE])
    scene.retrieve("work.1/r.kb")
    for number in range(1, 6):
        t = f"work.1/t{number}"
        scene.answer("", ("write", {"n": 1}), ("look",))
        scene.grant(f"{t}/c0/a1")
        scene.run(f"{t}/c0")
        scene.run(f"{t}/c1")
    sizes = {family: len(rows) for family, rows in scene.world.rows.families.items()}
    assert {family: size for family, size in sizes.items() if size and family not in (ITEM, "packed")} == {
        "pin": 8, "stage": 1, "inference": 1, "request": 1,
    }  # fmt: skip

"""What the decider makes of a recovery that gives something up, in place of waiting for it or asking again."""

from __future__ import annotations

from functools import partial

from dalsegno.orchestration.documents import Question, Retrieval, StageLimits
from decider_lab import Scene, check_counted, check_log, stage

T1, T2 = "work.1/t1", "work.1/t2"
BEGINS = [f"TurnStarted {T1}", f"ContextPackBuilt {T1}/p", f"InferenceRequested {T1}/i"]


def test_a_stage_goes_on_without_what_was_given_up() -> None:
    scene = Scene([stage(retrieve=[Retrieval(id="kb")], ask=[Question(id="ok", prompt="ok?")])])
    kept = scene.recover({("RETRIEVAL", "work.1/r.kb"): "FAILED"})
    assert kept == [], "the question is still open"
    assert scene.recover({("INPUT", "work.1/q.ok"): "ABANDONED"}) == BEGINS
    assert [message["content"] for message in scene.said()] == ["the goal"]
    check_counted(scene)
    check_log(scene)


def test_a_validation_that_was_given_up_passes_nothing() -> None:
    scene = Scene([stage(validators=["tests"])])
    scene.answer("done")
    made = scene.recover({("VALIDATION", f"{T1}/v.tests"): "ABANDONED"})
    assert made == [f"TurnStarted {T2}", f"ContextPackBuilt {T2}/p", f"InferenceRequested {T2}/i"]
    check_log(scene)


def test_a_validation_that_waits_goes_on_waiting() -> None:
    scene = Scene([stage(validators=["tests", "judged"])])
    scene.answer("done")
    assert scene.recover() == [f"InferenceRequested {T1}/v.judged/i"]
    assert scene.open("validation") == [f"{T1}/v.judged", f"{T1}/v.tests"]
    scene.judge(f"{T1}/v.judged")
    assert scene.report(f"{T1}/v.tests")[-1] == "SessionCompleted"
    check_log(scene)


def test_a_recovery_in_the_midst_of_deciding_goes_on_deciding() -> None:
    """After each decision that follows of an answer, the writer dies; what is decided is the same."""
    whole = Scene()
    made = whole.answer("", ("look",), ("write", {"n": 1}), ("nowhere",))
    for survived in range(len(made)):
        scene = Scene()
        scene.drain = partial(scene.drain, survived)  # type: ignore[method-assign]
        scene.answer("", ("look",), ("write", {"n": 1}), ("nowhere",))
        del scene.drain
        assert scene.decisions[-survived or len(scene.decisions) :] == made[:survived]
        assert scene.recover() == made[survived:]
        check_log(scene)


def test_a_crash_before_it_is_decided_whether_a_call_is_tried_again_gives_it_no_attempt_more() -> None:
    """That its outcome is unknown was recorded before: the recovery leaves it so, and the limit decides."""
    limits = StageLimits(tool_attempts=1)
    whole, crashed = Scene([stage(limits=limits)]), Scene([stage(limits=limits)])
    for scene in (whole, crashed):
        scene.answer("", ("look",))
        scene.start(f"{T1}/c0")
    made = whole.no_result(f"{T1}/c0", "UNKNOWN_OUTCOME")
    assert made[0] == f"ToolRetryDecided {T1}/c0"
    assert whole.body("ToolRetryDecided")["retry"] is False
    crashed.drain = partial(crashed.drain, 0)  # type: ignore[method-assign]
    crashed.no_result(f"{T1}/c0", "UNKNOWN_OUTCOME")
    del crashed.drain
    assert crashed.recover() == made
    [open_] = crashed.body("SessionRecovered")["in_flight"]
    assert (open_["id"], open_["resolution"]) == (f"{T1}/c0", "UNKNOWN_OUTCOME")
    check_log(crashed)

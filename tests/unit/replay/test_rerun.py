"""Runs of recorded sessions: equal as they are; each served fact exact or said not to be; nothing denied is started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dalsegno.errors import NotReconstructable
from dalsegno.harness import facts
from dalsegno.model.records import Event
from dalsegno.orchestration.documents import Obligation, PolicyRule, Prompts, StageLimits
from dalsegno.orchestration.ports import Answer, AnsweredCall, Request, ToolFailed
from dalsegno.replay.compared import compare_run
from dalsegno.replay.serving import EXACT, INEXACT, RESULTS, Recording
from dalsegno.replay.strategy import Strategy
from decider_lab import TEMPLATES, Scene, stage
from rerun_lab import STOP, Counted, again, approved, crashed, deny, policy, scene, started

# --- as it was --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [scene, approved, crashed])
def test_an_unchanged_run_decides_the_same_and_every_fact_is_exact(make: Callable[[], Scene]) -> None:
    events = make().events
    seen: list[Event] = []
    found = again(events, step=seen.append)
    assert (found.ended, found.stopped, list(found.left_over)) == (True, None, [])
    assert (found.counts.inexact, found.counts.missed, found.counts.rerun, found.counts.simulated) == (0, 0, 0, 0)
    compared = compare_run(events, found.events)
    assert compared.divergences == []
    assert compared.equal == compared.compared > 10
    assert seen == found.events
    served = [event for event in found.events if event.meta["origin"] is not None]
    assert len(served) == found.counts.exact
    assert {event.meta["origin"]["importer"] for event in served} == {EXACT}


def test_every_recorded_fact_is_served_once() -> None:
    found = again(scene().events)
    refs = [event.meta["origin"]["native_ref"] for event in found.events if event.meta["origin"] is not None]
    assert len(refs) == len(set(refs))


def test_two_equal_calls_of_one_turn_each_get_a_result_of_their_own() -> None:
    found = Scene([stage(validators=["said"])])
    found.answer("", ("look", {"what": "a"}), ("look", {"what": "a"}))
    found.run("work.1/t1/c0", "first")
    found.run("work.1/t1/c1", "second")
    found.answer("done")
    run = again(found.events)
    results = {e.body["tool_call_id"]: e.body["result"]["inline"] for e in run.events if e.type in RESULTS}
    assert results == {"work.1/t1/c0": b"first", "work.1/t1/c1": b"second"}
    assert run.counts.inexact == 0


def test_a_call_that_was_given_up_before_it_began_is_no_result_for_a_later_one() -> None:
    """The turn ends early, and its authorised call is called off by the run itself; the same call later ran."""
    found = Scene(
        [stage(limits=StageLimits(attempts=2))],
        policy=[PolicyRule(id="ask", decision="REQUIRE_APPROVAL", when='call.tool == "write"', approval=Obligation())],
    )
    found.answer("", ("look", {"what": "a"}), ("write", {"n": 1}))
    found.deny("work.1/t1/c1/a1", "ABORT_TURN")
    called_off = ToolFailed("CANCELLED", "its turn ends early", not_started=True)
    found.tell(facts.tool_failed("work.1/t1/c0", 1, called_off))
    found.begin_stage()
    found.answer("", ("look", {"what": "a"}), to="work.2/t1/i")
    found.run("work.2/t1/c0", "seen")
    found.answer("done", to="work.2/t2/i")
    run = again(found.events)
    assert (run.ended, list(run.left_over), run.counts.inexact) == (True, [], 0)
    assert compare_run(found.events, run.events).divergences == []


# --- changed ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["look", "write"])
@pytest.mark.parametrize("on_miss", ["stop", "simulate"])
def test_a_tool_that_is_denied_is_never_started(tool: str, on_miss: Any) -> None:
    events = scene().events
    counted = Counted()
    found = again(events, Strategy(on_miss=on_miss), override=deny(tool), ports=counted.ports)
    names = {e.body["tool_call_id"]: e.body["name"] for e in found.events if e.type == "ToolCallRequested"}
    assert tool in names.values()
    assert tool not in {names[id] for id in started(found.events)}
    assert tool not in {call.name for call in counted.runs}
    assert counted.requests == []


def test_results_that_nothing_asks_for_any_more_are_listed() -> None:
    events = scene().events
    found = again(events, override=deny("look"))
    assert "work.1/t1/c0" in {event.body.get("tool_call_id") for event in found.left_over if event.type in RESULTS}


def test_what_a_model_is_asked_otherwise_is_prompt_drift_and_its_recorded_answer_is_inexact() -> None:
    events = scene().events
    prompts = Prompts(templates={**TEMPLATES, "main": "You now work on {goal}."})
    found = again(events, override=lambda pinned: msgspec.structs.replace(pinned, prompts=prompts))
    assert found.counts.inexact == 3
    assert found.counts.tainted
    inexact = [e for e in found.events if (e.meta["origin"] or {}).get("importer") == INEXACT]
    assert {event.type for event in inexact} == {"InferenceCompleted"}
    compared = compare_run(events, found.events)
    assert compared.first is not None
    assert (compared.first.type, compared.first.kind) == ("ContextPackBuilt", "PROMPT_DRIFT")
    assert "OUTPUT_DRIFT" not in {each.kind for each in compared.divergences}


def test_a_model_that_answers_otherwise_is_output_drift() -> None:
    events = scene().events
    counted = Counted()
    found = again(events, Strategy(inference="rerun", on_miss="stop"), ports=counted.ports)
    assert found.counts.rerun == len(counted.requests)
    compared = compare_run(events, found.events)
    assert compared.first is not None
    assert (compared.first.type, compared.first.event_class) == ("InferenceCompleted", "X")
    assert (compared.first.kind, compared.first.subject) == ("OUTPUT_DRIFT", "work.1/t1/i")
    assert "PROMPT_DRIFT" not in {each.kind for each in compared.divergences[:1]}


def test_only_a_request_that_changed_is_asked_again_where_recorded_answers_count() -> None:
    events = scene().events
    counted = Counted()
    same = again(events, Strategy(inference="recorded-else-rerun", on_miss="stop"), ports=counted.ports)
    assert (counted.requests, same.counts.rerun, same.ended) == ([], 0, True)
    prompts = Prompts(templates={**TEMPLATES, "main": "You now work on {goal}."})
    found = again(
        events,
        Strategy(inference="recorded-else-rerun", on_miss="stop"),
        ports=counted.ports,
        override=lambda pinned: msgspec.structs.replace(pinned, prompts=prompts),
    )
    assert found.counts.rerun == len(counted.requests) == 1
    assert found.counts.inexact == 0
    assert found.ended


def test_a_result_behind_other_effects_is_inexact_and_taints_the_run() -> None:
    events = scene().events
    found = again(events, override=policy(PolicyRule(id="no", decision="DENY", when="call.arguments.n == 1")))
    assert not [event for event in found.left_over if event.body.get("tool_call_id") == "work.1/t2/c0"]
    assert "other effects came before it" in [why for _, why in found.inexact]
    assert found.counts.tainted


def test_what_was_granted_for_other_arguments_is_no_leave() -> None:
    events = approved().events
    shown = next(event for event in events if event.type == "ApprovalRequested")
    body = {**shown.body, "arguments_digest": b"\1" * 32}
    other = [msgspec.structs.replace(event, body=body) if event is shown else event for event in events]
    found = again(other)
    assert started(found.events) == set()
    assert found.stopped is not None
    assert "ApprovalGranted" in [event.type for event in found.left_over]


def test_leave_of_then_is_not_used_where_all_is_denied() -> None:
    found = again(approved().events, replace(STOP, approvals="deny"))
    assert started(found.events) == set()
    assert "ApprovalDenied" in [event.type for event in found.events]


def test_leave_of_then_is_not_used_where_tools_run_again() -> None:
    counted = Counted()
    found = again(approved().events, Strategy(mode="simulation", tools="execute", on_miss="stop"), ports=counted.ports)
    assert counted.runs == []
    assert started(found.events) == set()


# --- misses -----------------------------------------------------------------------------------------------------------


def without(events: Sequence[Event], type_: str, nth: int = 0) -> list[Event]:
    chosen = [event for event in events if event.type == type_][nth]
    return [event for event in events if event is not chosen]


@pytest.mark.parametrize("type_", ["InferenceCompleted", "ToolReceiptRecorded"])
def test_a_fact_that_is_missing_fails_the_run_or_stops_it_and_says_which(type_: str) -> None:
    events = without(scene().events, type_)
    with pytest.raises(NotReconstructable) as failed:
        again(events, Strategy(on_miss="fail"))
    stopped = again(events)
    assert not stopped.ended
    assert stopped.stopped == failed.value.found
    assert stopped.counts.missed == 1


def test_a_missing_result_is_simulated_if_asked_for_and_no_code_is_executed() -> None:
    counted = Counted()
    found = again(without(scene().events, "ToolReceiptRecorded"), Strategy(on_miss="simulate"), ports=counted.ports)
    assert [call.simulate for call in counted.runs] == [True]
    assert found.counts.simulated == 1
    results = {
        event.body["tool_call_id"]: event.body["result"]["inline"]
        for event in found.events
        if event.type == "ToolReceiptRecorded"
    }
    assert (results["work.1/t1/c0"], results["work.1/t1/c1"]) == (b"simulated", b"done")


def test_without_ports_nothing_is_simulated_and_the_run_says_so() -> None:
    with_none = Strategy(on_miss="simulate")
    found = again(without(scene().events, "ToolReceiptRecorded"), with_none)
    assert not found.ended
    assert found.stopped is not None
    assert found.counts.simulated == 0


def test_tools_are_executed_in_a_simulation_that_says_so() -> None:
    counted = Counted()
    found = again(scene().events, Strategy(mode="simulation", tools="execute", on_miss="stop"), ports=counted.ports)
    assert [call.simulate for call in counted.runs] == [False, False, False]
    assert found.ended
    assert (found.counts.rerun, found.counts.simulated) == (3, 0)
    # What the tools said now is another prompt than was answered then.
    assert (found.counts.exact, found.counts.inexact) == (1, 2)


def test_tools_are_simulated_where_that_is_asked_for_and_no_receipt_is_served() -> None:
    counted = Counted()
    found = again(scene().events, Strategy(mode="simulation", tools="simulate", on_miss="stop"), ports=counted.ports)
    assert [call.simulate for call in counted.runs] == [True, True, True]
    assert (found.counts.rerun, found.counts.simulated) == (0, 3)


@pytest.mark.parametrize("end", ["InferenceRequested", "ToolCallStarted", "ToolReceiptRecorded", "StageStarted"])
def test_of_a_session_that_goes_on_still_nothing_is_missing(end: str) -> None:
    events = scene().events
    last = max(event.seq for event in events if event.type == end)
    found = again(events[:last], Strategy(on_miss="fail"))
    assert (found.ended, found.stopped, found.counts.missed) == (False, "the recording ends here", 0)
    assert list(found.left_over) == []


def test_a_stage_that_calls_otherwise_asks_for_a_result_that_is_not_there() -> None:
    class Calls(Counted):
        def complete(self, request: Request) -> Answer:
            self.requests.append(request)
            if len(self.requests) > 1:
                return Answer(text="done")
            return Answer(text="", calls=(AnsweredCall(name="look", arguments=b'{"what":"z"}'),))

    found = again(scene().events, Strategy(inference="rerun", on_miss="stop"), ports=Calls().ports)
    assert found.stopped is not None
    assert "work.1/t1/c0" in found.stopped
    assert not found.ended


def test_what_is_held_is_looked_at_no_more_and_is_left_over_all_the_same() -> None:
    recording = Recording.of(scene().events)
    before = {event.seq for event in recording.left_over}
    recording.hold({"InferenceCompleted"})
    assert "InferenceCompleted" not in {event.type for event in recording.queue}
    assert {event.seq for event in recording.left_over} == before

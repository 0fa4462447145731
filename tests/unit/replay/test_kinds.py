"""The kind of each difference of a run says what it is due to: code, documents, a model, a tool, people, the record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dalsegno.harness.people import ScriptedPeople
from dalsegno.model.events import Usage
from dalsegno.model.records import Event
from dalsegno.orchestration.documents import PolicyRule, Prompts
from dalsegno.orchestration.ports import Answer
from dalsegno.replay.compared import compare_run
from dalsegno.replay.divergence import Ancestor, Divergence
from dalsegno.replay.session_replay import Asked, replay_session
from dalsegno.replay.strategy import Strategy
from decider_lab import TEMPLATES
from rerun_lab import STOP, Counted, Same, again, approved, deny, policy, scene

RERUN = Strategy(inference="rerun", on_miss="stop")


def kinds(found: Sequence[Divergence]) -> set[str]:
    return {each.kind for each in found}


def of(found: Sequence[Divergence], type_: str) -> Divergence:
    return next(each for each in found if each.type == type_)


def answered(events: Sequence[Event], **other: Answer) -> list[Divergence]:
    ids = {f"work.1/{name}/i": answer for name, answer in other.items()}
    return compare_run(events, again(events, RERUN, ports=Same(events, ids).ports).events).divergences


def test_what_follows_from_another_answer_is_output_drift_and_names_it() -> None:
    events = scene().events
    seq = next(e.seq for e in events if e.type == "InferenceCompleted" and e.body["inference_id"] == "work.1/t2/i")
    first, *rest = answered(events, t2=Answer(text="done", usage=Usage(input=10, output=5)))
    assert (first.type, first.kind, first.seq, first.subject) == (
        "InferenceCompleted",
        "OUTPUT_DRIFT",
        seq,
        "work.1/t2/i",
    )
    assert first.causes == ()
    assert kinds(rest) == {"OUTPUT_DRIFT"}
    assert of(rest, "ToolCallRequested").because == "not in the run"
    assert {each.causes for each in rest} == {(Ancestor(seq, "InferenceCompleted", "work.1/t2/i"),)}


def test_an_answer_that_costs_otherwise_is_no_difference_but_explains_what_counts_tokens() -> None:
    events = scene().events
    call = Same(events).answers["work.1/t1/i"]
    found = answered(events, t1=replace(call, usage=Usage(input=10, output=6)))
    assert {each.type for each in found} == {"PolicyEvaluated"}, "its inputs hold the session's tokens"
    assert kinds(found) == {"OUTPUT_DRIFT"}
    assert found[0].causes[0].type == "InferenceCompleted"


def test_what_differs_before_another_answer_is_not_due_to_it() -> None:
    """A rule allows what was allowed without one; the model answers the last turn otherwise."""
    events = scene().events
    allowed = policy(PolicyRule(id="yes", decision="ALLOW", when='call.tool == "look"'))
    other = {"work.1/t3/i": Answer(text="at last", usage=Usage(input=10, output=5))}
    run = again(events, RERUN, ports=Same(events, other).ports, override=allowed)
    found = compare_run(events, run.events, config=True).divergences
    drifted = next(place for place, each in enumerate(found) if each.kind == "OUTPUT_DRIFT")
    assert kinds(found[:drifted]) == {"CONFIG"}
    assert kinds(found[drifted:]) == {"OUTPUT_DRIFT"}


def test_what_follows_from_a_model_that_was_asked_something_else_is_prompt_drift() -> None:
    events = scene().events
    prompts = Prompts(templates={**TEMPLATES, "main": "You now work on {goal}."})
    run = again(
        events, RERUN, ports=Counted("done").ports,
        override=lambda pinned: msgspec.structs.replace(pinned, prompts=prompts),
    )  # fmt: skip
    found = compare_run(events, run.events).divergences
    assert kinds(found) == {"PROMPT_DRIFT"}
    assert found[0].type == "ContextPackBuilt"
    assert "InferenceCompleted" not in {each.type for each in found}, "its request is what differs"
    assert of(found, "ToolCallRequested").causes[0].subject == "work.1/t1/i"
    assert kinds(compare_run(events, run.events, config=True).divergences) == {"CONFIG"}


def test_a_tool_that_answers_otherwise_is_output_drift_and_so_is_what_follows() -> None:
    events = scene().events
    executed = Strategy(mode="simulation", tools="execute", on_miss="stop")
    first, *rest = compare_run(events, again(events, executed, ports=Counted().ports).events).divergences
    assert (first.type, first.kind, first.subject) == ("ToolReceiptRecorded", "OUTPUT_DRIFT", "work.1/t1/c0")
    assert kinds(rest) == {"OUTPUT_DRIFT"}
    assert of(rest, "ContextPackBuilt").causes[0].type == "ToolReceiptRecorded"


@pytest.mark.parametrize("how", ["deny", "script"])
def test_leave_that_is_denied_by_option_is_configuration(how: Any) -> None:
    events = approved().events
    people = ScriptedPeople([{"answer": "deny"}]) if how == "script" else None
    run = again(events, replace(STOP, approvals=how), people=people)
    first, *rest = compare_run(events, run.events).divergences
    assert (first.type, first.kind, first.subject) == ("ApprovalGranted", "CONFIG", "work.1/t1/c0/a1")
    assert (first.fields[0].expected, first.fields[0].actual) == ("ApprovalGranted", "ApprovalDenied")
    assert kinds(rest) == {"CONFIG"}
    assert of(rest, "ToolCallRejected").causes[0].type == "ApprovalGranted"


def test_a_script_that_gives_leave_for_other_arguments_is_configuration() -> None:
    events = approved().events
    run = again(
        events, replace(STOP, approvals="script"),
        people=ScriptedPeople([{"answer": "grant", "arguments": {"n": 9}}]),
    )  # fmt: skip
    first, *rest = compare_run(events, run.events).divergences
    assert (first.type, first.kind) == ("ApprovalGranted", "CONFIG")
    assert {each.pointer for each in first.fields} == {"/modified_arguments"}
    assert kinds(rest) == {"CONFIG"}


@pytest.mark.parametrize("type_", ["InferenceCompleted", "ToolReceiptRecorded", "ApprovalGranted"])
def test_what_a_run_does_not_come_to_for_a_missing_fact_is_a_missing_record(type_: str) -> None:
    events = approved().events
    gone = next(event for event in events if event.type == type_)
    found = replay_session(Asked([event for event in events if event is not gone], STOP))
    assert found.counts.missed == 1
    assert kinds(found.divergences) == {"MISSING_RECORD"}
    assert found.divergences[0].because == f"the run ended: {found.stopped}"
    assert found.divergences[0].seq > gone.seq


def test_what_a_run_does_not_come_to_behind_another_difference_is_due_to_that() -> None:
    events = scene().events
    found = replay_session(Asked(events, STOP, override=deny("look")))
    assert kinds(found.divergences) == {"CONFIG"}


def test_a_build_that_decides_otherwise_is_code() -> None:
    events = scene().events
    without = [event for event in again(events).events if event.type != "TurnCompleted"]
    assert kinds(compare_run(events, without).divergences) == {"CODE"}

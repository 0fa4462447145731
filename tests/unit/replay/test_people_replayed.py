"""People's answers from a script in a run: what they replace, what is missing, and what follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dalsegno.errors import NotReconstructable
from dalsegno.harness.people import ScriptedPeople
from dalsegno.model.records import Event
from dalsegno.orchestration.documents import Question
from dalsegno.replay.compared import compare_run
from dalsegno.replay.strategy import Strategy
from decider_lab import Scene, stage
from rerun_lab import STOP, Counted, again, approved, started

SCRIPT = replace(STOP, approvals="script")
GRANT = ScriptedPeople([{"tool": "write", "answer": "grant"}])
DENY = ScriptedPeople([{"answer": "deny"}])


def asked() -> list[Event]:
    questions = [Question(id="file", prompt="which?"), Question(id="how", prompt="how?")]
    found = Scene([stage(ask=questions, validators=["said"])])
    found.provide("work.1/q.file", text=b"a.txt")
    found.provide("work.1/q.how", text=b"slowly")
    found.answer("done")
    return found.events


def test_a_script_that_says_the_same_comes_to_the_same() -> None:
    recorded = approved().events
    found = again(recorded, SCRIPT, people=GRANT)
    assert found.ended
    assert compare_run(recorded, found.events).divergences == []
    granted = next(event for event in found.events if event.type == "ApprovalGranted")
    assert granted.meta["origin"] is None, "it was not served"
    assert [event.type for event in found.left_over] == ["ApprovalGranted"]


def test_what_a_script_denies_is_not_started() -> None:
    found = again(approved().events, SCRIPT, people=DENY)
    assert started(found.events) == set()
    assert "ApprovalDenied" in [event.type for event in found.events]


def test_what_a_script_does_not_answer_is_a_miss() -> None:
    nobody = ScriptedPeople([{"match": "other", "answer": "grant"}])
    found = again(approved().events, SCRIPT, people=nobody)
    assert (found.ended, found.counts.missed, found.stopped) == (False, 1, "nobody answers work.1/t1/c0/a1")
    with pytest.raises(NotReconstructable, match="nobody answers"):
        again(approved().events, replace(SCRIPT, on_miss="fail"), people=nobody)


def test_a_question_is_answered_by_the_record_unless_a_rule_of_the_script_fits_it() -> None:
    recorded = asked()
    served = again(recorded, SCRIPT, people=GRANT)
    assert served.ended
    assert served.counts.exact == 3
    for rule, wanted in (("*/q.*", [b"b.txt", b"b.txt"]), ("*/q.file", [b"b.txt", b"slowly"])):
        other = again(recorded, SCRIPT, people=ScriptedPeople([{"match": rule, "text": "b.txt"}]))
        assert other.ended
        given = {e.body["request_id"]: e.body["content"]["inline"] for e in other.events if e.type == "InputProvided"}
        assert [given["work.1/q.file"], given["work.1/q.how"]] == wanted


def test_a_script_gives_leave_where_tools_are_executed_and_recorded_leave_does_not_count() -> None:
    counted = Counted()
    executed = Strategy(mode="simulation", tools="execute", approvals="script", on_miss="stop")
    found = again(approved().events, executed, ports=counted.ports, people=GRANT)
    assert [call.name for call in counted.runs] == ["write"]
    assert found.ended

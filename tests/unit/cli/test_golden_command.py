"""`dalsegno golden record|check|update`: what they write, refuse, find and end with, over the shards of one machine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dalsegno.harness.tools import load_tools
from dalsegno.model.records import Event
from dalsegno.orchestration import policy
from dalsegno.orchestration.policy import PolicyOutcome
from dalsegno.replay.serving import INEXACT
from dalsegno.testing import simulate
from dalsegno.testing.builder import SessionBuilder
from looking_lab import SCRIPT, TOOLS, WORKFLOW
from reader_lab import House
from shard_lab import apply

Say = Callable[..., tuple[str, str]]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("workflow.yaml").write_text(WORKFLOW)
    Path("script.yaml").write_text(SCRIPT)
    Path("tools.py").write_text(TOOLS)
    return tmp_path


def recording(workflow: str = WORKFLOW) -> list[Event]:
    file = Path("recorded.yaml")
    file.write_text(workflow)
    found = simulate(file, goal="find it", script="script.yaml", tools=load_tools("tools.py"))
    assert (found.outcome, found.stopped) == ("SUCCESS", None)
    return found.events


def session(name: str, events: list[Event], *, profile: str = "STRICT") -> SessionBuilder:
    """These events as records of a session."""
    builder = SessionBuilder(name, profile=profile)
    for event in events:
        body = {field: value for field, value in event.body.items() if field != "meta"}
        if event.type == "SessionCreated":
            body["profile"] = profile
        builder.append(event.type, meta={"origin": event.meta["origin"]}, **body)
    assert [verdict for verdict in builder.verdicts if verdict.violations] == []
    return builder


SIMULATE = (
    "--workflow", "workflow.yaml", "--goal", "find it", "--script", "script.yaml", "--tools", "tools.py",
)  # fmt: skip


def test_a_session_is_recorded_and_is_decided_so_still(house: House, say: Say) -> None:
    house.shard(session("s-1", recording()).records)
    _, err = say("golden", "record", "s-1", "--output", "one.jsonl")
    assert "true at" in err
    assert "otherwise" not in err
    lines = [json.loads(line) for line in Path("one.jsonl").read_text().splitlines()]
    assert lines[0]["session"] == "s-1"
    assert lines[0]["decided_by"]["decider"] == 1
    assert lines[-1]["end"] == sum("decision" in line for line in lines)
    answer = json.loads(say("-o", "json", "golden", "check", "one.jsonl")[0])
    assert (answer["same"], answer["session"], answer["difference"]) == (True, "s-1", None)
    assert "same       yes" in say("golden", "check", "one.jsonl", "--session", "s-1")[0]
    say("golden", "check", "one.jsonl", "--bisect-exit")
    assert "is there already" in say("golden", "record", "s-1", "--output", "one.jsonl", code=5)[1]


def test_a_session_of_another_name_and_time_has_the_same_reference(house: House, say: Say) -> None:
    house.shard([*session("s-1", recording()).records, *session("another", recording()).records])
    say("golden", "record", "s-1", "--output", "one.jsonl")
    say("golden", "check", "one.jsonl", "--session", "another")
    say("golden", "check", "one.jsonl", *SIMULATE)


def test_the_first_changed_decision_is_named_with_its_fields_and_how_many_more(house: House, say: Say) -> None:
    other = WORKFLOW.replace('== "y"', '== "z"')
    house.shard([*session("s-1", recording()).records, *session("s-2", recording(other)).records])
    say("golden", "record", "s-1", "--output", "one.jsonl")
    out, _ = say("golden", "check", "one.jsonl", "--session", "s-2", code=3)
    assert "another configuration: POLICY" in out
    assert "PolicyEvaluated of work.1/t2/c0/d1: decision 'ALLOW' -> 'DENY'" in out
    assert "more lines differ" in out
    say("golden", "check", "one.jsonl", "--session", "s-2", "--bisect-exit", code=1)
    answer = json.loads(say("-o", "json", "golden", "check", "one.jsonl", "--session", "s-2", code=3)[0])
    assert answer["difference"]["led_to"]["actual"]["says"]["decision"] == "DENY"
    assert answer["difference"]["more"] > 1


@pytest.mark.parametrize(
    ("line", "other", "said"),
    [
        ('== "y"', '== "x"', "PolicyEvaluated of work.1/t1/c0/d1: decision 'ALLOW' -> 'DENY'"),
        ("validators: [said]}", "validators: []}", "StageCompleted of work.1 in the place of ValidationRequested"),
        ('"Task: {goal}"', '"Do: {goal}"', "ContextPackBuilt of work.1/t1/p"),
        ('== "y"', '== "never"', None),
    ],
)
def test_a_changed_line_is_found_without_any_log(say: Say, line: str, other: str, said: str | None) -> None:
    say("golden", "record", "--output", "one.jsonl", *SIMULATE)
    say("golden", "check", "one.jsonl", *SIMULATE)
    assert WORKFLOW.count(line) == 1
    Path("workflow.yaml").write_text(WORKFLOW.replace(line, other))
    out, _ = say("golden", "check", "one.jsonl", *SIMULATE, code=3)
    assert out.count("line 1: another configuration") == 1
    assert said in out if said is not None else "decision" not in out.partition("line 1")[2].partition("\n")[0]
    if said is None:
        assert "more lines differ" not in out


def test_this_build_deciding_otherwise_is_found_and_said_when_recording(
    house: House, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.shard(session("s-1", recording()).records)
    say("golden", "record", "s-1", "--output", "one.jsonl")
    evaluated = policy.evaluate

    def strict(*arguments: Any, **named: Any) -> PolicyOutcome:
        found: PolicyOutcome = evaluated(*arguments, **named)
        return replace(found, explanation="because")

    monkeypatch.setattr(policy, "evaluate", strict)
    out, _ = say("golden", "check", "one.jsonl", code=3)
    assert "explanation" in out
    assert "decides it otherwise already: line" in say("golden", "record", "s-1", "--output", "two.jsonl")[1]


def test_an_update_shows_what_changes_and_asks(say: Say) -> None:
    say("golden", "record", "--output", "one.jsonl", *SIMULATE)
    before = Path("one.jsonl").read_bytes()
    assert "written" in say("golden", "update", "one.jsonl", *SIMULATE)[0]
    assert Path("one.jsonl").read_bytes() == before
    Path("workflow.yaml").write_text(WORKFLOW.replace('== "y"', '== "x"'))
    _, err = say("golden", "update", "one.jsonl", *SIMULATE, code=2)
    assert "no terminal to ask on" in err
    assert '-{"decision": ' in err
    assert '"decision": "DENY"' in err
    assert Path("one.jsonl").read_bytes() == before
    say("golden", "update", "one.jsonl", *SIMULATE, "--yes")
    say("golden", "check", "one.jsonl", *SIMULATE)
    assert sorted(path.name for path in Path().glob("one.jsonl*")) == ["one.jsonl"]


def test_what_is_no_reference_and_what_cannot_be_decided_says_why(house: House, say: Say) -> None:
    events = recording()
    observed = SessionBuilder("seen", profile="OBSERVED").begin()
    torn = session("torn", events).records
    house.shard([*session("s-1", events).records, *observed.records, *torn[:20], *torn[21:]])
    for name, said in (("seen", "was not decided by dalsegno"), ("torn", "is held at seq 21")):
        assert said in say("golden", "record", name, "--output", "no.jsonl", code=5)[1]
    assert not Path("no.jsonl").exists()
    say("golden", "record", "nobody", "--output", "no.jsonl", code=4)
    say("golden", "record", "s-1", "--output", "nowhere/no.jsonl", code=2)
    assert "nothing is named" in say("golden", "record", "--output", "no.jsonl", code=2)[1]
    assert "without --workflow" in say("golden", "record", "s-1", "--output", "n", "--goal", "x", code=2)[1]
    assert "--goal and --script" in say("golden", "record", "--output", "n", "--workflow", "w", code=2)[1]
    assert "one of them" in say("golden", "record", "s-1", "--output", "n", *SIMULATE, code=2)[1]
    assert "there is no file" in say("golden", "check", "no.jsonl", code=4)[1]
    Path("cut.jsonl").write_text('{"golden": 1}\n')
    assert "cut off" in say("golden", "check", "cut.jsonl", code=1)[1]
    say("golden", "check", "cut.jsonl", "--bisect-exit", code=125)


def test_a_tainted_session_is_refused_unless_asked_for(house: House, say: Say) -> None:
    events = recording()
    at = next(place for place, event in enumerate(events) if event.type == "InferenceCompleted")
    origin = {"importer": INEXACT, "native_ref": "s:1", "synthesized": False}
    events[at].meta = {**events[at].meta, "origin": origin}
    house.shard(session("s-1", events).records)
    assert f"tainted: the result at seq {at + 1}" in say("golden", "record", "s-1", "--output", "t", code=5)[1]
    say("golden", "record", "s-1", "--output", "t", "--allow-tainted")
    say("golden", "check", "t", code=5)
    say("golden", "check", "t", "--allow-tainted")


def test_a_session_of_which_something_was_taken_out_is_refused(house: House, say: Say) -> None:
    built = session("s-1", recording())
    shard = house.shard(built.records)
    apply(shard, [built.amend([built.records[12]])])
    assert "was amended: the" in say("golden", "record", "s-1", "--output", "a.jsonl", code=5)[1]


def test_the_shards_are_left_as_they_were(house: House, say: Say) -> None:
    house.shard(session("s-1", recording()).records)
    before = {path: path.read_bytes() for path in house.data.rglob("*") if path.is_file()}
    say("golden", "record", "s-1", "--output", "one.jsonl")
    say("golden", "check", "one.jsonl")
    assert {path: path.read_bytes() for path in house.data.rglob("*") if path.is_file()} == before
    assert os.environ.get("EXAMPLE_FOLDER") is None


ASKING = """
name: asking
agents: {a: {provider: model, model: small, prompt: main}}
stages:
  - name: work
    agent: a
    tools: [look]
    validators: [checked]
    retrieve: [{id: kb, kind: FILE, query: notes.txt}]
prompts: {main: "Task: {goal}"}
validators: [{name: checked, reporter: judge}]
policy: {rules: [{id: ask, decision: REQUIRE_APPROVAL}]}
"""
REPORTERS = """
from dalsegno.orchestration.ports import Verdict

def judge(*_):
    return Verdict("PASS")
"""


def test_a_simulation_asks_reporters_files_and_people_that_are_given(say: Say) -> None:
    Path("workflow.yaml").write_text(ASKING)
    Path("reporters.py").write_text(REPORTERS)
    Path("docs").mkdir()
    Path("docs", "notes.txt").write_text("the words that are fetched")
    given = (*SIMULATE, "--reporter", "judge=reporters.py:judge", "--files", "docs")
    _, err = say("golden", "record", "--output", "stopped.jsonl", *given)
    assert "the simulation stopped before the session's end" in err
    for way, said in (("grant", "ToolCallAuthorized"), ("deny", "ToolCallRejected")):
        say("golden", "record", "--output", f"{way}.jsonl", *given, "--approvals", way)
        text = Path(f"{way}.jsonl").read_text()
        assert said in text
        assert '"verdict": "PASS"' in text
        assert "SessionCompleted" in text
        say("golden", "check", f"{way}.jsonl", *given, "--approvals", way)
    say("golden", "check", "grant.jsonl", *given, "--approvals", "deny", code=3)


def test_a_session_whose_documents_are_nowhere_is_no_reference(house: House, say: Say) -> None:
    bare = SessionBuilder("bare").begin()
    bare.append("TurnStarted", turn_id="t1")
    house.shard(bare.records)
    _, err = say("golden", "record", "bare", "--output", "no.jsonl", code=1)
    assert "is missing" in err
    assert not Path("no.jsonl").exists()

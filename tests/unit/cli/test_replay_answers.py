"""What `dalsegno replay run` of sessions shows and ends with: what cannot be compared, for git bisect, hostile text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dalsegno.cli import replaying
from dalsegno.orchestration.documents import CompressionRule, Triggers
from dalsegno.testing import MemoryLog, MemoryPublisher
from dalsegno.testing.builder import SessionBuilder
from decider_lab import Scene, stage
from policy_lab import Calls
from reader_lab import PREFIX, House
from replay_lab import decided, records_of

Say = Callable[..., tuple[str, str]]
RUN = ("replay", "run", "--mode")


def marked() -> SessionBuilder:
    """Its compression says only that it happened."""
    rules = [CompressionRule(id="trim", method="TRIM", when=Triggers(turns=1))]
    found = Scene([stage(validators=["said"])], rules=rules)
    for number in (1, 2):
        found.answer("", ("look", {"what": f"a{number}"}))
        found.run(f"work.1/t{number}/c0")
    found.answer("done")
    events = [
        msgspec.structs.replace(event, body={**event.body, "effect": "MARKER_ONLY"})
        if event.type == "CompressionCompleted"
        else event
        for event in found.events
    ]
    return records_of("s-2", events)


@pytest.mark.parametrize("mode", ["full", "inference-skipping", "simulation"])
def test_what_cannot_be_reconstructed_is_answered_by_from_where_on_and_why(house: House, say: Say, mode: str) -> None:
    session = marked()
    at = next(event.seq for event in session.events if event.type == "CompressionCompleted")
    house.shard([*records_of("s-1", decided()).records, *session.records])
    out, _ = say(*RUN, mode, "--session", "s-2", code=1)
    assert "NOT_COMPARED" in out
    assert f"  cannot be reconstructed from seq {at}, because the compression at seq {at} says only" in out
    say(*RUN, mode, "--session", "s-2", "--bisect-exit", code=125)
    say(*RUN, mode, "--session", "s-2", "--until", str(at - 1), code=0)
    # The others are replayed all the same.
    found = json.loads(say("-o", "json", *RUN, mode, "--all", code=1)[0])
    assert [(each["session"], each["verdict"]) for each in found] == [("s-1", "EQUAL"), ("s-2", "NOT_COMPARED")]
    assert found[1]["unreconstructable_from"] == at


def test_what_cannot_be_made_again_leaves_no_fork(house: House, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    def unwanted(*_: object, **__: object) -> None:
        raise AssertionError("a fork is begun")

    monkeypatch.setattr(replaying, "Publisher", unwanted)
    (house.data.parent / "script.yaml").write_text("[]")
    house.shard([*marked().records, *Calls("s-3").asked("a").ran("a").records])
    again = ("full", "--inference", "rerun", "--provider", "scripted:script.yaml")
    found = json.loads(say("-o", "json", *RUN, *again, "--all", code=1)[0])
    assert [(each["session"], each["verdict"], each["fork"]) for each in found] == [
        ("s-2", "NOT_COMPARED", None),
        ("s-3", "NOT_COMPARED", None),
    ]
    assert found[1]["not_comparable"] == {"the session is not decided by a decider": 1}


def missing(name: str) -> list[Any]:
    """A session whose second answer nobody recorded."""
    gone = [event for event in decided(3) if event.type == "InferenceCompleted"][1]
    builder = SessionBuilder(name, profile="STRICT")
    for event in decided(3):
        if event.seq != gone.seq:
            builder.append(event.type, **{field: value for field, value in event.body.items() if field != "meta"})
    return list(builder.records)


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("mode", ["full", "simulation"])
def test_a_miss_is_its_sessions_result_and_the_others_are_replayed(
    house: House, say: Say, mode: str, jobs: str
) -> None:
    house.shard([*missing("s-1"), *records_of("s-2", decided()).records, *missing("s-3")])
    out, _ = say("-o", "json", *RUN, mode, "--all", "--jobs", jobs, code=1)
    found = json.loads(out)
    assert [(each["session"], each["verdict"]) for each in found] == [
        ("s-1", "NOT_COMPARED"), ("s-2", "EQUAL"), ("s-3", "NOT_COMPARED"),
    ]  # fmt: skip
    assert found[0]["stopped"] == "INFER of work.1/t2/i: the recording has no answer for it"
    assert found[0]["missed"] == 1
    text, _ = say(*RUN, mode, "--all", "--jobs", jobs, code=1)
    assert "stopped: INFER of work.1/t2/i" in text
    say(*RUN, mode, "--all", "--bisect-exit", code=125)


def test_a_miss_in_a_fork_is_its_sessions_result_and_names_the_fork(
    house: House, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [*missing("s-1"), *records_of("s-2", decided()).records]
    house.shard(records)
    log = MemoryLog(partitions=1)
    for record in records:
        log.put(f"{PREFIX}.events", 0, record.key, record.value)
    monkeypatch.setenv("DALSEGNO_KAFKA__BOOTSTRAP_SERVERS", "nowhere:1")
    monkeypatch.setattr(replaying, "Publisher", lambda _, **options: MemoryPublisher(log, writer="r/1/a", **options))
    (house.data.parent / "same.yaml").write_text("{name: same}")
    found = json.loads(say("-o", "json", *RUN, "full", "--all", "--policy", "same.yaml", code=1)[0])
    assert [(each["verdict"], each["fork"][:4]) for each in found] == [("NOT_COMPARED", "s-1~"), ("EQUAL", "s-2~")]
    assert found[0]["stopped"].startswith("INFER of work.1/t2/i")


@pytest.mark.parametrize("mode", ["full", "simulation"])
def test_people_answer_as_a_script_says(house: House, say: Say, mode: str) -> None:
    house.shard([*records_of("s-1", decided(approve=True)).records, *records_of("s-2", decided()).records])
    script = house.data.parent / "people.yaml"

    def answered(rules: str, code: int, *options: str) -> list[dict[str, Any]]:
        script.write_text(rules)
        scripted = ("--approvals", "script", "--approvals-from", str(script), *options)
        return list(json.loads(say("-o", "json", *RUN, mode, "--all", *scripted, code=code)[0]))

    granted = answered("- {tool: write, answer: grant}", 0)
    assert [each["verdict"] for each in granted] == ["EQUAL", "EQUAL"]
    assert granted[0]["left_over"] == 1, "the leave of then"
    denied = answered("- {answer: deny}", 3, "--on-miss", "stop")
    assert [each["verdict"] for each in denied] == ["DIVERGED", "EQUAL"]
    first = denied[0]["divergences"][0]
    assert (first["type"], first["kind"]) == ("ApprovalGranted", "CONFIG")
    nobody = answered("- {tool: look, answer: grant}", 1)
    assert [each["verdict"] for each in nobody] == ["NOT_COMPARED", "EQUAL"]
    assert nobody[0]["stopped"] == "nobody answers work.1/t1/c1/a1"


@pytest.mark.parametrize("mode", ["full", "simulation"])
def test_a_policy_that_has_somebody_asked_shows_what_it_changed_and_how_to_go_on(
    house: House, say: Say, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = records_of("s-1", decided()).records
    house.shard(records)
    log = MemoryLog(partitions=1)
    for record in records:
        log.put(f"{PREFIX}.events", 0, record.key, record.value)
    monkeypatch.setenv("DALSEGNO_KAFKA__BOOTSTRAP_SERVERS", "nowhere:1")
    monkeypatch.setattr(replaying, "Publisher", lambda _, **options: MemoryPublisher(log, writer="r/1/a", **options))
    rule = {"id": "ask", "decision": "REQUIRE_APPROVAL", "when": 'call.tool == "write"'}
    (house.data.parent / "ask.yaml").write_text(json.dumps({"name": "ask", "rules": [rule]}))
    arguments = (*RUN, mode, "--all", "--policy", "ask.yaml")
    text, _ = say(*arguments, code=3)
    assert f"s-1  {mode}  DIVERGED" in text
    assert "PolicyEvaluated (D)  CONFIG  work.1/t1/c1/d1" in text
    assert "+ REQUIRE_APPROVAL" in text
    assert "stopped: nobody answers work.1/t1/c1/a1" in text
    [todo] = [line for line in text.splitlines() if "to do: " in line]
    assert "--on-miss stop" in todo
    assert "--approvals deny, or script" in todo
    [failed], [stopped] = (
        json.loads(say("-o", "json", *arguments, "--on-miss", how, code=3)[0]) for how in ("fail", "stop")
    )
    assert failed["divergences"][0] == stopped["divergences"][0]
    assert (failed["equal"], failed["served"]) == (stopped["equal"], stopped["served"])
    assert failed["compared"] < stopped["compared"]
    assert [each["type"] for each in failed["divergences"]] == ["PolicyEvaluated", "ApprovalRequested"]


def test_git_bisect_is_told_the_same_or_differs(house: House, say: Say) -> None:
    house.shard(records_of("s-1", decided()).records)
    (house.data.parent / "deny.yaml").write_text("{name: deny, default: DENY}")
    for mode in ("full", "inference-skipping", "simulation"):
        say(*RUN, mode, "--all", "--bisect-exit", code=0)
    say(*RUN, "inference-skipping", "--all", "--policy", "deny.yaml", "--bisect-exit", code=1)
    say(*RUN, "inference-skipping", "--all", "--policy", "absent.yaml", "--bisect-exit", code=125)
    say(*RUN, "inference-skipping", "--session", "nobody", "--bisect-exit", code=125)


def test_what_acts_on_a_terminal_is_written_out(house: House, say: Say) -> None:
    house.shard(records_of("s-1", decided()).records)
    rule = {"id": "no", "decision": "DENY", "when": 'call.tool == "write"', "explanation": "\x1b[1m\u202e"}
    (house.data.parent / "odd.yaml").write_text(json.dumps({"name": "odd", "rules": [rule]}))
    for form in ("text", "json", "jsonl"):
        out, err = say("-o", form, *RUN, "inference-skipping", "--all", "--policy", "odd.yaml", code=3)
        assert "u001b[1m" in out, err
        assert all(character.isprintable() for line in out.splitlines() for character in line)
    assert say("-o", "none", *RUN, "inference-skipping", "--all", "--policy", "odd.yaml", code=3)[0] == ""


def test_a_session_of_another_harness_is_compared_where_it_can_be(house: House, say: Say) -> None:
    house.shard(Calls("s-3").asked("a").ran("a").records)
    out, _ = say(*RUN, "inference-skipping", "--session", "s-3", code=1)
    assert "not compared: no recorded answer asks for the call" in out
    out, _ = say(*RUN, "full", "--session", "s-3", code=1)
    assert "not compared: the session is not decided by a decider" in out

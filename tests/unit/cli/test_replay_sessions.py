"""`dalsegno replay plan|run` of sessions, over the shards of one machine: no broker is asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dalsegno.cli import replay_plans, replay_sessions, replaying
from dalsegno.harness.tools import load_tools
from dalsegno.log.codec import decode_record
from dalsegno.log.kafka import KafkaConfig
from dalsegno.model.records import Event
from dalsegno.replay import modes
from dalsegno.testing import MemoryLog, MemoryPublisher, simulate
from dalsegno.testing.builder import SessionBuilder
from looking_lab import SCRIPT, TOOLS, WORKFLOW
from reader_lab import PREFIX, House

Say = Callable[..., tuple[str, str]]

DENY = "name: stricter\nrules: [{id: deny-z, decision: DENY, when: 'call.arguments.what == \"z\"'}]\n"
MODES = ("inference-skipping", "full", "simulation")


@pytest.fixture(autouse=True)
def recorded(
    house: House,
    say: Say,  # noqa: ARG001  # it takes all settings away first
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> list[Event]:
    """s-1 and s-2 are alike."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DALSEGNO_KAFKA__BOOTSTRAP_SERVERS", "nowhere:1")  # else one would be started
    for name, text in (("workflow", WORKFLOW), ("script", SCRIPT), ("policy", DENY)):
        Path(f"{name}.yaml").write_text(text)
    Path("tools.py").write_text(TOOLS)
    found = simulate("workflow.yaml", goal="find it", script="script.yaml", tools=load_tools("tools.py"))
    assert found.outcome == "SUCCESS"
    house.shard([record for name in ("s-1", "s-2") for record in session(name, found.events)])
    return found.events


def session(name: str, events: list[Event]) -> list[Any]:
    builder = SessionBuilder(name, profile="STRICT")
    for event in events:
        body = {field: value for field, value in event.body.items() if field != "meta"}
        builder.append(event.type, meta={"origin": event.meta["origin"]}, **body)
    return list(builder.records)


@pytest.mark.parametrize("mode", MODES)
def test_a_session_that_is_decided_as_it_was_is_equal(say: Say, mode: str) -> None:
    out, err = say("replay", "run", "--mode", mode, "--session", "s-1")
    assert f"s-1  {mode}  EQUAL" in out
    assert "identity" in err
    [found] = json.loads(say("-o", "json", "replay", "run", "--mode", mode, "--session", "s-1")[0])
    assert (found["verdict"], found["diverged"], found["divergences"], found["tainted"]) == ("EQUAL", 0, [], False)
    say("replay", "run", "--mode", mode, "--session", "s-1", "--bisect-exit")


def test_a_session_whole_workflow_or_all_are_chosen_and_none_by_accident(say: Say) -> None:
    for chosen in (("--session", "s-1", "--session", "s-2"), ("--workflow", "one"), ("--all",)):
        lines = say("-o", "jsonl", "replay", "run", "--mode", "inference-skipping", *chosen)[0].splitlines()
        assert [json.loads(line)["session"] for line in lines] == ["s-1", "s-2"]
    for verb in ("run", "plan"):
        assert "--session" in say("replay", verb, "--mode", "inference-skipping", code=2)[1]
    say("replay", "run", "--mode", "inference-skipping", "--workflow", "other", code=4)
    say("replay", "run", "--mode", "inference-skipping", "--session", "nobody", code=4)


@pytest.mark.parametrize("mode", ["inference-skipping", "simulation"])
def test_what_another_policy_decides_is_shown_first_and_how_many_more(
    say: Say, mode: str, recorded: list[Event]
) -> None:
    seq = [event.seq for event in recorded if event.type == "PolicyEvaluated"][1]
    arguments = ("replay", "run", "--mode", mode, "--on-miss", "stop", "--session", "s-1", "--policy", "policy.yaml")
    out, _ = say(*arguments, code=3)
    assert f"seq {seq}  PolicyEvaluated (D)  CONFIG  work.1/t2/c0/d1" in out
    assert "/decision  - ALLOW" in out
    assert "+ DENY" in out
    assert ("and 1 more" in out) == (mode == "simulation") or "more" in out


def test_identities_say_by_which_documents(say: Say) -> None:
    def identity(*options: str, code: int = 0) -> str:
        out = say(
            "-o", "json", "replay", "run", "--mode", "inference-skipping", "--session", "s-1", *options, code=code
        )
        return str(json.loads(out[0])[0]["identity"])

    same = Path("same.yaml")
    same.write_text("name: same\n")
    found = {identity(), identity("--policy", "policy.yaml", code=3), identity("--policy", "same.yaml")}
    found |= {identity("--from", "20"), identity("--until", "20")}
    assert len(found) == 5
    assert identity() in found


def test_another_workflow_is_taken_with_the_prompts_that_it_names(say: Say) -> None:
    Path("other.yaml").write_text(WORKFLOW.replace("Task: ", "Do: "))
    arguments = ("replay", "run", "--mode", "inference-skipping", "--session", "s-1", "--workflow-file")
    assert "ContextPackBuilt (D)  CONFIG  work.1/t1/p" in say(*arguments, "other.yaml", code=3)[0]
    say(*arguments, "workflow.yaml")


@pytest.mark.parametrize(
    "options",
    [
        ("--tools", "execute", "--tools-from", "tools.py"),
        ("--inference", "rerun"),
        ("--from", "nowhere"),
        ("--from", "session:s-2@4"),
        ("--tools", "simulate"),
        ("--approvals", "script"),
        ("--approvals-from", "people.yaml"),
    ],
)
def test_what_a_mode_does_not_do_is_refused(say: Say, options: tuple[str, ...]) -> None:
    say("replay", "run", "--mode", "inference-skipping", "--session", "s-1", *options, code=2)
    say("replay", "run", "--mode", "full", "--session", "s-1", *options, code=2)


def test_tools_are_executed_in_a_simulation_that_names_them(say: Say) -> None:
    out, _ = say(
        "-o", "json", "replay", "run", "--mode", "simulation", "--session", "s-1", "--tools", "execute",
        "--tools-from", "tools.py",
    )  # fmt: skip
    [found] = json.loads(out)
    assert (found["verdict"], found["rerun"], found["simulated"]) == ("EQUAL", 2, 0)


@pytest.mark.parametrize("command", [("modes",), ("plan", "--help"), ("run", "--help")])
def test_the_modes_say_what_they_do(say: Say, command: tuple[str, ...]) -> None:
    out, _ = say("replay", *command)
    for mode, actions in modes.MODES.items():
        lines = out[out.index(f"{mode}:") :].splitlines()
        shown = [line.strip() for line in lines[1 : 1 + len(actions)]]
        assert shown == [f"{what}: {action}" for what, action in actions.items()]


def test_where_nobody_says_otherwise_a_test_compresses_again(say: Say) -> None:
    def compression(mode: str, *options: str) -> str:
        out, _ = say("-o", "json", "replay", "run", "--mode", mode, "--session", "s-1", *options)
        return str(json.loads(out)[0]["strategy"].partition("compression=")[2].partition(" ")[0])

    assert [compression(mode) for mode in MODES] == ["recompute", "recorded", "recompute"]
    for how in ("recorded", "recompute"):
        assert {compression(mode, "--compression", how) for mode in MODES} == {how}


def test_what_people_answer_is_taken_from_a_script_and_is_in_the_identity(say: Say) -> None:
    def found(rules: str) -> dict[str, Any]:
        Path("people.yaml").write_text(rules)
        options = ("--approvals", "script", "--approvals-from", "people.yaml")
        out, _ = say("-o", "json", "replay", "run", "--mode", "full", "--session", "s-1", *options)
        return dict(json.loads(out)[0])

    one, other = found("- {answer: grant}"), found("- {answer: deny}")
    assert (one["verdict"], other["verdict"]) == ("EQUAL", "EQUAL"), "nobody is asked"
    assert one["identity"] != other["identity"]
    Path("people.yaml").write_text("- {answer: perhaps}")
    say("replay", "run", "--mode", "full", "--all", "--approvals", "script", "--approvals-from", "people.yaml", code=1)


def test_what_came_of_a_replay_is_recorded_where_that_is_asked_for(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    written: dict[str, list[tuple[str, bytes]]] = {}

    def write(topic: str, records: Iterable[tuple[str, bytes]]) -> None:
        written.setdefault(topic, []).extend(records)

    monkeypatch.setattr(replay_plans, "write_records", lambda _, topic, records: write(topic, records))
    monkeypatch.setattr(replay_sessions, "RecordWriter", lambda _, topic: SimpleNamespace(write=partial(write, topic)))
    arguments = ("replay", "run", "--mode", "simulation", "--on-miss", "stop", "--policy", "policy.yaml", "--session")
    say(*arguments, "s-1", code=3)
    assert written == {}
    _, err = say(*arguments, "s-1", "--record", "--from", "20", code=3)
    [(topic, records)] = written.items()
    assert topic == f"{PREFIX}.replays"
    plan = records[0][0].partition(":")[0]
    assert f"recorded as {plan}" in err
    id = f"{plan}.1"
    assert {key.partition(":")[0] for key, _ in records[1:]} == {id}
    decoded = {key.removeprefix(f"{id}:"): decode_record(value) for key, value in records[1:]}
    kind, started = decoded["started:0"]
    assert (kind, started["mode"], started["session_id"], started["from_seq"]) == (
        "ReplayStarted", "SIMULATION", "s-1", 20,
    )  # fmt: skip
    assert started["compression"] == "RECOMPUTE"
    assert {each["what"]: each["action"] for each in started["actions"]} == {
        **modes.MODES["simulation"],
        "decisions": "made again, compared by domain id",
        "answers of models": "recorded",
        "results of tools": "recorded receipts; a miss stops it",
        "people and the world": "recorded",
    }
    kind, first = decoded["diverged:1"]
    assert (kind, first["kind"], first["domain_id"]) == ("ReplayDiverged", "CONFIG", "work.1/t2/c0/d1")
    assert "/decision" in first["aspect"]
    assert first["expected"] != first["actual"]
    inexact = [record for kind, record in decoded.values() if "served inexactly" in str(record.get("aspect"))]
    assert [record["kind"] for record in inexact] == ["PROMPT_DRIFT"]
    kind, completed = decoded["completed:0"]
    assert (kind, completed["verdict"]) == ("ReplayCompleted", "DIVERGED")
    assert completed["diverged"] == len(decoded) - 2 - len(inexact)


@pytest.fixture
def log(recorded: list[Event], monkeypatch: pytest.MonkeyPatch) -> MemoryLog:
    """The sessions' records, in a log that may be written to."""
    made = MemoryLog(partitions=1)
    for name in ("s-1", "s-2"):
        for record in session(name, recorded):
            made.put(f"{PREFIX}.events", 0, record.key, record.value)

    def publisher(_: KafkaConfig, **options: Any) -> MemoryPublisher:
        return MemoryPublisher(made, writer="r/1/a", **options)

    monkeypatch.setattr(replaying, "Publisher", publisher)
    return made


def fork_of(found: dict[str, Any], log: MemoryLog) -> list[Event]:
    with MemoryPublisher(log, prefix=PREFIX, writer="r/2/a") as reader:
        return reader.events(found["fork"])


FULL = ("-o", "json", "replay", "run", "--mode", "full", "--session", "s-1")


def test_a_full_replay_by_another_policy_is_written_as_a_fork(say: Say, log: MemoryLog) -> None:
    [found] = json.loads(say(*FULL, "--on-miss", "stop", "--policy", "policy.yaml", code=3)[0])
    assert found["divergences"][0]["subject"] == "work.1/t2/c0/d1"
    written = fork_of(found, log)
    assert [event.type for event in written[:3]] == ["SessionCreated", "SessionForked", "ConfigPinned"]
    assert written[1].body["purpose"] == "WHAT_IF"
    assert "work.1/t2/c0" not in {e.body["tool_call_id"] for e in written if e.type == "ToolCallStarted"}


@pytest.mark.parametrize("asked", ["recorded", "rerun"])
def test_a_fork_looks_at_nothing_behind_until_and_may_go_on_from_there(
    say: Say, log: MemoryLog, recorded: list[Event], asked: str
) -> None:
    """A model that is asked again answers behind it, too: the record says nothing of that."""
    until = [event.seq for event in recorded if event.type == "TurnStarted"][1]
    Path("same.yaml").write_text("name: same\n")
    options = ("--policy", "same.yaml", "--inference", asked, "--provider", "scripted:script.yaml")
    [found] = json.loads(say(*FULL, *options, "--on-miss", "stop", "--until", str(until))[0])
    assert (found["verdict"], found["events"]) == ("EQUAL", until)
    answers = [event for event in fork_of(found, log) if event.type == "InferenceCompleted"]
    assert [event.body["inference_id"] for event in answers] == ["work.1/t1/i", "work.1/t2/i"][: 1 + (asked == "rerun")]


def test_a_full_replay_that_asks_another_model_pins_it_in_its_fork_and_asks_it(say: Say, log: MemoryLog) -> None:
    options = ("--inference", "rerun", "--provider", "scripted:script.yaml", "--model", "larger", "--on-miss", "stop")
    [found] = json.loads(say(*FULL, *options, code=3)[0])
    written = fork_of(found, log)
    assert found["rerun"] == 3
    assert {e.body["model"] for e in written if e.type == "InferenceRequested"} == {"larger"}
    assert written[-1].type == "SessionCompleted"
    with MemoryPublisher(log, prefix=PREFIX, writer="r/3/a") as reader:
        assert len(reader.events("s-1")) == found["events"]

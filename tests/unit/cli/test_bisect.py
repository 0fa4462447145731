"""`dalsegno bisect`: each thing that can be asked, what it costs, and what it ends with."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from math import ceil, log2
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dalsegno.model.lifecycle import MemoryOps, SessionState, judge
from dalsegno.orchestration.documents import PolicyRule
from dalsegno.projections.base import HeadFacts
from dalsegno.projections.registry import installed
from dalsegno.readers.bisecting import Bisecting, Range
from dalsegno.readers.breakpoints import parse_breakpoint
from dalsegno.readers.conditions import of_breakpoint
from dalsegno.readers.sessions import Step
from dalsegno.readers.versions import _Fold
from dalsegno.replay.serving import INEXACT
from dalsegno.testing.bench_flat import long_session
from dalsegno.testing.builder import SessionBuilder, Written, blob
from decider_lab import Scene
from policy_lab import Calls
from reader_lab import House
from shard_lab import folded, reads

Say = Callable[..., tuple[str, str]]
EVENTS = 600


@pytest.fixture
def ask(say: Say) -> Callable[..., dict[str, Any]]:
    """Runs the command for its JSON."""

    def command(*arguments: str, code: int = 0) -> dict[str, Any]:
        found = json.loads(say("-o", "json", "bisect", *arguments, code=code)[0])
        assert isinstance(found, dict)
        return found

    return command


Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def long(house: House) -> None:
    house.shard(long_records())


@cache
def long_records() -> list[Written]:
    return long_session(EVENTS)


def seq_of_call(number: int) -> int:
    """Where the long session asks for its n-th call."""
    calls = [r.event.seq for r in long_records() if r.event is not None and r.event.type == "ToolCallRequested"]
    return calls[number - 1]


# --- conditions -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("long")
def test_a_condition_on_the_state_takes_log2_restores_of_a_window_each(ask: Ask) -> None:
    found = ask("long", "--when", "state.tool_calls > 60")
    seq = seq_of_call(61)
    assert (found["way"], found["flips"], found["good"], found["bad"]) == ("halving", True, False, True)
    assert (found["seq"], found["last_before"], found["exact"]) == (seq, seq - 1, True)
    assert found["evaluations"] <= ceil(log2(EVENTS)) + 2
    assert 0 < found["most_folded"] <= 256
    assert found["folded"] <= found["evaluations"] * 256
    assert (found["event"]["seq"], found["event"]["type"]) == (seq, "ToolCallRequested")
    (row,) = [each for each in found["changes"] if each["projection"] == "sessions"]
    assert (row["before"]["tool_calls"], row["after"]["tool_calls"]) == (60, 61)


@pytest.mark.long
def test_a_hundred_thousand_events_take_nineteen_restores_of_256_events_at_most() -> None:
    reading = reads(folded(long_session(100_000)))
    found: Any = SimpleNamespace(session_id="long", view=SimpleNamespace(reads=reading))
    condition = parse_breakpoint("when state.tool_calls > 9999")
    bisecting = Bisecting(None, found, Range(1, 100_000))  # type: ignore[arg-type]
    answer = bisecting.halve(of_breakpoint(condition), condition.errors, verify=False)
    assert answer.flip is not None
    assert answer.flip.is_exact
    assert answer.evaluations <= ceil(log2(100_000)) + 2 == 19
    assert answer.most_folded <= 256
    assert reading.at("long", answer.flip.first_after).row("sessions").tool_calls == 10_000


@pytest.mark.usefixtures("long")
def test_it_is_said_in_words_with_what_the_event_changed(say: Say) -> None:
    text, err = say("bisect", "long", "--when", "state.tool_calls <= 60")
    seq = seq_of_call(61)
    lines = text.splitlines()
    assert lines[:2] == [
        f"long  {EVENTS} events  state.tool_calls <= 60", f"first false at seq {seq}, last true at seq {seq - 1}",
    ]  # fmt: skip
    assert lines[2].split()[0] == str(seq)
    assert any("tool_calls 60 -> 61" in line for line in lines)
    assert lines[-1].startswith("asked at ")
    assert err.startswith("true at p.events:0@")


def test_what_led_to_the_event_is_shown(house: House, ask: Ask, say: Say) -> None:
    builder = SessionBuilder("s", profile="OBSERVED").begin()
    builder.append("TurnStarted", turn_id="t1")
    turn = builder.events[-1]
    builder.append("NoteRecorded", kind="hint")
    builder.append("ToolCallRequested", tool_call_id="c", name="x", meta={"causation_id": turn.meta["event_id"]})
    house.shard(builder.records)
    assert ask("s", "--when", "state.tool_calls > 0")["causes"] == [
        {"seq": turn.seq, "type": "TurnStarted", "subject": "t1"}
    ]
    assert f"led to by  seq {turn.seq}  TurnStarted  t1" in say("bisect", "s", "--when", "state.tool_calls > 0")[0]


@pytest.mark.usefixtures("long")
def test_a_condition_on_the_event_alone_is_answered_in_one_pass(ask: Ask) -> None:
    seq = seq_of_call(61)
    found = ask("long", "--when", 'event.type == "ToolCallRequested" && event.tool_call_id == "i100061/c0"')
    assert (found["way"], found["seq"], found["read"], found["evaluations"]) == ("pass", seq, seq, 0)
    assert found["untold"] == {}
    later = ask("long", "--when", 'event.name == "t"', "--good", str(seq + 1))
    assert later["seq"] == seq_of_call(62)
    assert sum(later["untold"].values()) == later["seq"] - seq - 1, (
        "events without a name hold as little as in a stepper"
    )
    assert ask("long", "--when", 'event.type == "X"', code=3)["read"] == EVENTS
    assert ask("long", "--when", 'event.type == "SessionCreated"')["seq"] == 1


@pytest.mark.usefixtures("long")
def test_the_ends_may_be_chosen(ask: Ask, say: Say) -> None:
    seq = seq_of_call(61)
    assert ask("long", "--when", "state.tool_calls > 60", "--good", str(seq - 1), "--bad", str(seq))["seq"] == seq
    assert ask("long", "--when", "state.tool_calls > 60", "--bad", str(seq - 1), code=3)["flips"] is False
    assert ask("long", "--when", "state.tool_calls > 60", "--good", str(seq), code=3)["good"] is True
    assert ask("long", "--when", "state.tool_calls > 60", "--good", "7", "--bad", "7", code=3)["evaluations"] == 1
    for ends in (("--good", "9", "--bad", "8"), ("--bad", str(EVENTS + 1)), ("--good", "0")):
        say("bisect", "long", "--when", "true || state.x", *ends, code=2)


@pytest.mark.usefixtures("long")
def test_what_never_flips_is_said_with_how_far_that_goes(say: Say) -> None:
    text, err = say("bisect", "long", "--when", "state.tool_calls > 6000", code=3)
    assert "never flips: false at both ends" in text
    assert "asked at 2 seqs" in text
    assert "it was asked at the two ends alone" in err


@pytest.mark.usefixtures("long")
def test_an_end_that_cannot_be_judged(ask: Ask, say: Say) -> None:
    text, err = say("bisect", "long", "--when", "state.nosuch > 1", code=1)
    assert "good end: cannot be judged; bad end: cannot be judged" in text
    assert "could not be told at 2 events: no such key" in err
    assert ask("long", "--when", "state.nosuch > 1", code=1)["unjudged"] == [1, EVENTS]


@pytest.mark.usefixtures("long")
def test_seqs_that_cannot_be_judged_make_a_range(ask: Ask, say: Say) -> None:
    seq = seq_of_call(61)
    condition = f"event.seq > {seq - 3} && event.seq < {seq + 3} ? event.nosuch : state.tool_calls > 60"
    found = ask("long", "--when", condition)
    assert (found["last_before"], found["seq"], found["exact"]) == (seq - 3, seq + 3, False)
    assert found["unjudged"] == list(range(seq - 2, seq + 3))
    assert f"becomes true somewhere in seq {seq - 2} to {seq + 3}" in say("bisect", "long", "--when", condition)[0]


@pytest.mark.usefixtures("long")
def test_verifying_sees_that_it_flips_again_near_by(ask: Ask, say: Say) -> None:
    seq = seq_of_call(61)
    condition = f"state.tool_calls > 60 && event.seq != {seq + 2}"
    assert ask("long", "--when", condition)["contradicted_by"] == []
    assert ask("long", "--when", condition, "--verify")["contradicted_by"] == [seq + 2]
    assert "flips more than once" in say("bisect", "long", "--when", condition, "--verify")[1]


@pytest.mark.usefixtures("long")
def test_exit_codes_for_git_bisect(say: Say) -> None:
    for condition, code in (("state.tool_calls > 60", 1), ("state.tool_calls > 6000", 0), ("state.nosuch > 1", 125)):
        say("bisect", "long", "--when", condition, "--bisect-exit", code=code)
    say("bisect", "absent", "--when", "true", "--bisect-exit", code=125)
    say("bisect", "long", "--bisect-exit", code=125)


def test_a_held_session_is_never_said_to_be_the_same(house: House, say: Say) -> None:
    records = SessionBuilder("s", profile="OBSERVED").begin()
    for _ in range(4):
        records.append("NoteRecorded", kind="hint")
    house.shard([*records.records[:-2], records.records[-1]])
    assert "searched up to there" in say("bisect", "s", "--when", "state.tool_calls > 0", code=3)[1]
    say("bisect", "s", "--when", "state.tool_calls > 0", "--bisect-exit", code=125)


@pytest.mark.parametrize(
    "options",
    [
        (), ("--when", "true", "--against", "last"), ("--when", "1 +"), ("--when", "nosuch > 1"), ("--row", "tools"),
        ("--when", "state.tool_calls > 1", "--stage", "x"), ("--projection", "tools"), ("--versions", "1", "2"),
        ("--validator", "json.x", "--row", "sessions", "--stage", "x"), ("--against", "long", "--good", "2"),
        ("--validator", "json."), ("--validator", '{"type": 7}'), ("--validator", "{"), ("--validator", "[1"),
        ("--validator", "json.x", "--row", "'"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("long")
def test_what_cannot_be_asked(say: Say, options: tuple[str, ...]) -> None:
    assert "error: " in say("bisect", "long", *options, code=2)[1]


# --- policies ---------------------------------------------------------------------------------------------------------

POLICY = """
name: strict
rules:
  - {id: no-rm, when: 'call.tool == "shell" && call.arguments.command.startsWith("rm")', decision: DENY}
"""


@pytest.fixture
def policy(tmp_path: Path) -> str:
    (tmp_path / "policy.yaml").write_text(POLICY)
    return str(tmp_path / "policy.yaml")


def seq_of(calls: Calls, call_id: str) -> int:
    events = [each for each in calls.builder.events if each.type == "ToolCallRequested"]
    return next(each.seq for each in events if each.body["tool_call_id"] == call_id)


def test_the_first_call_that_a_policy_decides_otherwise(house: House, ask: Ask, say: Say, policy: str) -> None:
    calls = Calls("s").asked("a", arguments={"command": "ls"}).evaluated("a", "ALLOW").ran("a")
    calls.asked("b", arguments={"command": "rm x"}).evaluated("b", "DENY").rejected("b", "POLICY_DENY")
    calls.asked("c", arguments={"command": "rm \x1b[31m"}).evaluated("c", "ALLOW").ran("c")
    calls.asked("d", arguments={"command": "rm z"}).ran("d")
    house.shard(calls.records)
    found = ask("s", "--policy", policy)
    assert (found["way"], found["seq"], found["exact"]) == ("pass", seq_of(calls, "c"), True)
    assert (found["call"]["tool_call_id"], found["call"]["recorded"], found["call"]["decision"]) == (
        "c",
        "ALLOW",
        "DENY",
    )
    text, _ = say("bisect", "s", "--policy", policy)
    assert "  decided  ALLOW -> DENY: rule no-rm" in text
    assert "\x1b" not in text
    assert ask("s", "--policy", policy, "--good", str(seq_of(calls, "d")))["call"]["tool_call_id"] == "d"
    assert ask("s", "--policy", policy, "--bad", str(seq_of(calls, "b")), code=3)["flips"] is False


def test_a_call_whose_arguments_are_gone_cannot_be_judged(house: House, ask: Ask, say: Say, policy: str) -> None:
    gone = {**blob(b"{}"), "inline": None, "uri": "blob:" + "0" * 64}
    calls = Calls("s").add("ToolCallRequested", tool_call_id="a", name="shell", arguments=gone).ran("a")
    calls.asked("b", arguments={"command": "rm x"}).ran("b")
    house.shard(calls.records)
    found = ask("s", "--policy", policy)
    first, second = seq_of(calls, "a"), seq_of(calls, "b")
    assert (found["last_before"], found["seq"], found["exact"]) == (first - 1, second, False)
    assert found["unjudged"] == [first]
    assert ask("s", "--policy", policy, "--bad", str(second - 1), code=1)["flips"] is None
    say("bisect", "s", "--policy", policy, "--bad", str(second - 1), "--bisect-exit", code=125)


@pytest.mark.usefixtures("long")
def test_a_policy_that_is_none(say: Say, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("rules: [{id: x}]")
    assert "bad.yaml, line 1" in say("bisect", "long", "--policy", str(tmp_path / "bad.yaml"), code=1)[1]
    say("bisect", "long", "--policy", str(tmp_path / "absent.yaml"), code=1)


# --- validators -------------------------------------------------------------------------------------------------------


@pytest.fixture
def staged(house: House) -> SessionBuilder:
    """Three attempts of two stages, whose outputs are good, bad, and gone."""
    builder = SessionBuilder("s", profile="OBSERVED").begin()
    outputs: list[Any] = [blob(b'{"n": 1}'), blob(b'{"n": "two"}'), {**blob(b"3"), "inline": None}]
    for number, (name, output) in enumerate(zip(("plan", "act", "plan"), outputs, strict=True), 1):
        stage = f"{name}.{number}"
        builder.append("StageScheduled", stage_id=stage, stage_name=name, attempt=number)
        builder.append("StageStarted", stage_id=stage)
        builder.append("NoteRecorded", kind="hint")
        builder.append("StageCompleted", stage_id=stage, outputs=output, outputs_digest=output["digest"])
        builder.append("NoteRecorded", kind="hint")
    house.shard(builder.records)
    return builder


def ends_of(builder: SessionBuilder) -> list[int]:
    return [event.seq for event in builder.events if event.type == "StageCompleted"]


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


@pytest.mark.parametrize("form", ["text", "json", "yaml", "predicate"])
def test_the_first_output_that_a_validator_rejects(staged: SessionBuilder, ask: Ask, tmp_path: Path, form: str) -> None:
    (tmp_path / "v.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "v.yaml").write_text("name: n\npredicate: 'json.n == 1'\n")
    given = {
        "text": json.dumps(SCHEMA), "json": str(tmp_path / "v.json"), "yaml": str(tmp_path / "v.yaml"),
        "predicate": "json.n == 1",
    }  # fmt: skip
    _, second, third = ends_of(staged)
    found = ask("s", "--validator", given[form], "--bad", str(third - 1))
    assert (found["way"], found["seq"], found["event"]["type"]) == ("halving", second, "StageCompleted")
    assert found["findings"][0]["code"] == ("type" if form in ("text", "json") else "predicate")


def test_a_stage_of_its_own_and_an_output_that_is_gone(staged: SessionBuilder, ask: Ask, say: Say) -> None:
    _, _, third = ends_of(staged)
    schema = json.dumps(SCHEMA)
    assert ask("s", "--validator", schema, "--stage", "plan", "--bad", str(third - 1), code=3)["flips"] is False
    assert ask("s", "--validator", schema, "--stage", "plan", code=1)["flips"] is None
    assert "is not in the store" in say("bisect", "s", "--validator", schema, code=1)[1]
    text = say("bisect", "s", "--validator", schema, "--stage", "act")[0]
    assert '  finding  type  /n  wanted: "integer"; found: "two"' in text


@pytest.mark.usefixtures("long")
def test_a_row_is_judged_as_json(ask: Ask, say: Say) -> None:
    seq = seq_of_call(61)
    assert ask("long", "--validator", "json.tool_calls <= 60", "--row", "sessions")["seq"] == seq
    started = ask("long", "--validator", 'json.status != "STARTED"', "--row", "tools i100061/c0", "--bad", str(seq + 2))
    assert (started["seq"], started["event"]["type"]) == (seq + 2, "ToolCallStarted")
    assert ask("long", "--validator", "false || json.x", "--row", "tools absent", code=3)["flips"] is False
    say("bisect", "long", "--validator", "json.x", "--row", "nosuch", code=4)
    say("bisect", "long", "--validator", "absent.json", code=4)


def test_a_row_that_is_there_no_more_is_not_rejected(house: House, ask: Ask) -> None:
    builder = SessionBuilder("s", profile="OBSERVED").begin()
    begun = len(builder.records)
    builder.append("NoteRecorded", kind="hint")
    builder.append("SessionCompleted", outcome="SUCCESS")
    house.shard(builder.records)
    row = "outcomes 2026-01-01 demo RUNNING ''"
    found = ask("s", "--validator", "json.sessions > 7", "--row", row, "--good", str(begun))
    assert (found["good"], found["bad"], found["event"]["type"]) == (True, False, "SessionCompleted")
    assert found["findings"] == []


@pytest.mark.parametrize("text", ["- 1\n", "agent: a\nprompt: p\n", "reporter: r\n", "schema: {}\npredicate: 'true'\n"])
@pytest.mark.usefixtures("long")
def test_a_validator_that_does_not_judge_alone(say: Say, tmp_path: Path, text: str) -> None:
    (tmp_path / "v.yaml").write_text(text)
    say("bisect", "long", "--validator", str(tmp_path / "v.yaml"), code=2)


# --- versions of a projection -----------------------------------------------------------------------------------------

OTHER = """
import msgspec
from dalsegno.projections.base import Projection
from dalsegno.projections.tools import Tools
from dalsegno.projections.rows import ToolCallRow

class Row(ToolCallRow, array_like=True, kw_only=True, forbid_unknown_fields=True):
    extra: int = 7

class Kept(Tools):
    version = 3

class Wider(Tools):
    row = Row

class Late(Tools):
    def fold(self, rows, event, verdict):
        super().fold(rows, event, verdict)
        if event.body.get("tool_call_id") == "i100061/c0" and event.type == "ToolCallAuthorized":
            row = rows.get(("i100061/c0",))
            row.basis = "APPROVAL"
            rows.put(("i100061/c0",), row)

class Raises(Tools):
    def fold(self, rows, event, verdict):
        raise KeyError("gone")

def nothing():
    return 1
"""


@pytest.fixture
def other(tmp_path: Path) -> str:
    (tmp_path / "other.py").write_text(OTHER)
    return str(tmp_path / "other.py")


@pytest.mark.usefixtures("long")
def test_where_two_versions_begin_to_have_other_rows(ask: Ask, say: Say, other: str) -> None:
    found = ask("long", "--projection", "tools", "--versions", "2", f"{other}:Late")
    seq = seq_of_call(61) + 1
    assert (found["way"], found["seq"], found["read"]) == ("pass", seq, seq)
    (row,) = found["rows"]
    assert (row["id"], row["a"]["basis"], row["b"]["basis"]) == (["i100061/c0"], "POLICY_ALLOW", "APPROVAL")
    text = say("bisect", "long", "--projection", "tools", "--versions", "2", f"{other}:Late")[0]
    assert f"first apart at seq {seq}, last equal at seq {seq - 1}" in text
    assert "  row      i100061/c0  basis POLICY_ALLOW / APPROVAL" in text


@pytest.mark.usefixtures("long")
def test_two_versions_that_agree_and_fields_that_only_one_has(ask: Ask, say: Say, other: str) -> None:
    assert ask("long", "--projection", "tools", "--versions", "2", f"{other}:Kept", code=3)["read"] == EVENTS
    wider = ("bisect", "long", "--projection", "tools", "--versions", f"{other}:Wider", "2")
    assert "only one of the versions has it: extra" in say(*wider, code=3)[1]


@pytest.mark.parametrize("name", ["sessions", "outcomes", "audit"])
@pytest.mark.usefixtures("long")
def test_rows_with_a_head_sums_and_private_rows_are_folded_as_in_a_shard(ask: Ask, name: str) -> None:
    projection = installed()[name]
    reading = reads(folded(long_records()))
    walk = reading.walk("long")
    walk.to(EVENTS)
    fold = _Fold(projection)
    state, ops = SessionState(), MemoryOps()
    for event in reading.path("long"):
        head = HeadFacts(event.seq, event.hash, event.epoch, None, None, 0, 0)
        fold.take(Step(event, judge(state, ops, event)), head)
    rows = dict(walk.rows(name))
    assert rows
    assert {row_id: fold.rows.get(row_id) for row_id in rows} == rows
    assert ask("long", "--projection", name, "--versions", *[str(projection.version)] * 2, code=3)["flips"] is False


@pytest.mark.usefixtures("long")
def test_versions_that_are_none(say: Say, other: str) -> None:
    for version, code, words in (
        ("1", 4, "version 1 of projection tools is not installed"),
        (f"{other}:Absent", 1, "has no 'Absent'"),
        (f"{other}:nothing", 1, "is a function"),
        ("absent.py:X", 1, "does not load"),
        (f"{other}:Raises", 1, "raises at seq"),
    ):
        assert words in say("bisect", "long", "--projection", "tools", "--versions", "2", version, code=code)[1]
    say("bisect", "long", "--projection", "nosuch", "--versions", "1", "1", code=4)


# --- another decider --------------------------------------------------------------------------------------------------


def decided(explanation: str) -> SessionBuilder:
    """A session that this build's decider decided; but for one word in what its policy said."""
    scene = Scene(policy=[PolicyRule(id="no", decision="DENY", when='call.tool == "look"', explanation="not today")])
    scene.answer("", ("look",))
    builder = SessionBuilder("s")
    for event in scene.events:
        fields = {name: value for name, value in event.body.items() if name != "meta"}
        if event.type == "PolicyEvaluated":
            fields["explanation"] = explanation
        places = {name: event.meta[name] for name in ("turn_id", "stage_id")}
        builder.append(event.type, meta=places, **fields)
    assert not any(verdict.violations for verdict in builder.verdicts)
    return builder


def test_the_first_event_that_this_build_s_decider_decides_otherwise(house: House, ask: Ask, say: Say) -> None:
    builder = decided("never")
    house.shard(builder.records)
    seq = next(event.seq for event in builder.events if event.type == "PolicyEvaluated")
    found = ask("s", "--decider")
    assert (found["way"], found["seq"], found["event"]["type"]) == ("pass", seq, "PolicyEvaluated")
    assert found["divergence"]["fields"] == [{"pointer": "/explanation", "expected": "never", "actual": "not today"}]
    text = say("bisect", "s", "--decider")[0]
    assert f"first decided otherwise at seq {seq}, last as recorded at seq {seq - 1}" in text
    assert "/explanation  - never" in text
    assert ask("s", "--decider", "--bad", str(seq - 1), code=3)["flips"] is False
    after = ask("s", "--decider", "--good", str(seq + 1))
    assert (after["seq"], after["divergence"]["type"]) == (seq + 1, "ToolCallRejected"), "it cites what was said"


def test_a_decider_that_decides_as_recorded_and_a_session_that_none_decided(house: House, ask: Ask) -> None:
    house.shard([*decided("not today").records, *a_session("imported", "x").records])
    assert ask("s", "--decider", code=3)["flips"] is False
    found = ask("imported", "--decider", code=1)
    assert found["flips"] is None
    assert list(found["untold"]) == ["the session is not decided by a decider"]


# --- against another session ------------------------------------------------------------------------------------------


def a_session(session_id: str, result: str, notes: int = 0) -> SessionBuilder:
    builder = SessionBuilder(session_id, profile="OBSERVED", writer=session_id).begin()
    builder.append("ToolCallRequested", tool_call_id="c", name="search")
    builder.append("ToolCallAuthorized", tool_call_id="c", basis="POLICY_ALLOW")
    builder.append("ToolCallStarted", tool_call_id="c", attempt=1)
    for _ in range(notes):
        builder.append("NoteRecorded", kind="hint")
    builder.append("ToolReceiptRecorded", tool_call_id="c", attempt=1, status="OK", result=blob(result.encode()))
    return builder


def test_the_first_event_that_is_not_as_in_a_golden_session(house: House, ask: Ask, say: Say) -> None:
    golden, other, longer = a_session("golden", "x"), a_session("s", "y"), a_session("longer", "x", notes=1)
    house.shard([*golden.records, *other.records, *longer.records])
    end = len(golden.records)
    found = ask("s", "--against", "golden")
    assert (found["way"], found["seq"], found["last_before"], found["evaluations"]) == ("alignment", end, end - 1, 0)
    assert (found["change"]["kind"], found["change"]["fields"][0]["pointer"]) == ("changed", "/result")
    assert ask("longer", "--against", "golden")["change"]["kind"] == "only-b"
    missing = ask("golden", "--against", "longer")
    assert (missing["flips"], missing["seq"], missing["change"]["a"]["seq"]) == (True, None, end)
    text = say("bisect", "golden", "--against", "longer")[0]
    assert "other, at no event of its own" in text
    assert "only-a  longer@" in text
    assert ask("golden", "--against", "golden", code=3)["flips"] is False
    say("bisect", "s", "--against", "golden", "--bisect-exit", code=1)
    say("bisect", "golden", "--against", "golden", "--bisect-exit")


def test_a_fork_with_results_that_do_not_fit_is_refused_unless_it_is_asked_for(house: House, say: Say) -> None:
    parent = a_session("s", "x")
    fork = parent.fork(len(parent.records), "f")
    fork.append("ToolCallRequested", tool_call_id="d", name="search")
    fork.append("NoteRecorded", kind="hint", meta={"origin": {"importer": INEXACT, "native_ref": "s@1"}})
    house.shard([*parent.records, *fork.records])
    for arguments in (("s~f", "--when", "state.tool_calls > 0"), ("s", "--against", "s~f")):
        assert "is tainted" in say("bisect", *arguments, code=5)[1]
        say("bisect", *arguments, "--bisect-exit", code=125)
        say("bisect", *arguments, "--allow-tainted")

"""One session replayed in each mode: where it starts and ends, what it cannot answer, what its identity rests on."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dalsegno.model.records import Event
from dalsegno.orchestration.documents import CompressionRule, Policy, PolicyRule, Triggers
from dalsegno.replay.compared import compare_run
from dalsegno.replay.divergence import ABSENT
from dalsegno.replay.modes import COMPRESSION, MODES, actions
from dalsegno.replay.replayed import Replayed
from dalsegno.replay.session_plans import cost_of
from dalsegno.replay.session_replay import Asked, replay_session
from dalsegno.replay.strategy import Strategy
from decider_lab import Scene, stage

MODES_OF_SESSIONS = ("inference-skipping", "full", "simulation")
RULES = [CompressionRule(id="trim", method="TRIM", when=Triggers(turns=1))]


def events(**given: Any) -> list[Event]:
    found = Scene([stage(validators=["said"])], **given)
    found.answer("", ("look", {"what": "a"}), ("write", {"n": 1}))
    found.run("work.1/t1/c0")
    found.run("work.1/t1/c1")
    found.answer("", ("look", {"what": "b"}))
    found.run("work.1/t2/c0")
    found.answer("done")
    assert found.events[-1].type == "SessionCompleted"
    return found.events


def replayed(recorded: list[Event], mode: str = "inference-skipping", **given: Any) -> Replayed:
    return replay_session(Asked(recorded, Strategy(mode=mode, on_miss="stop"), **given))


@pytest.mark.parametrize("mode", MODES_OF_SESSIONS)
def test_a_recording_is_equal_in_every_mode(mode: str) -> None:
    found = replayed(events(), mode)
    assert (found.verdict, found.diverged, found.stopped, found.left_over) == ("EQUAL", 0, None, 0)
    assert found.equal == found.compared > 10
    assert not found.tainted


@pytest.mark.parametrize("mode", MODES_OF_SESSIONS)
def test_another_policy_differs_first_at_the_same_decision_in_every_mode(mode: str) -> None:
    recorded = events()
    policy = Policy(rules=[PolicyRule(id="no", decision="DENY", when='call.tool == "write"')])
    found = replayed(recorded, mode, override=lambda pinned: msgspec.structs.replace(pinned, policy=policy))
    first = next(e for e in recorded if e.type == "PolicyEvaluated" and e.body["decision_id"] == "work.1/t1/c1/d1")
    assert (found.verdict, found.divergences[0].seq, found.divergences[0].kind) == ("DIVERGED", first.seq, "CONFIG")


@pytest.mark.parametrize("mode", MODES_OF_SESSIONS)
def test_any_last_event_gives_no_difference_that_is_not_there(mode: str) -> None:
    recorded = events()
    begun = next(event.seq for event in recorded if event.type == "TurnStarted")
    for until in range(begun, len(recorded) + 1):
        found = replayed(recorded, mode, until=until)
        assert (found.verdict, found.divergences) == ("EQUAL", []), until
        assert found.events == until


@pytest.mark.parametrize("mode", ["full", "simulation"])
def test_a_run_begins_at_the_turn_at_or_below_its_start(mode: str) -> None:
    recorded = events()
    turn = next(e.seq for e in recorded if e.type == "TurnStarted" and e.body["turn_id"] == "work.1/t2")
    for start in (turn, turn + 1, turn + 3):
        found = replayed(recorded, mode, start=start)
        assert (found.verdict, found.snapped_back) == ("EQUAL", start - turn)
        assert found.compared < replayed(recorded, mode).compared
    first = replayed(recorded, mode, start=2)
    assert (first.verdict, first.snapped_back, first.compared) == ("EQUAL", 0, replayed(recorded, mode).compared)


@pytest.mark.parametrize("mode", MODES_OF_SESSIONS)
def test_a_start_behind_the_end_compares_nothing_and_says_so(mode: str) -> None:
    recorded = events()
    end = recorded[-1].seq
    assert replayed(recorded, mode, start=end).verdict == "EQUAL"
    for given, last in (({"start": end + 1}, end), ({"start": 12, "until": 11}, 11)):
        found = replayed(recorded, mode, **given)
        assert (found.verdict, found.compared) == ("NOT_COMPARED", 0)
        assert list(found.not_comparable) == [
            f"nothing at seq {given['start']} or behind it; what is looked at ends at {last}"
        ]


@pytest.mark.parametrize("mode", MODES_OF_SESSIONS)
def test_what_is_amended_is_answered_by_from_where_on_and_why(mode: str) -> None:
    recorded = events()
    at = next(event.seq for event in recorded if event.type == "ToolReceiptRecorded")
    stubbed = [msgspec.structs.replace(e, stub="ERASED") if e.seq == at else e for e in recorded]
    found = replayed(stubbed, mode)
    assert found.unreconstructable == (at, f"the ToolReceiptRecorded at seq {at} was erased")
    assert (found.verdict, found.diverged) == ("NOT_COMPARED", 0)
    assert replayed(stubbed, mode, until=at - 1).verdict == "EQUAL"


@pytest.mark.parametrize("mode", MODES_OF_SESSIONS)
def test_a_compression_that_says_only_that_it_happened_is_never_guessed(mode: str) -> None:
    recorded = events(rules=RULES)
    at = next(event.seq for event in recorded if event.type == "CompressionCompleted")
    marked = [
        msgspec.structs.replace(e, body={**e.body, "effect": "MARKER_ONLY"}) if e.seq == at else e for e in recorded
    ]
    found = replayed(marked, mode)
    assert found.unreconstructable == (at, f"the compression at seq {at} says only that it happened")
    assert (found.verdict, found.diverged) == ("NOT_COMPARED", 0)


def test_an_identity_follows_from_all_that_a_result_follows_from() -> None:
    recorded = events()
    asked = Asked(recorded, Strategy(mode="inference-skipping"))
    others = [
        asked,
        replace(asked, start=20),
        replace(asked, until=30),
        replace(asked, changed="POLICY=ab"),
        replace(asked, strategy=Strategy(mode="full", on_miss="stop")),
        replace(asked, history=events(rules=RULES)),
    ]
    identities = [replay_session(each).identity for each in others]
    assert len(set(identities)) == len(identities)
    assert replay_session(asked).identity == identities[0]


IDENTITY = """
from test_session_replay import RULES, events, replayed
for mode in ("inference-skipping", "full", "simulation"):
    found = replayed(events(rules=RULES), mode)
    print(found.identity, found.as_data())
"""


def test_equal_identity_and_result_in_processes_of_other_hash_seeds_and_time_zones() -> None:
    here = Path(__file__)
    paths = os.pathsep.join([str(here.parent), str(here.parents[2]), *sys.path])
    said = [
        subprocess.run(
            [sys.executable, "-c", IDENTITY],
            env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": seed, "TZ": zone},
            capture_output=True, check=True, text=True,
        ).stdout
        for seed, zone in (("0", "UTC"), ("1", "Asia/Kolkata"), ("4711", "America/St_Johns"))
    ]  # fmt: skip
    assert said[0].count("EQUAL") == 3
    assert said[0] == said[1] == said[2]


# --- nothing outside --------------------------------------------------------------------------------------------------

FENCE = """
import sys
from pathlib import Path
from test_session_replay import RULES, events, replayed
recorded = events(rules=RULES)
replayed(recorded)  # what is imported late is imported here
forbidden = []
def watch(name, arguments):
    if name.startswith(("socket.", "subprocess.", "os.exec", "os.fork", "os.spawn", "os.posix_spawn", "os.system")):
        forbidden.append(name)
    if name in ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.putenv", "shutil.rmtree"):
        forbidden.append(name)
    if name == "open" and (isinstance(arguments[1], str) and set(arguments[1]) & set("wax+") or arguments[2] & 3):
        forbidden.append(f"{name} {arguments[0]}")
sys.addaudithook(watch)
for mode in ("inference-skipping", "full", "simulation"):
    assert replayed(recorded, mode).verdict == "EQUAL"
assert forbidden == [], forbidden
try:
    Path(sys.argv[1]).write_text("x")
finally:
    assert len(forbidden) == 1, forbidden
print("fenced")
"""


def test_no_connection_no_process_and_no_file_is_made_by_a_replay(tmp_path: Path) -> None:
    here = Path(__file__)
    paths = os.pathsep.join([str(here.parent), str(here.parents[2]), *sys.path])
    said = subprocess.run(
        [sys.executable, "-B", "-c", FENCE, str(tmp_path / "seen")],
        env={**os.environ, "PYTHONPATH": paths}, capture_output=True, check=False, text=True,
    )  # fmt: skip
    assert said.stdout == "fenced\n", said.stderr


def test_a_plan_counts_what_would_be_looked_at_and_asked_again() -> None:
    recorded = events()
    whole = cost_of(recorded)
    assert (whole.events, whole.inferences, whole.tool_results) == (len(recorded), 3, 3)
    assert (whole.tokens_in, whole.tokens_out) == (30, 15)
    turn = next(e.seq for e in recorded if e.type == "TurnStarted" and e.body["turn_id"] == "work.1/t2")
    assert cost_of(recorded, turn).inferences == 2


def test_every_mode_says_of_each_class_what_it_does() -> None:
    assert {tuple(actions) for actions in MODES.values()} == {tuple(MODES["full"])}


@pytest.mark.parametrize("mode", MODES_OF_SESSIONS)
def test_what_is_asked_for_is_in_the_actions_of_the_mode(mode: str) -> None:
    plain = actions(Strategy(mode=mode, compression=COMPRESSION[mode]))
    assert list(plain) == list(MODES[mode])
    assert plain["writes"] == "nothing to any session"
    other = actions(
        Strategy(
            mode=mode, inference="rerun", tools="execute", approvals="script", on_miss="stop",
            compression="recorded" if COMPRESSION[mode] == "recompute" else "recompute",
        ),
        fork=True,
    )  # fmt: skip
    differs = {what for what in plain if plain[what] != other[what]}
    of_a_run = {"answers of models", "results of tools", "people and the world", "writes"}
    assert differs == {"compressions"} | (set() if mode == "inference-skipping" else of_a_run)
    denied = actions(Strategy(mode="simulation", tools="execute"))
    assert "denied" in denied["people and the world"], "recorded leave does not count where tools run"


def test_a_decision_that_one_side_has_alone_is_shown_without_its_envelope() -> None:
    recorded = events()
    for before, after in ((recorded, recorded[:-1]), (recorded[:-1], recorded)):
        compared = compare_run(before, after)
        [field] = compared.divergences[0].fields
        shown = field.expected if field.actual is ABSENT else field.actual
        assert (shown["outcome"], "meta" in shown) == ("SUCCESS", False)

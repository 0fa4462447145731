"""Plans of replays of sessions: kept, carried out, gone on with after an interruption, and stale where a session is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dalsegno.cli import replay_plans, replay_sessions, replay_topic, replaying
from dalsegno.errors import BrokerUnavailable
from dalsegno.log import service_records
from dalsegno.log.codec import decode_record
from dalsegno.model.lifecycle import config_set_digest
from dalsegno.replay import session_records, session_results
from dalsegno.replay.divergence import ABSENT, Divergence, FieldDifference
from dalsegno.replay.replayed import Replayed
from dalsegno.replay.session_records import Told
from dalsegno.replay.strategy import Strategy
from dalsegno.testing.builder import SessionBuilder, blob
from reader_lab import PREFIX, House
from replay_lab import altered, decided, records_of
from shard_lab import apply

Say = Callable[..., tuple[str, str]]
MODE = ("--mode", "inference-skipping")
NAMES = ["s-1", "s-2", "s-3", "s-4"]


class Topic:
    """The topic of replays in memory."""

    def __init__(self) -> None:
        self.table: dict[bytes, bytes] = {}
        self.keys: list[str] = []

    def write(self, _kafka: Any, topic: str, records: Iterable[tuple[str, bytes | None]]) -> None:
        assert topic == f"{PREFIX}.replays"
        for key, value in records:
            self.keys.append(key)
            if value is None:
                self.table.pop(key.encode(), None)
            else:
                self.table[key.encode()] = value

    def records(self, id: str) -> dict[str, tuple[str, dict[str, Any]]]:
        found = {key.decode(): value for key, value in self.table.items() if key.decode().startswith(f"{id}:")}
        return {key.removeprefix(f"{id}:"): decode_record(value) for key, value in found.items()}


def writer(write: Callable[..., None]) -> Callable[..., Any]:
    """Makes what ``RecordWriter`` does, but that it writes so."""
    return lambda kafka, name: SimpleNamespace(write=partial(write, kafka, name))


@pytest.fixture
def topic(say: Say, monkeypatch: pytest.MonkeyPatch) -> Topic:  # noqa: ARG001  # it takes all settings away first
    made = Topic()
    monkeypatch.setenv("DALSEGNO_KAFKA__BOOTSTRAP_SERVERS", "nowhere:1")
    monkeypatch.setattr(replay_plans, "write_records", made.write)
    monkeypatch.setattr(replay_sessions, "RecordWriter", writer(made.write))
    monkeypatch.setattr(replay_topic, "read_compacted", lambda *_: made.table)
    return made


@pytest.fixture
def four(house: House) -> House:
    """The third was decided otherwise than this build does."""
    records = []
    for name in NAMES:
        records += records_of(name, altered(decided()) if name == "s-3" else decided()).records
    house.shard(records)
    return house


def planned(say: Say, *options: str) -> dict[str, Any]:
    return dict(json.loads(say("-o", "json", "replay", "plan", *MODE, "--all", *options)[0]))


class Replayings:
    """Counts what is replayed; ``interrupt``: at this session."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sessions: list[str] = []
        self.interrupt: str | None = None
        self._replay: Any = replaying.replay_session
        monkeypatch.setattr(replaying, "replay_session", self)

    def __call__(self, asked: Any) -> Replayed:
        if asked.session_id == self.interrupt:
            raise KeyboardInterrupt
        self.sessions.append(asked.session_id)
        found: Replayed = self._replay(asked)
        return found


@pytest.fixture
def replayings(monkeypatch: pytest.MonkeyPatch) -> Replayings:
    return Replayings(monkeypatch)


# --- plan -------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("four")
def test_a_plan_counts_what_would_be_looked_at_and_is_kept(say: Say, topic: Topic, replayings: Replayings) -> None:
    plan = planned(say, "--reason", "before the release")
    assert [each["session"] for each in plan["sessions"]] == NAMES
    one = plan["sessions"][0]
    assert (one["inferences"], one["tool_results"], one["tokens_in"]) == (2, 2, 20)
    assert plan["total"]["inferences"] == 8
    assert plan["total"]["events"] == sum(each["events"] for each in plan["sessions"])
    assert plan["actions"]["compressions"].startswith("recorded; each also made again")
    assert (plan["state"], plan["reason"], plan["mode"]) == ("PLANNED", "before the release", "inference-skipping")
    kind, record = topic.records(plan["id"])["plan:0"]
    assert (kind, record["mode"], record["topic"]) == ("ReplayPlan", "INFERENCE_SKIPPING", f"{PREFIX}.events")
    assert replayings.sessions == []
    out, err = say("replay", "plan", *MODE, "--session", "s-1")
    assert "s-1" in out
    [id] = [line.partition(" ")[2] for line in out.splitlines() if line.startswith("plan ")]
    assert f"to carry it out: dalsegno replay run {id}" in err


@pytest.mark.usefixtures("four")
def test_a_plan_is_carried_out_with_what_it_was_made_with(say: Say, topic: Topic) -> None:
    Path("deny.yaml").write_text("{name: deny, default: DENY}")
    plan = planned(say, "--policy", "deny.yaml", "--until", "40")
    out, _ = say("-o", "json", "replay", "run", plan["id"], code=3)
    direct, _ = say(
        "-o", "json", "replay", "run", *MODE, "--all", "--policy", "deny.yaml", "--until", "40", code=3
    )  # fmt: skip
    assert json.loads(out) == json.loads(direct)
    for number in range(1, 5):
        records = topic.records(f"{plan['id']}.{number}")
        assert records["started:0"][1]["to_seq"] == 40
        assert records["completed:0"][1]["verdict"] == "DIVERGED"


@pytest.mark.usefixtures("four")
def test_options_beside_a_plan_are_refused(say: Say, topic: Topic) -> None:
    plan = planned(say)
    for options in (MODE, ("--session", "s-1"), ("--on-miss", "stop"), ("--from", "3"), ("--record",)):
        say("replay", "run", plan["id"], *options, code=2)
    say("replay", "run", "nothing", code=4)
    assert len(topic.table) == 1


@pytest.mark.usefixtures("four")
def test_a_plan_is_taken_back_as_long_as_nothing_came_of_it(say: Say, topic: Topic) -> None:
    plan, other = planned(say), planned(say)
    assert "or --yes" in say("replay", "cancel", plan["id"], code=2)[1]
    taken = json.loads(say("-o", "json", "replay", "cancel", plan["id"], "--yes")[0])
    assert (taken["id"], taken["state"]) == (plan["id"], "CANCELLED")
    assert [each["id"] for each in json.loads(say("-o", "json", "replay", "list")[0])] == [other["id"]]
    say("replay", "run", plan["id"], code=4)
    say("replay", "run", other["id"], code=3)
    before = dict(topic.table)
    _, err = say("replay", "cancel", other["id"], "--yes", code=5)
    assert "Ctrl-C ends it; its results stay" in err
    assert "is what came of a session" in say("replay", "cancel", f"{other['id']}.1", "--yes", code=2)[1]
    assert topic.table == before


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_modes_of_projections_say_that_they_take_no_session(say: Say, verb: str) -> None:
    for mode in ("projection-only", "partial"):
        _, err = say("replay", verb, "--mode", mode, "--session", "s-1", code=2)
        assert f"--mode {mode} with sessions; wanted: no session" in err
        assert ("--from session:ID@SEQ" in err) == (mode == "partial")
    assert "sessions without a mode that replays them" in say("replay", verb, "--session", "s-1", code=2)[1]


@pytest.mark.usefixtures("four", "topic")
def test_a_plan_says_what_would_be_written_and_counts_up_to_where_it_looks(say: Say) -> None:
    Path("same.yaml").write_text("{name: same}")
    plan = ("-o", "json", "replay", "plan", "--mode", "full", "--session", "s-1")
    plain, other, short = (
        json.loads(say(*plan, *options)[0]) for options in ((), ("--policy", "same.yaml"), ("--until", "20"))
    )
    assert [each["actions"]["writes"] for each in (plain, other)] == ["nothing to any session", "a fork"]
    assert short["total"]["events"] == 20 < plain["total"]["events"]


@pytest.mark.parametrize(
    "option",
    [
        ("--until", str(2**63)),
        ("--from", f"{1:020}{'9' * 5000}"),
        ("--model", "\udcff"),
        ("--policy", "\udcff.yaml"),
        ("--provider", "\udcff"),
        ("--tools-from", "\udcff"),
    ],
    ids=lambda option: str(option[0]),
)
@pytest.mark.parametrize("verb", ["plan", "run"])
@pytest.mark.usefixtures("four")
def test_options_that_no_plan_could_hold_are_the_users_mistake(
    say: Say, topic: Topic, verb: str, option: tuple[str, str]
) -> None:
    say("replay", verb, *MODE, "--all", *option, code=2)
    assert topic.table == {}


@pytest.mark.usefixtures("four", "topic")
def test_numbers_that_no_double_holds_are_kept_in_full(say: Say) -> None:
    plan = planned(say, "--until", str(2**53 + 1))
    assert json.loads(say("-o", "json", "replay", "show", plan["id"])[0])["options"]["until"] == 2**53 + 1
    result = Replayed("s-1", "full", "")
    fields = (FieldDifference("/seed", 2**63 - 1, ABSENT),)
    result.divergences = [Divergence(3, "SessionStarted", "L", "CODE", "", fields, None, ())]
    [_, (_, value), _] = session_records.records_of(Told("r", Strategy(mode="full"), "me", 1, 2), result)
    assert value is not None
    assert decode_record(value)[1]["expected"] == sha256(b'{"/seed":9223372036854775807}').digest()


@pytest.mark.usefixtures("topic")
def test_forks_that_replays_wrote_are_replayed_where_they_are_asked_for_alone(house: House, say: Say) -> None:
    parent = records_of("s-1", decided())
    turn = next(seq for seq, each in enumerate(decided(), 1) if each.type == "TurnStarted")
    records = list(parent.records)
    for purpose in ("WHAT_IF", "DATASET", "DEBUG", "RETRY"):
        records += parent.fork(turn - 1, purpose.lower(), purpose=purpose).records
    house.shard(records)

    def chosen(*options: str) -> tuple[list[str], str]:
        out, err = say("-o", "json", "replay", "plan", *MODE, *options)
        return sorted(each["session"] for each in json.loads(out)["sessions"]), err

    everything = ["s-1", "s-1~dataset", "s-1~debug", "s-1~retry", "s-1~what_if"]
    assert chosen("--all", "--forks")[0] == everything
    assert chosen("--session", "s-1~what_if")[0] == ["s-1~what_if"]
    names, said = chosen("--all")
    assert names == ["s-1", "s-1~retry"]
    assert "3 forks for what-if, data sets or debugging are left out; to take them too: --forks" in said
    assert chosen("--workflow", "demo", "--forks")[0] == everything[1:]
    assert chosen("--workflow", "demo")[0] == ["s-1~retry"]
    out, _ = say("-o", "json", "replay", "run", *MODE, "--workflow", "demo", code=1)  # it decided nothing of its own
    assert [each["session"] for each in json.loads(out)] == ["s-1~retry"]


@pytest.mark.usefixtures("four", "topic")
def test_a_plan_says_of_how_many_sessions_forks_will_be_written(say: Say) -> None:
    Path("same.yaml").write_text("{name: same}")
    full = ("replay", "plan", "--mode", "full", "--all")
    assert "forks: one of each of the 4 sessions" in say(*full, "--policy", "same.yaml")[1]
    assert "forks" not in say(*full)[1]


# --- stale ------------------------------------------------------------------------------------------------------------


def test_a_plan_is_stale_where_a_session_went_on_and_no_other(house: House, say: Say, topic: Topic) -> None:
    events = decided()
    one, two = records_of("s-1", events[:-1]), records_of("s-2", events)
    shard = house.shard([*one.records, *two.records])
    both, other = planned(say), json.loads(say("-o", "json", "replay", "plan", *MODE, "--session", "s-2")[0])
    apply(shard, records_of("s-1", events).records[len(one.records) :])
    _, err = say("replay", "run", both["id"], code=5)
    assert f"session s-1 ended at seq {len(events) - 1} and ends at {len(events)}" in err
    assert "s-2" not in err.partition("is stale")[2].partition("to do")[0]
    assert len(topic.table) == 2, "nothing was replayed"
    say("replay", "run", other["id"])


@pytest.mark.usefixtures("four")
def test_a_session_that_goes_on_while_it_is_replayed_is_not_kept(
    say: Say, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(say)
    histories: Any = replaying.history_events
    monkeypatch.setattr(
        replaying, "history_events",
        lambda reader, id: list(histories(reader, id))[: -1 if id == "s-2" else None],
    )  # fmt: skip
    _, err = say("replay", "run", plan["id"], "--jobs", "1", code=5)
    assert "session s-2 went on while it was replayed" in err
    assert topic.records(f"{plan['id']}.1")
    assert not topic.records(f"{plan['id']}.2")


def test_a_fork_whose_parent_is_not_here_has_a_result_of_its_own(house: House, say: Say, topic: Topic) -> None:
    parent = records_of("s-1", decided())
    house.shard([*records_of("s-2", decided()).records, *parent.fork(9, "f").records])
    plan = planned(say, "--forks")
    out, _ = say("-o", "json", "replay", "run", plan["id"], code=1)
    found = {each["session"]: each["verdict"] for each in json.loads(out)}
    assert found == {"s-1~f": "NOT_COMPARED", "s-2": "EQUAL"}
    assert topic.records(f"{plan['id']}.1")


@pytest.mark.usefixtures("four", "topic")
def test_a_plan_with_options_of_another_build_is_shown_and_not_carried_out(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replay_plans._options
    with monkeypatch.context() as patch:
        patch.setattr(
            replay_plans, "_options", lambda given: {k: v for k, v in options(given).items() if k != "compression"}
        )
        out, _ = say("replay", "plan", *MODE, "--session", "s-1")
    id = out.split()[-1]
    assert "made with other options than this build has" in say("replay", "run", id, code=5)[1]
    assert id in say("replay", "show", id)[0]
    shown = json.loads(say("-o", "json", "replay", "show", id)[0])
    assert (shown["state"], shown["mode"], shown["strategy"]) == ("PLANNED", "inference-skipping", None)


@pytest.mark.usefixtures("topic")
def test_a_session_whose_last_event_breaks_a_rule_is_replayed_by_a_plan_too(house: House, say: Say) -> None:
    builder = records_of("s-1", decided())
    builder.append("TurnStarted", turn_id="late")
    assert builder.verdicts[-1].violations
    house.shard(builder.records)
    plan = planned(say)
    out, _ = say("-o", "json", "replay", "run", plan["id"])
    assert json.loads(out)[0]["verdict"] == "EQUAL"
    assert "1 of 1 sessions were replayed before" in say("replay", "run", plan["id"])[1]


# --- sessions that cannot be replayed ---------------------------------------------------------------------------------


def unreadable(name: str) -> SessionBuilder:
    """It pinned a policy that no build of this version can read."""
    made = decided()
    [pin] = [event for event in made if event.type == "ConfigPinned" and event.body["kind"] == "POLICY"]
    pin.body["content"], pin.body["digest"] = blob(b"[]"), sha256(b"[]").digest()
    pins = [event.body for event in made if event.type == "ConfigPinned"]
    [start] = [event for event in made if event.type == "SessionStarted"]
    lines = [f"{each['kind']}:{each['name']}:{each['digest'].hex()}" for each in pins]
    start.body["config_set_digest"] = config_set_digest(lines)
    return records_of(name, made)


def without_effect(name: str) -> SessionBuilder:
    """Its only event breaks a rule."""
    builder = SessionBuilder(name, profile="OBSERVED")
    builder.append("TurnStarted", turn_id="t1")
    assert builder.verdicts[0].violations
    return builder


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("full", ()),
        ("full", ("--until", "1")),
        ("inference-skipping", ()),
        ("inference-skipping", ("--until", "1")),
        ("inference-skipping", ("--policy", "deny.yaml")),
        ("simulation", ("--policy", "deny.yaml")),
    ],
)
@pytest.mark.parametrize("broken", [unreadable, without_effect])
def test_a_session_that_cannot_be_replayed_keeps_no_other_one_from_it(
    house: House, say: Say, mode: str, options: tuple[str, ...], broken: Callable[[str], SessionBuilder]
) -> None:
    Path("deny.yaml").write_text("{name: deny, default: DENY}")
    house.shard([*broken("s-1").records, *records_of("s-2", decided()).records])
    plan = json.loads(say("-o", "json", "replay", "plan", "--mode", mode, "--all", *options)[0])
    out, _ = say("-o", "json", "replay", "run", plan["id"], code=3 if "--policy" in options else 1)
    one, two = json.loads(out)
    assert (one["session"], one["verdict"]) == ("s-1", "NOT_COMPARED")
    if "--until" not in options:
        assert two["verdict"] == ("DIVERGED" if options else "EQUAL")


@pytest.mark.usefixtures("topic")
def test_a_document_that_is_asked_for_and_cannot_be_read_is_the_users_mistake(house: House, say: Say) -> None:
    Path("bad.yaml").write_text("{name: 5, stages: no}")
    house.shard(records_of("s-1", decided()).records)
    _, err = say("replay", "run", *MODE, "--all", "--workflow-file", "bad.yaml", code=1)
    assert "bad.yaml" in err


@pytest.mark.usefixtures("topic")
def test_what_could_not_be_compared_is_replayed_again(house: House, say: Say, replayings: Replayings) -> None:
    """What was missing then may be there now."""
    house.shard([*unreadable("s-1").records, *records_of("s-2", decided()).records])
    plan = planned(say)
    say("replay", "run", plan["id"], code=1)
    replayings.sessions.clear()
    say("replay", "run", plan["id"], code=1)
    assert replayings.sessions == ["s-1"]


# --- interrupted ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize("record", [False, True])
def test_an_interrupted_run_goes_on_where_it_was(say: Say, topic: Topic, replayings: Replayings, record: bool) -> None:
    replayings.interrupt = "s-3"
    begin = ("run", *MODE, "--all", "--record") if record else ("run", planned(say)["id"])
    out, err = say("replay", *begin, "--jobs", "1", code=130)
    assert out == ""
    assert "2 of 4 sessions are replayed and kept" in err
    [line] = [line for line in err.splitlines() if "to go on: " in line]
    command = line.partition("to go on: dalsegno ")[2].split()
    id = command[-1]
    assert [bool(topic.records(f"{id}.{number}")) for number in range(1, 5)] == [True, True, False, False]
    assert json.loads(say("-o", "json", "replay", "show", id)[0])["state"] == "STARTED"

    replayings.interrupt = None
    replayings.sessions.clear()
    out, err = say("-o", "json", *command, "--jobs", "1", code=3)
    assert replayings.sessions == ["s-3", "s-4"]
    assert "2 of 4 sessions were replayed before" in err
    whole, _ = say("-o", "json", "replay", "run", *MODE, "--all", code=3)
    assert json.loads(out) == json.loads(whole), "all results, as if it had never been interrupted"

    replayings.sessions.clear()
    again, _ = say("-o", "json", *command, code=3)
    assert (json.loads(again), replayings.sessions) == (json.loads(whole), [])
    text, _ = say(*command, code=3)
    assert text == say("replay", "run", *MODE, "--all", code=3)[0]


@pytest.mark.usefixtures("four")
def test_what_was_kept_by_half_is_replayed_again(say: Say, topic: Topic, replayings: Replayings) -> None:
    plan = planned(say)
    say("replay", "run", plan["id"], code=3)
    del topic.table[f"{plan['id']}.2:completed:0".encode()]
    replayings.sessions.clear()
    shown = json.loads(say("-o", "json", "replay", "show", plan["id"])[0])
    assert [each["state"] for each in shown["sessions"]] == ["EQUAL", "STARTED", "DIVERGED", "EQUAL"]
    say("replay", "run", plan["id"], code=3)
    assert replayings.sessions == ["s-2"]


@pytest.mark.usefixtures("four")
def test_a_result_of_another_build_or_document_is_not_taken(
    say: Say, topic: Topic, replayings: Replayings, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("policy.yaml").write_text("{name: deny, default: DENY}")
    plan = planned(say, "--policy", "policy.yaml")
    say("replay", "run", plan["id"], code=3)
    assert any(":diverged:" in key.decode() for key in topic.table)
    replayings.sessions.clear()
    Path("policy.yaml").write_text("{name: same}")
    say("replay", "run", plan["id"], code=3)
    assert replayings.sessions == NAMES
    left = [key.decode() for key in topic.table if ":diverged:" in key.decode()]
    assert {key.partition(":")[0] for key in left} == {f"{plan['id']}.3"}, "differences of before are taken out"
    replayings.sessions.clear()
    monkeypatch.setattr(session_results, "VERSIONS", {"decider": 99})
    say("replay", "run", plan["id"], code=3)
    assert replayings.sessions == NAMES


@pytest.mark.usefixtures("four")
def test_a_result_that_takes_the_place_of_another_passes_for_neither_before_it_is_whole(
    say: Say, topic: Topic, replayings: Replayings, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("policy.yaml").write_text("{name: deny, default: DENY}")
    plan = planned(say, "--policy", "policy.yaml")
    say("replay", "run", plan["id"], code=3)
    Path("policy.yaml").write_text("{name: same}")

    def write(kafka: Any, name: str, records: Iterable[tuple[str, bytes | None]]) -> None:
        topic.write(kafka, name, list(records)[:-1])
        raise BrokerUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(replay_sessions, "RecordWriter", writer(write))
        say("replay", "run", plan["id"], "--jobs", "1", code=6)
    states = json.loads(say("-o", "json", "replay", "show", plan["id"])[0])["sessions"]
    assert [each["state"] for each in states] == ["STARTED", "DIVERGED", "DIVERGED", "DIVERGED"]
    replayings.sessions.clear()
    say("replay", "run", plan["id"], code=3)
    assert replayings.sessions == NAMES


@pytest.mark.usefixtures("four", "topic")
def test_a_run_makes_one_producer_and_each_result_is_acknowledged_before_the_next_session(
    say: Say, replayings: Replayings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[AckedProducer] = []

    def producer(*_: Any) -> AckedProducer:
        made.append(AckedProducer(lambda: len(replayings.sessions)))
        return made[-1]

    plan = planned(say)
    monkeypatch.setattr(service_records, "producer", producer)
    monkeypatch.setattr(replay_sessions, "RecordWriter", service_records.RecordWriter)
    say("replay", "run", plan["id"], "--jobs", "1", code=3)
    assert [each.acknowledged for each in made] == [[1, 2, 3, 4]]


class AckedProducer:
    """Acknowledges all at a flush. ``acknowledged``: what ``now`` gave at each."""

    def __init__(self, now: Callable[[], int]) -> None:
        self.acknowledged: list[int] = []
        self._now = now
        self._waiting: list[Callable[..., None]] = []

    def produce(self, *_: Any, on_delivery: Callable[..., None], **__: Any) -> None:
        self._waiting.append(on_delivery)

    def flush(self, _seconds: float) -> None:
        for report in self._waiting:
            report(None, None)
        self._waiting.clear()
        self.acknowledged.append(self._now())


@pytest.mark.usefixtures("four")
def test_several_processes_keep_what_one_does(say: Say, topic: Topic) -> None:
    plan = planned(say)
    out, _ = say("-o", "json", "replay", "run", plan["id"], "--jobs", "2", code=3)
    assert [each["session"] for each in json.loads(out)] == NAMES
    assert all(topic.records(f"{plan['id']}.{number}")["completed:0"][1]["result"] for number in range(1, 5))


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize("error", [KeyboardInterrupt(), BrokerUnavailable("gone")])
def test_what_several_processes_came_to_before_the_end_is_kept(
    say: Say, topic: Topic, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """It ends while the third result is written."""
    plan = planned(say)

    def write(kafka: Any, name: str, records: Iterable[tuple[str, bytes | None]]) -> None:
        found = list(records)
        if found[0][0].startswith(f"{plan['id']}.3:"):
            topic.write(kafka, name, found[:1])
            raise error
        topic.write(kafka, name, found)

    with monkeypatch.context() as patch:
        patch.setattr(replay_sessions, "RecordWriter", writer(write))
        code = 130 if isinstance(error, KeyboardInterrupt) else 6
        out, err = say("replay", "run", plan["id"], "--jobs", "2", code=code)
    assert out == ""
    assert f"to go on: dalsegno replay run {plan['id']}" in err
    states = json.loads(say("-o", "json", "replay", "show", plan["id"])[0])["sessions"]
    assert [each["state"] for each in states] == ["EQUAL", "EQUAL", "STARTED", "PLANNED"]
    _, err = say("replay", "run", plan["id"], "--jobs", "2", code=3)
    assert "2 of 4 sessions were replayed before" in err


# --- shown ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("four")
def test_plans_are_listed_and_shown_with_what_came_of_their_sessions(say: Say, topic: Topic) -> None:
    plan = planned(say)
    say("replay", "run", plan["id"], code=3)
    [row] = json.loads(say("-o", "json", "replay", "list")[0])
    assert (row["id"], row["state"], row["reason"]) == (plan["id"], "COMPLETED", "inference-skipping")
    out, _ = say("replay", "show", plan["id"][:12])
    assert "s-3" in out
    assert "DIVERGED" in out
    shown = json.loads(say("-o", "json", "replay", "show", f"{plan['id']}.3")[0])
    assert shown["differences"][0]["domain_id"]
    assert shown["actions"]["decisions"]
    assert topic.keys[0].endswith(":plan:0")


@pytest.mark.usefixtures("four")
def test_a_result_is_read_again_as_it_was_kept(say: Say, topic: Topic) -> None:
    Path("deny.yaml").write_text("{name: deny, default: DENY}")
    made: list[Replayed] = []
    encode = session_results.encode_result
    plan = planned(say, "--policy", "deny.yaml")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_sessions, "encode_result", lambda result: (made.append(result), encode(result))[1])
        say("replay", "run", plan["id"], "--jobs", "1", code=3)
    assert [session_results.decode_result(encode(each)) for each in made] == made
    assert made[0].divergences[0].fields
    assert topic.table

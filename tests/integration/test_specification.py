"""The replay model, §2 to §8 line by line, on sessions that a real broker holds (``docs/specification.md``).

The service desk of the examples runs once, then the rows of all projections are built once; every line looks at that.
"""

from __future__ import annotations

import json
import socket
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import pytest
from msgspec.structs import asdict, replace

from dalsegno import blob
from dalsegno.errors import DalsegnoError
from dalsegno.harness.conductor import Conductor
from dalsegno.harness.live import Live, Receipt, Stopped
from dalsegno.harness.mailbox import Mailbox
from dalsegno.harness.past import StoredContents, history
from dalsegno.harness.performing import Ports
from dalsegno.harness.providers.openai_http import OpenAiHttp
from dalsegno.harness.providers.scripted import Scripted
from dalsegno.harness.sessions import begin, resume, session_of
from dalsegno.harness.tools import PythonTools
from dalsegno.log.codec import place
from dalsegno.log.inbox import Inbox
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.publisher import Publisher
from dalsegno.log.reader import read_range
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.events import Label
from dalsegno.model.ids import partition_of
from dalsegno.model.records import Event
from dalsegno.orchestration.configuration import pinned as pinned_document
from dalsegno.orchestration.documents import Policy, PolicyRule
from dalsegno.projections.audit_chain import Chain, chain
from dalsegno.projections.decider.fold import fold_event
from dalsegno.projections.decider.rows import APPROVAL
from dalsegno.projections.decider.table import MemoryRows
from dalsegno.projections.registry import built_in
from dalsegno.readers.decided import rows_at
from dalsegno.readers.local import LocalReader
from dalsegno.readers.rows import session_rows
from dalsegno.readers.sessions import find_session
from dalsegno.replay.again import decide_again
from dalsegno.replay.forked import run_in_fork
from dalsegno.replay.golden import compare, lines_of
from dalsegno.replay.replayed import Replayed
from dalsegno.replay.serving import EXACT
from dalsegno.replay.session_replay import Asked, replay_session
from dalsegno.replay.strategy import Strategy
from dalsegno.storage.object_store import FolderStore
from harness_cli import Cli
from harness_worker import World
from workflow_lab import CLOCK, TRIAGE, doubled, loaded_tools, outcome, pinned, script_of, violations

pytestmark = pytest.mark.broker
SESSION = "specification"
MODES = ("full", "inference-skipping", "simulation")
REFUND = "act.1/t1/c1"


class Person:
    """Answers each approval once, by a command of the inbox."""

    def __init__(self, inbox: Inbox, session_id: str) -> None:
        self._inbox, self._session_id, self._mailbox = inbox, session_id, Mailbox(inbox, session_id)
        self._answered: set[str] = set()

    def take_up(self, conductor: Conductor) -> bool:
        for id, approval in conductor.rows.family(APPROVAL).items():
            if approval.phase == "OPEN" and id not in self._answered:
                self._inbox.send(self._session_id, TRIAGE.person[id](approval.arguments), actor=("USER", "support"))
                self._answered.add(id)
        return self._mailbox.take_up(conductor)

    def hand_in(self, conductor: Conductor, receipts: Sequence[Receipt]) -> Mapping[str, DalsegnoError | None]:
        return self._mailbox.hand_in(conductor, receipts)


@dataclass
class Desk:
    """Runs the service desk's sessions on a broker; ``folder`` holds what its tools do outside."""

    publisher: Publisher
    folder: Path

    def begin(self, session_id: str) -> Conductor:
        labels = [Label(key=key, value=value) for key, value in TRIAGE.labels.items()]
        session = self.publisher.session(session_id)
        return begin(session, pinned("triage"), goal=TRIAGE.goal, clock=CLOCK, labels=labels)

    def live(self, conductor: Conductor, session_id: str, *, answering: bool = True) -> Stopped:
        """``answering``: whether there is a person who answers what is asked."""
        ports = Ports(clock=CLOCK, providers={"*": script_of("triage")}, tools=PythonTools(loaded_tools("triage")))
        inbox = Inbox(self.publisher.transport, prefix=self.publisher.prefix)
        mailbox = Person(inbox, session_id) if answering else Mailbox(inbox, session_id)
        stopped = Live(conductor, ports, mailbox, patience_seconds=60 if answering else 0).run()
        session_of(conductor).close()
        return stopped

    def effects(self) -> list[dict[str, Any]]:
        """What the tools did outside, one by one."""
        return list(map(json.loads, (self.folder / TRIAGE.effects).read_text("utf-8").splitlines()))


@dataclass
class Held:
    """The service desk's session, as the broker holds it."""

    desk: Desk
    events: list[Event]
    _done: dict[str, Any] = field(default_factory=dict)

    @property
    def publisher(self) -> Publisher:
        return self.desk.publisher

    @cached_property
    def again(self) -> list[Event]:
        """All of it decided again from its facts, without ports."""
        events, result = decide_again(self.events)
        assert (result.ended, result.stopped, result.counts.inexact, result.left_over) == (True, None, 0, [])
        return events

    def once(self, name: str, do: Callable[[], Any]) -> Any:
        if name not in self._done:
            self._done[name] = do()
        return self._done[name]


@pytest.fixture(scope="module")
def world(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    found = World(KafkaConfig(bootstrap), f"t{uuid.uuid4().hex[:12]}", tmp_path_factory.mktemp("specification"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def held(world: World) -> Iterator[Held]:
    folder = world.folder / "desk"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch, Publisher(world.config, prefix=world.prefix) as publisher:
        patch.setenv("EXAMPLE_FOLDER", str(folder))
        desk = Desk(publisher, folder)
        assert desk.live(desk.begin(SESSION), SESSION).why == "ENDED"
        yield Held(desk, history(publisher, SESSION))


@pytest.fixture
def projected(held: Held, cli: Cli) -> Any:
    """What the replay said that built all projections of this machine; there were none."""
    return held.once(
        "projected",
        lambda: cli("replay", "run", "--mode", "projection-only", "--from", "earliest", "--yes").json,
    )


@pytest.fixture
def snapshot(held: Held, projected: Any, cli: Cli) -> Any:
    assert projected["state"] == "COMPLETED"
    return held.once("snapshot", lambda: cli("snapshot", "show", cli("snapshot", "take").json["id"]).json)


def replayed(held: Held, mode: str, **given: object) -> Replayed:
    return replay_session(Asked(held.events, Strategy(mode=mode), contents=StoredContents(None), **given))  # type: ignore[arg-type]


def equal(found: Replayed) -> None:
    assert (found.divergences, found.verdict, found.unreconstructable) == ([], "EQUAL", None)
    assert found.equal == found.compared > 0


def equal_in_every_mode(held: Held) -> None:
    for mode in MODES:
        equal(replayed(held, mode))


def refused(*_: object, **__: object) -> NoReturn:
    raise AssertionError("a replay reaches outside")


def told(events: Sequence[Event], *types: str) -> list[tuple[str, Any]]:
    """What these events say, in order; not when, nor by whom it was written."""
    said = [(event.type, dict(event.body)) for event in events if event.type in types]
    for _, body in said:
        del body["meta"]
    return said


def same_again(held: Held, *types: str) -> None:
    """Events of these types are there, and decided again they are the same, word for word."""
    recorded = told(held.events, *types)
    assert {type_ for type_, _ in recorded} == set(types)
    assert told(held.again, *types) == recorded


# --- 2: modes ---------------------------------------------------------------------------------------------------------


def test_full_replay(held: Held) -> None:
    found = replayed(held, "full")
    equal(found)
    assert (found.counts.inexact, found.counts.missed, found.left_over) == (0, 0, 0)


def test_partial_replay(held: Held) -> None:
    turns = [event.seq for event in held.events if event.type == "TurnStarted"]
    for mode in MODES:
        part, whole = replayed(held, mode, start=turns[-1]), replayed(held, mode)
        equal(part)
        assert part.compared < whole.compared


def test_inference_skipping_replay(held: Held) -> None:
    found = replayed(held, "inference-skipping")
    equal(found)
    assert (found.counts.rerun, found.events) == (0, len(held.events))


def test_projection_only_replay(held: Held, projected: Any, cli: Cli) -> None:
    assert (projected["mode"], projected["state"]) == ("projection-only", "COMPLETED")
    assert cli("session", "show", SESSION).json["session"]["last_seq"] == len(held.events)
    assert [each.hash for each in history(held.publisher, SESSION)] == [each.hash for each in held.events]


@pytest.mark.usefixtures("projected")
def test_deterministic_simulation(cli: Cli, tmp_path: Path) -> None:
    reference = tmp_path / "golden.jsonl"
    cli("golden", "record", SESSION, "--output", reference)
    assert cli("golden", "check", reference).json["same"]
    text = reference.read_text("utf-8")
    reference.write_text(text.replace("REQUIRE_APPROVAL", "ALLOW"), "utf-8")
    assert cli("golden", "check", reference, code=3).json["difference"]


# --- 3: what can be replayed ------------------------------------------------------------------------------------------


def test_the_sessions_lifecycle_can_be_replayed(held: Held) -> None:
    same_again(held, "SessionCreated", "SessionStarted", "TurnStarted", "TurnCompleted", "SessionCompleted")


def test_stage_scheduling_and_transitions_can_be_replayed(held: Held) -> None:
    same_again(held, "StageScheduled", "StageStarted", "StageCompleted", "TransitionTaken")


def test_context_packs_can_be_replayed_and_compressions_are_reused(held: Held) -> None:
    same_again(held, "ContextPackBuilt", "CompressionStarted", "CompressionCompleted")


def test_validation_decisions_can_be_replayed(held: Held) -> None:
    same_again(held, "ValidationRequested", "ValidationDecided")


def test_approval_decisions_can_be_replayed(held: Held) -> None:
    same_again(held, "PolicyEvaluated", "ApprovalRequested", "ApprovalGranted", "ApprovalDenied", "ToolCallAuthorized",
               "ToolCallRejected")  # fmt: skip


def test_tool_receipts_can_be_replayed_and_no_tool_runs(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PythonTools, "run", refused)
    effects = held.desk.effects()
    same_again(held, "ToolCallRequested", "ToolCallStarted", "ToolReceiptRecorded")
    equal(replayed(held, "full"))
    assert held.desk.effects() == effects != []


def test_all_projections_can_be_replayed(projected: Any, cli: Cli) -> None:
    names = {each.name for each in built_in()}
    assert projected["projections"].keys() == names
    for report in cli("verify").json:
        assert names <= report["digests"].keys()
        assert (report["differing"], report["uncompared"]) == (0, [])


# --- 4: what is not needed --------------------------------------------------------------------------------------------


def test_the_models_weights_are_not_needed(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scripted, "complete", refused)
    equal_in_every_mode(held)


def test_live_tool_access_is_not_needed(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PythonTools, "run", refused)
    monkeypatch.setattr(subprocess, "Popen", refused)
    monkeypatch.delenv("EXAMPLE_FOLDER")
    equal_in_every_mode(held)


def test_network_connectivity_is_not_needed(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    equal_in_every_mode(held)


def test_provider_credentials_are_not_needed(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    equal_in_every_mode(held)


def test_the_routers_user_interface_is_not_needed(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inbox, "send", refused)
    monkeypatch.setattr(Mailbox, "take_up", refused)
    equal_in_every_mode(held)


def test_the_events_and_their_configuration_are_enough(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "open", refused)
    monkeypatch.setattr(Path, "read_bytes", refused)
    equal_in_every_mode(held)
    without = [event for event in held.events if event.type != "ConfigPinned"]
    found = replay_session(Asked(without, Strategy(mode="inference-skipping"), contents=StoredContents(None)))
    assert found.verdict == "NOT_COMPARED"


# --- 5: guarantees ----------------------------------------------------------------------------------------------------


def test_unchanged_events_give_an_equal_result(held: Held) -> None:
    other = Held(held.desk, history(held.publisher, SESSION))
    for mode in MODES:
        one, again = replayed(held, mode), replayed(other, mode)
        assert (one.identity, one.as_data()) == (again.identity, again.as_data())


def test_another_configuration_is_named_where_it_first_decides_otherwise(held: Held) -> None:
    names = {e.body["tool_call_id"]: e.body["name"] for e in held.events if e.type == "ToolCallRequested"}
    first = next(e.seq for e in held.events if e.type == "PolicyEvaluated" and names[e.body["subject_id"]] == "refund")

    def stricter(given: Any) -> Any:
        return replace(given, policy=no_money())

    found = replayed(held, "inference-skipping", override=stricter, changed="policy stricter")
    of_refunds = [each for each in found.divergences if names.get(each.subject.rpartition("/")[0]) == "refund"]
    assert of_refunds[0].seq == first
    assert of_refunds[0].kind == "CONFIG"
    assert found.identity != replayed(held, "inference-skipping").identity


def test_another_strategy_is_another_result(held: Held) -> None:
    assert len({replayed(held, mode).identity for mode in MODES}) == len(MODES)


def test_trusting_what_was_recorded_is_the_modes_choice(held: Held) -> None:
    last_turn = max(event.seq for event in held.events if event.type == "TurnStarted")
    recorded = run_in_fork(held.publisher, SESSION, last_turn, Strategy(), suffix="recorded")
    answers = [event for event in recorded.events if event.type == "InferenceCompleted"]
    assert answers
    assert {event.meta["origin"]["importer"] for event in answers} == {EXACT}
    assert recorded.result.ended


def no_money() -> Policy:
    return Policy(name="stricter", rules=[PolicyRule(id="no-money", decision="DENY", when='call.tool == "refund"')])


# --- 6: use cases -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("projected")
def test_debugging_step_by_step_with_context_packs_and_validation_outcomes(held: Held, cli: Cli) -> None:
    packs = [event for event in held.events if event.type == "ContextPackBuilt"]
    verdicts = [event for event in held.events if event.type == "ValidationDecided"]
    refund = next(e.seq for e in held.events if e.type == "ToolCallStarted" and e.body["tool_call_id"] == REFUND)
    commands = [
        f":{packs[1].seq}", "pack", "n", "b", "t ValidationDecided", "validations",
        f"break when event.type == 'ToolCallStarted' && event.tool_call_id == '{REFUND}'", "c", "state",
        f":{len(held.events)}", "C",
    ]  # fmt: skip
    said = cli("session", "step", SESSION, "--commands", ";".join(commands))
    at = [json.loads(line) for line in said.out.splitlines()]
    assert [each["seq"] for each in at] == [
        *[packs[1].seq] * 2, packs[1].seq + 1, packs[1].seq, *[verdicts[0].seq] * 3, *[refund] * 2, len(held.events),
        refund,
    ]  # fmt: skip
    shown = at[1]["pack"]
    assert (shown["pack_id"], shown["missing"]) == (packs[1].body["pack_id"], None)
    assert {each["item_id"]: each["digest"] for each in shown["items"]} == {
        each["item_id"]: each["digest"].hex() for pack in packs[:2] for each in pack.body["added"]
    }
    said = {each["item_id"]: each["content"] for each in shown["items"]}
    assert said["system"].startswith("You work at the service desk of a small shop. Your task: Work through")
    assert said["goal"] == TRIAGE.goal
    assert {tool["function"]["name"] for tool in json.loads(said["tools"])} == {"list_tickets", "read_ticket"}
    results = {each["source_seq"]: each["content"] for each in shown["items"] if each["kind"] == "TOOL_RESULT"}
    receipts = {event.seq: event.body["result"] for event in held.events if event.type == "ToolReceiptRecorded"}
    assert results == {seq: receipts[seq]["inline"].decode() for seq in results} != {}
    assert sum(at[5]["outcomes"].values()) == 1
    assert at[5]["validations"][0]["verdict"] == verdicts[0].body["verdict"]
    assert {"kind": "TOOL", "id": REFUND} in at[8]["open"]


@pytest.mark.usefixtures("projected")
def test_debugging_the_state_at_any_seq(held: Held, world: World, cli: Cli) -> None:
    seq = next(event.seq for event in held.events if event.type == "ApprovalRequested")
    then = cli("session", "show", SESSION, "--at", str(seq)).json
    assert (then["session"]["last_seq"], then["session"]["approvals_open"]) == (seq, 1)
    assert any(each["kind"] == "APPROVAL" for each in then["open"])
    for each in (seq, len(held.events) // 2, len(held.events)):
        straight = MemoryRows()
        for event in held.events[:each]:
            fold_event(straight, event)
        with LocalReader(world.folder / "a", world.prefix, FolderStore(world.store), _nobody, built_in()) as reader:
            assert dict(rows_at(reader, SESSION, each).all()) == dict(straight.all())


def _nobody() -> NoReturn:
    raise AssertionError("a broker is asked")


@pytest.mark.usefixtures("projected")
def test_audit_which_decision_led_to_a_tools_execution_and_why(held: Held, world: World) -> None:
    seqs = {(e.type, e.body.get("tool_call_id") or e.body.get("approval_id") or e.body.get("subject_id")): e.seq
            for e in held.events}  # fmt: skip
    found = why(world, REFUND)
    assert (found.outcome, found.missing, found.refused) == ("EXECUTED", (), ())
    assert [link.seq for link in found.links[:5]] == [
        seqs["ToolReceiptRecorded", REFUND], seqs["ToolCallStarted", REFUND], seqs["ToolCallAuthorized", REFUND],
        seqs["ApprovalGranted", f"{REFUND}/a1"], seqs["ApprovalRequested", f"{REFUND}/a1"],
    ]  # fmt: skip
    asked = next(link for link in found.links if link.type == "ApprovalRequested")
    decided = next(link for link in found.links if link.type == "PolicyEvaluated")
    assert (asked.seq, decided.seq) in {(edge.effect, edge.cause) for edge in found.edges}
    rule = next(e for e in held.events if e.seq == decided.seq).body
    assert (rule["decision"], list(rule["rule_ids"])) == ("REQUIRE_APPROVAL", ["large-refund"])
    shown = next(e.seq for e in held.events if e.type == "ContextPackBuilt" and e.seq == found.edges[-1].cause)
    assert shown < seqs["ToolCallRequested", REFUND]


@pytest.mark.usefixtures("projected")
def test_audit_which_decision_kept_a_tool_from_running(world: World) -> None:
    found = why(world, "act.1/t1/c2")
    assert (found.outcome, found.missing) == ("REJECTED", ())
    assert [link.type for link in found.links[:3]] == ["ToolCallRejected", "ApprovalDenied", "ApprovalRequested"]


def why(world: World, call: str) -> Chain:
    with LocalReader(world.folder / "a", world.prefix, FolderStore(world.store), _nobody, built_in()) as reader:
        rows = dict(session_rows(find_session(reader, SESSION), "audit"))
        return chain(call, rows[(call,)])


def test_recovery_resumes_from_the_last_stable_cursor(held: Held) -> None:
    name = "recovered"
    before = len(held.desk.effects())
    conductor = held.desk.begin(name)
    assert held.desk.live(conductor, name, answering=False).why != "ENDED"
    stopped = history(held.publisher, name)
    again = resume(held.publisher, name, clock=CLOCK)  # of the process before nothing is left but the log
    recovered = history(held.publisher, name)
    assert recovered[len(stopped)].type == "SessionRecovered"
    assert [event.hash for event in recovered[: len(stopped)]] == [event.hash for event in stopped]
    assert held.desk.live(again, name).why == "ENDED"
    whole = history(held.publisher, name)
    assert (outcome(whole), violations(whole)) == (outcome(held.events), [])
    assert once_each(held.desk.effects()[before:]) == once_each(held.desk.effects()[:before])


def once_each(effects: list[dict[str, Any]]) -> list[str]:
    """Without the keys by which a repetition would be known: those have the session's name in them."""
    done = sorted(json.dumps({name: value for name, value in each.items() if name != "key"}) for each in effects)
    assert doubled(done) == []
    return done


def test_data_sets_from_a_workflow_again_with_another_provider(held: Held) -> None:
    last_turn = max(event.seq for event in held.events if event.type == "TurnStarted")
    ports = Ports(clock=CLOCK, providers={"*": script_of("triage")})
    strategy = Strategy(inference="rerun", on_miss="stop")
    forked = run_in_fork(held.publisher, SESSION, last_turn, strategy, ports, suffix="again", purpose="DATASET")
    assert forked.result.ended
    assert forked.result.counts.rerun > 0
    there = history(held.publisher, forked.session_id)
    assert [event.hash for event in there[-len(forked.events) :]] == [event.hash for event in forked.events]
    assert [event.hash for event in history(held.publisher, SESSION)] == [event.hash for event in held.events]


def test_testing_orchestration_without_real_models(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scripted, "complete", refused)
    assert compare(lines_of(held.events), lines_of(held.again)) is None
    first_turn = next(event.seq for event in held.events if event.type == "TurnStarted")
    policy = pinned_document("POLICY", no_money(), "stricter", "1")
    forked = run_in_fork(
        held.publisher, SESSION, first_turn, Strategy(on_miss="stop"), documents=[policy], suffix="stricter"
    )
    refunds = {e.body["tool_call_id"] for e in forked.events if e.type == "ToolCallRequested" and
               e.body["name"] == "refund"}  # fmt: skip
    assert refunds
    assert not refunds & {e.body["tool_call_id"] for e in forked.events if e.type == "ToolCallStarted"}


# --- 7: snapshots and cursors -----------------------------------------------------------------------------------------


def test_a_snapshot_is_projections_at_one_moment_with_their_cursor(world: World, snapshot: Any, cli: Cli) -> None:
    assert {shard["partition"] for shard in snapshot["shards"]} == set(range(world.partitions))
    assert cli("snapshot", "verify", snapshot["id"])
    cursors = {shard["partition"]: shard["next_offset"] for shard in snapshot["shards"]}
    _, digests = world.straight_fold(cursors)
    for shard in snapshot["shards"]:
        bundle = cli("snapshot", "show", shard["id"]).json["projections"]
        assert {name: text.split()[1] for name, text in bundle.items()} == digests[shard["partition"]]


# case C41
def test_only_events_behind_the_cursor_are_processed_again(
    world: World, snapshot: Any, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name in ((PythonTools, "run"), (Scripted, "complete"), (OpenAiHttp, "complete"), (Inbox, "send")):
        monkeypatch.setattr(owner, name, refused)
    world.produce(20)
    tail = sum(world.ends()[shard["partition"]] - shard["next_offset"] for shard in snapshot["shards"])
    done = cli("replay", "run", "--from", f"snapshot:{snapshot['id']}", "--yes").json
    assert (done["state"], done["records"]) == ("COMPLETED", tail)
    assert 0 < tail < sum(world.ends().values())
    assert all(report["differing"] == 0 for report in cli("verify").json)


# --- 8: constraints ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("projected")
def test_all_projections_are_built_from_events_alone(world: World, cli: Cli) -> None:
    reports = cli("verify").json
    straight, digests = world.straight_fold({report["partition"]: report["cursor"] for report in reports})
    assert {report["partition"]: report["digests"] for report in reports} == digests
    assert world.topic_rows() == straight


def test_context_packs_are_built_again_with_recorded_compressions(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scripted, "complete", refused)
    same_again(held, "ContextPackBuilt")
    forged = [
        replace(event, body={**event.body, "summary": asdict(blob("other words"))})
        if event.type == "CompressionCompleted"
        else event
        for event in held.events
    ]

    def differing(compression: Any) -> set[str]:
        strategy = Strategy(mode="inference-skipping", compression=compression)
        return {
            each.type for each in replay_session(Asked(forged, strategy, contents=StoredContents(None))).divergences
        }

    assert differing("recorded") == {"ContextPackBuilt"}, "it is used"
    assert differing("recompute") == {"CompressionCompleted", "ContextPackBuilt"}


def test_nothing_depends_on_state_in_memory_that_is_not_from_events(held: Held) -> None:
    name = "in-memory"
    conductor = held.desk.begin(name)
    held.desk.live(conductor, name, answering=False)
    straight = MemoryRows()
    for event in history(held.publisher, name):
        fold_event(straight, event)
    assert dict(conductor.rows.all()) == dict(straight.all())


def test_events_stay_serializable_and_versioned(held: Held, world: World) -> None:
    nobody = SchemaSet()
    held.publisher.transport.refresh_schemas(world.prefix, nobody, 30)
    number = partition_of(SESSION, world.partitions)
    placed = [
        place(nobody, record.key, record.value, number, world.partitions)
        for batch in read_range(world.config, world.events, number, 0)
        for record in batch.records
    ]
    found = {each.seq: each for each in placed if isinstance(each, Event) and each.session_id == SESSION}
    assert [found[event.seq].hash for event in held.events] == [event.hash for event in held.events]
    assert [found[event.seq].body for event in held.events] == [event.body for event in held.events]

"""Lines of the replay model about decisions, on sessions that a real broker holds (``docs/specification.md``)."""

from __future__ import annotations

import socket
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import KafkaForTest
from dalsegno.harness.conductor import Conductor
from dalsegno.harness.live import Live
from dalsegno.harness.mailbox import Mailbox
from dalsegno.harness.performing import Ports
from dalsegno.harness.sessions import StoredContents, begin, history
from dalsegno.harness.tools import PythonTools
from dalsegno.log.inbox import Inbox
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.publisher import Publisher
from dalsegno.model.events import Label
from dalsegno.model.records import Event
from dalsegno.orchestration.configuration import pinned as pinned_document
from dalsegno.orchestration.documents import Policy, PolicyRule
from dalsegno.projections.decider.rows import APPROVAL
from dalsegno.replay.again import decide_again
from dalsegno.replay.forked import run_in_fork
from dalsegno.replay.golden import compare, lines_of
from dalsegno.replay.serving import EXACT
from dalsegno.replay.session_replay import Asked, Replayed, replay_session
from dalsegno.replay.strategy import Strategy
from workflow_lab import CLOCK, TRIAGE, loaded_tools, pinned, script_of

pytestmark = pytest.mark.broker
SESSION = "specification"


class Person:
    """Answers each approval once, by a command of the inbox."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox, self._mailbox = inbox, Mailbox(inbox, SESSION)
        self._answered: set[str] = set()

    def take_up(self, conductor: Conductor) -> bool:
        for id, approval in conductor.rows.family(APPROVAL).items():
            if approval.phase == "OPEN" and id not in self._answered:
                self._inbox.send(SESSION, TRIAGE.person[id](approval.arguments), actor=("USER", "support"))
                self._answered.add(id)
        return self._mailbox.take_up(conductor)


@dataclass(frozen=True)
class Held:
    """The service desk's session, as the broker holds it."""

    publisher: Publisher
    events: list[Event]

    def types(self) -> list[str]:
        return [event.type for event in self.events]


@pytest.fixture(scope="module")
def held(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    kafka = KafkaForTest(KafkaConfig(bootstrap), f"t{uuid.uuid4().hex[:12]}")
    kafka.topics()
    folder: Path = tmp_path_factory.mktemp("desk")
    with pytest.MonkeyPatch.context() as patch, Publisher(kafka.config, prefix=kafka.prefix) as publisher:
        patch.setenv("EXAMPLE_FOLDER", str(folder))
        labels = [Label(key=key, value=value) for key, value in TRIAGE.labels.items()]
        session = publisher.session(SESSION)
        conductor = begin(session, pinned("triage"), goal=TRIAGE.goal, clock=CLOCK, labels=labels)
        tools = PythonTools(loaded_tools("triage"))
        ports = Ports(clock=CLOCK, providers={"*": script_of("triage")}, tools=tools)
        person = Person(Inbox(publisher.transport, prefix=kafka.prefix))
        assert Live(conductor, ports, person, patience_seconds=60).run().why == "ENDED"
        session.close()
        yield Held(publisher, history(publisher, SESSION))


def replayed(held: Held, mode: str, **given: object) -> Replayed:
    return replay_session(Asked(held.events, Strategy(mode=mode), contents=StoredContents(None), **given))  # type: ignore[arg-type]


def equal(found: Replayed) -> None:
    assert (found.divergences, found.verdict, found.unreconstructable) == ([], "EQUAL", None)
    assert found.equal == found.compared > 0


def alone(patch: pytest.MonkeyPatch) -> None:
    """Nothing outside can be reached from here on."""

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a replay reaches outside")

    patch.setattr(socket.socket, "connect", refused)
    patch.setattr(subprocess, "Popen", refused)


# --- 2 ----------------------------------------------------------------------------------------------------------------


def test_full_replay(held: Held) -> None:
    found = replayed(held, "full")
    equal(found)
    assert (found.counts.inexact, found.counts.missed, found.left_over) == (0, 0, 0)


def test_partial_replay(held: Held) -> None:
    turns = [event.seq for event in held.events if event.type == "TurnStarted"]
    for mode in ("full", "inference-skipping", "simulation"):
        part, whole = replayed(held, mode, start=turns[-1]), replayed(held, mode)
        equal(part)
        assert part.compared < whole.compared


def test_inference_skipping_replay(held: Held) -> None:
    found = replayed(held, "inference-skipping")
    equal(found)
    assert (found.counts.rerun, found.events) == (0, len(held.events))


def test_deterministic_simulation(held: Held) -> None:
    again, result = decide_again(held.events)
    assert (result.ended, result.stopped) == (True, None)
    assert compare(lines_of(held.events), lines_of(again)) is None


# --- 3 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "types",
    [
        pytest.param({"SessionCompleted"}, id="lifecycle"),
        pytest.param({"StageScheduled", "TransitionTaken"}, id="stages and transitions"),
        pytest.param({"ContextPackBuilt", "CompressionStarted", "CompressionCompleted"}, id="context packs"),
        pytest.param({"ValidationRequested", "ValidationDecided"}, id="validation"),
        pytest.param(
            {"PolicyEvaluated", "ApprovalRequested", "ToolCallAuthorized", "ToolCallRejected"}, id="approvals"
        ),
        pytest.param({"ToolCallRequested", "TurnCompleted"}, id="tool receipts"),
    ],
)
def test_what_can_be_replayed(held: Held, types: set[str]) -> None:
    recorded = [(event.type, event.body) for event in held.events if event.type in types]
    again, _ = decide_again(held.events)
    made = [(event.type, event.body) for event in again if event.type in types]
    assert {type_ for type_, _ in recorded} == types
    assert [type_ for type_, _ in made] == [type_ for type_, _ in recorded]
    equal(replayed(held, "full"))


# --- 4 ----------------------------------------------------------------------------------------------------------------


def test_nothing_but_the_events_and_their_configuration_is_needed(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch)
    for name in ("OPENAI_API_KEY", "EXAMPLE_FOLDER"):
        monkeypatch.delenv(name, raising=False)
    for mode in ("full", "inference-skipping", "simulation"):
        equal(replayed(held, mode))


# --- 5 ----------------------------------------------------------------------------------------------------------------


def test_equal_events_configuration_and_strategy_give_an_equal_result(held: Held) -> None:
    one, other = replayed(held, "full"), replayed(held, "full")
    assert (one.identity, one.as_data()) == (other.identity, other.as_data())
    assert replayed(held, "inference-skipping").identity != one.identity


def test_another_configuration_is_named_where_it_first_decides_otherwise(held: Held) -> None:
    rule = PolicyRule(id="no-money", decision="DENY", when='call.tool == "refund"')
    policy = Policy(name="stricter", rules=[rule])
    names = {e.body["tool_call_id"]: e.body["name"] for e in held.events if e.type == "ToolCallRequested"}
    first = next(e.seq for e in held.events if e.type == "PolicyEvaluated" and names[e.body["subject_id"]] == "refund")

    def stricter(pinned: object) -> object:
        from msgspec.structs import replace

        return replace(pinned, policy=policy)  # type: ignore[type-var]

    found = replayed(held, "inference-skipping", override=stricter, changed="policy stricter")
    of_refunds = [each for each in found.divergences if names.get(each.subject.rpartition("/")[0]) == "refund"]
    assert of_refunds[0].seq == first
    assert of_refunds[0].kind == "CONFIG"


def test_trusting_what_was_recorded_is_the_modes_choice(held: Held) -> None:
    last_turn = max(event.seq for event in held.events if event.type == "TurnStarted")
    recorded = run_in_fork(held.publisher, SESSION, last_turn, Strategy(), suffix="recorded")
    answers = [event for event in recorded.events if event.type == "InferenceCompleted"]
    assert answers
    assert {event.meta["origin"]["importer"] for event in answers} == {EXACT}
    assert recorded.result.ended


# --- 6 ----------------------------------------------------------------------------------------------------------------


def test_a_workflow_again_with_another_provider_is_a_fork_and_leaves_the_session_as_it_was(held: Held) -> None:
    last_turn = max(event.seq for event in held.events if event.type == "TurnStarted")
    ports = Ports(clock=CLOCK, providers={"*": script_of("triage")})
    strategy = Strategy(inference="rerun", on_miss="stop")
    forked = run_in_fork(held.publisher, SESSION, last_turn, strategy, ports, suffix="again", purpose="DATASET")
    assert forked.result.ended
    assert forked.result.counts.rerun > 0
    there = history(held.publisher, forked.session_id)
    assert [event.hash for event in there[-len(forked.events) :]] == [event.hash for event in forked.events]
    assert [event.hash for event in history(held.publisher, SESSION)] == [event.hash for event in held.events]


def test_another_policy_is_pinned_in_a_fork_and_decides_there(held: Held) -> None:
    first_turn = next(event.seq for event in held.events if event.type == "TurnStarted")
    rule = PolicyRule(id="no-money", decision="DENY", when='call.tool == "refund"')
    policy = pinned_document("POLICY", Policy(name="stricter", rules=[rule]), "stricter", "1")
    forked = run_in_fork(
        held.publisher, SESSION, first_turn, Strategy(on_miss="stop"), documents=[policy], suffix="stricter"
    )
    refunds = {e.body["tool_call_id"] for e in forked.events if e.type == "ToolCallRequested" and
               e.body["name"] == "refund"}  # fmt: skip
    assert refunds
    assert not refunds & {e.body["tool_call_id"] for e in forked.events if e.type == "ToolCallStarted"}

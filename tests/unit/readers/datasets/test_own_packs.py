"""Rows of sessions that dalsegno decides: the messages are those that the provider was sent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from dalsegno.harness import sessions
from dalsegno.harness.clock import SystemClock
from dalsegno.harness.live import Live
from dalsegno.harness.performing import Ports
from dalsegno.harness.providers.scripted import Scripted
from dalsegno.harness.sessions import begin, build
from dalsegno.harness.tools import PythonTools, tool
from dalsegno.log.redaction import RedactionRule, Redactor
from dalsegno.log.topics import EVENTS, topic_name
from dalsegno.model.records import ERASED, Event, stub_event
from dalsegno.orchestration.configuration import Loaded, documents
from dalsegno.orchestration.documents import (
    Agent,
    CompressionRule,
    CompressionRules,
    Policy,
    PolicyRule,
    Prompts,
    Protected,
    Stage,
    Tokenizer,
    Triggers,
    Validators,
    ValidatorSpec,
    Workflow,
)
from dalsegno.orchestration.ports import Answer, Request
from dalsegno.readers.datasets.history import Shown, Told
from dalsegno.readers.datasets.left_out import REASONS
from dalsegno.readers.datasets.own_packs import OwnPacks
from dalsegno.readers.datasets.reading import SessionReading
from dalsegno.readers.datasets.rows import Missed, Row, rows_of
from dalsegno.readers.lineage import history_events
from dalsegno.storage.blobs import Blobs
from dalsegno.testing import memory_publisher
from dalsegno.testing.builder import Written
from dataset_lab import Chat
from reader_lab import House

SECRET = "sk-1234567890"


@tool(effect="READ")
def look(what: str) -> str:
    """Look at it."""
    return f"saw {what} {SECRET} " + "and so on " * 40


@tool(effect="READ")
def read_all() -> str:
    """More than stands in an event."""
    return "all " * 20_000 + SECRET


@tool(effect="WRITE", risk="HIGH")
def write(text: str) -> str:
    """Write it."""
    return f"wrote {text}"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


SCRIPT: list[dict[str, Any]] = [
    {"match": "plan.1/t1/i", "calls": [call("look", what="a"), call("read_all"), call("nope"), call("look", what="a")]},
    {"match": "plan.1/t2/i", "text": "half a plan", "calls": [call("look", what="b")]},
    {"match": "plan.1/t3/i", "text": "the plan"},
    {"match": "work.1/t1/i", "calls": [call("write", text="x"), call("write", text="y")]},
    {"match": "work.1/t2/i", "text": "done"},
    {"match": "work.1/t3/i", "text": "done better"},
    {"match": "work.1/t2/v.judged/i", "text": {"verdict": "REJECT", "findings": ["too short"]}},
    {"match": "work.1/t3/v.judged/i", "text": {"verdict": "PASS"}},
    {"match": "*/k1/i", "text": "what went before, in short"},
]
AGENTS_ANSWERS = ["plan.1/t1/i", "plan.1/t2/i", "plan.1/t3/i", "work.1/t1/i", "work.1/t2/i", "work.1/t3/i"]


class Listening:
    """A provider that keeps what it is sent."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}
        self._script = Scripted(SCRIPT)

    def complete(self, request: Request) -> Answer:
        self.requests[request.inference_id] = request
        return self._script.complete(request)


def loaded(tools: PythonTools, rules: Sequence[CompressionRule]) -> Loaded:
    agents = {name: Agent(provider="scripted", model=name, prompt=name, params={"n": 1}) for name in ("main", "judge")}
    stages = [
        Stage(name="plan", agent="main", tools=["look", "read_all"]),
        Stage(name="work", agent="main", depends_on=["plan"], tools=["write"], validators=["judged"]),
    ]
    deny = PolicyRule(id="no-x", decision="DENY", when='call.tool == "write" && call.arguments.text == "x"')
    return Loaded(
        workflow=Workflow(name="w", agents=agents, stages=stages),
        policy=Policy(rules=[deny]),
        compression=CompressionRules(rules=list(rules)),
        tools=tools.catalog(),
        prompts=Prompts(templates={"main": "Work on {goal} in {stage}.", "judge": "Judge.", "short": "Shorter."}),
        validators=Validators(validators=[ValidatorSpec(name="judged", agent="judge", prompt="judge")]),
        tokenizer=Tokenizer(),
    )


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path) as found:
        yield found


def run(house: House, rules: Sequence[CompressionRule] = (), goal: str = "the goal") -> Listening:
    """One session to its end, its log folded into a shard of the house."""
    tools, provider = PythonTools([look, read_all, write]), Listening()
    with memory_publisher(partitions=1, prefix="p", blobs=Blobs(house.store)) as publisher:
        made = documents(loaded(tools, rules), build("tests"))
        conductor = begin(publisher.session("s-1"), made, goal=goal, clock=SystemClock())
        ports = Ports(clock=SystemClock(), providers={"*": provider}, tools=tools)
        assert Live(conductor, ports, patience_seconds=30).run().why == "ENDED"
    log = publisher.log.records(topic_name("p", EVENTS))
    house.shard([Written(record.key or b"", record.value, None) for record in log])
    return provider


def made_of(house: House, redact: Redactor | None = None) -> list[Row | Missed]:
    return list(rows_of(SessionReading(house.reader(), Blobs(house.store), redact).told("s-1")))


def events_of(house: House) -> list[Event]:
    return list(history_events(house.reader(), "s-1"))


COMPRESSIONS = {
    "none": [],
    "mask": [CompressionRule(id="k", method="MASK", when=Triggers(turns=1), protect=Protected(turns=1))],
    "dedup": [CompressionRule(id="k", method="DEDUP", when=Triggers(turns=1), protect=Protected(turns=0))],
    "trim": [CompressionRule(id="k", method="TRIM", when=Triggers(turns=1), protect=Protected(turns=1))],
    "summary": [
        CompressionRule(
            id="k", method="SUMMARY", when=Triggers(turns=1), protect=Protected(turns=1), agent="judge", prompt="short"
        )
    ],
}


@pytest.mark.parametrize("rules", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_each_row_has_what_the_provider_was_sent(house: House, rules: list[CompressionRule]) -> None:
    provider = run(house, rules)
    rows = made_of(house)
    assert all(isinstance(row, Row) for row in rows), rows
    found = {row.provenance["inference"]: row for row in rows if isinstance(row, Row)}
    assert list(found) == AGENTS_ANSWERS
    for id, row in found.items():
        sent = provider.requests[id]
        assert json.dumps([row.prompt, row.tools]) == json.dumps([list(sent.messages), list(sent.tools)]), id
        assert row.provenance["request_digest"] == sent.request_digest.hex()
        assert (row.provenance["context"], row.provenance["tools_recorded"]) == ("pack", True)
        assert row.provenance["first_seq"] < row.provenance["last_seq"]
    shortened = [event for event in events_of(house) if event.type == "CompressionCompleted"]
    assert bool(shortened) == bool(rules)
    if not rules:
        last = found["work.1/t3/i"].prompt
        for id in ("plan.1/t1/i", "plan.1/t2/i", "work.1/t1/i", "work.1/t2/i"):
            assert found[id].answer in last, "an answer is written as later requests repeat it"
        assert "[content of 80013 bytes" in json.dumps(last), "what the store holds was not shown"


@pytest.fixture
def goals_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our harness begins nothing with a goal that no agent would be shown whole; another one may."""
    monkeypatch.setattr(sessions, "INLINE_MAX_BYTES", 1 << 20)


@pytest.mark.usefixtures("goals_of_any_size")
def test_a_goal_that_lies_in_the_store_is_read_from_there(house: House) -> None:
    provider = run(house, goal="g" * 70_000)
    (first, *_) = made_of(house)
    assert isinstance(first, Row)
    assert first.prompt == list(provider.requests["plan.1/t1/i"].messages)
    assert first.prompt[0]["content"].startswith("Work on ggg")


@pytest.mark.usefixtures("goals_of_any_size")
def test_what_the_store_has_lost_leaves_the_rows_out(house: House) -> None:
    run(house, goal="g" * 70_000)
    (lost,) = [path for path in house.store_folder.rglob("*") if path.is_file() and path.read_bytes() == b"g" * 70_000]
    lost.unlink()
    assert set(made_of(house)) == {Missed("own-builder")}
    assert "own-builder" in REASONS


_STORED = re.compile(r"\[content of [^]]+]")


def test_rules_take_out_of_what_was_sent(house: House) -> None:
    provider = run(house)
    rows = made_of(house, Redactor([RedactionRule(name="key", pattern=r"sk-[0-9]+")]))
    found = {row.provenance["inference"]: row for row in rows if isinstance(row, Row)}
    assert list(found) == AGENTS_ANSWERS
    for id, row in found.items():
        sent = json.dumps(list(provider.requests[id].messages)).replace(SECRET, "[redacted:key]")
        assert _STORED.sub("", json.dumps(row.prompt)) == _STORED.sub("", sent)
    last = found["work.1/t3/i"]
    stored = sha256(("all " * 20_000 + SECRET).encode()).hexdigest()
    assert stored in json.dumps(list(provider.requests["work.1/t3/i"].messages))
    assert stored not in json.dumps(last.as_data()), "nor is a digest told of what was taken out"
    assert SECRET in json.dumps(list(provider.requests["work.1/t3/i"].messages))
    assert (last.provenance["redacted"], last.provenance["request_digest"]) == (True, None)
    first = found["plan.1/t1/i"]
    assert (first.provenance["redacted"], first.provenance["request_digest"] is None) == (False, False)


def shown_along(house: House, events: list[Event], own_from: int = 1) -> dict[str, Shown]:
    packs = OwnPacks(lambda event: Told(event, own=event.seq >= own_from), Blobs(house.store), redacting=False)
    taken = [(event, packs.take(event)) for event in events]
    return {event.body["inference_id"]: shown for event, shown in taken if shown is not None}


def erased(events: list[Event], type_: str) -> list[Event]:
    """Without the first event of that type."""
    place = next(n for n, event in enumerate(events) if event.type == type_)
    old = events[place]
    stub = stub_event(old.session_id, old.link, old.type, ERASED)
    return [*events[:place], stub, *events[place + 1 :]]


@pytest.mark.parametrize("type_", ["SessionCreated", "StageScheduled"])
def test_without_what_all_rests_on_nothing_is_a_row(house: House, type_: str) -> None:
    run(house)
    problems = {id: shown.problem for id, shown in shown_along(house, erased(events_of(house), type_)).items()}
    assert (list(problems), problems["plan.1/t1/i"]) == (AGENTS_ANSWERS, "erased")
    assert type_ != "SessionCreated" or set(problems.values()) == {"erased"}


def test_a_pack_that_names_what_is_no_message_is_none(house: House) -> None:
    run(house)
    events = events_of(house)
    goal = sha256(b"the goal").digest()
    for event in events:
        for item in event.body["added"] if event.type == "ContextPackBuilt" else []:
            item["digest"] = goal
    assert {shown.problem for shown in shown_along(house, events).values()} == {"own-builder"}


def test_behind_an_erased_event_only_what_is_proved_whole_is_a_row(house: House) -> None:
    run(house, [CompressionRule(id="k", method="TRIM", when=Triggers(turns=1), protect=Protected(turns=1))])
    events = erased(events_of(house), "ToolReceiptRecorded")
    problems = {id: shown.problem for id, shown in shown_along(house, events).items()}
    assert list(problems) == AGENTS_ANSWERS
    assert problems["plan.1/t1/i"] is None
    assert problems["plan.1/t2/i"] == "erased", "the result was shown"
    assert problems["work.1/t3/i"] is None, "it was trimmed before"


def test_of_a_fork_only_its_own_events_say_where_a_row_begins(house: House) -> None:
    run(house)
    events = events_of(house)
    forked = next(
        event.seq for event in events if event.type == "StageScheduled" and event.body["stage_name"] == "work"
    )
    used = shown_along(house, events, own_from=forked)["work.1/t2/i"].used
    assert {told.event.seq < forked for told in used} == {True, False}
    assert all(told.own == (told.event.seq >= forked) for told in used)


def test_a_session_of_another_harness_is_not_folded(house: House) -> None:
    def prepare(event: Event) -> Told:
        raise AssertionError(event)

    packs = OwnPacks(prepare, Blobs(house.store), redacting=False)
    events = Chat().user("go").ask().answer("a").builder.events
    assert [packs.take(event) for event in events] == [None] * len(events)

"""What dalsegno's own packs held that no event holds: each text is there, or none is told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

import pytest

from dalsegno.model.records import Event
from dalsegno.orchestration.canonical import canonical
from dalsegno.readers.datasets.history import Told
from dalsegno.readers.datasets.own_packs import OwnPacks
from dalsegno.readers.own_texts import own_texts
from dalsegno.readers.packs import with_texts
from dalsegno.readers.stepping import Stepper
from dalsegno.replay.forked import run_in_fork
from dalsegno.replay.strategy import Strategy
from dalsegno.state.reads import ShardReads
from dalsegno.storage.blobs import Blobs
from dalsegno.storage.object_store import FolderStore
from dalsegno.testing import MemoryPublisher
from dalsegno.testing.builder import SessionBuilder, Written
from replay_lab import decided, records_of
from shard_lab import folded, reads
from workflow_lab import CODING, SESSION, TRIAGE, WIRE, Example, Run
from workflow_lab import PREFIX as LOG


@pytest.fixture(scope="module")
def triage(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    with pytest.MonkeyPatch.context() as patch:
        run = Run(TRIAGE, tmp_path_factory.mktemp("triage") / "desk", patch)
        assert run.to_its_end().why == "ENDED"
        return run.recorded()


def texts(reader: ShardReads, session_id: str, seq: int) -> dict[str, str | None]:
    """Of the pack that was built at a seq, by item."""
    stepper = Stepper(reader.walk(session_id), seq, texts_at=partial(own_texts, reader, session_id))
    pack = stepper.pack()
    assert pack is not None
    return {str(item.row.item_id): item.content for item in pack.items}


@pytest.mark.parametrize("example", [CODING, TRIAGE, WIRE], ids=lambda each: each.name)
def test_a_pack_is_shown_in_the_order_in_which_the_model_was_sent_it(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a later stage moves what an earlier one was shown. What was sent is rebuilt, and proved by its digest,
    as rows of data sets are."""
    run = Run(example, tmp_path / "desk", monkeypatch)
    run.to_its_end()
    events = run.recorded()
    stepper = Stepper(reads(folded(records_of(SESSION, events).records)).walk(SESSION), 1)
    sent = OwnPacks(Told, Blobs(FolderStore(tmp_path / "store")), redacting=False)
    requests = [(event, shown) for event in events if (shown := sent.take(event)) is not None]
    assert requests
    for event, shown in requests:
        stepper.to(event.seq)
        pack = stepper.pack()
        assert pack is not None
        assert shown.problem is None
        system, *said = (sha256(canonical(each)).digest() for each in shown.messages)
        rows = [item.row for item in pack.items]
        beside = [row for row in rows if row.item_kind in ("SYSTEM", "TOOL_DEFS")]
        assert [row.digest for row in beside[:1]] == [system]
        assert [row.item_id for row in beside] == ["system", "tools"][: len(beside)]
        assert [row.digest for row in rows[len(beside) :]] == said
        assert sum(row.tokens or 0 for row in rows) == pack.row.token_total
        assert pack.row.request_digest == event.body["request_digest"]


def packs(events: Sequence[Event]) -> list[int]:
    return [event.seq for event in events if event.type == "ContextPackBuilt"]


def test_every_item_of_every_pack_has_its_text(triage: list[Event]) -> None:
    reader = reads(folded(records_of(SESSION, triage).records, window_events=16))
    stages = {}
    for seq in packs(triage):
        found = texts(reader, SESSION, seq)
        assert [id for id, text in found.items() if text is None] == []
        assert found["goal"] == TRIAGE.goal
        system = str(found["system"])
        stage = "act" if 'in the stage "act"' in system else "sort"
        stages[stage] = {tool["function"]["name"] for tool in json.loads(str(found["tools"]))}
    assert stages == {
        "sort": {"list_tickets", "read_ticket"}, "act": {"read_ticket", "reply", "refund", "escalate"},
    }  # fmt: skip


def test_a_step_behind_the_pack_shows_the_pack_as_it_was(triage: list[Event]) -> None:
    reader = reads(folded(records_of(SESSION, triage).records))
    last, end = packs(triage)[-1], triage[-1].seq
    assert texts(reader, SESSION, end) == texts(reader, SESSION, last)


def test_a_fork_is_told_no_text_of_another_event_of_the_same_seq(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its parent's events hold is not looked for in its own: their seqs are the same."""
    run = Run(TRIAGE, tmp_path / "desk", monkeypatch)
    run.to_its_end()
    publisher = MemoryPublisher(run.log, prefix=LOG, writer="fork/1/a")
    parent = publisher.events(SESSION)
    turn = next(event.seq for event in parent if event.type == "TurnStarted" and event.body["turn_id"] == "act.1/t1")
    fork = run_in_fork(publisher, SESSION, turn, Strategy(on_miss="stop"), suffix="f")
    records = [Written(record.key, record.value, None) for record in run.log.records(f"{LOG}.events")]
    reader = reads(folded(records))
    recorded = texts(reader, SESSION, next(seq for seq in packs(parent) if seq > turn))
    for seq in packs(fork.events):
        found = own_texts(reader, fork.session_id, seq, recorded)
        assert found == {id: text for id, text in recorded.items() if id in ("system", "tools", "goal")}


def with_erased(builder: SessionBuilder, seq: int) -> list[Written]:
    return [*builder.records, builder.amend([builder.records[seq - 1]], request_id="r")]


def test_without_a_document_nothing_is_guessed() -> None:
    events = decided()
    pinned = next(e.seq for e in events if e.type == "ConfigPinned" and e.body["kind"] == "PROMPT_TEMPLATE")
    (first, *_) = packs(events)
    assert (
        texts(reads(folded(records_of("s", events).records)), "s", first)["system"]
        == "You work on the goal, stage work."
    )
    reader = reads(folded(with_erased(records_of("s", events), pinned)))
    assert own_texts(reader, "s", first, ["system", "tools", "goal"]) == {}


def test_a_session_of_another_harness_has_none() -> None:
    builder = SessionBuilder("s", profile="OBSERVED").begin()
    builder.append("ContextPackBuilt", pack_id="p")
    reader = reads(folded(builder.records))
    assert own_texts(reader, "s", builder.events[-1].seq, ["system"]) == {}

    def asked(*_: object) -> NoReturn:
        raise AssertionError("nothing is asked for")

    stepper = Stepper(reader.walk("s"), builder.events[-1].seq, texts_at=asked)
    pack = stepper.pack()
    assert pack is not None
    assert with_texts(pack, {}) == pack

"""What the models of the examples are shown: whole pairs of call and result, whatever was compressed or sent twice."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dalsegno import events
from dalsegno.harness.live import Stopped
from dalsegno.model.records import Event
from dalsegno.orchestration.decider import MemoryContents, World, configuration_in_force
from dalsegno.orchestration.decider.packs import request
from dalsegno.projections.decider.fold import fold_event
from dalsegno.projections.decider.rows import ITEM
from dalsegno.projections.decider.table import MemoryRows
from workflow_lab import CODING, TRIAGE, Example, Point, Run, outcome


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    return (tmp_path / str(number) for number in count())


def shown(recorded: list[Event]) -> dict[str, list[dict[str, Any]]]:
    """The messages of each request to an agent, by inference."""
    rows, contents = MemoryRows(), MemoryContents()
    found: dict[str, list[dict[str, Any]]] = {}
    for event in recorded:
        fold_event(rows, event, contents.keep)
        if event.type == "InferenceRequested" and event.body["purpose"] == "AGENT":
            world = World(rows, configuration_in_force(rows, contents), contents)
            found[event.body["inference_id"]] = request(world, event.body["inference_id"]).messages
    return found


def whole_items(recorded: list[Event]) -> set[str]:
    """Ids of what models can be shown, as it was, once these events are folded."""
    rows = MemoryRows()
    for event in recorded:
        fold_event(rows, event)
    return {id for id, item in rows.family(ITEM).items() if item.mode == "FULL"}


def calls_and_results(messages: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    calls = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    return calls, [message["tool_call_id"] for message in messages if message["role"] == "tool"]


# case C44
@pytest.mark.parametrize(("example", "method"), [(CODING, "MASK"), (TRIAGE, "SUMMARY")])
def test_a_compression_leaves_whole_pairs_and_says_what_is_gone(
    folders: Iterator[Path], monkeypatch: pytest.MonkeyPatch, example: Example, method: str
) -> None:
    run = Run(example, next(folders), monkeypatch)
    assert run.to_its_end() == Stopped("ENDED")
    recorded = run.recorded()
    (compression,) = [event.body for event in recorded if event.type == "CompressionCompleted"]
    assert (compression["method"], compression["effect"]) == (method, "REAPPLIABLE")
    requests = shown(recorded)
    for messages in requests.values():
        calls, results = calls_and_results(messages)
        assert sorted(calls) == sorted(results)
    turn = compression["compression_id"].rpartition("/")[0]
    said = "\n".join(str(message["content"]) for message in requests[f"{turn}/i"])
    assert said.count("[left out to save space: ") == (len(compression["forgotten"]) if method == "MASK" else 0)
    assert ("[in place of earlier items]" in said) == (method == "SUMMARY")
    # The log still has what the model is no longer shown: folded without the compression, all of it is there.
    kept = {event.body["tool_call_id"] for event in recorded if event.type == "ToolReceiptRecorded"}
    assert {id for id in compression["forgotten"] if id.rpartition("/")[2].startswith("c")} <= kept
    assert not whole_items(recorded) & set(compression["forgotten"])
    whole = whole_items([event for event in recorded if not event.type.startswith("Compression")])
    assert whole >= {*compression["forgotten"], *kept}


# case C43
def test_calls_that_all_have_one_id_have_results_of_their_own_and_a_true_resend_is_a_note(
    folders: Iterator[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(TRIAGE, next(folders), monkeypatch)
    left: dict[int, Run] = {}

    def watch(point: Point) -> None:
        if point.stored:
            left[point.number] = run.copy(next(folders))

    run.log.watch = watch
    assert run.to_its_end() == Stopped("ENDED")
    recorded = run.recorded()
    native = [event.body["native_call_id"] for event in recorded if event.type == "ToolCallRequested"]
    assert native == ["call_0"] * 13
    calls, results = calls_and_results(shown(recorded)["sort.1/t3/i"])
    assert len(set(calls)) == 5
    assert sorted(calls) == sorted(results)

    # The second turn's second result comes once more, when that turn is over.
    again = left[next(event.seq for event in recorded if event.type == "StageCompleted")]
    (receipt,) = [
        event.body
        for event in recorded
        if event.type == "ToolReceiptRecorded" and event.body["tool_call_id"] == "sort.1/t2/c1"
    ]
    fields = {name: receipt[name] for name in ("attempt", "status", "receipt_id", "started_at", "ended_at")}
    again.tell(
        events.ToolReceiptRecorded(
            tool_call_id="sort.1/t2/c1",
            result_digest=receipt["result_digest"],
            result=events.Blob(**receipt["result"]),
            **fields,
        )
    )
    assert again.to_its_end() == Stopped("ENDED")
    assert outcome(again.recorded()) == outcome(recorded)
    notes = [event.body["kind"] for event in again.recorded() if event.type == "NoteRecorded"]
    assert notes == ["inbox-repeat"]

"""What imported sessions hold, against the native files read by json and zipfile alone."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dalsegno.importers.base import ImportedSession
from dalsegno.importers.chain import chained
from dalsegno.log.codec import place
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.ids import partition_of
from dalsegno.model.lifecycle import MemoryOps, SessionState, judge
from dalsegno.model.records import Event
from inspect_logs import BROWSER, INPUT_TASK, THEORY, needs_traces, sessions_and_report, sessions_of

pytestmark = needs_traces
SCHEMAS = SchemaSet.load()


def native_samples(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".json":
        samples: list[dict[str, Any]] = json.loads(path.read_bytes())["samples"]
        return samples
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.startswith("samples/")]
        return [json.loads(archive.read(name)) for name in names]


def native_header(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        header: dict[str, Any] = json.loads(archive.read("header.json"))
        return header


@cache
def sessions(path: Path) -> tuple[ImportedSession, ...]:
    return sessions_of(path)


@cache
def decoded(path: Path) -> tuple[tuple[Event, ...], ...]:
    """The events as a reader of the log decodes them."""
    out = []
    for session in sessions(path):
        events = []
        for record in chained(session, SCHEMAS):
            partition = partition_of(session.session_id, 16)
            event = place(SCHEMAS, record.key.encode(), record.value, partition, 16)
            assert isinstance(event, Event)
            events.append(event)
        out.append(tuple(events))
    return tuple(out)


def all_events(path: Path, type_: str) -> list[Event]:
    return [event for events in decoded(path) for event in events if event.type == type_]


def test_theory_of_mind_is_100_sessions_of_200_inferences() -> None:
    assert len(sessions(THEORY)) == len({session.session_id for session in sessions(THEORY)}) == 100
    assert len(all_events(THEORY, "InferenceCompleted")) == 200
    assert len(all_events(THEORY, "InferenceRequested")) == 200
    assert len(all_events(THEORY, "SessionCompleted")) == 100


def test_theory_of_mind_has_the_token_sums_of_its_own_statistics() -> None:
    stats = native_header(THEORY)["stats"]["model_usage"]["openai/gpt-4o-mini"]
    usage = [event.body["usage"] for event in all_events(THEORY, "InferenceCompleted")]
    assert sum(one["input"] for one in usage) == stats["input_tokens"] == 64_492
    assert sum(one["output"] for one in usage) == stats["output_tokens"] == 53_594
    assert sum(one["cache_read"] for one in usage) == stats["input_tokens_cache_read"]
    assert {(e.body["provider"], e.body["model"]) for e in all_events(THEORY, "InferenceRequested")} == {
        ("openai", "gpt-4o-mini")
    }


def test_theory_of_mind_has_the_verdicts_of_the_file() -> None:
    native = Counter(s["scores"]["model_graded_fact"]["value"] for s in native_samples(THEORY))
    decided = all_events(THEORY, "ValidationDecided")
    assert Counter(event.body["label"] for event in decided) == native == {"C": 83, "I": 17}
    assert Counter(event.body["verdict"] for event in decided) == {"PASS": 83, "REJECT": 17}
    assert {event.body["basis"] for event in decided} == {"INFERENCE"}


def test_each_session_holds_the_tokens_and_the_verdict_of_its_own_sample() -> None:
    by_sample = {f":{sample['id']}:{sample['epoch']}": sample for sample in native_samples(THEORY)}
    for events in decoded(THEORY):
        native = by_sample[":" + events[0].session_id.split(":", 2)[2]]
        usage = native["model_usage"]["openai/gpt-4o-mini"]
        completed = [event.body["usage"] for event in events if event.type == "InferenceCompleted"]
        assert sum(one["output"] for one in completed) == usage["output_tokens"]
        (verdict,) = [event.body["label"] for event in events if event.type == "ValidationDecided"]
        assert verdict == native["scores"]["model_graded_fact"]["value"]


def test_attachments_are_resolved_in_every_text() -> None:
    for events in decoded(THEORY):
        assert not any(b"attachment://" in record_bytes(event) for event in events)
    answer = native_samples(THEORY)[0]["output"]["choices"][0]["message"]["content"]
    first = next(event for event in decoded(THEORY)[0] if event.type == "InferenceCompleted")
    assert first.body["output"][0]["text"] == answer


def record_bytes(event: Event) -> bytes:
    return json.dumps(event.body, default=lambda value: value.decode("utf-8", "replace")).encode()


def test_browser_has_its_calls_with_their_native_ids_and_times() -> None:
    (native,) = native_samples(BROWSER)
    tools = [event for event in native["events"] if event["event"] == "tool"]
    assert len(all_events(BROWSER, "InferenceCompleted")) == 5
    requested = all_events(BROWSER, "ToolCallRequested")
    assert [event.body["native_call_id"] for event in requested] == [tool["id"] for tool in tools]
    assert [event.body["name"] for event in requested] == [tool["function"] for tool in tools]
    assert {event.body["basis"] for event in all_events(BROWSER, "ToolCallAuthorized")} == {"UNRECORDED_IMPORT"}
    receipts = all_events(BROWSER, "ToolReceiptRecorded")
    assert [receipt.body["result"]["inline"].decode() for receipt in receipts] == [tool["result"] for tool in tools]
    assert sum(event.body["usage"]["input"] for event in all_events(BROWSER, "InferenceCompleted")) == 15_235


def test_browser_receipts_stand_behind_everything_that_happened_in_the_call() -> None:
    (events,) = decoded(BROWSER)
    inside = 0
    for position, event in enumerate(events):
        if event.type == "ToolReceiptRecorded":
            before = [other for other in events[:position] if other.meta["occurred_at"] is not None]
            assert all(other.meta["occurred_at"] <= event.meta["occurred_at"] for other in before)
            inside += 1
    assert inside == 4
    refs = [event.meta["origin"]["native_ref"] for event in events if event.body.get("kind") == "inspect.sandbox"]
    assert refs == sorted(refs, key=lambda ref: int(ref.rsplit("/", 1)[1]))
    assert len(refs) == 10


def test_the_old_log_has_its_steps_as_stages_and_what_the_person_typed() -> None:
    (events,) = decoded(INPUT_TASK)
    stages = [event.body["stage_name"] for event in events if event.type == "StageScheduled"]
    assert stages == ["input_solver", "generate"]
    (answer,) = [event for event in events if event.type == "InputProvided"]
    assert "February" in answer.body["content"]["inline"].decode()
    assert answer.meta["stage_id"] == "input_solver.1"
    usage = [event.body["usage"] for event in events if event.type == "InferenceCompleted"]
    assert [(one["input"], one["output"]) for one in usage] == [(53, 46), (221, 143)]


@pytest.mark.parametrize("path", [THEORY, BROWSER, INPUT_TASK], ids=lambda path: path.name)
def test_no_imported_event_breaks_a_rule_of_its_profile(path: Path) -> None:
    for events in decoded(path):
        session, ops = SessionState(), MemoryOps()
        verdicts = [judge(session, ops, event) for event in events]
        assert [verdict.violations for verdict in verdicts if verdict.violations] == []
        assert session.status == "COMPLETED"


@pytest.mark.parametrize("path", [THEORY, BROWSER, INPUT_TASK], ids=lambda path: path.name)
def test_every_native_record_is_mapped_or_kept_and_the_report_says_so(path: Path) -> None:
    report = sessions_and_report(path)[1].as_data()
    native = Counter(event["event"] for sample in native_samples(path) for event in sample["events"])
    assert report["records"] == dict(sorted(native.items()))
    assert report["records_mapped"] + report["records_kept_as_notes"] + report["records_repeated"] == native.total()
    assert report["unknown_types"] == {}
    assert report["warnings"] == []
    assert report["events_made"] == sum(len(events) for events in decoded(path))


def test_the_same_log_as_json_gives_the_same_sessions(tmp_path: Path) -> None:
    whole = {**native_header(THEORY), "samples": native_samples(THEORY)}
    path = tmp_path / "theory.json"
    path.write_text(json.dumps(whole, indent=2))
    as_json = {session.session_id: chained(session, SCHEMAS) for session in sessions_of(path)}
    assert as_json == {session.session_id: chained(session, SCHEMAS) for session in sessions(THEORY)}

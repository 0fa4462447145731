"""ATIF: what the shared trajectories hold, against the files read by json alone; made ones for what they lack."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import recordings
from dalsegno.errors import BadInputFile
from dalsegno.importers.atif import AtifImporter
from dalsegno.importers.base import ImportReport
from dalsegno.model.records import Event
from recordings import Recording, of_type, recording_of, report_of

HELLO = "openhands_hello-world.trajectory.json"
FIRST = "terminus2_context-summarization.trajectory.json"
SECOND = "terminus2_context-summarization.trajectory.cont-1.json"


def recording(name: str) -> Recording:
    return recording_of("atif", name)


def native(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(recording(name).path.read_bytes())
    return data


@pytest.mark.parametrize(
    ("name", "records", "events"),
    [
        (HELLO, {"agent": 2, "system": 3, "user": 1}, 19),
        (FIRST, {"agent": 3, "context_management": 1, "user": 1}, 18),
        (SECOND, {"agent": 4, "copied.agent": 1, "copied.user": 3}, 22),
    ],
)
def test_the_report_of_the_import(name: str, records: dict[str, int], events: int) -> None:
    report = report_of(recording(name))
    assert report["records"] == records
    assert report["records_mapped"] == report["records_read"] == len(native(name)["steps"])
    assert report["events_made"] == events
    assert (report["not_carried"], report["unknown_types"], report["warnings"]) == ({}, {}, [])
    lacks = report["lacks"]
    assert lacks["when an event happened"] == events, "no step has a time"
    assert lacks["how a session ended"] == lacks["when a session began"] == 1
    assert lacks["what a model was asked"] == records["agent"]
    assert lacks.get("what a compression did", 0) == records.get("context_management", 0)


def test_calls_and_results_belong_together_by_id() -> None:
    calls = of_type(recording(HELLO), "ToolCallRequested")
    (receipt,) = of_type(recording(HELLO), "ToolReceiptRecorded")
    assert [event.body["native_call_id"] for event in calls] == ["call_fake_1", "call_fake_2"]
    assert receipt.body["tool_call_id"] == calls[0].body["tool_call_id"]
    (step,) = [step for step in native(HELLO)["steps"] if step.get("observation")]
    assert receipt.body["result"]["inline"].decode() == step["observation"]["results"][0]["content"]
    assert json.loads(calls[0].body["arguments"]["inline"]) == step["tool_calls"][0]["arguments"]
    started = [event.body["tool_call_id"] for event in of_type(recording(HELLO), "ToolCallStarted")]
    assert started == [calls[0].body["tool_call_id"]], "whether finish ran, the file does not say"


@pytest.mark.parametrize("name", [HELLO, FIRST])
def test_the_tokens_are_those_of_the_steps(name: str) -> None:
    metrics = [step["metrics"] for step in native(name)["steps"] if step["source"] == "agent"]
    usage = [event.body["usage"] for event in of_type(recording(name), "InferenceCompleted")]
    assert [one["input"] for one in usage] == [one["prompt_tokens"] for one in metrics]
    assert [one["output"] for one in usage] == [one["completion_tokens"] for one in metrics]
    cost = sum(event.body["cost_usd_micros"] for event in of_type(recording(name), "InferenceCompleted"))
    assert cost == pytest.approx(sum(one["cost_usd"] for one in metrics) * 1e6, abs=2)


def test_copied_context_is_seen_and_not_counted_again() -> None:
    steps = native(SECOND)["steps"]
    assert len(of_type(recording(SECOND), "InferenceCompleted")) == 4
    assert of_type(recording(SECOND), "MessageReceived") == []
    copied = [e for e in of_type(recording(SECOND), "ContextItemRetrieved") if e.body["item_id"].startswith("copied/")]
    assert [json.loads(event.body["content"]["inline"]) for event in copied] == steps[:4]


def test_the_second_file_continues_the_session_of_the_first() -> None:
    (first,), (second,) = (of_type(recording(name), "SessionCreated") for name in (FIRST, SECOND))
    assert (first.body["relation"], first.body["parent_session"]) == ("NONE", None)
    assert (second.body["relation"], second.body["parent_session"]) == ("CONTINUATION", first.session_id)
    assert first.session_id == "atif/1:NORMALIZED_SESSION_ID:terminus-2:0"
    assert second.session_id == "atif/1:NORMALIZED_SESSION_ID:terminus-2:1"


def test_the_compaction_is_a_marker_and_its_step_is_kept() -> None:
    (marker,) = of_type(recording(FIRST), "CompressionCompleted")
    assert marker.body["effect"] == "MARKER_ONLY"
    notes = {e.body["kind"]: json.loads(e.body["data"]["inline"]) for e in of_type(recording(FIRST), "NoteRecorded")}
    assert notes["atif.context_management"] == native(FIRST)["steps"][-1]
    assert notes["atif.trajectory"]["continued_trajectory_ref"] == native(FIRST)["continued_trajectory_ref"]
    assert "across 1 compressions" in report_of(recording(FIRST))["replay_modes"]["full"]


def test_what_came_back_without_a_call_is_what_the_model_sees() -> None:
    shown = of_type(recording(FIRST), "ContextItemRetrieved")
    told = [r["content"] for step in native(FIRST)["steps"][:4] for r in step.get("observation", {}).get("results", [])]
    assert [event.body["content"]["inline"].decode() for event in shown] == told
    assert of_type(recording(FIRST), "ToolCallRequested") == []


# --- made trajectories -----------------------------------------------------------------------------------------------


def step(number: int, source: str = "agent", **fields: Any) -> dict[str, Any]:
    return {"step_id": number, "source": source, "message": f"text {number}", **fields}


def trajectory(path: Path, *steps: dict[str, Any], extra: Any = None, **rest: Any) -> Path:
    agent = {"name": "a", "version": "1", "extra": extra}
    document = {"schema_version": "ATIF-v1.7", "session_id": "s", "agent": agent, "steps": list(steps), **rest}
    path.write_text(json.dumps(document))
    return path


def mapped(path: Path) -> tuple[list[Event], ImportReport]:
    return recordings.mapped(AtifImporter(), path)


def test_parallel_calls_with_one_id_and_a_result_of_no_call(tmp_path: Path) -> None:
    # case C43
    calls = [{"tool_call_id": "c", "function_name": "f", "arguments": {"n": n}} for n in (1, 2)]
    results = [{"source_call_id": "c", "content": str(n)} for n in (1, 2)] + [
        {"source_call_id": "gone", "content": "?"}
    ]
    events, report = mapped(
        trajectory(tmp_path / "t.json", step(1, tool_calls=calls, observation={"results": results}))
    )
    receipts = [event.body for event in events if event.type == "ToolReceiptRecorded"]
    assert [(one["tool_call_id"], one["result"]["inline"]) for one in receipts] == [
        ("session/i1/c0", b"1"),
        ("session/i1/c1", b"2"),
    ]
    assert report.warnings == ["/steps/0/observation/results/2: no open call 'gone' has this result"]
    assert Counter(event.type for event in events)["ContextItemRetrieved"] == 1


def test_times_reasoning_and_further_tokens(tmp_path: Path) -> None:
    metrics = {"prompt_tokens": 3, "logprobs": [0.1], "extra": {"reasoning_tokens": 2, "odd": 1}}
    told = step(1, timestamp="2025-10-11T10:30:00", reasoning_content="hm", metrics=metrics)
    events, report = mapped(trajectory(tmp_path / "t.json", told))
    (answer,) = [event for event in events if event.type == "InferenceCompleted"]
    assert answer.meta["occurred_at"] == 1_760_178_600_000_000
    assert [part["kind"] for part in answer.body["output"]] == ["REASONING", "TEXT"]
    assert (answer.body["usage"]["input"], answer.body["usage"]["reasoning"]) == (3, 2)
    assert report.as_data()["not_carried"] == {
        "agent.metrics.extra.odd": 1,
        "agent.metrics.logprobs": 1,
        "time zone (taken as UTC)": 1,
    }


def test_what_an_observation_says_beside_its_results_is_counted(tmp_path: Path) -> None:
    observed = step(1, observation={"results": [{"content": "r"}], "extra": {"n": 1}})
    assert mapped(trajectory(tmp_path / "t.json", observed))[1].not_carried["agent.observation.extra"] == 1


@pytest.mark.parametrize(("boundary", "method"), [("replace", "REPLACE_HISTORY"), ("insert", "UNKNOWN")])
def test_what_a_compaction_did_is_taken_from_its_step_alone(boundary: str, method: str, tmp_path: Path) -> None:
    marked = step(1, "system", extra={"context_management": {"type": "compaction", "boundary": boundary}})
    events, _ = mapped(trajectory(tmp_path / "t.json", marked))
    assert [event.body["method"] for event in events if event.type == "CompressionCompleted"] == [method]


def test_a_source_that_is_not_known_is_kept_and_named(tmp_path: Path) -> None:
    events, report = mapped(trajectory(tmp_path / "t.json", step(1, "oracle")))
    assert [event.body["kind"] for event in events if event.type == "NoteRecorded"] == ["atif.oracle"]
    assert report.as_data()["unknown_types"] == {"oracle": 1}


def test_a_continuation_without_a_number_is_no_part_of_the_same_session(tmp_path: Path) -> None:
    first = mapped(trajectory(tmp_path / "1.json", step(1)))[0][0]
    second = mapped(trajectory(tmp_path / "2.json", step(1, is_copied_context=True), step(2)))[0][0]
    assert second.session_id != first.session_id
    assert (second.body["relation"], second.body["parent_session"]) == ("CONTINUATION", None)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"schema_version": "ATIF-v2.0"}, "/schema_version"),
        ({"schema_version": 1}, "/schema_version"),
        ({"session_id": 3}, "/session_id"),
        ({"agent": "a"}, "/agent"),
        ({"agent": {}}, "/agent"),
        ({"steps": 3}, "/steps"),
        ({"steps": [{"source": "user"}]}, "/steps/0"),
        ({"steps": [step(1), step(1)]}, "/steps/1/step_id"),
        ({"steps": [{"source": "user", "step_id": []}]}, "/steps/0/step_id"),
    ],
)
def test_json_that_is_no_trajectory(change: dict[str, Any], place: str, tmp_path: Path) -> None:
    path = trajectory(tmp_path / "t.json", step(1))
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(BadInputFile) as refused:
        mapped(path)
    assert f"{path}: {place}" in str(refused.value)

"""SWE-agent: what the shared run holds, against the file read by json alone; made ones for what it lacks."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import recordings
from dalsegno.errors import BadInputFile
from dalsegno.importers.base import ImportReport
from dalsegno.importers.swe_agent import SweAgentImporter
from dalsegno.model.records import Event
from recordings import Recording, events_of, of_type, recording_of, report_of


def recording() -> Recording:
    return recording_of("swe-agent", "pydicom__pydicom-1458.traj")


def native() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(recording().path.read_bytes())
    return data


def test_a_run_of_12_steps_is_12_answers_12_commands_and_12_results() -> None:
    made = Counter(event.type for events in events_of(recording()) for event in events)
    assert made["InferenceRequested"] == made["InferenceCompleted"] == 12
    assert made["ToolCallRequested"] == made["ToolReceiptRecorded"] == len(native()["trajectory"]) == 12
    assert made["MessageReceived"] == 2, "the system prompt and the issue"


def test_the_demonstration_is_context_and_counts_as_nothing_else() -> None:
    (demo,) = of_type(recording(), "ContextItemRetrieved")
    (entry,) = [entry for entry in native()["history"] if entry.get("is_demo")]
    assert demo.body["item_id"] == "demo/1"
    assert json.loads(demo.body["content"]["inline"]) == entry
    said = [part["text"] for event in of_type(recording(), "MessageReceived") for part in event.body["parts"]]
    assert entry["content"] not in said


def test_answers_commands_and_results_are_the_texts_of_the_file() -> None:
    steps = native()["trajectory"]
    answers = of_type(recording(), "InferenceCompleted")
    assert [[part["text"] for part in event.body["output"]] for event in answers] == [[s["response"]] for s in steps]
    calls = of_type(recording(), "ToolCallRequested")
    assert [event.body["arguments"]["inline"].decode() for event in calls] == [step["action"] for step in steps]
    receipts = of_type(recording(), "ToolReceiptRecorded")
    assert [event.body["result"]["inline"].decode() for event in receipts] == [step["observation"] for step in steps]
    (end,) = of_type(recording(), "SessionCompleted")
    assert (end.body["outcome"], end.body["open_ops"]) == ("SUCCESS", [])
    assert end.body["result"]["inline"].decode() == native()["info"]["submission"]


def test_the_state_is_patched_where_it_changes() -> None:
    patches = [json.loads(event.body["patch"]["inline"]) for event in of_type(recording(), "StatePatched")]
    states = [json.loads(step["state"]) for step in native()["trajectory"]]
    changes = [state for before, state in zip([None, *states], states, strict=False) if state != before]
    assert [patch[0]["value"] for patch in patches] == changes
    assert len(changes) == 3


def test_nothing_has_a_time_since_the_file_has_none() -> None:
    (events,) = events_of(recording())
    assert {event.meta["occurred_at"] for event in events} == {None}
    assert {event.meta["recorded_at"] for event in events} == {0}


def test_the_report_of_the_import() -> None:
    report = report_of(recording())
    assert report["records"] == {
        "history.assistant": 12,
        "history.demo": 1,
        "history.system": 1,
        "history.user": 12,
        "step": 12,
    }
    assert (report["records_mapped"], report["records_repeated"], report["records_kept_as_notes"]) == (15, 23, 0)
    assert report["events_made"] == 82
    assert (report["not_carried"], report["unknown_types"], report["warnings"]) == ({}, {}, [])
    assert report["lacks"] == {
        "cost of a model call": 12,
        "tokens of a model call": 12,
        "what a model was asked": 12,
        "when a session began": 1,
        "when an event happened": 82,
        "who let a tool call run": 12,
    }


# --- made runs -------------------------------------------------------------------------------------------------------


def step(**fields: Any) -> dict[str, Any]:
    return {"action": "ls", "observation": "a b", "response": "look\n```\nls\n```", "thought": "look", **fields}


def trajectory(path: Path, *steps: dict[str, Any], history: Any = (), info: Any = None, **rest: Any) -> Path:
    system = {"role": "system", "content": [{"type": "text", "text": "be good"}]}
    told = [system, {"role": "user", "content": "do it"}, *history]
    document = {"trajectory": list(steps), "history": told, "info": info or {}, "environment": "e", **rest}
    path.write_text(json.dumps(document))
    return path


def mapped(path: Path) -> tuple[list[Event], ImportReport]:
    return recordings.mapped(SweAgentImporter(), path)


def test_version_1_has_requests_times_and_a_configuration(tmp_path: Path) -> None:
    query = [{"role": "system", "content": "be good"}]
    config = json.dumps({"agent": {"model": {"name": "m-1"}}})
    one = step(thought="hidden", query=query, execution_time=0.25, extra_info={"k": 1}, state={"cwd": "/"})
    path = trajectory(tmp_path / "t.traj", one, replay_config=config, info={"swe_agent_version": "1.2", "edited": "x"})
    events, report = mapped(path)
    pins = {event.body["kind"]: event.body for event in events if event.type == "ConfigPinned"}
    assert json.loads(pins["WORKFLOW"]["content"]["inline"]) == json.loads(config)
    assert pins["HARNESS_BUILD"]["version"] == "1.2"
    (asked,) = [event for event in events if event.type == "InferenceRequested"]
    assert asked.body["model"] == "m-1"
    assert asked.body["request_digest"] is not None
    (answer,) = [event for event in events if event.type == "InferenceCompleted"]
    assert [(part["kind"], part["text"]) for part in answer.body["output"]] == [
        ("REASONING", "hidden"),
        ("TEXT", "look\n```\nls\n```"),
    ]
    notes = {
        event.body["kind"]: json.loads(event.body["data"]["inline"]) for event in events if event.type == "NoteRecorded"
    }
    assert notes == {
        "swe-agent.step": {"execution_time": 0.25, "extra_info": {"k": 1}},
        "swe-agent.info": {"edited": "x"},
    }
    assert report.as_data()["not_carried"] == {"step.query": 1}, "of the request its digest stands"
    assert events[-1].type != "SessionCompleted", "no exit status: the run goes on, for all we know"


def test_a_step_that_only_ends_the_run_is_no_answer(tmp_path: Path) -> None:
    exit_ = step(action="exit_cost", response="", thought="Exit due to cost limit", observation=None)
    path = trajectory(tmp_path / "t.traj", step(observation=None), exit_, info={"exit_status": "exit_cost"})
    events, report = mapped(path)
    made = Counter(event.type for event in events)
    assert (made["InferenceCompleted"], made["ToolReceiptRecorded"]) == (1, 0)
    assert report.as_data()["notes"] == {"step": 1}
    assert (events[-1].body["outcome"], events[-1].body["open_ops"]) == ("GIVEN_UP", ["session/i1/c0"])


def test_an_error_of_the_harness_fails_the_session(tmp_path: Path) -> None:
    info = {"exit_status": "exit_error", "submission": "diff --git"}
    events, _ = mapped(trajectory(tmp_path / "t.traj", step(), info=info))
    error = events[-1].body["error"]
    assert (events[-1].type, error["error_class"]) == ("SessionFailed", "exit_error")
    assert (error["message"], error["detail"]["inline"]) == ("", b"diff --git"), "a patch is no message"


def test_history_that_is_no_step_is_kept(tmp_path: Path) -> None:
    again = [{"role": "assistant", "content": "look\n```\nls\n```"}, {"role": "user", "content": "a b\n$"}]
    odd = [{"role": "user", "content": "a remark"}, {"role": "oracle", "content": "hm"}]
    events, report = mapped(trajectory(tmp_path / "t.traj", step(), history=again + odd))
    notes = [event.body["kind"] for event in events if event.type == "NoteRecorded"]
    assert notes == ["swe-agent.history.user", "swe-agent.history.oracle"]
    assert report.as_data()["records_repeated"] == 2


def test_runs_on_one_issue_differ_by_their_first_step(tmp_path: Path) -> None:
    ids = {mapped(trajectory(tmp_path / f"{a}.traj", step(action=a)))[0][0].session_id for a in ("ls", "pwd")}
    assert len(ids) == 2
    grown = mapped(trajectory(tmp_path / "grown.traj", step(action="ls"), step(action="pwd")))[0][0].session_id
    assert grown in ids


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"trajectory": {}}, "/trajectory"),
        ({"trajectory": [{"action": "a"}]}, "/trajectory/0"),
        ({"history": [{"content": "a"}]}, "/history/0"),
        ({"history": None}, "/history"),
        ({"info": 3}, "/info"),
    ],
)
def test_json_that_is_no_trajectory(change: dict[str, Any], place: str, tmp_path: Path) -> None:
    path = trajectory(tmp_path / "t.traj", step())
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(BadInputFile) as refused:
        mapped(path)
    assert f"{path}: {place}" in str(refused.value)

"""mini-swe-agent: what the shared runs hold, against the files read by json alone; made ones for what they lack."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import recordings
from dalsegno.errors import BadInputFile
from dalsegno.importers.base import ImportReport
from dalsegno.importers.mini_swe_agent import MiniSweAgentImporter
from dalsegno.model.records import Event
from recordings import Recording, events_of, of_type, recording_of, report_of

FILES = {"astropy": "astropy__astropy-12907.traj.json", "flask": "pallets__flask-5014.traj.json"}
each_run = pytest.mark.parametrize("run", sorted(FILES))


def recording(run: str) -> Recording:
    return recording_of("mini-swe-agent", FILES[run])


def native(run: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(recording(run).path.read_bytes())
    return data


@each_run
def test_a_run_is_20_inferences_20_calls_and_19_receipts(run: str) -> None:
    made = Counter(event.type for events in events_of(recording(run)) for event in events)
    assert made["InferenceRequested"] == made["InferenceCompleted"] == made["ToolCallRequested"] == 20
    assert made["ToolReceiptRecorded"] == 19
    assert made["SessionCompleted"] == made["ValidationDecided"] == 1


def test_the_exit_codes_are_those_of_the_files() -> None:
    for run, codes in (("astropy", {0: 19}), ("flask", {0: 17, 1: 2})):
        receipts = of_type(recording(run), "ToolReceiptRecorded")
        assert Counter(event.body["exit_code"] for event in receipts) == codes
        assert Counter(event.body["status"] for event in receipts) == {
            "OK" if c == 0 else "ERROR": n for c, n in codes.items()
        }


@each_run
def test_the_verdict_is_that_of_the_report(run: str) -> None:
    (decided,) = of_type(recording(run), "ValidationDecided")
    assert (decided.body["verdict"], decided.body["basis"]) == ("PASS", "REPORTED")
    (told,) = of_type(recording(run), "VerdictReported")
    (report,) = recording(run).reports
    assert json.loads(told.body["evidence"][0]["inline"]) == json.loads(report.read_bytes())
    assert json.loads(report.read_bytes())["resolved"] is True


@each_run
def test_answers_commands_and_results_are_the_bytes_of_the_file(run: str) -> None:
    messages = native(run)["messages"]
    answers = of_type(recording(run), "InferenceCompleted")
    told = [m for m in messages if m["role"] == "assistant"]
    assert [a.body["output"][-1]["text"] for a in answers] == [m["content"] for m in told]
    assert [json.loads(a.body["raw"]["inline"]) for a in answers] == [m["extra"]["response"] for m in told]
    calls = of_type(recording(run), "ToolCallRequested")
    assert [c.body["arguments"]["inline"].decode() for c in calls] == [
        m["content"].split("```bash\n")[1].split("\n```")[0].strip() for m in told
    ]
    receipts = of_type(recording(run), "ToolReceiptRecorded")
    assert [r.body["result"]["inline"].decode() for r in receipts] == [m["content"] for m in messages[3:41:2]]
    (end,) = of_type(recording(run), "SessionCompleted")
    assert end.body["result"]["inline"].decode() == native(run)["info"]["submission"] == messages[-1]["content"]


@each_run
def test_tokens_cost_and_times_are_those_of_the_responses(run: str) -> None:
    responses = [m["extra"]["response"] for m in native(run)["messages"] if m["role"] == "assistant"]
    answers = of_type(recording(run), "InferenceCompleted")
    assert [a.body["usage"]["input"] for a in answers] == [r["usage"]["prompt_tokens"] for r in responses]
    assert [a.body["usage"]["output"] for a in answers] == [r["usage"]["completion_tokens"] for r in responses]
    assert [a.meta["occurred_at"] for a in answers] == [r["created"] * 1_000_000 for r in responses]
    stats = native(run)["info"]["model_stats"]
    assert sum(a.body["cost_usd_micros"] for a in answers) == pytest.approx(stats["instance_cost"] * 1e6, abs=20)
    assert stats["api_calls"] == 20
    others = [e for events in events_of(recording(run)) for e in events if e.type == "ToolReceiptRecorded"]
    assert {event.meta["occurred_at"] for event in others} == {None}, "a result has no time in the file"


@each_run
def test_the_last_command_ran_and_has_no_result(run: str) -> None:
    (end,) = of_type(recording(run), "SessionCompleted")
    (last,) = end.body["open_ops"]
    assert last == of_type(recording(run), "ToolCallStarted")[-1].body["tool_call_id"] == "session/i20/c0"


@each_run
def test_the_report_of_the_import(run: str) -> None:
    report = report_of(recording(run))
    assert report["records"] == {"assistant": 20, "report": 1, "system": 1, "user": 21}
    assert (report["records_read"], report["records_mapped"], report["events_made"]) == (43, 43, 131)
    assert (report["records_kept_as_notes"], report["unknown_types"], report["not_carried"]) == (0, {}, {})
    assert report["warnings"] == []
    assert report["lacks"] == {
        "what a model was asked": 20,
        "what became of a tool call": 1,
        "when a session began": 1,
        "when an event happened": 91,
        "who let a tool call run": 20,
    }


# --- made runs -------------------------------------------------------------------------------------------------------


def answer(text: str, **extra: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "extra": extra}


def user(text: str, **extra: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **({"extra": extra} if extra else {})}


def trajectory(path: Path, *messages: dict[str, Any], status: str = "", **info: Any) -> Path:
    told = {"exit_status": status, "submission": "", "mini_version": "9.9", "config": {}, **info}
    path.write_text(json.dumps({"info": told, "messages": [user("do it"), *messages], "instance_id": "i-1"}))
    return path


def mapped(path: Path, *reports: Path) -> tuple[list[Event], ImportReport]:
    return recordings.mapped(MiniSweAgentImporter(reports), path)


def result(native_id: str, content: str, at: float, **extra: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": native_id, "content": content, "extra": {"timestamp": at, **extra}}


def test_several_blocks_or_none_run_nothing_and_the_complaint_is_a_message(tmp_path: Path) -> None:
    two = "```bash\nls\n```\n```bash\npwd\n```"
    path = trajectory(tmp_path / "t.json", answer(two), user("Please give one action"), answer("none"), user("again"))
    events, report = mapped(path)
    made = Counter(event.type for event in events)
    assert (made["InferenceCompleted"], made["ToolCallRequested"], made["MessageReceived"]) == (2, 0, 3)
    assert report.as_data()["lacks"]["how a session ended"] == 1, "no status: the run goes on, for all we know"


def test_a_timed_out_command_and_one_whose_result_nobody_can_read(tmp_path: Path) -> None:
    block = "```bash\nsleep 99\n```"
    late = user("The last command <command>sleep 99</command> timed out and has been killed.")
    path = trajectory(
        tmp_path / "t.json",
        answer(block),
        late,
        answer(block),
        user("???"),
        answer(block),
        user("<returncode>3</returncode>"),
    )
    events, _ = mapped(path)
    (failed,) = [event for event in events if event.type == "ToolCallFailed"]
    assert (failed.body["reason"], failed.body["not_started"], failed.body["tool_call_id"]) == (
        "TIMEOUT",
        False,
        "session/i1/c0",
    )
    (receipt,) = [event for event in events if event.type == "ToolReceiptRecorded"]
    assert (receipt.body["tool_call_id"], receipt.body["exit_code"]) == ("session/i3/c0", 3)


def test_format_1_1_has_actions_results_and_times_of_its_own(tmp_path: Path) -> None:
    calls = [
        {"command": "ls", "tool_call_id": "a"},
        {"command": "pwd", "tool_call_id": "b"},
        {"command": "x", "tool_call_id": "c"},
    ]
    response = {"id": "r1", "model": "m", "created": 5}
    path = trajectory(
        tmp_path / "t.json",
        answer("text", actions=calls, response=response, cost=0.5, timestamp=10.5),
        result("b", "<o>2</o>", 12.0, raw_output="2", returncode=2),
        result("a", "<o>1</o>", 13.0, raw_output="1", returncode=0),
        result("c", "", 13.0, raw_output="", returncode=-1, exception_info="action was not executed"),
        {"role": "exit", "content": "", "extra": {"exit_status": "LimitsExceeded", "submission": ""}},
        status="LimitsExceeded",
    )
    events, report = mapped(path)
    receipts = [event for event in events if event.type == "ToolReceiptRecorded"]
    assert [(r.body["tool_call_id"], r.body["exit_code"], r.body["ended_at"]) for r in receipts] == [
        ("session/i1/c1", 2, 12_000_000),
        ("session/i1/c0", 0, 13_000_000),
    ]
    assert json.loads(receipts[0].body["result"]["inline"]) == {"content": "<o>2</o>", "raw_output": "2"}
    (failed,) = [event for event in events if event.type == "ToolCallFailed"]
    assert (failed.body["reason"], failed.body["not_started"]) == ("CANCELLED", True)
    (done,) = [event for event in events if event.type == "InferenceCompleted"]
    assert (done.body["cost_usd_micros"], done.meta["occurred_at"]) == (500_000, 10_500_000)
    assert events[-1].body["outcome"] == "PARTIAL"
    assert report.as_data()["not_carried"] == {}


def test_tokens_of_a_cache_are_read_where_the_provider_tells_them(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 3}
    events, _ = mapped(trajectory(tmp_path / "t.json", answer("x", response={"id": "r", "usage": usage})))
    (done,) = [event for event in events if event.type == "InferenceCompleted"]
    told = {"input": 9, "output": 2, "cache_read": 5, "cache_creation": 3, "reasoning": None}
    assert done.body["usage"] == told


def test_an_exit_that_says_more_than_the_session_does_is_counted(tmp_path: Path) -> None:
    for content, left in (("", {}), ("boom", {}), ("boom, and why", {"exit.content": 1})):
        exit_ = {"role": "exit", "content": content, "extra": {"exit_status": "E", "submission": "boom"}}
        path = trajectory(tmp_path / "t.json", answer("x"), exit_, status="E", submission="boom")
        assert mapped(path)[1].as_data()["not_carried"] == left


def test_a_return_code_that_is_none_makes_no_result(tmp_path: Path) -> None:
    calls = [{"command": "ls", "tool_call_id": "a"}]
    odd = result("a", "<o>1</o>", 12.0, raw_output="1", returncode=2**40)
    events, report = mapped(trajectory(tmp_path / "t.json", answer("text", actions=calls), odd))
    assert [event.type for event in events][-2:] == ["ToolCallRequested", "NoteRecorded"]
    assert report.unknown == {"tool": 1}


def test_an_exception_ends_the_session_as_failed(tmp_path: Path) -> None:
    path = trajectory(
        tmp_path / "t.json", answer("x"), user("boom"), status="RuntimeError", submission="boom", traceback="at 1"
    )
    events, _ = mapped(path)
    assert events[-1].type == "SessionFailed"
    error = events[-1].body["error"]
    assert (error["error_class"], error["message"], error["detail"]["inline"]) == ("RuntimeError", "boom", b"at 1")


def test_an_exception_that_is_too_long_for_a_message_is_kept_whole(tmp_path: Path) -> None:
    long = "boom " * 4_000
    for trace in (None, "at 1"):
        path = trajectory(tmp_path / "t.json", answer("x"), status="Error", submission=long, traceback=trace)
        error = mapped(path)[0][-1].body["error"]
        kept = error["detail"]["inline"].decode()
        assert error["message"] == long[:8192]
        assert kept == long if trace is None else json.loads(kept) == {"message": long, "detail": trace}


def test_an_unknown_role_is_kept_whole_and_named(tmp_path: Path) -> None:
    odd = {"role": "oracle", "content": "hm"}
    events, report = mapped(trajectory(tmp_path / "t.json", odd))
    (note,) = [event for event in events if event.type == "NoteRecorded"]
    assert (note.body["kind"], json.loads(note.body["data"]["inline"])) == ("mini-swe-agent.oracle", odd)
    assert report.as_data()["unknown_types"] == {"oracle": 1}


def test_two_runs_on_one_instance_are_two_sessions(tmp_path: Path) -> None:
    ids = {mapped(trajectory(tmp_path / f"{text}.json", answer(text)))[0][0].session_id for text in ("a", "b")}
    assert len(ids) == 2


@pytest.mark.parametrize("depth", [100, 960, 5_000, 200_000])
def test_a_message_nested_too_deeply(depth: int, tmp_path: Path) -> None:
    path = trajectory(tmp_path / "t.json", answer("DEEP"))
    path.write_text(path.read_text().replace('"DEEP"', "[" * depth + "]" * depth))
    try:
        assert mapped(path)
        assert depth < 200_000
    except BadInputFile as error:  # how deep is too deep differs by Python
        refused = str(error)
        assert depth > 100
        assert str(path) in refused
        assert "nested too deeply" in refused


# --- reports ---------------------------------------------------------------------------------------------------------


def test_reports_are_found_by_instance_by_file_and_by_folder(tmp_path: Path) -> None:
    path = trajectory(tmp_path / "run-7.traj.json", answer("x"), status="Submitted")
    (tmp_path / "i-1").mkdir()
    named, filed, foldered = (
        tmp_path / "i-1.report.json",
        tmp_path / "run-7.report.json",
        tmp_path / "i-1" / "report.json",
    )
    named.write_text('{"resolved": false}')
    filed.write_text('{"resolved": true}')
    foldered.write_text('{"i-1": {"resolved": false}}')
    for report, verdict in ((named, "REJECT"), (filed, "PASS"), (foldered, "REJECT")):
        events, _ = mapped(path, report)
        assert (events[-1].type, events[-1].body["verdict"]) == ("ValidationDecided", verdict)
    with pytest.raises(BadInputFile, match="two reports"):
        mapped(path, named, filed)
    without, _ = mapped(path)
    assert [e.hash for e in mapped(path, named)[0]][: len(without)] == [e.hash for e in without], "it only adds"


def test_a_report_of_nothing_or_without_a_verdict_is_refused(tmp_path: Path) -> None:
    path = trajectory(tmp_path / "run-7.traj.json", answer("x"))
    other, empty = tmp_path / "other.report.json", tmp_path / "i-1.report.json"
    other.write_text('{"resolved": true}')
    empty.write_text("{}")
    importer = MiniSweAgentImporter([other])
    list(importer.read(path, importer.report()))
    with pytest.raises(BadInputFile, match=r"other\.report\.json belongs to no session"):
        importer.check_reports()
    with pytest.raises(BadInputFile, match=r"i-1\.report\.json: no /resolved"):
        mapped(path, empty)


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"info": {}, "messages": []}, "mini_version"),
        ({"info": {"mini_version": "1"}, "messages": {}}, "/messages"),
        ({"info": {"mini_version": "1"}, "messages": [{}]}, "/messages/0"),
        ({"info": {"mini_version": "1"}, "messages": [3]}, "/messages/0"),
        ({"info": [], "messages": []}, "/info"),
        ({"messages": []}, "/info"),
        (
            {"info": {"mini_version": "1"}, "messages": [], "trajectory_format": "mini-swe-agent-2"},
            "/trajectory_format",
        ),
    ],
)
def test_json_that_is_no_trajectory(document: Any, place: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document))
    with pytest.raises(BadInputFile) as refused:
        mapped(path)
    assert str(path) in str(refused.value)
    assert place in str(refused.value)

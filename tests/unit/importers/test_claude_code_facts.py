"""Claude Code: what the shared sessions hold, against the files read by json alone."""

from __future__ import annotations

import base64
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from dalsegno.importers.chain import chained
from dalsegno.testing.builder import shipped_schemas
from jsonl_lab import imported
from recordings import Recording, events_of, of_type, recording_of, report_of, sessions_of


def real() -> Recording:
    return recording_of("claude-code", "full-session-two.jsonl")


def compacted() -> Recording:
    return recording_of("claude-code", "scout_compaction_session.jsonl")


def native(recording: Recording) -> list[dict[str, Any]]:
    return [json.loads(line) for line in recording.path.read_bytes().split(b"\n") if line]


def blocks(recording: Recording, type_: str) -> list[dict[str, Any]]:
    contents = [line["message"]["content"] for line in native(recording) if "message" in line]
    return [block for content in contents if isinstance(content, list) for block in content if block["type"] == type_]


# --- the real session ------------------------------------------------------------------------------------------------


def test_lines_of_one_message_are_one_answer_and_the_last_one_waits() -> None:
    by_id: dict[str, list[dict[str, Any]]] = {}
    for line in native(real()):
        if line["type"] == "assistant":
            by_id.setdefault(line["message"]["id"], []).append(line["message"])
    assert (len(by_id), sum(map(len, by_id.values()))) == (11, 16)
    answers = of_type(real(), "InferenceCompleted")
    # Nothing says that the last message is whole: a longer file may go on with it.
    assert [answer.body["response_id"] for answer in answers] == list(by_id)[:-1]
    assert report_of(real())["waiting"] == {"assistant": 1}
    assert len(of_type(real(), "InferenceRequested")) == 11
    for answer in answers:
        messages = by_id[answer.body["response_id"]]
        assert json.loads(answer.body["raw"]["inline"]) == messages
        usage = messages[-1]["usage"]
        told = answer.body["usage"]
        assert (told["input"], told["output"]) == (usage["input_tokens"], usage["output_tokens"])
        assert told["cache_read"] == usage["cache_read_input_tokens"]
        assert told["cache_creation"] == usage["cache_creation_input_tokens"]
        texts = [block["text"] for message in messages for block in message["content"] if block["type"] == "text"]
        assert [part["text"] for part in answer.body["output"] if part["kind"] == "TEXT"] == texts


def test_a_file_that_has_ended_holds_the_last_answer_too(tmp_path: Path) -> None:
    result = imported("claude-code", native(real()), tmp_path, ended=True)
    answers = result.of("InferenceCompleted")
    assert len(answers) == 11
    assert answers[-1]["output"][0]["text"] == native(real())[-1]["message"]["content"][0]["text"]
    assert (result.report.waiting, result.report.mapped.total()) == ({}, 41)


def test_the_calls_and_results_are_those_of_the_file() -> None:
    uses, results = blocks(real(), "tool_use"), blocks(real(), "tool_result")
    assert (len(uses), len(results), sum(bool(r.get("is_error")) for r in results)) == (10, 10, 1)
    requested = of_type(real(), "ToolCallRequested")
    assert [call.body["native_call_id"] for call in requested] == [use["id"] for use in uses]
    assert [json.loads(call.body["arguments"]["inline"]) for call in requested] == [use["input"] for use in uses]
    assert [call.body["tool_call_id"][-2:] for call in requested[:2]] == ["c0", "c1"], "two in one message"
    receipts = of_type(real(), "ToolReceiptRecorded")
    fine = [result for result in results if not result.get("is_error")]
    assert len(receipts) == len(fine) == 9
    for receipt, result in zip(receipts, fine, strict=True):
        inline, content = receipt.body["result"]["inline"].decode(), result["content"]
        assert (inline if isinstance(content, str) else json.loads(inline)) == content
        assert receipt.body["status"] == "OK"


def test_the_rejected_plan_the_approved_one_and_the_question() -> None:
    (error,) = [result for result in blocks(real(), "tool_result") if result.get("is_error")]
    (denied,), (rejected,) = of_type(real(), "ApprovalDenied"), of_type(real(), "ToolCallRejected")
    assert (denied.body["rejection_source"], denied.body["effect"]) == ("USER", "ABORT_TURN")
    assert rejected.body["message"] == denied.body["explanation"] == error["content"]
    assert rejected.body["cites"] == denied.body["approval_id"]
    (granted,) = of_type(real(), "ApprovalGranted")
    bases = Counter(event.body["basis"] for event in of_type(real(), "ToolCallAuthorized"))
    assert bases == {"UNRECORDED_IMPORT": 8, "APPROVAL": 1}
    names = {call.body["tool_call_id"]: call.body["name"] for call in of_type(real(), "ToolCallRequested")}
    assert [names[event.body["approval_id"][:-3]] for event in (denied, granted)] == ["ExitPlanMode"] * 2
    assert all(event.meta["origin"]["synthesized"] for event in of_type(real(), "ApprovalRequested"))
    (answer,) = of_type(real(), "InputProvided")
    (told,) = [line["toolUseResult"] for line in native(real()) if "answers" in line.get("toolUseResult", ())]
    assert json.loads(answer.body["content"]["inline"]) == told["answers"]
    (question,) = of_type(real(), "InputRequested")
    assert json.loads(question.body["prompt"]["inline"]) == {"questions": told["questions"]}


def test_interruptions_abort_turns_and_prompts_begin_them() -> None:
    texts = [block["text"] for block in blocks(real(), "text") if block["text"].startswith("[Request interrupted")]
    assert len(texts) == len(of_type(real(), "TurnAborted")) == 2
    messages = of_type(real(), "MessageReceived")
    channels = Counter(event.body["channel"] for event in messages)
    assert channels == {None: 6, "interruption": 2, "meta": 1}
    users = [line for line in native(real()) if line["type"] == "user"]
    assert len(messages) == len(users) - len(blocks(real(), "tool_result")) == 9
    assert len(of_type(real(), "TurnStarted")) == 4
    assert len(of_type(real(), "TurnCompleted")) == 1


def test_a_picture_that_the_file_holds_twice_is_kept_once() -> None:
    (line,) = [line for line in native(real()) if '"base64":' in json.dumps(line.get("toolUseResult"))]
    picture = line["message"]["content"][0]["content"][0]["source"]["data"]
    assert picture == line["toolUseResult"]["file"]["base64"]
    assert len(base64.b64decode(picture, validate=False)) > 10_000
    (session,) = sessions_of(real())
    assert session.blobs == {}
    whole = b"".join(record.value for record in chained(session, shipped_schemas()))
    assert whole.count(picture.encode()) == 1
    notes = [json.loads(event.body["data"]["inline"]) for event in of_type(real(), "NoteRecorded")]
    (note,) = [note for note in notes if "copy_of" in json.dumps(note) and '"image"' in json.dumps(note)]
    assert note["toolUseResult"]["file"]["base64"] == {"copy_of": "result"}


def test_the_report_of_the_real_session() -> None:
    report = report_of(real())
    assert report["records"] == {"assistant": 16, "file-history-snapshot": 6, "user": 19}
    assert (report["records_mapped"], report["records_waiting"], report["events_made"]) == (40, 1, 101)
    untimed = [n for n, line in enumerate(native(real()), 1) if "timestamp" not in line]
    times = [line.get("timestamp") for line in native(real())]
    seen = [(n, time) for n, time in enumerate(times, 1) if time]
    back = [n for (_, before), (n, time) in pairwise(seen) if time < before]
    assert (untimed, back) == ([1, 5, 13, 24, 32, 37], [3])
    assert [warning.rpartition(": ")[2] for warning in report["warnings"]] == ["line 1, 5, 13 and 3 more", "line 3"]
    artifacts = of_type(real(), "ArtifactRecorded")
    assert [json.loads(event.body["blob"]["inline"]) for event in artifacts] == [
        line for line in native(real()) if line["type"] == "file-history-snapshot"
    ]
    assert {event.meta["occurred_at"] for event in artifacts} == {None}, "their line has no time"
    branches = {line["gitBranch"] for line in native(real()) if "gitBranch" in line}
    notes = [json.loads(event.body["data"]["inline"]) for event in of_type(real(), "NoteRecorded")]
    assert len(branches) - 1 == sum("gitBranch" in note for note in notes) == 2
    assert (report["unknown_types"], report["records_kept_as_notes"]) == ({}, 0)
    assert report["not_carried"] == {"assistant.requestId": 15, "user.thinkingMetadata": 4}


# --- the compacted session -------------------------------------------------------------------------------------------


def test_a_compaction_is_marked_with_its_summary() -> None:
    lines = native(compacted())
    (events,) = events_of(compacted())
    (started,), (made,) = of_type(compacted(), "CompressionStarted"), of_type(compacted(), "CompressionCompleted")
    assert (started.body["trigger"], started.body["tokens_before"]) == ("THRESHOLD", 50_000)
    assert made.body["summary"]["inline"].decode() == lines[3]["message"]["content"]
    assert (made.body["effect"], made.body["method"], made.body["tokens_before"]) == ("MARKER_ONLY", "SUMMARY", 50_000)
    assert [m.body["message_id"] for m in of_type(compacted(), "MessageReceived")] == ["compact-001", "compact-005"]
    answers = of_type(compacted(), "InferenceCompleted")
    assert [(a.body["usage"]["input"], a.body["usage"]["output"]) for a in answers] == [(100, 15), (80, 25)]
    assert [answer.body["finish_reasons"] for answer in answers] == [["end_turn"]] * 2
    assert (len(events), report_of(compacted())["records_mapped"], report_of(compacted())["warnings"]) == (15, 6, [])

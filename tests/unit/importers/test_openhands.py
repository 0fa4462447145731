"""OpenHands: what the shared recordings hold, against the files read by json alone; made ones for what they lack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dalsegno.errors import BadInputFile
from dalsegno.importers.base import ImportReport
from dalsegno.importers.openhands import OpenHandsImporter
from recordings import Mapped, Recording, events_of, of_type, recording_of, report_of, written_of

GUI = "basic_gui_mode.json"
RENAME = "wrong_initial_state.json"
NAIVE = "times are without a zone; they are taken as UTC"
LATER = "the model's answer, dated in UTC, is 8 h later: the zone is another one"


def v0(name: str) -> Recording:
    return recording_of("openhands-v0", name)


def v1() -> Recording:
    return recording_of("openhands-v1", "goal_events.jsonl")


def native_v0(name: str) -> list[dict[str, Any]]:
    data: list[dict[str, Any]] = json.loads(v0(name).path.read_bytes())
    return data


def native_v1() -> list[dict[str, Any]]:
    return [json.loads(line) for line in v1().path.read_bytes().splitlines()]


# --- v0 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "events", "mapped", "notes", "warnings"),
    [
        (GUI, 36, 12, 6, [f"/7: {LATER}", f"18 {NAIVE}"]),
        (RENAME, 27, 8, 0, ["/1: event ids go from 0 to 3", f"/1: {LATER}", f"8 {NAIVE}"]),
    ],
)
def test_the_report_of_v0(name: str, events: int, mapped: int, notes: int, warnings: list[str]) -> None:
    report = report_of(v0(name))
    native = native_v0(name)
    assert report["records_read"] == len(native)
    told = (report["events_made"], report["records_mapped"], report["records_kept_as_notes"], report["warnings"])
    assert told == (events, mapped, notes, warnings)
    assert report["unknown_types"] == {}
    assert report["lacks"]["what a model was asked"] == 4
    assert report["lacks"]["how a session ended"] == 1


@pytest.mark.parametrize(("name", "answers", "receipts"), [(GUI, 4, 4), (RENAME, 4, 3)])
def test_each_answer_is_one_inference_however_often_it_stands_in_the_file(
    name: str, answers: int, receipts: int
) -> None:
    native = [event["tool_call_metadata"] for event in native_v0(name) if "tool_call_metadata" in event]
    told = {one["model_response"]["id"]: one["model_response"] for one in native}
    assert len(native) > len(told) == answers
    completed = of_type(v0(name), "InferenceCompleted")
    assert [event.body["response_id"] for event in completed] == list(told)
    for event, answer in zip(completed, told.values(), strict=True):
        usage = answer["usage"]
        assert event.body["usage"] == {
            "input": usage["prompt_tokens"],
            "output": usage["completion_tokens"],
            "cache_read": usage["cache_read_input_tokens"],
            "cache_creation": usage["cache_creation_input_tokens"],
            "reasoning": None,
        }
        assert json.loads(event.body["raw"]["inline"]) == answer
        assert event.body["output"][0]["text"] == answer["choices"][0]["message"]["content"]
    assert len(of_type(v0(name), "ToolReceiptRecorded")) == receipts


@pytest.mark.parametrize("name", [GUI, RENAME])
def test_calls_of_v0_have_the_arguments_of_the_model_and_what_came_back(name: str) -> None:
    native = native_v0(name)
    actions = {event["id"]: event for event in native if "action" in event and "tool_call_metadata" in event}
    wanted = [
        event["tool_call_metadata"]["model_response"]["choices"][0]["message"]["tool_calls"][0]["function"]
        for event in actions.values()
    ]
    calls = of_type(v0(name), "ToolCallRequested")
    assert [event.body["arguments"]["inline"].decode() for event in calls] == [one["arguments"] for one in wanted]
    assert [event.body["name"] for event in calls] == [one["name"] for one in wanted]
    assert {event.body["basis"] for event in of_type(v0(name), "ToolCallAuthorized")} == {"UNRECORDED_IMPORT"}
    results = [event for event in native if event.get("cause") in actions]
    receipts = of_type(v0(name), "ToolReceiptRecorded")
    assert [json.loads(event.body["result"]["inline"]) for event in receipts] == [
        {"content": event["content"], "extras": event["extras"]} for event in results
    ]
    codes = [event["extras"].get("metadata", {}).get("exit_code") for event in results]
    assert [event.body["exit_code"] for event in receipts] == codes
    failed = [event.get("success") is False for event in results]
    assert [event.body["status"] == "ERROR" for event in receipts] == failed


def test_a_gui_session_has_its_turn_its_messages_and_its_notes() -> None:
    native = native_v0(GUI)
    (message,) = of_type(v0(GUI), "MessageReceived")
    assert message.body["parts"][0]["text"] == native[4]["args"]["content"]
    (asked,) = of_type(v0(GUI), "InputRequested")
    assert asked.body["prompt"]["inline"].decode() == native[15]["args"]["content"]
    (events,) = events_of(v0(GUI))
    turn = [e.meta["origin"]["native_ref"] for e in events if e.type in ("TurnStarted", "TurnCompleted")]
    assert turn == ["/5 (id 5)", "/17 (id 17)"]
    notes = [json.loads(event.body["data"]["inline"]) for event in of_type(v0(GUI), "NoteRecorded")]
    assert notes == [native[index] for index in (0, 1, 2, 3, 6, 16)]
    assert report_of(v0(GUI))["notes"] == {
        "action change_agent_state": 1,
        "observation agent_state_changed": 2,
        "observation null": 3,
    }


def test_ids_with_gaps_are_numbered_anew_and_kept() -> None:
    (events,) = events_of(v0(RENAME))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    refs = list(dict.fromkeys(event.meta["origin"]["native_ref"] for event in events))
    assert refs == [f"/{place} (id {event['id']})" for place, event in enumerate(native_v0(RENAME))]


def test_finish_has_no_result_and_the_session_waits() -> None:
    (events,) = events_of(v0(RENAME))
    received = {event.body["tool_call_id"] for event in events if event.type == "ToolReceiptRecorded"}
    (open_call,) = [e for e in events if e.type == "ToolCallRequested" and e.body["tool_call_id"] not in received]
    assert open_call.body["name"] == "finish"
    assert (events[-1].type, events[-1].body["reason"]) == ("SessionPaused", "finish")


# --- v1 --------------------------------------------------------------------------------------------------------------


def test_the_report_of_v1() -> None:
    report = report_of(v1())
    assert report["records"] == {"ActionEvent": 2, "ConversationStateUpdateEvent": 5, "ObservationEvent": 3}
    assert (report["events_made"], report["records_mapped"], report["records_kept_as_notes"]) == (23, 6, 4)
    assert report["unknown_types"] == {}
    assert report["warnings"] == [
        "#7 (id 8df85183-1da3-4677-ad2e-eb87d6f33809): a result of an action that is not in the file",
        f"10 {NAIVE}",
    ]
    assert report["not_carried"] == {"ActionEvent.summary": 2, "time zone (taken as UTC)": 10}
    assert report["lacks"]["tokens of a model call"] == 2, "the statistics are running totals of the conversation"


def test_a_result_without_its_action_is_a_call_that_follows_from_it() -> None:
    native = native_v1()
    actions = [event for event in native if event["kind"] == "ActionEvent"]
    results = [event for event in native if event["kind"] == "ObservationEvent"]
    calls, receipts = of_type(v1(), "ToolCallRequested"), of_type(v1(), "ToolReceiptRecorded")
    assert (len(calls), len(receipts)) == (3, 3)
    assert [event.body["native_call_id"] for event in calls] == [result["tool_call_id"] for result in results]
    concluded = [event.meta["origin"]["synthesized"] for event in calls]
    known = {action["id"] for action in actions}
    assert concluded == [result["action_id"] not in known for result in results] == [False, True, False]
    assert (calls[1].body["arguments"], calls[1].body["inference_id"]) == (None, None)
    assert calls[1].meta["occurred_at"] is None
    arguments = [event.body["arguments"]["inline"].decode() for event in (calls[0], calls[2])]
    assert arguments == [action["tool_call"]["arguments"] for action in actions]


def test_results_of_v1_say_whether_they_are_errors() -> None:
    results = [event["observation"] for event in native_v1() if event["kind"] == "ObservationEvent"]
    receipts = of_type(v1(), "ToolReceiptRecorded")
    assert [json.loads(event.body["result"]["inline"]) for event in receipts] == results
    assert [event.body["status"] for event in receipts] == ["ERROR", "ERROR", "OK"]
    assert [event.body["status"] == "ERROR" for event in receipts] == [result["is_error"] for result in results]
    assert [event.body["exit_code"] for event in receipts] == [None, None, 1]


def test_answers_of_v1_are_known_by_their_actions() -> None:
    actions = [event for event in native_v1() if event["kind"] == "ActionEvent"]
    completed = of_type(v1(), "InferenceCompleted")
    assert [event.body["response_id"] for event in completed] == [action["llm_response_id"] for action in actions]
    assert [event.body["output"][0]["kind"] for event in completed] == ["REASONING", "REASONING"]
    assert [event.body["output"][0]["text"] for event in completed] == [a["reasoning_content"] for a in actions]
    assert [event.body["output"][1]["text"] for event in completed] == [a["thought"][0]["text"] for a in actions]
    assert all(value is None for event in completed for value in event.body["usage"].values())


def test_state_updates_are_kept_and_the_status_starts_the_turn() -> None:
    notes = [json.loads(event.body["data"]["inline"]) for event in of_type(v1(), "NoteRecorded")]
    assert notes == [event for event in native_v1() if event.get("key") == "stats"]
    assert len(of_type(v1(), "TurnStarted")) == 1


# --- made recordings -------------------------------------------------------------------------------------------------


class Made(Mapped):
    """A recording made to measure, and its session as a reader of the log sees it."""

    def __init__(self, path: Path, *records: dict[str, Any], ended: bool = False) -> None:
        stamped = [
            {"id": number, "timestamp": f"2025-01-01T10:00:{number:02d}+00:00", "source": "agent", **record}
            for number, record in enumerate(records)
        ]
        lines = path.suffix == ".jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in stamped) if lines else json.dumps(stamped))
        super().__init__(OpenHandsImporter(ended=ended), path)


def action(kind: str, **rest: Any) -> dict[str, Any]:
    return {"action": kind, "args": {}, **rest}


def observed(kind: str, cause: int, **rest: Any) -> dict[str, Any]:
    return {"observation": kind, "cause": cause, "content": "", "extras": {}, **rest}


def state(name: str) -> dict[str, Any]:
    return {"observation": "agent_state_changed", "content": "", "extras": {"agent_state": name}}


def run(call_id: str = "call_0", leave: str = "confirmed") -> dict[str, Any]:
    metadata = {"function_name": "execute_bash", "tool_call_id": call_id, "total_calls_in_response": 1}
    return action("run", args={"command": "ls", "confirmation_state": leave}, tool_call_metadata=metadata)


def test_leave_that_was_asked_for_and_given(tmp_path: Path) -> None:
    made = Made(
        tmp_path / "a.json",
        run(leave="awaiting_confirmation"),
        state("awaiting_user_confirmation"),
        state("user_confirmed"),
        run(),
        observed("run", 3, success=True),
    )
    calls = [type_ for type_ in made.types() if "Call" in type_ or "Approval" in type_ or "Receipt" in type_]
    assert calls == [
        "ToolCallRequested",
        "ApprovalRequested",
        "ApprovalGranted",
        "ToolCallAuthorized",
        "ToolCallStarted",
        "ToolReceiptRecorded",
    ]
    (authorized,) = made.bodies("ToolCallAuthorized")
    assert (authorized["basis"], authorized["approval_id"]) == ("APPROVAL", "session/x1/a1")


@pytest.mark.parametrize("asked", [True, False])
def test_leave_that_was_refused(asked: bool, tmp_path: Path) -> None:
    actions = [run(leave="awaiting_confirmation")] * asked + [run(leave="rejected")]
    made = Made(tmp_path / "a.json", *actions, observed("user_rejected", len(actions) - 1, content="no"))
    (denied,), (rejected,) = made.bodies("ApprovalDenied"), made.bodies("ToolCallRejected")
    assert (denied["rejection_source"], denied["explanation"]) == ("USER", "no")
    assert (rejected["basis"], rejected["cites"]) == ("APPROVAL_DENIED", denied["approval_id"])
    assert len(made.bodies("ApprovalRequested")) == len(made.bodies("ToolCallRequested")) == 1
    assert made.bodies("ToolCallStarted") == []


@pytest.mark.parametrize(
    ("args", "effect", "forgotten"),
    [
        ({"forgotten_event_ids": [0, 1], "summary": "s", "summary_offset": 1}, "REAPPLIABLE", ["m0", "session/x1"]),
        ({"forgotten_events_start_id": 0, "forgotten_events_end_id": 1}, "REAPPLIABLE", ["m0", "session/x1"]),
        ({"forgotten_event_ids": [0, 77]}, "MARKER_ONLY", ["m0", "event 77"]),
    ],
)
def test_a_condensation_can_be_done_again_where_all_that_it_forgot_is_there(
    args: dict[str, Any], effect: str, forgotten: list[str], tmp_path: Path
) -> None:
    said = action("message", args={"content": "do"}, source="user")
    made = Made(tmp_path / "a.json", said, action("run", args={"command": "ls"}), action("condensation", args=args))
    (compressed,) = made.bodies("CompressionCompleted")
    assert (compressed["effect"], compressed["forgotten"]) == (effect, forgotten)
    assert compressed["method"] == ("SUMMARY" if "summary" in args else "TRIM")
    assert compressed["insert_at"] == args.get("summary_offset")


def test_recall_is_a_retrieval_and_a_system_message_is_configuration(tmp_path: Path) -> None:
    made = Made(
        tmp_path / "a.json",
        action("system", args={"content": "be good", "tools": [{"name": "run"}]}),
        action("recall", args={"query": "q", "recall_type": "knowledge"}),
        observed("recall", 1, content="found", extras={"repo_name": "r"}),
    )
    assert [body["kind"] for body in made.bodies("ConfigPinned")] == ["PROMPT_TEMPLATE", "TOOL_CATALOG"]
    (asked,), (found,) = made.bodies("RetrievalRequested"), made.bodies("ContextItemRetrieved")
    assert asked["item_id"] == found["item_id"]
    assert json.loads(found["content"]["inline"])["content"] == "found"


def test_a_conversation_goes_on_with_the_next_message(tmp_path: Path) -> None:
    made = Made(
        tmp_path / "a.json",
        state("running"),
        action("message", args={"content": "what now?", "wait_for_response": True}),
        state("finished"),
        action("message", args={"content": "that"}, source="user"),
        state("running"),
        state("error"),
    )
    assert made.types()[2:] == [
        "TurnStarted",
        "InputRequested",
        "TurnCompleted",
        "SessionPaused",
        "SessionResumed",
        "MessageReceived",
        "InputProvided",
        "TurnStarted",
        "ErrorRecorded",
        "TurnAborted",
    ]
    assert made.status == "RUNNING"


def test_what_is_not_known_is_kept_and_said(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.json", action("dance", args={"how": "slowly"}), observed("whirl", 0))
    assert made.report.as_data()["unknown_types"] == {"action dance": 1}
    assert len(made.bodies("NoteRecorded")) == 2


def test_a_result_of_v0_without_its_action_and_errors_of_both_kinds(tmp_path: Path) -> None:
    metadata = {"function_name": "execute_bash", "tool_call_id": "c9"}
    made = Made(
        tmp_path / "a.json",
        observed("run", 99, content="out", extras={"exit_code": 2}, tool_call_metadata=metadata),
        run("c1"),
        observed("error", 1, content="broke"),
        {"observation": "error", "content": "lost", "extras": {"error_id": "E1"}},
        state("paused"),
        state("paused"),
    )
    assert made.report.warnings == ["/0: a result of an action that is not in the file"]
    first, second = made.bodies("ToolReceiptRecorded")
    assert (first["tool_call_id"], first["exit_code"], first["status"]) == ("session/x1", 2, "OK")
    assert (second["status"], json.loads(second["result"]["inline"])["content"]) == ("ERROR", "broke")
    assert made.bodies("ErrorRecorded")[0]["error"]["error_class"] == "E1"
    assert made.status == "PAUSED"
    assert made.report.as_data()["notes"] == {"observation agent_state_changed": 1}


def test_what_people_show_and_say_beside_texts(tmp_path: Path) -> None:
    args = {"content": "see", "image_urls": ["data:x"]}
    made = Made(
        tmp_path / "a.json", action("message", args=args, source="user"), action("message", args={"content": "ok"})
    )
    (message,) = made.bodies("MessageReceived")
    assert [part["kind"] for part in message["parts"]] == ["TEXT", "MEDIA"]
    assert made.report.as_data()["notes"] == {"action message": 1}, "which model said it is not recorded"


def v1_action(call_id: str, answer: str, **rest: Any) -> dict[str, Any]:
    call = {"id": call_id, "name": "terminal", "arguments": f'{{"command": "{call_id}"}}'}
    told = {"kind": "ActionEvent", "tool_name": "terminal", "tool_call_id": call_id, "tool_call": call, "thought": []}
    return {**told, "llm_response_id": answer, "action": {"kind": "T", "command": call_id}, **rest}


def v1_result(call_id: str, action_id: int, kind: str = "ObservationEvent", **rest: Any) -> dict[str, Any]:
    told = {"tool_name": "terminal", "tool_call_id": call_id, "action_id": action_id, "source": "environment"}
    result = {"observation": {"content": [], "is_error": False}} if kind == "ObservationEvent" else {}
    return {"kind": kind, **told, **result, **rest}


def test_parallel_calls_are_one_answer(tmp_path: Path) -> None:
    made = Made(
        tmp_path / "a.jsonl", v1_action("a", "r1"), v1_action("b", "r1"), v1_action("c", "r2"), v1_result("b", 1)
    )
    first, second = made.bodies("InferenceCompleted")
    assert [call["tool_call_id"] for call in first["tool_calls"]] == ["session/i1/c0", "session/i1/c1"]
    assert [call["tool_call_id"] for call in second["tool_calls"]] == ["session/i2/c0"]
    assert [body["inference_id"] for body in made.bodies("ToolCallRequested")] == [
        "session/i1",
        "session/i1",
        "session/i2",
    ]
    assert made.bodies("ToolReceiptRecorded")[0]["tool_call_id"] == "session/i1/c1"


@pytest.mark.parametrize(
    ("suffix", "ended", "waiting"), [(".jsonl", False, 2), (".jsonl", True, 0), (".json", False, 0)]
)
def test_an_answer_at_the_end_of_a_file_that_may_grow_waits(
    suffix: str, ended: bool, waiting: int, tmp_path: Path
) -> None:
    status = {"kind": "ConversationStateUpdateEvent", "key": "execution_status", "value": "running"}
    made = Made(tmp_path / f"a{suffix}", status, v1_action("a", "r1"), v1_action("b", "r1"), ended=ended)
    assert made.report.waiting.total() == waiting
    assert len(made.bodies("ToolCallRequested")) == 2 - waiting
    assert [warning for warning in made.report.warnings if "from line 2 on" in warning] == made.report.warnings
    assert bool(made.report.warnings) == bool(waiting)


def test_what_was_imported_is_a_prefix_of_what_a_longer_file_gives(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    whole = Made(
        path, v1_action("a", "r1"), v1_action("b", "r1"), v1_result("a", 0), v1_action("c", "r1"), v1_result("c", 3)
    )
    hashes = [event.hash for event in whole.events]
    lines = path.read_bytes().splitlines(keepends=True)
    for count in range(1, len(lines) + 1):
        path.write_bytes(b"".join(lines[:count]))
        made = [written.event.hash for written in written_of(list(OpenHandsImporter().read(path, ImportReport("", 1))))]
        assert made == hashes[: len(made)]
    late = [body for body in whole.bodies("ToolCallRequested") if body["native_call_id"] == "c"]
    assert [body["inference_id"] for body in late] == [None], "the answer has its event already"


def test_states_of_v1(tmp_path: Path) -> None:
    names = ("running", "paused", "running", "finished", "running", "stuck", "idle")
    told = [{"kind": "ConversationStateUpdateEvent", "key": "execution_status", "value": name} for name in names]
    made = Made(tmp_path / "a.json", *told, {"kind": "InterruptEvent", "source": "user"}, {"kind": "Waltz"})
    assert made.types()[2:-3] == [
        "TurnStarted",
        "SessionPaused",
        "SessionResumed",
        "TurnCompleted",
        "SessionPaused",
        "SessionResumed",
        "TurnStarted",
        "ErrorRecorded",
        "TurnAborted",
    ]
    assert made.report.as_data()["unknown_types"] == {"Waltz": 1}
    assert made.report.notes.total() == 3


def test_refusals_of_people_and_of_hooks(tmp_path: Path) -> None:
    hook = {"kind": "HookExecutionEvent", "source": "hook", "hook_event_type": "PreToolUse", "reason": "rm"}
    made = Made(
        tmp_path / "a.json",
        v1_action("a", "r1"),
        v1_action("b", "r2"),
        v1_action("c", "r3"),
        v1_result("a", 0, "UserRejectObservation", rejection_reason="no", rejection_source="user"),
        {**hook, "action_id": 1, "blocked": True},
        v1_result("b", 1, "UserRejectObservation", rejection_reason="rm", rejection_source="hook"),
        v1_result("c", 2, "UserRejectObservation", rejection_reason="x", rejection_source="hook"),
        {**hook, "blocked": False},
    )
    rejected = made.bodies("ToolCallRejected")
    assert [(body["basis"], body["cites"]) for body in rejected] == [
        ("APPROVAL_DENIED", "session/i1/c0/a1"),
        ("POLICY_DENY", "session/d1"),
        ("POLICY_DENY", "session/d2"),
    ]
    decided = [event for event in made.events if event.type == "PolicyEvaluated"]
    assert [event.meta["origin"]["synthesized"] for event in decided] == [False, True]
    assert {(e.body["decision"], e.body["engine"], e.meta["actor_kind"]) for e in decided} == {
        ("DENY", "hook", "POLICY")
    }
    assert json.loads(decided[0].body["input"]["inline"])["hook_event_type"] == "PreToolUse"
    assert made.report.as_data()["notes"] == {"HookExecutionEvent": 1}


def test_a_call_that_the_harness_could_not_run_failed(tmp_path: Path) -> None:
    made = Made(
        tmp_path / "a.json", v1_action("a", "r1", action=None), v1_result("a", 9, "AgentErrorEvent", error="bad")
    )
    (failed,) = made.bodies("ToolCallFailed")
    assert (failed["reason"], failed["not_started"], failed["error"]["message"]) == ("INFRA", True, "bad")


def test_messages_prompts_and_condensations_of_v1(tmp_path: Path) -> None:
    text = {"content": [{"type": "text", "text": "hello"}], "role": "user"}
    made = Made(
        tmp_path / "a.json",
        {"kind": "SystemPromptEvent", "system_prompt": {"text": "be good"}, "tools": [{"name": "terminal"}]},
        {"kind": "MessageEvent", "source": "user", "llm_message": text, "extended_content": ["x"]},
        {
            "kind": "MessageEvent",
            "llm_message": {"content": "hi", "role": "assistant", "thinking_blocks": ["t"]},
            "llm_response_id": "r1",
        },
        {"kind": "MessageEvent", "llm_message": {"content": "hi", "role": "assistant"}},
        {"kind": "Condensation", "forgotten_event_ids": [1, 2], "summary": "s", "llm_response_id": "r9"},
        {"kind": "PauseEvent", "source": "user"},
        {"kind": "ConversationErrorEvent", "code": "E", "detail": "d"},
        {"kind": "TokenEvent"},
    )  # fmt: skip
    (message,) = made.bodies("MessageReceived")
    assert [part["text"] for part in message["parts"]] == ["hello", "x"]
    assert [body["output"][0]["text"] for body in made.bodies("InferenceCompleted")] == ["hi"]
    (compressed,) = made.bodies("CompressionCompleted")
    assert (compressed["effect"], compressed["forgotten"]) == ("REAPPLIABLE", ["1", "session/i1"])
    assert made.bodies("SessionPaused")[0]["reason"] == "PauseEvent"
    assert made.bodies("ErrorRecorded")[0]["error"]["message"] == "d"
    assert made.report.not_carried["MessageEvent.llm_message.thinking_blocks"] == 1
    assert made.report.as_data()["notes"] == {"MessageEvent": 1, "TokenEvent": 1}


def test_a_list_with_records_of_both_versions_is_refused(tmp_path: Path) -> None:
    for records in ([run(), v1_action("a", "r")], [v1_action("a", "r"), run()]):
        with pytest.raises(BadInputFile, match="/1: no such event as those before it"):
            Made(tmp_path / "a.json", *records)
        with pytest.raises(BadInputFile, match="line 2: no such event as those before it"):
            Made(tmp_path / "a.jsonl", *records)

"""Temporal: what the shared history holds, against the file read by json and base64 alone; made ones for the rest."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dalsegno.errors import BadInputFile
from dalsegno.importers.temporal import TemporalImporter
from recordings import Mapped, Recording, events_of, of_type, recording_of, report_of


def recording() -> Recording:
    return recording_of("temporal", "customer-service-workflow-history.json")


def native(type_: str = "") -> list[dict[str, Any]]:
    """The native events of a type, each as its attributes (all of it where no type is named)."""
    events = json.loads(recording().path.read_bytes())["events"]
    of_type = [event for event in events if event["eventType"].endswith(type_)]
    if not type_:
        return of_type
    return [next(value for key, value in event.items() if key.endswith("EventAttributes")) for event in of_type]


def decoded(payloads: dict[str, Any]) -> Any:
    (payload,) = payloads["payloads"]
    return json.loads(b64decode(payload["data"]))


def test_the_report() -> None:
    report = report_of(recording())
    counts = Counter(event["eventType"].removeprefix("EVENT_TYPE_") for event in native())
    assert report["records"] == dict(sorted(counts.items()))
    assert (report["records_read"], report["records_mapped"], report["records_kept_as_notes"]) == (65, 29, 36)
    assert report["events_made"] == 81
    assert {
        name: report["events"][name] for name in ("InferenceCompleted", "ToolCallRequested", "ToolReceiptRecorded")
    } == {
        "InferenceCompleted": 6,
        "ToolCallRequested": 2,
        "ToolReceiptRecorded": 2,
    }
    assert (report["unknown_types"], report["warnings"]) == ({}, [])
    assert report["lacks"] == {
        "cost of a model call": 6,
        "when an event happened": 6,
        "who let a tool call run": 2,
    }


def test_the_session_is_named_by_the_workflow_and_its_run() -> None:
    (started,) = native("WORKFLOW_EXECUTION_STARTED")
    (created,) = of_type(recording(), "SessionCreated")
    assert created.session_id == f"temporal/1:{started['workflowId']}:{started['originalExecutionRunId']}"
    assert created.body["workflow_name"] == started["workflowType"]["name"]
    (pinned,) = of_type(recording(), "ConfigPinned")
    assert json.loads(pinned.body["content"]["inline"]) == started


def test_what_models_were_asked_and_answered_is_decoded() -> None:
    asked = [decoded(event["input"]) for event in native("ACTIVITY_TASK_SCHEDULED")]
    answers = [decoded(event["result"]) for event in native("ACTIVITY_TASK_COMPLETED")]
    completed = of_type(recording(), "InferenceCompleted")
    assert len(asked) == len(of_type(recording(), "InferenceRequested")) == len(completed) == 6
    assert [json.loads(event.body["raw"]["inline"]) for event in completed] == answers
    texts = [item["content"][0]["text"] for answer in answers for item in answer["output"] if item["type"] == "message"]
    parts = [part for event in completed for part in event.body["output"]]
    assert [part["text"] for part in parts if part["kind"] == "TEXT"] == texts
    assert len(texts) == 4


def test_a_recorded_zero_is_a_zero_and_what_is_not_recorded_is_not() -> None:
    usage = {tuple(event.body["usage"].items()) for event in of_type(recording(), "InferenceCompleted")}
    assert usage == {(("input", 0), ("output", 0), ("cache_read", 0), ("cache_creation", None), ("reasoning", 0))}


def test_calls_of_one_native_id_are_told_apart() -> None:
    answers = [decoded(event["result"]) for event in native("ACTIVITY_TASK_COMPLETED")]
    wanted = [item for answer in answers for item in answer["output"] if item["type"] == "function_call"]
    last = decoded(native("ACTIVITY_TASK_SCHEDULED")[-1]["input"])["input"]
    outputs = [item["output"] for item in last if item.get("type") == "function_call_output"]
    calls, receipts = of_type(recording(), "ToolCallRequested"), of_type(recording(), "ToolReceiptRecorded")
    assert [event.body["native_call_id"] for event in calls] == [item["call_id"] for item in wanted] == ["call", "call"]
    assert [event.body["name"] for event in calls] == [item["name"] for item in wanted]
    assert [event.body["arguments"]["inline"].decode() for event in calls] == [item["arguments"] for item in wanted]
    assert [event.body["tool_call_id"] for event in calls] == [event.body["tool_call_id"] for event in receipts]
    assert [event.body["result"]["inline"].decode() for event in receipts] == outputs
    assert {(e.meta["origin"]["synthesized"], e.meta["occurred_at"], e.body["ended_at"]) for e in receipts} == {
        (True, None, None)
    }


def test_updates_are_messages_and_turns() -> None:
    accepted = native("WORKFLOW_EXECUTION_UPDATE_ACCEPTED")
    said = [decoded(event["acceptedRequest"]["input"]["args"]) for event in accepted]
    messages = [event for event in of_type(recording(), "MessageReceived") if event.body["role"] == "USER"]
    assert [json.loads(event.body["parts"][0]["blob"]["inline"]) for event in messages] == said
    assert [event.body["message_id"] for event in messages] == [event["protocolInstanceId"] for event in accepted]
    assert {event.body["channel"] for event in messages} == {"update process_user_message"}
    assert len(of_type(recording(), "TurnStarted")) == len(of_type(recording(), "TurnCompleted")) == 4
    notes = [event.body for event in of_type(recording(), "NoteRecorded")]
    outcomes = [json.loads(note["data"]["inline"]) for note in notes if note["kind"].endswith("UPDATE_COMPLETED")]
    completed = native("WORKFLOW_EXECUTION_UPDATE_COMPLETED")
    assert outcomes == [{"success": {"payloads": [decoded(event["outcome"]["success"])]}} for event in completed]


def test_instructions_and_tools_stand_once_each() -> None:
    asked = [decoded(event["input"]) for event in native("ACTIVITY_TASK_SCHEDULED")]
    instructions = list(dict.fromkeys(one["system_instructions"] for one in asked))
    system = [event for event in of_type(recording(), "MessageReceived") if event.body["role"] == "SYSTEM"]
    assert [event.body["parts"][0]["text"] for event in system] == instructions
    assert len(instructions) == len(of_type(recording(), "ContextItemRetrieved")) == 2


def test_the_cancellation_was_asked_for_and_ends_the_session() -> None:
    (events,) = events_of(recording())
    (asked,) = [event for event in events if event.type == "CancelRequested"]
    (requested,) = native("WORKFLOW_EXECUTION_CANCEL_REQUESTED")
    assert asked.body["requested_by"] == requested["identity"]
    assert (events[-1].type, events[-1].body["open_ops"]) == ("SessionCancelled", [])
    assert events[-1].meta["causation_id"] == asked.meta["event_id"]


def test_causes_follow_the_ids_of_the_history() -> None:
    (events,) = events_of(recording())
    at = {event.meta["event_id"]: event for event in events}
    for completed in of_type(recording(), "InferenceCompleted"):
        requested = at[completed.meta["causation_id"]]
        assert requested.body["inference_id"] == completed.body["inference_id"]
        task = at[requested.meta["causation_id"]]
        assert task.body["kind"] == "temporal.WORKFLOW_TASK_COMPLETED"


# --- made histories --------------------------------------------------------------------------------------------------

START = {"workflowId": "w", "originalExecutionRunId": "r", "workflowType": {"name": "W"}}


def payload(value: Any) -> dict[str, Any]:
    data = b64encode(json.dumps(value).encode()).decode()
    return {"payloads": [{"metadata": {"encoding": b64encode(b"json/plain").decode()}, "data": data}]}


class Made(Mapped):
    """A history made to measure, and its session as a reader of the log sees it."""

    def __init__(self, path: Path, *events: tuple[str, dict[str, Any]], start: dict[str, Any] | None = None) -> None:
        history = [
            {
                "eventId": str(number),
                "eventTime": attributes.pop("time", f"2025-01-01T10:00:{number:02d}.123456789Z"),
                "eventType": f"EVENT_TYPE_{type_}",
                f"{type_.lower()}EventAttributes": attributes,
            }
            for number, (type_, attributes) in enumerate(
                [("WORKFLOW_EXECUTION_STARTED", {**START, **(start or {})}), *events], start=1
            )
        ]
        path.write_text(json.dumps({"events": history}))
        super().__init__(TemporalImporter(), path)


def activity(name: str, given: Any) -> tuple[str, dict[str, Any]]:
    return "ACTIVITY_TASK_SCHEDULED", {"activityId": "1", "activityType": {"name": name}, "input": payload(given)}


def of(scheduled: int, how: str, **rest: Any) -> tuple[str, dict[str, Any]]:
    return f"ACTIVITY_TASK_{how}", {"scheduledEventId": str(scheduled), **rest}


FAILURE = {"message": "boom", "applicationFailureInfo": {"type": "ValueError"}}


def test_activities_that_call_no_model_are_tools(tmp_path: Path) -> None:
    made = Made(
        tmp_path / "h.json",
        activity("book", {"to": "PDX"}),
        of(2, "STARTED", attempt=1, identity="worker"),
        of(2, "COMPLETED", result=payload("done")),
        activity("book", {"to": "X"}),
        of(5, "STARTED", attempt=3),
        of(5, "FAILED", failure=FAILURE),
        activity("wait", {}),
        of(8, "TIMED_OUT", failure={"message": "late"}),
        activity("stop", {}),
        ("WORKFLOW_EXECUTION_TERMINATED", {"reason": "enough", "identity": "me"}),
    )
    calls = made.bodies("ToolCallRequested")
    assert [body["name"] for body in calls] == ["book", "book", "wait", "stop"]
    assert {body["inference_id"] for body in calls} == {None}
    assert json.loads(calls[0]["arguments"]["inline"]) == {"to": "PDX"}
    assert made.bodies("ToolCallStarted")[0]["executor"] == "worker"
    assert [body["status"] for body in made.bodies("ToolReceiptRecorded")] == ["OK", "ERROR"]
    (failed,) = made.bodies("ToolCallFailed")
    assert (failed["reason"], failed["not_started"], failed["error"]["message"]) == ("TIMEOUT", True, "late")
    (ended,) = made.bodies("SessionCancelled")
    assert (ended["requested_by"], ended["reason"]) == ("me", "enough")
    assert ended["open_ops"] == [calls[3]["tool_call_id"]]
    assert made.report.warnings == ["/events/5: attempts before number 3 are not told"]


def asked(*items: dict[str, Any]) -> dict[str, Any]:
    return {"model_name": "m-1", "system_instructions": "be good", "input": list(items), "tools": []}


def test_a_tool_that_is_an_activity_is_the_call_that_the_model_asked_for(tmp_path: Path) -> None:
    call = {"type": "function_call", "name": "book", "call_id": "c", "arguments": '{"to":1}'}
    output = {"type": "function_call_output", "call_id": "c", "output": "booked"}
    made = Made(
        tmp_path / "h.json",
        activity("invoke_model_activity", asked({"role": "user", "content": "go"})),
        of(2, "STARTED", attempt=1),
        of(2, "COMPLETED", result=payload({"output": [call], "usage": {"input_tokens": 3}})),
        activity("book", {"to": 1}),
        of(5, "STARTED", attempt=1),
        of(5, "COMPLETED", result=payload("booked")),
        activity("invoke_model_activity", asked({"role": "user", "content": "go"}, call, output)),
        of(8, "FAILED", failure=FAILURE),
        ("WORKFLOW_EXECUTION_COMPLETED", {"result": payload("all done")}),
    )
    (requested,) = made.bodies("ToolCallRequested")
    assert (requested["inference_id"], requested["native_call_id"]) == ("session/i1", "c")
    assert len(made.bodies("ToolReceiptRecorded")) == 1, "what the model is given is the receipt that is known"
    assert [body["item_id"] for body in made.bodies("ContextItemRetrieved")] == ["session/r1"]
    assert [body["role"] for body in made.bodies("MessageReceived")] == ["SYSTEM", "USER"]
    (failed,) = made.bodies("InferenceFailed")
    assert (failed["inference_id"], failed["error"]["error_class"]) == ("session/i2", "ValueError")
    assert made.bodies("InferenceCompleted")[0]["usage"]["input"] == 3
    (ended,) = made.bodies("SessionCompleted")
    assert json.loads(ended["result"]["inline"]) == "all done"


def test_a_request_of_another_form_is_kept_as_it_is(tmp_path: Path) -> None:
    made = Made(
        tmp_path / "h.json",
        activity("agent__a__model_request", {"messages": ["hi"]}),
        of(2, "STARTED", attempt=1),
        of(2, "COMPLETED", result=payload({"parts": ["hello"]})),
        activity("invoke_model_activity", {"input": ["no object"]}),
    )
    assert [json.loads(body["params"]["inline"]) for body in made.bodies("InferenceRequested")] == [
        [{"messages": ["hi"]}],
        [{"input": ["no object"]}],
    ]
    (answer,) = made.bodies("InferenceCompleted")
    assert json.loads(answer["raw"]["inline"]) == {"parts": ["hello"]}
    assert (answer["output"], set(answer["usage"].values())) == ([], {None})


def test_a_result_of_before_its_call_took_an_unknown_time(tmp_path: Path) -> None:
    # case C50
    made = Made(
        tmp_path / "h.json",
        activity("agent__a__model_request", {"messages": ["hi"]}),
        of(2, "STARTED", attempt=1),
        of(2, "COMPLETED", result=payload({"parts": ["hello"]}), time="2025-01-01T09:50:00Z"),
    )
    assert [body["latency_ms"] for body in made.bodies("InferenceCompleted")] == [None]
    recorded = [event.meta["recorded_at"] for event in made.events]
    assert recorded == sorted(recorded)


def test_a_message_that_somebody_sent_stands_once(tmp_path: Path) -> None:
    say = {"signalName": "say", "input": payload({"text": "go"})}
    made = Made(
        tmp_path / "h.json",
        ("WORKFLOW_EXECUTION_SIGNALED", say),
        activity("invoke_model_activity", asked({"role": "user", "content": "go"}, {"role": "user", "content": "go"})),
    )
    user = [body for body in made.bodies("MessageReceived") if body["role"] == "USER"]
    assert [body["channel"] for body in user] == ["signal say", None]


def test_several_payloads_and_such_that_are_no_json(tmp_path: Path) -> None:
    sealed = {
        "metadata": {"encoding": b64encode(b"binary/encrypted").decode()},
        "data": b64encode(b"\xff\x00").decode(),
    }
    both = {"payloads": [*payload(1)["payloads"], sealed]}
    made = Made(
        tmp_path / "h.json",
        ("ACTIVITY_TASK_SCHEDULED", {"activityType": {"name": "book"}, "input": both}),
        of(2, "COMPLETED", result={"payloads": [sealed]}),
        ("WORKFLOW_EXECUTION_COMPLETED", {"result": both}),
        start={"input": both},
    )
    plain = [1, {"encoding": "binary/encrypted", "data": "/wA="}]
    assert json.loads(made.bodies("ToolCallRequested")[0]["arguments"]["inline"]) == plain
    assert made.bodies("ToolReceiptRecorded")[0]["result"]["inline"] == b"\xff\x00"
    assert json.loads(made.bodies("SessionCompleted")[0]["result"]["inline"]) == plain
    assert json.loads(made.bodies("SessionCreated")[0]["goal"]["inline"]) == plain


def test_an_update_that_was_admitted_first_and_one_that_failed(tmp_path: Path) -> None:
    request = {"meta": {"updateId": "u"}, "input": {"name": "say", "args": payload("hello")}}
    made = Made(
        tmp_path / "h.json",
        ("WORKFLOW_EXECUTION_UPDATE_ADMITTED", {"request": request}),
        ("WORKFLOW_EXECUTION_UPDATE_ACCEPTED", {"protocolInstanceId": "u"}),
        ("WORKFLOW_EXECUTION_UPDATE_ACCEPTED", {"protocolInstanceId": "v"}),
        ("WORKFLOW_EXECUTION_UPDATE_COMPLETED", {"meta": {"updateId": "u"}, "outcome": {"failure": FAILURE}}),
    )
    first, second = made.bodies("MessageReceived")
    assert (first["channel"], first["parts"][0]["text"], second["parts"]) == ("update say", "hello", [])
    assert made.bodies("ErrorRecorded")[0]["error"]["message"] == "boom"
    assert [body["reason"] for body in made.bodies("TurnAborted")] == ["INTERRUPTED"]
    assert len(made.bodies("TurnStarted")) == 1, "one turn at a time"


def test_a_child_that_never_started_and_a_run_that_goes_on_with_another(tmp_path: Path) -> None:
    begun = {"workflowId": "child", "workflowType": {"name": "C"}}
    made = Made(
        tmp_path / "h.json",
        ("START_CHILD_WORKFLOW_EXECUTION_INITIATED", begun),
        ("START_CHILD_WORKFLOW_EXECUTION_FAILED", {"initiatedEventId": "2", "cause": "EXISTS"}),
        of(77, "COMPLETED"),
        start={"continuedExecutionRunId": "r0"},
    )
    (failed,) = made.bodies("ToolCallFailed")
    assert (failed["reason"], failed["not_started"], failed["error"]["message"]) == ("INFRA", True, "EXISTS")
    (created,) = made.bodies("SessionCreated")
    assert (created["relation"], created["parent_session"]) == ("CONTINUATION", "temporal/1:w:r0")
    assert made.report.as_data()["notes"] == {"ACTIVITY_TASK_COMPLETED": 1}, "of no activity that is in the history"


def test_timers_markers_and_children(tmp_path: Path) -> None:
    child = {"workflowId": "child", "runId": "cr"}
    begun = {"workflowId": "child", "workflowType": {"name": "C"}, "input": payload([1])}
    made = Made(
        tmp_path / "h.json",
        ("TIMER_STARTED", {"timerId": "5"}),
        ("TIMER_FIRED", {"timerId": "5", "startedEventId": "2"}),
        ("MARKER_RECORDED", {"markerName": "core_patch", "details": {"d": payload({"id": "p"})}}),
        ("START_CHILD_WORKFLOW_EXECUTION_INITIATED", begun),
        ("CHILD_WORKFLOW_EXECUTION_STARTED", {"initiatedEventId": "5", "workflowExecution": child}),
        ("CHILD_WORKFLOW_EXECUTION_COMPLETED", {"initiatedEventId": "5", "result": payload("ok")}),
        ("WORKFLOW_EXECUTION_CONTINUED_AS_NEW", {"newExecutionRunId": "r2"}),
        start={"parentWorkflowExecution": {"workflowId": "p", "runId": "pr"}},
    )
    read = [(body["kind"], body["key"]) for body in made.bodies("NondeterminismRecorded")]
    assert read == [("CLOCK", "5"), ("FLAG", "core_patch")]
    (started,), (ended,) = made.bodies("ToolCallStarted"), made.bodies("SubSessionEnded")
    assert started["child_session"] == ended["child_session"] == "temporal/1:child:cr"
    assert ended["outcome"] == "SUCCESS"
    (created,) = made.bodies("SessionCreated")
    assert (created["relation"], created["parent_session"]) == ("CHILD", "temporal/1:p:pr")
    assert made.bodies("SessionCompleted")[0]["outcome"] == "PARTIAL"
    assert made.status == "COMPLETED"


@pytest.mark.parametrize("type_", ["WORKFLOW_EXECUTION_FAILED", "WORKFLOW_EXECUTION_TIMED_OUT"])
def test_runs_that_failed(type_: str, tmp_path: Path) -> None:
    made = Made(tmp_path / "h.json", (type_, {"failure": FAILURE} if "FAILED" in type_ else {}))
    assert made.bodies("SessionFailed")[0]["error"]["error_class"] == (
        "ValueError" if "FAILED" in type_ else "TimedOut"
    )


def test_a_type_that_is_not_known_is_kept_and_said(tmp_path: Path) -> None:
    made = Made(tmp_path / "h.json", ("NEXUS_OPERATION_SCHEDULED", {"endpoint": "e"}))
    assert made.report.as_data()["unknown_types"] == {"NEXUS_OPERATION_SCHEDULED": 1}
    assert made.bodies("NoteRecorded")[0]["kind"] == "temporal.NEXUS_OPERATION_SCHEDULED"


def change(path: Path, **fields: Any) -> list[dict[str, Any]]:
    Made(path, activity("book", {}), ("TIMER_STARTED", {"timerId": "1"}))
    events: list[dict[str, Any]] = json.loads(path.read_bytes())["events"]
    events[1].update(fields)
    return events


def test_names_of_types_in_the_other_spelling_and_a_repeated_event(tmp_path: Path) -> None:
    path = tmp_path / "h.json"
    events = change(path, eventType="ActivityTaskScheduled")
    path.write_text(json.dumps({"history": {"events": [*events[:2], events[1], events[2]]}}))
    made = Mapped(TemporalImporter(), path)
    assert len(made.bodies("ToolCallRequested")) == 1
    assert made.report.as_data()["records_repeated"] == 1


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"eventId": "4"}, "/events/1: event 4 follows event 1"),
        ({"eventId": "1"}, "/events/1: event 1 stands twice, and differs"),
        ({"eventId": "x"}, "/events/1: no event with a number"),
        ({"eventId": "1" * 30}, "/events/1: /eventId is too large"),
        ({"attributes": {"metadata": {"encoding": "!"}, "data": ""}}, "/events/1/attributes: no base64"),
    ],
)
def test_a_history_that_is_damaged(fields: dict[str, Any], found: str, tmp_path: Path) -> None:
    path = tmp_path / "h.json"
    path.write_text(json.dumps({"events": change(path, **fields)}))
    with pytest.raises(BadInputFile, match=found):
        list(TemporalImporter().read(path, TemporalImporter().report()))


def test_a_history_without_its_beginning_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h.json"
    path.write_text(json.dumps({"events": change(path)[1:]}))
    with pytest.raises(BadInputFile, match="does not begin with WORKFLOW_EXECUTION_STARTED"):
        list(TemporalImporter().read(path, TemporalImporter().report()))

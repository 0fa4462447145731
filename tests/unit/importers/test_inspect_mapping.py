"""How native records become events, shown on logs made to measure. Every session is also judged by the rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dalsegno.importers.base import ImportReport
from dalsegno.importers.chain import chained
from dalsegno.log.codec import place
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.ids import partition_of
from dalsegno.model.lifecycle import MemoryOps, SessionState, judge
from dalsegno.model.records import Event
from inspect_logs import (
    CREATED,
    HEADER,
    approval_event,
    clock,
    model_event,
    sample,
    sessions_and_report,
    sessions_of,
    tool_event,
    write_eval,
    write_json,
)

SCHEMAS = SchemaSet.load()


def imported(path: Path) -> tuple[list[list[Event]], ImportReport]:
    read, report = sessions_and_report(path)
    sessions = []
    for session in read:
        state, ops, events = SessionState(), MemoryOps(), []
        for record in chained(session, SCHEMAS):
            event = place(SCHEMAS, record.key.encode(), record.value, partition_of(session.session_id, 4), 4)
            assert isinstance(event, Event)
            assert judge(state, ops, event).violations == ()
            events.append(event)
        assert state.status in ("COMPLETED", "FAILED")
        sessions.append(events)
    return sessions, report


def one(tmp_path: Path, events: list[dict[str, Any]], **rest: Any) -> list[Event]:
    sessions, _ = imported(write_json(tmp_path / "log.json", sample(events, **rest)))
    return sessions[0]


def types(events: list[Event]) -> list[str]:
    return [event.type for event in events]


def of(events: list[Event], type_: str) -> list[dict[str, Any]]:
    return [dict(event.body) for event in events if event.type == type_]


def position(events: list[Event], type_: str, call: str) -> int:
    return next(i for i, e in enumerate(events) if e.type == type_ and e.body["tool_call_id"].endswith(call))


def test_a_call_id_used_again_is_another_call(tmp_path: Path) -> None:
    # case C43
    events: list[dict[str, Any]] = []
    for turn in range(3):
        call = ("call_0", "look", {"turn": turn})
        events += [model_event(turn * 10, calls=[call]), tool_event(turn * 10 + 2, call)]
    twice = [("call_0", "look", {"turn": 3}), ("call_0", "look", {"turn": 4})]
    events += [model_event(30, calls=twice), tool_event(32, twice[0]), tool_event(32, twice[1])]
    resent = dict(events[3])
    events.append(resent)
    sessions, report = imported(write_json(tmp_path / "log.json", sample(events)))
    (session,) = sessions
    calls = [call["tool_call_id"] for call in of(session, "ToolCallRequested")]
    assert calls == ["session/i1/c0", "session/i2/c0", "session/i3/c0", "session/i4/c0", "session/i4/c1"]
    assert [receipt["tool_call_id"] for receipt in of(session, "ToolReceiptRecorded")] == calls
    assert [json.loads(call["arguments"]["inline"])["turn"] for call in of(session, "ToolCallRequested")] == [*range(5)]
    assert report.repeats == {"tool": 1}


def test_a_call_that_was_never_run_leaves_its_id_to_the_next_turn(tmp_path: Path) -> None:
    # case C43
    dropped, run = ("call_0", "look", {"turn": 0}), ("call_0", "look", {"turn": 1})
    events = one(tmp_path, [model_event(0, calls=[dropped]), model_event(10, calls=[run]), tool_event(12, run)])
    assert [call["tool_call_id"] for call in of(events, "ToolCallRequested")] == ["session/i2/c0"]


def test_order_is_that_of_the_file_whatever_the_clocks_say(tmp_path: Path) -> None:
    # case C50
    late = ("c1", "look", {})
    same = [{"event": "info", "data": n, "timestamp": clock(100)} for n in range(50)]
    events = one(
        tmp_path,
        [
            model_event(3000, calls=[late], took=5),
            tool_event(600, late, took=-599),  # its result is stamped ten minutes before its call
            *same,
            {"event": "info", "data": "after", "timestamp": clock(50)},
            {"event": "info", "data": "no time"},
        ],
    )
    asked, receipt = position(events, "ToolCallRequested", "c0"), position(events, "ToolReceiptRecorded", "c0")
    assert types(events).index("InferenceCompleted") < asked < receipt
    notes = [json.loads(note["data"]["inline"])["data"] for note in of(events, "NoteRecorded")]
    assert notes == [*range(50), "after", "no time"]
    recorded = [event.meta["recorded_at"] for event in events]
    assert recorded == sorted(recorded)
    assert events[-2].meta["occurred_at"] is None


def test_parallel_calls_end_in_the_order_of_their_ends(tmp_path: Path) -> None:
    slow, fast = ("c1", "slow", {}), ("c2", "fast", {})
    answer = {"role": "tool", "tool_call_id": "c1", "content": "x"}
    events = one(
        tmp_path,
        [
            model_event(0, calls=[slow, fast]),
            tool_event(2, slow, took=20),
            tool_event(2.1, fast, took=1),
            {"event": "info", "data": 1, "timestamp": clock(5)},
            model_event(30, input=[answer]),
        ],
    )
    assert position(events, "ToolCallStarted", "c1") < position(events, "ToolReceiptRecorded", "c1")
    assert position(events, "ToolReceiptRecorded", "c1") < types(events).index("NoteRecorded")
    assert types(events).index("NoteRecorded") < position(events, "ToolReceiptRecorded", "c0")


def test_a_model_is_asked_only_after_the_results_that_it_is_given(tmp_path: Path) -> None:
    call = ("c1", "look", {})
    answer = {"role": "tool", "tool_call_id": "c1", "content": "x"}
    events = one(
        tmp_path, [model_event(0, calls=[call]), tool_event(2, call, took=500), model_event(3, input=[answer])]
    )
    second = [i for i, event in enumerate(events) if event.type == "InferenceRequested"][1]
    assert position(events, "ToolReceiptRecorded", "c0") < second


def test_a_call_still_running_at_the_end_stays_open(tmp_path: Path) -> None:
    call = ("c1", "look", {})
    begun = tool_event(2, call, pending=True)
    events = one(tmp_path, [model_event(0, calls=[call]), begun], error={"message": "killed", "traceback": "..."})
    assert "ToolReceiptRecorded" not in types(events)
    (end,) = of(events, "SessionFailed")
    assert end["open_ops"] == ["session/i1/c0"]
    assert end["error"]["message"] == "killed"


def test_what_stands_open_at_the_end_is_listed(tmp_path: Path) -> None:
    work = {"event": "span_begin", "id": "s1", "span_id": "s1", "type": "solver", "name": "w", "timestamp": clock(0)}
    judge_ = {"event": "step", "action": "begin", "type": "scorer", "name": "judge", "timestamp": clock(9)}
    asked = model_event(10, pending=True)
    events = one(tmp_path, [work, judge_, asked])
    assert of(events, "SessionCompleted")[0]["open_ops"] == ["judge/v1/i1", "judge/v1"]


def test_what_approvers_said(tmp_path: Path) -> None:
    a, b, c, d = (("c1", "rm", {"n": 1}), ("c2", "rm", {"n": 2}), ("c3", "rm", {"n": 3}), ("c4", "rm", {"n": 4}))
    modified = {"id": "c3", "function": "rm", "arguments": {"n": 30}}
    events = one(
        tmp_path,
        [
            model_event(0, calls=[a, b, c, d]),
            approval_event(2, a, "escalate", "policy"),
            approval_event(3, a, "approve", "human", explanation="fine"),
            tool_event(4, a),
            tool_event(6, b, took=3, error={"type": "approval", "message": "no"}),  # its approval stands behind it
            approval_event(7, b, "reject", "human", explanation="no"),
            approval_event(9, c, "modify", "auto", modified=modified),
            tool_event(10, c),
            approval_event(12, d, "terminate", "auto"),
        ],
    )
    assert [(o["decision"], o["subject_id"][-2:]) for o in of(events, "PolicyEvaluated")] == [
        ("REQUIRE_APPROVAL", "c0"), ("MODIFY", "c2"), ("DENY", "c3"),
    ]  # fmt: skip
    assert [(o["tool_call_id"][-2:], o["basis"]) for o in of(events, "ToolCallAuthorized")] == [
        ("c0", "APPROVAL"), ("c2", "POLICY_ALLOW"),
    ]  # fmt: skip
    assert [(o["tool_call_id"][-2:], o["basis"]) for o in of(events, "ToolCallRejected")] == [
        ("c1", "APPROVAL_DENIED"), ("c3", "POLICY_DENY"),
    ]  # fmt: skip
    asked = [event for event in events if event.type == "ApprovalRequested"]
    assert [event.meta["origin"]["synthesized"] for event in asked] == [True, True]
    assert asked[0].body["decision_id"] == "session/i1/c0/d1"
    assert of(events, "ApprovalGranted")[0]["explanation"] == "fine"
    changed = of(events, "ToolCallAuthorized")[1]["effective_arguments_digest"]
    assert changed == of(events, "PolicyEvaluated")[1]["modified"]["digest"]
    assert len(of(events, "ToolCallStarted")) == len(of(events, "ToolReceiptRecorded")) == 2


def test_errors_of_tools_and_models(tmp_path: Path) -> None:
    a, b, c = ("c1", "x", {}), ("c2", "x", {}), ("c3", "x", {})
    events = one(
        tmp_path,
        [
            model_event(0, error="rate limited"),
            model_event(2, calls=[a, b, c]),
            tool_event(4, a, error={"type": "permission", "message": "denied"}),
            tool_event(6, b, error={"type": "timeout", "message": "30 s"}, failed=True),
            tool_event(8, c, error={"type": "parsing", "message": "no such argument"}),
            {"event": "error", "timestamp": clock(9), "error": {"message": "boom", "traceback": "lines"}},
        ],
    )
    assert of(events, "InferenceFailed")[0]["error"]["message"] == "rate limited"
    (receipt,) = of(events, "ToolReceiptRecorded")
    assert receipt["status"] == "ERROR"
    assert json.loads(receipt["result"]["inline"])["error"]["message"] == "denied"
    assert of(events, "ToolCallFailed")[0]["reason"] == "TIMEOUT"
    assert of(events, "ToolCallRejected")[0]["basis"] == "INVALID_ARGUMENTS"
    assert of(events, "ErrorRecorded")[0]["error"]["message"] == "boom"


def test_messages_and_calls_from_the_pools_are_the_same_as_written_out(tmp_path: Path) -> None:
    first = {"id": "m1", "role": "system", "content": "be brief"}
    second = {"id": "m2", "role": "user", "content": "attachment://" + "ab" * 16}
    texts = {"attachments": {"ab" * 16: "a long text"}}
    written = [model_event(0, input=[first, second]), model_event(5, input=[first, second])]
    pooled = [model_event(0, input_refs=[[0, 2]]), model_event(5, input_refs=[[0, 1], [1, 2]])]
    pools = {"events_data": {"messages": [first, second], "calls": []}}
    as_written, as_pooled = one(tmp_path, written, **texts), one(tmp_path, pooled, **texts, **pools)
    said = [[part["text"] for part in message["parts"]] for message in of(as_pooled, "MessageReceived")]
    assert said == [["be brief"], ["a long text"]]
    digests = [inference["request_digest"] for inference in of(as_pooled, "InferenceRequested")]
    assert digests == [inference["request_digest"] for inference in of(as_written, "InferenceRequested")]
    assert types(as_written) == types(as_pooled)


def test_nested_stages_compaction_limits_and_unknown_types(tmp_path: Path) -> None:
    def span(at: float, id_: str, type_: str, name: str, parent: str | None = None) -> dict[str, Any]:
        place = {"id": id_, "span_id": id_, "parent_id": parent}
        return {"event": "span_begin", **place, "type": type_, "name": name, "timestamp": clock(at)}

    def end(at: float, id_: str) -> dict[str, Any]:
        return {"event": "span_end", "id": id_, "span_id": id_, "timestamp": clock(at)}

    path = write_json(
        tmp_path / "log.json",
        sample(
            [
                span(0, "s1", "solver", "work"),
                span(1, "s2", "agent", "helper", "s1"),
                model_event(2, span_id="s2", took=100),
                end(3, "s2"),
                span(4, "s3", "agent", "helper", "s1"),
                {
                    "event": "compaction",
                    "type": "trim",
                    "tokens_before": 9,
                    "tokens_after": 3,
                    "span_id": "s3",
                    "timestamp": clock(5),
                },
                end(6, "s3"),
                end(7, "s1"),
                {"event": "never_seen", "x": 1, "timestamp": clock(8)},
                {"event": "sample_limit", "type": "time", "limit": 60, "message": "too long", "timestamp": clock(9)},
                {"event": "checkpoint", "checkpoint_id": "k1", "trigger": "turn", "timestamp": clock(10)},
            ]
        ),
    )
    sessions, report = imported(path)
    (events,) = sessions
    assert [o["stage_id"] for o in of(events, "StageScheduled")] == ["work.1", "work.1/helper.1", "work.1/helper.2"]
    first_end = next(i for i, event in enumerate(events) if event.type == "StageCompleted")
    assert types(events).index("InferenceCompleted") < first_end  # a stage does not end before what runs in it
    (compression,) = of(events, "CompressionCompleted")
    assert (compression["effect"], compression["method"], compression["tokens_after"]) == ("MARKER_ONLY", "TRIM", 3)
    assert [o["limit"] for o in of(events, "LimitReached")] == ["WALL_TIME"]
    assert of(events, "SessionCompleted")[0]["outcome"] == "PARTIAL"
    assert of(events, "CheckpointMarked")[0]["checkpoint_id"] == "k1"
    assert report.unknown == {"never_seen": 1}
    assert report.notes == {"never_seen": 1}
    assert report.not_carried["checkpoint.trigger"] == 1


def test_an_edited_score_is_amended_behind_the_end(tmp_path: Path) -> None:
    edit = {"value": "I", "provenance": {"author": "ann", "reason": "checked again"}}
    score = {"event": "score", "score": {"value": "C"}, "timestamp": clock(2)}
    scored = [model_event(0), score]
    edited = {"event": "score_edit", "score_name": "judge", "edit": edit, "timestamp": clock(90)}
    header = {**HEADER, "eval": {**HEADER["eval"], "scorers": [{"name": "judge"}]}}
    before, _ = imported(write_json(tmp_path / "before.json", sample(scored), header=header))
    after, _ = imported(write_json(tmp_path / "after.json", sample([*scored, edited]), header=header))
    assert [event.hash for event in after[0][:-1]] == [event.hash for event in before[0]]  # a file that grew
    assert after[0][-1].type == "ValidationAmended"
    assert (after[0][-1].body["verdict"], after[0][-1].body["reason"]) == ("REJECT", "checked again")


def test_an_evaluation_that_has_not_ended_gives_the_samples_it_has(tmp_path: Path) -> None:
    first, second = sample([model_event(0)]), {**sample([model_event(5)]), "id": 2}
    growing, _ = imported(write_eval(tmp_path / "growing.eval", first))
    ended, report = imported(write_eval(tmp_path / "ended.eval", first, second, header=HEADER))
    assert [event.hash for event in ended[0]] == [event.hash for event in growing[0]]
    assert len(ended) == 2
    assert report.warnings == []


def test_native_ids_never_become_one_and_never_break_ours(tmp_path: Path) -> None:
    ids = ["a~b", "a%7Eb", "x\n", "é" * 300, "a:b"]
    result = sessions_of(write_json(tmp_path / "log.json", *(sample([], id=id_) for id_ in ids)))
    got = [session.session_id for session in result]
    assert len(set(got)) == len(ids)
    assert got[0] == "inspect/1:E1:a%7Eb:1"
    assert all(len(one.encode()) <= 200 and "~" not in one for one in got)


def test_texts_that_utf8_cannot_hold_and_large_ones(tmp_path: Path) -> None:
    # case C46: U+2028 inside a string is text like any other
    broken = {"id": "m1", "role": "user", "content": "half \ud800 and \u2028 line"}
    large = {"id": "m2", "role": "user", "content": "x" * 300_000}
    many = {"id": "m3", "role": "user", "content": [{"type": "text", "text": "y" * 30_000}] * 60}
    (session,) = sessions_of(write_json(tmp_path / "log.json", sample([model_event(0, input=[broken, large, many])])))
    records = chained(session, SCHEMAS)
    assert max(len(record.value) for record in records) < 700_000
    events = [place(SCHEMAS, r.key.encode(), r.value, partition_of(session.session_id, 4), 4) for r in records]
    texts = [event.body for event in events if isinstance(event, Event) and event.type == "MessageReceived"]
    assert texts[0]["parts"][0]["text"] == "half \ufffd and \u2028 line"
    blob = texts[1]["parts"][0]["blob"]
    assert session.blobs[blob["uri"]] == b"x" * 300_000
    assert len(texts[2]["parts"]) == 60


def test_a_log_without_events_or_times_still_gives_its_messages_and_scores(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    sessions, report = imported(
        write_json(tmp_path / "l.json", sample([], messages=messages, scores={"s": {"value": 0.5}}))
    )
    (events,) = sessions
    assert types(events).count("MessageReceived") == 1
    assert types(events).count("ContextItemRetrieved") == 1
    (decided,) = of(events, "ValidationDecided")
    assert (decided["verdict"], decided["score"]) == ("INCONCLUSIVE", "0.5")
    assert events[0].meta["recorded_at"] == 1735689600_000000
    assert CREATED.startswith("2025-01-01T00:00:00")
    assert len(report.warnings) == 1

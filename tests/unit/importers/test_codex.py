"""Codex: what the shared rollouts hold, against the files read by json alone; made ones for what they lack."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dalsegno.errors import BadInputFile
from examples import examples
from jsonl_lab import Imported, NativeLine, grows, imported
from recordings import Recording, events_of, of_type, recording_of, report_of


def coherent() -> Recording:
    return recording_of("codex-rollout", "agtrace_codex_session.jsonl")


def coverage() -> Recording:
    return recording_of("codex-rollout", "agent-sessions_stage0_codex_0.146.jsonl")


def native(recording: Recording) -> list[dict[str, Any]]:
    return [json.loads(line) for line in recording.path.read_bytes().split(b"\n") if line]


def items(recording: Recording, *types: str) -> list[dict[str, Any]]:
    payloads = [line["payload"] for line in native(recording) if line["type"] == "response_item"]
    return [payload for payload in payloads if payload["type"] in types]


def told(recording: Recording, type_: str) -> list[dict[str, Any]]:
    payloads = [line["payload"] for line in native(recording) if line["type"] == "event_msg"]
    return [payload for payload in payloads if payload["type"] == type_]


# --- the coherent rollout --------------------------------------------------------------------------------------------


def test_the_tokens_of_the_answers_add_up_to_the_total_that_the_file_ends_with() -> None:
    infos = [count["info"] for count in told(coherent(), "token_count") if count["info"]]
    totals = {json.dumps(info["total_token_usage"]) for info in infos}
    usage = [event.body["usage"] for event in of_type(coherent(), "InferenceCompleted")]
    assert len(usage) == len(totals) == len(of_type(coherent(), "InferenceRequested")) == 7
    total = infos[-1]["total_token_usage"]
    assert sum(one["input"] for one in usage) == total["input_tokens"] == 26_740
    assert sum(one["cache_read"] for one in usage) == total["cached_input_tokens"] == 22_912
    assert sum(one["output"] for one in usage) == total["output_tokens"] == 408
    assert sum(one["reasoning"] for one in usage) == total["reasoning_output_tokens"] == 128


def test_the_calls_have_the_arguments_and_results_of_the_file() -> None:
    calls = items(coherent(), "function_call", "custom_tool_call")
    results = {item["call_id"]: item for item in items(coherent(), "function_call_output", "custom_tool_call_output")}
    requested = of_type(coherent(), "ToolCallRequested")
    assert [event.body["native_call_id"] for event in requested] == [call["call_id"] for call in calls]
    assert [event.body["arguments"]["inline"].decode() for event in requested] == [
        call.get("arguments") or call["input"] for call in calls
    ]
    receipts = of_type(coherent(), "ToolReceiptRecorded")
    assert [event.body["result"]["inline"].decode() for event in receipts] == [
        results[call["call_id"]]["output"] for call in calls
    ]
    assert [(event.body["status"], event.body["exit_code"]) for event in receipts] == [
        ("OK", 0), ("OK", 0), ("ERROR", 1), ("ERROR", 1), ("OK", 0),
    ]  # fmt: skip
    assert {event.body["basis"] for event in of_type(coherent(), "ToolCallAuthorized")} == {"UNRECORDED_IMPORT"}


def test_what_was_said_stands_once_and_whole() -> None:
    messages = items(coherent(), "message")
    given_ = [m["content"][0]["text"] for m in messages if m["role"] == "user"]
    assert [event.body["parts"][0]["text"] for event in of_type(coherent(), "MessageReceived")] == given_
    assert len(given_) == 3
    answers = [m["content"][0]["text"] for m in messages if m["role"] == "assistant"]
    parts = [part for event in of_type(coherent(), "InferenceCompleted") for part in event.body["output"]]
    assert [part["text"] for part in parts if part["kind"] == "TEXT"] == answers
    thoughts = [event["text"] for event in told(coherent(), "agent_reasoning")]
    assert [part["text"] for part in parts if part["kind"] == "REASONING"] == thoughts
    raw = [
        item for event in of_type(coherent(), "InferenceCompleted") for item in json.loads(event.body["raw"]["inline"])
    ]
    assert [item["encrypted_content"] for item in raw if item["type"] == "reasoning"] == [
        item["encrypted_content"] for item in items(coherent(), "reasoning")
    ]


def test_the_report_of_the_coherent_rollout() -> None:
    report = report_of(coherent())
    counted = Counter(
        f"{line['type']}.{line['payload']['type']}" if "type" in line["payload"] else line["type"]
        for line in native(coherent())
    )
    assert report["records"] == dict(sorted(counted.items()))
    assert (report["records_read"], report["records_mapped"], report["events_made"]) == (55, 30, 55)
    # Each message and each thought is told twice (2 + 2 + 6), and 6 of 7 turn contexts say what the first one said.
    assert report["records_repeated"] == 16
    # Each of 7 answers has a token_count of its own; the other 7 repeat its tokens with newer limits.
    assert report["notes"] == {"event_msg.token_count": 7, "response_item.ghost_snapshot": 2}
    assert (report["warnings"], report["unknown_types"], report["records_waiting"]) == ([], {}, 0)
    assert of_type(coherent(), "TurnStarted")[1].meta["origin"]["synthesized"] is True
    assert "how a session ended" in report["lacks"]


# --- the file that shows every type ----------------------------------------------------------------------------------


def test_each_session_meta_begins_a_session_and_only_the_first_has_an_id() -> None:
    metas = [number for number, line in enumerate(native(coverage()), 1) if line["type"] == "session_meta"]
    assert [events[0].meta["origin"]["native_ref"] for events in events_of(coverage())] == [f"#{n}" for n in metas]
    assert len(metas) == 7
    ids = [events[0].session_id for events in events_of(coverage())]
    assert ids[0] == "codex/1:019fc8be-3658-7ca3-9e29-000000000000"
    assert all(id_.startswith("codex/1:record:") for id_ in ids[1:])
    warnings = report_of(coverage())["warnings"]
    assert sum("begins a session without an id" in warning for warning in warnings) == 6


def test_a_time_that_is_none_is_no_time() -> None:
    trimmed = [n for n, line in enumerate(native(coverage()), 1) if not line["timestamp"].startswith("2026")]
    assert len(trimmed) == 92
    assert any("no time that can be read" in w and "and 89 more" in w for w in report_of(coverage())["warnings"])
    for events in events_of(coverage()):
        for event in events:
            if int(event.meta["origin"]["native_ref"][1:]) in trimmed:
                assert event.meta["occurred_at"] is None


def test_compactions_carry_the_history_that_replaces_the_old_one() -> None:
    compacted = [line["payload"] for line in native(coverage()) if line["type"] == "compacted"]
    made = of_type(coverage(), "CompressionCompleted")
    assert len(made) == len(compacted) == 6
    assert {(event.body["effect"], event.body["method"]) for event in made} == {("REAPPLIABLE", "REPLACE_HISTORY")}
    assert [json.loads(event.body["replacement"]["inline"]) for event in made] == [
        payload["replacement_history"] for payload in compacted
    ]
    assert [event.body["window_number"] for event in made] == [p.get("window_number") for p in compacted]


def test_the_rest_of_the_file_that_shows_every_type() -> None:
    made = Counter(event.type for events in events_of(coverage()) for event in events)
    assert [event.body["reason"] for event in of_type(coverage(), "TurnAborted")] == ["INTERRUPTED"]
    assert made["ErrorRecorded"] == len(told(coverage(), "error")) + 1  # and one in a task_complete
    calls = items(coverage(), *("function_call", "custom_tool_call", "tool_search_call"))
    provider = items(coverage(), "web_search_call", "image_generation_call")
    assert made["ToolCallRequested"] == len(calls) + len(provider) == 8
    outputs = items(coverage(), "function_call_output", "custom_tool_call_output", "tool_search_output")
    # One result (line 28) belongs to no call of its session, and one call (line 43) has no result.
    assert made["ToolReceiptRecorded"] == len(outputs) - 1 + len(provider) == 7
    assert report_of(coverage())["lacks"]["what became of a tool call"] == 1
    started = of_type(coverage(), "ToolCallStarted")
    assert sum(event.body["executor"] == "provider" for event in started) == 2
    roles = Counter(event.body["role"] for event in of_type(coverage(), "MessageReceived"))
    assert roles == {"USER": 1, "DEVELOPER": 1, "EXTERNAL_AGENT": 2}
    relations = [events[0].body["relation"] for events in events_of(coverage())]
    sources = [line["payload"] for line in native(coverage()) if line["type"] == "session_meta"]
    assert relations == ["CHILD" if "parent_thread_id" in meta else "NONE" for meta in sources]
    report = report_of(coverage())
    assert (report["records_mapped"], report["records_kept_as_notes"]) == (48, 64)
    # Its last turn is still open: what was told there of items may be told again.
    assert (report["records_repeated"], report["waiting"]) == (3, {"event_msg.item_completed": 3})
    assert report["unknown_types"] == {}


# --- made rollouts ---------------------------------------------------------------------------------------------------

START = 1_760_000_000


def at(line: NativeLine, second: int) -> NativeLine:
    return {"timestamp": datetime.fromtimestamp(START + second, UTC).isoformat().replace("+00:00", "Z"), **line}


def timed(*lines: NativeLine) -> list[NativeLine]:
    return [at(line, second) for second, line in enumerate(lines)]


def meta(id_: str = "019b", **rest: Any) -> NativeLine:
    return {"type": "session_meta", "payload": {"id": id_, "cwd": "/x", "model_provider": "openai", **rest}}


def context(**rest: Any) -> NativeLine:
    return {"type": "turn_context", "payload": {"model": "m", "approval_policy": "never", **rest}}


def event(type_: str, **rest: Any) -> NativeLine:
    return {"type": "event_msg", "payload": {"type": type_, **rest}}


def item(type_: str, **rest: Any) -> NativeLine:
    return {"type": "response_item", "payload": {"type": type_, **rest}}


def said(role: str, text: str) -> NativeLine:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": text}])


def thought(*texts: str) -> NativeLine:
    return item("reasoning", summary=[{"type": "summary_text", "text": text} for text in texts])


def call(id_: str, n: int = 0) -> NativeLine:
    return item("function_call", name="shell", arguments=json.dumps({"n": n}), call_id=id_)


def output(id_: str, text: Any = "done") -> NativeLine:
    return item("function_call_output", call_id=id_, output=text)


def tokens(total: int, last: int = 1) -> NativeLine:
    usage = {"total_token_usage": {"input_tokens": total}, "last_token_usage": {"input_tokens": last}}
    return event("token_count", info=usage)


def used(total: int, last: int = 1, **rest: Any) -> NativeLine:
    usage = {"usage": {"input_tokens": last}, "thread_token_usage": {"input_tokens": total}}
    return {"type": "token_usage_record", "payload": {**usage, **rest}}


def done(*lines: NativeLine, folder: Path) -> Imported:
    return grows("codex", timed(meta(), *lines), folder)


def test_an_event_and_its_item_are_one_whichever_comes_first(tmp_path: Path) -> None:
    result = done(
        event("user_message", message="do it"),
        said("user", "do it"),
        event("agent_reasoning", text="one"),
        thought("one", "two"),
        event("agent_reasoning", text="two"),
        said("assistant", "did it"),
        event("agent_message", message="did it"),
        tokens(5),
        folder=tmp_path,
    )
    assert result.report.repeats == {
        "event_msg.user_message": 1, "event_msg.agent_reasoning": 2, "event_msg.agent_message": 1,
    }  # fmt: skip
    assert result.types().count("MessageReceived") == result.types().count("InferenceCompleted") == 1
    assert (result.report.notes, result.report.waiting) == ({}, {})


def test_the_same_said_twice_is_two_messages(tmp_path: Path) -> None:
    twice = (said("user", "go on"), event("user_message", message="go on"), said("assistant", "ok"), tokens(5))
    result = done(*twice, *twice[:3], tokens(9), folder=tmp_path)
    assert [message["parts"][0]["text"] for message in result.of("MessageReceived")] == ["go on", "go on"]
    assert result.report.repeats == {"event_msg.user_message": 2}
    assert [turn["turn_id"] for turn in result.of("TurnStarted")] == ["session/t1", "session/t2"]


def test_an_event_without_an_item_is_kept_when_the_turn_ends_and_waits_until_then(tmp_path: Path) -> None:
    lines = [event("task_started", turn_id="a"), said("assistant", "x"), event("agent_message", message="aside")]
    waiting = imported("codex", timed(meta(), *lines), tmp_path)
    assert waiting.report.waiting == {"event_msg.agent_message": 1, "response_item.message": 1}
    ended = done(*lines, event("task_complete", turn_id="a"), folder=tmp_path)
    assert (ended.report.notes, ended.report.waiting) == ({"event_msg.agent_message": 1}, {})
    types = ended.types()
    assert types.index("InferenceCompleted") < types.index("TurnCompleted") < types.index("NoteRecorded")


def test_a_call_id_used_again_is_another_call(tmp_path: Path) -> None:
    # case C43
    lines: list[NativeLine] = []
    for turn in range(3):
        lines += [call("call_0", turn), tokens(turn + 1), output("call_0", f"r{turn}")]
    lines += [call("call_0", 3), call("call_0", 4), tokens(9), output("call_0", "r3"), output("call_0", "r4")]
    result = done(*lines, folder=tmp_path)
    requested = [call["tool_call_id"] for call in result.of("ToolCallRequested")]
    assert requested == [f"session/t1/i{i}/c0" for i in (1, 2, 3, 4)] + ["session/t1/i4/c1"]
    receipts = result.of("ToolReceiptRecorded")
    assert [receipt["tool_call_id"] for receipt in receipts] == requested
    assert [receipt["result"]["inline"] for receipt in receipts] == [b"r0", b"r1", b"r2", b"r3", b"r4"]


def test_a_result_belongs_to_the_newest_answer_that_asked_with_its_id(tmp_path: Path) -> None:
    result = done(
        call("c"), event("turn_aborted", reason="interrupted"), call("c"), output("c"), context(), folder=tmp_path
    )
    (receipt,) = result.of("ToolReceiptRecorded")
    assert receipt["tool_call_id"] == "session/t2/i1/c0"
    assert result.report.as_data()["records_waiting"] == 0


def test_a_turn_that_was_aborted_for_a_reason_of_no_name_here_has_none(tmp_path: Path) -> None:
    result = done(call("c"), event("turn_aborted", reason="review_ended"), folder=tmp_path)
    assert [body["reason"] for body in result.of("TurnAborted")] == ["UNKNOWN"]
    assert result.report.not_carried["event_msg.turn_aborted.reason"] == 1


def test_whether_an_answer_came_from_a_cache_is_not_said(tmp_path: Path) -> None:
    result = done(call("c"), output("c"), context(), folder=tmp_path)
    assert [body["cache"] for body in result.of("InferenceCompleted")] == ["UNKNOWN"]


def test_a_call_without_a_result_was_asked_for_and_nothing_more_is_known(tmp_path: Path) -> None:
    result = done(said("user", "x"), call("c"), tokens(1), folder=tmp_path)
    assert result.types()[-1] == "ToolCallRequested"
    assert not {"ToolCallAuthorized", "ToolCallStarted", "SessionCompleted"} & set(result.types())


def test_an_answer_that_may_go_on_waits_for_the_longer_file(tmp_path: Path) -> None:
    result = imported("codex", timed(meta(), said("user", "x"), thought("hm"), call("c")), tmp_path)
    assert result.types()[-2:] == ["TurnStarted", "InferenceRequested"]
    assert result.report.waiting == {"response_item.reasoning": 1, "response_item.function_call": 1}


def test_tokens_told_again_with_other_limits_are_of_no_further_answer(tmp_path: Path) -> None:
    result = done(
        said("assistant", "a"), tokens(5, 5), tokens(5, 5), said("assistant", "b"), tokens(7, 2), folder=tmp_path
    )
    assert [answer["usage"]["input"] for answer in result.of("InferenceCompleted")] == [5, 2]
    assert result.report.notes == {"event_msg.token_count": 1}


def test_tokens_that_come_before_their_answer_are_of_that_answer(tmp_path: Path) -> None:
    ahead = (context(), tokens(5, 5), thought("a"), call("c"), output("c"), context(), tokens(7, 2))
    waits = imported("codex", timed(meta(), *ahead[:2]), tmp_path)
    assert waits.report.waiting == {"event_msg.token_count": 1}
    result = done(*ahead, said("assistant", "b"), said("user", "on"), folder=tmp_path)
    assert [answer["usage"]["input"] for answer in result.of("InferenceCompleted")] == [5, 2]
    assert (result.report.notes, result.report.waiting) == ({}, {})


def test_tokens_that_come_behind_the_results_are_of_the_answer_before_them(tmp_path: Path) -> None:
    lines = (
        call("c"),
        output("c"),
        tokens(5, 5),
        call("d"),
        used(7, 2, response_id="r2"),
        output("d"),
        tokens(7, 2),
        said("assistant", "x"),
    )
    waits = imported("codex", timed(meta(), *lines[:2]), tmp_path)
    assert waits.report.waiting == {"response_item.function_call": 1, "response_item.function_call_output": 1}
    result = done(*lines, tokens(8, 1), folder=tmp_path)
    answers = result.of("InferenceCompleted")
    assert [(answer["usage"]["input"], answer["response_id"]) for answer in answers] == [
        (5, None),
        (2, "r2"),
        (1, None),
    ]
    assert result.report.notes == {"event_msg.token_count": 1}
    assert len(result.of("ToolReceiptRecorded")) == 2


def test_tokens_of_no_answer_are_kept_and_given_to_none(tmp_path: Path) -> None:
    compaction: NativeLine = {"type": "compacted", "payload": {"message": "sum"}}
    lines = (context(), tokens(3, 3), tokens(5, 2), compaction, tokens(8, 3), said("assistant", "a"), tokens(9, 1))
    result = done(*lines, folder=tmp_path)
    assert [answer["usage"]["input"] for answer in result.of("InferenceCompleted")] == [1]
    assert result.report.notes == {"event_msg.token_count": 3}


def test_settings_are_pinned_when_they_change_and_only_what_changed(tmp_path: Path) -> None:
    result = done(
        context(turn_id="1"), context(turn_id="2"), context(turn_id="3", model="n"),
        context(turn_id="4", model="n", approval_policy="on-request"), folder=tmp_path,
    )  # fmt: skip
    later = [pin["kind"] for pin in result.of("ConfigPinned") if pin["effective"] == "NEXT_TURN"]
    assert later == ["POLICY", "MODEL_PARAMS", "MODEL_PARAMS", "POLICY"]
    assert result.report.repeats == {"turn_context": 1}


@pytest.mark.parametrize(
    ("result", "code", "status"),
    [
        ("Exit code: 3\nWall time: 1 s\nOutput:\nx", 3, "ERROR"),
        ("Chunk ID: 1\nWall time: 1 s\nProcess exited with code 0\nOutput:\nx", 0, "OK"),
        ("Output:\nExit code: 3", None, "OK"),
        ('{"output":"x","metadata":{"exit_code":2}}', 2, "ERROR"),
        ('{"output":"x"}', None, "OK"),
        ("{not json", None, "OK"),
        ([{"type": "input_text", "text": "Exit code: 1\nOutput:\n"}], 1, "ERROR"),
        ({"content": "x", "success": False}, None, "ERROR"),
    ],
)
def test_exit_codes_are_read_only_where_the_harness_puts_them(
    result: Any, code: int | None, status: str, tmp_path: Path
) -> None:
    (receipt,) = done(call("c"), output("c", result), context(), folder=tmp_path).of("ToolReceiptRecorded")
    assert (receipt["exit_code"], receipt["status"]) == (code, status)


def test_a_forked_rollout_repeats_the_other_one_and_stays_one_session(tmp_path: Path) -> None:
    lines = timed(
        meta("child", forked_from_id="old"), meta("old"), said("user", "x"), meta("child", git={}), meta("new")
    )
    result = grows("codex", lines, tmp_path)
    assert [session.session_id for session in result.sessions] == ["codex/1:child", "codex/1:new"]
    created = result.of("SessionCreated")[0]
    assert (created["relation"], created["parent_session"]) == ("CONTINUATION", "codex/1:old")
    assert result.report.notes == {"session_meta": 2}


def test_a_session_that_comes_again_is_not_taken_for_the_first(tmp_path: Path) -> None:
    result = grows("codex", timed(meta("a"), meta("b"), meta("a"), meta("a")), tmp_path)
    assert [session.session_id.split(":")[1] for session in result.sessions] == ["a", "b", "record"]
    assert result.report.repeats == {"session_meta": 1}
    assert any("with the id of an earlier one (a)" in warning for warning in result.report.warnings)


def test_an_unknown_type_is_kept_whole(tmp_path: Path) -> None:
    result = done(item("telepathy", x=1), event("gong"), {"type": "new_line", "payload": {"y": 2}}, folder=tmp_path)
    assert result.report.unknown == {"response_item.telepathy": 1, "event_msg.gong": 1, "new_line": 1}
    notes = [json.loads(note["data"]["inline"]) for note in result.of("NoteRecorded")]
    assert notes == [{"type": "telepathy", "x": 1}, {"type": "gong"}, {"y": 2}]


def test_values_of_odd_kinds_are_kept_as_they_are(tmp_path: Path) -> None:
    odd = {"type": [], "text": "x"}
    result = done(
        item("message", role="user", content=[odd]),
        call("c"),
        item("function_call_output", call_id="c", status=[]),
        context(),
        folder=tmp_path,
    )
    assert json.loads(result.of("MessageReceived")[0]["parts"][0]["blob"]["inline"]) == odd
    assert result.of("ToolReceiptRecorded")[0]["status"] == "OK"


@pytest.mark.parametrize("line", [{}, {"type": "x"}, {"type": "x", "payload": []}, {"payload": {}}, context()])
def test_a_line_that_is_no_record_is_named(line: NativeLine, tmp_path: Path) -> None:
    lines = [line] if line.get("type") == "turn_context" else [meta(), line]
    with pytest.raises(BadInputFile, match=f"line {len(lines)}:"):
        imported("codex", lines, tmp_path)


RECORDS = st.one_of(
    st.sampled_from(
        [
            said("user", "a"), said("user", "b"), said("developer", "a"), said("assistant", "a"), thought("a"),
            event("user_message", message="a"), event("agent_message", message="a"), event("agent_reasoning", text="a"),
            event("task_started", turn_id="t"), event("task_complete", turn_id="t"), context(), context(model="n"),
            event("turn_aborted", reason="interrupted"), event("error", message="x"), event("context_compacted"),
            event("item_completed", item={"type": "AgentMessage", "content": [{"type": "Text", "text": "a"}]}),
            item("web_search_call", id="w", status="completed", action={}), item("agent_message", author="x"),
            thought(),
            {"type": "compacted", "payload": {"message": "s"}}, meta(), meta("other"), {"type": "gong", "payload": {}},
            {"type": "compacted", "payload": {"message": "", "replacement_history": []}},
        ]
    ),
    st.builds(call, st.sampled_from(["c", "d"]), st.integers(0, 3)),
    st.builds(output, st.sampled_from(["c", "d"]), st.sampled_from(["x", "Exit code: 1\n", None])),
    st.builds(used, st.integers(1, 4)),
    st.builds(tokens, st.integers(1, 4), st.integers(1, 4)),
)  # fmt: skip


@settings(max_examples=examples(60))
@given(lines=st.lists(RECORDS, max_size=14))
def test_whatever_comes_a_longer_file_adds_and_changes_nothing(lines: list[NativeLine]) -> None:
    # case C46
    with tempfile.TemporaryDirectory() as folder:
        grows("codex", timed(meta(), *lines), Path(folder))

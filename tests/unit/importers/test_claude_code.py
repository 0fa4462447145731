"""Claude Code: sessions made for what the shared ones lack."""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dalsegno.errors import BadInputFile
from dalsegno.importers.claude_code import ClaudeCodeImporter
from dalsegno.importers.run import import_file
from dalsegno.log.publisher import Publisher
from dalsegno.testing.memory_log import MemoryLog
from examples import examples
from jsonl_lab import Imported, NativeLine, grows, imported


class Talk:
    """Lines of a session; each names the one before it, unless it is told another."""

    def __init__(self, session: str = "s") -> None:
        self.lines: list[NativeLine] = []
        self.session = session
        self.last: str | None = None

    def add(self, type_: str, *, parent: str | None = "", uuid: str | None = None, **rest: Any) -> str:
        number = len(self.lines) + 1
        uuid = uuid or f"u{number}"
        line = {
            "type": type_, "uuid": uuid, "parentUuid": self.last if parent == "" else parent,
            "sessionId": self.session, "isSidechain": False, "cwd": "/x", "version": "2",
            "timestamp": f"2026-01-01T00:00:{number:02d}Z", **rest,
        }  # fmt: skip
        self.lines.append(line)
        self.last = uuid
        return uuid

    def user(self, content: Any, **rest: Any) -> str:
        return self.add("user", message={"role": "user", "content": content}, **rest)

    def result(self, call: str, content: Any = "ok", *, failed: bool = False, **rest: Any) -> str:
        block = {"type": "tool_result", "tool_use_id": call, "content": content, "is_error": failed}
        return self.user([block], **rest)

    def model(self, message: str, *content: Any, stop: str | None = None, **rest: Any) -> str:
        said = [{"type": "text", "text": block} if isinstance(block, str) else block for block in content]
        usage = {"input_tokens": 5, "output_tokens": 1}
        body = {"id": message, "model": "m", "role": "assistant", "content": said, "stop_reason": stop, "usage": usage}
        return self.add("assistant", message=body, **rest)


def use(id_: str, name: str = "Read", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": name, "input": given}


def test_an_answer_ends_where_something_comes_that_follows_whole_answers_only(tmp_path: Path) -> None:
    talk = Talk()
    talk.user("do")
    talk.model("m1", "I read")
    talk.model("m1", use("c1"))
    talk.result("c1")  # a tool can be done before its message is
    talk.model("m1", use("c2"))
    talk.result("c2")
    held = imported("claude-code", talk.lines, tmp_path)
    assert held.report.waiting == {"assistant": 3, "user": 2}
    assert held.types()[-1] == "InferenceRequested"
    talk.model("m2", "done", stop="end_turn")
    result = grows("claude-code", talk.lines, tmp_path)
    answers = result.of("InferenceCompleted")
    assert [len(answer["tool_calls"]) for answer in answers] == [2, 0]
    assert [receipt["tool_call_id"] for receipt in result.of("ToolReceiptRecorded")] == [
        "session/t1/i1/c0", "session/t1/i1/c1",
    ]  # fmt: skip
    assert (result.report.waiting, result.report.warnings) == ({}, [])


def test_a_message_that_goes_on_after_its_end_is_kept_and_its_tokens_count_once(tmp_path: Path) -> None:
    talk = Talk()
    talk.user("do")
    talk.model("m1", "one", stop="end_turn")
    talk.model("m1", use("c1"), stop="tool_use")
    talk.result("c1")
    result = grows("claude-code", talk.lines, tmp_path)
    assert [answer["usage"]["input"] for answer in result.of("InferenceCompleted")] == [5, None]
    assert [answer["response_id"] for answer in result.of("InferenceCompleted")] == ["m1", "m1"]
    assert len(result.of("ToolReceiptRecorded")) == 1
    assert any("went on after" in warning and warning.endswith("line 3") for warning in result.report.warnings)


def test_going_back_to_an_earlier_prompt_is_a_fork(tmp_path: Path) -> None:
    talk = Talk()
    talk.user("one")
    first = talk.model("m1", "1", stop="end_turn")
    talk.user("two")
    talk.model("m2", "2", stop="end_turn")
    talk.user("two, otherwise", parent=first, uuid="again")
    talk.model("m3", "3", stop="end_turn")
    talk.user("three, otherwise", parent=first, uuid="once-more")
    talk.user("four", parent="u4")
    result = grows("claude-code", talk.lines, tmp_path)
    root, again, more = result.sessions
    assert [s.session_id for s in (root, again, more)] == [
        "claude-code/1:s",
        "claude-code/1:s~again",
        "claude-code/1:s~once-more",
    ]
    assert again.parent is root
    (forked,) = result.of("SessionForked", 1)
    # The parent's line is the first answer: what it became ends there.
    at = result.events(0)[forked["parent_at"]["seq"] - 1]
    assert (at.type, at.body["response_id"], at.hash) == ("InferenceCompleted", "m1", forked["parent_at"]["hash"])
    assert result.types(1)[:6] == [
        "SessionCreated", "SessionForked", "TurnCompleted", "MessageReceived", "TurnStarted", "InferenceRequested",
    ]  # fmt: skip
    turns = [turn["turn_id"] for session in range(2) for turn in result.of("TurnStarted", session)]
    assert turns == ["session/t1", "session/t2", "session/t3"], "no number twice on one path"
    assert [m["parts"][0]["text"] for m in result.of("MessageReceived")] == ["one", "two", "four"]


def test_a_fork_within_a_turn_uses_no_id_of_its_parent_again(tmp_path: Path) -> None:
    talk = Talk()
    talk.user("one")
    first = talk.model("m1", "1", stop="end_turn")
    talk.user("two")
    talk.model("m2", "2", stop="end_turn")
    talk.user("a reminder of the harness", parent=first, uuid="again", isMeta=True)
    talk.model("m3", "3", stop="end_turn")
    result = grows("claude-code", talk.lines, tmp_path)
    asked = [[body["inference_id"] for body in result.of("InferenceRequested", session)] for session in (0, 1)]
    assert asked == [["session/t1/i1", "session/t2/i1"], ["session/t1/i2"]]


def test_what_a_message_of_the_user_says_beside_its_content_is_counted(tmp_path: Path) -> None:
    talk = Talk()
    talk.add("user", message={"role": "user", "content": "do", "name": "somebody", "empty": None})
    result = imported("claude-code", talk.lines, tmp_path)
    assert result.report.not_carried == {"user.message.name": 1}


def test_a_file_with_forks_is_imported_as_it_grows_and_once(tmp_path: Path) -> None:
    talk = Talk()
    top = talk.user("one")
    talk.model("m1", "1", stop="end_turn")
    talk.user("one, otherwise", parent=top, uuid="f1")
    talk.model("m2", "2", stop="end_turn")
    log, path = MemoryLog(partitions=4), tmp_path / "talk.jsonl"
    appended = []
    for count in (2, 3, 4, 4):
        path.write_text("".join(json.dumps(line) + "\n" for line in talk.lines[:count]))
        with Publisher(log.connect(), prefix="t") as publisher:
            appended.append(import_file(publisher, ClaudeCodeImporter(), path).appended)
    result = imported("claude-code", talk.lines, tmp_path)
    # A beginning (4), the prompt, the turn and its answer (3); the fork, that says so, and its prompt (3); its answer.
    assert appended == [8, 3, 3, 0]
    keys = [record.key for record in log.records("t.events")]
    assert len(keys) == len(set(keys)) == sum(len(session.events) for session in result.sessions) == 14


def test_a_fork_of_a_fork_names_the_fork(tmp_path: Path) -> None:
    talk = Talk()
    top = talk.user("one")
    talk.model("m1", "1", stop="end_turn")
    talk.user("one, otherwise", parent=top, uuid="f1")
    inner = talk.model("m2", "2", stop="end_turn")
    talk.user("more")
    talk.user("more, otherwise", parent=inner, uuid="f2")
    result = grows("claude-code", talk.lines, tmp_path)
    assert [s.session_id for s in result.sessions] == [f"claude-code/1:s{tail}" for tail in ("", "~f1", "~f2")]
    assert result.of("SessionForked", 2)[0]["parent_session"] == "claude-code/1:s~f1"


def test_a_branch_from_where_a_call_was_open_is_a_session_of_its_own(tmp_path: Path) -> None:
    talk = Talk()
    talk.user("one")
    asked = talk.model("m1", use("c1"), stop="tool_use")
    talk.user("never mind")
    talk.user("otherwise", parent=asked, uuid="b")
    result = grows("claude-code", talk.lines, tmp_path)
    assert [s.session_id for s in result.sessions] == ["claude-code/1:s", "claude-code/1:s:b"]
    (created,) = result.of("SessionCreated", 1)
    assert (created["relation"], created["parent_session"]) == ("CONTINUATION", "claude-code/1:s")
    assert any("calls were open" in warning for warning in result.report.warnings)


def test_results_of_parallel_calls_are_no_branches(tmp_path: Path) -> None:
    talk = Talk()
    talk.user("do")
    one = talk.model("m1", use("c1"))
    two = talk.model("m1", use("c2"))
    talk.result("c2", parent=two)
    talk.result("c1", parent=one)
    talk.model("m2", "done", stop="end_turn")
    result = grows("claude-code", talk.lines, tmp_path)
    assert len(result.sessions) == 1
    receipts = [receipt["tool_call_id"][-2:] for receipt in result.of("ToolReceiptRecorded")]
    assert receipts == ["c1", "c0"]


@pytest.mark.parametrize("whole", [True, False], ids=["whole message", "open message"])
def test_an_agent_that_was_delegated_to_is_a_session_and_its_end_closes_the_call(whole: bool, tmp_path: Path) -> None:
    talk = Talk()
    talk.user("do")
    task = use("c1", "Task", prompt="look around", description="d")
    main = talk.model("m1", task, stop="tool_use" if whole else None)
    talk.user("look around", parent=None, isSidechain=True, uuid="side")
    talk.model("a1", use("c9", "Grep"), isSidechain=True, stop="tool_use")
    talk.result("c9", isSidechain=True)
    talk.model("a2", "found it", isSidechain=True, stop="end_turn")
    talk.result("c1", "found it", parent=main)
    talk.model("m2", "thanks", stop="end_turn")
    result = grows("claude-code", talk.lines, tmp_path)
    assert [s.session_id for s in result.sessions] == ["claude-code/1:s", "claude-code/1:s:side"]
    (created,) = result.of("SessionCreated", 1)
    assert (created["relation"], created["parent_session"]) == ("CHILD", "claude-code/1:s")
    (started,) = result.of("ToolCallStarted")
    assert started["child_session"] == "claude-code/1:s:side"
    (ended,) = result.of("SubSessionEnded")
    assert (ended["tool_call_id"], ended["outcome"]) == (started["tool_call_id"], "SUCCESS")
    assert result.of("ToolReceiptRecorded") == []
    assert [message["role"] for message in result.of("MessageReceived", 1)] == ["EXTERNAL_AGENT"]
    assert len(result.of("ToolReceiptRecorded", 1)) == 1


def test_a_file_of_an_agent_alone_is_its_session(tmp_path: Path) -> None:
    talk = Talk()
    talk.user("look", parent=None, isSidechain=True, agentId="a", uuid="side")
    talk.model("a1", "done", isSidechain=True, agentId="a", stop="end_turn")
    talk.user("more", parent=None, isSidechain=True, agentId="a")
    result = grows("claude-code", talk.lines, tmp_path)
    assert [s.session_id for s in result.sessions] == ["claude-code/1:s:side"]


def test_a_compaction_that_says_what_it_kept_can_be_applied_again(tmp_path: Path) -> None:
    talk = Talk()
    old = talk.user("old")
    talk.model("m1", use("c1"), stop="tool_use")
    talk.result("c1")
    kept = talk.user("kept")
    metadata = {"trigger": "manual", "preTokens": 9, "preservedMessages": {"uuids": [kept]}, "other": 1}
    talk.add("system", subtype="compact_boundary", content="x", compactMetadata=metadata)
    waits = imported("claude-code", talk.lines, tmp_path)
    assert waits.report.waiting == {"system.compact_boundary": 1}
    talk.add("attachment", x=1)  # stands between a boundary and its summary
    talk.user("the summary", isCompactSummary=True)
    talk.user("on")
    result = grows("claude-code", talk.lines, tmp_path)
    (made,) = result.of("CompressionCompleted")
    assert (made["effect"], made["summary"]["inline"]) == ("REAPPLIABLE", b"the summary")
    assert made["forgotten"] == [old, "session/t1/i1", "session/t1/i1/c0", "u3"]
    assert result.of("CompressionStarted")[0]["trigger"] == "MANUAL"
    assert result.report.not_carried["system.compact_boundary.compactMetadata.other"] == 1


def test_a_compaction_without_a_summary_is_only_marked(tmp_path: Path) -> None:
    talk = Talk()
    talk.user("old")
    talk.add(
        "system", parent=None, logicalParentUuid="u1", subtype="compact_boundary", compactMetadata={"trigger": "auto"}
    )
    talk.user("on")
    result = grows("claude-code", talk.lines, tmp_path)
    (made,) = result.of("CompressionCompleted")
    assert (made["effect"], made["summary"], result.of("CompressionStarted")) == ("MARKER_ONLY", None, [])
    assert len(result.sessions) == 1


def test_a_line_that_is_there_again_is_a_repeat_and_a_changed_one_is_not(tmp_path: Path) -> None:
    # case C43
    talk = Talk()
    talk.user("do")
    talk.model("m1", use("c1"), stop="tool_use")
    talk.result("c1")
    talk.lines.append({**talk.lines[2], "timestamp": "2026-02-01T00:00:00Z"})
    talk.user("other", uuid="u1", parent="u3")
    result = grows("claude-code", talk.lines, tmp_path)
    assert result.report.repeats == {"user": 1}
    assert len(result.of("ToolReceiptRecorded")) == 1
    assert [message["parts"][0]["text"] for message in result.of("MessageReceived")] == ["do", "other"]


def test_an_api_error_is_a_failed_inference_and_a_made_up_message_a_note(tmp_path: Path) -> None:
    talk = Talk()
    talk.user("do")
    body = {
        "id": "e",
        "model": "<synthetic>",
        "role": "assistant",
        "content": [{"type": "text", "text": "API Error: 529"}],
    }
    talk.add("assistant", message=body, isApiErrorMessage=True)
    talk.add("assistant", message={**body, "id": "n"})
    result = grows("claude-code", talk.lines, tmp_path)
    (failed,) = result.of("InferenceFailed")
    assert (failed["error"]["error_class"], failed["error"]["message"]) == ("ApiError", "API Error: 529")
    assert result.report.notes == {"assistant": 1}


def test_a_rejection_with_words_of_the_user_goes_on(tmp_path: Path) -> None:
    talk = Talk()
    talk.user("do")
    talk.model("m1", use("c1", "Edit"), stop="tool_use")
    text = "The user doesn't want to proceed with this tool use. The tool use was rejected. They said: use tabs"
    talk.result("c1", text, failed=True)
    result = grows("claude-code", talk.lines, tmp_path)
    assert result.of("ApprovalDenied")[0]["effect"] == "CONTINUE"
    assert result.of("ToolCallRejected")[0]["message"] == text


def test_a_failed_result_is_an_error_of_the_tool_and_a_loose_one_a_note(tmp_path: Path) -> None:
    talk = Talk()
    talk.user("do")
    talk.model("m1", use("c1"), stop="tool_use")
    talk.result("c1", "no such file", failed=True)
    talk.result("c7", "who asked?")
    result = grows("claude-code", talk.lines, tmp_path)
    assert result.of("ToolReceiptRecorded")[0]["status"] == "ERROR"
    assert result.report.notes == {"user": 1}
    assert any("nobody asked for" in w and w.endswith("line 4") for w in result.report.warnings)


def test_pictures_and_thoughts_are_parts(tmp_path: Path) -> None:
    talk = Talk()
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(b"png").decode()}
    talk.user([{"type": "text", "text": "see"}, {"type": "image", "source": source}, {"type": "odd", "x": 1}])
    talk.model("m1", {"type": "thinking", "thinking": "hm", "signature": "s"}, "yes", stop="end_turn")
    result = grows("claude-code", talk.lines, tmp_path)
    parts = result.of("MessageReceived")[0]["parts"]
    assert [part["kind"] for part in parts] == ["TEXT", "MEDIA", "OTHER"]
    assert (parts[1]["blob"]["inline"], parts[1]["blob"]["media_type"]) == (b"png", "image/png")
    assert [part["kind"] for part in result.of("InferenceCompleted")[0]["output"]] == ["REASONING", "TEXT"]


def test_another_session_in_the_file_goes_on_with_the_first(tmp_path: Path) -> None:
    talk = Talk("one")
    talk.user("do")
    talk.session = "two"
    talk.user("resumed")
    result = grows("claude-code", talk.lines, tmp_path)
    assert [s.session_id for s in result.sessions] == ["claude-code/1:one", "claude-code/1:two"]
    (created,) = result.of("SessionCreated", 1)
    assert (created["relation"], created["parent_session"]) == ("CONTINUATION", "claude-code/1:one")


def test_lines_before_the_first_that_names_a_session_wait_for_it(tmp_path: Path) -> None:
    snapshot = {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}}
    alone = imported("claude-code", [snapshot], tmp_path)
    assert (alone.sessions, alone.report.waiting) == ([], {"file-history-snapshot": 1})
    talk = Talk()
    talk.lines.append(snapshot)
    talk.user("do")
    talk.lines.insert(0, {"type": "permission-mode", "permissionMode": "plan", "sessionId": "s"})
    result = grows("claude-code", talk.lines, tmp_path)
    notes = ["NoteRecorded", "NoteRecorded"]  # the line, and that the mode is one that the session began without
    assert result.types()[4:] == [*notes, "ArtifactRecorded", "MessageReceived"]
    assert {"claude-code.cwd", "claude-code.version"} <= {
        label["key"] for label in result.of("SessionCreated")[0]["labels"]
    }


def test_an_id_that_is_no_text_of_ours_is_made_one(tmp_path: Path) -> None:
    talk = Talk()
    talk.user("do", uuid="half \ud800")
    talk.user("on")
    result = grows("claude-code", talk.lines, tmp_path)
    assert [message["message_id"] for message in result.of("MessageReceived")] == ["half \ufffd", "u2"]


def test_an_unknown_type_is_kept_whole(tmp_path: Path) -> None:
    talk = Talk()
    talk.user("do")
    talk.add("telepathy", x=1)
    talk.add("system", subtype="hum", level="info")
    result = grows("claude-code", talk.lines, tmp_path)
    assert result.report.unknown == {"telepathy": 1, "system.hum": 1}
    assert json.loads(result.of("NoteRecorded")[0]["data"]["inline"])["x"] == 1


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"type": 1},
        {"type": "user", "uuid": "u", "sessionId": "s"},
        {"type": "user", "message": {}, "sessionId": "s"},
        {"type": "assistant", "message": {}, "uuid": "u"},
        {"type": "summary"},
        {"type": "x", "sessionId": 1},
    ],
)
def test_a_line_that_is_no_record_is_named(line: NativeLine, tmp_path: Path) -> None:
    talk = Talk()
    talk.user("do")
    with pytest.raises(BadInputFile, match="line 2:"):
        imported("claude-code", [*talk.lines, line], tmp_path)


# --- whatever comes --------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["prompt", "meta", "interrupt", "say", "ask", "ask again", "delegate", "result", "boundary", "summary",
             "snapshot", "system", "side", "repeat"]
        ),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=14,
)  # fmt: skip


def talk_of(steps: list[tuple[str, int, bool]]) -> list[NativeLine]:
    """Lines in which anything may name anything: the number picks ids and parents, the flag sides and ends."""
    talk = Talk()
    talk.user("begin")
    for kind, number, flag in steps:
        parents = [line["uuid"] for line in talk.lines if "uuid" in line]
        parent = parents[-1 - number] if number < len(parents) else None
        ids = {"parent": parent, "isSidechain": flag and number == 2}
        stop = "end_turn" if flag else None
        if kind in ("prompt", "meta", "interrupt", "summary"):
            text = "[Request interrupted by user]" if kind == "interrupt" else f"p{number}"
            talk.user(text, isMeta=kind == "meta", isCompactSummary=kind == "summary", **ids)
        elif kind == "say":
            talk.model(f"m{number}", "text", stop=stop, **ids)
        elif kind in ("ask", "ask again"):
            talk.model(f"m{number}", use(f"c{number}"), stop=stop, **ids)
        elif kind == "delegate":
            talk.model(f"d{number}", use(f"c{number}", "Task", prompt=f"p{number}"), stop=stop, **ids)
        elif kind == "result":
            talk.result(f"c{number}", failed=flag, **ids)
        elif kind == "boundary":
            talk.add(
                "system", subtype="compact_boundary", compactMetadata={"preservedMessages": parents[:number]}, **ids
            )
        elif kind == "snapshot":
            talk.lines.append({"type": "file-history-snapshot", "messageId": f"f{number}", "snapshot": {}})
        elif kind == "system":
            talk.add("system", subtype="turn_duration" if flag else "informational", **ids)
        elif kind == "side":
            talk.user(f"p{number}", parent=None, isSidechain=True)
        else:
            talk.lines.append(dict(talk.lines[-1]))
    return talk.lines


@settings(max_examples=examples(60))
@given(steps=STEPS)
def test_whatever_comes_a_longer_file_adds_and_changes_nothing(steps: list[tuple[str, int, bool]]) -> None:
    # case C46
    with tempfile.TemporaryDirectory() as folder:
        grows("claude-code", talk_of(steps), Path(folder))


def test_made_talks_reach_what_they_are_made_for(tmp_path: Path) -> None:
    """The property above would say little if its talks never forked, delegated or compacted."""
    fork: Imported = imported("claude-code", talk_of([("say", 0, True), ("prompt", 1, False)]), tmp_path)
    assert "SessionForked" in fork.types(1)
    steps = [("delegate", 1, True), ("side", 1, True), ("result", 1, False), ("boundary", 0, True), ("prompt", 0, True)]
    assert {"SubSessionEnded", "CompressionCompleted"} <= set(imported("claude-code", talk_of(steps), tmp_path).types())

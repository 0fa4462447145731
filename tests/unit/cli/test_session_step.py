"""`dalsegno session step`: by a list of commands, from a pipe, and in a terminal."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from dalsegno.testing.builder import SessionBuilder, digest_of
from reader_lab import PREFIX, House

Say = Callable[..., tuple[str, str]]
HOSTILE = "\x1b[2J\u202eboo"


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def typed(text: str, monkeypatch: pytest.MonkeyPatch, kind: type[io.TextIOWrapper] = io.TextIOWrapper) -> None:
    monkeypatch.setattr("sys.stdin", kind(io.BytesIO(text.encode())))


@pytest.fixture
def builder(house: House) -> SessionBuilder:
    made = SessionBuilder("s-1", profile="OBSERVED").begin()
    part = {"kind": "TEXT", "text": HOSTILE}
    made.append("MessageReceived", message_id="m1", role="USER", parts=[part])
    added = {
        "item_id": "m1", "kind": "MESSAGE", "mode": "FULL", "position": 0, "tokens": 7, "digest": digest_of("m1"),
        "compression_id": None,
    }  # fmt: skip
    made.append("ContextPackBuilt", pack_id="p1", added=[added], token_total=7, token_budget=9, fits=True)
    made.append("ValidationRequested", validation_id="v1", validator="exact")
    made.append("ToolCallRequested", tool_call_id="c1", name="shell")
    made.append("ToolCallRejected", tool_call_id="c1")
    house.shard(made.records)
    return made


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_an_object_a_line_for_each_command(builder: SessionBuilder, say: Say, output: str) -> None:
    end = len(builder.records)
    commands = f":{end};n;b;T ContextPackBuilt;pack;t ToolCallRequested;validations;state;event;: 1;b;n 99"
    text, err = say("-o", output, "session", "step", "s-1", "--commands", commands)
    found = objects(text)
    assert [each["command"] for each in found] == [
        f":{end}", "n", "b", "T ContextPackBuilt", "pack", "t ToolCallRequested", "validations", "state", "event",
        ": 1", "b", "n 99",
    ]  # fmt: skip
    pack, call = end - 3, end - 1
    assert [each["seq"] for each in found] == [end, end, call, pack, pack, call, call, call, call, 1, 1, end]
    assert [each.get("moved") for each in found[:4]] == [True, False, True, True]
    assert (found[10]["moved"], found[11]["moved"]) == (False, True)
    (item,) = found[4]["pack"]["items"]
    assert (item["item_id"], item["mode"], item["tokens"], item["content"]) == ("m1", "FULL", 7, HOSTILE)
    assert item["digest"] == digest_of("m1").hex()
    assert found[5]["open"] == [{"kind": "TOOL", "id": "c1"}, {"kind": "VALIDATION", "id": "v1"}]
    (tool,) = [each for each in found[5]["changes"] if each["projection"] == "tools"]
    assert (tool["id"], tool["before"], tool["after"]["name"]) == (["c1"], None, "shell")
    assert found[6]["outcomes"] == {"OPEN": 1}
    assert found[7]["state"]["last_seq"] == call
    assert found[8]["event"]["event"]["name"] == "shell"
    assert "\x1b" not in text
    assert f"true at {PREFIX}.events:0@{end}" in err


def test_commands_from_a_pipe_with_breakpoints(
    builder: SessionBuilder, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed(
        "break when state.tool_calls == 1\n\nbreak tool shell\nclear 2\nbreak\nc\nc\nC\nq\nno such command\n",
        monkeypatch,
    )
    found = objects(say("-o", "json", "session", "step", "s-1")[0])
    when = "when state.tool_calls == 1"
    assert [each["breakpoints"] for each in found[:4]] == [[when], [when, "tool shell"], [when], [when]]
    call = len(builder.records) - 1
    assert [(each["seq"], each["moved"]) for each in found[4:]] == [(call, True), (call + 1, True), (call, True)]


@pytest.mark.usefixtures("builder")
def test_what_a_condition_could_not_tell_is_said(say: Say) -> None:
    commands = 'break when event.name == "none"; c'
    (_, moved) = objects(say("-o", "json", "session", "step", "s-1", "--commands", commands)[0])
    assert moved["moved"] is False
    assert any("no such key" in each for each in moved["untold"])


@pytest.mark.usefixtures("builder")
def test_text_for_people_cannot_act_on_their_terminal(say: Say) -> None:
    commands = "t ContextPackBuilt;pack;b;event;state;validations;break;help;t ToolCallRequested"
    text, _ = say("session", "step", "s-1", "--commands", commands)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\u001b[2J" in text
    lines = text.splitlines()
    assert any(line.startswith("pack p1  built at") and "tokens 7 of 9" in line for line in lines)
    assert any("FULL" in line and "m1" in line and "boo" in line for line in lines)
    assert any(line.split()[:2] == ["changed", "tools"] and "(new)" in line and "name shell" in line for line in lines)
    assert "no breakpoint" in lines
    assert "no validation so far" in lines


def test_an_event_that_is_too_large_is_cut_and_that_is_said(house: House, say: Say) -> None:
    large = SessionBuilder("s-1", profile="OBSERVED").begin()
    large.append("MessageReceived", message_id="m", role="USER", parts=[{"kind": "TEXT", "text": "x" * 200_000}])
    house.shard(large.records)
    text, _ = say("session", "step", "s-1", "--at", str(len(large.records)), "--commands", "event")
    assert len(text) < 70_000
    assert "cut at 65536 characters" in text


@pytest.mark.usefixtures("builder")
@pytest.mark.parametrize(
    ("commands", "code", "said"),
    [
        (":99", 4, "no event at seq 99"),
        (": x", 2, "': x'"),
        ("n two", 2, "'n two'"),
        ("t", 2, "t without a type"),
        ("c", 2, "c without a breakpoint"),
        ("dance", 2, "no command 'dance'"),
        ("pack now", 2, "'pack' alone"),
        ("break sometimes", 2, "breakpoint 'sometimes'"),
        ("clear 3", 2, "no breakpoint 3"),
        ("break when now()", 2, "breakpoint"),
    ],
)
def test_a_command_that_fails_ends_a_script(say: Say, commands: str, code: int, said: str) -> None:
    text, err = say("-o", "json", "session", "step", "s-1", "--commands", f"n;{commands};n", code=code)
    assert [each["seq"] for each in objects(text)] == [2]
    assert said in err


@pytest.mark.usefixtures("builder")
def test_where_it_cannot_begin(say: Say) -> None:
    say("session", "step", "s-1", "--at", "99", "--commands", "n", code=4)
    say("session", "step", "s-9", "--commands", "n", code=4)


def test_in_a_terminal_a_failure_is_said_and_an_empty_line_repeats_the_last_move(
    builder: SessionBuilder, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed("\nnonsense\nbreak when\nb\nn 2\n\n", monkeypatch, Terminal)
    text, err = say("session", "step", "s-1")
    end = len(builder.records)
    shown = [int(line.split()[0]) for line in text.splitlines() if line[:6].strip().isdigit()]
    assert shown == [1, 2, 1, 3, 5]
    assert "no command 'nonsense'" in err
    assert f"1/{end}> " in err

"""`dalsegno policy backtest|diff|coverage`: what they print and end with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dalsegno.state.shard import Shard
from policy_lab import Calls
from reader_lab import House
from shard_lab import apply

Say = Callable[..., tuple[str, str]]

STRICT = """
name: strict
rules:
  - {id: no-rm, when: 'call.tool == "shell" && call.arguments.command.startsWith("rm")', decision: DENY}
  - {id: ask, when: 'call.tool == "web"', decision: REQUIRE_APPROVAL}
  - {id: never, when: 'call.tool == "nothing"', decision: DENY}
"""
HOSTILE = "rm \x1b[31m\u202e"


@pytest.fixture(autouse=True)
def shard(house: House) -> Shard:
    session = Calls("s-1").asked("a", arguments={"command": HOSTILE}).ran("a").asked("b", "web").ran("b")
    session.asked("c", "web").approved("c").asked("d", arguments=b"[]").rejected("d", "INVALID_ARGUMENTS")
    other = Calls("s-2", workflow_name="other").asked("a", arguments={"command": "ls"}).rejected("a", "POLICY_DENY")
    return house.shard([*session.records, *other.records])


@pytest.fixture
def strict(tmp_path: Path) -> str:
    file = tmp_path / "strict.yaml"
    file.write_text(STRICT)
    return str(file)


@pytest.fixture
def empty(tmp_path: Path) -> str:
    file = tmp_path / "empty.yaml"
    file.write_text("{name: empty}")
    return str(file)


def test_a_backtest_says_what_would_be_other_than_it_was(say: Say, strict: str) -> None:
    out, err = say("policy", "backtest", strict)
    assert "4 calls of 2 sessions; not for a policy: 1 INVALID_ARGUMENTS" in out
    assert "1 introduced block, 1 removed block, 0 approvals saved, 1 approval added" in out
    assert "1  ran, now DENY: introduced block\n    s-1 @ " in out
    assert 'shell {"command": "rm \\u001b[31m\\u202e"}' in out
    assert "true at p.events:0@" in err
    assert "s-2" not in say("policy", "backtest", strict, "s-1")[0]
    assert "1 calls of 1 sessions" in say("policy", "backtest", strict, "--workflow", "other")[0]


def test_as_json_it_is_one_object_as_jsonl_a_line_each(say: Say, strict: str) -> None:
    data = json.loads(say("-o", "json", "policy", "backtest", strict, "--limit-examples", "0")[0])
    assert (data["sessions"], data["held"], data["calls"]) == (2, 0, 4)
    assert [each["examples"] for each in data["cells"]] == [[]] * 4
    assert data["changes"]["introduced-block"] == 1
    lines = [json.loads(line) for line in say("policy", "backtest", strict, "-o", "jsonl")[0].splitlines()]
    assert [line["of"] for line in lines] == ["summary", *["rules"] * 4, *["cells"] * 4]
    assert lines[0]["calls"] == 4
    assert say("policy", "backtest", strict, "-o", "none")[0] == ""


def test_what_acts_on_a_terminal_is_written_out(say: Say, shard: Shard, strict: str) -> None:
    hostile = '{"a": "\u202e\x7f"}'.encode()
    apply(shard, Calls("s-3").asked("x\x1b[1m", "t\x07", hostile).asked("y\u202e", "t", b"\xff").records)
    for form in ("text", "json", "jsonl"):
        for verb in ("backtest", "coverage"):
            out, _ = say("-o", form, "policy", verb, strict, "s-3")
            assert "u001b[1m" in out
            assert all(character.isprintable() for line in out.splitlines() for character in line)


def test_a_difference_ends_with_3(say: Say, strict: str, empty: str) -> None:
    out, _ = say("policy", "diff", empty, strict, code=3)
    assert "policy A  empty 1, 0 rules" in out
    assert "3 decided differently" in out
    assert "2  ALLOW by (default) -> REQUIRE_APPROVAL by ask" in out
    assert "1  ALLOW by (default) -> DENY by no-rm" in out
    data = json.loads(say("-o", "json", "policy", "diff", empty, strict, code=3)[0])
    assert [(each["a"], each["b"], each["calls"]) for each in data["groups"]] == [
        ("ALLOW", "REQUIRE_APPROVAL", 2),
        ("ALLOW", "DENY", 1),
    ]


def test_no_difference_ends_with_0(say: Say, strict: str) -> None:
    assert "0 decided differently" in say("policy", "diff", strict, strict)[0]


def test_coverage_says_what_no_rule_decides(say: Say, strict: str) -> None:
    out, _ = say("policy", "coverage", strict)
    assert "1 calls (25.0 %) are decided by the default" in out
    assert "rules that match no call" in out
    assert out.splitlines()[-1].split() == ["never", "1", "0"]
    data = json.loads(say("-o", "json", "policy", "coverage", strict)[0])
    assert [(each["tool"], each["calls"], each["uncovered"]) for each in data["tools"]] == [
        ("shell", 2, 1),
        ("web", 2, 0),
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["backtest", "missing.yaml"], 1, "missing.yaml: No such file"),
        (["coverage", "."], 1, "Is a directory"),
        (["backtest", "bad.yaml"], 1, "bad.yaml, line 2"),
        (["backtest", "strict.yaml", "s-9"], 4, "no session 's-9'"),
        (["diff", "strict.yaml", "strict.yaml", "--status", "FAILED"], 4, "no session is chosen"),
        (["coverage", "strict.yaml", "--label", "team"], 2, "KEY=VALUE"),
    ],
)
def test_what_cannot_be_tried_says_why(say: Say, strict: str, arguments: list[str], code: int, said: str) -> None:
    Path(strict).with_name("bad.yaml").write_text("name: x\nrules: [{id: a, when: 'call.', decision: DENY}]\n")
    out, err = say("policy", *arguments, code=code)
    assert said in err
    assert out == ""


def test_the_shards_are_left_as_they_were(say: Say, house: House, strict: str) -> None:
    before = {path: path.read_bytes() for path in house.data.rglob("*") if path.is_file()}
    say("policy", "backtest", strict)
    assert {path: path.read_bytes() for path in house.data.rglob("*") if path.is_file()} == before
    assert not house.store_folder.exists()

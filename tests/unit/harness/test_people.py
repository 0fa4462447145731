"""What people answer from a script: which rule fits what, what it becomes, and what is no script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dalsegno.errors import Failed
from dalsegno.harness.people import ScriptedPeople, read_people
from dalsegno.orchestration.documents import Question
from decider_lab import APPROVE, Scene, stage

A0, A1 = "work.1/t1/c0/a1", "work.1/t1/c1/a1"


def asking() -> Scene:
    """Two calls of ``write`` wait for leave."""
    found = Scene(policy=[APPROVE])
    found.answer("", ("write", {"n": 1}), ("write", {"n": 2}))
    assert found.open("approval") == [A0, A1]
    return found


def questioned() -> Scene:
    found = Scene([stage(ask=[Question(id="file", prompt="which?")])])
    assert found.open("request") == ["work.1/q.file"]
    return found


def answered(scene: Scene, *rules: dict[str, Any]) -> dict[str, Any] | None:
    found = ScriptedPeople(rules)(scene.world)
    return None if found is None else {"type": type(found).__name__} | {
        name: getattr(found, name) for name in found.__struct_fields__
    }  # fmt: skip


def test_the_first_rule_that_fits_answers_the_first_that_waits() -> None:
    scene = asking()
    denied = answered(scene, {"match": "*/c1/*", "answer": "grant"}, {"answer": "deny", "reason": "no"})
    assert denied is not None
    assert (denied["type"], denied["approval_id"], denied["effect"], denied["explanation"]) == (
        "ApprovalDenied", A0, "CONTINUE", "no",
    )  # fmt: skip
    granted = answered(scene, {"match": "*/c1/*", "answer": "grant"}, {"match": "*/c9/*", "answer": "deny"})
    assert granted is not None
    assert (granted["type"], granted["approval_id"], granted["scope"]) == ("ApprovalGranted", A1, "ONCE")
    assert granted["arguments_digest"] == scene.world.rows.get(("approval", A1)).arguments


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [({"tool": "write"}, True), ({"tool": "look"}, False), ({"session": "s"}, True), ({"session": "t"}, False)],
)
def test_rules_are_told_apart_by_tool_and_session(pattern: dict[str, str], fits: bool) -> None:
    assert (answered(asking(), {**pattern, "answer": "grant"}) is not None) == fits


def test_leave_is_given_with_other_arguments_or_for_more_or_expires() -> None:
    scene = asking()
    given = answered(scene, {"answer": "grant", "scope": "session", "arguments": {"n": 3}})
    assert given is not None
    assert (given["scope"], given["modified_arguments"].inline) == ("SESSION", b'{"n":3}')
    assert (answered(scene, {"answer": "expire"}) or {})["type"] == "ApprovalExpired"


@pytest.mark.parametrize(
    ("rule", "outcome", "content"),
    [
        ({"text": "a.txt"}, "ACCEPTED", b"a.txt"),
        ({"json": {"file": 1}}, "ACCEPTED", b'{"file":1}'),
        ({"answer": "decline"}, "DECLINED", None),
        ({"answer": "expire"}, "EXPIRED", None),
    ],
)
def test_questions_are_answered(rule: dict[str, Any], outcome: str, content: bytes | None) -> None:
    found = answered(questioned(), {"answer": "grant"}, rule)
    assert found is not None
    assert (found["request_id"], found["outcome"]) == ("work.1/q.file", outcome)
    assert (None if found["content"] is None else found["content"].inline) == content


def test_what_is_for_approvals_answers_no_question_and_the_other_way_round() -> None:
    assert answered(questioned(), {"answer": "grant"}, {"answer": "deny"}, {"tool": "*", "answer": "expire"}) is None
    assert answered(asking(), {"text": "yes"}, {"answer": "decline"}) is None
    rules = ({"answer": "grant"}, {"text": "yes"}, {"match": "work.1/q.other", "text": "yes"})
    assert [ScriptedPeople([rule]).answers_question("work.1/q.file", "s") for rule in rules] == [False, True, False]


@pytest.mark.parametrize(
    "rule",
    [{}, {"answer": "perhaps"}, {"text": "a", "answer": "grant"}, {"text": "a", "json": 1}, {"tool": "a", "text": "b"},
     {"answer": "grant", "who": "me"}, "grant"],
)  # fmt: skip
def test_what_is_no_rule_is_refused_by_its_number(rule: Any) -> None:
    with pytest.raises(Failed, match="rule 1"):
        ScriptedPeople([{"answer": "deny"}, rule])


def test_a_file_is_read_and_named_where_it_is_none(tmp_path: Path) -> None:
    file = tmp_path / "people.yaml"
    file.write_text("- {match: '*/a1', answer: grant}\n")
    assert answered(asking(), {"match": "*/a1", "answer": "grant"}) is not None
    assert read_people(file).digest == ScriptedPeople([{"answer": "grant", "match": "*/a1"}]).digest
    assert read_people(file).digest != ScriptedPeople([{"answer": "grant"}]).digest
    file.write_text("answer: grant\n")
    with pytest.raises(Failed, match=r"people\.yaml"):
        read_people(file)
    with pytest.raises(Failed, match="cannot be read"):
        read_people(tmp_path / "absent.yaml")
    file.write_text("- {json: &itself [*itself]}\n")
    with pytest.raises(Failed, match="cannot be read"):
        read_people(file)

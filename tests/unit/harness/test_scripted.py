"""A scripted provider: who is answered by which rule, and what a wrong script says."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from dalsegno.errors import Failed, NotFound
from dalsegno.harness import loading
from dalsegno.harness.providers import open_provider
from dalsegno.harness.providers.scripted import Scripted, read_script
from dalsegno.model.events import Usage
from dalsegno.orchestration.ports import InferenceError, Request


def request(inference_id: str, *, attempt: int = 1, session: str = "s", model: str = "m") -> Request:
    return Request(session, inference_id, attempt, "scripted", model, {}, [], [], b"")


def test_rules_that_match_answer_by_id_whatever_the_order_and_however_often() -> None:
    script = Scripted(
        [
            {"match": "*/v.style/i", "text": {"verdict": "PASS"}},
            {"match": "*/k1/i", "text": "in short"},
            {"match": "plan.*/t1/i", "text": "one"},
            {"match": "plan.*", "text": "any"},
        ]
    )
    for _ in range(2):
        assert script.complete(request("plan.1/t2/i")).text == "any"
        assert script.complete(request("plan.1/t1/i")).text == "one"
        assert json.loads(script.complete(request("plan.1/t2/v.style/i")).text) == {"verdict": "PASS"}
        assert script.complete(request("plan.1/t1/k1/i")).text == "in short"


def test_an_attempt_a_session_and_a_model_tell_rules_apart() -> None:
    script = Scripted(
        [
            {"match": "a", "attempt": 2, "text": "second"},
            {"session": "child-*", "text": "child"},
            {"model": "big", "text": "big"},
            {"text": "rest"},
        ]
    )
    assert script.complete(request("a", attempt=2)).text == "second"
    assert script.complete(request("a", session="child-1")).text == "child"
    assert script.complete(request("a", model="big")).text == "big"
    assert script.complete(request("a")).text == "rest"


def test_rules_in_order_are_taken_once_and_the_same_attempt_gets_the_same_one() -> None:
    script = Scripted([{"text": "first"}, {"match": "x", "text": "x"}, {"text": "second"}])
    assert script.complete(request("a")).text == "first"
    assert script.complete(request("x")).text == "x"
    assert script.complete(request("a")).text == "first"
    assert script.complete(request("a", attempt=2)).text == "second"


def test_a_request_without_an_answer_says_which_and_what_was_wanted() -> None:
    script = Scripted([{"match": "b*", "text": ""}, {"text": "only"}])
    script.complete(request("a"))
    with pytest.raises(InferenceError, match=r"plan\.1/t9/i, attempt 3, of session s; wanted: .*b\*.*all 1 are") as no:
        script.complete(request("plan.1/t9/i", attempt=3))
    assert (no.value.error_class, no.value.retryable) == ("script_has_no_answer", False)


def test_an_answer_has_calls_usage_and_cost() -> None:
    calls = [
        {"name": "read", "arguments": {"path": "a"}, "id": "n1"},
        {"name": "read", "arguments": "{not json", "id": "n1"},
        {"name": "now"},
    ]
    rule = {"text": "t", "calls": calls, "usage": {"input": 3, "output": 2}, "cost_usd_micros": 7, "reasoning": "r"}
    answer = Scripted([rule]).complete(request("a", model="m1"))
    assert [(call.name, call.arguments, call.native_id) for call in answer.calls] == [
        ("read", b'{"path":"a"}', "n1"),
        ("read", b"{not json", "n1"),
        ("now", b"{}", None),
    ]
    assert (answer.finish_reasons, answer.usage) == (("tool_calls",), Usage(input=3, output=2))
    assert (answer.cost_usd_micros, answer.reasoning, answer.model) == (7, "r", "m1")


def test_a_failure_is_raised_as_the_script_says() -> None:
    failure = {"class": "rate_limited", "retryable": True, "http_status": 429, "retry_after_ms": 50}
    script = Scripted([{"match": "a", "attempt": 1, "error": failure}, {"match": "a", "text": "then"}])
    with pytest.raises(InferenceError) as raised:
        script.complete(request("a"))
    error = raised.value
    assert (error.error_class, error.retryable, error.http_status, error.retry_after_ms) == (
        "rate_limited",
        True,
        429,
        50,
    )
    assert script.complete(request("a", attempt=2)).text == "then"


def test_threads_never_share_a_rule_in_order() -> None:
    script = Scripted([{"text": str(n)} for n in range(200)])
    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda n: script.complete(request(f"i{n}")).text, range(200)))
    assert sorted(texts, key=int) == [str(n) for n in range(200)]


def test_a_script_is_a_file_of_yaml_or_json(tmp_path: Path) -> None:
    yaml = tmp_path / "answers.yaml"
    yaml.write_text("- match: a\n  calls:\n    - name: read\n      arguments: {path: x}\n- text: done\n")
    script = open_provider("scripted", {"file": str(yaml)})
    assert script.complete(request("a")).calls[0].arguments == b'{"path":"x"}'
    assert script.complete(request("b")).text == "done"
    as_json = tmp_path / "answers.json"
    as_json.write_text('[{"text": "j"}]')
    assert read_script(as_json).complete(request("a")).text == "j"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "nothing"),
        ({"rules": {"text": "x"}}, "rules"),
        ({"rules": ["text"]}, "rule 0: Expected `object`"),
        ({"rules": [{"text": "x"}, {"txt": "x"}]}, "rule 1: .*txt"),
        ({"rules": [{"usage": {"tokens": 1}}]}, "rule 0: .*tokens"),
        ({"rules": [{"text": "x", "error": {"class": "c"}}]}, "an error and an answer"),
        ({"file": "/nowhere/answers.yaml"}, "/nowhere/answers.yaml cannot be read"),
    ],
)
def test_a_wrong_script_is_refused_naming_the_rule(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(Failed, match=says):
        open_provider("scripted", settings)


@pytest.mark.parametrize("text", ["a: [", "text: x", "", "&a [*a]", "[{calls: [{name: a, arguments: {yes: 1}}]}]"])
def test_a_file_that_is_no_list_of_rules_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "answers.yaml"
    path.write_text(text)
    with pytest.raises(Failed, match=r"answers\.yaml"):
        read_script(path)


def test_an_unknown_provider_is_named_with_those_there_are() -> None:
    with pytest.raises(NotFound, match=r"no provider 'oracle'; wanted: one of .*scripted"):
        open_provider("oracle", {})


def test_a_provider_of_another_package_is_opened_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [EntryPoint("canned", f"{Scripted.__module__}:Scripted", "dalsegno.providers")]
    monkeypatch.setattr(loading, "entry_points", lambda group: entries if group == "dalsegno.providers" else [])
    assert open_provider("canned", [{"text": "x"}]).complete(request("a")).text == "x"  # type: ignore[arg-type]

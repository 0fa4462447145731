"""Verdicts without anybody outside: by a schema, by a condition, and read from what a judging model said."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest

from dalsegno.errors import InvalidDocument
from dalsegno.model.events import Finding
from dalsegno.orchestration.documents import ValidatorSpec
from dalsegno.orchestration.validation import Judgement, decide, judge, predicate, read_judge


@dataclass
class Report:
    reported: str = ""
    score: str | None = None
    label: str | None = None


@dataclass
class Attempt:
    error_class: str
    error_message: str


SCHEMA = {
    "type": "object",
    "required": ["title", "lines"],
    "properties": {
        "title": {"type": "string"},
        "lines": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        "a/b~": {"type": "null"},
    },
    "additionalProperties": False,
}


def by_schema(output: Any, schema: dict[str, Any] = SCHEMA) -> Judgement:
    given = output if isinstance(output, bytes) else json.dumps(output).encode()
    return judge(ValidatorSpec(name="v", schema=schema), given, {})


def by_predicate(text: str, output: bytes, **facts: Any) -> Judgement:
    return judge(ValidatorSpec(name="v", predicate=text), output, facts)


def seen(judgement: Judgement) -> list[tuple[str, str | None, str]]:
    return [(each.code, each.location, each.message) for each in judgement.findings]


def test_an_output_that_fits_its_schema_passes() -> None:
    assert by_schema({"title": "t", "lines": [1, 2]}) == Judgement("PASS")


def test_what_does_not_fit_is_told_by_place_keyword_and_what_was_wanted() -> None:
    judgement = by_schema({"lines": [1, 0, "x"], "a/b~": 1})
    assert judgement.verdict == "REJECT"
    assert seen(judgement) == [
        ("required", "", 'wanted: ["title"]; found: {"a/b~":1,"lines":[1,0,"x"]}'),
        ("type", "/a~1b~0", 'wanted: "null"; found: 1'),
        ("minimum", "/lines/1", "wanted: 1; found: 0"),
        ("type", "/lines/2", 'wanted: "integer"; found: "x"'),
    ]


@pytest.mark.parametrize("output", [b"", b"Here it is: {}", b"```json\n{}\n```", b"\xff", b'{"a": 1, "a": 2}', b"NaN"])
def test_an_output_that_is_no_json_alone_is_rejected(output: bytes) -> None:
    judgement = by_schema(output)
    assert (judgement.verdict, judgement.findings[0].code) == ("REJECT", "not_json")


def test_many_findings_and_long_values_are_cut() -> None:
    judgement = by_schema(["x" * 5000] * 100, {"items": {"type": "integer"}})
    assert len(judgement.findings) == 20
    assert all(len(each.message) < 900 for each in judgement.findings)


def test_whether_a_schema_is_one_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer than all else of a decision, and a tool's schema is used for each of its calls."""
    looked: list[Any] = []
    monkeypatch.setattr(jsonschema.Draft202012Validator, "check_schema", looked.append)
    verdicts = [by_schema(output, {"type": "string", "minLength": 2}).verdict for output in ("a", "ab", 3)]
    assert verdicts == ["REJECT", "PASS", "REJECT"]
    assert len(looked) == 1


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"$ref": "http://127.0.0.1:1/schema.json"},
        {"$ref": "#/$defs/missing"},
        {"$ref": "#"},
        {"pattern": "("},
    ],
)
def test_a_schema_that_cannot_be_used_gives_no_verdict_on_the_output(schema: dict[str, Any]) -> None:
    judgement = by_schema("x", schema)
    assert (judgement.verdict, judgement.findings[0].code) == ("ERROR", "schema")


def test_a_predicate_sees_the_text_its_json_and_the_facts() -> None:
    assert by_predicate("output.contains('done')", b"all done") == Judgement("PASS")
    assert by_predicate("json.n > facts.least", b'{"n": 3}', least=2) == Judgement("PASS")
    assert by_predicate("json == null", b"\xff no json") == Judgement("PASS")
    rejected = by_predicate("json.n > 5", b'{"n": 3}')
    assert (rejected.verdict, seen(rejected)) == ("REJECT", [("predicate", None, "it does not hold: json.n > 5")])


def test_a_predicate_that_cannot_be_evaluated_is_an_error_and_no_rejection() -> None:
    judgement = by_predicate("json.n > 5", b"{}")
    assert (judgement.verdict, seen(judgement)) == ("ERROR", [("predicate", None, "no such key: json.n > 5")])
    assert by_predicate("json.n", b'{"n": 3}').findings[0].message == "not a bool: json.n"


def test_a_predicate_that_is_none_is_refused_by_its_place() -> None:
    with pytest.raises(InvalidDocument, match=r"validators\.v"):
        predicate("nobody_knows > 1", where="validators.v")


def test_a_validator_that_somebody_else_decides_is_not_judged_here() -> None:
    with pytest.raises(ValueError, match="neither a schema nor a predicate"):
        judge(ValidatorSpec(name="v", reporter="tests"), b"", {})


def test_a_verdict_rests_on_what_is_in_the_session() -> None:
    open_ = Report()
    pure, model = ValidatorSpec(name="v", schema={"type": "array"}), ValidatorSpec(name="v", agent="a", prompt="p")
    assert decide(pure, b"[]", {}, open_, None, None) == Judgement("PASS", basis="PURE")
    read = decide(model, b"", {}, open_, None, b'{"verdict": "REJECT", "score": 1}')
    assert read == Judgement("REJECT", "1", basis="INFERENCE")
    assert decide(model, b"", {}, open_, None, b"\xff").verdict == "INCONCLUSIVE"
    reported = Report("REJECT", "0.5", "exit code 1")
    outside = decide(ValidatorSpec(name="v", reporter="tests"), b"", {}, reported, None, None)
    assert outside == Judgement("REJECT", "0.5", label="exit code 1", basis="REPORTED")


def test_a_judge_that_gave_no_answer_is_an_error_and_cites_no_inference() -> None:
    failed = Attempt("server_error", "HTTP 500")
    judgement = decide(ValidatorSpec(name="v", agent="a"), b"", {}, Report(), failed, None)
    assert (judgement.verdict, judgement.basis) == ("ERROR", "PURE"), "V2: an inference is cited only if it completed"
    assert seen(judgement) == [("judge_failed", None, "the judge gave no answer: server_error: HTTP 500")]


def test_a_judge_is_read() -> None:
    said = {
        "verdict": "REJECT",
        "score": 0.25,
        "findings": ["too long", {"code": "tone", "severity": "warning", "message": "rude", "location": "line 2"}],
    }
    assert read_judge(f"\n {json.dumps(said)}\n") == Judgement(
        "REJECT",
        "0.25",
        (
            Finding(code="judge", severity="error", message="too long"),
            Finding(code="tone", severity="warning", message="rude", location="line 2"),
        ),
    )
    assert read_judge('{"verdict": "PASS"}') == Judgement("PASS")
    assert read_judge('{"verdict": "PASS", "score": null, "findings": null}') == Judgement("PASS")


@pytest.mark.parametrize(("score", "text"), [("1", "1"), ("1e-7", "0.0000001"), ('"-0.50"', "-0.50"), ("0", "0")])
def test_a_score_is_a_decimal_number_as_text(score: str, text: str) -> None:
    assert read_judge(f'{{"verdict": "PASS", "score": {score}}}').score == text


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("", "no JSON alone"),
        ("PASS", "no JSON alone"),
        ('```json\n{"verdict": "PASS"}\n```', "no JSON alone"),
        ('{"verdict": "PASS"} I am sure.', "no JSON alone"),
        ('{"verdict": "REJECT", "verdict": "PASS"}', "stands twice"),
        ('["PASS"]', "no object"),
        ("{}", "its verdict is none of"),
        ('{"verdict": "pass"}', "its verdict is none of"),
        ('{"verdict": ["PASS"]}', "its verdict is none of"),
        ('{"verdict": "ERROR"}', "its verdict is none of"),
        ('{"verdict": "PASS", "confidence": 1}', "no object of"),
        ('{"verdict": "PASS", "score": "high"}', "its score"),
        ('{"verdict": "PASS", "score": true}', "its score"),
        ('{"verdict": "PASS", "score": 1e999}', "its score"),
        ('{"verdict": "PASS", "findings": "none"}', "its findings"),
        ('{"verdict": "PASS", "findings": [3]}', "its findings"),
        ('{"verdict": "PASS", "findings": [{"code": "x"}]}', "its findings"),
        ('{"verdict": "PASS", "findings": [{"message": "m", "line": 3}]}', "its findings"),
        ("[" * 100_000, ""),
        ("\ud800", ""),
    ],
)
def test_anything_else_is_inconclusive_and_says_why(answer: str, found: str) -> None:
    judgement = read_judge(answer)
    assert (judgement.verdict, judgement.score, len(judgement.findings)) == ("INCONCLUSIVE", None, 1)
    assert judgement.findings[0].code == "judge_answer"
    assert found in judgement.findings[0].message


def test_half_a_surrogate_pair_does_not_reach_an_event() -> None:
    said = read_judge('{"verdict": "PASS", "findings": ["\\ud800!", {"message": "m", "location": "\\udfff"}]}')
    assert said.verdict == "INCONCLUSIVE"
    said.findings[0].message.encode()
    by_schema(b'"\\ud800"', {"type": "integer"}).findings[0].message.encode()

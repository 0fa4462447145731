"""Verdicts that need nobody outside: by a JSON Schema, by a condition, by reading what a judging model said. Pure.

A verdict is recomputed in a replay: its findings are words of ours, never those of a library's version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, Literal, Protocol, TypeAlias, cast

import jsonschema
from jsonschema.validators import validator_for
from referencing import Registry

from dalsegno.model.events import Finding
from dalsegno.orchestration import cel
from dalsegno.orchestration.canonical import read_json
from dalsegno.orchestration.documents import ValidatorSpec

Judged: TypeAlias = Literal["PASS", "REJECT", "INCONCLUSIVE", "ERROR"]

INPUTS: Final[cel.Inputs] = {"output": "value", "json": "value", "facts": "value"}
"""What a predicate may use: the output as text; the value that it holds as JSON (null if it is none); what the caller
says of the session."""

_JUDGE: Final = ("PASS", "REJECT", "INCONCLUSIVE")
_SCORE: Final = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?")
_FINDINGS: Final = 20
"""Kept of one verdict: a model corrects the first ones first."""
_CHARACTERS: Final = 400


@dataclass(frozen=True)
class Judgement:
    """``score``: a decimal number as text. ``basis``: what in the session the verdict rests on (rule V2)."""

    verdict: Judged
    score: str | None = None
    findings: tuple[Finding, ...] = ()
    label: str | None = None
    basis: Literal["PURE", "INFERENCE", "REPORTED"] = "PURE"


class Reported(Protocol):
    """What came from outside about a validation: ``reported`` is its verdict."""

    @property
    def reported(self) -> str: ...
    @property
    def score(self) -> str | None: ...
    @property
    def label(self) -> str | None: ...


class Asked(Protocol):
    """The inference of a judge; ``error_class`` is empty unless an attempt failed."""

    @property
    def error_class(self) -> str: ...
    @property
    def error_message(self) -> str: ...


def predicate(text: str, *, where: str) -> cel.Expression:
    """Raises InvalidDocument."""
    return cel.compile(text, INPUTS, where=where)


def decide(
    spec: ValidatorSpec,
    output: bytes,
    facts: Mapping[str, Any],
    state: Reported,
    judged: Asked | None,
    said: bytes | None,
) -> Judgement:
    """The verdict of a validator whose facts are all there. ``said``: what its judge answered, if it
    gave one. A judge that gave none is an ERROR, not a rejection."""
    if spec.reporter is not None:
        return Judgement(cast(Judged, state.reported), state.score, label=state.label, basis="REPORTED")
    if spec.agent is None:
        return judge(spec, output, facts)
    if said is not None:
        return replace(read_judge(said.decode("utf-8", "replace")), basis="INFERENCE")
    why = f"{judged.error_class}: {judged.error_message}" if judged is not None and judged.error_class else "unknown"
    return Judgement("ERROR", findings=(_finding("judge_failed", f"the judge gave no answer: {why}"),))


def judge(spec: ValidatorSpec, output: bytes, facts: Mapping[str, Any]) -> Judgement:
    """By the schema or the predicate of a validator. ERROR: it could not judge, whatever the output."""
    if spec.schema is not None:
        return _by_schema(spec.schema, output)
    if spec.predicate is not None:
        return _by_predicate(predicate(spec.predicate, where=f"validator {spec.name}"), output, facts)
    raise ValueError(f"validator {spec.name} has neither a schema nor a predicate: somebody else judges")


def read_judge(answer: str) -> Judgement:
    """What a model said as a judge: one JSON object, ``verdict`` (PASS, REJECT, INCONCLUSIVE), and if it likes
    ``score`` (a number) and ``findings`` (texts, or objects with ``message`` and, where there are any, ``code``,
    ``severity``, ``location``). Anything else, words around it too, is INCONCLUSIVE: a verdict is never guessed."""
    try:
        read = read_json(answer.encode("utf-8", "surrogatepass"))
    except ValueError as error:
        return _unread(_no_json(error))
    if not isinstance(read, dict) or not set(read) <= {"verdict", "score", "findings"}:
        return _unread("it is no object of verdict, score and findings alone")
    if read.get("verdict") not in _JUDGE:
        return _unread(f"its verdict is none of {', '.join(_JUDGE)}")
    score = _score(read.get("score"))
    if score is None and read.get("score") is not None:
        return _unread("its score is no number")
    given = read.get("findings") or []
    findings = [_given_finding(each) for each in given] if isinstance(given, list) else [None]
    if None in findings:
        return _unread("its findings are no list of texts, or of objects with a message")
    return Judgement(read["verdict"], score, tuple(each for each in findings if each)[:_FINDINGS])


def _by_schema(schema: dict[str, Any], output: bytes) -> Judgement:
    try:
        value = read_json(output)
    except ValueError as error:
        return Judgement("REJECT", findings=(_finding("not_json", f"the output: {_no_json(error)}"),))
    found = against_schema(schema, value)
    if found is None:
        return Judgement("ERROR", findings=(_finding("schema", "the schema cannot be used"),))
    return Judgement("REJECT" if found else "PASS", findings=found)


def against_schema(schema: Mapping[str, Any], value: Any) -> tuple[Finding, ...] | None:
    """What in a value is not as a JSON Schema wants it, the same in every version of the library; None: the schema is
    none."""
    try:
        errors = list(_validator(json.dumps(schema, sort_keys=True)).iter_errors(value))
    except Exception:  # a library over a foreign schema: whatever it raises, there is no verdict
        return None
    findings = {_schema_finding(error): None for error in errors}
    ordered = sorted(findings, key=lambda each: (each.location or "", each.code, each.message))
    return tuple(ordered[:_FINDINGS])


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    """Of a schema in JSON. Whether it is one takes far longer to see than using it: a tool's is used
    for each call. Raises whatever the library does."""
    read = json.loads(schema)
    kind = validator_for(read, default=jsonschema.Draft202012Validator)
    kind.check_schema(read)
    # An empty registry: no schema is fetched from anywhere.
    return kind(read, registry=Registry())


def _schema_finding(error: Any) -> Finding:
    """``code`` is the keyword; what it wanted and what was there, as JSON."""
    wanted, found = error.validator_value, error.instance
    if error.validator == "required" and isinstance(found, dict):
        wanted = [name for name in wanted if name not in found]
    where = "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in error.absolute_path)
    return _finding(str(error.validator), f"wanted: {_shown(wanted)}; found: {_shown(found)}", location=where)


def _by_predicate(expression: cel.Expression, output: bytes, facts: Mapping[str, Any]) -> Judgement:
    try:
        value = read_json(output)
    except ValueError:
        value = None
    outcome = expression.holds({"output": output.decode("utf-8", "replace"), "json": value, "facts": dict(facts)})
    if outcome.error is not None:
        return Judgement("ERROR", findings=(_finding("predicate", f"{outcome.error}: {expression.text}"),))
    if outcome.value:
        return Judgement("PASS")
    return Judgement("REJECT", findings=(_finding("predicate", f"it does not hold: {expression.text}"),))


def _no_json(error: ValueError) -> str:
    """The parser's own words, and the place it stops at, differ from version to version of Python."""
    return "it is no JSON alone" if isinstance(error, json.JSONDecodeError) else str(error)


def _unread(found: str) -> Judgement:
    return Judgement("INCONCLUSIVE", findings=(_finding("judge_answer", f"the judge's answer was not read: {found}"),))


def _given_finding(given: Any) -> Finding | None:
    if isinstance(given, str):
        return _finding("judge", given)
    if not isinstance(given, dict) or not set(given) <= {"code", "severity", "message", "location"}:
        return None
    if not all(value is None or isinstance(value, str) for value in given.values()) or not given.get("message"):
        return None
    code, severity = given.get("code") or "judge", given.get("severity") or "error"
    return _finding(code, given["message"], severity=severity, location=given.get("location"))


def _score(given: Any) -> str | None:
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return None
    if not isinstance(given, str):
        given = format(Decimal(repr(given)), "f")
    return given if _SCORE.fullmatch(given) else None


def _finding(code: str, message: str, *, severity: str = "error", location: str | None = None) -> Finding:
    return Finding(
        code=_text(code)[:100],
        severity=_text(severity)[:20],
        location=None if location is None else _text(location)[:_CHARACTERS],
        message=_text(message)[: 2 * _CHARACTERS],
    )


def _shown(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return shown if len(shown) <= _CHARACTERS // 2 else shown[: _CHARACTERS // 2] + "…"


def _text(text: str) -> str:
    """What UTF-8 cannot hold is U+FFFD: JSON may name half of a surrogate pair, an event cannot."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

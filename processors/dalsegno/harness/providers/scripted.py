"""A provider that answers from a script: for examples, tests and simulation. Deterministic; any thread may ask.

A rule with ``match``, ``session``, ``model`` or ``attempt`` answers whatever fits all of them, however often it is
asked; of these the first that fits is taken. The other rules are taken in their order, one by each request that none of
those fits; whoever asks for the same attempt again gets the same rule. The order is this process's: a session that is
resumed in another one needs rules that match. The id tells what an inference is for: ``plan.1/t1/i`` an agent's turn,
``plan.1/t2/v.style/i`` a judge, ``plan.1/t3/k1/i`` a summary. In a pattern ``*`` stands for anything, ``/`` included.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from dalsegno.errors import Failed, InvalidEvent
from dalsegno.harness.rule_files import read_rules
from dalsegno.model.events import Usage
from dalsegno.orchestration.ports import Answer, AnsweredCall, InferenceError, Request


class Call(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``arguments``: a text goes out as it is, whatever it holds; anything else as JSON."""

    name: str
    arguments: Any = msgspec.field(default_factory=dict)
    id: str | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    error_class: str = msgspec.field(name="class")
    message: str = "the script says that this inference fails"
    retryable: bool = False
    http_status: int | None = None
    retry_after_ms: int | None = None


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked (patterns), and what follows. ``text``: a mapping goes out as JSON, as a judge's answer does."""

    match: str | None = None
    session: str | None = None
    model: str | None = None
    attempt: int | None = None
    text: str | dict[str, Any] = ""
    calls: list[Call] = msgspec.field(default_factory=list)
    reasoning: str | None = None
    finish_reasons: list[str] | None = None
    usage: dict[str, int] = msgspec.field(default_factory=dict)
    cost_usd_micros: int | None = None
    complete: bool = True
    error: Failure | None = None

    @property
    def in_order(self) -> bool:
        return self.match is None and self.session is None and self.model is None and self.attempt is None

    def fits(self, request: Request) -> bool:
        return (
            (self.match is None or fnmatchcase(request.inference_id, self.match))
            and (self.session is None or fnmatchcase(request.session_id, self.session))
            and (self.model is None or fnmatchcase(request.model, self.model))
            and (self.attempt is None or self.attempt == request.attempt)
        )


class Scripted:
    """Fills ``Provider``. ``rules``: mappings, as a file would hold them, or ``Rule``s."""

    def __init__(self, rules: Sequence[Rule | Mapping[str, Any]], *, where: str = "the script") -> None:
        read = [rule if isinstance(rule, Rule) else _rule(rule, f"{where}, rule {n}") for n, rule in enumerate(rules)]
        self._where = where
        self._matching = [rule for rule in read if not rule.in_order]
        self._queue = [rule for rule in read if rule.in_order]
        self._taken: dict[tuple[str, str, int], Rule] = {}
        self._lock = threading.Lock()

    def complete(self, request: Request) -> Answer:
        rule = next((rule for rule in self._matching if rule.fits(request)), None) or self._next_in_order(request)
        if rule.error is not None:
            raise InferenceError(
                rule.error.error_class,
                rule.error.message,
                retryable=rule.error.retryable,
                http_status=rule.error.http_status,
                retry_after_ms=rule.error.retry_after_ms,
            )
        calls = tuple(AnsweredCall(call.name, _arguments(call.arguments), call.id) for call in rule.calls)
        return Answer(
            text=rule.text if isinstance(rule.text, str) else msgspec.json.encode(rule.text).decode(),
            calls=calls,
            reasoning=rule.reasoning,
            finish_reasons=tuple(rule.finish_reasons or ["tool_calls" if calls else "stop"]),
            usage=Usage(**rule.usage),
            model=request.model,
            complete=rule.complete,
            cost_usd_micros=rule.cost_usd_micros,
        )

    def _next_in_order(self, request: Request) -> Rule:
        asked = (request.session_id, request.inference_id, request.attempt)
        with self._lock:
            if asked not in self._taken:
                if len(self._taken) == len(self._queue):
                    raise self._no_answer(request)
                self._taken[asked] = self._queue[len(self._taken)]
            return self._taken[asked]

    def _no_answer(self, request: Request) -> InferenceError:
        patterns = ", ".join(rule.match or "*" for rule in self._matching) or "none"
        return InferenceError(
            "script_has_no_answer",
            f"{self._where} has no answer to inference {request.inference_id}, attempt {request.attempt}, of session "
            f"{request.session_id}; wanted: a rule that matches it (there are: {patterns}) or one more in order "
            f"(all {len(self._queue)} are taken)",
            retryable=False,
        )


def read_script(path: Path) -> Scripted:
    """A YAML or JSON file: a list of rules. Raises Failed."""
    rules = read_rules(path, "answers")
    if not isinstance(rules, list):
        raise _not_rules(str(path), f"a {type(rules).__name__}")
    return Scripted(rules, where=str(path))


def from_settings(settings: Mapping[str, Any]) -> Scripted:
    """``file``: a script; or ``rules``: the list itself."""
    if set(settings) == {"file"}:
        return read_script(Path(settings["file"]))
    if set(settings) == {"rules"} and isinstance(settings["rules"], list):
        return Scripted(settings["rules"])
    raise _not_rules("the settings of the scripted provider", f"{', '.join(sorted(settings)) or 'nothing'}")


def _rule(given: Any, where: str) -> Rule:
    try:
        rule = msgspec.convert(given, Rule)
        Usage(**rule.usage)
    except (msgspec.ValidationError, InvalidEvent) as error:
        raise _not_rules(where, str(error)) from error
    if rule.error is not None and (rule.text or rule.calls):
        raise _not_rules(where, "an error and an answer")
    return rule


def _arguments(given: Any) -> bytes:
    return given.encode() if isinstance(given, str) else msgspec.json.encode(given)


def _not_rules(where: str, found: str) -> Failed:
    return Failed(
        f"{where}: {found}",
        wanted="file, or rules: a list of rules, each with patterns (match, session, model, attempt) and what follows "
        "(text, calls, reasoning, finish_reasons, usage, cost_usd_micros, complete, or error)",
        todo="correct it as docs/harness.md shows",
        where=where,
    )

"""What people answer, from a script: for examples, tests, replays and simulation. Deterministic; nobody is asked.

A rule with ``match`` (a pattern over the id of an approval or a question), ``session`` or ``tool`` answers whatever
fits all of them; the first rule that fits is taken, as often as it is asked. ``grant`` and ``deny`` answer approvals;
``text``, ``json`` and ``decline`` questions; ``expire`` both. In a pattern ``*`` stands for anything, ``/`` included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from dalsegno.errors import Failed
from dalsegno.harness.facts import JSON, content
from dalsegno.harness.rule_files import read_rules
from dalsegno.model.events import ApprovalDenied, ApprovalExpired, ApprovalGranted, InputProvided, NewEvent
from dalsegno.orchestration.decider import World
from dalsegno.projections.decider.rows import APPROVAL, CALL, REQUEST

_OF_APPROVALS: Final = frozenset({"grant", "deny", "expire"})
_OF_QUESTIONS: Final = frozenset({"decline", "expire", None})


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked (patterns), and what follows. ``arguments``: run the call with these instead; ``effect``: of a
    denial."""

    match: str | None = None
    session: str | None = None
    tool: str | None = None
    answer: Literal["grant", "deny", "expire", "decline"] | None = None
    scope: Literal["once", "session", "rule"] = "once"
    arguments: Any = msgspec.UNSET
    effect: Literal["CONTINUE", "ABORT_TURN", "TERMINATE_SESSION"] = "CONTINUE"
    reason: str | None = None
    text: str | None = None
    json: Any = msgspec.UNSET

    @property
    def says(self) -> bool:
        """Whether it has a content of its own, which only a question can be answered by."""
        return self.text is not None or self.json is not msgspec.UNSET

    def fits(self, id: str, session: str, tool: str | None = None) -> bool:
        """``tool``: of an approval, the tool that waits for it; None of a question."""
        return (
            self.answer in (_OF_QUESTIONS if tool is None else _OF_APPROVALS)
            and (self.match is None or fnmatchcase(id, self.match))
            and (self.session is None or fnmatchcase(session, self.session))
            and (self.tool is None or (tool is not None and fnmatchcase(tool, self.tool)))
        )


class ScriptedPeople:
    """Fills ``People`` of a run: called with the world, it answers the first open question or approval that a rule
    fits, in the order of their ids. ``rules``: mappings, as a file would hold them, or ``Rule``s."""

    def __init__(self, rules: Sequence[Rule | Mapping[str, Any]], *, where: str = "the script") -> None:
        self._rules = [each if isinstance(each, Rule) else _rule(each, f"{where}, rule {n}")
                       for n, each in enumerate(rules)]  # fmt: skip

    @property
    def digest(self) -> str:
        """Over its rules, in hex."""
        return sha256(msgspec.json.encode(self._rules)).hexdigest()

    def answers_question(self, id: str, session: str) -> bool:
        """Whether a rule fits this question, so that no recorded answer to it counts."""
        return self._first(id, session) is not None

    def __call__(self, world: World) -> NewEvent | None:
        session = world.head.session
        for id, approval in sorted(world.rows.family(APPROVAL).items()):
            if approval.phase == "OPEN":
                call = world.rows.get((CALL, approval.call_id))
                rule = self._first(id, session, "" if call is None else call.name)
                if rule is not None:
                    return _to_approval(rule, id, approval.arguments)
        for id, request in sorted(world.rows.family(REQUEST).items()):
            if request.phase == "OPEN" and request.kind == "INPUT":
                rule = self._first(id, session)
                if rule is not None:
                    return _to_question(rule, id)
        return None

    def _first(self, id: str, session: str, tool: str | None = None) -> Rule | None:
        return next((rule for rule in self._rules if rule.fits(id, session, tool)), None)


def _to_approval(rule: Rule, id: str, shown: bytes | None) -> NewEvent:
    if rule.answer == "expire":
        return ApprovalExpired(approval_id=id)
    if rule.answer == "deny":
        return ApprovalDenied(
            approval_id=id, effect=rule.effect, rejection_source="USER", explanation=rule.reason
        )  # fmt: skip
    modified = None if rule.arguments is msgspec.UNSET else content(msgspec.json.encode(rule.arguments), JSON)
    return ApprovalGranted(
        approval_id=id,
        scope=rule.scope.upper(),  # type: ignore[arg-type]
        arguments_digest=shown,
        explanation=rule.reason,
        modified_arguments=modified,
    )


def _to_question(rule: Rule, id: str) -> NewEvent:
    if rule.answer is not None:
        return InputProvided(request_id=id, outcome="DECLINED" if rule.answer == "decline" else "EXPIRED")
    said = content(rule.text.encode()) if rule.text is not None else content(msgspec.json.encode(rule.json), JSON)
    return InputProvided(request_id=id, outcome="ACCEPTED", content=said)


def read_people(path: Path) -> ScriptedPeople:
    """A YAML or JSON file: a list of rules. Raises Failed."""
    rules = read_rules(path, "people's answers")
    if not isinstance(rules, list):
        raise _not_rules(str(path), f"a {type(rules).__name__}")
    return ScriptedPeople(rules, where=str(path))


def _rule(given: Any, where: str) -> Rule:
    try:
        rule = msgspec.convert(given, Rule)
    except msgspec.ValidationError as error:
        raise _not_rules(where, str(error)) from error
    if (rule.answer is None) != rule.says or (rule.text is not None and rule.json is not msgspec.UNSET):
        raise _not_rules(where, "no answer, or more than one")
    if rule.tool is not None and rule.answer not in _OF_APPROVALS:
        raise _not_rules(where, "a tool, which no question has")
    return rule


def _not_rules(where: str, found: str) -> Failed:
    return Failed(
        f"{where}: {found}",
        wanted="a list of rules, each with patterns (match, session, tool) and what follows (answer: grant with scope, "
        "arguments and reason; deny with effect and reason; expire; decline; or text, or json)",
        todo="correct it as docs/replay.md shows",
        where=where,
    )

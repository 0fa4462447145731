"""What a policy does to recorded calls: counts, with a few examples each. Pure.

Nothing grows with the number of calls: counts are by rule, by kind of change and by tool, of which there are so many at
most; examples are the first ones.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from dalsegno.orchestration.configuration import pinned
from dalsegno.orchestration.documents import Policy
from dalsegno.orchestration.policy import PolicyOutcome, evaluate
from dalsegno.orchestration.policy_history import RecordedCall

INTRODUCED_BLOCK: Final = "introduced-block"
REMOVED_BLOCK: Final = "removed-block"
APPROVAL_SAVED: Final = "approval-saved"
APPROVAL_ADDED: Final = "approval-added"
CHANGES: Final = (INTRODUCED_BLOCK, REMOVED_BLOCK, APPROVAL_SAVED, APPROVAL_ADDED)
DECISIONS: Final = ("ALLOW", "DENY", "REQUIRE_APPROVAL", "MODIFY", "SIMULATE")
TOOLS_MOST: Final = 1_000
"""Tools that are counted by name; those met later are counted together."""
OTHER_TOOLS: Final = "(others)"
ARGUMENTS_CHARACTERS: Final = 200
"""Of the arguments in an example."""

_RAN: Final = frozenset({"ran", "approved", "simulated"})
_BLOCKED: Final = frozenset({"denied", "refused"})
_ASKED: Final = frozenset({"approved", "waiting"})


def change(then: str, now: str) -> str | None:
    """What is different for the people around a call, by what became of it and what a policy decides now."""
    if now == "DENY":
        return INTRODUCED_BLOCK if then in _RAN else None
    if then == "denied" or (then == "refused" and now != "REQUIRE_APPROVAL"):
        return REMOVED_BLOCK
    if now == "REQUIRE_APPROVAL":
        return APPROVAL_ADDED if then in ("ran", "simulated") else None
    return APPROVAL_SAVED if then in _ASKED else None


@dataclass
class Cell:
    """A count with its first calls."""

    calls: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)

    def add(self, call: RecordedCall, most: int) -> None:
        self.calls += 1
        if len(self.examples) < most:
            self.examples.append(_example(call))


class Seen:
    """The calls that were met. ``calls``: those that a policy is asked about."""

    def __init__(self) -> None:
        self.calls = 0
        self._not_evaluated: Counter[str] = Counter()
        self._missing: Counter[str] = Counter()

    def fits(self, call: RecordedCall) -> bool:
        if call.unfit is not None:
            self._not_evaluated[call.unfit] += 1
            return False
        self.calls += 1
        facts = call.facts
        empty = {"stage": not call.stage, "labels": not call.labelled, "effect": facts.effect == "UNKNOWN",
                 "risk": facts.risk == "UNKNOWN"}  # fmt: skip
        self._missing.update(name for name, is_empty in empty.items() if is_empty)
        return True

    def as_data(self) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "not_evaluated": dict(sorted(self._not_evaluated.items())),
            "missing": {name: self._missing[name] for name in ("stage", "labels", "effect", "risk")},
        }


class Backtest:
    """What each rule would have matched and decided, and what would be other than it was."""

    def __init__(self, policy: Policy, examples: int) -> None:
        self._policy, self._examples = policy, examples
        self._seen = Seen()
        self._rules = {rule.id: _RuleCounts() for rule in policy.rules}
        self._default = _RuleCounts()
        self._cells: dict[tuple[str, str], Cell] = {}
        self._recorded: Counter[str] = Counter()
        self._decisions: Counter[str] = Counter()

    def add(self, call: RecordedCall) -> None:
        if not self._seen.fits(call):
            return
        outcome = _outcome(self._policy, call)
        self._count_rules(outcome)
        self._cells.setdefault((call.then, outcome.decision), Cell()).add(call, self._examples)
        if call.decision is None:
            return
        self._recorded["same" if call.decision == outcome.decision else "other"] += 1
        if call.decision != outcome.decision:
            self._decisions[f"{call.decision}->{outcome.decision}"] += 1
        if call.input_digest is not None:
            self._recorded["inputs_same" if call.input_digest == outcome.input_digest else "inputs_other"] += 1

    def _count_rules(self, outcome: PolicyOutcome) -> None:
        for look in outcome.looked_at:
            self._rules[look.rule_id].matched += look.matched
            self._rules[look.rule_id].errors += look.error is not None
        for id in outcome.rule_ids:
            if id != outcome.decided_by:
                self._rules[id].decided["MODIFY"] += 1
        if outcome.decided_by is None:
            self._default.matched += 1
            self._default.decided[self._policy.default] += 1
        else:
            decided = "DENY" if outcome.errors else self._decision_of(outcome.decided_by)
            self._rules[outcome.decided_by].decided[decided] += 1

    def _decision_of(self, rule_id: str) -> str:
        return next(rule.decision for rule in self._policy.rules if rule.id == rule_id)

    def as_data(self) -> dict[str, Any]:
        changes = dict.fromkeys(CHANGES, 0)
        cells = []
        for (then, now), cell in sorted(self._cells.items()):
            named = change(then, now)
            if named is not None:
                changes[named] += cell.calls
            cells.append({"then": then, "now": now, "change": named, "calls": cell.calls, "examples": cell.examples})
        return {
            "policy": described(self._policy),
            **self._seen.as_data(),
            "recorded": {name: self._recorded[name] for name in ("same", "other", "inputs_same", "inputs_other")},
            "recorded_other": dict(sorted(self._decisions.items())),
            "changes": changes,
            "rules": [
                *({"rule": rule.id, **self._rules[rule.id].as_data()} for rule in self._policy.rules),
                {"rule": None, **self._default.as_data()},
            ],
            "cells": cells,
        }


@dataclass
class _RuleCounts:
    matched: int = 0
    errors: int = 0
    decided: Counter[str] = field(default_factory=Counter)

    def as_data(self) -> dict[str, Any]:
        decided = {name: self.decided[name] for name in DECISIONS}
        return {"matched": self.matched, "decided": decided, "errors": self.errors}


class Difference:
    """The calls that two policies decide differently, by what each decides and which of its rules does."""

    def __init__(self, policy: Policy, other: Policy, examples: int) -> None:
        self._policy, self._other, self._examples = policy, other, examples
        self._seen = Seen()
        self._groups: dict[tuple[str, str, str, str, str], Cell] = {}

    def add(self, call: RecordedCall) -> None:
        if not self._seen.fits(call):
            return
        a, b = _outcome(self._policy, call), _outcome(self._other, call)
        what = _differs(a, b)
        if what is not None:
            key = (a.decision, b.decision, what, _rule_of(a), _rule_of(b))
            self._groups.setdefault(key, Cell()).add(call, self._examples)

    @property
    def different(self) -> int:
        return sum(cell.calls for cell in self._groups.values())

    def as_data(self) -> dict[str, Any]:
        groups = sorted(self._groups.items(), key=lambda group: (-group[1].calls, group[0]))
        return {
            "a": described(self._policy),
            "b": described(self._other),
            **self._seen.as_data(),
            "different": self.different,
            "groups": [
                {"a": a, "b": b, "differs": what, "rule_a": rule_a or None, "rule_b": rule_b or None,
                 "calls": cell.calls, "examples": cell.examples}
                for (a, b, what, rule_a, rule_b), cell in groups
            ],
        }  # fmt: skip


def _differs(a: PolicyOutcome, b: PolicyOutcome) -> str | None:
    if a.decision != b.decision:
        return "decision"
    if a.modified != b.modified:
        return "arguments"
    return "approval" if a.obligation != b.obligation else None


def _rule_of(outcome: PolicyOutcome) -> str:
    """The rule that decided, or that changed the arguments where none did; "" for the default."""
    changed = outcome.rule_ids[-1] if outcome.decision == "MODIFY" and outcome.rule_ids else ""
    return outcome.decided_by or changed


class Coverage:
    """Which calls no rule decides, by tool, and which rules match none."""

    def __init__(self, policy: Policy, examples: int) -> None:
        self._policy, self._examples = policy, examples
        self._seen = Seen()
        self._tools: dict[str, tuple[Cell, Cell]] = {}
        self._looked: Counter[str] = Counter()
        self._matched: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()

    def add(self, call: RecordedCall) -> None:
        if not self._seen.fits(call):
            return
        outcome = _outcome(self._policy, call)
        tool = call.facts.tool
        if tool not in self._tools and len(self._tools) >= TOOLS_MOST:
            tool = OTHER_TOOLS
        every, uncovered = self._tools.setdefault(tool, (Cell(), Cell()))
        every.add(call, 0)
        if outcome.decided_by is None:
            uncovered.add(call, self._examples)
        for look in outcome.looked_at:
            self._looked[look.rule_id] += 1
            self._matched[look.rule_id] += look.matched
            self._errors[look.rule_id] += look.error is not None

    def as_data(self) -> dict[str, Any]:
        tools = sorted(self._tools.items(), key=lambda each: (-each[1][1].calls, -each[1][0].calls, each[0]))
        uncovered = sum(cell.calls for _, cell in self._tools.values())
        return {
            "policy": described(self._policy),
            **self._seen.as_data(),
            "uncovered": uncovered,
            "uncovered_percent": _percent(uncovered, self._seen.calls),
            "tools": [
                {"tool": tool, "calls": every.calls, "uncovered": none.calls,
                 "uncovered_percent": _percent(none.calls, every.calls), "examples": none.examples}
                for tool, (every, none) in tools
            ],
            "never_matched": [
                {"rule": rule.id, "looked_at": self._looked[rule.id], "errors": self._errors[rule.id]}
                for rule in self._policy.rules if not self._matched[rule.id]
            ],
        }  # fmt: skip


# --- shared -----------------------------------------------------------------------------------------------------------


def described(policy: Policy) -> dict[str, Any]:
    """Its name, and its digest as a session's pin has it."""
    digest = pinned("POLICY", policy, policy.name, policy.version).digest
    return {"name": policy.name, "version": policy.version, "rules": len(policy.rules), "digest": digest.hex()}


def _outcome(policy: Policy, call: RecordedCall) -> PolicyOutcome:
    return evaluate(policy, call.facts, call.stage, call.labels, call.session)


def _percent(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 1) if whole else None


def _example(call: RecordedCall) -> dict[str, Any]:
    text = call.facts.arguments[: 4 * ARGUMENTS_CHARACTERS].decode("utf-8", "replace")
    cut = text[:ARGUMENTS_CHARACTERS]
    return {
        "session": call.session_id,
        "seq": call.seq,
        "call": call.call_id,
        "tool": call.facts.tool,
        "arguments": cut + ("…" if len(text) > len(cut) else ""),
    }

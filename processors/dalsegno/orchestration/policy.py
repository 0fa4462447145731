"""What a policy says of a tool call, and whether a guard holds. Pure.

The rules are looked at in their order. The first that matches decides, except MODIFY, after which the next rules see
the modified arguments. A condition that cannot be evaluated denies, and says so; a guard that cannot be, is false.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from dalsegno.orchestration import cel
from dalsegno.orchestration.canonical import INT64, canonical, read_arguments
from dalsegno.orchestration.documents import Decision, Effect, Obligation, Policy, PolicyRule, Risk

POLICY_INPUTS: Final[cel.Inputs] = {"call": "value", "stage": "value", "labels": "value", "session": "value"}
"""``call``: tool, arguments (an object), effect, risk. ``stage``: name. ``labels``: of the session. ``session``: turns,
tool_calls, tokens."""

GUARD_INPUTS: Final[cel.Inputs] = {
    "stage": "value",
    "stage.verdicts": "list",
    "session": "value",
    "labels": "value",
    "stages": "list",
}
"""``stage``, the one before the transition: name, attempt, status, output (text), verdicts (validator, verdict).
``session`` and ``labels`` as for policies. ``stages``, those that were begun: name, status, attempts."""


@dataclass(frozen=True)
class CallFacts:
    """A tool call. ``arguments``: the effective ones, as bytes of JSON."""

    tool: str
    arguments: bytes
    effect: Effect = "UNKNOWN"
    risk: Risk = "UNKNOWN"


@dataclass(frozen=True)
class Look:
    """One rule that was looked at."""

    rule_id: str
    matched: bool
    error: str | None = None


@dataclass(frozen=True)
class PolicyOutcome:
    """``rule_ids``: the rules that took part, in order; the last one is ``decided_by``, unless that is None, for the
    default. ``modified``: the arguments that are to be used instead. ``input``: what the conditions saw, canonical:
    the same input under the same policy has the same outcome."""

    decision: Decision
    rule_ids: tuple[str, ...]
    decided_by: str | None
    modified: bytes | None
    obligation: Obligation | None
    explanation: str
    input: bytes
    input_digest: bytes
    errors: tuple[str, ...] = ()
    looked_at: tuple[Look, ...] = ()


def evaluate(
    policy: Policy,
    call: CallFacts,
    stage: str | None,
    labels: Mapping[str, str],
    session: Mapping[str, int],
    *,
    approved: bool = False,
) -> PolicyOutcome:
    """``approved``: somebody granted the call and changed its arguments. What they are now may still be denied; that
    it needs an approval counts as done. Raises nothing: arguments that are none are denied."""
    try:
        arguments = canonical(read_arguments(call.arguments or b"{}"))
    except ValueError as unreadable:
        reason = f"the arguments cannot be read: {unreadable}"
        input = _input(call, canonical(call.arguments.hex()), stage, labels, session)
        digest = sha256(input).digest()
        return PolicyOutcome("DENY", (), None, None, None, reason, input, digest, errors=(reason,))
    input = _input(call, arguments, stage, labels, session)
    values = _as_seen(input)
    looked: list[Look] = []
    took_part: list[str] = []
    changed = arguments
    deciding: PolicyRule | None = None
    error: str | None = None
    for rule in policy.rules:
        outcome = _condition(rule).holds(values)
        looked.append(Look(rule.id, outcome.value is True and outcome.error is None, outcome.error))
        if outcome.error is None and not outcome.value:
            continue
        took_part.append(rule.id)
        if outcome.error is None and rule.decision == "MODIFY":
            changed = canonical(merged(values["call"]["arguments"], rule.merge or {}))
            values = {**values, "call": {**values["call"], "arguments": _as_seen(changed)}}
            continue
        deciding, error = rule, outcome.error
        break
    decision: Decision = "DENY" if error else deciding.decision if deciding else policy.default
    if approved and decision == "REQUIRE_APPROVAL":
        decision = "ALLOW"
    if decision == "ALLOW" and changed != arguments:
        decision = "MODIFY"
    duty = deciding.approval if deciding else policy.default_approval
    return PolicyOutcome(
        decision=decision,
        rule_ids=tuple(took_part),
        decided_by=deciding.id if deciding else None,
        modified=changed if changed != arguments and decision != "DENY" else None,
        obligation=(duty or Obligation()) if decision == "REQUIRE_APPROVAL" else None,
        explanation=_explanation(policy, deciding, error),
        input=input,
        input_digest=sha256(input).digest(),
        errors=(f"{deciding.id}: {error}",) if error and deciding else (),
        looked_at=tuple(looked),
    )


def guard(text: str, values: Mapping[str, Any]) -> tuple[bool, str | None]:
    """Whether a transition's guard holds over GUARD_INPUTS, and the error that made it false."""
    outcome = cel.compile(text, GUARD_INPUTS, where="a guard").holds(values)
    return outcome.value is True and outcome.error is None, outcome.error


def explain(policy: Policy, outcome: PolicyOutcome) -> list[str]:
    """For people, a line a rule that was looked at and one for what came of it."""
    texts = {rule.id: rule for rule in policy.rules}
    lines = []
    for look in outcome.looked_at:
        rule = texts[look.rule_id]
        state = look.error or ("matches" if look.matched else "does not match")
        lines.append(f"{rule.id}: {state}: {rule.when} -> {rule.decision}")
    return [*lines, f"{outcome.decision}: {outcome.explanation}"]


def merged(target: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7396) applied: null takes a member away."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def _condition(rule: PolicyRule) -> cel.Expression:
    return cel.compile(rule.when, POLICY_INPUTS, where=f"rule {rule.id}")


def _input(
    call: CallFacts, arguments: bytes, stage: str | None, labels: Mapping[str, str], session: Mapping[str, int]
) -> bytes:
    facts = {"tool": call.tool, "arguments": json.loads(arguments), "effect": call.effect, "risk": call.risk}
    values = {"call": facts, "stage": {"name": stage or ""}, "labels": dict(labels), "session": dict(session)}
    return canonical(values)


def _as_seen(written: bytes) -> Any:
    """Conditions see what stands in the canonical form, so that the recorded input is all that they depend on: 1.0 is
    the integer 1. An integer outside int64 was a float before it was written."""
    return json.loads(written, parse_int=lambda digits: int(digits) if int(digits) in INT64 else float(digits))


def _explanation(policy: Policy, rule: PolicyRule | None, error: str | None) -> str:
    if rule is None:
        return f"no rule decides; the default is {policy.default}"
    if error is not None:
        return f"the condition of rule {rule.id} cannot be evaluated: {error}"
    return rule.explanation or f"rule {rule.id}"

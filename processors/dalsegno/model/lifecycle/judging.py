"""``judge``: one event against the rules, and the session after it. Pure, total, a bounded number of rows per event."""

from __future__ import annotations

from typing import NamedTuple

from dalsegno.model.catalogue import CATALOGUE
from dalsegno.model.lifecycle import state as s
from dalsegno.model.lifecycle.checks import CHECKS, Check, is_open_result
from dalsegno.model.lifecycle.effects import (
    EFFECTS,
    SESSION_EFFECTS,
    Effect,
    SessionEffect,
    recovered,
    take_over,
)
from dalsegno.model.lifecycle.state import Ops, OpState, SessionState, Verdict, id_in
from dalsegno.model.lifecycle.tables import (
    AFTER_END,
    ALONE_IN_IMPORTS,
    BEFORE_START,
    HOLDING,
    IMPORTED,
    REQUIRED_IN_STRICT,
    STATUS_AFTER,
    STATUS_BEFORE,
    STEPS,
    STRICT,
    Step,
)
from dalsegno.model.records import AMENDMENT_TYPE, Event


class Plan(NamedTuple):
    """All that the tables say of one event type."""

    step: Step | None = None
    check: Check | None = None
    effect: Effect | None = None
    session_effect: SessionEffect | None = None
    status_before: tuple[frozenset[str], str] | None = None
    status_after: str | None = None
    required: tuple[str, ...] = ()
    free: bool = False
    """Nothing but its operation and its content says when it may stand in a session that goes on."""


PLANS: dict[str, Plan] = {
    type_: Plan(
        STEPS.get(type_),
        CHECKS.get(type_),
        EFFECTS.get(type_),
        SESSION_EFFECTS.get(type_),
        STATUS_BEFORE.get(type_),
        STATUS_AFTER.get(type_),
        REQUIRED_IN_STRICT.get(type_, ()),
        type_ not in STATUS_BEFORE and type_ != AMENDMENT_TYPE,
    )
    for type_ in CATALOGUE
}

PASSED = Verdict()
_NO_PLAN = Plan()
_GOES_ON = frozenset({s.RUNNING, s.PAUSED})


def judge(session: SessionState, ops: Ops, event: Event) -> Verdict:
    """The verdict on one event of the path, in order of seq; changes ``session`` and ``ops`` in place.

    Total: whatever the event holds, nothing is raised. An event with a violation changes nothing. A stub (an event
    that an amendment took) is passed over, and from there on a broken rule is a finding. A fork's SessionForked needs
    ``inherit`` first.
    """
    if event.stub is not None:
        return _pass_over(session, ops, event)
    plan = PLANS.get(event.type, _NO_PLAN)
    step = plan.step
    op: OpState | None = None
    id = ""
    if step is not None:
        id = id_in(event.body, step.id_field)
        if event.type == "SubSessionEnded" and not id:
            id = _call_of_child(ops, event)
        op = ops.get(step.kind, id)
    phase = s.ABSENT if op is None else op.phase
    broken: list[str] | tuple[()] = ()
    if not (plan.free and event.known and session.status in _GOES_ON):
        broken = _broken_frame(session, event, plan, op)
    broken = _broken(session, ops, event, plan, op, phase, broken)
    if not broken:
        return _fold(session, ops, event, plan, id, op, phase, ())
    rules = tuple(sorted(set(broken)))
    holding = HOLDING.get(session.profile)
    if session.stubs:
        violations: tuple[str, ...] = ()
    elif holding is None:
        violations = rules
    else:
        violations = tuple(rule for rule in rules if rule in holding)
    if violations:
        return Verdict(violations, tuple(rule for rule in rules if rule not in violations))
    return _fold(session, ops, event, plan, id, op, phase, rules)


def _broken(
    session: SessionState,
    ops: Ops,
    event: Event,
    plan: Plan,
    op: OpState | None,
    phase: str,
    broken: list[str] | tuple[()],
) -> list[str] | tuple[()]:
    """Rules about the event's operation and content, behind those that are broken already."""
    step = plan.step
    if step is not None and phase not in step.before and not _excused(session, event.type, step, phase):
        broken = [*broken, step.rule]
    if plan.check is not None:
        rules = plan.check(session, ops, event, op)
        if rules:
            broken = [*broken, *rules]
    if plan.required and session.profile == STRICT:
        body = event.body
        for field in plan.required:
            if body.get(field) is None:
                return [*broken, "F1"]
    return broken


def _broken_frame(session: SessionState, event: Event, plan: Plan, op: OpState | None) -> list[str] | tuple[()]:
    """Rules about when in a session an event of this type may stand at all."""
    type_, status = event.type, session.status
    broken: list[str] = []
    if not event.known and not event.ignorable:
        broken.append("E5")
    if type_ == AMENDMENT_TYPE:
        broken.append("E1")
    if plan.status_before is not None and status not in plan.status_before[0]:
        broken.append(plan.status_before[1])
    if status in _GOES_ON:
        return broken
    if status == s.NEW:
        if type_ != "SessionCreated":
            broken.append("S1")
    elif status == s.CREATED:
        if event.known and type_ not in BEFORE_START and type_ != "SessionCreated":
            broken.append("S3")
        if event.seq == 2 and session.relation == "FORK" and type_ != "SessionForked":
            broken.append("S6")
    elif event.known and type_ not in AFTER_END and not is_open_result(type_, op):
        broken.append("S4")
    return broken


def _excused(session: SessionState, type_: str, step: Step, phase: str) -> bool:
    """Whether an operation that is not known need not be: some facts stand alone in imports, and lists have limits."""
    if phase != s.ABSENT:
        return False
    if type_ in ALONE_IN_IMPORTS and session.profile == IMPORTED:
        return True
    return step.kind == s.STAGE and session.forked and session.more_stages


def _fold(
    session: SessionState,
    ops: Ops,
    event: Event,
    plan: Plan,
    id: str,
    op: OpState | None,
    before: str,
    findings: tuple[str, ...],
) -> Verdict:
    session.epoch = event.epoch
    if plan.status_after is not None:
        session.status = plan.status_after
    if plan.session_effect is not None:
        plan.session_effect(session, ops, event)
    elif event.type == "SessionRecovered":
        return Verdict((), findings, (), tuple(recovered(session, ops, event)))
    step = plan.step
    if step is None:
        return Verdict((), findings) if findings else PASSED
    if op is None:
        op = OpState()
    op.phase = step.after
    if plan.effect is not None:
        plan.effect(session, ops, event, op, before)
    ops.put(step.kind, id, op)
    kind, after = step.kind, op.phase
    if kind == s.TOOL:
        session.running += (after in s.RUNNING_PHASES) - (before in s.RUNNING_PHASES)
    was_open, is_open = before in s.OPEN_PHASES, after in s.OPEN_PHASES
    if was_open == is_open:
        return Verdict((), findings) if findings else PASSED
    session.open[s.PLACE_OF[kind]] += 1 if is_open else -1
    this = ((kind, id),)
    return Verdict((), findings, this, ()) if is_open else Verdict((), findings, (), this)


def _pass_over(session: SessionState, ops: Ops, event: Event) -> Verdict:
    """A stub: of the event's content only its type is known, so the session's own state can follow it."""
    session.stubs = True
    session.epoch = max(session.epoch, event.epoch)
    after = STATUS_AFTER.get(event.type)
    if after is not None:
        session.status = after
    if event.type == "SessionForked":
        take_over(session, ops)
    return PASSED


def _call_of_child(ops: Ops, event: Event) -> str:
    child = ops.get(s.SUBSESSION, id_in(event.body, "child_session"))
    return child.ref if child is not None else ""

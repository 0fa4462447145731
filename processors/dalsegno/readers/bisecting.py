"""The first event of a session from which on something is otherwise: by halving where a condition can be asked at any
seq, in one pass where every event has to be looked at anyway, by alignment where another session is the measure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Literal, TypeAlias

from dalsegno.errors import BlobDamaged, BlobMissing, Conflict
from dalsegno.harness.past import StoredContents
from dalsegno.model.events import Finding
from dalsegno.orchestration.documents import Policy
from dalsegno.orchestration.policy import evaluate
from dalsegno.orchestration.policy_history import RecordedCall, calls_of
from dalsegno.projections.base import Projection
from dalsegno.readers.breakpoints import Breakpoint
from dalsegno.readers.conditions import Condition, Rejects
from dalsegno.readers.lineage import counting_events, history_events
from dalsegno.readers.local import LocalReader
from dalsegno.readers.sessions import Found, steps
from dalsegno.readers.versions import RowsDiffer, compare_versions
from dalsegno.replay.bisect import Flip, find_flip
from dalsegno.replay.check import Checker
from dalsegno.replay.divergence import Ancestor, Divergence, causal_ancestors
from dalsegno.replay.serving import INEXACT, served_as
from dalsegno.replay.session_diff import Change, diff_histories
from dalsegno.state.walk import Walk
from dalsegno.storage.blobs import Blobs

Way: TypeAlias = Literal["halving", "pass", "alignment"]

_ANCESTORS_BELOW = 1_000
"""So far back the causes of an event are looked for."""


@dataclass(frozen=True)
class Answer:
    """``flips``: whether it does; None: it cannot be judged at an end. ``good``, ``bad``: how it is at the ends.

    ``flip`` is None also where a history differs at no event of this session itself. ``evaluations``, ``folded`` and
    ``most_folded`` (by one evaluation) count what halving did, ``read`` the events of a pass. ``untold``: why it could
    not be judged, and how often.
    """

    way: Way
    flips: bool | None
    flip: Flip | None = None
    good: bool | None = None
    bad: bool | None = None
    unjudged: tuple[int, ...] = ()
    untold: Mapping[str, int] = field(default_factory=dict)
    evaluations: int = 0
    folded: int = 0
    most_folded: int = 0
    read: int = 0
    call: tuple[RecordedCall, str, str] | None = None
    """Of a policy: the call, the decision now, and why."""
    rows: tuple[RowsDiffer, ...] = ()
    """Of two versions."""
    divergence: Divergence | None = None
    """Of two deciders."""
    findings: tuple[Finding, ...] = ()
    """Of a validator, where it begins to reject."""
    change: Change | None = None
    """Of two sessions."""


@dataclass(frozen=True)
class Range:
    good: int
    bad: int


class Bisecting:
    """Questions to one session."""

    def __init__(self, reader: LocalReader, found: Found, range_: Range) -> None:
        self._reader, self._found, self._range = reader, found, range_

    # --- halving -----------------------------------------------------------------------------------------------------

    def halve(self, condition: Condition, untold: Mapping[str, int], *, verify: bool) -> Answer:
        """``untold``: where the condition keeps why it could not be told."""
        walk = self._found.view.reads.walk(self._found.session_id)
        costs: list[int] = []

        def holds(seq: int) -> bool | None:
            before = walk.folded
            told = self._reader.reading(lambda: _at(walk, seq, condition))
            costs.append(walk.folded - before)
            return told

        found = find_flip(holds, self._range.good, self._range.bad, verify=verify)
        return Answer(
            "halving",
            None if found.good is None or found.bad is None else found.good != found.bad,
            found.flip,
            found.good,
            found.bad,
            found.unjudged,
            dict(untold),
            found.evaluations,
            sum(costs),
            max(costs),
        )

    def validator(self, rejects: Rejects, *, verify: bool) -> Answer:
        answer = self.halve(rejects, rejects.errors, verify=verify)
        at = None if answer.flip is None else answer.flip.first_after
        return answer if at is None else replace(answer, findings=rejects.findings.get(at, ()))

    # --- one pass ----------------------------------------------------------------------------------------------------

    def first_event(self, asked: Breakpoint) -> Answer:
        """A condition on the event alone holds at single events: the first one is found by looking at each."""
        read = 0
        for step in steps(self._reader, self._found):
            seq = step.event.seq
            if seq > self._range.bad:
                break
            read += 1
            if seq >= self._range.good and asked.holds(step.event, {}):
                return _passed(Flip(False, seq - 1, seq), read, untold=dict(asked.errors))
        return Answer("pass", False, good=False, bad=False, untold=dict(asked.errors), read=read)

    def policy(self, policy: Policy, blobs: Blobs) -> Answer:
        """The first call that the policy decides otherwise than recorded, or, where no decision is recorded, denies."""
        counting = _Counting(counting_events(self._reader, self._found.session_id))
        others: list[tuple[RecordedCall, str, str]] = []
        unjudged: list[int] = []
        for call in calls_of(self._found.session_id, counting, partial(_content, blobs)):
            if not self._range.good <= call.seq <= self._range.bad:
                continue
            if call.unfit in ("ARGUMENTS_MISSING", "ERASED"):
                unjudged.append(call.seq)
            elif call.unfit is None:
                now = evaluate(policy, call.facts, call.stage, call.labels, call.session)
                if now.decision != call.decision if call.decision else now.decision == "DENY":
                    others.append((call, now.decision, now.explanation))
        first = min(others, key=lambda each: each[0].seq, default=None)
        seq = self._range.bad if first is None else first[0].seq
        below = tuple(sorted(each for each in unjudged if each <= seq))
        untold = {"the arguments of a call are not here": len(below)} if below else {}
        if first is None:
            flips = None if below else False
            return Answer("pass", flips, None, False, flips, below, untold, read=counting.read)
        return _passed(Flip(False, min([seq, *below]) - 1, seq), counting.read, below, untold, call=first)

    def decider(self, blobs: Blobs) -> Answer:
        """The first event at which the decider of this build decides otherwise than the recorded one did."""
        checker = Checker(StoredContents(blobs), keep=1)
        checked, here = checker.result, self._found.session_id
        for event in counting_events(self._reader, here):
            own = event.session_id == here
            if own and event.seq > self._range.bad:
                break
            checker.take(event)
            if not own or event.seq < self._range.good:
                checked.divergences.clear()
            elif checked.first is not None:
                flip = Flip(False, event.seq - 1, event.seq)
                return _passed(flip, checked.events, divergence=checked.first)
        untold = dict(checked.not_comparable)
        if checked.unreconstructable is not None:
            untold.setdefault(checked.unreconstructable[1], 1)
        flips = None if untold else False
        return Answer("pass", flips, None, False, flips, untold=untold, read=checked.events)

    def versions(self, a: Projection[Any], b: Projection[Any]) -> Answer:
        """Where two versions of a projection begin to have other rows, or cease to."""
        before: bool | None = None
        read = 0
        for each in compare_versions(a, b, steps(self._reader, self._found)):
            if each.seq > self._range.bad:
                break
            read += 1
            differ = bool(each.differing)
            if before is None and each.seq >= self._range.good:
                before = differ
                if differ and each.seq == 1:
                    return _passed(Flip(False, 0, 1), read, rows=each.newly)
            if before is not None and differ != before:
                return _passed(Flip(before, each.seq - 1, each.seq), read, rows=each.newly)
        return Answer("pass", False, good=before, bad=before, read=read)

    # --- alignment ---------------------------------------------------------------------------------------------------

    def against(self, golden: Found) -> Answer:
        """The first event that is not as in another session; steps are aligned as ``session diff`` does."""
        here = self._found.session_id
        theirs, ours = (partial(history_events, self._reader, name) for name in (golden.session_id, here))
        compared = diff_histories(theirs, ours, most=1)
        read = sum(compared.events)
        if not compared.changes:
            return Answer("alignment", False, good=False, bad=False, read=read)
        change, last = compared.changes[0], compared.last_common
        below = last[1].seq if last is not None and last[1].session == here else 0
        is_here = change.b is not None and change.b.session == here
        flip = Flip(False, below, change.b.seq) if change.b is not None and is_here else None
        return Answer("alignment", True, flip, False, True, read=read, change=change)


def causes_of(walk: Walk, seq: int) -> tuple[Ancestor, ...]:
    """What led to an event, nearest first."""
    return causal_ancestors(walk.event(seq), islice(walk.below(seq), _ANCESTORS_BELOW))


def refuse_tainted(reader: LocalReader, found: Found) -> None:
    """Raises Conflict for a fork in which recorded results were served that do not fit exactly: what differs in it may
    be due to them alone."""
    if found.row.forked_from is None:
        return
    for step in steps(reader, found):
        if served_as(step.event) == INEXACT:
            raise Conflict(
                f"session {found.session_id} is tainted: the result at seq {step.event.seq} was served inexactly",
                wanted="a recorded session, or a replay in which all results were served exactly",
                todo="choose another one, or add --allow-tainted",
                session=found.session_id,
                seq=step.event.seq,
            )


def _at(walk: Walk, seq: int, condition: Condition) -> bool | None:
    walk.to(seq)
    return condition(walk)


def _passed(
    flip: Flip,
    read: int,
    unjudged: tuple[int, ...] = (),
    untold: Mapping[str, int] | None = None,
    **found: Any,
) -> Answer:
    return Answer("pass", True, flip, flip.before, not flip.before, unjudged, untold or {}, read=read, **found)


class _Counting:
    """Events, counted as they are read."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events, self.read = events, 0

    def __iter__(self) -> Iterator[Any]:
        for event in self._events:
            self.read += 1
            yield event


def _content(blobs: Blobs, blob: Mapping[str, Any]) -> bytes | None:
    try:
        return blobs.get(blob)
    except (BlobMissing, BlobDamaged):
        return None

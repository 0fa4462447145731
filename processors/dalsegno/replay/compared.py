"""A run compared with the recording that it is of: by domain id, not by position. Pure.

Decisions are compared, and facts that were made anew though the same was asked (``other_facts``). What differs behind
such a fact follows from it: it is of the fact's kind, and names it as what led to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dalsegno.model.catalogue import CATALOGUE
from dalsegno.model.records import Event
from dalsegno.replay.check import kind_of
from dalsegno.replay.divergence import ABSENT, Ancestor, Divergence, DivergenceKind, FieldDifference, compare_payloads
from dalsegno.replay.other_facts import OtherFact, other_facts
from dalsegno.replay.subjects import FACT, FIELD, fact_subject, identity, subject


@dataclass
class Compared:
    """``divergences``: in the order of the recording, what it has not behind the last that both have."""

    compared: int = 0
    equal: int = 0
    divergences: list[Divergence] = field(default_factory=list)

    @property
    def first(self) -> Divergence | None:
        return self.divergences[0] if self.divergences else None


Key = tuple[str, str, int]


class _Placed(NamedTuple):
    """What differs, by its place in the recording: a fact stands before what follows from it."""

    seq: int
    decision: bool
    found: Divergence | OtherFact


def _by_identity(events: Iterable[Event]) -> dict[Key, Event]:
    """Decisions and facts by what they have in common with another run's, and how often that came before (the attempts
    of one inference)."""
    seen: dict[tuple[str, str], int] = defaultdict(int)
    found: dict[Key, Event] = {}
    for event in events:
        which = None if event.stub is not None else identity(event)
        if which is not None:
            seen[which] += 1
            found[(*which, seen[which])] = event
    return found


def compare_run(
    recorded: Iterable[Event],
    run: Iterable[Event],
    *,
    config: bool = False,
    ignore: frozenset[str] = frozenset(),
    open_end: bool = False,
    missed: str | None = None,
    up_to_miss: bool = False,
) -> Compared:
    """``config``: the run had another configuration, by which differences are explained; ``ignore``: pointers that
    differ for that alone, such as the policy's digest; ``open_end``: the recording goes no further, the run may;
    ``missed``: which fact the run ended without; ``up_to_miss``: what it did not come to is not compared."""
    before, after = list(recorded), list(run)
    expected, actual = _by_identity(before), _by_identity(after)
    end = max((event.seq for event in expected.values() if event.type in FIELD), default=0)
    own: DivergenceKind = "CONFIG" if config else "CODE"
    result = Compared()
    placed = [_Placed(each.event.seq, False, each) for each in other_facts(before, after, config=config)]
    placed += _in_the_run_alone(expected, actual, own, end if open_end else None)
    ended = False
    for key, event in expected.items():
        other = actual.get(key)
        if event.type not in FIELD or (other is None and up_to_miss):
            continue
        result.compared += 1
        if other is None:
            # Where nothing differs before it, it is the missing fact that the run did not come past.
            ended = ended or (missed is not None and not placed)
            difference = (FieldDifference("", _said(event), ABSENT),)
            made = _divergence(event, "MISSING_RECORD" if ended else own, difference, "not in the run")
            placed.append(
                _Placed(event.seq, True, made._replace(because=f"the run ended: {missed}") if ended else made)
            )
            continue
        found = compare_payloads(event.body, other.body)
        fields = tuple(each for each in found if each.pointer not in ignore)
        if not fields:
            result.equal += 1
            continue
        kind: DivergenceKind = "CONFIG" if config else kind_of(event.type, fields)
        placed.append(_Placed(event.seq, True, _divergence(event, kind, fields, None)))
    result.divergences = _explained(sorted(placed, key=lambda each: each[:2]))
    return result


def _in_the_run_alone(
    expected: dict[Key, Event], actual: dict[Key, Event], kind: DivergenceKind, end: int | None
) -> Iterable[_Placed]:
    """Behind the last event that both have. ``end``: where the recording does, if the run may go on from there."""
    last_seq = last_decision = 0
    for key, event in actual.items():
        if key in expected:
            last_seq = expected[key].seq
            last_decision = last_seq if event.type in FIELD else last_decision
        elif event.type in FIELD and last_decision != end:
            difference = (FieldDifference("", ABSENT, _said(event)),)
            made = _divergence(event, kind, difference, "in the run alone")
            yield _Placed(last_seq + 1, True, made._replace(seq=last_seq + 1))


def _explained(placed: Iterable[_Placed]) -> list[Divergence]:
    cause: OtherFact | None = None
    found: list[Divergence] = []
    for each in placed:
        if isinstance(each.found, OtherFact):
            cause = each.found
            if cause.fields:
                found.append(_divergence(cause.event, cause.kind, cause.fields, cause.because))
        elif cause is None:
            found.append(each.found)
        else:
            led = Ancestor(cause.event.seq, cause.event.type, fact_subject(cause.event))
            found.append(each.found._replace(kind=cause.kind, causes=(led,)))
    return found


def _said(event: Event) -> dict[str, Any]:
    """A decision whole: its fields, without the envelope, in which no two runs are alike."""
    return {name: value for name, value in event.body.items() if name != "meta"}


def _divergence(
    event: Event, kind: DivergenceKind, fields: tuple[FieldDifference, ...], because: str | None
) -> Divergence:
    class_ = CATALOGUE[event.type].cls
    assert class_ != "C"
    about = fact_subject(event) if event.type in FACT else subject(event)
    return Divergence(event.seq, event.type, class_, kind, about, fields, because, ())

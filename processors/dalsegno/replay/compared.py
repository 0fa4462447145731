"""A run compared with the recording that it is of: by domain id, not by position. Pure.

Decisions are compared, and answers of models that were asked the same. Where they were asked something else, the
request is what differs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from dalsegno.model.catalogue import CATALOGUE
from dalsegno.model.records import Event
from dalsegno.replay.check import kind_of
from dalsegno.replay.divergence import ABSENT, Divergence, DivergenceKind, FieldDifference, compare_payloads
from dalsegno.replay.subjects import FIELD, subject


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


def _decisions(events: Iterable[Event]) -> dict[Key, Event]:
    """Decisions by type, subject, and how often that pair came before (the attempts of one inference)."""
    seen: dict[tuple[str, str], int] = defaultdict(int)
    found: dict[Key, Event] = {}
    for event in events:
        if event.stub is None and event.type in FIELD:
            about = subject(event)
            seen[event.type, about] += 1
            found[event.type, about, seen[event.type, about]] = event
    return found


def compare_run(
    recorded: Iterable[Event],
    run: Iterable[Event],
    *,
    config: bool = False,
    ignore: frozenset[str] = frozenset(),
    open_end: bool = False,
) -> Compared:
    """``config``: the run had another configuration, by which differences are explained; ``ignore``: pointers that
    differ for that alone, such as the policy's digest; ``open_end``: the recording goes no further, the run may."""
    before, after = list(recorded), list(run)
    expected, actual = _decisions(before), _decisions(after)
    result = Compared()
    placed: list[tuple[int, Divergence]] = list(_other_answers(before, after))
    last_seq, end = 0, max((event.seq for event in expected.values()), default=0)
    for key, event in expected.items():
        result.compared += 1
        other = actual.get(key)
        if other is None:
            difference = (FieldDifference("", _said(event), ABSENT),)
            placed.append((event.seq, _divergence(event, "CONFIG" if config else "CODE", difference, "not in the run")))
            continue
        found = compare_payloads(event.body, other.body)
        fields = tuple(each for each in found if each.pointer not in ignore)
        if not fields:
            result.equal += 1
            continue
        kind: DivergenceKind = "CONFIG" if config else kind_of(event.type, fields)
        placed.append((event.seq, _divergence(event, kind, fields, None)))
    for key, event in actual.items():
        if key in expected:
            last_seq = expected[key].seq
            continue
        if open_end and last_seq == end:
            continue
        difference = (FieldDifference("", ABSENT, _said(event)),)
        made = _divergence(event, "CONFIG" if config else "CODE", difference, "in the run alone")
        placed.append((last_seq + 1, made._replace(seq=last_seq + 1)))
    placed.sort(key=lambda each: each[0])
    result.divergences = [each for _, each in placed]
    return result


ANSWER: Final = ("complete", "output_digest", "finish_reasons", "tool_calls", "output")
"""Of an answer, what decisions are made of; times, usage and cost differ each time."""


def _other_answers(recorded: Iterable[Event], run: Iterable[Event]) -> Iterator[tuple[int, Divergence]]:
    """Output drift: the model was asked the same, and answered otherwise."""
    expected, actual = _answers(recorded), _answers(run)
    for id, (request, event) in expected.items():
        if id not in actual or actual[id][0] != request:
            continue
        sides = [{name: each.body[name] for name in ANSWER} for each in (event, actual[id][1])]
        fields = compare_payloads(*sides)
        if fields:
            yield event.seq, _divergence(event, "OUTPUT_DRIFT", fields, "the model was asked the same", id)


def _answers(events: Iterable[Event]) -> dict[str, tuple[bytes | None, Event]]:
    """By inference: the digest of what was asked, and the answer."""
    asked: dict[str, bytes | None] = {}
    found: dict[str, tuple[bytes | None, Event]] = {}
    for event in events:
        if event.stub is not None:
            continue
        if event.type == "InferenceRequested":
            asked[event.body["inference_id"]] = event.body["request_digest"]
        elif event.type == "InferenceCompleted":
            id = event.body["inference_id"]
            found[id] = (asked.get(id), event)
    return found


def _said(event: Event) -> dict[str, Any]:
    """A decision whole: its fields, without the envelope, in which no two runs are alike."""
    return {name: value for name, value in event.body.items() if name != "meta"}


def _divergence(
    event: Event,
    kind: DivergenceKind,
    fields: tuple[FieldDifference, ...],
    because: str | None,
    about: str | None = None,
) -> Divergence:
    class_ = CATALOGUE[event.type].cls
    assert class_ != "C"
    return Divergence(
        event.seq, event.type, class_, kind, subject(event) if about is None else about, fields, because, ()
    )

"""Facts of a run that are not as they were recorded, though the same was asked: causes of what differs behind them.

Only what was made anew is looked at: what was served is what was recorded. A model or a tool that answers otherwise is
OUTPUT_DRIFT; people who do, do as the options say: CONFIG. A model that was asked something else is no difference of
its own (its request is), but what follows from its answer follows from that: PROMPT_DRIFT.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dalsegno.model.records import Event
from dalsegno.replay.divergence import DivergenceKind, FieldDifference, compare_payloads
from dalsegno.replay.serving import ANSWERS, LEAVE, RESULTS, served_as
from dalsegno.replay.subjects import BEGINNINGS, FACT, fact_subject

_SAID: Final[Mapping[str, tuple[str, ...]]] = {
    "InferenceCompleted": ("complete", "output_digest", "finish_reasons", "tool_calls", "output"),
    "ToolReceiptRecorded": ("status", "exit_code", "result_digest", "result"),
    "ToolCallFailed": ("reason", "not_started"),
    "SubSessionEnded": ("outcome", "result"),
    "ApprovalGranted": ("scope", "arguments_digest", "modified_arguments"),
    "ApprovalDenied": ("effect",),
    "InputProvided": ("outcome", "content"),
    "ContextItemRetrieved": ("source_uri", "content"),
    "VerdictReported": ("verdict", "score", "label"),
}
"""Of each type of fact, what decisions are made of; times and ids differ each time."""
_COUNTED: Final = ("usage", "cost_usd_micros")
"""Of an answer: it is another one each time, and limits and policies look at it."""


class OtherFact(NamedTuple):
    """``event``: the recorded one; ``fields``: where it differs, empty where it is no difference of its own."""

    event: Event
    kind: DivergenceKind
    fields: tuple[FieldDifference, ...]
    because: str


def other_facts(recorded: Iterable[Event], run: Iterable[Event], *, config: bool = False) -> Iterator[OtherFact]:
    """``config``: the run had another configuration, by which other requests are explained."""
    before, after = _facts(recorded), _facts(run)
    for which, events in before.facts.items():
        others = after.facts.get(which, ())
        for event, other in zip(events, others, strict=False):
            found = _compare(event, other, which, before, after, config)
            if found is not None:
                yield found
                break


class _Facts(NamedTuple):
    """Facts by what they answer, in their order; and what was asked: digests of requests and arguments."""

    facts: dict[tuple[str, str], list[Event]]
    asked: dict[tuple[str, str], bytes | None]


def _facts(events: Iterable[Event]) -> _Facts:
    found = _Facts(defaultdict(list), {})
    for event in events:
        if event.stub is not None:
            continue
        if event.type in FACT and event.type not in BEGINNINGS:
            found.facts[FACT[event.type], fact_subject(event)].append(event)
        elif event.type in _ASKED:
            field, digest = _ASKED[event.type]
            found.asked[field, event.body[field]] = event.body[digest]
    return found


_ASKED: Final = {
    "InferenceRequested": ("inference_id", "request_digest"),
    "ToolCallAuthorized": ("tool_call_id", "effective_arguments_digest"),
    "ApprovalRequested": ("approval_id", "arguments_digest"),
}


def _compare(
    event: Event, other: Event, which: tuple[str, str], before: _Facts, after: _Facts, config: bool
) -> OtherFact | None:
    if served_as(other) is not None:
        return None
    fields = _differences(event, other, _SAID)
    same = before.asked.get(which) == after.asked.get(which)
    if event.type in ANSWERS:
        if not same:
            return OtherFact(event, "CONFIG" if config else "PROMPT_DRIFT", (), "the model was asked something else")
        if fields:
            return OtherFact(event, "OUTPUT_DRIFT", fields, "the model was asked the same")
        counted = _differences(event, other, {"InferenceCompleted": _COUNTED})
        return OtherFact(event, "OUTPUT_DRIFT", (), "the model counted otherwise") if counted else None
    if not fields or not same:
        return None
    if event.type in LEAVE or event.type == "InputProvided":
        return OtherFact(event, "CONFIG", fields, "people answer otherwise, as the options say")
    told = "the tool was called the same" if event.type in RESULTS else "the same was asked for"
    return OtherFact(event, "OUTPUT_DRIFT", fields, told)


def _differences(event: Event, other: Event, said: Mapping[str, Sequence[str]]) -> tuple[FieldDifference, ...]:
    if event.type != other.type:
        return (FieldDifference("", event.type, other.type),)
    names = said.get(event.type, ())
    sides: list[dict[str, Any]] = [{name: each.body[name] for name in names} for each in (event, other)]
    return compare_payloads(*sides)

"""The check of a session that another harness decided, as far as the inputs of its decisions were recorded. Pure.

Such a session has no documents of ours, so nothing is due. What a model's answer asks for is another matter: a call
that a harness recorded beside the answer must be the call that stands in it. Where an importer made both of one native
record, there is no second record to compare with: derived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dalsegno.model.records import Event
from dalsegno.replay.divergence import Divergence, compare_payloads
from dalsegno.replay.subjects import FIELD, subject

_OF_ANSWER: Final = ("tool_call_id", "inference_id", "name", "arguments_digest")
"""What of a ToolCallRequested follows from the answer alone; its effect and risk are its harness's own words."""

NO_ANSWER: Final = "no recorded answer asks for the call"
NO_DIGEST: Final = "the answer does not say its arguments"
_REASONS: Final = {
    "PolicyEvaluated": "no policy document",
    "ApprovalRequested": "no policy document",
    "ApprovalWithdrawn": "no policy document",
    "ToolCallAuthorized": "no policy document",
    "ToolCallRejected": "no policy document",
    "ToolRetryDecided": "no workflow document",
    "ContextPackBuilt": "no prompt document",
    "InferenceRequested": "no prompt document",
    "CompressionStarted": "no compression document",
    "CompressionCompleted": "no compression document",
    "CompressionFailed": "no compression document",
    "ValidationRequested": "no validator document",
    "ValidationDecided": "no validator document",
}
OTHERWISE: Final = "no workflow document"


@dataclass
class Observed:
    """Decisions of one or more sessions: compared and ``equal`` or different, ``derived``, or not comparable, with the
    reason."""

    decisions: int = 0
    equal: int = 0
    derived: int = 0
    divergences: list[Divergence] = field(default_factory=list)
    not_comparable: Counter[str] = field(default_factory=Counter)

    @property
    def different(self) -> int:
        return len(self.divergences)

    @property
    def compared(self) -> int:
        return self.equal + self.different


def check_observed(events: Iterable[Event], into: Observed | None = None) -> Observed:
    """Over one session's events in order. A stub's decision is not comparable."""
    result = Observed() if into is None else into
    listed: dict[str, tuple[Mapping[str, Any], str, Any]] = {}
    for event in events:
        if event.stub is not None:
            if event.type in FIELD:
                result.decisions += 1
                result.not_comparable[f"the event was {event.stub.lower()}"] += 1
            continue
        if event.type == "InferenceCompleted":
            for call in event.body["tool_calls"]:
                listed[call["tool_call_id"]] = (call, event.body["inference_id"], event.meta.get("origin"))
        if event.type not in FIELD:
            continue
        result.decisions += 1
        if event.type == "ToolCallRequested":
            _request(event, listed.get(event.body["tool_call_id"]), result)
        else:
            result.not_comparable[_REASONS.get(event.type, OTHERWISE)] += 1
    return result


def _request(event: Event, answer: tuple[Mapping[str, Any], str, Any] | None, result: Observed) -> None:
    if answer is None:
        result.not_comparable[NO_ANSWER] += 1
        return
    call, inference_id, origin = answer
    if call["arguments_digest"] is None or event.body["arguments_digest"] is None:
        result.not_comparable[NO_DIGEST] += 1
        return
    if _one_record(origin, event.meta.get("origin")):
        result.derived += 1
        return
    asked = {**call, "inference_id": inference_id}
    fields = compare_payloads(
        {name: event.body[name] for name in _OF_ANSWER}, {name: asked[name] for name in _OF_ANSWER}
    )
    if fields:
        result.divergences.append(
            Divergence(
                event.seq, event.type, "D", "CODE", subject(event), fields, "the answer asks for another call", ()
            )
        )
    else:
        result.equal += 1


def _one_record(answer: Mapping[str, Any] | None, call: Mapping[str, Any] | None) -> bool:
    """Whether an importer read both from the same native record."""
    return answer is not None and call is not None and bool(answer["native_ref"] == call["native_ref"])

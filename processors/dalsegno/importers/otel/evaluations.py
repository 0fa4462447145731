"""Evaluations that spans report as events: somebody's verdict on what the span did."""

from __future__ import annotations

from typing import Any

from dalsegno.importers.builder import Added
from dalsegno.importers.otel.session import Session
from dalsegno.importers.otel.spans import Span
from dalsegno.importers.payload import decimal_text, short_text
from dalsegno.model.events import ValidationDecided, ValidationRequested, VerdictReported
from dalsegno.model.payloads import Verdict
from dalsegno.model.records import Actor

_EVENT = "gen_ai.evaluation.result"
_NAME = "gen_ai.evaluation.name"
_VERDICTS: dict[str, Verdict] = {"pass": "PASS", "passed": "PASS", "fail": "REJECT", "failed": "REJECT"}
"""Labels that say themselves which they are; a number has no bound at which it passes."""


class Evaluations:
    """The evaluations of one trace."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def of(self, span: Span, target: Added | None) -> None:
        """All that the span reports. ``target``: the event that they are about, where there is one."""
        for event in span.events:
            if event.get("name") == _EVENT:
                self._one(span, event["attributes"], target)

    def _one(self, span: Span, told: dict[str, Any], target: Added | None) -> None:
        name = short_text(told.get(_NAME), 256) or "evaluation"
        validation_id = self._session.builder.number(f"{name}/v")
        label = short_text(told.get("gen_ai.evaluation.score.label")) or None
        value = told.get("gen_ai.evaluation.score.value")
        score = decimal_text(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        verdict = _VERDICTS.get((label or "").lower(), "INCONCLUSIVE")
        session, actor, at = self._session, Actor("VALIDATOR", name), span.end
        asked = ValidationRequested(
            validation_id=validation_id, validator=name, target=None if target is None else target.ref()
        )
        cause = session.add(asked, span, actor, at=at, cause=target, synthesized=True)
        evidence = [session.blobs.of_json(told)]
        reported = VerdictReported(
            validation_id=validation_id, verdict=verdict, score=score, label=label, evidence=evidence
        )
        cause = session.add(reported, span, actor, at=at, cause=cause)
        decided = ValidationDecided(
            validation_id=validation_id, basis="REPORTED", verdict=verdict, score=score, label=label
        )
        session.add(decided, span, actor, at=at, cause=cause, synthesized=True)

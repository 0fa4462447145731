"""Evaluations that spans report as events: somebody's verdict on what the span did."""

from __future__ import annotations

from functools import partial
from typing import Any

from dalsegno.importers.builder import Added
from dalsegno.importers.otel.session import Session
from dalsegno.importers.otel.spans import Span
from dalsegno.importers.payload import decimal_text, short_text
from dalsegno.importers.verdicts import report_verdict
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
        session = self._session
        add = partial(session.add, span=span, actor=Actor("VALIDATOR", name), at=span.end)
        evidence = [session.blobs.of_json(told)]
        report_verdict(add, validation_id, name, verdict, evidence, target=target, score=score, label=label)

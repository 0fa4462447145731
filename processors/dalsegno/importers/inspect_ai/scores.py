"""Scores as validations: who judged, what, and with which verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dalsegno.importers.builder import Added, SessionBuilder, Source
from dalsegno.importers.inspect_ai.record import Native, Resolver
from dalsegno.importers.inspect_ai.stages import Span
from dalsegno.importers.payload import clean_text, decimal_text
from dalsegno.model.events import Blob, ValidationAmended, ValidationDecided, ValidationRequested, VerdictReported
from dalsegno.model.records import Actor

_UNCHANGED = "UNCHANGED"
_LABELS = {"C": "PASS", "I": "REJECT", "P": "INCONCLUSIVE", "N": "INCONCLUSIVE"}


@dataclass
class Decided:
    validation_id: str
    event: Added
    verdict: str


def verdict_of(value: Any) -> str:
    """PASS and REJECT only where the value says so itself; a number has no bound at which it passes."""
    if isinstance(value, bool):
        return "PASS" if value else "REJECT"
    return _LABELS.get(value, "INCONCLUSIVE") if isinstance(value, str) else "INCONCLUSIVE"


class Scores:
    """The validations of one sample."""

    def __init__(self, builder: SessionBuilder, resolver: Resolver) -> None:
        self._builder = builder
        self._resolver = resolver
        self._requested: dict[str, tuple[Added, str]] = {}
        self._last: dict[str, Decided] = {}
        self.target: Added | None = None
        self.target_id: str | None = None

    def open_validations(self) -> list[str]:
        return list(self._requested)

    def decided(self, scorer: str) -> bool:
        return scorer in self._last

    def request(self, scorer: str, source: Source, stage_id: str | None, *, synthesized: bool = False) -> str:
        validation_id = self._builder.number(f"{scorer}/v")
        event = ValidationRequested(
            validation_id=validation_id,
            validator=scorer,
            target_id=self.target_id,
            target=None if self.target is None else self.target.ref(),
        )
        actor = Actor("VALIDATOR", scorer)
        requested = self._builder.add(
            event, source, actor, cause=self.target, stage_id=stage_id, synthesized=synthesized
        )
        self._requested[validation_id] = (requested, scorer)
        return validation_id

    def decide(
        self,
        span: Span | None,
        name: str,
        score: dict[str, Any],
        source: Source,
        stage_id: str | None,
        *,
        intermediate: bool = False,
    ) -> None:
        """One score. In a scorer's span it ends that span's validation; a model asked there is its basis."""
        validation_id = span.validation_id if span is not None else None
        if validation_id is None or validation_id not in self._requested:
            validation_id = self.request(name, source, stage_id, synthesized=True)
        requested, scorer = self._requested.pop(validation_id)
        actor = Actor("VALIDATOR", scorer)
        value = score.get("value")
        verdict, label, number = verdict_of(value), _label(value), _number(value)
        evidence: list[Blob] = [self._builder.blobs.of_json(self._resolver.value(score))]
        inference_id = span.inference_id if span is not None else None
        cause = requested
        if inference_id is None:
            reported = VerdictReported(
                validation_id=validation_id,
                verdict=verdict,  # type: ignore[arg-type]
                score=number,
                label=label,
                evidence=evidence,
            )
            cause = self._builder.add(reported, source, actor, cause=requested, stage_id=stage_id)
            evidence = []
        decided = ValidationDecided(
            validation_id=validation_id,
            basis="REPORTED" if inference_id is None else "INFERENCE",
            verdict=verdict,  # type: ignore[arg-type]
            intermediate=intermediate,
            score=number,
            label=label,
            inference_id=inference_id,
            evidence=evidence,
        )
        added = self._builder.add(decided, source, actor, cause=cause, stage_id=stage_id)
        self._last[scorer] = Decided(validation_id, added, verdict)

    def edit(self, native: Native, source: Source) -> bool:
        """A score that was changed afterwards; False where no such score is known."""
        last = self._last.get(clean_text(str(native.data.get("score_name"))))
        edit = native.data.get("edit")
        if last is None or not isinstance(edit, dict):
            return False
        native.take("score_name")
        native.take("edit")
        provenance = edit.get("provenance")
        said = provenance if isinstance(provenance, dict) else {}
        value = edit.get("value", _UNCHANGED)
        if value != _UNCHANGED:
            last.verdict = verdict_of(value)
        event = ValidationAmended(
            validation_id=last.validation_id,
            verdict=last.verdict,  # type: ignore[arg-type]
            replaces=last.event.ref(),
            score=None if value == _UNCHANGED else _number(value) or _label(value),
            reason=_text(said.get("reason")),
            provenance=_text(said.get("author")),
        )
        actor = Actor("OPERATOR", _text(said.get("author")) or "unknown")
        last.event = self._builder.add(event, source, actor, cause=last.event)
        return True


def _label(value: Any) -> str | None:
    return clean_text(value)[:1024] if isinstance(value, str) else None


def _number(value: Any) -> str | None:
    return decimal_text(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return clean_text(value)[:8192] if isinstance(value, str) and value else None

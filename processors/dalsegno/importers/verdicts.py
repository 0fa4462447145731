"""A verdict that somebody else reported: what was asked, what was said, and that it counts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dalsegno.importers.builder import Added
from dalsegno.model.events import Blob, NewEvent, ValidationDecided, ValidationRequested, VerdictReported
from dalsegno.model.payloads import Verdict


class Add(Protocol):
    """Appends an event in the name of the validator."""

    def __call__(self, event: NewEvent, /, *, cause: Added | None, synthesized: bool = False) -> Added: ...


def report_verdict(
    add: Add,
    validation_id: str,
    validator: str,
    verdict: Verdict,
    evidence: Sequence[Blob],
    *,
    target: Added | None = None,
    score: str | None = None,
    label: str | None = None,
) -> None:
    """That it was asked for follows from the verdict. ``target``: the event that it is about, where there is one."""
    asked = ValidationRequested(
        validation_id=validation_id, validator=validator, target=None if target is None else target.ref()
    )
    cause = add(asked, cause=target, synthesized=True)
    reported = VerdictReported(
        validation_id=validation_id, verdict=verdict, score=score, label=label, evidence=evidence
    )
    cause = add(reported, cause=cause)
    decided = ValidationDecided(
        validation_id=validation_id, basis="REPORTED", verdict=verdict, score=score, label=label
    )
    add(decided, cause=cause)

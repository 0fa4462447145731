"""Validations of a stage's answer: what is asked, and the verdict, from whoever judged. Pure."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Final

from dalsegno.model.events import Blob, Finding, NewEvent, ValidationDecided, ValidationRequested
from dalsegno.orchestration.canonical import canonical
from dalsegno.orchestration.decider import moves
from dalsegno.orchestration.decider.world import World
from dalsegno.orchestration.validation import Judgement, decide
from dalsegno.projections.decider.rendering import text_of
from dalsegno.projections.decider.rows import VALIDATION, ValidationState

_SHOWN: Final = 2000
"""Bytes of a report's end, where errors stand, that the next turn is shown."""


def _verdict(world: World, id: str) -> Judgement:
    """The verdict on the stage's answer, once whoever judges has spoken."""
    state: ValidationState = world.rows.get((VALIDATION, id))
    spec = world.validator(state.validator)
    answer = world.head.answer
    output = b"" if answer is None else world.contents.get(answer)
    judged = world.inference(f"{id}/i")
    answered = judged is not None and judged.phase == "DONE" and judged.text is not None
    said = world.contents.get(judged.text) if judged is not None and judged.text is not None and answered else None
    found = decide(spec, output, moves.guard_values(world), state, judged, said)
    if found.basis == "REPORTED" and found.verdict != "PASS":
        return replace(found, findings=tuple(_reported(world.contents.get(each)) for each in state.evidence))
    return found


def _reported(evidence: bytes) -> Finding:
    return Finding(code="reported", severity="error", message=text_of(evidence[-_SHOWN:]))


def validation_requested(world: World, id: str) -> NewEvent:
    spec = world.validator(id.rpartition("/v.")[2])
    criteria = {"schema": spec.schema, "predicate": spec.predicate, "prompt": spec.prompt, "reporter": spec.reporter}
    return ValidationRequested(
        validation_id=id,
        validator=spec.name,
        validator_version=spec.version,
        target_id=id.rpartition("/v.")[0],
        target_digest=world.head.answer,
        validator_digest=world.configuration.digests["VALIDATORS"],
        criteria_digest=sha256(canonical(criteria)).digest(),
    )


def validation_decided(world: World, id: str) -> NewEvent:
    state: ValidationState = world.rows.get((VALIDATION, id))
    found = _verdict(world, id)
    return ValidationDecided(
        validation_id=id,
        basis=found.basis,
        verdict=found.verdict,
        intermediate=False,
        score=found.score,
        label=found.label,
        inference_id=f"{id}/i" if found.basis == "INFERENCE" else None,
        findings=list(found.findings),
        evidence=[_evidence(world, digest) for digest in state.evidence],
    )


def _evidence(world: World, digest: bytes) -> Blob:
    return world.blob(world.contents.get(digest))

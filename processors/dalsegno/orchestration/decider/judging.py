"""The verdict of a validator on a stage's answer, from whoever judged it. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dalsegno.model.events import Finding
from dalsegno.orchestration.decider import moves
from dalsegno.orchestration.decider.world import World
from dalsegno.orchestration.validation import Judgement, decide
from dalsegno.projections.decider.rendering import text_of
from dalsegno.projections.decider.rows import VALIDATION, ValidationState

_SHOWN: Final = 2000
"""Bytes of a report's end, where errors stand, that the next turn is shown."""


def decided(world: World, id: str) -> Judgement:
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

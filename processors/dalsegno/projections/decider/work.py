"""Stages, turns, what is asked before them and judged after them: their part of the decider's fold. Pure, total."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dalsegno.model.lifecycle.state import bounded
from dalsegno.model.records import Event
from dalsegno.projections.base import cut
from dalsegno.projections.decider import rendering
from dalsegno.projections.decider.calls import close_turn_calls
from dalsegno.projections.decider.rows import (
    GUARD,
    INFERENCE,
    ITEM,
    LISTED,
    PENDING,
    PIN,
    REQUEST,
    STAGE,
    TEXT,
    VALIDATION,
    Head,
    RequestState,
    StageState,
    ValidationState,
)
from dalsegno.projections.decider.table import (
    ASKED,
    FINDINGS,
    OUTPUT,
    DeciderRows,
    Keep,
    content_of,
    learn,
    put_item,
)

_KINDS: Final = (
    "WORKFLOW", "POLICY", "COMPRESSION_RULES", "TOOL_CATALOG", "PROMPT_TEMPLATE", "MODEL_PARAMS", "VALIDATORS",
    "REDACTION", "HARNESS_BUILD", "TOKENIZER",
)  # fmt: skip


def _come_into_force(rows: DeciderRows, effective: tuple[str, ...]) -> None:
    for kind in _KINDS:
        pin = rows.get((PENDING, kind))
        if pin is not None and pin.effective in effective:
            rows.delete((PENDING, kind))
            rows.put((PIN, kind), pin)


# --- stages -----------------------------------------------------------------------------------------------------------


def _transition(rows: DeciderRows, head: Head, event: Event, _keep: Keep) -> None:
    head.moved, head.to_stage = True, bounded(event.body["to_stage"])
    taken = event.body["transition_id"]
    head.transition_id = None if taken is None else bounded(taken)
    rows.delete((GUARD, head.last_stage))


def _scheduled(rows: DeciderRows, head: Head, event: Event, _keep: Keep) -> None:
    body = event.body
    name = bounded(body["stage_name"])
    _forget_validations(rows, head)
    head.stage, head.stage_name, head.stage_attempt = bounded(body["stage_id"]), name, body["attempt"]
    head.stage_phase, head.to_stage = "SCHEDULED", ""
    head.stage_turns = head.stage_calls = 0
    head.answered, head.rejected, head.answer, head.abort = False, False, None, ""
    before = rows.get((STAGE, name))
    failed = 0 if before is None else before.failed
    rows.put((STAGE, name), StageState(attempt=body["attempt"], status="SCHEDULED", failed=failed))
    _come_into_force(rows, ("NEXT_STAGE", "NOW"))


def _stage_started(_rows: DeciderRows, head: Head, event: Event, _keep: Keep) -> None:
    if head.stage == bounded(event.body["stage_id"]):
        head.stage_phase = "ACTIVE"


def _stage_ended(status: str) -> Callable[[DeciderRows, Head, Event, Keep], None]:
    def fold(rows: DeciderRows, head: Head, event: Event, keep: Keep) -> None:
        body = event.body
        stage = bounded(body["stage_id"])
        name, _, _attempt = stage.rpartition(".")
        state = rows.get((STAGE, name))
        if state is None or head.stage != stage:
            return
        state.status = status
        if status == "COMPLETED":
            state.outputs = learn(body["outputs"], keep) or body["outputs_digest"]
            content = rendering.outputs(stage, content_of(body["outputs"]))
            put_item(
                rows, head, keep, id=f"{stage}/out", seq=event.seq, kind="MESSAGE", content=content,
                turn=head.turn_ordinal, phase=OUTPUT,
            )  # fmt: skip
        elif status == "FAILED":
            state.failed += 1
            error = body["error"]
            state.error_class, state.error_message = error["error_class"][:TEXT], error["message"][:TEXT]
        rows.put((STAGE, name), state)
        _forget_requests(rows, head)
        head.stage = head.stage_phase = ""
        head.last_stage, head.moved = name, False

    return fold


def _forget_requests(rows: DeciderRows, head: Head) -> None:
    """But those without an answer: an end of the session lists them."""
    for id in head.requests:
        state = rows.get((REQUEST, id))
        if state is not None and state.phase != "OPEN":
            rows.delete((REQUEST, id))
    head.requests = []


# --- turns ------------------------------------------------------------------------------------------------------------


def _turn_started(rows: DeciderRows, head: Head, event: Event, _keep: Keep) -> None:
    _forget_validations(rows, head)
    if head.inference:
        rows.delete((INFERENCE, head.inference))
    head.turn = bounded(event.body["turn_id"])
    head.turn_ordinal += 1
    head.turns += 1
    head.stage_turns += 1
    head.packs, head.stale, head.fits, head.inference, head.calls = 0, False, True, "", 0
    head.abort, head.answered, head.rejected, head.answer = "", False, False, None
    head.failed_rules = []
    _come_into_force(rows, ("NEXT_TURN", "NOW"))


def _turn_completed(rows: DeciderRows, head: Head, event: Event, keep: Keep) -> None:
    inference = rows.get((INFERENCE, head.inference))
    if inference is not None:
        head.answered, head.answer = not inference.calls, inference.text
    close_turn_calls(rows, head, event, keep, None)
    head.turn = ""


def _turn_aborted(rows: DeciderRows, head: Head, event: Event, keep: Keep) -> None:
    close_turn_calls(rows, head, event, keep, event.body["reason"])
    head.turn, head.answered, head.abort = "", False, event.body["reason"]


# --- retrievals and questions -----------------------------------------------------------------------------------------


def _requested(kind: str, id_field: str) -> Callable[[DeciderRows, Head, Event, Keep], None]:
    def fold(rows: DeciderRows, head: Head, event: Event, keep: Keep) -> None:
        id = bounded(event.body[id_field])
        if len(head.requests) >= LISTED:
            return
        at = event.meta.get("recorded_at") or 0
        rows.put((REQUEST, id), RequestState(kind, "OPEN", at, event.body.get("ttl_ms")))
        head.requests = [*head.requests, id]
        prompt = event.body.get("prompt")
        if prompt is not None:
            put_item(
                rows, head, keep, id=_asked_id(id), seq=event.seq, kind="MESSAGE", turn=head.turn_ordinal, phase=ASKED,
                index=2 * _place(head.requests, id), content=rendering.asked(event.body[id_field], content_of(prompt)),
            )  # fmt: skip

    return fold


def _retrieved(rows: DeciderRows, head: Head, event: Event, keep: Keep) -> None:
    body = event.body
    learn(body["content"], keep)
    content = rendering.retrieved(body["item_id"], body["source_uri"], content_of(body["content"]))
    _request_done(rows, head, event, keep, bounded(body["item_id"]), "RETRIEVED", content)


def _provided(rows: DeciderRows, head: Head, event: Event, keep: Keep) -> None:
    body = event.body
    learn(body["content"], keep)
    content = rendering.provided(body["request_id"], body["outcome"], content_of(body["content"]))
    _request_done(rows, head, event, keep, bounded(body["request_id"]), "MESSAGE", content)


def _request_done(rows: DeciderRows, head: Head, event: Event, keep: Keep, id: str, kind: str, content: bytes) -> None:
    state = rows.get((REQUEST, id))
    if state is not None:
        state.phase = "DONE"
        rows.put((REQUEST, id), state)
    put_item(
        rows, head, keep, id=id, seq=event.seq, kind=kind, content=content, turn=head.turn_ordinal, phase=ASKED,
        index=2 * _place(head.requests, id) + 1,  # behind its question
    )  # fmt: skip


def request_recovered(rows: DeciderRows, _head: Head, _event: Event, _keep: Keep, id: str, resolution: str) -> None:
    state = rows.get((REQUEST, id))
    if state is not None and resolution in ("FAILED", "ABANDONED"):
        state.phase = "GIVEN_UP"
        rows.put((REQUEST, id), state)
        rows.delete((ITEM, _asked_id(id)))  # a question that nobody answered tells nothing


def _asked_id(request_id: str) -> str:
    """The item that says what a person was asked."""
    return bounded(f"{request_id}/asked")


# --- validation -------------------------------------------------------------------------------------------------------


def _validation_requested(rows: DeciderRows, head: Head, event: Event, _keep: Keep) -> None:
    id = bounded(event.body["validation_id"])
    if len(head.validations) >= LISTED:
        return
    rows.put((VALIDATION, id), ValidationState(bounded(event.body["validator"]), "OPEN"))
    head.validations = [*head.validations, id]


def _reported(rows: DeciderRows, _head: Head, event: Event, keep: Keep) -> None:
    body = event.body
    state = rows.get((VALIDATION, bounded(body["validation_id"])))
    if state is None:
        return
    state.reported, state.score, state.label = body["verdict"], cut(body["score"]), cut(body["label"])
    state.evidence = [digest for digest in (learn(blob, keep) for blob in body["evidence"][:16]) if digest is not None]
    rows.put((VALIDATION, bounded(body["validation_id"])), state)


def _decided(rows: DeciderRows, head: Head, event: Event, keep: Keep) -> None:
    body = event.body
    id = bounded(body["validation_id"])
    state = rows.get((VALIDATION, id))
    rows.delete((INFERENCE, f"{id}/i"))
    if state is None:
        return
    state.phase, state.verdict = "DONE", body["verdict"]
    rows.put((VALIDATION, id), state)
    if body["verdict"] == "PASS":
        return
    head.rejected = True
    content = rendering.findings(state.validator, body["verdict"], body["findings"])
    put_item(
        rows, head, keep, id=id, seq=event.seq, kind="MESSAGE", content=content, turn=head.turn_ordinal,
        phase=FINDINGS, index=_place(head.validations, id),
    )  # fmt: skip


def validation_recovered(rows: DeciderRows, head: Head, _event: Event, _keep: Keep, id: str, resolution: str) -> None:
    state = rows.get((VALIDATION, id))
    if state is not None and resolution in ("FAILED", "ABANDONED"):
        state.phase, state.verdict, head.rejected = "GIVEN_UP", "ERROR", True
        rows.put((VALIDATION, id), state)


def _place(ids: list[str], id: str) -> int:
    """In the order in which they were asked, whatever the order of the answers."""
    return ids.index(id) if id in ids else len(ids)


def _forget_validations(rows: DeciderRows, head: Head) -> None:
    for id in head.validations:
        rows.delete((VALIDATION, id))
    head.validations = []


FOLDS: Final[dict[str, Any]] = {
    "TransitionTaken": _transition,
    "StageScheduled": _scheduled,
    "StageStarted": _stage_started,
    "StageCompleted": _stage_ended("COMPLETED"),
    "StageFailed": _stage_ended("FAILED"),
    "StageSkipped": _stage_ended("SKIPPED"),
    "StageCancelled": _stage_ended("CANCELLED"),
    "TurnStarted": _turn_started,
    "TurnCompleted": _turn_completed,
    "TurnAborted": _turn_aborted,
    "RetrievalRequested": _requested("RETRIEVAL", "item_id"),
    "InputRequested": _requested("INPUT", "request_id"),
    "ContextItemRetrieved": _retrieved,
    "InputProvided": _provided,
    "ValidationRequested": _validation_requested,
    "VerdictReported": _reported,
    "ValidationDecided": _decided,
}

"""The projection ``sessions``: one row per session, what a list of sessions shows. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from dalsegno.model.lifecycle import Verdict, tables
from dalsegno.model.lifecycle.state import APPROVAL, INPUT, OPERATIONS, RUNNING
from dalsegno.model.records import FIRST_SEQ, Event
from dalsegno.projections.base import ALL, HeadFacts, Projection, Rows, clock, cut, digest_of, kept_id, plus
from dalsegno.projections.failed_calls import FAILED_AFTER
from dalsegno.projections.rows import SessionRow, SessionStatus

_OPERATIONS = frozenset(OPERATIONS)

STATUS_AFTER: Final = cast("dict[str, SessionStatus]", {**tables.STATUS_AFTER, "SessionForked": RUNNING})
"""Event type -> status of its session behind it; of a fork's, which the rules take over from its parent, too."""


class Sessions(Projection[SessionRow]):
    name = "sessions"
    version = 2
    handles = ALL
    row = SessionRow

    def fold(self, rows: Rows[SessionRow], event: Event, verdict: Verdict) -> None:
        row = rows.get() or SessionRow()
        at = clock(event.meta)
        if event.seq == FIRST_SEQ:
            row.started_at = at
        if at is not None:
            row.last_event_at = at
        _, findings, opened, closed = verdict
        if findings or opened or closed:
            row.findings += len(findings)
            for kind, _ in opened:
                _count_open(row, kind, 1)
            for kind, _ in closed:
                _count_open(row, kind, -1)
        change = _CHANGES.get(event.type)
        if change is not None:
            change(row, event.body, verdict)
        rows.put((), row)

    def fold_violation(self, rows: Rows[SessionRow], _event: Event, verdict: Verdict) -> None:
        row = rows.get() or SessionRow()
        row.violations += 1
        row.findings += len(verdict.findings)
        rows.put((), row)

    def fold_stub(self, rows: Rows[SessionRow], event: Event) -> None:
        status = STATUS_AFTER.get(event.type)
        if status is not None:
            row = rows.get() or SessionRow()
            row.status = status
            rows.put((), row)

    def fold_head(self, rows: Rows[SessionRow], head: HeadFacts) -> None:
        row = rows.get() or SessionRow()
        row.last_seq, row.head_hash, row.epoch = head.seq, head.hash, head.epoch
        row.events, row.stubs, row.superseded = head.seq, head.stubs, head.superseded
        row.held_reason, row.held_seq = head.held_reason, head.held_seq
        rows.put((), row)


def _count_open(row: SessionRow, kind: str, by: int) -> None:
    if kind in _OPERATIONS:
        row.operations_open += by
        if kind == APPROVAL:
            row.approvals_open += by
        elif kind == INPUT:
            row.inputs_open += by


# --- what single types change -----------------------------------------------------------------------------------------


def _set_status(status: SessionStatus) -> Callable[[SessionRow, Any, Verdict], None]:
    def change(row: SessionRow, _body: Any, _: Verdict) -> None:
        row.status = status

    return change


def _count_failed(after: Callable[[int, Any, Verdict], int]) -> Callable[[SessionRow, Any, Verdict], None]:
    def change(row: SessionRow, body: Any, verdict: Verdict) -> None:
        row.failed_tool_calls = after(row.failed_tool_calls, body, verdict)

    return change


def _created(row: SessionRow, body: Any, _: Verdict) -> None:
    row.status = STATUS_AFTER["SessionCreated"]
    row.profile = body["profile"]
    row.workflow_name = cut(body["workflow_name"]) or ""
    row.goal_digest = digest_of(body["goal"])
    row.relation, row.parent_session = body["relation"], kept_id(body["parent_session"])


def _forked(row: SessionRow, body: Any, _: Verdict) -> None:
    row.status = STATUS_AFTER["SessionForked"]
    row.forked_from = kept_id(body["parent_session"])
    row.forked_at_seq = body["parent_at"]["seq"]


def _session_completed(row: SessionRow, body: Any, _: Verdict) -> None:
    row.status, row.outcome = STATUS_AFTER["SessionCompleted"], body["outcome"]


def _session_failed(row: SessionRow, body: Any, _: Verdict) -> None:
    row.status = STATUS_AFTER["SessionFailed"]
    row.error_class = cut(body["error"]["error_class"])
    row.error_message = cut(body["error"]["message"])


def _stage_started(row: SessionRow, body: Any, _: Verdict) -> None:
    row.stage_id = kept_id(body["stage_id"])


def _turn_started(row: SessionRow, body: Any, _: Verdict) -> None:
    row.turns += 1
    stage_id = body["meta"].get("stage_id")
    if stage_id is not None:
        row.stage_id = kept_id(stage_id)
    if body["agent"] is not None:
        row.agent = cut(body["agent"])


def _message(row: SessionRow, _body: Any, _: Verdict) -> None:
    row.messages += 1


def _compressed(row: SessionRow, _body: Any, _: Verdict) -> None:
    row.compressions += 1


def _inference_requested(row: SessionRow, body: Any, _: Verdict) -> None:
    if body["model"] is not None:
        row.model = cut(body["model"])


def _inference_completed(row: SessionRow, body: Any, _: Verdict) -> None:
    row.inferences += 1
    if body["model"] is not None:
        row.model = cut(body["model"])
    usage = body["usage"]
    row.input_tokens = plus(row.input_tokens, usage["input"] or 0)
    row.output_tokens = plus(row.output_tokens, usage["output"] or 0)
    row.cache_read_tokens = plus(row.cache_read_tokens, usage["cache_read"] or 0)
    row.cache_creation_tokens = plus(row.cache_creation_tokens, usage["cache_creation"] or 0)
    row.reasoning_tokens = plus(row.reasoning_tokens, usage["reasoning"] or 0)
    row.cost_usd_micros = plus(row.cost_usd_micros, body["cost_usd_micros"] or 0)


def _call_requested(row: SessionRow, _body: Any, _: Verdict) -> None:
    row.tool_calls += 1


def _validated(row: SessionRow, body: Any, _: Verdict) -> None:
    if not body["intermediate"]:
        row.verdict, row.score = body["verdict"], cut(body["score"])


def _validation_amended(row: SessionRow, body: Any, _: Verdict) -> None:
    row.verdict, row.score = body["verdict"], cut(body["score"])


_CHANGES: dict[str, Callable[[SessionRow, Any, Verdict], None]] = {
    **{type_: _set_status(status) for type_, status in STATUS_AFTER.items()},
    **{type_: _count_failed(after) for type_, after in FAILED_AFTER.items()},
    "SessionCreated": _created,
    "SessionForked": _forked,
    "SessionCompleted": _session_completed,
    "SessionFailed": _session_failed,
    "StageStarted": _stage_started,
    "TurnStarted": _turn_started,
    "MessageReceived": _message,
    "CompressionCompleted": _compressed,
    "InferenceRequested": _inference_requested,
    "InferenceCompleted": _inference_completed,
    "ToolCallRequested": _call_requested,
    "ValidationDecided": _validated,
    "ValidationAmended": _validation_amended,
}

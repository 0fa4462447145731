"""Inferences, packs, compressions and messages: their part of the decider's fold. Pure, total."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

from dalsegno.model.lifecycle.state import bounded
from dalsegno.model.records import Event
from dalsegno.projections.base import plus
from dalsegno.projections.decider import rendering
from dalsegno.projections.decider.rows import (
    COMPRESSION,
    INFERENCE,
    ITEM,
    LISTED,
    PACKED,
    TEXT,
    CompressionState,
    Head,
    InferenceState,
    Item,
    Packed,
)
from dalsegno.projections.decider.table import (
    ANSWER,
    BETWEEN,
    MEANWHILE,
    DeciderRows,
    Keep,
    content_of,
    learn,
    put_item,
)

_MASKED: Final = frozenset({"MASK", "DEDUP"})


# --- inference --------------------------------------------------------------------------------------------------------


def _inference_requested(rows: DeciderRows, head: Head, event: Event, _keep: Keep) -> None:
    body = event.body
    id = bounded(body["inference_id"])
    state = rows.get((INFERENCE, id)) or InferenceState(
        purpose=body["purpose"],
        subject_id=None if body["subject_id"] is None else bounded(body["subject_id"]),
        attempt=0,
        phase="",
        request_digest=body["request_digest"],
    )
    state.attempt, state.phase, state.delay_ms = body["attempt"], "OPEN", body["delay_ms"]
    rows.put((INFERENCE, id), state)
    if body["purpose"] == "AGENT":
        head.inference = id


def _inference_completed(rows: DeciderRows, head: Head, event: Event, keep: Keep) -> None:
    body = event.body
    id = bounded(body["inference_id"])
    state = rows.get((INFERENCE, id))
    usage = body["usage"]
    head.tokens = plus(plus(head.tokens, usage["input"] or 0), usage["output"] or 0)
    head.cost_usd_micros = plus(head.cost_usd_micros, body["cost_usd_micros"] or 0)
    if state is None:
        return
    text = rendering.said(body["output"]).encode()
    state.phase, state.text = "DONE", sha256(text).digest()
    keep(state.text, text)
    if state.purpose == "AGENT":
        asked = [part for part in body["output"] if part["kind"] == "TOOL_CALL"]
        for place, call in enumerate(body["tool_calls"][:LISTED]):
            arguments = content_of(asked[place]["blob"]) if place < len(asked) else b""
            if place < len(asked) and asked[place]["blob"] is None:
                arguments = (asked[place]["text"] or "").encode("utf-8", "surrogatepass")
            digest = call["arguments_digest"] or sha256(arguments).digest()
            keep(sha256(arguments).digest(), arguments)
            native = asked[place]["call_id"] if place < len(asked) else None
            known = None if native is None else native[:TEXT]
            state.calls.append((bounded(call["tool_call_id"]), known, bounded(call["name"]), digest))
        head.calls = len(state.calls)
        put_item(
            rows, head, keep, id=id, seq=event.seq, kind="MESSAGE", content=rendering.assistant(body),
            turn=head.turn_ordinal, phase=ANSWER,
        )  # fmt: skip
    rows.put((INFERENCE, id), state)


def _inference_failed(rows: DeciderRows, _head: Head, event: Event, _keep: Keep) -> None:
    body = event.body
    id = bounded(body["inference_id"])
    state = rows.get((INFERENCE, id))
    if state is None:
        return
    error = body["error"]
    state.phase, state.retryable = "ATTEMPT_FAILED", error["retryable"] is True
    state.error_class, state.error_message = error["error_class"][:TEXT], error["message"][:TEXT]
    state.retry_after_ms = body["retry_after_ms"]
    state.failed += 1
    rows.put((INFERENCE, id), state)


def inference_recovered(rows: DeciderRows, _head: Head, _event: Event, _keep: Keep, id: str, resolution: str) -> None:
    """Nobody will hand in the answer of the lost attempt: it is asked for anew, and counts against no limit."""
    state = rows.get((INFERENCE, id))
    if state is not None and state.phase == "OPEN" and resolution not in ("KEEP_WAITING", "AWAIT_RECEIPT"):
        state.phase = "RECOVERED"
        rows.put((INFERENCE, id), state)


# --- packs and compression --------------------------------------------------------------------------------------------


def _pack_built(rows: DeciderRows, head: Head, event: Event, _keep: Keep) -> None:
    body = event.body
    for item in body["removed"]:
        rows.delete((PACKED, bounded(item)))
    for item in body["added"]:
        rows.put((PACKED, bounded(item["item_id"])), Packed(item["digest"] or b"", item["mode"]))
    if head.inference:
        rows.delete((INFERENCE, head.inference))
    head.packs += 1
    head.request_digest, head.tools_digest = body["request_digest"], body["tools_digest"]
    head.pack_id, head.fits, head.stale, head.inference = bounded(body["pack_id"]), body["fits"], False, ""


def _compression_started(rows: DeciderRows, head: Head, event: Event, _keep: Keep) -> None:
    body = event.body
    head.compressing = bounded(body["compression_id"])
    state = CompressionState(
        rule_id=bounded(body["rule_id"] or ""),
        phase="OPEN",
        rule_digest=body["rule_digest"],
        input_digest=body["input_digest"],
        tokens_before=body["tokens_before"],
    )
    rows.put((COMPRESSION, head.compressing), state)
    for id in body["scope"]:
        item = rows.get((ITEM, bounded(id)))
        if item is not None:
            item.compressing = head.compressing
            rows.put((ITEM, item.id), item)


def _compression_completed(rows: DeciderRows, head: Head, event: Event, keep: Keep) -> None:
    body = event.body
    id = bounded(body["compression_id"])
    learn(body["summary"], keep)
    if body["effect"] == "REAPPLIABLE":
        forgotten = [
            item for item in (rows.get((ITEM, bounded(name))) for name in body["forgotten"]) if item is not None
        ]
        if body["method"] in _MASKED:
            for item in forgotten:
                _mask(rows, item, id, keep)
        elif forgotten:
            place = min(item.place for item in forgotten)
            for item in forgotten:
                rows.delete((ITEM, item.id))
            put_item(
                rows, head, keep, id=id, seq=event.seq, kind="SUMMARY", turn=place[0], phase=place[1], index=place[2],
                content=rendering.summary(content_of(body["summary"])), compression_id=id,
            )  # fmt: skip
    head.windows += 1
    head.compression, head.stale = id, True
    _done_compressing(rows, head, id, body["inference_id"])


def _mask(rows: DeciderRows, item: Item, compression_id: str, keep: Keep) -> None:
    content = rendering.masked(item)
    item.digest, item.size = sha256(content).digest(), len(content)
    item.mode, item.compression_id = "COMPRESSED", compression_id
    keep(item.digest, content)
    rows.put((ITEM, item.id), item)


def _compression_failed(rows: DeciderRows, head: Head, event: Event, _keep: Keep) -> None:
    id = bounded(event.body["compression_id"])
    _rule_failed(rows, head, id)
    _done_compressing(rows, head, id, f"{id}/i")


def compression_recovered(rows: DeciderRows, head: Head, _event: Event, _keep: Keep, id: str, resolution: str) -> None:
    if resolution in ("FAILED", "ABANDONED"):
        _rule_failed(rows, head, id)
        _done_compressing(rows, head, id, f"{id}/i")


def _rule_failed(rows: DeciderRows, head: Head, compression_id: str) -> None:
    state = rows.get((COMPRESSION, compression_id))
    if state is not None and state.rule_id not in head.failed_rules and len(head.failed_rules) < LISTED:
        head.failed_rules = [*head.failed_rules, state.rule_id]


def _done_compressing(rows: DeciderRows, head: Head, id: str, inference_id: str | None) -> None:
    rows.delete((COMPRESSION, id))
    if inference_id is not None:
        rows.delete((INFERENCE, bounded(inference_id)))
    if head.compressing == id:
        head.compressing = ""


# --- messages ---------------------------------------------------------------------------------------------------------


def _message(rows: DeciderRows, head: Head, event: Event, keep: Keep) -> None:
    id = f"m:{event.body['message_id']}"
    if rows.get((ITEM, bounded(id))) is not None:
        return  # sent again: it stands where it came first
    put_item(
        rows, head, keep, id=id, seq=event.seq, kind="MESSAGE",
        content=rendering.message(event.body), turn=head.turn_ordinal, phase=MEANWHILE if head.turn else BETWEEN,
    )  # fmt: skip


FOLDS: Final[dict[str, Any]] = {
    "InferenceRequested": _inference_requested,
    "InferenceCompleted": _inference_completed,
    "InferenceFailed": _inference_failed,
    "ContextPackBuilt": _pack_built,
    "CompressionStarted": _compression_started,
    "CompressionCompleted": _compression_completed,
    "CompressionFailed": _compression_failed,
    "MessageReceived": _message,
}

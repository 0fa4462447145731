"""From what a port answered to the event that records it, an X; nothing is decided here."""

from __future__ import annotations

from hashlib import sha256

from dalsegno.model.events import (
    Blob,
    ContextItemRetrieved,
    ErrorInfo,
    InferenceCompleted,
    InferenceFailed,
    Part,
    RequestedCall,
    ToolCallFailed,
    ToolReceiptRecorded,
    Truncation,
    VerdictReported,
)
from dalsegno.orchestration.ports import Answer, InferenceError, ToolFailed, ToolResult, Verdict

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


def content(data: bytes, media_type: str = TEXT) -> Blob:
    """A content to stand in an event; the session's writer puts away what is too large to stand there."""
    return Blob(digest=sha256(data).digest(), size=len(data), media_type=media_type, inline=data)


def completed(inference_id: str, attempt: int, answer: Answer, *, latency_ms: int) -> InferenceCompleted:
    """Each call that the answer asks for gets its domain id, ``<turn>/c<n>``, by its place in the answer."""
    turn, _, _ = inference_id.rpartition("/")
    parts = [] if answer.reasoning is None else [Part(kind="REASONING", text=text(answer.reasoning))]
    if answer.text:
        parts.append(Part(kind="TEXT", text=text(answer.text)))
    parts += answer.parts
    calls: list[RequestedCall] = []
    for place, call in enumerate(answer.calls):
        asked = content(call.arguments, JSON)
        native = None if call.native_id is None else text(call.native_id)
        parts.append(Part(kind="TOOL_CALL", call_id=native, name=text(call.name), blob=asked))
        calls.append(
            RequestedCall(tool_call_id=f"{turn}/c{place}", name=text(call.name), arguments_digest=asked.digest)
        )
    said = sha256(
        b"".join(sha256(part.text.encode() if part.text is not None else _raw(part)).digest() for part in parts)
    )
    return InferenceCompleted(
        inference_id=inference_id,
        attempt=attempt,
        complete=answer.complete,
        cache="UNKNOWN",
        usage=answer.usage,
        cost_usd_micros=answer.cost_usd_micros,
        latency_ms=latency_ms if answer.latency_ms is None else answer.latency_ms,
        ttft_ms=answer.ttft_ms,
        model=answer.model or "unknown",
        response_id=answer.response_id,
        output_digest=said.digest(),
        finish_reasons=list(answer.finish_reasons),
        tool_calls=calls,
        output=parts,
        raw=None if answer.raw is None else content(answer.raw, JSON),
    )


def _raw(part: Part) -> bytes:
    return b"" if part.blob is None else part.blob.digest


def text(given: str) -> str:
    """What UTF-8 can hold of it: half of a surrogate pair becomes U+FFFD."""
    return given.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def inference_failed(inference_id: str, attempt: int, error: InferenceError) -> InferenceFailed:
    return InferenceFailed(
        inference_id=inference_id,
        attempt=attempt,
        http_status=error.http_status,
        retry_after_ms=error.retry_after_ms,
        error=ErrorInfo(error_class=error.error_class, message=text(error.message), retryable=error.retryable),
    )


def receipt(call_id: str, attempt: int, result: ToolResult, *, started_at: int, ended_at: int) -> ToolReceiptRecorded:
    blob = content(result.result, result.media_type)
    cut = None
    if result.original_bytes is not None:
        cut = Truncation(original_bytes=result.original_bytes, kept_bytes=len(result.result))
    return ToolReceiptRecorded(
        tool_call_id=call_id,
        attempt=attempt,
        status=result.status,
        receipt_id=f"{call_id}/r{attempt}",
        simulated=result.simulated,
        exit_code=result.exit_code,
        started_at=started_at,
        ended_at=ended_at,
        result_digest=blob.digest,
        truncated=cut,
        external_ids=list(result.external_ids),
        side_effects=list(result.side_effects),
        result=blob,
    )


def tool_failed(call_id: str, attempt: int, error: ToolFailed) -> ToolCallFailed:
    return ToolCallFailed(
        tool_call_id=call_id,
        attempt=attempt,
        reason=error.reason,
        not_started=error.not_started,
        error=ErrorInfo(error_class=error.reason.lower(), message=text(error.message), retryable=error.not_started),
    )


def retrieved(item_id: str, data: bytes, media_type: str, source_uri: str | None) -> ContextItemRetrieved:
    return ContextItemRetrieved(item_id=item_id, source_uri=source_uri, content=content(data, media_type))


def reported(validation_id: str, verdict: Verdict) -> VerdictReported:
    return VerdictReported(
        validation_id=validation_id,
        verdict=verdict.verdict,
        score=verdict.score,
        label=None if verdict.label is None else text(verdict.label),
        evidence=[content(each) for each in verdict.evidence],
    )

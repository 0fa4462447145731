"""Random valid sessions: what a well-behaved writer may do next, given what is open. Deterministic.

``play(builder, numbers)`` makes one move per number; each number picks one of the moves that are possible at that
point, so equal numbers give equal sessions. Every session that is played obeys the rules of its profile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from dalsegno.model.lifecycle import OpState
from dalsegno.testing.builder import SessionBuilder, blob, digest_of

Move: TypeAlias = Callable[[SessionBuilder], object]

_BUSY = 6
"""So many open operations are enough: then some are answered before others begin."""


def play(builder: SessionBuilder, numbers: Iterable[int]) -> SessionBuilder:
    """Make one move per number. A session that has ended takes only what may come after its end."""
    for number in numbers:
        moves = possible_moves(builder)
        moves[number % len(moves)](builder)
    return builder


def possible_moves(b: SessionBuilder) -> list[Move]:
    """The moves that a writer may make now, in a fixed order, what is usual more than once; never none."""
    status = b.session.status
    note = _append("NoteRecorded", kind="note")
    if status == "CREATED":
        return [note, SessionBuilder.start]
    if status in ("COMPLETED", "FAILED", "CANCELLED"):
        return [note, _append("FeedbackRecorded", kind="thumb", value="up")]
    if status == "PAUSED":
        return [note, _append("SessionResumed", by_limit=False)]
    answers: list[Move] = []
    for (kind, id), op in sorted(b.ops.rows.items(), key=lambda row: row[0]):
        if kind in _ANSWERS:
            answers += list(_ANSWERS[kind](b, id, op)) * (4 if kind == "TOOL" else 1)
    starts = [_ask_model, _ask_model, _ask_model, *_starts(b)] if b.session.operations_open() < _BUSY else []
    return [note, *_frames(b), *starts, *answers * 3, *_rare(b)]


def _fresh(b: SessionBuilder, kind: str) -> str:
    """A domain id that no event of this session has used: seq makes it unique, also against a fork's parent."""
    return f"{kind}.{b.tip.seq + 1 if b.tip else 1}.{len(b.session_id)}"


def _append(type_: str, **fields: object) -> Move:
    return lambda b: b.append(type_, **fields)  # type: ignore[arg-type]


def _frames(b: SessionBuilder) -> Iterator[Move]:
    turn = b.session.turn
    if not turn:
        yield _append("TurnStarted", turn_id=_fresh(b, "turn"), agent="main")
    elif not b.session.operations_open():
        yield _append("TurnCompleted", turn_id=turn)
    if not b.session.stages:
        yield _schedule
    for id, phase in b.session.stages:
        if phase == "SCHEDULED":
            yield _append("StageStarted", stage_id=id, worker="w")
            yield _append("StageSkipped", stage_id=id, reason="no need")
        elif not b.session.operations_open():
            yield _append("StageCompleted", stage_id=id)
            yield _append("StageFailed", stage_id=id)


def _schedule(b: SessionBuilder) -> None:
    """Every other stage is led to by a transition that has an id."""
    transition = "next" if b.tip and b.tip.seq % 2 else None
    if transition is not None:
        guards = [{"name": "goal", "digest": digest_of("goal")}]
        b.append("TransitionTaken", transition_id=transition, to_stage="plan", guard_result=True, guard_inputs=guards)
    stage_id = _fresh(b, "stage")
    b.append("StageScheduled", stage_id=stage_id, stage_name="plan", attempt=1, transition_id=transition)


def _starts(b: SessionBuilder) -> Iterator[Move]:
    part = {"kind": "TEXT", "text": "go on"}
    yield _append("MessageReceived", message_id=_fresh(b, "m"), role="USER", parts=[part])
    yield _append("InputRequested", request_id=_fresh(b, "input"), prompt=blob(b"which one?"))
    yield _append("RetrievalRequested", item_id=_fresh(b, "item"), kind="FILE")
    compression, items = _fresh(b, "compression"), _items_since_the_pack(b)
    yield _append("CompressionStarted", compression_id=compression, trigger="THRESHOLD", scope=items)
    yield _append(
        "CompressionCompleted", compression_id=compression, method="TRIM", effect="REAPPLIABLE", forgotten=items,
    )  # fmt: skip
    subject = next((id for (kind, id) in sorted(b.ops.rows) if kind == "INFERENCE"), None)
    if subject is not None:
        yield _append("ValidationRequested", validation_id=_fresh(b, "v"), validator="tests", target_id=subject)


def _ask_model(b: SessionBuilder) -> None:
    pack, base = _fresh(b, "pack"), _newest_pack(b)
    added = [
        {"item_id": id, "kind": "MESSAGE", "mode": "FULL", "position": place}
        for place, id in enumerate(_items_since_the_pack(b))
    ]
    b.append(
        "ContextPackBuilt", pack_id=pack, builder_version="1", fits=True, added=added,
        base_pack_id=base["pack_id"] if base else None,
        removed=[item["item_id"] for item in base["added"][:1]] if base else [],
        dropped=[{"item_id": "too long"}] * (len(added) % 2),
    )  # fmt: skip
    b.append(
        "InferenceRequested", inference_id=_fresh(b, "inference"), attempt=1, purpose="AGENT", pack_id=pack,
        provider="acme", model="large", request_digest=digest_of(pack),
    )  # fmt: skip


def _newest_pack(b: SessionBuilder) -> Any:
    return next((event.body for event in reversed(b.events) if event.type == "ContextPackBuilt"), None)


def _items_since_the_pack(b: SessionBuilder) -> list[str]:
    """What a model has not been shown yet, the newest first."""
    found: list[str] = []
    for event in reversed(b.events):
        if event.type == "ContextPackBuilt":
            break
        if event.type in _GIVES:
            found.append(event.body[_GIVES[event.type]])
    return found


def _inference(b: SessionBuilder, id: str, op: OpState) -> Iterator[Move]:
    if op.phase == "OPEN":
        for calls in range(3):
            yield _complete(id, op.attempt, calls)
        yield _append("InferenceFailed", inference_id=id, attempt=op.attempt)
    elif op.phase == "ATTEMPT_FAILED":
        yield _append(
            "InferenceRequested", inference_id=id, attempt=op.attempt + 1, purpose="OTHER", provider="acme",
            model="large", request_digest=op.digest,
        )  # fmt: skip
    for call in op.listed:
        if b.ops.get("TOOL", call) is None:
            yield _append(
                "ToolCallRequested", tool_call_id=call, name="shell", effect="WRITE" if len(call) % 2 else "READ",
                inference_id=id, arguments_digest=digest_of(call),
            )  # fmt: skip


def _complete(id: str, attempt: int, calls: int) -> Move:
    listed = [{"tool_call_id": f"{id}/c{n}", "name": "shell", "arguments_digest": None} for n in range(calls)]
    usage = {"input": 100 + attempt, "output": 10 + calls, "cache_read": 50, "cache_creation": None, "reasoning": None}
    return _append(
        "InferenceCompleted", inference_id=id, attempt=attempt, model="large", complete=True, tool_calls=listed,
        usage=usage, cost_usd_micros=1000 + calls,
    )  # fmt: skip


def _call(b: SessionBuilder, id: str, op: OpState) -> Iterator[Move]:
    if op.phase == "REQUESTED":
        yield from _leave(b, id)
    elif op.phase == "AUTHORIZED":
        key = "key" if op.attempt else None
        yield _append("ToolCallStarted", tool_call_id=id, attempt=op.attempt + 1, executor="e", idempotency_key=key)
    elif op.phase in ("STARTED", "UNRESOLVED"):
        for status in ("OK", "ERROR"):
            yield _append(
                "ToolReceiptRecorded", tool_call_id=id, attempt=op.attempt, status=status, receipt_id=f"{id}/r",
            )  # fmt: skip
    if op.phase == "STARTED":
        for reason, not_started in (("TIMEOUT", False), ("INFRA", True), ("UNKNOWN_OUTCOME", False)):
            yield _append("ToolCallFailed", tool_call_id=id, attempt=op.attempt, reason=reason, not_started=not_started)
    if op.phase in ("ATTEMPT_FAILED", "UNRESOLVED"):
        yield _append("ToolRetryDecided", tool_call_id=id, attempt=op.attempt, retry=op.safe)


def _leave(b: SessionBuilder, id: str) -> Iterator[Move]:
    """A call waits for leave to run: ask a policy, perhaps a person, then authorize or reject it."""
    decision_id, approval_id = f"{id}/d", f"{id}/a"
    decision, approval = b.ops.get("DECISION", decision_id), b.ops.get("APPROVAL", approval_id)
    digest = digest_of(id)
    authorize = {"tool_call_id": id, "effective_arguments_digest": digest}
    if b.session.grants:
        yield _append("ToolCallAuthorized", **authorize, basis="STANDING_GRANT")
    if decision is None:
        for answer in ("ALLOW", "DENY", "REQUIRE_APPROVAL"):
            yield _append(
                "PolicyEvaluated", decision_id=decision_id, subject="TOOL_CALL", subject_id=id, decision=answer
            )
    elif decision.mark == "ALLOW":
        yield _append("ToolCallAuthorized", **authorize, basis="POLICY_ALLOW", decision_id=decision_id)
    elif decision.mark == "DENY":
        yield _append("ToolCallRejected", tool_call_id=id, basis="POLICY_DENY", cites=decision_id)
    elif approval is None:
        yield _append(
            "ApprovalRequested", approval_id=approval_id, subject="TOOL_CALL", subject_id=id, decision_id=decision_id,
            arguments_digest=digest,
        )  # fmt: skip
    elif approval.phase == "GRANTED":
        yield _append("ToolCallAuthorized", **authorize, basis="APPROVAL", approval_id=approval_id)
    elif approval.phase != "OPEN":
        yield _append("ToolCallRejected", tool_call_id=id, basis="APPROVAL_DENIED", cites=approval_id)


def _approval(_b: SessionBuilder, id: str, op: OpState) -> Iterator[Move]:
    if op.phase == "OPEN":
        yield _append("ApprovalGranted", approval_id=id, scope="ONCE", arguments_digest=op.digest)
        yield _append("ApprovalGranted", approval_id=id, scope="SESSION", arguments_digest=op.digest)
        yield _append("ApprovalDenied", approval_id=id, effect="CONTINUE", rejection_source="USER")
        yield _append("ApprovalExpired", approval_id=id)
        yield _append("ApprovalWithdrawn", approval_id=id)


def _input(_b: SessionBuilder, id: str, op: OpState) -> Iterator[Move]:
    if op.phase == "OPEN":
        yield _append("InputProvided", request_id=id, outcome="ACCEPTED", content=blob(b"that one"))


def _retrieval(_b: SessionBuilder, id: str, op: OpState) -> Iterator[Move]:
    if op.phase == "OPEN":
        yield _append("ContextItemRetrieved", item_id=id, content=blob(b"found"))


def _compression(_b: SessionBuilder, id: str, op: OpState) -> Iterator[Move]:
    if op.phase == "OPEN":
        yield _append(
            "CompressionCompleted", compression_id=id, method="SUMMARY", effect="REAPPLIABLE", forgotten=["all of it"],
        )  # fmt: skip
        yield _append("CompressionFailed", compression_id=id)


def _validation(_b: SessionBuilder, id: str, op: OpState) -> Iterator[Move]:
    if op.phase == "OPEN":
        yield _append("VerdictReported", validation_id=id, verdict="PASS")
        yield _append(
            "ValidationDecided", validation_id=id, basis="REPORTED" if op.seen else "PURE", verdict="REJECT",
            intermediate=False,
        )  # fmt: skip
    elif op.phase == "DONE":
        yield _append("ValidationAmended", validation_id=id, verdict="PASS", reason="looked again")


def _rare(b: SessionBuilder) -> Iterator[Move]:
    yield _append("SessionPaused", by_limit=False, reason="lunch")
    yield _append("LimitReached", limit="TOKENS", action="WARN")
    yield _append("CheckpointMarked", checkpoint_id=_fresh(b, "mark"), kind="ANCHOR", state_digests=[])
    yield _append("ArtifactRecorded", artifact_id=_fresh(b, "artifact"), path="out.txt")
    yield SessionBuilder.recover
    if b.tip is None or b.tip.seq % 8:
        return
    open_ids = b.open_ids()
    yield _append("SessionCompleted", outcome="SUCCESS", open_ops=open_ids)
    yield _append("SessionFailed", open_ops=open_ids)


_GIVES = {
    "MessageReceived": "message_id", "InferenceCompleted": "inference_id", "ToolReceiptRecorded": "tool_call_id",
    "ContextItemRetrieved": "item_id", "CompressionCompleted": "compression_id",
}  # fmt: skip
"""Events that give an item of the context, and the field that names it."""

_ANSWERS: dict[str, Callable[[SessionBuilder, str, OpState], Iterator[Move]]] = {
    "INFERENCE": _inference,
    "TOOL": _call,
    "APPROVAL": _approval,
    "INPUT": _input,
    "RETRIEVAL": _retrieval,
    "COMPRESSION": _compression,
    "VALIDATION": _validation,
}

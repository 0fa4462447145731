"""Structs of the rows of the built-in projections: stored as MessagePack arrays, emitted as Avro.

Generated from the .avsc files by schemas/generate.py; change those and run it again.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

SessionStatus: TypeAlias = Literal["UNKNOWN", "NEW", "CREATED", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED"]
SessionProfile: TypeAlias = Literal["UNKNOWN", "STRICT", "OBSERVED", "IMPORTED"]
ToolCallStatus: TypeAlias = Literal[
    "UNKNOWN", "REQUESTED", "AUTHORIZED", "REJECTED", "STARTED", "OK", "ERROR", "FAILED", "UNKNOWN_OUTCOME", "DELEGATED"
]


class SessionRow(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """One session. Id: none."""

    status: SessionStatus = "NEW"
    profile: SessionProfile = "UNKNOWN"
    workflow_name: str = ""
    agent: str | None = None  # Of the newest turn.
    model: str | None = None  # Of the newest inference.
    stage_id: str | None = None  # Of the newest started stage attempt.
    started_at: int | None = None  # Clock of the first event.
    last_event_at: int | None = None
    last_seq: int = 0  # Of the path; 0: nothing of it yet.
    head_hash: bytes | None = None
    epoch: int = 0
    events: int = 0  # On the path.
    turns: int = 0
    inferences: int = 0
    tool_calls: int = 0  # Requested.
    failed_tool_calls: int = 0  # Ended with an error, a failure or a rejection.
    approvals_open: int = 0
    messages: int = 0
    compressions: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_creation_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd_micros: int = 0
    verdict: str | None = None  # Of the newest final validation.
    score: str | None = None
    violations: int = 0  # Events that broke a rule that holds.
    findings: int = 0  # Rules broken that do not hold in this profile.
    held_reason: str | None = None
    held_seq: int | None = None  # First seq that cannot be folded.
    superseded: int = 0  # Records that are not on the path.
    stubs: int = 0  # Events that an amendment replaced.
    forked_from: str | None = None
    forked_at_seq: int | None = None
    goal_digest: bytes | None = None
    error_class: str | None = None
    error_message: str | None = None  # Its first 500 characters.


class ToolCallRow(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """One tool call. Id: tool_call_id."""

    status: ToolCallStatus = "REQUESTED"
    name: str = ""
    effect: str = "UNKNOWN"
    risk: str = "UNKNOWN"
    requested_seq: int = 0
    requested_at: int | None = None
    inference_id: str | None = None
    native_call_id: str | None = None
    stage_id: str | None = None
    turn_id: str | None = None
    arguments_digest: bytes | None = None
    effective_arguments_digest: bytes | None = None
    decision_id: str | None = None
    decision: str | None = None
    approval_id: str | None = None
    approval: str | None = None  # OPEN, GRANTED, DENIED, EXPIRED or WITHDRAWN.
    approver: str | None = None
    basis: str | None = None  # Of the authorization or rejection.
    attempts: int = 0
    started_at: int | None = None
    ended_at: int | None = None
    ended_seq: int | None = None
    exit_code: int | None = None
    result_digest: bytes | None = None
    simulated: bool = False
    child_session: str | None = None
    error_class: str | None = None


class ApprovalOfCall(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """Which call an open approval is about. Id: approval_id. Not public."""

    tool_call_id: str


class UsageRow(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """Sums of a partition, day (UTC), provider and model. Key: [partition, day, provider, model]."""

    inferences: int = 0  # Completed.
    failed_inferences: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_creation_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd_micros: int = 0
    latency_ms: int = 0


class OpenInference(msgspec.Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """What an inference that has not ended was asked of. Id: inference_id. Not public."""

    provider: str | None = None
    model: str | None = None

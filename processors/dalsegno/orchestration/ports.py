"""What the live loop needs from outside: models, tools, reporters of verdicts, retrieval, a clock. Protocols only.

A port is called in a thread of its own and may block; what it answers becomes an X event. It decides nothing: retries,
order and what an answer means are the decider's. A replay has no filling that could touch the outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from dalsegno.model.events import ExternalId, Part, SideEffect, Usage


@dataclass(frozen=True)
class Request:
    """One attempt of an inference. ``messages`` and ``tools`` are OpenAI chat objects, rendered from the log; the bytes
    that ``request_digest`` covers. ``timeout_seconds``: after that the port gives up and raises InferenceError."""

    session_id: str
    inference_id: str
    attempt: int
    provider: str
    model: str
    params: Mapping[str, Any]
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]]
    request_digest: bytes
    timeout_seconds: float = 600.0


@dataclass(frozen=True)
class AnsweredCall:
    """A tool call that an answer asks for. ``arguments``: the bytes as received; ``native_id`` may repeat."""

    name: str
    arguments: bytes
    native_id: str | None = None


@dataclass(frozen=True)
class Answer:
    """What a model said. ``text``: the answer without its calls; ``raw``: the response body as received."""

    text: str
    calls: tuple[AnsweredCall, ...] = ()
    reasoning: str | None = None
    finish_reasons: tuple[str, ...] = ("stop",)
    usage: Usage = field(default_factory=Usage)
    model: str | None = None
    response_id: str | None = None
    complete: bool = True
    cost_usd_micros: int | None = None
    latency_ms: int | None = None
    ttft_ms: int | None = None
    raw: bytes | None = None
    parts: tuple[Part, ...] = ()
    """Further parts of the output, kept as they are."""


CONTEXT_OVERFLOW = "context_overflow"
"""The error class of a request that is too long for the model: a compression rule may answer it."""


class InferenceError(Exception):
    """No answer. ``error_class``: a short name; ``retryable``: asking again unchanged may help."""

    def __init__(
        self,
        error_class: str,
        message: str,
        *,
        retryable: bool,
        http_status: int | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.error_class, self.message, self.retryable = error_class, message, retryable
        self.http_status, self.retry_after_ms = http_status, retry_after_ms


class Provider(Protocol):
    """A model, or what stands for one."""

    def complete(self, request: Request) -> Answer:
        """Raises InferenceError; whatever else it raises becomes one that is not retryable."""
        ...


@dataclass(frozen=True)
class ToolRun:
    """One attempt of a tool call that was authorised. ``arguments``: the effective ones, as bytes of JSON."""

    session_id: str
    tool_call_id: str
    attempt: int
    name: str
    arguments: bytes
    idempotency_key: str
    timeout_seconds: float | None = None
    simulate: bool = False
    """The policy said SIMULATE: answer without any effect outside."""


@dataclass(frozen=True)
class ToolResult:
    """What came back of a tool that ran. ``status`` ERROR: it ran and says that it failed."""

    result: bytes
    status: Literal["OK", "ERROR"] = "OK"
    media_type: str = "text/plain"
    exit_code: int | None = None
    simulated: bool = False
    side_effects: tuple[SideEffect, ...] = ()
    external_ids: tuple[ExternalId, ...] = ()
    original_bytes: int | None = None
    """Bytes before the result was cut, where it was."""


class ToolFailed(Exception):
    """No receipt will come of this attempt. ``not_started``: it surely had no effect."""

    def __init__(
        self,
        reason: Literal["TIMEOUT", "CANCELLED", "EXECUTOR_CRASH", "UNKNOWN_OUTCOME", "INFRA"],
        message: str,
        *,
        not_started: bool = False,
    ) -> None:
        super().__init__(message)
        self.reason: Literal["TIMEOUT", "CANCELLED", "EXECUTOR_CRASH", "UNKNOWN_OUTCOME", "INFRA"] = reason
        self.message, self.not_started = message, not_started


class Tools(Protocol):
    """Runs tools."""

    name: str
    """Stands in ``ToolCallStarted.executor``."""

    def run(self, call: ToolRun) -> ToolResult:
        """Raises ToolFailed; whatever else it raises becomes an EXECUTOR_CRASH, whose outcome is unknown."""
        ...


@dataclass(frozen=True)
class Verdict:
    """``score``: a decimal number as text."""

    verdict: Literal["PASS", "REJECT", "INCONCLUSIVE", "ERROR"]
    score: str | None = None
    label: str | None = None
    evidence: tuple[bytes, ...] = ()


class Reporter(Protocol):
    """A program outside that judges, such as a test run."""

    def report(self, session_id: str, validation_id: str, validator: str, target: bytes) -> Verdict: ...


class Retriever(Protocol):
    """Fetches what a model is to see that came from no other event."""

    def fetch(self, session_id: str, item_id: str, kind: str, query: Any) -> tuple[bytes, str, str | None]:
        """Content, media type, where it came from."""
        ...


class Clock(Protocol):
    """Wall time; enters a session only as facts (TimerFired, ApprovalExpired)."""

    def now(self) -> int:
        """Microseconds since 1970 UTC."""
        ...

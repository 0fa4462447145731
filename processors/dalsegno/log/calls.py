"""A tool call, from the wish to the receipt: what would be the same work in every harness.

    call = session.tool_call("search", {"q": "leap years"}, turn_id="plan.1/t1", effect="READ")
    call.authorize("POLICY_ALLOW", decision_id="plan.1/t1/c0/p")
    call.start(executor="local")
    call.receipt(result, exit_code=0)

Made by itself: the call's id, attempts and receipt ids, contents and their digests, the times of the receipt (by the
session's clock) and each event's cause. Nothing is appended that was not asked for, and every event can be appended by
``Session.append`` instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dalsegno.log.receipts import Pending
from dalsegno.model.events import (
    Blob,
    ErrorInfo,
    NewEvent,
    ToolCallAuthorized,
    ToolCallFailed,
    ToolCallRejected,
    ToolCallRequested,
    ToolCallStarted,
    ToolReceiptRecorded,
)
from dalsegno.model.lifecycle.state import TOOL
from dalsegno.storage.blobs import blob

if TYPE_CHECKING:
    from dalsegno.log.writer import SessionWriter
    from dalsegno.model.payloads import (
        AuthorizationBasis,
        ReceiptStatus,
        RejectionBasis,
        Risk,
        ToolEffect,
        ToolFailureReason,
    )


MESSAGE_MAX_CHARACTERS = 10_000
"""Of an exception; a whole output of a tool is a result, not a message."""


class ToolCall:
    """One call of a session; ``id`` is its domain id, ``last`` the newest append of it."""

    def __init__(self, session: SessionWriter, id: str, arguments_digest: bytes, last: Pending, **how: Any) -> None:
        self.id = id
        self.arguments_digest = arguments_digest
        self.last = last
        self._session = session
        self._how = how
        self._started_at: int | None = None

    @property
    def attempt(self) -> int:
        """The attempt that was started last; 0 before the first."""
        found = self._session.operation(TOOL, self.id)
        return 0 if found is None else found.attempt

    def authorize(
        self, basis: AuthorizationBasis, *, decision_id: str | None = None, approval_id: str | None = None
    ) -> Pending:
        return self._append(
            ToolCallAuthorized(
                tool_call_id=self.id,
                basis=basis,
                decision_id=decision_id,
                approval_id=approval_id,
                effective_arguments_digest=self.arguments_digest,
            )
        )

    def reject(self, basis: RejectionBasis, *, message: str | None = None, cites: str | None = None) -> Pending:
        return self._append(ToolCallRejected(tool_call_id=self.id, basis=basis, message=message, cites=cites))

    def start(self, **fields: Any) -> Pending:
        """The next attempt begins. ``fields``: executor, sandbox, idempotency_key, child_session."""
        pending = self._append(ToolCallStarted(tool_call_id=self.id, attempt=self.attempt + 1, **fields))
        self._started_at = self._session.now
        return pending

    def receipt(
        self, result: Any, *, status: ReceiptStatus = "OK", exit_code: int | None = None, **fields: Any
    ) -> Pending:
        """The tool ran and this came back: a Blob, or what ``blob`` takes. ``fields``: others of the event."""
        content = result if isinstance(result, Blob) else blob(result)
        made: dict[str, Any] = {
            "receipt_id": f"{self.id}/r{self.attempt}",
            "started_at": self._started_at,
            "ended_at": self._session.now,
        }
        return self._append(
            ToolReceiptRecorded(
                tool_call_id=self.id,
                attempt=self.attempt,
                status=status,
                exit_code=exit_code,
                result=content,
                result_digest=content.digest,
                **{**made, **fields},
            )
        )

    def fail(
        self, reason: ToolFailureReason, error: ErrorInfo | BaseException | None = None, *, not_started: bool = False
    ) -> Pending:
        """No receipt will come of this attempt. An exception is told by its class and the beginning of its text."""
        if isinstance(error, BaseException):
            error = ErrorInfo(error_class=type(error).__name__, message=_text_of(error))
        attempt = max(1, self.attempt)
        return self._append(
            ToolCallFailed(tool_call_id=self.id, attempt=attempt, reason=reason, error=error, not_started=not_started)
        )

    def _append(self, event: NewEvent) -> Pending:
        self.last = self._session.append(event, cause=self.last, **self._how)
        return self.last


def _text_of(error: BaseException) -> str:
    """What an exception of foreign code says, whatever that is: its failure must not hide the tool's."""
    try:
        text = str(error).encode("utf-8", "backslashreplace").decode("utf-8")
    except Exception as failed:
        return f"its text could not be made: {type(failed).__name__}"
    more = len(text) - MESSAGE_MAX_CHARACTERS
    return text if more <= 0 else f"{text[:MESSAGE_MAX_CHARACTERS]}… ({more} more characters)"


def request_call(
    session: SessionWriter,
    name: str,
    arguments: Any,
    *,
    id: str | None = None,
    effect: ToolEffect = "UNKNOWN",
    risk: Risk = "UNKNOWN",
    inference_id: str | None = None,
    native_call_id: str | None = None,
    tool_version: str | None = None,
    turn_id: str | None = None,
    stage_id: str | None = None,
    cause: Pending | None = None,
) -> ToolCall:
    """Append a ToolCallRequested. ``arguments``: a Blob, or what ``blob`` takes; as received, if a model wrote them.

    ``id``: of the call; without it ``<turn id>/c<n>`` (``c<n>`` outside of turns), the first that the session has not.
    ``turn_id`` and ``stage_id`` stand in every event of the call.
    """
    content = arguments if isinstance(arguments, Blob) else blob(arguments)

    def requested(id: str) -> ToolCallRequested:
        return ToolCallRequested(
            tool_call_id=id,
            name=name,
            arguments=content,
            arguments_digest=content.digest,
            effect=effect,
            risk=risk,
            inference_id=inference_id,
            native_call_id=native_call_id,
            tool_version=tool_version,
        )

    how: dict[str, Any] = {"turn_id": turn_id, "stage_id": stage_id}
    if id is None:
        prefix = "c" if turn_id is None else f"{turn_id}/c"
        id, pending = session.append_opening(TOOL, prefix, requested, cause=cause, **how)
    else:
        pending = session.append(requested(id), cause=cause, **how)
    return ToolCall(session, id, content.digest, pending, **how)

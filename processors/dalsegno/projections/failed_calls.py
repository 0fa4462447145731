"""How many of a session's tool calls have failed, event by event: one rule for all that count them. Pure.

A call is failed once it has ended badly: by an error, a failure or a rejection. A later attempt takes it back until
that has ended too, and so does a result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dalsegno.model.lifecycle import Verdict
from dalsegno.model.lifecycle.state import TOOL

_FAILED_OUTCOMES: Final = frozenset({"FAILED", "CANCELLED", "GIVEN_UP"})


def _calls(operations: tuple[tuple[str, str], ...]) -> int:
    found = 0
    for kind, _ in operations:
        found += kind == TOOL
    return found


def _rejected(failed: int, _body: Any, _: Verdict) -> int:
    return failed + 1


def _closed(failed: int, _body: Any, verdict: Verdict) -> int:
    return failed + _calls(verdict.closed)


def _goes_on(failed: int, _body: Any, verdict: Verdict) -> int:
    # What it closes was left in doubt and is given up: it ends here.
    return max(0, failed - _calls(verdict.opened)) + _calls(verdict.closed)


def _received(failed: int, body: Any, verdict: Verdict) -> int:
    return _ended(failed, body["status"] == "ERROR", verdict)


def _sub_session_ended(failed: int, body: Any, verdict: Verdict) -> int:
    return _ended(failed, body["outcome"] in _FAILED_OUTCOMES, verdict)


def _ended(failed: int, badly: bool, verdict: Verdict) -> int:
    if not _calls(verdict.closed):
        # Its last attempt had been counted as failed, unless a stub stands where that was said.
        failed = max(0, failed - 1)
    return failed + badly


FAILED_AFTER: Final[dict[str, Callable[[int, Any, Verdict], int]]] = {
    "ToolCallRejected": _rejected,
    "ToolCallFailed": _closed,
    "SessionRecovered": _closed,
    "ToolCallStarted": _goes_on,
    "ToolRetryDecided": _goes_on,
    "ToolReceiptRecorded": _received,
    "SubSessionEnded": _sub_session_ended,
}
"""Event type -> (failed before, body, verdict) -> failed after it."""

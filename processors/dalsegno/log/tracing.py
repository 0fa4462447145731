"""The W3C trace that an event belongs to: a header beside the record, for people's tools.

It is no part of the event: no hash covers it, no reader of ours looks at it, and sending stored bytes again leaves it
out. Grammar: https://www.w3.org/TR/trace-context/#traceparent-header
"""

from __future__ import annotations

import re
import sys

from dalsegno.errors import InvalidEvent

# Version ff and ids of zeros are invalid; what a version after 00 adds stands behind another dash.
_FORM = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?P<more>-[\x21-\x7e]{0,200})?"
)


def check_traceparent(text: str) -> bytes:
    """The header's value. Raises InvalidEvent for what is no traceparent by the W3C's grammar."""
    match = _FORM.fullmatch(text) if isinstance(text, str) else None
    if match is None or (match["more"] is not None and match["version"] == "00"):
        raise InvalidEvent(
            f"traceparent is {str(text)[:80]!r}",
            wanted="<version>-<trace id, 32 hex>-<parent id, 16 hex>-<flags, 2 hex>, in lower case, no id of zeros",
            todo="give what the trace's library wrote, or nothing; nothing was written",
            field="traceparent",
        )
    return text.encode("ascii")


def current_traceparent() -> str | None:
    """The traceparent of OpenTelemetry's current span, in a program that uses OpenTelemetry; else None.

    Nothing is imported: where nobody has loaded ``opentelemetry.trace``, there is no current span.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"

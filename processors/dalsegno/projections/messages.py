"""The projection ``messages``: one row per message from outside, without its content beyond the first words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

import msgspec

from dalsegno.model.lifecycle import Verdict
from dalsegno.model.lifecycle.state import bounded
from dalsegno.model.records import Event
from dalsegno.projections.base import Projection, Rows, clock, cut, kept_id, plus
from dalsegno.projections.rows import MessageRow

TEXT_SHOWN: Final = 200
"""Characters of a message's text that its row keeps."""

_OTHER: Final = "other_parts"
_COUNTED_IN: Final = {
    "TEXT": "text_parts",
    "REASONING": "reasoning_parts",
    "TOOL_CALL": "tool_call_parts",
    "TOOL_RESULT": "tool_result_parts",
    "MEDIA": "media_parts",
}
_as_json = msgspec.json.Encoder().encode


def parts_digest(parts: list[Mapping[str, Any]]) -> bytes:
    """SHA-256 of the parts as JSON ``[[kind, call_id, name, text, blob's digest in hex], ...]``, without spaces."""
    plain = [
        [part["kind"], part["call_id"], part["name"], part["text"], part["blob"] and part["blob"]["digest"].hex()]
        for part in parts
    ]
    return sha256(_as_json(plain)).digest()


class Messages(Projection[MessageRow]):
    name = "messages"
    version = 1
    handles = frozenset({"MessageReceived"})
    row = MessageRow

    def fold(self, rows: Rows[MessageRow], event: Event, _verdict: Verdict) -> None:
        body, meta = event.body, event.meta
        row = MessageRow(
            message_id=bounded(body["message_id"]),
            role=body["role"],
            channel=cut(body["channel"]),
            received_at=clock(meta),
            stage_id=kept_id(meta.get("stage_id")),
            turn_id=kept_id(meta.get("turn_id")),
            digest=parts_digest(body["parts"]),
        )
        shown: list[str] = []
        for part in body["parts"]:
            counted = _COUNTED_IN.get(part["kind"], _OTHER)
            setattr(row, counted, getattr(row, counted) + 1)
            text, blob = part["text"], part["blob"]
            if text is not None:
                row.characters += len(text)
                if part["kind"] == "TEXT":
                    shown.append(text[:TEXT_SHOWN])
            if blob is not None:
                row.blob_bytes = plus(row.blob_bytes, blob["size"])
        row.text = "\n".join(shown)[:TEXT_SHOWN]
        # The seq, not the message's id, is the row's: recordings use an id again.
        rows.put((event.seq,), row)

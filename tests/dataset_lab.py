"""Sessions in which models are asked and answer, for the tests of data sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dalsegno.readers.datasets.history import Told
from dalsegno.readers.datasets.rows import Missed, Row, rows_of
from dalsegno.testing.builder import Written, blob, digest_of
from observed_lab import Observed

Call = tuple[str, str, str]
"""Our id, name, arguments."""


def part(kind: str = "TEXT", text: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "call_id": None, "name": None, "text": text, "blob": None, **fields}


class Chat(Observed):
    """A session of profile OBSERVED, event by event."""

    def add(self, type_: str, meta: dict[str, Any] | None = None, **fields: Any) -> Written:
        return self.builder.append(type_, meta=meta, **fields)

    def user(self, text: str, id: str = "m1", role: str = "USER") -> Chat:
        self.add("MessageReceived", message_id=id, role=role, parts=[part(text=text)])
        return self

    def ask(self, id: str = "i1", **fields: Any) -> Chat:
        self.add("InferenceRequested", inference_id=id, **{"purpose": "AGENT", "provider": "p", "model": "m", **fields})
        return self

    def answer(
        self, text: str, id: str = "i1", calls: Sequence[Call] = (), meta: dict[str, Any] | None = None, **fields: Any
    ) -> Chat:
        """The calls have one provider's id, all of them."""
        contents = [blob(arguments.encode(), "application/json") for _, _, arguments in calls]
        listed = [
            {"tool_call_id": call, "name": name, "arguments_digest": content["digest"]}
            for (call, name, _), content in zip(calls, contents, strict=True)
        ]
        output = [part(text=text)] if text else []
        output += [
            part("TOOL_CALL", call_id="native", name=name, blob=content)
            for (_, name, _), content in zip(calls, contents, strict=True)
        ]
        made = {"output": output, "tool_calls": listed, "output_digest": digest_of(text)}
        self.add("InferenceCompleted", meta, inference_id=id, **made, **fields)
        for call, content in zip(listed, contents, strict=True):
            self.add(
                "ToolCallRequested", tool_call_id=call["tool_call_id"], name=call["name"], inference_id=id,
                native_call_id="native", arguments=content, arguments_digest=content["digest"],
            )  # fmt: skip
        return self

    def result(self, call: str, text: str) -> Chat:
        self.add("ToolCallAuthorized", tool_call_id=call, basis="POLICY_ALLOW")
        self.add("ToolCallStarted", tool_call_id=call)
        self.add(
            "ToolReceiptRecorded", tool_call_id=call, status="OK", receipt_id=f"{call}/r", result=blob(text.encode())
        )
        return self

    def pack(self, id: str, *items: dict[str, Any], base: str | None = None, removed: Sequence[str] = ()) -> Chat:
        self.add("ContextPackBuilt", pack_id=id, base_pack_id=base, builder_version="1", added=items, removed=removed)
        return self

    def judge(self, verdict: str, target: str | None, id: str = "v1", **fields: Any) -> Chat:
        self.add("ValidationRequested", validation_id=id, validator="v", target_id=target)
        self.add("ValidationDecided", validation_id=id, basis="PURE", verdict=verdict, **fields)
        return self

    def fork(self, suffix: str, at: int | None = None) -> Chat:
        """A WHAT_IF fork behind the event ``at`` (default: the last)."""
        return Chat(builder=self.builder.fork(at or len(self.records), suffix))

    @property
    def told(self) -> list[Told]:
        """As they are read: of a fork, behind those of its parent."""
        parent = self.builder.parent
        above = [] if parent is None else [Told(event, own=False) for event in parent.events]
        return [*above, *(Told(event) for event in self.builder.events)]


def item(id: str, position: int, kind: str = "MESSAGE", **fields: Any) -> dict[str, Any]:
    made = {"item_id": id, "kind": kind, "mode": "FULL", "position": position, "tokens": None, "digest": None}
    return {**made, "compression_id": None, **fields}


def made(told: Sequence[Told], **options: Any) -> list[Row | Missed]:
    return list(rows_of(told, **options))


def rows(told: Sequence[Told], **options: Any) -> list[Row]:
    """All are rows."""
    found = made(told, **options)
    assert all(isinstance(row, Row) for row in found), found
    return [row for row in found if isinstance(row, Row)]


def brief(row: Row) -> list[tuple[Any, ...]]:
    """Role, content, ids of calls or of the answered call, of every message."""
    return [
        (
            message["role"],
            message["content"],
            *([call["id"] for call in message["tool_calls"]] if "tool_calls" in message else []),
            *([message["tool_call_id"]] if "tool_call_id" in message else []),
        )
        for message in [*row.prompt, row.answer]
    ]

"""Items of a model's history: what a model said and asked for, and what came back. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from dalsegno.importers.codex.records import CALLS, Native
from dalsegno.importers.json_file import json_in
from dalsegno.importers.payload import TEXT_KINDS, TEXT_TYPE, BlobMaker, exit_code
from dalsegno.importers.wanted import Wanted, call_part, wanted_call
from dalsegno.model.events import Part
from dalsegno.model.payloads import ReceiptStatus

_EXIT_CODE = re.compile(r"(?:Exit code: |Process exited with code )(-?[0-9]{1,9})\Z")
_HEAD_LINES = 8
"""The harness puts the exit code above the output, among a few lines of its own."""
_FAILED = frozenset({"failed", "incomplete"})


def texts_of(content: Any) -> list[str]:
    """The texts of a content list, or of a text alone."""
    if isinstance(content, str):
        return [content]
    items = content if isinstance(content, list) else []
    return [item["text"] for item in items if _is_text(item)]


def output_parts(items: Iterable[Native], blobs: BlobMaker) -> list[Part]:
    """All that a model said in one answer."""
    parts: list[Part] = []
    for native in items:
        payload = native.payload
        if native.payload_type == "reasoning":
            texts = [*texts_of(payload.get("summary")), *texts_of(payload.get("content"))]
            parts += [blobs.part(text, "REASONING") for text in texts]
        elif native.payload_type in CALLS:
            parts.append(call_part(wanted_of(native), blobs))
        else:
            parts += blobs.parts(payload.get("content"))
    return parts


def wanted_of(native: Native) -> Wanted:
    """A call as the model asked for it; its arguments as the bytes received."""
    payload, kind = native.payload, native.payload_type
    name = payload.get("name") or kind.removesuffix("_call")
    if payload.get("namespace"):
        name = f"{payload['namespace']}.{name}"
    given = payload.get("input", payload.get("arguments", payload.get("action")))
    wanted = wanted_call(payload.get("call_id") or payload.get("id"), name, given)
    is_text = kind == "custom_tool_call" and isinstance(given, str)
    return wanted._replace(media_type=TEXT_TYPE) if is_text else wanted


def result_of(native: Native) -> Any:
    """What a tool gave back, as received."""
    payload = native.payload
    return payload.get("tools") if native.payload_type == "tool_search_output" else payload.get("output")


def exit_code_of(result: Any) -> int | None:
    """The exit code that the harness put into the result of a command: as a field, or in the lines above the output."""
    if isinstance(result, list):
        result = next(iter(texts_of(result)), None)
    if not isinstance(result, str):
        return None
    if result.startswith("{"):
        told = json_in(result)
        metadata = told.get("metadata") if isinstance(told, dict) else None
        return exit_code(metadata.get("exit_code")) if isinstance(metadata, dict) else None
    for line in result.split("\n", _HEAD_LINES)[:_HEAD_LINES]:
        found = _EXIT_CODE.match(line)
        if found:
            return exit_code(int(found.group(1)))
        if line == "Output:":
            return None
    return None


def status_of(native: Native, code: int | None) -> ReceiptStatus:
    """ERROR where a tool that ran says so itself."""
    output = native.payload.get("output")
    told = isinstance(output, dict) and output.get("success") is False
    return "ERROR" if told or str(native.payload.get("status")) in _FAILED or code else "OK"


def _is_text(item: Any) -> bool:
    return isinstance(item, dict) and str(item.get("type")) in TEXT_KINDS and isinstance(item.get("text"), str)

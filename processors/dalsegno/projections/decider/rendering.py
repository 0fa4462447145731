"""What a model is shown of one item: the bytes of one OpenAI chat message, in canonical JSON (RFC 8785). Pure, total.

One rule makes text of whatever was recorded: UTF-8, where each byte that is none, each byte of a lone surrogate's
encoding and each NUL becomes U+FFFD. Nothing is cut: what is too long was cut before it was recorded, or is a
compression rule's business. A content that does not stand in its event is shown as a line that says so.

The bytes are what a session's packs refer to by digest: a change here is a new ``BUILDER_VERSION``.
"""

from __future__ import annotations

import json
from base64 import b32encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from dalsegno.model.lifecycle.state import bounded
from dalsegno.projections.decider.rows import Item
from dalsegno.projections.decider.table import content_of

BUILDER_VERSION: Final = 1

_ROLES: Final = {"SYSTEM": "system", "DEVELOPER": "developer"}
_WENT_WELL: Final = frozenset({"OK", "SUCCESS"})
_CALL_ID_CHARACTERS: Final = 40
"""Providers take 40 characters of letters and digits; 200 bits are enough to be unique."""


def text_of(content: bytes | str) -> str:
    """Recorded bytes, or a recorded text, as a text that JSON and providers take."""
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogatepass")
    return content.decode("utf-8", "replace").replace("\0", "\ufffd")


def provider_call_id(call_id: str) -> str:
    """The id by which a provider knows a call: its own ids repeat in a session, domain ids do not."""
    digest = sha256(call_id.encode("utf-8", "surrogatepass")).digest()
    return b32encode(digest).decode().lower()[:_CALL_ID_CHARACTERS]


def system(text: str) -> bytes:
    """The system message, of a template that was filled in."""
    return _message("system", text_of(text))


def goal(content: bytes) -> bytes:
    return _message("user", text_of(content))


def message(body: Mapping[str, Any]) -> bytes:
    """A MessageReceived: its parts, a line break between them. Reasoning is nobody's message and is left out."""
    parts = [_part(part) for part in body["parts"] if part["kind"] != "REASONING"]
    said = "\n".join(parts)
    if body["role"] == "EXTERNAL_AGENT":
        said = f"[message of another agent]\n{said}"
    return _message(_ROLES.get(body["role"], "user"), said)


def said(output: Sequence[Mapping[str, Any]]) -> str:
    """The text of a model's output, without its calls and its reasoning: what a later turn, a validator and the next
    stage are shown of it."""
    return "".join(_part(part) for part in output if part["kind"] == "TEXT")


def assistant(body: Mapping[str, Any]) -> bytes:
    """An InferenceCompleted: its text, and its calls with their arguments as they were received. The n-th call is the
    n-th TOOL_CALL part; a call without one has no arguments. No reasoning."""
    output = body["output"]
    text = said(output)
    asked = [part for part in output if part["kind"] == "TOOL_CALL"]
    calls = [
        {
            "id": provider_call_id(bounded(call["tool_call_id"])),
            "type": "function",
            "function": {
                "name": text_of(call["name"]),
                "arguments": _part(asked[place], blob_first=True) if place < len(asked) else "",
            },
        }
        for place, call in enumerate(body["tool_calls"])
    ]
    if not calls:
        return _message("assistant", text)
    return _canonical({"role": "assistant", "content": text or None, "tool_calls": calls})


def tool_result(call_id: str, name: str, status: str, content: bytes) -> bytes:
    """What a call gave. A status other than a success stands above it."""
    text = text_of(content)
    return _result(call_id, text if status in _WENT_WELL else f"[{text_of(name)}: {status}]\n{text}")


def rejected(call_id: str, message: str) -> bytes:
    """In the place of a result: the call was not allowed to run."""
    return _result(call_id, f"[not run] {text_of(message)}")


def failed(call_id: str, reason: str) -> bytes:
    """In the place of a result: the call ended, or was given up, without one."""
    return _result(call_id, f"[no result] {text_of(reason)}")


def retrieved(item_id: str, source_uri: str | None, content: bytes) -> bytes:
    source = "" if source_uri is None else f" from {text_of(source_uri)}"
    return _message("user", f"[retrieved {text_of(item_id)}{source}]\n{text_of(content)}")


def asked(request_id: str, prompt: bytes) -> bytes:
    """What a person was asked: the answer alone would say nothing."""
    return _message("user", f"[question {text_of(request_id)}]\n{text_of(prompt)}")


def provided(request_id: str, outcome: str, content: bytes) -> bytes:
    return _message("user", f"[answer to {text_of(request_id)}: {outcome}]\n{text_of(content)}")


def outputs(stage_id: str, content: bytes) -> bytes:
    return _message("user", f"[output of {text_of(stage_id)}]\n{text_of(content)}")


def findings(validator: str, verdict: str, findings: Sequence[Mapping[str, Any]]) -> bytes:
    """What a validator found wrong, for the turn that is to do better."""
    lines = [f"[{text_of(validator)}: {verdict}]"]
    for finding in findings:
        where = "" if finding["location"] is None else f" ({text_of(finding['location'])})"
        lines.append(
            f"- {text_of(finding['severity'])} {text_of(finding['code'])}: {text_of(finding['message'])}{where}"
        )
    return _message("user", "\n".join(lines))


def summary(content: bytes) -> bytes:
    """What stands for items that a compression took out."""
    return _message("user", f"[in place of earlier items]\n{text_of(content)}")


def masked(item: Item) -> bytes:
    """What stands for an item that a compression masked; of its row alone. A result stays its call's answer."""
    said = f"[left out to save space: {item.size} bytes, sha256 {item.digest.hex()}]"
    return _result(item.id, said) if item.kind == "TOOL_RESULT" else _message("user", said)


def _part(part: Mapping[str, Any], *, blob_first: bool = False) -> str:
    """``blob_first``: of arguments, whose text may be there for people beside the bytes."""
    text, blob = part["text"], part["blob"]
    if text is not None and (blob is None or not blob_first):
        return text_of(text)
    return text_of(content_of(blob))


def _result(call_id: str, content: str) -> bytes:
    return _canonical({"role": "tool", "tool_call_id": provider_call_id(call_id), "content": content})


def _message(role: str, content: str) -> bytes:
    return _canonical({"role": role, "content": content})


def _canonical(value: dict[str, Any]) -> bytes:
    """RFC 8785 of an object that holds no number: there ``json`` gives the same bytes, many times as fast."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()

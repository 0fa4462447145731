"""Recorded events as messages and tools of OpenAI's chat API. Pure.

Calls have our ids, which are unique in a session; those of providers may repeat. Arguments are the text received.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dalsegno.readers.datasets.left_out import LeftOut

Message = dict[str, Any]

ROLES: Final = {"SYSTEM": "system", "DEVELOPER": "developer", "USER": "user", "EXTERNAL_AGENT": "user"}
_CHAT_ROLES: Final = frozenset({"system", "developer", "user"})
_SCHEMAS: Final = ("parameters", "input_schema", "inputSchema", "params_json_schema", "input_json_schema")


class Call(NamedTuple):
    """A call as the model asked for it."""

    id: str
    name: str
    arguments: str

    def as_chat(self) -> dict[str, Any]:
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


def text_of(blob: Mapping[str, Any] | None) -> str:
    """A content as text; "" for none."""
    if blob is None:
        return ""
    inline = blob["inline"]
    if inline is None:
        raise LeftOut("content-missing")
    try:
        return bytes(inline).decode("utf-8")
    except UnicodeDecodeError:
        raise LeftOut("content-not-text") from None


def text_of_parts(parts: Iterable[Mapping[str, Any]], omitted: set[str]) -> str:
    """The texts of a message or an answer, a line each; ``omitted`` learns the kinds of other parts."""
    texts: list[str] = []
    for part in parts:
        kind = part["kind"]
        if kind == "MEDIA":
            raise LeftOut("media")
        if kind == "TEXT":
            texts.append(text_of(part["blob"]) if part["text"] is None else part["text"])
        elif kind != "TOOL_CALL":
            omitted.add(kind.lower())
    return "\n".join(texts)


def said(body: Mapping[str, Any], omitted: set[str]) -> Message:
    """A ``MessageReceived``."""
    if body["parts"] and all(part["kind"] not in ("TEXT", "MEDIA") for part in body["parts"]):
        raise LeftOut("item-not-text")
    return {"role": ROLES.get(body["role"], "user"), "content": text_of_parts(body["parts"], omitted)}


def answered(text: str, calls: Sequence[Call]) -> Message:
    if not calls:
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": text or None, "tool_calls": [call.as_chat() for call in calls]}


def result(type_: str, body: Mapping[str, Any], call_id: str) -> Message:
    """What a model was told of a call: its result, or why there is none."""
    if type_ in ("ToolReceiptRecorded", "SubSessionEnded"):
        content = text_of(body["result"])
    elif type_ == "ToolCallRejected":
        content = body["message"] or body["basis"]
    else:
        content = (body["error"] or {}).get("message") or body["reason"]
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def retrieved(blob: Mapping[str, Any] | None) -> Message:
    """Something that came from no other event: a text, or a message of a chat that was kept as JSON."""
    text = text_of(blob)
    if blob is None or not blob["media_type"].startswith("application/json"):
        return {"role": "user", "content": text}
    found = parsed(text)
    if isinstance(found, dict) and found.get("role") in _CHAT_ROLES and isinstance(found.get("content"), str):
        return {"role": found["role"], "content": found["content"]}
    raise LeftOut("item-not-text")


def calls_of(body: Mapping[str, Any], requested: Callable[[str], Mapping[str, Any] | None]) -> list[Call]:
    """The calls of an answer, in order. ``requested`` gives the body of a ``ToolCallRequested`` by our id.

    Arguments are those of the request, else of the answer's own part.
    """
    parts = [part for part in body["output"] if part["kind"] == "TOOL_CALL"]
    listed = body["tool_calls"]
    if parts and len(parts) != len(listed):
        parts = []  # which is which, nobody can say
    calls = []
    for place, call in enumerate(listed):
        asked = requested(call["tool_call_id"])
        blob = asked["arguments"] if asked is not None else None
        if blob is None and parts:
            blob = parts[place]["blob"]
        if blob is None and call["arguments_digest"] is not None:
            raise LeftOut("content-missing")
        calls.append(Call(call["tool_call_id"], call["name"], text_of(blob)))
    return calls


def tools_of(text: str, names: Sequence[str] | None = None) -> list[dict[str, Any]] | None:
    """The tools that a document defines, in its order, in the form of OpenAI's API; None if it is in no known form.
    ``names``: only these."""
    found = parsed(text)
    listed = found.get("tools") if isinstance(found, dict) else found
    if not isinstance(listed, list):
        return None
    tools = [_tool(each) for each in listed]
    if any(tool is None for tool in tools):
        return None
    return [tool for tool in tools if tool is not None and (names is None or tool["function"]["name"] in names)]


def _tool(given: Any) -> dict[str, Any] | None:
    function = given.get("function", given) if isinstance(given, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return None
    schema = next((function[name] for name in _SCHEMAS if name in function), None)
    if isinstance(schema, str):
        schema = parsed(schema)
    if not isinstance(schema, dict):
        return None
    described = function.get("description")
    return {
        "type": "function",
        "function": {
            "name": function["name"],
            "description": described if isinstance(described, str) else "",
            "parameters": schema,
        },
    }


def parsed(text: str) -> Any:
    """JSON; None for what is none, or cannot be written again: lone surrogates, too deep."""
    try:
        found = json.loads(text, parse_constant=_no_number)
        json.dumps(found, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        return None
    return found


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def is_of_decider(build: Mapping[str, Any]) -> bool:
    """Whether a HARNESS_BUILD is one of dalsegno's own, which names its decider."""
    found = None if build["inline"] is None else parsed(text_of(build))
    return isinstance(found, dict) and "decider" in found


def check_pairs(messages: Sequence[Message]) -> None:
    """Behind an answer with calls stand the results of all of them, in order, and no result stands elsewhere."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if not waiting or waiting.pop(0) != message["tool_call_id"]:
                raise LeftOut("half-a-pair")
            continue
        if waiting:
            raise LeftOut("half-a-pair")
        waiting = [call["id"] for call in message.get("tool_calls", ())]
    if waiting:
        raise LeftOut("half-a-pair")

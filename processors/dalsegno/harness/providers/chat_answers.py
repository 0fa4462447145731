"""What an OpenAI-compatible server answers, as values: an answer whole or in deltas, and the names of its errors. Pure.

Only the first choice is answered; ``raw`` holds the others. Servers differ in small things, and what differs is taken
as it comes: arguments as an object, content in parts, calls without an index, errors in a body of status 200.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dalsegno.model.events import Usage
from dalsegno.orchestration.ports import CONTEXT_OVERFLOW, Answer, AnsweredCall, InferenceError

_TOO_LONG = re.compile(
    r"context[ _-]?(length|window|size)|maximum context|prompt is too long|input is too long|too many (input )?tokens",
    re.IGNORECASE,
)
_MESSAGE_CHARACTERS = 2000


def whole(body: bytes) -> Answer:
    """A body that was not streamed. Raises InferenceError where it holds an error, or no answer."""
    read = _object(body)
    choice = _first(read)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise _garbled("a choice without a message", body)
    deltas = Deltas()
    deltas.head(read)
    for call in _objects(message.get("tool_calls")):
        deltas.new_call(call)
    deltas.words(message)
    if isinstance(reason := choice.get("finish_reason"), str):
        deltas.finish_reason = reason
    return deltas.answer(body)


@dataclass
class Deltas:
    """An answer put together from its pieces, in the order in which they came."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)
    finish_reason: str | None = None
    model: str | None = None
    response_id: str | None = None
    usage: Usage = field(default_factory=Usage)

    def feed(self, data: bytes) -> bool:
        """One event's data; whether it brought some of the answer. Raises InferenceError."""
        read = _object(data)
        self.head(read)
        choices = [choice for choice in _objects(read.get("choices")) if choice.get("index", 0) == 0]
        for choice in choices:
            delta = choice.get("delta")
            if isinstance(delta, dict):
                self.words(delta)
                for call in _objects(delta.get("tool_calls")):
                    self._call(call)
            if isinstance(reason := choice.get("finish_reason"), str):
                self.finish_reason = _joined([reason])
        return bool(choices)

    def head(self, read: dict[str, Any]) -> None:
        if isinstance(model := read.get("model"), str):
            self.model = _joined([model])
        if isinstance(response_id := read.get("id"), str):
            self.response_id = _joined([response_id])
        if isinstance(usage := read.get("usage"), dict):
            self.usage = _usage(usage)

    def words(self, message: dict[str, Any]) -> None:
        self.text.extend(_texts(message.get("content")))
        self.text.extend(_texts(message.get("refusal")))
        self.reasoning.extend(_texts(message.get("reasoning_content") or message.get("reasoning")))

    def new_call(self, call: dict[str, Any]) -> None:
        self.calls.append(_Call(call.get("index"), call.get("id")))
        self.calls[-1].add(call)

    def _call(self, delta: dict[str, Any]) -> None:
        """By index, as OpenAI does; but an index that comes again with another id is another call, and without an
        index a name begins one."""
        index, native_id = delta.get("index"), delta.get("id")
        if index is None:
            known = self.calls[-1] if self.calls and not _function(delta).get("name") else None
        else:
            known = next((call for call in reversed(self.calls) if call.index == index), None)
            if known is not None and native_id and known.native_id and native_id != known.native_id:
                known = None
        if known is None:
            self.new_call(delta)
        else:
            known.native_id = known.native_id or native_id
            known.add(delta)

    def answer(self, raw: bytes) -> Answer:
        return Answer(
            text=_joined(self.text),
            calls=tuple(call.answered() for call in self.calls),
            reasoning=_joined(self.reasoning) or None,
            finish_reasons=() if self.finish_reason is None else (self.finish_reason,),
            usage=self.usage,
            model=self.model,
            response_id=self.response_id,
            raw=raw,
        )


@dataclass
class _Call:
    index: Any
    native_id: Any
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def add(self, delta: dict[str, Any]) -> None:
        function = _function(delta)
        if isinstance(name := function.get("name"), str):
            self.name = self.name or name
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            self.arguments.append(arguments)
        elif arguments is not None:
            self.arguments.append(_compact(arguments))

    def answered(self) -> AnsweredCall:
        """No arguments at all are what some servers send for an object without members."""
        native_id = None if self.native_id is None else _joined([str(self.native_id)])
        return AnsweredCall(_joined([self.name]), _joined(self.arguments).encode() or b"{}", native_id)


def error_of(status: int, body: bytes, *, retry_after_ms: int | None = None) -> InferenceError:
    """An answer whose status is not 200."""
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        read = None
    error = read.get("error", read) if isinstance(read, dict) else None
    code, message = _said(error)
    message = message or body.decode("utf-8", "replace").strip() or "no body"
    error_class, retryable = _class_of(status, code, message)
    return InferenceError(
        error_class,
        f"HTTP {status}: {message[:_MESSAGE_CHARACTERS]}",
        retryable=retryable,
        http_status=status,
        retry_after_ms=retry_after_ms,
    )


def _class_of(status: int, code: str, message: str) -> tuple[str, bool]:
    if status == 413 or (status in (400, 422) and (code == "context_length_exceeded" or _TOO_LONG.search(message))):
        return CONTEXT_OVERFLOW, False
    if status == 429:
        # Out of credit does not pass by waiting, though it has the same status.
        return ("quota_exhausted", False) if code == "insufficient_quota" else ("rate_limited", True)
    if status == 408:
        return "timeout", True
    if status >= 500:
        return "server_error", True
    named = {401: "unauthorized", 403: "forbidden", 404: "not_found"}
    return named.get(status, "redirected" if 300 <= status < 400 else "bad_request"), False


def _object(body: bytes) -> dict[str, Any]:
    try:
        read = json.loads(body)  # it takes half a surrogate pair, which a stream may end a delta with
    except (ValueError, RecursionError) as error:
        raise _garbled(str(error), body) from error
    if not isinstance(read, dict):
        raise _garbled(f"a {type(read).__name__}", body)
    if read.get("error"):
        code, message = _said(read["error"])
        # The server had begun to answer: nothing but its code tells what became of it.
        status = int(code) if code.isdecimal() and len(code) == 3 else 400 if _TOO_LONG.search(code + message) else 500
        error_class, retryable = _class_of(status, code, message)
        said = message[:_MESSAGE_CHARACTERS] or "an error without a message"
        raise InferenceError(error_class, said, retryable=retryable, http_status=200)
    return read


def _said(error: Any) -> tuple[str, str]:
    """Code and message of an error, wherever it has them."""
    if not isinstance(error, dict):
        return "", _joined([error]) if isinstance(error, str) else ""
    message = error.get("message") or error.get("detail")
    said = message if isinstance(message, str) else _compact(error)
    return str(error.get("code") or error.get("type") or ""), _joined([said])


def _first(read: dict[str, Any]) -> dict[str, Any]:
    choices = _objects(read.get("choices"))
    for choice in choices:
        return choice
    raise _garbled("no choices", _compact(read).encode())


def _garbled(found: str, body: bytes) -> InferenceError:
    begins = body[:200].decode("utf-8", "replace")
    return InferenceError(
        "garbled_answer", f"the answer is no chat completion ({found}); it begins: {begins!r}", retryable=True
    )


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    return (one for one in value if isinstance(one, dict)) if isinstance(value, list) else iter(())


def _function(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    return function if isinstance(function, dict) else {}


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in _objects(content) if isinstance(part.get("text"), str)]


def _joined(pieces: list[str]) -> str:
    """Pairs of surrogates that were torn apart are one character again; a half that stays alone is U+FFFD."""
    return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _usage(usage: dict[str, Any]) -> Usage:
    prompt, completion = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    prompt, completion = prompt if isinstance(prompt, dict) else {}, completion if isinstance(completion, dict) else {}
    return Usage(
        input=_count(usage.get("prompt_tokens")),
        output=_count(usage.get("completion_tokens")),
        cache_read=_count(usage.get("cache_read_input_tokens", prompt.get("cached_tokens"))),
        cache_creation=_count(usage.get("cache_creation_input_tokens")),
        reasoning=_count(completion.get("reasoning_tokens")),
    )


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**63 else None

"""What a model was asked and what it answered, where an activity is a call of a model.

Read in the form of OpenAI's responses API, in which agent libraries put these activities; anything else is kept as it
is. Every request holds the whole conversation so far: what of it no event holds yet is new.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from dalsegno.importers.fields import Fields
from dalsegno.importers.given import Seen
from dalsegno.importers.payload import BlobMaker, count, digest_json, short_text
from dalsegno.importers.wanted import Wanted, call_part, wanted_call
from dalsegno.model.events import Part, Usage

MODEL_ACTIVITY = re.compile(r"(^|_)(invoke_model|model_request)(_|$)")
"""Names of activities that call a model; all others are tools."""

_TOOLS = ("tools", "handoffs")
_APART = ("model_name", "system_instructions", "input", *_TOOLS)


class Question(NamedTuple):
    """A request. ``items`` is the conversation that the model is given, ``params`` all that is not told otherwise."""

    model: str | None
    instructions: str | None
    items: Sequence[dict[str, Any]]
    tools: Any
    params: Any


def question_of(value: Any) -> Question | None:
    """None for a request of another form."""
    if not isinstance(value, dict) or not isinstance(value.get("input"), str | list):
        return None
    given = value["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not all(isinstance(item, dict) for item in items):
        return None
    instructions = value.get("system_instructions")
    return Question(
        model=short_text(value.get("model_name")) or None,
        instructions=instructions if isinstance(instructions, str) and instructions else None,
        items=items,
        tools={name: value[name] for name in _TOOLS if value.get(name)} or None,
        params={name: part for name, part in value.items() if name not in _APART},
    )


def output_of(value: Any) -> list[dict[str, Any]]:
    """The items of an answer."""
    return Fields(value).take_objects("output") if isinstance(value, dict) else []


def wanted_of(items: Iterable[dict[str, Any]]) -> list[Wanted]:
    return [
        wanted_call(item.get("call_id"), item.get("name"), item.get("arguments"))
        for item in items
        if item.get("type") == "function_call"
    ]


def usage_of(value: Any) -> Usage:
    """Tokens as they are told: a zero that stands there is a zero."""
    usage = Fields(Fields(value).take_object("usage") if isinstance(value, dict) else {})
    given, made = usage.take_object("input_tokens_details"), usage.take_object("output_tokens_details")
    return Usage(
        input=count(usage.take("input_tokens")),
        output=count(usage.take("output_tokens")),
        cache_read=count(given.get("cached_tokens")),
        reasoning=count(made.get("reasoning_tokens")),
    )


def parts_of(item: dict[str, Any], blobs: BlobMaker) -> list[Part]:
    """An item of an answer, or a message of a request."""
    if item.get("type") == "function_call":
        return [call_part(call, blobs) for call in wanted_of([item])]
    content = item.get("content")
    if isinstance(content, str):
        return [blobs.part(content)]
    if item.get("type", "message") != "message" or not isinstance(content, list):
        kind = "REASONING" if item.get("type") == "reasoning" else "OTHER"
        return [Part(kind=kind, name=short_text(item.get("type")) or None, blob=blobs.of_json(item))]  # type: ignore[arg-type]
    return blobs.parts(content)


class Given:
    """What a model was given before, and what is new."""

    def __init__(self) -> None:
        self._seen = Seen()
        self._said: Counter[str] = Counter()

    def told(self, value: Any) -> None:
        """Somebody sent this value; a message made of one of its texts is the same message."""
        if isinstance(value, str):
            self._said[value] += 1
        elif isinstance(value, dict | list):
            for item in value.values() if isinstance(value, dict) else value:
                self.told(item)

    def answered(self, items: Iterable[dict[str, Any]]) -> None:
        self._seen.saw(*map(digest_json, items))

    def new(self, items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """The items that no event holds yet, from now on seen. The user's messages among them that somebody sent are
        left out: they have their event."""
        found = []
        for item in self._seen.new(items, digest_json):
            text = item.get("content")
            if item.get("role") == "user" and isinstance(text, str) and self._said[text] > 0:
                self._said[text] -= 1
            else:
                found.append(item)
        return found

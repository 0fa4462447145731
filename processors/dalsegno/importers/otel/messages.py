"""What a model was told and what it said, as spans tell it: numbered attributes, or JSON in one. Pure.

Messages that older conventions told as events of a span are kept with it, and are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from dalsegno.importers.fields import Fields
from dalsegno.importers.json_file import json_in
from dalsegno.importers.payload import BlobMaker, clean_text, digest_json, short_text
from dalsegno.importers.wanted import Wanted, call_part, wanted_call
from dalsegno.model.events import Part
from dalsegno.model.payloads import PartKind

_NUMBERED = re.compile(r"(?P<place>\d{1,6})\.(?P<rest>.+)\Z")
_KINDS: dict[str, PartKind] = {"reasoning": "REASONING", "thinking": "REASONING", "image": "MEDIA", "blob": "MEDIA"}


class Asked(NamedTuple):
    """A call that a model asks for, as a message holds it."""

    native_id: str | None
    name: str
    arguments: Any


class Message(NamedTuple):
    """One message. ``items`` are texts, calls, results (``call_id``, content) and whatever else is said."""

    role: str
    items: tuple[Any, ...]
    call_id: str | None = None
    finish_reason: str | None = None

    @property
    def key(self) -> bytes:
        """Equal for the same message, wherever it stands."""
        return digest_json([self.role, self.call_id, self.items])

    @property
    def calls(self) -> list[Wanted]:
        return [wanted_call(*item) for item in self.items if isinstance(item, Asked)]


def numbered(attributes: Fields, prefix: str) -> list[dict[str, Any]]:
    """``<prefix>.0.name`` ... as objects; what is numbered inside them (``tool_calls.0.id``) as lists of objects."""
    found: dict[int, dict[str, Any]] = {}
    for name in [name for name in attributes.data if name.startswith(f"{prefix}.")]:
        match = _NUMBERED.match(name[len(prefix) + 1 :])
        if match is not None:
            found.setdefault(int(match["place"]), {})[match["rest"]] = attributes.take(name)
    return [found[place] for place in sorted(found)]


def prompts(attributes: Fields) -> list[Message]:
    """All that the model was told."""
    told = [_flat(each) for each in numbered(attributes, "gen_ai.prompt")]
    instructions = json_in(attributes.take("gen_ai.system_instructions"))
    if instructions:
        told.append(Message("system", tuple(_item(part) for part in _list(instructions))))
    return told + [_structured(each) for each in _list(json_in(attributes.take("gen_ai.input.messages")))]


def answers(attributes: Fields) -> list[Message]:
    """All that the model said, one message a choice."""
    said = [_flat(each, "assistant") for each in numbered(attributes, "gen_ai.completion")]
    return said + [_structured(each) for each in _list(json_in(attributes.take("gen_ai.output.messages")))]


def tools(attributes: Fields) -> Any:
    """The tools that the model may ask for; None where none are told."""
    functions = numbered(attributes, "llm.request.functions")
    return functions or json_in(attributes.take("gen_ai.tool.definitions"))


def parts_of(message: Message, blobs: BlobMaker) -> list[Part]:
    return [_part(item, blobs) for item in message.items]


def _flat(data: dict[str, Any], role: str = "user") -> Message:
    """One numbered message: ``role``, ``content``, ``tool_calls.0.id`` ..., ``tool_call_id``, ``finish_reason``."""
    fields = Fields(data)
    calls = numbered(fields, "tool_calls")
    content = fields.take("content")
    items: list[Any] = [] if content in (None, "") else [content]
    items += [Asked(_id(each.get("id")), short_text(each.get("name")), each.get("arguments")) for each in calls]
    own_role, reason = fields.take("role"), fields.take("finish_reason")
    call_id = _id(fields.take("tool_call_id"))
    rest = {name: data[name] for name in fields.left()}
    return Message(short_text(own_role) or role, (*items, *([rest] if rest else [])), call_id, _id(reason))


def _structured(data: Any) -> Message:
    """One message as the conventions give it in JSON: ``role``, ``parts``, ``finish_reason``."""
    if not isinstance(data, dict):
        return Message("user", (data,))
    parts = data.get("parts")
    items = [_item(part) for part in parts] if isinstance(parts, list) else [data.get("content")]
    results = Fields(data).take_objects("parts")
    call_id = next((_id(part.get("id")) for part in results if part.get("type") == "tool_call_response"), None)
    return Message(short_text(data.get("role")) or "user", tuple(items), call_id, _id(data.get("finish_reason")))


def _item(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("content"), str):
        return part["content"]
    if kind == "tool_call":
        return Asked(_id(part.get("id")), short_text(part.get("name")), part.get("arguments"))
    if kind == "tool_call_response":
        return part.get("response", part.get("result"))
    return part


def _part(item: Any, blobs: BlobMaker) -> Part:
    if isinstance(item, Asked):
        return call_part(wanted_call(*item), blobs)
    if isinstance(item, str):
        return blobs.part(clean_text(item))
    kind = short_text(item.get("type")) if isinstance(item, dict) else ""
    return Part(kind=_KINDS.get(kind, "OTHER"), name=kind or None, blob=blobs.of_json(item))


def _list(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _id(value: Any) -> str | None:
    return short_text(value) or None

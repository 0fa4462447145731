"""An answer in the form of OpenAI's chat API, in which OpenHands recorded the answers of all providers."""

from __future__ import annotations

from typing import Any

from dalsegno.importers.chat_api import finish_reasons_of, usage_of
from dalsegno.importers.fields import Fields
from dalsegno.importers.openhands.records import Answer
from dalsegno.importers.payload import BlobMaker, short_text
from dalsegno.importers.wanted import Wanted, wanted_call
from dalsegno.model.events import Part


def completion(response: dict[str, Any], blobs: BlobMaker) -> Answer:
    choices = Fields(response).take_objects("choices")
    messages = [Fields(choice).take_object("message") for choice in choices]
    model = response.get("model")
    return Answer(
        parts=[part for message in messages for part in parts_of(message, blobs)],
        calls=[call for message in messages for call in _calls(message)],
        output=choices,
        model=short_text(model) if model else None,
        finish_reasons=finish_reasons_of(choices),
        usage=usage_of(Fields(response).take_object("usage")),
        raw=response,
    )


def said(response: dict[str, Any]) -> list[Any]:
    """The contents of its messages."""
    return [Fields(choice).take_object("message").get("content") for choice in Fields(response).take_objects("choices")]


def parts_of(message: dict[str, Any], blobs: BlobMaker) -> list[Part]:
    """What a message says, its calls left out."""
    parts = []
    reasoning = message.get("reasoning_content")
    if isinstance(reasoning, str) and reasoning:
        parts.append(blobs.part(reasoning, "REASONING"))
    return parts + blobs.parts(message.get("content"))


def _calls(message: dict[str, Any]) -> list[Wanted]:
    calls = []
    for call in Fields(message).take_objects("tool_calls"):
        function = Fields(call).take_object("function")
        calls.append(wanted_call(call.get("id"), function.get("name"), function.get("arguments")))
    return calls

"""Answers in the form of OpenAI's chat API, in which libraries record those of all providers. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dalsegno.importers.fields import Fields
from dalsegno.importers.payload import count, short_text
from dalsegno.model.events import Usage


def usage_of(usage: dict[str, Any]) -> Usage:
    """Tokens; what was read from a cache stands at one place or the other, by provider."""
    prompt = Fields(usage).take_object("prompt_tokens_details")
    completion = Fields(usage).take_object("completion_tokens_details")
    return Usage(
        input=count(usage.get("prompt_tokens")),
        output=count(usage.get("completion_tokens")),
        cache_read=count(usage.get("cache_read_input_tokens", prompt.get("cached_tokens"))),
        cache_creation=count(usage.get("cache_creation_input_tokens")),
        reasoning=count(completion.get("reasoning_tokens")),
    )


def finish_reasons_of(choices: Iterable[dict[str, Any]]) -> list[str]:
    return [short_text(choice["finish_reason"]) for choice in choices if choice.get("finish_reason")]

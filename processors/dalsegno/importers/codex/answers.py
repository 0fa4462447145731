"""What a model answered, and what came back of the tools that it asked for. Pure.

Codex records what a model gave item by item, and the tokens behind it. Items that follow each other are one answer,
until its tokens come, or something that only comes behind an answer.
"""

from __future__ import annotations

from typing import Any

from dalsegno.importers.codex import items
from dalsegno.importers.codex.records import CALLS, MAPPED, NOTE, PROVIDER_CALLS, Findings, Native, Outcome
from dalsegno.importers.codex.settings import Settings
from dalsegno.importers.payload import count, digest_json
from dalsegno.importers.transcript import Asked, Transcript
from dalsegno.model.events import InferenceCompleted, Usage


class Answers:
    """The model calls of one session. ``said`` are the items of an answer that may go on."""

    def __init__(self, transcript: Transcript, settings: Settings, seen: Findings) -> None:
        self._transcript, self._settings, self._seen = transcript, settings, seen
        self._asked: Asked | None = None
        self._tokens: Any = None
        self.said: list[Native] = []

    def goes_on(self, native: Native) -> None:
        """An item of an answer, in the open turn."""
        if self._asked is None:
            self._asked = self._transcript.ask(native.source, self._settings.provider, self._settings.model)
        self.said.append(native)

    def has_new_tokens(self, native: Native) -> bool:
        """Whether a ``token_count`` tells of an answer: the same tokens are told again with every limit."""
        info = native.payload.get("info")
        total = info.get("total_token_usage") if isinstance(info, dict) else None
        if not isinstance(total, dict) or total == self._tokens:
            return False
        self._tokens = total
        return self._asked is not None

    def close(self, tokens: Native | None = None) -> list[Native]:
        """The answer is whole: gives its items. ``tokens`` is the record that tells what it used."""
        if self._asked is None:
            return []
        asked, self._asked = self._asked, None
        said, self.said = self.said, []
        transcript, at = self._transcript, said[-1].source
        asking = [native for native in said if native.payload_type in CALLS]
        wanted = [items.wanted_of(native) for native in asking]
        raw = [native.fields.take_all() for native in said]
        event = InferenceCompleted(
            inference_id=asked.inference_id,
            cache="NONE",
            usage=Usage() if tokens is None else _usage(tokens),
            model=self._settings.model,
            output_digest=digest_json(raw),
            tool_calls=transcript.wanted(asked, wanted),
            output=items.output_parts(said, transcript.blobs),
            raw=transcript.blobs.of_json(raw),
        )
        for native, opened in zip(asking, transcript.answer(asked, event, wanted, at), strict=True):
            if native.payload_type in PROVIDER_CALLS:
                calls, status = transcript.calls, items.status_of(native, None)
                calls.start(opened.call, native.source, executor="provider", synthesized=True)
                calls.receive(opened.call, native.source, native.payload, status)
        return said

    def output(self, native: Native) -> Outcome:
        """What a tool gave back."""
        opened = self._transcript.open_call(str(native.fields.take("call_id")))
        if opened is None:
            self._seen.loose.append(native.line.number)
            return NOTE
        native.fields.take_each("output", "tools")
        result = items.result_of(native)
        code = items.exit_code_of(result)
        self._transcript.calls.receive(
            opened.call, native.source, result, items.status_of(native, code), exit_code=code
        )
        return MAPPED


def _usage(tokens: Native) -> Usage:
    """The tokens of the answer; what else the record tells of them is not carried."""
    info = tokens.fields.take_object("info")
    for name in info:
        if name != "last_token_usage":
            tokens.fields.drop(f"info.{name}")
    told = info.get("last_token_usage")
    last = told if isinstance(told, dict) else {}
    return Usage(
        input=count(last.get("input_tokens")),
        output=count(last.get("output_tokens")),
        cache_read=count(last.get("cached_input_tokens")),
        cache_creation=count(last.get("cache_write_input_tokens")),
        reasoning=count(last.get("reasoning_output_tokens")),
    )

"""What a model answered, and what came back of the tools that it asked for. Pure.

Codex records what a model gave item by item. Items that follow each other are one answer. Its tokens come behind them,
in some versions behind the results too, and in versions of 2025 before them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dalsegno.importers.codex import items
from dalsegno.importers.codex.records import (
    CALLS,
    MAPPED,
    NOTE,
    PROVIDER_CALLS,
    WAITS,
    Findings,
    Native,
    Outcome,
    Settled,
)
from dalsegno.importers.codex.settings import Settings
from dalsegno.importers.payload import count, digest_json, short_text
from dalsegno.importers.transcript import Asked, Transcript
from dalsegno.importers.wanted import requested_calls
from dalsegno.model.events import InferenceCompleted, Usage


class Answers:
    """The model calls of one session, and the results of what they asked for."""

    def __init__(self, transcript: Transcript, settings: Settings, seen: Findings) -> None:
        self._transcript, self._settings, self._seen = transcript, settings, seen
        self._asked: Asked | None = None
        self._tokens: Any = None
        self._said: list[Native] = []
        self._results: list[Native] = []
        """What came behind an answer whose tokens may still come."""
        self._ahead: Native | None = None
        """Tokens of the answer that is to come."""
        self.expected = False
        """A model is about to be asked, since there is something new to show it."""

    def waiting(self) -> list[Native]:
        return [*self._said, *self._results, *([] if self._ahead is None else [self._ahead])]

    def is_over(self) -> bool:
        """Whether a further item is of another answer: results came."""
        return bool(self._results)

    def goes_on(self, native: Native) -> None:
        """An item of an answer, in the open turn."""
        self.expected = False
        if self._asked is None:
            self._asked = self._transcript.ask(native.source, self._settings.provider, self._settings.model)
        self._said.append(native)

    def result(self, native: Native) -> Outcome:
        """What a tool gave back."""
        self.expected = False
        if not self._said:
            return self._received(native)
        self._results.append(native)
        return WAITS

    def tells_tokens(self, native: Native) -> bool:
        """Whether this record tells the tokens of an answer that none told before: counts are told again with every
        limit, and behind a ``token_usage_record``."""
        if native.kind == "token_usage_record":
            self._tokens = native.payload.get("thread_token_usage")
            return isinstance(native.payload.get("usage"), dict)
        info = native.payload.get("info")
        total = info.get("total_token_usage") if isinstance(info, dict) else None
        if not isinstance(total, dict) or total == self._tokens:
            return False
        self._tokens = total
        return True

    def tokens(self, native: Native) -> Iterator[Settled]:
        """New tokens: of the answer before them; where a model was about to be asked, of the next one."""
        if self._said:
            yield from self.close(native)
            yield native, MAPPED
        elif not self.expected:
            yield native, NOTE
        else:
            yield from self.close()
            self._ahead = native

    def close(self, tokens: Native | None = None) -> Iterator[Settled]:
        """Nothing more of an answer comes, if there is one; then what came behind it. Gives what became of each, to be
        settled before the next is looked at."""
        ahead, self._ahead = self._ahead, None
        said, self._said = self._said, []
        results, self._results = self._results, []
        if said:
            self._answer(said, tokens or ahead)
        for native in said:
            yield native, MAPPED
        if ahead is not None:
            yield ahead, MAPPED if said and tokens is None else NOTE
        for native in results:
            yield native, self._received(native)

    def _answer(self, said: list[Native], tokens: Native | None) -> None:
        assert self._asked is not None
        asked, self._asked = self._asked, None
        transcript, at = self._transcript, said[-1].source
        asking = [native for native in said if native.payload_type in CALLS]
        wanted = [items.wanted_of(native) for native in asking]
        raw = [native.fields.take_all() for native in said]
        response_id = None if tokens is None else tokens.fields.take_text("response_id")
        event = InferenceCompleted(
            inference_id=asked.inference_id,
            usage=Usage() if tokens is None else _usage(tokens),
            model=self._settings.model,
            response_id=None if response_id is None else short_text(response_id),
            output_digest=digest_json(raw),
            tool_calls=requested_calls(asked.inference_id, wanted),
            output=items.output_parts(said, transcript.blobs),
            raw=transcript.blobs.of_json(raw),
        )
        for native, opened in zip(asking, transcript.answer(asked, event, wanted, at), strict=True):
            if native.payload_type in PROVIDER_CALLS:
                calls, status = transcript.calls, items.status_of(native, None)
                calls.start(opened.call, native.source, executor="provider", synthesized=True)
                calls.receive(opened.call, native.source, native.payload, status)

    def _received(self, native: Native) -> Outcome:
        opened = self._transcript.open_call(native.fields.take("call_id"))
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
    told = tokens.fields.take("usage") if tokens.kind == "token_usage_record" else info.get("last_token_usage")
    last = told if isinstance(told, dict) else {}
    return Usage(
        input=count(last.get("input_tokens")),
        output=count(last.get("output_tokens")),
        cache_read=count(last.get("cached_input_tokens")),
        cache_creation=count(last.get("cache_write_input_tokens")),
        reasoning=count(last.get("reasoning_output_tokens")),
    )

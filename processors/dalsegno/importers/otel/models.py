"""Spans in which a model was asked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from dalsegno.importers.builder import PERSON, Added, model_actor
from dalsegno.importers.fields import Fields
from dalsegno.importers.given import Seen, ToolSets
from dalsegno.importers.json_file import json_in
from dalsegno.importers.otel.calls import INPUT_TOKENS, OUTPUT_TOKENS
from dalsegno.importers.otel.messages import Message, answers, parts_of, prompts, tools
from dalsegno.importers.otel.session import HARNESS, Session
from dalsegno.importers.otel.spans import Span
from dalsegno.importers.payload import count, digest_json, short_text
from dalsegno.importers.wanted import requested_calls
from dalsegno.model.events import (
    ContextItemRetrieved,
    InferenceCompleted,
    InferenceFailed,
    InferenceRequested,
    MessageReceived,
    Usage,
)
from dalsegno.model.records import Actor

_ROLES = {"system": "SYSTEM", "developer": "DEVELOPER", "user": "USER"}
_REQUEST = ("gen_ai.request.", "llm.request.", "gen_ai.openai.", "llm.is_streaming")
"""Attributes that say how the model was asked."""
_READ = ("gen_ai.usage.cache_read_input_tokens", "gen_ai.usage.cache_read.input_tokens")
_CREATED = ("gen_ai.usage.cache_creation_input_tokens", "gen_ai.usage.cache_creation.input_tokens")
_REASONING = ("gen_ai.usage.reasoning_tokens", "llm.usage.reasoning_tokens")


@dataclass
class _Asked:
    inference_id: str
    requested: Added
    model: str | None
    fields: list[Fields]
    """Attributes of the spans that report this call, the innermost first; what is taken of the first is carried."""


class Models:
    """The calls of models of one trace. ``same``: the spans that report each of them."""

    def __init__(self, session: Session, same: dict[str, list[Span]]) -> None:
        self._session = session
        self._same = same
        self._open: dict[str, _Asked] = {}
        self.answers: dict[str, Added] = {}
        """Id of a span -> the answer that it is."""
        self._seen = Seen()
        self._tool_sets = ToolSets(session.blobs)

    def open_inferences(self) -> list[str]:
        return [asked.inference_id for asked in self._open.values()]

    def began(self, span: Span) -> None:
        session = self._session
        fields = [
            Fields(each.attributes, ("gen_ai.operation.name", "llm.request.type")) for each in self._same[span.id]
        ]
        told = next((found for each in fields if (found := prompts(each))), [])
        offered = next((found for each in fields if (found := tools(each))), None)
        self._context(told, span)
        tools_digest, item = (None, None) if offered is None else self._tool_sets.offered(offered)
        if item is not None:
            session.add(item, span)
        model = _text(fields, "gen_ai.request.model")
        provider = _text(fields, "gen_ai.provider.name", "gen_ai.system")
        own = fields[0]
        params = {name: own.take(name) for name in own.left() if name.startswith(_REQUEST)}
        inference_id = session.builder.number(f"{session.stage_of(span) or 'session'}/i")
        digest = digest_json([[each.key.hex() for each in told], offered, params, provider, model]) if told else None
        event = InferenceRequested(
            inference_id=inference_id,
            purpose="AGENT",
            provider=provider,
            model=model,
            request_digest=digest,
            tools_digest=tools_digest,
            params=session.blobs.of_json(params),
        )
        requested = session.add(event, span)
        self._open[span.id] = _Asked(inference_id, requested, model, fields)

    def ended(self, span: Span, *, early: bool) -> None:
        """``early``: the answer was there before the span's end, nobody knows when."""
        session, asked = self._session, self._open.pop(span.id)
        said = next((found for each in asked.fields if (found := answers(each))), [])
        actor = model_actor(asked.model)
        if span.failed and not said:
            failed = InferenceFailed(inference_id=asked.inference_id, error=session.error(span))
            session.add(failed, span, actor, at=span.end, cause=asked.requested)
        else:
            self._answered(span, asked, said, actor, early=early)
        session.rest(span, set(span.attributes) - set(asked.fields[0].left()))

    def _answered(self, span: Span, asked: _Asked, said: list[Message], actor: Actor, *, early: bool) -> None:
        session = self._session
        wanted = [call for message in said for call in message.calls]
        # Unknown, too, where clocks say that it ended before it began.
        timed = not early and span.start is not None and span.end is not None and span.end >= span.start
        latency = ((span.end or 0) - (span.start or 0)) // 1_000_000 if timed else None
        event = InferenceCompleted(
            inference_id=asked.inference_id,
            usage=_usage(asked.fields),
            latency_ms=latency,
            model=_text(asked.fields, "gen_ai.response.model") or asked.model,
            response_id=_text(asked.fields, "gen_ai.response.id"),
            output_digest=digest_json([each.key.hex() for each in said]) if said else None,
            finish_reasons=_reasons(asked.fields, said),
            tool_calls=requested_calls(asked.inference_id, wanted),
            output=[part for message in said for part in parts_of(message, session.blobs)],
            complete=not span.failed,
        )
        completed = session.add(event, span, actor, at=span.end, cause=asked.requested, timeless=early)
        self.answers[span.id] = completed
        self._seen.saw(*(message.key for message in said))
        source = session.source(span, span.end)
        at = source._replace(time=None) if early else source
        session.calls.request_each(asked.inference_id, wanted, at, cause=completed, stage_id=session.stage_of(span))

    def _context(self, told: list[Message], span: Span) -> None:
        """What the model is told and no event holds yet; results of calls that have no span show here."""
        session = self._session
        for message in self._seen.new(told, lambda each: each.key):
            if message.role in _ROLES:
                event = MessageReceived(
                    message_id=session.builder.number("m"),
                    role=_ROLES[message.role],  # type: ignore[arg-type]
                    parts=parts_of(message, session.blobs),
                )
                session.add(event, span, PERSON if message.role == "user" else HARNESS)
                continue
            if message.call_id is not None:
                call = session.calls.open_call(message.call_id)
                if call is not None:
                    content = message.items[0] if len(message.items) == 1 else list(message.items)
                    session.calls.receive(call, session.source(span), content, synthesized=True)
                    continue
                if _holds(session.results.get(message.call_id), message):
                    continue
            content = session.blobs.of_json([message.role, message.call_id, message.items])
            session.add(ContextItemRetrieved(item_id=session.builder.number("r"), content=content), span)


def _holds(result: str | None, message: Message) -> bool:
    """Whether a result says all that the message says, be it inside its JSON."""
    if result is None:
        return False
    return all(isinstance(item, str) and (item in result or json.dumps(item)[1:-1] in result) for item in message.items)


def _take(fields: list[Fields], *names: str) -> Any:
    """Of the innermost span that says it."""
    for each in fields:
        for name in names:
            if each.data.get(name) is not None:
                return each.take(name)
    return None


def _text(fields: list[Fields], *names: str) -> str | None:
    return short_text(_take(fields, *names)) or None


def _usage(fields: list[Fields]) -> Usage:
    return Usage(
        input=count(_take(fields, *INPUT_TOKENS)),
        output=count(_take(fields, *OUTPUT_TOKENS)),
        cache_read=count(_take(fields, *_READ)),
        cache_creation=count(_take(fields, *_CREATED)),
        reasoning=count(_take(fields, *_REASONING)),
    )


def _reasons(fields: list[Fields], said: list[Message]) -> list[str]:
    reasons = [message.finish_reason for message in said if message.finish_reason]
    if reasons:
        return reasons
    given = json_in(_take(fields, "gen_ai.response.finish_reasons"))
    return [short_text(each) for each in given] if isinstance(given, list) else [short_text(given)] if given else []

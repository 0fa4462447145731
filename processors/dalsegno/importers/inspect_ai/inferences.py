"""Model events as inferences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dalsegno.importers.builder import Added, SessionBuilder, Source
from dalsegno.importers.given import ToolSets
from dalsegno.importers.inspect_ai.calls import Calls, Offer
from dalsegno.importers.inspect_ai.messages import Conversation, PartMaker
from dalsegno.importers.inspect_ai.order import calls_of, choices_of, output_messages
from dalsegno.importers.inspect_ai.record import Native, Resolver
from dalsegno.importers.inspect_ai.scores import Scores
from dalsegno.importers.inspect_ai.stages import HARNESS, Span, Stages
from dalsegno.importers.payload import clean_text, count, digest_json, json_bytes, micros, milliseconds
from dalsegno.importers.wanted import Wanted, requested_calls
from dalsegno.model.events import (
    InferenceCompleted,
    InferenceFailed,
    InferenceRequested,
    Usage,
)
from dalsegno.model.records import Actor

_CACHE = {"read": "READ", "write": "WRITE"}


@dataclass
class Running:
    inference_id: str
    requested: Added
    stage_id: str | None
    span: Span | None
    agent: bool


class Inferences:
    """The model calls of one sample."""

    def __init__(
        self,
        builder: SessionBuilder,
        resolver: Resolver,
        conversation: Conversation,
        parts: PartMaker,
        calls: Calls,
        stages: Stages,
        scores: Scores,
    ) -> None:
        self._builder = builder
        self._resolver = resolver
        self._conversation = conversation
        self._parts = parts
        self._calls = calls
        self._stages = stages
        self._scores = scores
        self._running: dict[str, Running] = {}
        self._tool_sets = ToolSets(builder.blobs)

    def open_inferences(self) -> list[str]:
        return [running.inference_id for running in self._running.values()]

    def begin(self, native: Native, source: Source, span: Span | None, stage_id: str | None) -> None:
        scorer = self._stages.scorer_of(span)
        place = scorer.validation_id if scorer is not None and scorer.validation_id else stage_id or "session"
        inference_id = self._builder.number(f"{place}/i")
        if scorer is not None:
            scorer.inference_id = inference_id
        messages = self._resolver.messages(native.data)
        native.take("input")
        native.take("input_refs")
        tools = self._resolver.value(native.take("tools", []))
        params = {name: native.take(name) for name in ("config", "tool_choice", "role") if native.data.get(name)}
        provider, _, model = str(native.take("model", "")).rpartition("/")
        event = InferenceRequested(
            inference_id=inference_id,
            purpose="VALIDATION" if scorer is not None else "AGENT",
            provider=clean_text(provider) or None,
            model=clean_text(model) or None,
            subject_id=scorer.validation_id if scorer is not None else None,
            request_digest=self._conversation.request_digest(messages, [params, tools, provider, model]),
            tools_digest=self._tools(tools, source, stage_id) if tools else None,
            params=self._builder.blobs.of_json(self._resolver.value(params)),
        )
        requested = self._builder.add(event, source, HARNESS, stage_id=stage_id)
        self._running[native.ref] = Running(inference_id, requested, stage_id, span, scorer is None)

    def end(self, native: Native, source: Source) -> None:
        running = self._running.pop(native.ref)
        actor = Actor("MODEL", clean_text(str(native.data.get("model"))))
        error = native.take("error")
        if error:
            detail = {name: native.take(name) for name in ("traceback",) if native.data.get(name)}
            info = self._builder.blobs.error("ModelError", error, detail)
            failed = InferenceFailed(inference_id=running.inference_id, error=info)
            self._builder.add(failed, source, actor, cause=running.requested, stage_id=running.stage_id)
            return
        event = self._completed(running, native)
        completed = self._builder.add(event, source, actor, cause=running.requested, stage_id=running.stage_id)
        self._offer(running, native, completed, event)
        if running.agent:
            self._scores.target, self._scores.target_id = completed, running.inference_id

    def text_of(self, output: Any) -> str | None:
        """What a model said in the end: the text of the first choice."""
        messages = output_messages(output)
        content = self._resolver.value(messages[0].get("content")) if messages else None
        if isinstance(content, list):
            content = "\n".join(
                str(item.get("text")) for item in content if isinstance(item, dict) and item.get("type") == "text"
            )
        return content if isinstance(content, str) and content else None

    def _completed(self, running: Running, native: Native) -> InferenceCompleted:
        output = native.take_object("output")
        native.take("working_time")
        messages = output_messages(output)
        choices = choices_of(output)
        call = native.take_object("call")
        response = call.get("response")
        if call.get("request"):
            native.drop("call.request")  # the request as it was sent repeats the messages, which stand on their own
        raw = self._resolver.value(response) if response else None
        usage = output.get("usage")
        wanted = [
            Wanted(None, clean_text(str(asked.get("function"))), self._arguments(asked))
            for message in messages
            for asked in calls_of(message)
        ]
        for message in messages:
            self._conversation.saw(message)
        return InferenceCompleted(
            inference_id=running.inference_id,
            cache=_CACHE.get(str(native.take("cache")), "NONE"),  # type: ignore[arg-type]
            usage=_usage(usage if isinstance(usage, dict) else {}),
            cost_usd_micros=micros((usage or {}).get("total_cost")) if isinstance(usage, dict) else None,
            latency_ms=milliseconds(output.get("time")),
            model=clean_text(str(output["model"])) if output.get("model") else None,
            response_id=clean_text(str(raw["id"])) if isinstance(raw, dict) and raw.get("id") else None,
            output_digest=digest_json(self._resolver.value(choices)),
            finish_reasons=[clean_text(str(c["stop_reason"])) for c in choices if c.get("stop_reason")],
            tool_calls=requested_calls(running.inference_id, wanted),
            output=[part for message in messages for part in self._parts.of_message(message)],
            raw=None if raw is None else self._builder.blobs.of_json(raw),
        )

    def _arguments(self, asked: dict[str, Any]) -> bytes:
        return json_bytes(self._resolver.value(asked.get("arguments") or {}))

    def _offer(self, running: Running, native: Native, completed: Added, event: InferenceCompleted) -> None:
        """Let tool events find the calls that this answer asked for."""
        asked = [call for message in output_messages(native.data.get("output")) for call in calls_of(message)]
        for call, wanted in zip(asked, event.tool_calls, strict=True):
            digest = wanted.arguments_digest or b""
            offer = Offer(wanted.tool_call_id, running.inference_id, completed, wanted.name, digest)
            self._calls.offer(str(call.get("id")), offer)

    def _tools(self, tools: Any, source: Source, stage_id: str | None) -> bytes:
        digest, item = self._tool_sets.offered(tools)
        if item is not None:
            self._builder.add(item, source, HARNESS, stage_id=stage_id)
        return digest


def _usage(usage: dict[str, Any]) -> Usage:
    return Usage(
        input=count(usage.get("input_tokens")),
        output=count(usage.get("output_tokens")),
        cache_read=count(usage.get("input_tokens_cache_read")),
        cache_creation=count(usage.get("input_tokens_cache_write")),
        reasoning=count(usage.get("reasoning_tokens")),
    )

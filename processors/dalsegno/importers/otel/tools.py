"""Spans in which a tool ran."""

from __future__ import annotations

from typing import Any

from dalsegno.importers.json_file import json_in
from dalsegno.importers.otel.session import Session
from dalsegno.importers.otel.spans import Span
from dalsegno.importers.payload import digest_of, short_text
from dalsegno.importers.tool_calls import ToolCall
from dalsegno.importers.wanted import argument_bytes

_CALL_ID, _NAME = "gen_ai.tool.call.id", "gen_ai.tool.name"
_ARGUMENTS = ("gen_ai.tool.call.arguments", "gcp.vertex.agent.tool_call_args", "traceloop.entity.input")
_RESULTS = ("gen_ai.tool.call.result", "gcp.vertex.agent.tool_response", "traceloop.entity.output")


class Tools:
    """The tool calls of one trace."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._running: dict[str, ToolCall] = {}

    def began(self, span: Span) -> None:
        """The call that a model asked for with this id; else one that nobody is known to have asked for."""
        session, attributes = self._session, span.attributes
        name = short_text(attributes.get(_NAME)) or short_text(span.name)
        native_id = short_text(attributes.get(_CALL_ID)) or None
        call = None if native_id is None else session.calls.open_call(native_id)
        if call is None or call.started or call.name != name:
            call = session.calls.request(
                session.builder.number(f"{session.stage_of(span) or 'session'}/x"),
                name,
                argument_bytes(_first(attributes, _ARGUMENTS)),
                session.source(span),
                native_id=native_id,
                stage_id=session.stage_of(span),
            )
        session.calls.start(call, session.source(span))
        self._running[span.id] = call

    def ended(self, span: Span) -> None:
        session, call = self._session, self._running.pop(span.id)
        result = _first(span.attributes, _RESULTS)
        told = json_in(result)
        failed = span.failed or (isinstance(told, dict) and told.get("isError") is True)
        source = session.source(span, span.end)
        given = _bytes(result, told)
        if result is None and failed:
            error = session.error(span)
            given = {"type": error.error_class, "message": error.message}
        session.calls.receive(call, source, "" if given is None else given, "ERROR" if failed else "OK")
        if call.native_id is not None and isinstance(result, str):
            session.results[call.native_id] = result
        carried = {_CALL_ID, _NAME, *_RESULTS, "gen_ai.operation.name"}
        arguments = argument_bytes(_first(span.attributes, _ARGUMENTS))
        if arguments is not None and digest_of(arguments) == call.arguments_digest:
            carried.update(_ARGUMENTS)
        session.rest(span, carried)


def _first(attributes: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)


def _bytes(result: Any, told: Any) -> Any:
    """A text that is JSON is kept byte for byte, and as JSON."""
    return argument_bytes(result) if isinstance(result, str) and isinstance(told, dict | list) else result

"""Which spans are calls of models, calls of tools and agents; and which of them report one and the same call.

Libraries report a model's call once each: the agent library, its adapter, the provider's client. Such spans lie inside
one another. They are taken for one call where no agent or tool lies between them, the outer one has no other model's
call inside, they name the same model, and the tokens are the same wherever both tell them. The innermost is the call,
since it is the closest to the model; the others are repeats, and are kept as notes.
"""

from __future__ import annotations

from typing import Any

from dalsegno.importers.otel.spans import Span

MODEL, TOOL, AGENT, OTHER = "model", "tool", "agent", "other"

_OPERATIONS = {
    "chat": MODEL,
    "generate_content": MODEL,
    "text_completion": MODEL,
    "execute_tool": TOOL,
    "invoke_agent": AGENT,
    "invoke_workflow": AGENT,
}
_KINDS = {"tool": TOOL, "agent": AGENT, "workflow": AGENT}
"""``traceloop.span.kind``."""
INPUT_TOKENS = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
OUTPUT_TOKENS = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
_NAMES = ("gen_ai.request.model", "gen_ai.response.model")


def role_of(span: Span) -> str:
    """By the operation that the span names; one that names none is a model's call where it names a model."""
    attributes = span.attributes
    operation = attributes.get("gen_ai.operation.name")
    if isinstance(operation, str):
        return _OPERATIONS.get(operation, OTHER)
    kind = attributes.get("traceloop.span.kind")
    if isinstance(kind, str) and kind in _KINDS:
        return _KINDS[kind]
    return MODEL if attributes.get("gen_ai.request.model") else OTHER


def same_calls(spans: list[Span]) -> dict[str, list[Span]]:
    """For the span of each model's call, by its id, all that report the call: the innermost first."""
    roles = {span.id: role_of(span) for span in spans}
    inner: dict[str, list[Span]] = {}
    around: dict[str, Span] = {}
    for span in spans:
        above = _nearest(span, roles)
        if roles[span.id] == MODEL and above is not None and roles[above.id] == MODEL:
            inner.setdefault(above.id, []).append(span)
            around[span.id] = above
    reports: dict[str, list[Span]] = {}
    for span in spans:
        if roles[span.id] != MODEL or _is_repeat(span, inner):
            continue
        chain = [span]
        while chain[-1].id in around and _is_repeat(around[chain[-1].id], inner):
            chain.append(around[chain[-1].id])
        reports[span.id] = chain
    return reports


def _nearest(span: Span, roles: dict[str, str]) -> Span | None:
    """The innermost model, tool or agent around a span."""
    above = span.parent
    while above is not None and roles[above.id] == OTHER:
        above = above.parent
    return above


def _is_repeat(span: Span, inner: dict[str, list[Span]]) -> bool:
    inside = inner.get(span.id, [])
    return len(inside) == 1 and _agree(span, inside[0])


def _agree(one: Span, other: Span) -> bool:
    names, others = _told(one, _NAMES), _told(other, _NAMES)
    if names and others and not names & others:
        return False
    return all(
        not (mine := _told(one, counts)) or not (theirs := _told(other, counts)) or mine == theirs
        for counts in (INPUT_TOKENS, OUTPUT_TOKENS)
    )


def _told(span: Span, names: tuple[str, ...]) -> set[Any]:
    values = (span.attributes.get(name) for name in names)
    return {value for value in values if isinstance(value, str | int)}

"""In which order the begins and the ends of native events follow each other.

A log lists its events as they began; how long one took stands in ``completed``. The order of the file is kept as it is,
and only ends are put in: behind the last event that began before the end, so that a tool's children keep their order
and stand inside it. Times decide nothing else, because recorded clocks jump: an end never comes before its begin; it
comes before any event that uses what it gave (a tool call behind the answer that asks for it, a model call behind the
results in its input); and no later than the end of its span.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from dalsegno.importers.fields import Fields
from dalsegno.importers.inspect_ai.record import Native, Resolver

BEGIN = "begin"
END = "end"
_TWO_PHASES = frozenset({"model", "tool", "subtask"})


class Moment(NamedTuple):
    phase: str
    native: Native


class _Open(NamedTuple):
    native: Native
    gives: frozenset[str]
    number: int


class Ordering:
    """Turns the events of one sample into moments. ``natives`` holds every record once, nested ones too."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._open: list[_Open] = []
        self._parents: dict[str, str | None] = {}
        self._number = 0
        self.natives: list[Native] = []

    def moments(self, events: list[dict[str, Any]], ref: str = "/events") -> Iterator[Moment]:
        for index, data in enumerate(events):
            yield from self._one(Native(data, f"{ref}/{index}"))
        yield from self._close(self._open)

    def _one(self, native: Native) -> Iterator[Moment]:
        self.natives.append(native)
        yield from self._close(self._due(native))
        if native.kind == "span_begin":
            self._parents[str(native.data.get("id"))] = native.data.get("parent_id")
        yield Moment(BEGIN, native)
        if native.kind not in _TWO_PHASES:
            return
        nested = native.take("events")
        children = [child for child in nested if isinstance(child, dict)] if isinstance(nested, list) else []
        for index, child in enumerate(children):
            yield from self._one(Native(child, f"{native.ref}/events/{index}"))
        if native.data.get("pending"):
            return
        if children or native.completed is None or native.time is None or native.completed <= native.time:
            yield Moment(END, native)
        else:
            self._number += 1
            self._open.append(_Open(native, _gives(native), self._number))

    def _due(self, native: Native) -> list[_Open]:
        """The open ones that end before this record begins."""
        if not self._open:
            return []
        needs = _needs(native, self._resolver)
        closing = native.data.get("id") if native.kind == "span_end" else None
        return [
            entry
            for entry in self._open
            if (
                native.time is not None and entry.native.completed is not None and entry.native.completed <= native.time
            )
            or not needs.isdisjoint(entry.gives)
            or (closing is not None and self._is_inside(entry.native.data.get("span_id"), str(closing)))
            or (native.kind == "step" and native.data.get("action") == "end")
        ]

    def _close(self, due: list[_Open]) -> Iterator[Moment]:
        for entry in sorted(due, key=lambda one: (one.native.completed or 0, one.number)):
            self._open.remove(entry)
            yield Moment(END, entry.native)

    def _is_inside(self, span: Any, outer: str) -> bool:
        for _ in range(len(self._parents) + 1):
            if span is None:
                return False
            if span == outer:
                return True
            span = self._parents.get(str(span))
        return False


def _gives(native: Native) -> frozenset[str]:
    """What exists once this record has ended: answers to use, results to read."""
    if native.kind == "tool":
        return frozenset({f"result:{native.data.get('id')}"})
    gives = set()
    for message in output_messages(native.data.get("output")):
        gives.add(f"message:{message.get('id')}")
        gives.update(f"call:{call.get('id')}" for call in calls_of(message))
    return frozenset(gives)


def _needs(native: Native, resolver: Resolver) -> set[str]:
    if native.kind == "tool":
        return {f"call:{native.data.get('id')}"}
    if native.kind == "approval":
        call = native.data.get("call")
        return {f"call:{call.get('id')}"} if isinstance(call, dict) else set()
    if native.kind != "model":
        return set()
    needs = set()
    for message in resolver.messages(native.data):
        needs.add(f"message:{message.get('id') or '-'}")
        needs.add(f"result:{message.get('tool_call_id') or '-'}")
    return needs


def output_messages(output: Any) -> list[dict[str, Any]]:
    """The messages of a model's output, one per choice."""
    messages = [choice.get("message") for choice in choices_of(output)]
    return [message for message in messages if isinstance(message, dict)]


def choices_of(output: Any) -> list[dict[str, Any]]:
    return Fields(output).take_objects("choices") if isinstance(output, dict) else []


def calls_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool calls of one message."""
    return Fields(message).take_objects("tool_calls")

"""In which order the spans of a trace begin and end.

By (start, end, span id), and a span never begins before the one around it, whatever their clocks say. Ends are put in
between: before the next span that begins at that time or later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dalsegno.importers.otel.spans import Span

BEGIN = "begin"
END = "end"


class Moment(NamedTuple):
    phase: str
    span: Span


class _Key(NamedTuple):
    start: int
    depth: int
    end: int
    id: str


def moments(spans: Iterable[Span], ends: dict[str, int]) -> Iterator[Moment]:
    """``ends``: spans that end earlier than they say, by id. One that says no end does not end."""
    keys: dict[str, _Key] = {}
    waiting: list[Span] = list(spans)
    for span in waiting:
        _key(span, keys)
    opened: list[Span] = []
    for span in sorted(waiting, key=lambda each: keys[each.id]):
        start = keys[span.id].start
        yield from _ended(opened, keys, ends, start)
        yield Moment(BEGIN, span)
        if span.end is not None:
            opened.append(span)
    yield from _ended(opened, keys, ends, None)


def _ended(opened: list[Span], keys: dict[str, _Key], ends: dict[str, int], now: int | None) -> Iterator[Moment]:
    """Those that end until now; of two that end at once the inner one first."""

    def end(span: Span) -> int:
        return max(ends.get(span.id, span.end or 0), keys[span.id].start)

    due = [span for span in opened if now is None or end(span) <= now]
    for span in sorted(due, key=lambda each: (end(each), -keys[each.id].depth, each.id)):
        opened.remove(span)
        yield Moment(END, span)


def _key(span: Span, keys: dict[str, _Key]) -> _Key:
    path = [span]
    while path[-1].parent is not None and path[-1].id not in keys:
        path.append(path[-1].parent)
    for each in reversed(path):
        if each.id not in keys:
            above = keys[each.parent.id] if each.parent is not None else None
            start = max(each.start or 0, 0 if above is None else above.start)
            keys[each.id] = _Key(start, 0 if above is None else above.depth + 1, each.end or 0, each.id)
    return keys[span.id]

"""Redaction rules on one text: as it is, and, where it is JSON, on its decoded strings, keys and numbers. Pure.

Again and again, since JSON stands in JSON. Bytes that are no UTF-8 stay as they are.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from dalsegno.log.json_spans import STRING, Path, Span, decoded, encoded, spans
from dalsegno.log.redaction_notes import Compiled, Found

NESTED_MAX: Final = 8
"""JSON in JSON: each level doubles the backslashes, so that nobody gets here by chance."""


class TextRedactor:
    """Takes out of texts what rules find; ``found`` is what that was. ``markers``: what was left before."""

    def __init__(self, rules: Sequence[Compiled], markers: re.Pattern[str]) -> None:
        self.rules = rules
        self._pointers = [rule for rule in rules if rule.pointer is not None]
        self._patterns = [(rule, rule.pattern) for rule in rules if rule.pattern is not None]
        self._markers = markers
        self.found: list[Found] = []

    def pointed(self, path: Path) -> Compiled | None:
        """The rule whose pointer this is."""
        for rule in self._pointers:
            assert rule.pointer is not None
            if len(rule.pointer) == len(path) and all(
                want in (have, "*") for want, have in zip(rule.pointer, path, strict=True)
            ):
                return rule
        return None

    def text(self, text: str, path: Path, level: int = 0) -> str:
        """A text without what the rules find in it, as it is and as JSON."""
        if level <= NESTED_MAX:
            found = spans(text) if text.lstrip(" \t\r\n\ufeff")[:1] in ("{", "[", '"') else None
            text = self._quoted(text, path, level) if found is None else self._json(text, found, path, level)
        return self.plain(text, path)

    def plain(self, text: str, path: Path) -> str:
        """A text without what the patterns find in it as it is."""
        for rule, pattern in self._patterns:
            if pattern.search(text) is None:
                continue
            pieces = self._markers.split(text)
            for place in range(0, len(pieces), 2):
                pieces[place] = pattern.sub(lambda match, rule=rule: self._take(rule, path, match[0]), pieces[place])
            text = "".join(pieces)
        return text

    def _take(self, rule: Compiled, path: Path, value: str) -> str:
        if not value:
            return ""
        self.found.append(Found(rule, path, value))
        return rule.marker

    def _json(self, text: str, found: list[Span], path: Path, level: int) -> str:
        out: list[str] = []
        done = 0
        for span in found:
            if span.start < done:
                continue  # inside of what was taken out
            raw = text[span.start : span.end]
            changed = self._value(raw, span, found, (*path, *span.path), level)
            if changed != raw:
                out += [text[done : span.start], changed]
                done = span.end
        return "".join([*out, text[done:]])

    def _value(self, raw: str, span: Span, found: list[Span], at: Path, level: int) -> str:
        rule = self.pointed(at) if span.path and span.kind != "KEY" else None
        if rule is not None:
            if span.kind == "BOX":
                first = bisect_right(found, span.start, key=_start)
                inside = found[first : bisect_left(found, span.end, key=_start)]
                values = ("", *said(raw, inside, span.start))
                self.found += [Found(rule, at, each) for each in values]
            else:
                self.found.append(Found(rule, at, decoded(raw) if span.kind == "TEXT" else raw))
            return encoded(rule.marker)
        if span.kind in ("TEXT", "KEY"):
            text = decoded(raw)
            changed = self.text(text, at, level + 1)
            return raw if changed == text else encoded(changed)
        if span.kind == "OTHER" and raw not in ("true", "false", "null"):
            changed = self.plain(raw, at)
            return raw if changed == raw else encoded(changed)
        return raw

    def _quoted(self, text: str, path: Path, level: int) -> str:
        """JSON strings inside of other text, such as a log line: those that say something else than they show."""
        if "\\" not in text:
            return text

        def changed(match: re.Match[str]) -> str:
            if "\\" not in match[0]:
                return match[0]
            said = decoded(match[0])
            without = self.text(said, path, level + 1)
            return match[0] if without == said else encoded(without)

        return STRING.sub(changed, text)


def _start(span: Span) -> int:
    return span.start


def said(text: str, inside: Sequence[Span], start: int = 0) -> list[str]:
    """The texts and numbers of JSON: what its spans say. ``start``: where ``text`` begins in the spans' text."""
    return [
        decoded(raw) if span.kind == "TEXT" else raw
        for span in inside
        if span.kind in ("TEXT", "OTHER")
        for raw in [text[span.start - start : span.end - start]]
    ]

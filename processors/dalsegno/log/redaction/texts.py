"""Redaction rules on one text: as it is, and, where it is JSON, on its decoded strings, keys and numbers. Pure.

Again and again, since JSON stands in JSON. Bytes that are no UTF-8 stay as they are. A text that a pointer goes into,
and that is no JSON but names the member, is taken out whole: what a model wrote is often cut off or has a comma too
many.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from dalsegno.log.redaction.json_spans import STRING, Path, Span, decoded, encoded, spans
from dalsegno.log.redaction.notes import Compiled, Found

NESTED_MAX: Final = 8
"""JSON in JSON: each level doubles the backslashes, so that nobody gets here by chance."""
_BOX = ("{", "[")
_BLANK = " \t\r\n\ufeff"
_CUT_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")


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
            if len(rule.pointer or ()) == len(path) and _begins(rule, path):
                return rule
        return None

    def text(self, text: str, path: Path, level: int = 0) -> str:
        """A text without what the rules find in it, as it is and as JSON."""
        if level <= NESTED_MAX:
            found = spans(text) if text.lstrip(_BLANK)[:1] in (*_BOX, '"') else None
            rule = self._unreachable(text, path) if found is None else None
            if rule is not None:
                return self._take(rule, path, text)
            text = self._quoted(text, path, level) if found is None else self._json(text, found, path, level)
        return self.plain(text, path)

    def _unreachable(self, text: str, path: Path) -> Compiled | None:
        """The rule whose pointer goes on in this text, which is no JSON, but names what the pointer leads to."""
        for rule in self._pointers:
            if _begins(rule, path) and _names(text, (rule.pointer or ())[len(path) :]):
                return rule
        return None

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
        out: list[str] = []
        done = 0
        at = text.find('"') if "\\" in text else -1
        while at >= 0:
            match = STRING.match(text, at)
            if match is None:
                # Neither is any later quote closed: looking for the end of each would take for ever.
                without = self._said(_CUT_ESCAPE.sub("", text[at:]) + '"', path, level)
                return "".join([*out, text[done:] if without is None else text[done:at] + without[:-1]])
            without = self._said(match[0], path, level)
            if without is not None:
                out += [text[done:at], without]
                done = match.end()
            at = text.find('"', match.end())
        return "".join([*out, text[done:]])

    def _said(self, literal: str, path: Path, level: int) -> str | None:
        """A JSON string without what the rules find in what it says; None if that is nothing."""
        if "\\" not in literal:
            return None
        said = decoded(literal)
        without = self.text(said, path, level + 1)
        return None if without == said else encoded(without)


def _begins(rule: Compiled, path: Path) -> bool:
    """Whether the rule's pointer is this path, or goes on behind it."""
    return len(rule.pointer or ()) >= len(path) and all(
        want in (have, "*") for want, have in zip(rule.pointer or (), path, strict=False)
    )


def _names(text: str, left: Path) -> bool:
    """Whether a text that is no JSON may hold what the rest of a pointer leads to: it begins as JSON does and has the
    names in it (or escapes, in which they may hide), or has them in quotes."""
    names = [name for name in left if name != "*" and not name.isdecimal()]
    if not left:
        return False
    if text.lstrip()[:1] in _BOX:
        return "\\u" in text or all(name in text for name in names)
    return bool(names) and all(re.search(rf"""["']{re.escape(name)}\\*["']""", text) for name in names)


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

"""Where the values of a JSON text stand in it, so that one can be replaced and every other byte stays as it is. Pure.

Loading and dumping would change numbers, drop repeated keys and order nothing as before; and it ends at the depth of
Python's stack. This takes several documents behind each other (JSON lines), and is no validator: what it takes for JSON
may be refused by others, never the reverse.
"""

from __future__ import annotations

import json
import re
from typing import Final, Literal, NamedTuple, TypeAlias

Path: TypeAlias = tuple[str, ...]
Kind: TypeAlias = Literal["KEY", "TEXT", "OTHER", "BOX"]
"""A member's key, a string, a number (or true, false, null), an object or array."""


DEPTH_MAX: Final = 64


class Span(NamedTuple):
    """One value (or key) at text[start:end]. A key's path is that of its value; a document's own path is ().

    Of what lies deeper than ``DEPTH_MAX``, the path has its first ``DEPTH_MAX`` parts: it costs no more than that.
    """

    start: int
    end: int
    path: Path
    kind: Kind


STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.S)
_TOKEN = re.compile(
    r"[ \t\n\r\ufeff]*(?:(?P<mark>[{}\[\],:])"
    rf"|(?P<text>{STRING.pattern})"
    r"|(?P<other>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null|NaN|-?Infinity))",
    re.S,
)
_DECODER = json.JSONDecoder(strict=False)
_SPACE = re.compile(r"[ \t\n\r\ufeff]*")


def decoded(literal: str) -> str:
    """The text that a JSON string says; of one with a wrong escape, what stands between its quotes."""
    if "\\" not in literal:
        return literal[1:-1]
    try:
        return str(_DECODER.decode(literal))
    except ValueError:
        return literal[1:-1]


def encoded(text: str) -> str:
    """A JSON string that says this text; halves of surrogate pairs (bytes that are no UTF-8) as escapes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False)


class _Box:
    """An object or array that is not closed yet."""

    __slots__ = ("index", "is_object", "start")

    def __init__(self, start: int, is_object: bool) -> None:
        self.start, self.is_object, self.index = start, is_object, 0


def spans(text: str) -> list[Span] | None:
    """All spans, in the order of their starts, a box before what is in it; None if the text is no JSON."""
    found: list[Span] = []
    boxes: list[_Box] = []
    path: list[str] = []  # of the value that is expected or was just read
    expects, at = "VALUE", 0
    while (match := _TOKEN.match(text, at)) is not None:
        mark, literal, at = match["mark"], match["text"], match.end()
        begin = at - len(mark or literal or match["other"])
        if expects in ("KEY", "FIRST_KEY"):
            if mark == "}" and expects == "FIRST_KEY":
                expects = _close(found, boxes, path, at)
            elif literal is not None:
                path[-1] = decoded(literal)
                found.append(Span(begin, at, tuple(path[:DEPTH_MAX]), "KEY"))
                expects = "COLON"
            else:
                return None
        elif expects == "COLON":
            if mark != ":":
                return None
            expects = "VALUE"
        elif expects == "AFTER":
            if mark == ",":
                boxes[-1].index += 1
                path[-1] = str(boxes[-1].index)
                expects = "KEY" if boxes[-1].is_object else "VALUE"
            elif mark == ("}" if boxes[-1].is_object else "]"):
                expects = _close(found, boxes, path, at)
            else:
                return None
        elif mark in ("{", "["):
            boxes.append(_Box(begin, mark == "{"))
            path.append("0")
            expects = "FIRST_KEY" if mark == "{" else "FIRST"
        elif mark == "]" and expects == "FIRST":
            expects = _close(found, boxes, path, at)
        elif mark is None:
            found.append(Span(begin, at, tuple(path[:DEPTH_MAX]), "OTHER" if literal is None else "TEXT"))
            expects = "AFTER" if boxes else "VALUE"
        else:
            return None
    rest = _SPACE.match(text, at)
    if boxes or not found or rest is None or rest.end() != len(text):
        return None
    return sorted(found, key=lambda span: (span.start, -span.end))


def _close(found: list[Span], boxes: list[_Box], path: list[str], end: int) -> str:
    path.pop()
    found.append(Span(boxes.pop().start, end, tuple(path[:DEPTH_MAX]), "BOX"))
    return "AFTER" if boxes else "VALUE"

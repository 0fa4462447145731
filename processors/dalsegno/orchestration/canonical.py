"""JSON as it is written for digests, and as it is read from models. Pure.

Written: RFC 8785, but an integer that no double holds exactly stands in full, where RFC 8785 has no form for it: a
tool call about item 9007199254740993 is not one about its neighbour.

Read: what two readers could take for two things is refused (a key that stands twice, ``NaN``), and what the language
of conditions cannot hold: an integer outside int64, half of a surrogate pair, a value nested deeper than its engine
bears.
"""

from __future__ import annotations

import json
from typing import Any

import rfc8785

INT64 = range(-(2**63), 2**63)
MAX_DEPTH = 64
"""The engine of conditions converts values recursively, on threads whose stack may be 512 KiB: it bears 100."""
_EXACT = range(-(2**53) + 1, 2**53)


def canonical(value: Any) -> bytes:
    """Raises ValueError where JSON has no form for a value: a lone surrogate, an infinity, a key that is no string."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("a key is no string")
        members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be"))
        return b"{%s}" % b",".join(b"%s:%s" % (canonical(key), canonical(each)) for key, each in members)
    if isinstance(value, list | tuple):
        return b"[%s]" % b",".join(canonical(each) for each in value)
    if isinstance(value, int) and not isinstance(value, bool) and value not in _EXACT:
        return str(value).encode()
    return rfc8785.dumps(value)


def read_json(raw: bytes) -> Any:
    """Raises ValueError with a reason for people."""
    try:
        value = json.loads(raw, object_pairs_hook=_object, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH}") from None
    except UnicodeDecodeError:
        raise ValueError("it is no UTF-8") from None
    reason = _unfit(value, MAX_DEPTH)
    if reason:
        raise ValueError(reason)
    return value


def read_arguments(raw: bytes) -> dict[str, Any]:
    """The arguments of a tool call. A ValueError makes the call INVALID_ARGUMENTS, before any policy sees it."""
    value = read_json(raw)
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    return value


def fits_int64(value: Any) -> bool:
    """Whether conditions can be evaluated over a JSON value: integers are int64, texts Unicode, nothing too deep."""
    return not _unfit(value, MAX_DEPTH)


def _unfit(value: Any, depth: int) -> str:
    if isinstance(value, int):
        return "" if value in INT64 else f"the integer {str(value)[:40]} is outside int64"
    if isinstance(value, str):
        return "" if value.isascii() or _is_unicode(value) else "a text has half of a surrogate pair"
    if not isinstance(value, dict | list | tuple):
        return ""
    if not depth:
        return f"it is nested deeper than {MAX_DEPTH}"
    within = [*value, *value.values()] if isinstance(value, dict) else value
    return next((reason for each in within if (reason := _unfit(each, depth - 1))), "")


def _is_unicode(text: str) -> bool:
    try:
        return bool(text.encode("utf-8"))
    except UnicodeEncodeError:
        return False


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands twice")
    return read


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")

"""Schemas that cannot be decoded safely, whoever wrote them: a few bytes must not cost a process its memory or stack.

The decoder is compiled code. It calls itself for a type within itself as deep as the bytes say, until the process ends
with a signal that nobody can catch; and it makes as many array items as the bytes say, although items that take no
bytes need none to follow. Both are properties of a schema, so such a schema is refused, and with it all that it wrote.
"""

from __future__ import annotations

from typing import Any, NamedTuple

DEPTH_MAX = 64
"""Records, arrays, maps and unions within each other."""
EXCESS_MAX = 8
"""By how many the values of one record may outnumber its bytes."""


class _Size(NamedTuple):
    """The fewest bytes that a value takes, and by how many the values in it can outnumber its bytes."""

    least: int
    excess: int


_PLAIN = {
    "null": _Size(0, 1),
    "boolean": _Size(1, 0),
    "int": _Size(1, 0),
    "long": _Size(1, 0),
    "float": _Size(4, -3),
    "double": _Size(8, -7),
    "string": _Size(1, 0),
    "bytes": _Size(1, 0),
}
_COUNTED = _Size(1, 0)
"""An array, a map, an enum: one value, at least one byte."""


def check_bounds(schema: Any) -> None:
    """Refuse a closed schema that recurses, nests too deep, or writes values that take no bytes in any number.

    Raises ValueError, and KeyError for a name that stands nowhere.
    """
    _measure(schema, {}, (), 0)


def _measure(schema: Any, named: dict[str, _Size], within: tuple[str, ...], depth: int) -> _Size:
    if depth > DEPTH_MAX:
        raise ValueError(f"its types stand more than {DEPTH_MAX} deep within each other")
    if isinstance(schema, str):
        if schema in within:
            raise ValueError(f"{schema} stands within itself: bytes could nest it without end")
        return _PLAIN[schema] if schema in _PLAIN else named[schema]
    if isinstance(schema, list):
        branches = [_measure(branch, named, within, depth + 1) for branch in schema]
        # The byte that says which branch it is pays for one value.
        return _Size(1 + min(each.least for each in branches), max(each.excess for each in branches) - 1)
    kind = schema["type"]
    if kind == "array":
        if _measure(schema["items"], named, within, depth + 1).least == 0:
            raise ValueError("it has an array whose items take no bytes: a record could hold any number of them")
        return _COUNTED
    if kind == "map":
        _measure(schema["values"], named, within, depth + 1)
        return _COUNTED
    if kind == "enum":
        return named.setdefault(schema["name"], _COUNTED)
    if kind == "fixed":
        return named.setdefault(schema["name"], _Size(int(schema["size"]), 1 - int(schema["size"])))
    if kind in ("record", "error"):
        return _measure_record(schema, named, within, depth)
    return _measure(kind, named, within, depth + 1)


def _measure_record(schema: Any, named: dict[str, _Size], within: tuple[str, ...], depth: int) -> _Size:
    name = schema["name"]
    least, excess = 0, 1
    for field in schema["fields"]:
        size = _measure(field["type"], named, (*within, name), depth + 1)
        least, excess = least + size.least, excess + size.excess
    if excess > EXCESS_MAX:
        raise ValueError(f"{name} has too many values that take no bytes")
    named[name] = _Size(least, excess)
    return named[name]

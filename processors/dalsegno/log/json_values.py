"""From the JSON of an event's fields to the values that the codec takes: what JSON lacks is told by the schema.

Bytes and digests are lower-case hex, a time is RFC 3339 with its zone or microseconds since 1970, and a blob may be a
text, which then stands in the event. Everything else is passed on as it is, for ``check`` to refuse.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any

from dalsegno.log.encode import refuse
from dalsegno.log.schema_set import Schema, WriterSchema

_BLOB = "dalsegno.event.v1.Blob"
_TEXT = "text/plain; charset=utf-8"


def strict_json(text: bytes) -> Any:
    """JSON in UTF-8 in which no name stands twice in one object: all but the last one would be lost without a word.

    Raises ValueError.
    """
    try:
        return json.loads(text.decode("utf-8-sig"), object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} stands twice in one object")
    return found


def to_values(writer: WriterSchema, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an event without ``meta``. Raises InvalidEvent, ``data['field']`` is the path."""
    named: dict[str, Schema] = {}
    _gather(writer.schema, named)
    return _Reader(named).record(writer.schema, fields, "")


def _gather(schema: Schema, named: dict[str, Schema]) -> None:
    if isinstance(schema, list):
        for branch in schema:
            _gather(branch, named)
    elif isinstance(schema, dict):
        if "name" in schema:
            named[schema["name"]] = schema
        for inner in (schema.get("items"), *(field["type"] for field in schema.get("fields", ()))):
            _gather(inner, named)


class _Reader:
    def __init__(self, named: Mapping[str, Schema]) -> None:
        self._named = named

    def record(self, schema: Schema, value: Mapping[str, Any], path: str) -> dict[str, Any]:
        types = {field["name"]: field["type"] for field in schema["fields"]}
        prefix = f"{path}." if path else ""
        return {
            name: self._value(types[name], each, prefix + name) if name in types else each
            for name, each in value.items()
        }

    def _value(self, schema: Schema, value: Any, path: str) -> Any:
        if isinstance(schema, list):
            branches = [branch for branch in schema if branch != "null"]
            return self._value(branches[0], value, path) if value is not None and len(branches) == 1 else value
        if isinstance(schema, str):
            if schema == "bytes":
                return _hex(value, path)
            return self._value(self._named[schema], value, path) if schema in self._named else value
        kind = schema["type"]
        if kind == "fixed":
            return _hex(value, path)
        if kind == "array":
            return [self._value(schema["items"], item, f"{path}[{n}]") for n, item in enumerate(_list(value, path))]
        if kind == "record":
            if schema["name"] == _BLOB and isinstance(value, str):
                return _blob(value, path)
            return self.record(schema, value, path) if isinstance(value, Mapping) else value
        if kind == "long" and "logicalType" in schema and isinstance(value, str):
            return _time(value, path)
        return value


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        refuse(path, f"a {type(value).__name__}", "a list")
    return value


def _hex(value: Any, path: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return bytes.fromhex(value)
    except ValueError:
        refuse(path, f"{value[:40]!r}", "bytes in hex")


def _blob(text: str, path: str) -> dict[str, Any]:
    """A text as a content; what is too large for an event, the publisher moves into its store or refuses."""
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError as error:
        refuse(path, f"text with half of a surrogate pair at character {error.start}", "text that UTF-8 can hold")
    digest, size = sha256(content).digest(), len(content)
    return {"digest": digest, "size": size, "media_type": _TEXT, "uri": None, "inline": content}


def _time(text: str, path: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        refuse(path, f"{text[:40]!r}", "a time as RFC 3339 with its zone, or microseconds since 1970")

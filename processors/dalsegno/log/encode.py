"""What may be written: ``check`` refuses a record that its schema does not describe exactly, naming the field.

Avro libraries are generous: they take True for 1, cut 1.9 to 1, drop what they do not know, and read a time without
zone as local time. Here nothing is guessed, since a guess would be hashed and kept for ever.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, NoReturn, TypeAlias

from dalsegno.errors import InvalidEvent, InvalidSessionId
from dalsegno.log.schema_set import WriterSchema
from dalsegno.model.catalogue import CATALOGUE
from dalsegno.model.ids import FORK_MARK, check_session_id
from dalsegno.model.naming import likely
from dalsegno.storage.blobs import INLINE_MAX_BYTES

Checker: TypeAlias = Callable[[Any, str], Any]
"""(value, path) -> the value as it is written; raises InvalidEvent."""

_INT = (-(2**31), 2**31 - 1)
_LONG = (-(2**63), 2**63 - 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NO_DEFAULT: Any = object()


def check(writer: WriterSchema, record: Mapping[str, Any]) -> dict[str, Any]:
    """The record as it will be written: defaults filled in, times as microseconds. Raises InvalidEvent.

    ``record`` holds every field without a default and no other than the schema's; ``data['field']`` of the error is the
    path of the first field that is refused. Where a union has several branches that the value fits, the branch must be
    named: ``("full.Name", value)``.
    """
    checker: Checker | None = writer.__dict__.get("_checker")
    if checker is None:
        checker = Compiler().compile(writer.schema)
        writer.__dict__["_checker"] = checker
    try:
        checked: dict[str, Any] = checker(record, "")
    except InvalidEvent as error:
        error.found = f"{writer.type}: {error.found}"
        raise
    if writer.is_event:
        _check_envelope(writer, checked["meta"])
    return checked


def refuse(path: str, found: str, wanted: str, todo: str = "correct the event; nothing was written") -> NoReturn:
    raise InvalidEvent(f"{path or 'the record'} is {found}", wanted=wanted, todo=todo, field=path)


def to_micros(value: datetime, path: str) -> int:
    """Microseconds since 1970 UTC of an aware datetime; exact, also far from now and in a repeated hour."""
    if value.utcoffset() is None:
        refuse(path, f"the time {value.isoformat()} without a zone", "a datetime with tzinfo, or microseconds UTC")
    return (value - _EPOCH) // _MICROSECOND


def _check_envelope(writer: WriterSchema, meta: Mapping[str, Any]) -> None:
    """The rules of an envelope that one record can break by itself."""
    session_id, seq = meta["session_id"], meta["seq"]
    try:
        check_session_id(session_id, fork=FORK_MARK in session_id)
    except InvalidSessionId as error:
        error.data["field"] = "meta.session_id"
        raise
    if seq < 0:
        refuse("meta.seq", str(seq), "0 for a control event, else 1 and up")
    if meta["epoch"] < 0:
        refuse("meta.epoch", str(meta["epoch"]), "0 or more")
    if (meta["prev_hash"] is None) != (seq <= 1):
        refuse("meta.prev_hash", "null" if meta["prev_hash"] is None else "set", "null if and only if seq is 0 or 1")
    info = CATALOGUE.get(writer.type)
    if info is None:
        return
    if (info.cls == "C") != (seq == 0):
        refuse("meta.seq", str(seq), "0 for a control event and for no other")
    if info.ignorable and not meta["ignorable"]:
        refuse("meta.ignorable", "false", f"true, as for every {info.name}")


class Compiler:
    """Turns a closed schema into one function, so that nothing of the schema is looked at again for each record."""

    def __init__(self) -> None:
        self.named: dict[str, Checker] = {}

    def compile(self, schema: Any) -> Checker:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            simple = _SIMPLE.get(schema)
            return simple if simple is not None else self._later(schema)
        kind = schema["type"]
        if kind == "record":
            return self._record(schema)
        if kind == "enum":
            return self._name(schema, _enum(tuple(schema["symbols"])))
        if kind == "fixed":
            return self._name(schema, _fixed(schema["size"]))
        if kind == "array":
            return _array(self.compile(schema["items"]))
        if kind == "map":
            return _no_maps
        logical = schema.get("logicalType")
        if kind == "long" and logical in ("timestamp-micros", "timestamp-millis"):
            return _timestamp(1000 if logical == "timestamp-millis" else 1)
        return self.compile(kind)

    def _name(self, schema: Mapping[str, Any], checker: Checker) -> Checker:
        self.named[schema["name"]] = checker
        return checker

    def _later(self, name: str) -> Checker:
        """A named type that was defined further up, or that is being defined (a recursive record)."""
        return self.named.get(name) or (lambda value, path: self.named[name](value, path))

    def _record(self, schema: Mapping[str, Any]) -> Checker:
        fields: list[tuple[str, Checker, Any]] = []
        names = frozenset(field["name"] for field in schema["fields"])
        is_blob = schema["name"] == "dalsegno.event.v1.Blob"
        short = schema["name"].rpartition(".")[2]

        def checker(value: Any, path: str) -> dict[str, Any]:
            if not isinstance(value, Mapping):
                made = ", as dalsegno.blob(content) makes it" if is_blob else ""
                refuse(path, f"a {type(value).__name__}", f"a record {schema['name']}{made}")
            prefix = f"{path}." if path else ""
            out: dict[str, Any] = {}
            for name, inner, default in fields:
                if name in value:
                    out[name] = inner(value[name], prefix + name)
                elif default is _NO_DEFAULT:
                    made = "; dalsegno.blob(content) makes a whole one" if is_blob else ""
                    refuse(prefix + name, "missing", f"a value: the field has no default{made}")
                else:
                    out[name] = inner(default, prefix + name)
            if len(value) != len(out) or not names.issuperset(value):
                extra = sorted(str(name) for name in value if name not in names)
                if extra:
                    refuse(prefix + extra[0], f"no field of {short}", likely(extra[0], names - set(value)))
            if is_blob:
                _check_blob(out, path)
            return out

        self._name(schema, checker)
        for field in schema["fields"]:
            default = from_json(field["type"], field["default"]) if "default" in field else _NO_DEFAULT
            fields.append((field["name"], self.compile(field["type"]), default))
        return checker

    def _union(self, branches: list[Any]) -> Checker:
        others = [branch for branch in branches if branch != "null"]
        nullable = len(others) < len(branches)
        if nullable and len(others) == 1:
            inner = self.compile(others[0])
            return lambda value, path: None if value is None else inner(value, path)
        names = [_branch_name(branch) for branch in others]
        inners = [self.compile(branch) for branch in others]

        def checker(value: Any, path: str) -> Any:
            if value is None and nullable:
                return None
            if isinstance(value, tuple) and len(value) == 2 and value[0] in names:
                return (value[0], inners[names.index(value[0])](value[1], path))
            fits: list[tuple[str, Any]] = []
            for name, inner in zip(names, inners, strict=True):
                try:
                    fits.append((name, inner(value, path)))
                except InvalidEvent:
                    continue
            if len(fits) == 1:
                return fits[0]
            if not fits:
                refuse(path, f"a {type(value).__name__} that fits no branch", f"one of {', '.join(names)}")
            refuse(
                path, f"a value that fits {' and '.join(name for name, _ in fits)}", "the branch named: (name, value)"
            )

        return checker


def from_json(schema: Any, default: Any) -> Any:
    """A default as a value: Avro writes bytes in JSON as text of as many characters."""
    return default.encode("latin-1") if isinstance(default, str) and _is_binary(schema) else default


def _is_binary(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(_is_binary(branch) for branch in schema)
    return schema == "bytes" or (isinstance(schema, dict) and schema["type"] in ("bytes", "fixed"))


def _branch_name(branch: Any) -> str:
    if isinstance(branch, str):
        return branch
    return str(branch.get("name", branch["type"]))


def _integer(low: int, high: int) -> Checker:
    def checker(value: Any, path: str) -> int:
        if type(value) is not int:
            refuse(path, f"{_shown(value)} ({type(value).__name__})", "a whole number")
        if not low <= value <= high:
            refuse(path, str(value), f"a number from {low} to {high}")
        return value

    return checker


def _timestamp(micros: int) -> Checker:
    inner = _integer(*_LONG)

    def checker(value: Any, path: str) -> int:
        if isinstance(value, datetime):
            value, rest = divmod(to_micros(value, path), micros)
            if rest:
                refuse(path, "a time with microseconds", "whole milliseconds, as the schema declares")
        return int(inner(value, path))

    return checker


def _boolean(value: Any, path: str) -> bool:
    if type(value) is not bool:
        refuse(path, f"{_shown(value)} ({type(value).__name__})", "true or false")
    return value


def _string(value: Any, path: str) -> str:
    if not isinstance(value, str):
        refuse(path, f"{_shown(value)} ({type(value).__name__})", "text")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            refuse(
                path,
                f"text with half of a surrogate pair at character {error.start}",
                "text that UTF-8 can hold",
                "cut text at whole characters, or put the bytes received into a blob",
            )
    return value


def _bytes(value: Any, path: str) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        refuse(path, f"{_shown(value)} ({type(value).__name__})", "bytes")
    return bytes(value)


def _fixed(size: int) -> Checker:
    def checker(value: Any, path: str) -> bytes:
        value = _bytes(value, path)
        if len(value) != size:
            refuse(path, f"{len(value)} bytes", f"{size} bytes")
        return bytes(value)

    return checker


def _enum(symbols: tuple[str, ...]) -> Checker:
    known = frozenset(symbols)

    def checker(value: Any, path: str) -> str:
        if not isinstance(value, str) or value not in known:
            refuse(path, _shown(value), f"one of {', '.join(symbols)}")
        return value

    return checker


def _array(inner: Checker) -> Checker:
    def checker(value: Any, path: str) -> list[Any]:
        if not isinstance(value, list | tuple):
            refuse(path, f"a {type(value).__name__}", "a list")
        return [inner(item, f"{path}[{index}]") for index, item in enumerate(value)]

    return checker


def _no_maps(_: Any, path: str) -> NoReturn:
    refuse(path, "a map", "a sorted list of records", "declare the field as an array: maps have no order to hash")


def _double(value: Any, path: str) -> float:
    if type(value) is not float or not math.isfinite(value):
        refuse(path, f"{_shown(value)} ({type(value).__name__})", "a finite float")
    return value


def _float(value: Any, path: str) -> float:
    number = _double(value, path)
    try:
        same = struct.unpack("<f", struct.pack("<f", number))[0] == number
    except OverflowError:
        same = False
    if not same:
        refuse(path, repr(number), "a number that 32 bits hold exactly")
    return number


def _null(value: Any, path: str) -> None:
    if value is not None:
        refuse(path, _shown(value), "null")


_SIMPLE: dict[str, Checker] = {
    "null": _null,
    "boolean": _boolean,
    "int": _integer(*_INT),
    "long": _integer(*_LONG),
    "float": _float,
    "double": _double,
    "string": _string,
    "bytes": _bytes,
}


def _check_blob(blob: Mapping[str, Any], path: str) -> None:
    """Inline content is what digest and size say; large content is not inline."""
    inline = blob["inline"]
    if inline is None:
        if blob["size"] < 0:
            refuse(f"{path}.size", str(blob["size"]), "0 or more bytes")
        return
    if len(inline) > INLINE_MAX_BYTES:
        refuse(
            f"{path}.inline",
            f"{len(inline)} bytes",
            f"at most {INLINE_MAX_BYTES} bytes",
            "give the publisher a store for it: Publisher(..., blobs=Blobs(store))",
        )
    if blob["size"] != len(inline):
        refuse(f"{path}.size", str(blob["size"]), f"{len(inline)}, the bytes of inline")
    if blob["digest"] != sha256(inline).digest():
        refuse(f"{path}.digest", "another one than that of inline", "the SHA-256 of the content")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

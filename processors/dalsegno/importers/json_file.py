"""A file that is one JSON document: bounded, and checked to the last byte.

What a reader of JSON lets pass by default is refused, since it would be lost or changed without a word: a name that
stands twice in one object, NaN and infinities, bytes that are no UTF-8. Every refusal names the file and the place:
line and column, or a JSON pointer.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, NoReturn

from dalsegno.errors import BadInputFile

MAX_BYTES = 512 * 1024 * 1024
"""What is read into memory at most: more than a large real recording needs, less than a machine has."""

_AGAIN = "get an undamaged copy of the file; nothing of it was imported"
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|NaN|-?Infinity|-?[0-9][0-9.eE+-]*', re.DOTALL)


def bad_file(path: Path, place: str, found: str, wanted: str, todo: str = _AGAIN, **data: Any) -> BadInputFile:
    """The error for a file that is not imported. ``place`` is a line, a JSON pointer, a member, or empty."""
    where = f"{path}: {place}" if place else str(path)
    return BadInputFile(f"{where}: {found}", wanted=wanted, todo=todo, file=str(path), place=place, **data)


def foreign(path: Path, place: str, found: str, wanted: str) -> BadInputFile:
    """The error for a whole file of some other kind."""
    return bad_file(path, place, found, wanted, f"check that this is {wanted}; nothing of it was imported")


def read_bytes(path: Path, wanted: str, max_bytes: int = MAX_BYTES) -> bytes:
    """All of a file. Raises BadInputFile where it cannot be read, is empty or is larger than ``max_bytes``."""
    try:
        with path.open("rb") as stream:
            data = stream.read(max_bytes + 1)
    except OSError as error:
        raise unreadable(path, error, wanted) from error
    if not data:
        raise bad_file(path, "", "the file is empty", wanted)
    if len(data) > max_bytes:
        todo = "check that the file is a real recording; split it if it is one"
        raise bad_file(path, "", f"larger than the limit of {max_bytes} bytes", wanted, todo)
    return data


def unreadable(path: Path, error: OSError, wanted: str) -> BadInputFile:
    return bad_file(path, "", str(error.strerror), wanted, "check the path and its permissions")


def read_object(path: Path, wanted: str, needs: Collection[str] = (), max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """The object that the file is. ``wanted`` names the format, ``needs`` the fields without which it is another one.

    Raises BadInputFile.
    """
    document = parse_json(path, "", read_bytes(path, wanted, max_bytes), wanted)
    return object_at(path, "", document, wanted, needs)


def object_at(path: Path, place: str, value: Any, wanted: str, needs: Collection[str] = ()) -> dict[str, Any]:
    """The value at this place of a file, which must be an object with these fields."""
    if not isinstance(value, dict):
        raise foreign(path, place, f"{kind_of(value)} instead of an object", wanted)
    missing = [name for name in needs if name not in value]
    if missing:
        raise foreign(path, place, "no " + ", ".join(f"/{name}" for name in missing), wanted)
    return value


def objects_at(path: Path, place: str, value: Any, wanted: str) -> list[dict[str, Any]]:
    """The value at this place of a file, which must be a list of objects."""
    if not isinstance(value, list):
        raise foreign(path, place, f"{kind_of(value)} instead of a list", wanted)
    return [object_at(path, f"{place}/{index}", item, wanted) for index, item in enumerate(value)]


def kind_of(value: Any) -> str:
    """What a JSON value is, for messages."""
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def parse_json(
    path: Path, place: str, data: bytes, wanted: str, *, line: int | None = None, constants: bool = False
) -> Any:
    """One JSON value. ``line`` is given where the data is one line of the file; else lines are counted in it.

    ``constants``: NaN and infinities are let through, for formats that write them. Raises BadInputFile.
    """

    def refuse(found: str, at: int | None = None, column: int = 0) -> NoReturn:
        number = line if line is not None else at
        where = [place] if place else []
        where += [f"line {number} column {column}" if column else f"line {number}"] if number is not None else []
        todo = f"check that this is {wanted}; if it is, {_AGAIN}"
        raise bad_file(path, ": ".join(where), found, f"whole JSON ({wanted})", todo, line=number)

    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        refuse(f"byte {error.start} is no UTF-8", data.count(b"\n", 0, error.start) + 1)
    try:
        return json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=None if constants else _no_constant,
            parse_float=None if constants else _finite,
        )
    except json.JSONDecodeError as error:
        refuse(error.msg, error.lineno, error.colno)
    except _Refused as error:
        before = text[: _fault(text, constants)]
        refuse(str(error), before.count("\n") + 1, len(before) - before.rfind("\n"))
    except RecursionError:
        refuse("nested too deeply")
    except ValueError as error:  # a number of more digits than Python converts
        refuse(str(error))


def json_value(text: str | bytes) -> Any:
    """JSON inside a recording, read as strictly as files are. Raises ValueError for what is none."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError as error:
        raise _Refused("nested too deeply") from error


def json_in(value: Any) -> Any:
    """What a text of a recording holds as JSON; the text itself where it is none, any other value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json_value(value)
    except ValueError:
        return value


class _Refused(ValueError):
    """JSON as Python reads it, and as we do not."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise _Refused(f"{next(name for name in names if names.count(name) > 1)!r} stands twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise _Refused(f"{name} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _Refused(f"{text} is too large a number")
    return number


def _fault(text: str, constants: bool) -> int:
    """Where the first thing stands that ``_Refused`` can mean; the text is JSON otherwise."""
    names: list[set[str]] = []
    last = ""
    last_at = 0
    for token in _TOKEN.finditer(text):
        word = token.group()
        if word == "{" or word == "[":
            names.append(set())
        elif word == "}" or word == "]":
            names.pop()
        elif word == ":":
            name = json.loads(last)
            if name in names[-1]:
                return last_at
            names[-1].add(name)
        elif word[0] not in '",' and not constants and (word[-1] in "Ny" or not math.isfinite(float(word))):
            return token.start()
        last, last_at = word, token.start()
    return 0

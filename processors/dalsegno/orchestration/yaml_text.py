"""YAML as people write documents: with the place of every key, and without the surprises of YAML. Pure.

Plain values are those of JSON: ``true``, ``false``, ``null``, decimal numbers. What YAML 1.1 takes for something else
than text (``no``, ``0o17``, ``12:30``, ``2026-01-01``, ``1_000``) must be quoted; anchors, aliases, tags, merge keys
and keys that stand twice are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import yaml  # type: ignore[import-untyped]

from dalsegno.errors import InvalidDocument

MAX_BYTES: Final = 1024 * 1024
MAX_NESTING: Final = 64
Path: TypeAlias = tuple[str | int, ...]
Place: TypeAlias = tuple[int, int]
"""Line and column, from 1."""

_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_OTHER_BASE = re.compile(r"[-+]?0[oObBxX][0-9a-fA-F_]+")  # of YAML 1.2 and of people's habits
_WORDS: Final = {"true": True, "false": False, "null": None, "~": None, "": None}


@dataclass(frozen=True)
class Text:
    """A document that was read. ``places``: of each key, or of each item of a list."""

    file: str
    value: Any
    places: dict[Path, Place]

    def refused(self, path: Path, found: str, wanted: str) -> InvalidDocument:
        """The error for what stands at a path, or for what is missing in what stands there."""
        held = path
        while held not in self.places:
            held = held[:-1]
        return refused(self.file, self.places[held], path, found, wanted)


def refused(file: str, place: Place, path: Path, found: str, wanted: str) -> InvalidDocument:
    line, column = place
    key = shown(path)
    return InvalidDocument(
        f"{file}, line {line}, column {column}{key and f', {key}'}: {found}",
        wanted=wanted,
        todo="correct the document; nothing was pinned",
        file=file, line=line, column=column, key=key,
    )  # fmt: skip


def shown(path: Path) -> str:
    """``rules[0].when``"""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def read_yaml(content: bytes, file: str) -> Text:
    """Raises InvalidDocument."""
    if len(content) > MAX_BYTES:
        raise refused(file, (1, 1), (), f"the file has {len(content)} bytes", f"at most {MAX_BYTES}")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise refused(file, (line, 1), (), "the file is no UTF-8", "a text in UTF-8") from None
    reader = _Reader(file)
    try:
        loader = _Loader(text, file)
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise refused(file, place, (), f"{error.problem or error.context}", "one YAML document") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise refused(file, (line, 1), (), f"the character {error.character!r}", "text that YAML allows") from None
    if node is None:
        raise refused(file, (1, 1), (), "the file holds nothing", "one YAML document")
    reader.places[()] = _place(node)
    return Text(file, reader.value(node, ()), reader.places)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml has no annotations
    def __init__(self, text: str, file: str) -> None:
        super().__init__(text)
        self.file, self.depth = file, 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        place = (event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, yaml.AliasEvent) or event.anchor:
            raise refused(self.file, place, (), "an anchor or alias", "each value written out where it is used")
        if event.tag:
            raise refused(self.file, place, (), f"the tag {event.tag}", "a value without a tag")
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise refused(self.file, place, (), "a value nested too deep", f"at most {MAX_NESTING} levels")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Reader:
    def __init__(self, file: str) -> None:
        self.file = file
        self.places: dict[Path, Place] = {}

    def value(self, node: Any, path: Path) -> Any:
        if isinstance(node, yaml.SequenceNode):
            for index, each in enumerate(node.value):
                self.places[(*path, index)] = _place(each)
            return [self.value(each, (*path, index)) for index, each in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        return self._scalar(node, path)

    def _mapping(self, node: Any, path: Path) -> dict[str, Any]:
        read: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise refused(self.file, _place(key_node), path, "a key that is no text", "a text as key")
            key = self._scalar(key_node, path)
            if key == "<<" and key_node.style is None:
                raise refused(self.file, _place(key_node), path, "a merge key", "each key written out")
            if not isinstance(key, str):
                raise refused(self.file, _place(key_node), path, f"the key {key_node.value!r}", "a text; quote it")
            if key in read:
                raise refused(self.file, _place(key_node), (*path, key), "the key stands twice", "it once")
            self.places[(*path, key)] = _place(key_node)
            read[key] = self.value(value_node, (*path, key))
        return read

    def _scalar(self, node: Any, path: Path) -> Any:
        text = node.value
        if node.style is not None:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.fullmatch(text):
            return self._number(node, path, int(text)) if len(text) < 20 else self._number(node, path, None)
        if _FLOAT.fullmatch(text):
            number = float(text)
            return self._number(node, path, number if abs(number) != float("inf") else None)
        if node.tag not in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge") or _OTHER_BASE.fullmatch(text):
            found = f"{text!r}, which some readers of YAML take for something else than text"
            raise refused(
                self.file, _place(node), path, found, "a text in quotes, true, false, null or a decimal number"
            )
        return text

    def _number(self, node: Any, path: Path, number: int | float | None) -> int | float:
        if number is None or (isinstance(number, int) and not -(2**63) <= number < 2**63):
            raise refused(self.file, _place(node), path, f"the number {node.value[:40]}", "a number of 64 bits")
        return number


def _place(node: Any) -> Place:
    return node.start_mark.line + 1, node.start_mark.column + 1

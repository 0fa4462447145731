"""Documents as people write them, to a checked configuration. Pure: who calls says how a file is read.

A workflow's file holds the workflow, and beside it ``policy``, ``compression``, ``tools``, ``prompts``, ``validators``
and ``tokenizer``: each written there, or the name of a file that holds it. Whatever is wrong is named by file, line,
column and key, before anything is pinned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar

import jsonschema
import msgspec

from dalsegno.model.naming import likely
from dalsegno.orchestration import checks
from dalsegno.orchestration.configuration import Loaded
from dalsegno.orchestration.documents import (
    CompressionRules,
    Document,
    Policy,
    Prompts,
    Tokenizer,
    ToolCatalog,
    ToolSpec,
    Validators,
    Workflow,
)
from dalsegno.orchestration.yaml_text import Path, Text, read_yaml

ReadFile: TypeAlias = Callable[[str], bytes]
"""The bytes of the file of a name as it stands in the document. Raises InvalidDocument where there is none."""

D = TypeVar("D", bound=Document)


@dataclass(frozen=True)
class _Part:
    """``wrapped``: what is written is the value of this one field."""

    type: type[Document]
    wrapped: str | None = None


_PARTS: Final[Mapping[str, _Part]] = {
    "policy": _Part(Policy),
    "compression": _Part(CompressionRules),
    "tools": _Part(ToolCatalog, "tools"),
    "prompts": _Part(Prompts, "templates"),
    "validators": _Part(Validators, "validators"),
    "tokenizer": _Part(Tokenizer),
}


@dataclass(frozen=True)
class _Origin:
    """Where a document stands in a text, at ``base``; ``wrapped`` is a key of the document and none of the text."""

    text: Text
    base: Path = ()
    wrapped: str | None = None

    def refused(self, path: Path, found: str, wanted: str) -> Exception:
        if self.wrapped is not None and path[:1] == (self.wrapped,):
            path = path[1:]
        return self.text.refused((*self.base, *path), found, wanted)


def load(file: str, read: ReadFile, *, tools: Sequence[ToolSpec] = ()) -> Loaded:
    """The workflow of a file, with all that belongs to it. ``tools``: those that a program declares, behind the ones of
    the document. Raises InvalidDocument."""
    text = read_yaml(read(file), file)
    whole = text.value
    if not isinstance(whole, dict):
        raise text.refused((), f"{_named(whole)}", "a workflow: name, agents, stages")
    own = {key: value for key, value in whole.items() if key not in _PARTS}
    origins = {"workflow": _Origin(text)}
    read_parts: dict[str, Any] = {"workflow": _document(own, Workflow, origins["workflow"], also=tuple(_PARTS))}
    for key, part in _PARTS.items():
        value = whole.get(key)
        origin = _Origin(text, (key,), part.wrapped)
        if isinstance(value, str):
            other = read_yaml(read(value), value)
            value, origin = other.value, _Origin(other, (), part.wrapped)
        origins[key] = origin
        read_parts[key] = part.type() if value is None else _part(value, part, origin)
    declared = read_parts["tools"]
    read_parts["tools"] = ToolCatalog(tools=[*declared.tools, *tools])
    loaded = Loaded(**read_parts)
    for problem in checks.problems(loaded):
        raise origins[problem.document].refused(problem.path, problem.found, problem.wanted)
    return loaded


def load_policy(file: str, read: ReadFile) -> Policy:
    """A policy of its own file. Raises InvalidDocument."""
    text = read_yaml(read(file), file)
    origin = _Origin(text)
    policy = _document(text.value, Policy, origin)
    for problem in checks.policy_problems(policy):
        raise origin.refused(problem.path, problem.found, problem.wanted)
    return policy


def _part(value: Any, part: _Part, origin: _Origin) -> Document:
    return _document({part.wrapped: value} if part.wrapped else value, part.type, origin)


@cache
def schema(type: type[Document]) -> dict[str, Any]:
    """The JSON Schema of a document."""
    return msgspec.json.schema(type)


def _document(value: Any, type: type[D], origin: _Origin, *, also: Sequence[str] = ()) -> D:
    validator = jsonschema.Draft202012Validator(schema(type))
    errors = sorted(
        map(_innermost, validator.iter_errors(value)), key=lambda error: [str(p) for p in error.absolute_path]
    )
    for error in errors:
        path = tuple(error.absolute_path)
        if error.validator == "additionalProperties":
            known = error.schema["properties"]
            unknown = next(key for key in error.instance if key not in known)
            named = [*known, *also] if not path else list(known)
            raise origin.refused((*path, unknown), "there is no such key", likely(unknown, named))
        if error.validator == "required":
            missing = next(key for key in error.validator_value if key not in error.instance)
            raise origin.refused((*path, missing), "the key is missing", f"{missing}: {_wanted_of(error, missing)}")
        raise origin.refused(path, _named(error.instance), _wanted(error))
    return msgspec.convert(value, type)


def _innermost(error: Any) -> Any:
    """Of a value that may also be null, what the value should have been."""
    while error.validator == "anyOf" and error.context:
        branches = [each for each in error.context if each.schema.get("type") != "null" and each.validator != "const"]
        error = max(branches or error.context, key=lambda each: len(each.absolute_path))
    return error


def _wanted(error: Any) -> str:
    if error.validator == "enum":
        words = [str(word) for word in error.validator_value]
        return (
            likely(error.instance, words, " | ".join(words)) if isinstance(error.instance, str) else " | ".join(words)
        )
    if error.validator == "type":
        quote = (
            "; quote it" if error.validator_value == "string" and not isinstance(error.instance, dict | list) else ""
        )
        return _TYPES.get(str(error.validator_value), str(error.validator_value)) + quote
    return f"{error.validator}: {error.validator_value}"


def _wanted_of(error: Any, key: str) -> str:
    kind = error.schema["properties"][key].get("type", "")
    return _TYPES.get(kind, "a value")


_TYPES: Final = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping of keys",
    "null": "null",
}


_SHOWN_CHARACTERS: Final = 80
"""Of a text that is found where something else is wanted: whole files are taken for documents by mistake."""


def _named(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"{str(value).lower()} (true or false)"
    kinds = ((str, "a text"), (int, "a whole number"), (float, "a number"), (list, "a list"), (dict, "a mapping"))
    kind = next(name for type, name in kinds if isinstance(value, type))
    if isinstance(value, str) and len(value) > _SHOWN_CHARACTERS:
        return f"{value[:_SHOWN_CHARACTERS]!r}… ({kind} of {len(value)} characters)"
    return kind if isinstance(value, list | dict) else f"{value!r} ({kind})"

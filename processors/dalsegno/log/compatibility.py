"""Whether versions of one type go together: every version is read by every other, and nothing is lost or guessed.

FULL_TRANSITIVE over all pairs, by two judges. The rules here need no library and see what Avro's checker does not:
logical types, full names, defaults, symbols that vanish, numbers that lose digits. ``avro_problems`` asks Avro's own
checker besides (package ``avro``, part of the extra ``service``; imported only there).

Versions of ours live in namespaces that differ in ``.v<number>`` alone; names are compared without it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dalsegno.errors import InvalidEvent, SchemaIncompatible
from dalsegno.log.encode import Compiler, from_json
from dalsegno.log.schema_set import Schema, WriterSchema, stripped

_VERSION = re.compile(r"\.v[1-9][0-9]*(?=\.)")
_LOGICAL = ("logicalType", "precision", "scale")
_WHOLE = {"int": 0, "long": 1}


class Problem(NamedTuple):
    """Why two versions do not go together, or why one schema is not fit to be kept."""

    schema: str
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.schema}: {self.path or 'the record'}: {self.text}"


def problems(versions: Sequence[WriterSchema], *, avro: bool = True) -> list[Problem]:
    """All problems of the versions of one type, oldest first. Empty: each reads each other."""
    found = [problem for version in versions for problem in fitness(version)]
    for old, new in itertools.combinations(versions, 2):
        found += pair_problems(old, new)
        if avro:
            found += avro_problems(old, new)
    return found


def require(versions: Sequence[WriterSchema], *, avro: bool = True) -> None:
    """Refuse versions that do not go together. Raises SchemaIncompatible with all problems in ``data``."""
    found = problems(versions, avro=avro)
    if found:
        raise SchemaIncompatible(
            str(found[0]) + (f" (and {len(found) - 1} more)" if len(found) > 1 else ""),
            wanted="a version that every other version can read and be read by",
            todo="add fields with a default, symbols and aliases only; for anything else make a new event type",
            problems=[str(problem) for problem in found],
        )


def fitness(writer: WriterSchema) -> list[Problem]:
    """What is wrong with one schema by itself."""
    compiler = Compiler()
    compiler.compile(writer.schema)
    return [Problem(writer.name, path, text) for path, text in _unfit(writer.schema, "", compiler)]


def _unfit(schema: Schema, path: str, compiler: Compiler) -> Iterator[tuple[str, str]]:
    if isinstance(schema, list):
        for branch in schema:
            yield from _unfit(branch, path, compiler)
    elif isinstance(schema, dict):
        kind = schema["type"]
        if kind == "enum" and schema.get("default") not in schema["symbols"]:
            yield path, f"the enum {schema['name']} has no default symbol"
        if kind == "map":
            yield path, "a map has no order: take an array of records"
        if kind == "array":
            yield from _unfit(schema["items"], f"{path}[]", compiler)
        for field in schema.get("fields", ()):
            inner = f"{path}.{field['name']}" if path else field["name"]
            yield from _unfit(field["type"], inner, compiler)
            if "default" in field:
                yield from _unfit_default(field, inner, compiler)


def _unfit_default(field: Mapping[str, Any], path: str, compiler: Compiler) -> Iterator[tuple[str, str]]:
    kind, default = field["type"], field["default"]
    # Older Avro libraries take the first branch of a union for the default, whatever it is.
    if isinstance(kind, list):
        kind = kind[0]
    try:
        compiler.compile(kind)(from_json(kind, default), path)
    except InvalidEvent as error:
        yield path, f"its default {default!r} does not fit (in a union: its first branch): {error.found}"


# --- two versions -----------------------------------------------------------------------------------------------------


def pair_problems(old: WriterSchema, new: WriterSchema) -> list[Problem]:
    """What keeps an older and a newer version apart, by our rules."""
    compare = _Pair(_named_in(old.schema), _named_in(new.schema))
    return [Problem(new.name, path, text) for path, text in compare.types(old.schema, new.schema, "")]


class _Pair:
    """Walks an older and a newer schema side by side, fields matched by name or by the newer one's alias."""

    def __init__(self, old_names: Mapping[str, Schema], new_names: Mapping[str, Schema]) -> None:
        self.old_names, self.new_names = old_names, new_names
        self.done: set[tuple[str, str]] = set()

    def types(self, old: Schema, new: Schema, path: str) -> Iterator[tuple[str, str]]:
        old, new = _resolved(old, self.old_names), _resolved(new, self.new_names)
        if isinstance(old, list) or isinstance(new, list):
            yield from self._unions(old, new, path)
            return
        was, now = old["type"], new["type"]
        old_logical, new_logical = ([side.get(key) for key in _LOGICAL] for side in (old, new))
        if old_logical != new_logical:
            yield path, f"its logical type was {_logical(old_logical)} and is {_logical(new_logical)}"
        if was in _WHOLE and now in _WHOLE:
            if _WHOLE[now] < _WHOLE[was]:
                yield path, f"{was} became {now}: larger numbers were written before"
            return
        if was != now:
            yield path, f"{was} became {now}"
        elif was in ("record", "enum", "fixed"):
            yield from self._named(old, new, path)
        elif was == "array":
            yield from self.types(old["items"], new["items"], f"{path}[]")

    def _unions(self, old: Schema, new: Schema, path: str) -> Iterator[tuple[str, str]]:
        if not (isinstance(old, list) and isinstance(new, list)):
            yield path, "a union became something else, or the other way round"
            return
        before = {_branch(_resolved(branch, self.old_names)): branch for branch in old}
        after = {_branch(_resolved(branch, self.new_names)): branch for branch in new}
        if before.keys() != after.keys():
            yield path, f"the branches were {', '.join(before)} and are {', '.join(after)}"
        for name in before.keys() & after.keys():
            yield from self.types(before[name], after[name], path)

    def _named(self, old: Schema, new: Schema, path: str) -> Iterator[tuple[str, str]]:
        if (old["name"], new["name"]) in self.done:
            return
        self.done.add((old["name"], new["name"]))
        if unversioned(old["name"]) != unversioned(new["name"]):
            # An alias would help newer builds only.
            yield path, f"{old['name']} was renamed to {new['name']}: builds from before the change find no such type"
        if old["type"] == "fixed" and old["size"] != new["size"]:
            yield path, f"{old['size']} bytes became {new['size']}"
        if old["type"] == "enum":
            gone = [symbol for symbol in old["symbols"] if symbol not in new["symbols"]]
            if gone:
                yield path, f"the symbols {', '.join(gone)} are gone"
            if old.get("default") != new.get("default"):
                yield path, f"the enum's default was {old.get('default')} and is {new.get('default')}"
        if old["type"] == "record":
            yield from self._fields(old, new, path)

    def _fields(self, old: Schema, new: Schema, path: str) -> Iterator[tuple[str, str]]:
        before = {field["name"]: field for field in old["fields"]}
        taken = set()
        for field in new["fields"]:
            inner = f"{path}.{field['name']}" if path else field["name"]
            name = next((n for n in (field["name"], *field.get("aliases", ())) if n in before), None)
            if name is None:
                if "default" not in field:
                    yield inner, "a new field without a default"
                continue
            taken.add(name)
            if name != field["name"] and "default" not in before[name]:
                yield inner, f"renamed from {name}, which builds from before the change need: it has no default"
            if "default" in before[name] and before[name]["default"] != field.get("default", _Pair):
                yield inner, "its default was changed or dropped"
            yield from self.types(before[name]["type"], field["type"], inner)
        for name in before:
            if name not in taken:
                yield f"{path}.{name}" if path else name, "gone: a field stays, or is renamed with an alias"


def unversioned(name: str) -> str:
    """A full name without the version in its namespace."""
    return _VERSION.sub("", name)


def _resolved(schema: Schema, names: Mapping[str, Schema]) -> Any:
    if isinstance(schema, str):
        return names.get(schema, {"type": schema})
    if isinstance(schema, dict) and isinstance(schema["type"], dict | list):
        return _resolved(schema["type"], names)
    return schema


def _branch(schema: Mapping[str, Any]) -> str:
    kind = "long" if schema["type"] in _WHOLE else str(schema["type"])
    return unversioned(str(schema.get("name", kind)))


def _logical(triple: Sequence[Any]) -> str:
    return " ".join(str(part) for part in triple if part is not None) or "none"


def _named_in(schema: Schema) -> dict[str, Schema]:
    found: dict[str, Schema] = {}

    def walk(part: Schema) -> None:
        if isinstance(part, list):
            for branch in part:
                walk(branch)
        elif isinstance(part, dict):
            if "name" in part:
                found[part["name"]] = part
            for key in ("items", "values"):
                if key in part:
                    walk(part[key])
            for field in part.get("fields", ()):
                walk(field["type"])

    walk(schema)
    return found


# --- Avro's own checker -----------------------------------------------------------------------------------------------


def avro_problems(old: WriterSchema, new: WriterSchema) -> list[Problem]:
    """What Avro's checker says, both ways. Needs the package ``avro``."""
    import avro.schema
    from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

    found = []
    for reader, writer in ((new, old), (old, new)):
        # A checker remembers by id(): one for each pair.
        result = ReaderWriterCompatibilityChecker().get_compatibility(  # type: ignore[no-untyped-call]
            avro.schema.make_avsc_object(_without_versions(reader.schema), validate_enum_symbols=False),
            avro.schema.make_avsc_object(_without_versions(writer.schema), validate_enum_symbols=False),
        )
        if result.compatibility is not SchemaCompatibilityType.compatible:
            where = ", ".join(sorted(result.locations)) or "/"
            why = "; ".join(result.messages)
            found.append(Problem(new.name, where, f"v{reader.version} cannot read v{writer.version}: {why}"))
    return found


def _without_versions(schema: Schema) -> Any:
    """The schema as the codec resolves it (int and long are one), under names without versions."""

    def walk(part: Any) -> Any:
        if isinstance(part, list):
            return [walk(item) for item in part]
        if isinstance(part, dict):
            return {key: walk(value) if key != "default" else value for key, value in part.items()}
        return unversioned(part) if isinstance(part, str) else part

    return walk(stripped(schema))

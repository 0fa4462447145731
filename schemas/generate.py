"""Writes the Python twins of the .avsc files; ``--check`` only says whether they are up to date (exit code 1: not).

    schemas/types, schemas/events   ->  dalsegno/model/events.py     writer classes (frozen structs without meta)
                                        dalsegno/model/payloads.py   enums, and typed dicts of decoded events
                                        dalsegno/model/catalogue.py  the table of event types
    schemas/projections             ->  dalsegno/projections/rows.py structs of the rows

For developers and CI; not part of the package. Needs nothing but Python.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).resolve().parent
PACKAGE = SCHEMAS.parent / "processors" / "dalsegno"
WIDTH = 120
GENERATED = "Generated from the .avsc files by schemas/generate.py; change those and run it again."

PRIMITIVES = {"string": "str", "long": "int", "int": "int", "boolean": "bool", "bytes": "bytes", "null": "None"}
Schema = Any


class Named:
    """Every named type that the files define, in an order in which each stands behind what it uses."""

    def __init__(self) -> None:
        self.by_name: dict[str, dict[str, Any]] = {}

    def collect(self, schema: Schema) -> None:
        if isinstance(schema, list):
            for branch in schema:
                self.collect(branch)
        elif isinstance(schema, dict):
            if schema["type"] == "array":
                self.collect(schema["items"])
            elif schema["type"] in ("record", "enum", "fixed"):
                for field in schema.get("fields", ()):
                    self.collect(field["type"])
                name = schema["name"]
                if self.by_name.get(name, schema) != schema:
                    raise SystemExit(f"two types are named {name}")
                self.by_name[name] = schema

    def records(self) -> Iterator[dict[str, Any]]:
        return (schema for schema in self.by_name.values() if schema["type"] == "record")

    def enums(self) -> Iterator[dict[str, Any]]:
        return (schema for schema in self.by_name.values() if schema["type"] == "enum")

    def hint(self, schema: Schema, *, array: str, timestamp: str) -> str:
        """The Python type of a field."""
        if isinstance(schema, list):
            inner = [self.hint(branch, array=array, timestamp=timestamp) for branch in schema if branch != "null"]
            return " | ".join([*inner, "None"] if "null" in schema else inner)
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return PRIMITIVES[schema]
            short = schema.rpartition(".")[2]
            return "bytes" if self.by_name[short]["type"] == "fixed" else short
        if schema["type"] == "array":
            return f"{array}[{self.hint(schema['items'], array=array, timestamp=timestamp)}]"
        if schema.get("logicalType", "").startswith("timestamp"):
            return timestamp
        return schema["name"] if "name" in schema else PRIMITIVES[schema["type"]]

    def default(self, field: dict[str, Any], *, array: str) -> str:
        """`` = value`` in Python, or nothing for a required field."""
        if "default" not in field:
            return ""
        value = field["default"]
        if isinstance(value, list):
            return f" = {array}"
        if isinstance(value, dict):
            return f" = {self.hint(field['type'], array='', timestamp='')}()"
        return " = " + (f'"{value}"' if isinstance(value, str) else repr(value))


def load(folder: str) -> list[Schema]:
    return [json.loads(path.read_text("utf-8")) for path in sorted((SCHEMAS / folder).glob("*.avsc"))]


def version_of(schema: dict[str, Any]) -> int:
    match = re.search(r"\.v([0-9]+)\Z", schema["namespace"])
    if match is None:
        raise SystemExit(f"{schema['namespace']}: a namespace ends with .v<number>")
    return int(match.group(1))


def newest(schemas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for schema in sorted(schemas, key=version_of):
        found[schema["name"]] = schema
    return [found[name] for name in sorted(found)]


def docstring(text: str, indent: str = "    ") -> list[str]:
    """A docstring that keeps within the line."""
    whole = f'{indent}"""{text}"""'
    if len(whole) <= WIDTH:
        return [whole]
    words, lines = text.split(), [indent + '"""']
    for word in words:
        joint = "" if lines[-1].endswith('"""') or lines[-1] == indent else " "
        if len(lines[-1]) + len(joint) + len(word) > WIDTH - 3:
            lines.append(indent)
            joint = ""
        lines[-1] += joint + word
    return [*lines, indent + '"""']


def comment(field: dict[str, Any], line: str) -> str:
    doc = field.get("doc", "")
    return f"{line}  # {doc}" if doc and len(line) + len(doc) + 4 <= WIDTH else line


def literal(name: str, symbols: list[str], lead: str = "") -> list[str]:
    line = f"{lead}{name}: TypeAlias = Literal[" + ", ".join(f'"{symbol}"' for symbol in symbols) + "]"
    if len(line) <= WIDTH:
        return [line]
    inner = "    " + ", ".join(f'"{symbol}"' for symbol in symbols)
    if len(inner) <= WIDTH:
        return [f"{lead}{name}: TypeAlias = Literal[", inner, "]"]
    return [f"{lead}{name}: TypeAlias = Literal[", *(f'    "{symbol}",' for symbol in symbols), "]"]


def payloads_py(named: Named) -> str:
    out = [
        '"""Typed dicts of decoded events, as folds see them: raw values, times in microseconds UTC.',
        "",
        GENERATED,
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Literal, TypeAlias, TypedDict",
        "",
    ]
    for enum in named.enums():
        out += literal(enum["name"], enum["symbols"])
    for record in named.records():
        out += ["", "", f"class {record['name']}(TypedDict):"]
        if record.get("doc"):
            out += [*docstring(record["doc"]), ""]
        for field in record["fields"]:
            hint = named.hint(field["type"], array="list", timestamp="int")
            out.append(comment(field, f"    {field['name']}: {hint}"))
    return "\n".join(out) + "\n"


EVENTS_HEAD = '''"""Classes with which a producer writes events: frozen, without meta, which the session's writer adds.

{generated}
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar, TypeAlias

import msgspec

from dalsegno.model.naming import ByName
from dalsegno.model.payloads import (
{enums}
)

Timestamp: TypeAlias = int | datetime
"""An instant: microseconds since 1970 UTC, or an aware datetime (a naive one is refused)."""


class Value(msgspec.Struct, frozen=True, kw_only=True, metaclass=ByName):
    """Base of the records inside events."""


class NewEvent(msgspec.Struct, frozen=True, kw_only=True, metaclass=ByName):
    """Base of all events to append."""

    TYPE: ClassVar[str]
    VERSION: ClassVar[int]
    CLASS: ClassVar[str]
    """X a fact from outside, D a decision, L an intent or frame, C a control event."""


def to_record(event: NewEvent) -> dict[str, Any]:
    """The event as the dict that the codec takes, without ``meta``; values are passed on as they are."""
    return {{name: _plain(getattr(event, name)) for name in event.__struct_fields__}}


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return {{name: _plain(getattr(value, name)) for name in value.__struct_fields__}}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
'''


def events_py(named: Named, events: list[dict[str, Any]]) -> str:
    names = {event["name"] for event in events}
    out: list[str] = []
    for record in [r for r in named.records() if r["name"] not in names and r["name"] != "Meta"] + events:
        is_event = record["name"] in names
        base = "NewEvent" if is_event else "Value"
        out += ["", "", f"class {record['name']}({base}, frozen=True, kw_only=True):"]
        if record.get("doc"):
            out += [*docstring(record["doc"]), ""]
        if is_event:
            out += [
                f'    TYPE: ClassVar[str] = "{record["name"]}"',
                f"    VERSION: ClassVar[int] = {version_of(record)}",
                f'    CLASS: ClassVar[str] = "{record["class"]}"',
            ]
        for field in record["fields"]:
            if field["name"] != "meta":
                hint = named.hint(field["type"], array="Sequence", timestamp="Timestamp")
                out.append(comment(field, f"    {field['name']}: {hint}{named.default(field, array='()')}"))
    out += ["", "", "EVENT_CLASSES: dict[str, type[NewEvent]] = {", *(f'    "{n}": {n},' for n in sorted(names)), "}"]
    public = sorted({*names, *(r["name"] for r in named.records()), "NewEvent", "Timestamp", "Value"} - {"Meta"})
    out += ["", "__all__ = [", *(f'    "{name}",' for name in ["EVENT_CLASSES", *public, "to_record"]), "]"]
    used = set(re.findall(r"[A-Za-z]+", "\n".join(line.partition("  # ")[0] for line in out if ": " in line)))
    enums = sorted(enum["name"] for enum in named.enums() if enum["name"] in used)
    head = EVENTS_HEAD.format(generated=GENERATED, enums="\n".join(f"    {name}," for name in enums))
    return "\n".join([head.rstrip("\n"), *out]) + "\n"


CATALOGUE_HEAD = '''"""The table of event types.

{generated}
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple


class EventType(NamedTuple):
    """What is true of all events of one type."""

    name: str
    version: int
    """The newest version that this build knows."""
    cls: Literal["X", "D", "L", "C"]
    """X a fact from outside, D a decision, L an intent or frame, C a control event."""
    ignorable: bool
    """True: events of this type always say ``meta.ignorable``."""
    fields: frozenset[str]
    """Names of the fields of the newest version, ``meta`` among them."""


CATALOGUE: Final[dict[str, EventType]] = {{'''


def catalogue_py(events: list[dict[str, Any]]) -> str:
    out = [CATALOGUE_HEAD.format(generated=GENERATED)]
    for event in events:
        name, cls, ignorable = event["name"], event["class"], bool(event.get("ignorable"))
        if cls not in ("X", "D", "L", "C"):
            raise SystemExit(f"{name}: class {cls!r}")
        if event["fields"][0]["name"] != "meta":
            raise SystemExit(f"{name}: the first field is not meta")
        fields = ", ".join(f'"{field["name"]}"' for field in event["fields"])
        lead = f'    "{name}": EventType("{name}", {version_of(event)}, "{cls}", {ignorable}, '
        line = f"{lead}frozenset({{{fields}}})),"
        if len(line) <= WIDTH:
            out.append(line)
            continue
        out += [f'    "{name}": EventType(']
        out += [f'        "{name}",', f"        {version_of(event)},", f'        "{cls}",', f"        {ignorable},"]
        whole = f"        frozenset({{{fields}}}),"
        if len(whole) <= WIDTH:
            out.append(whole)
        elif len(fields) + 14 <= WIDTH:
            out += ["        frozenset(", f"            {{{fields}}}", "        ),"]
        else:
            out += ["        frozenset(", "            {"]
            out += [f'                "{field["name"]}",' for field in event["fields"]]
            out += ["            }", "        ),"]
        out.append("    ),")
    return "\n".join([*out, "}"]) + "\n"


def rows_py(projections: dict[str, list[dict[str, Any]]], shared: Named) -> str:
    named = Named()
    for rows in projections.values():
        for row in rows:
            named.collect(row)
    named.by_name |= {name: schema for name, schema in shared.by_name.items() if schema["type"] == "fixed"}
    out = [
        '"""Structs of the rows of the built-in projections: stored as MessagePack arrays, emitted as Avro.',
        "",
        GENERATED,
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Literal, TypeAlias",
        "",
        "import msgspec",
        "",
    ]
    for enum in named.enums():
        out += literal(enum["name"], enum["symbols"])
    for record in named.records():
        options = "array_like=True, kw_only=True, forbid_unknown_fields=True"
        out += ["", "", f"class {record['name']}(msgspec.Struct, {options}):"]
        if record.get("doc"):
            out += [*docstring(record["doc"]), ""]
        for field in record["fields"]:
            hint = named.hint(field["type"], array="list", timestamp="int")
            out.append(comment(field, f"    {field['name']}: {hint}{named.default(field, array='[]')}"))
    return "\n".join(out) + "\n"


def projection_files() -> dict[str, list[dict[str, Any]]]:
    """Projection name -> rows of its newest version."""
    found: dict[str, tuple[int, list[dict[str, Any]]]] = {}
    for path in sorted((SCHEMAS / "projections").glob("*.avsc")):
        name, _, version = path.name.removesuffix(".avsc").rpartition(".v")
        rows = json.loads(path.read_text("utf-8"))
        if int(version) > found.get(name, (0, []))[0]:
            found[name] = (int(version), rows)
    return {name: rows for name, (_, rows) in sorted(found.items())}


def generate() -> dict[Path, str]:
    """Every generated file and what has to stand in it."""
    named = Named()
    for schema in load("types"):
        named.by_name[schema["name"]] = schema
    ordered = Named()
    for name in list(named.by_name):
        _in_order(name, named, ordered)
    events = newest(load("events"))
    for event in events:
        ordered.collect(event)
    return {
        PACKAGE / "model" / "events.py": events_py(ordered, events),
        PACKAGE / "model" / "payloads.py": payloads_py(ordered),
        PACKAGE / "model" / "catalogue.py": catalogue_py(events),
        PACKAGE / "projections" / "rows.py": rows_py(projection_files(), named),
    }


def _in_order(name: str, named: Named, ordered: Named) -> None:
    """Put a shared type behind the shared types that it uses."""
    if name in ordered.by_name:
        return
    for used in _names_used(named.by_name[name]):
        if used in named.by_name:
            _in_order(used, named, ordered)
    ordered.by_name[name] = named.by_name[name]


def _names_used(schema: Schema) -> Iterator[str]:
    if isinstance(schema, str):
        yield schema.rpartition(".")[2]
    elif isinstance(schema, list):
        for branch in schema:
            yield from _names_used(branch)
    elif schema["type"] == "array":
        yield from _names_used(schema["items"])
    else:
        for field in schema.get("fields", ()):
            yield from _names_used(field["type"])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a file is not up to date")
    check: bool = parser.parse_args().check
    stale = [(p, text) for p, text in generate().items() if not p.exists() or p.read_text("utf-8") != text]
    for path, text in stale:
        if not check:
            path.write_text(text, "utf-8")
        print(f"{'not up to date' if check else 'written'}: {path.relative_to(SCHEMAS.parent)}", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())

"""The check of the schema files: fit to be kept, versions that go together, released ones unchanged.

``released.json`` holds, per released file, a lock: SHA-256 over the whole normalised schema (closed, keys sorted, docs
left out), so that also a changed default, alias or logical type of a released file is seen. What is not listed may
still change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from dalsegno.log.compatibility import Problem, problems
from dalsegno.log.schema_set import EVENT_NAMESPACE, Schema, WriterSchema, closed, schemas_in, shared_types_in

_FILE = re.compile(r"\A(?P<name>\w+)\.v(?P<version>[1-9][0-9]*)\.avsc\Z")
_CLASSES = ("X", "D", "L", "C")


class Report(NamedTuple):
    """What the check found. ``released`` counts the locked files; the others are free to change."""

    files: int
    schemas: int
    released: int
    problems: list[Problem]


def release_lock(writer: WriterSchema) -> str:
    """SHA-256, in hex, of the normalised schema: everything but the docs."""
    text = json.dumps(_without_docs(writer.schema), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return sha256(text.encode("utf-8")).hexdigest()


def check_folder(folder: Path) -> Report:
    """Check every schema file below a folder (needs the package ``avro``)."""
    shared = shared_types_in(folder)
    found: list[Problem] = []
    files: dict[str, list[WriterSchema]] = {}
    for path in sorted(p for room in ("events", "topics", "projections") for p in (folder / room).glob("*.avsc")):
        name = path.relative_to(folder).as_posix()
        try:
            files[name] = [WriterSchema(closed(schema, shared)) for schema in schemas_in(path)]
        except Exception as error:  # whatever is wrong with the file is to be reported with its name
            found.append(Problem(name, "", f"does not parse: {type(error).__name__}: {error}"))
            continue
        found += [problem for writer in files[name] for problem in _house_rules(name, path.name, writer)]
    by_family: dict[str, list[WriterSchema]] = {}
    for writers in files.values():
        for writer in writers:
            by_family.setdefault(writer.family, []).append(writer)
    for versions in by_family.values():
        found += problems(sorted(versions, key=lambda writer: writer.version))
    released = json.loads((folder / "released.json").read_text("utf-8"))["released"]
    found += _broken_locks(released, files)
    return Report(len(files), sum(len(writers) for writers in files.values()), len(released), found)


def _broken_locks(released: list[dict[str, Any]], files: dict[str, list[WriterSchema]]) -> Iterator[Problem]:
    for entry in released:
        locks = {writer.name: release_lock(writer) for writer in files.get(entry["file"], ())}
        if entry["file"] not in files:
            yield Problem(entry["file"], "", f"was released in {entry['release']} and is gone")
        elif locks != entry["locks"]:
            yield Problem(entry["file"], "", f"was released in {entry['release']} and has changed: make a new version")


def _house_rules(name: str, file: str, writer: WriterSchema) -> Iterator[Problem]:
    """What this project asks of its own files beyond Avro."""

    def problem(text: str) -> Problem:
        return Problem(name, "", text)

    match = _FILE.match(file)
    if match is None:
        yield problem("a file is named <name>.v<version>.avsc")
    elif int(match["version"]) != writer.version:
        yield problem(f"the namespace of {writer.name} does not end with .v{match['version']}")
    elif not name.startswith("projections/") and match["name"] != writer.name.rpartition(".")[2]:
        yield problem(f"the record is named {writer.name}")
    if name.startswith("events/"):
        if not writer.name.startswith(EVENT_NAMESPACE + "."):
            yield problem(f"an event's namespace begins with {EVENT_NAMESPACE}")
        if not writer.is_event:
            yield problem("the first field of an event is meta")
        if writer.schema.get("class") not in _CLASSES:
            yield problem(f"an event's class is one of {', '.join(_CLASSES)}")
    for path, text in _never(writer.schema, ""):
        yield Problem(name, path, text)


def _never(schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    if schema in ("float", "double"):
        yield path, "a float: take whole numbers, or decimal text"
    elif isinstance(schema, list):
        if "null" in schema and (schema[0] != "null" or len(schema) != 2):
            yield path, "a nullable type is [null, type]"
        for branch in schema:
            yield from _never(branch, path)
    elif isinstance(schema, dict):
        if schema["type"] == "array":
            yield from _never(schema["items"], f"{path}[]")
        elif schema["type"] == "enum" and schema.get("default") != "UNKNOWN":
            yield path, f"the default symbol of {schema['name']} is not UNKNOWN"
        for field in schema.get("fields", ()):
            yield from _never(field["type"], f"{path}.{field['name']}" if path else field["name"])


def _without_docs(part: Any) -> Any:
    if isinstance(part, list):
        return [_without_docs(item) for item in part]
    if isinstance(part, dict):
        return {key: _without_docs(value) for key, value in part.items() if key != "doc"}
    return part

"""Writer schemas: where they are kept, their names and fingerprints, and which of them this process knows.

A schema file names shared types; a *closed* schema holds them, each at its first use, and is what the log keeps. Of a
closed schema there are two fingerprints here, both over its parsing canonical form: the frame id (CRC-64-AVRO, 8 bytes,
little endian), which stands before a body, and the schema hash (SHA-256), which enters an event's hash.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

from fastavro.schema import parse_schema, to_parsing_canonical_form

from dalsegno.errors import SchemaIncompatible, SchemaUnknown
from dalsegno.log.crc64 import crc64_avro
from dalsegno.log.schema_bounds import check_bounds

Schema: TypeAlias = Any
"""An Avro schema as JSON gives it: str, list or dict."""

UNKNOWN_MAX = 10_000
EVENT_NAMESPACE = "dalsegno.event"
ROW_NAMESPACE = "dalsegno.row."
_VERSIONED = re.compile(r"\A(?P<room>.+)\.v(?P<version>[1-9][0-9]{0,8})\.(?P<short>[^.]+)\Z")
_PLACING = ["session_id", "seq", "epoch", "prev_hash"]
_META_TYPES = {"session_id": {"string"}, "seq": {"int", "long"}, "epoch": {"int", "long"}, "ignorable": {"boolean"}}
_HASH_BYTES = 32
_STRIPPED = {"logicalType", "precision", "scale", "doc"}


class WriterSchema:
    """One closed record schema. Equal canonical forms are one writer schema, whatever their docs and logical types say.

    ``name`` is the full name; ``type`` the short name for events of our catalogue's namespace, else the full name;
    ``family`` the full name without version, by which versions belong together (each version of a projection's rows is
    one of its own); ``version`` 0 if the name has none.
    ``is_event``: the first field is a ``meta`` that places a record. ``json`` is the text that the schema topic keeps.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema: dict[str, Any] = closed(schema, {})
        if self.schema["type"] != "record" or not isinstance(self.schema["fields"], list):
            raise ValueError("it describes no record")
        check_bounds(self.schema)
        self.json = json.dumps(self.schema, ensure_ascii=False, separators=(",", ":"))
        canonical = to_parsing_canonical_form(parse_schema(self.schema)).encode("utf-8")
        self.canonical = canonical
        self.schema_hash = sha256(canonical).digest()
        self.frame_id = crc64_avro(canonical)
        self.name: str = self.schema["name"]
        match = _VERSIONED.match(self.name)
        self.version = int(match["version"]) if match else 0
        # Rows of another version have a topic of their own, so none of them has to read the other.
        evolves = match is not None and not self.name.startswith(ROW_NAMESPACE)
        self.family = f"{match['room']}.{match['short']}" if match and evolves else self.name
        ours = match is not None and match["room"] == EVENT_NAMESPACE
        self.is_event = _has_meta(self.schema)
        self.type = match["short"] if match and ours else self.name
        self.prefix = b"\xc3\x01" + self.frame_id

    def __repr__(self) -> str:
        return f"WriterSchema({self.name}, {self.schema_hash.hex()[:8]})"

    @cached_property
    def raw(self) -> Schema:
        """The schema for fastavro, without logical types: what is read are raw values."""
        return parse_schema(stripped(self.schema))

    @cached_property
    def raw_strict(self) -> Schema:
        """As ``raw``, but without enum defaults: as a reader's schema it refuses symbols that it lacks."""
        return parse_schema(stripped(self.schema, keep_enum_default=False))

    @cached_property
    def raw_meta(self) -> Schema:
        """A record of the first field alone: reads a prefix of the body."""
        plain = stripped(self.schema)
        return parse_schema({**plain, "fields": plain["fields"][:1]})


class SchemaSet:
    """The writer schemas known to this process. Adding is idempotent and may go on while others read."""

    def __init__(self) -> None:
        self._frames: dict[bytes, tuple[WriterSchema, ...]] = {}
        self._hashes: dict[bytes, WriterSchema] = {}
        self._newest: dict[str, WriterSchema] = {}
        self._shipped: set[str] = set()
        self.unknown: set[bytes] = set()
        """Frame ids that were met and are not known; cleared by ``add`` of their schema."""
        self.current: dict[bytes, WriterSchema] = {}
        """By frame id, the newest schema of each event type, as far as no other schema shares that id."""

    @classmethod
    def load(cls) -> SchemaSet:
        """The schemas that this build ships: its catalogue, the other topics' records, the rows."""
        found = cls()
        for writer in shipped():
            found._ship(writer)
        found._note_current()
        return found

    def ship(self, writer: WriterSchema) -> None:
        """Add a schema that this build knows by itself: its newest version is the shape that folds are given."""
        self._ship(writer)
        self._note_current()

    def _ship(self, writer: WriterSchema) -> None:
        self._put(writer)
        if writer.version >= getattr(self._newest.get(writer.family), "version", -1):
            self._newest[writer.family] = writer
        self._shipped.add(writer.family)

    def add(self, schema_json: str | bytes | Mapping[str, Any]) -> WriterSchema:
        """Take a schema as the schema topic has it. Raises SchemaIncompatible if it is not a record schema."""
        try:
            schema = json.loads(schema_json) if isinstance(schema_json, str | bytes) else schema_json
            writer = WriterSchema(schema)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, _schema_error()) as error:
            raise SchemaIncompatible(
                f"not an Avro record schema: {type(error).__name__}: {error}",
                wanted="the closed schema of a record as JSON",
                todo="look at who writes to the schema topic",
            ) from error
        known = len(self)
        found = self._put(writer)
        if len(self) > known:
            self._note_current()
        return found

    def _put(self, writer: WriterSchema) -> WriterSchema:
        known = self._hashes.get(writer.schema_hash)
        if known is not None:
            return known
        # Two schemas may share the 64 bits of a frame id; the event's hash then tells which of them wrote it.
        self._frames[writer.frame_id] = (*self._frames.get(writer.frame_id, ()), writer)
        self._hashes[writer.schema_hash] = writer
        self.unknown.discard(writer.frame_id)
        return writer

    def _note_current(self) -> None:
        self.current = {
            writer.frame_id: writer
            for writer in self._newest.values()
            if writer.is_event and len(self._frames[writer.frame_id]) == 1
        }

    def miss(self, frame_id: bytes) -> None:
        """Remember a frame id that nothing here explains; bounded, since anybody may invent them."""
        if len(self.unknown) < UNKNOWN_MAX:
            self.unknown.add(frame_id)

    def by_frame(self, frame_id: bytes) -> WriterSchema | None:
        found = self._frames.get(frame_id)
        return found[0] if found else None

    def all_by_frame(self, frame_id: bytes) -> tuple[WriterSchema, ...]:
        """Every schema with this frame id: one, unless somebody made a collision."""
        return self._frames.get(frame_id, ())

    def by_hash(self, schema_hash: bytes) -> WriterSchema | None:
        return self._hashes.get(schema_hash)

    def newest(self, writer: WriterSchema) -> WriterSchema | None:
        """The newest version that this build ships of what this schema writes; None for a foreign type."""
        return self._newest.get(writer.family)

    def knows(self, writer: WriterSchema) -> bool:
        """Whether this build ships some version of this type."""
        return writer.family in self._shipped

    def event(self, type_: str) -> WriterSchema:
        """The newest schema of an event type of the catalogue. Raises SchemaUnknown."""
        return self.named(f"{EVENT_NAMESPACE}.{type_}")

    def named(self, name: str) -> WriterSchema:
        """The newest shipped schema by family, full name or (where it is unique) short name. Raises SchemaUnknown."""
        match = _VERSIONED.match(name)
        for family in (name, f"{match['room']}.{match['short']}" if match else name):
            if family in self._newest:
                return self._newest[family]
        found = [writer for key, writer in self._newest.items() if key.rpartition(".")[2] == name]
        if len(found) != 1:
            raise SchemaUnknown(
                f"{len(found)} schemas are named {name}",
                wanted="a schema of this build",
                todo="dalsegno schema list",
                name=name,
            )
        return found[0]

    def __iter__(self) -> Iterator[WriterSchema]:
        return iter(list(self._hashes.values()))

    def __len__(self) -> int:
        return len(self._hashes)


def schema_folder() -> Path:
    """Where the .avsc files are: in the installed package, or in the checkout. Raises SchemaUnknown."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_schemas", package.parents[1] / "schemas"):
        if (folder / "events").is_dir():
            return folder
    raise SchemaUnknown(
        f"no schemas beside {package}",
        wanted="the folder dalsegno/_schemas of the package",
        todo="install dalsegno again",
    )


@cache
def shared_types() -> Mapping[str, dict[str, Any]]:
    """The shared named types by full name."""
    return shared_types_in(schema_folder())


def shared_types_in(folder: Path) -> Mapping[str, dict[str, Any]]:
    types = [json.loads(path.read_text("utf-8")) for path in sorted((folder / "types").glob("*.avsc"))]
    return {f"{schema['namespace']}.{schema['name']}": schema for schema in types}


@cache
def shipped() -> tuple[WriterSchema, ...]:
    """Every writer schema of this build, in the order of its files."""
    return tuple(
        WriterSchema(closed(schema, shared_types()))
        for folder in ("events", "topics", "projections")
        for path in sorted((schema_folder() / folder).glob("*.avsc"))
        for schema in schemas_in(path)
    )


def schemas_in(path: Path) -> list[dict[str, Any]]:
    """The record schemas of one file: one, or a list of them."""
    found = json.loads(path.read_text("utf-8"))
    return found if isinstance(found, list) else [found]


def closed(schema: Schema, shared: Mapping[str, dict[str, Any]]) -> Schema:
    """The schema with full names and every shared type written out where it is first used. Raises KeyError."""
    return _closed(schema, "", shared, set())


def _closed(schema: Schema, namespace: str, shared: Mapping[str, dict[str, Any]], seen: set[str]) -> Schema:
    if isinstance(schema, list):
        return [_closed(branch, namespace, shared, seen) for branch in schema]
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return schema
        name = schema if "." in schema or not namespace else f"{namespace}.{schema}"
        if name in seen:
            return name
        return _closed(shared[name], "", shared, seen)
    kind = schema["type"]
    if kind == "array":
        return {**schema, "items": _closed(schema["items"], namespace, shared, seen)}
    if kind == "map":
        return {**schema, "values": _closed(schema["values"], namespace, shared, seen)}
    if kind not in ("record", "enum", "fixed", "error"):
        if not isinstance(kind, str) or kind in _PRIMITIVES:
            return schema
        return _closed(kind, namespace, shared, seen)
    name = schema["name"]
    if "." not in name:
        space = schema.get("namespace", namespace)
        name = f"{space}.{name}" if space else name
    seen.add(name)
    out = {"type": kind, "name": name, **{k: v for k, v in schema.items() if k not in ("type", "name", "namespace")}}
    if "fields" in out:
        inner = name.rpartition(".")[0]
        out["fields"] = [{**f, "type": _closed(f["type"], inner, shared, seen)} for f in out["fields"]]
    return out


_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


def stripped(schema: Schema, *, keep_enum_default: bool = True) -> Schema:
    """The schema without logical types and docs, and with ``long`` for ``int``.

    fastavro would apply a writer's logical types: one and the same body would then give a datetime or an int, depending
    on who wrote it. Avro writes int and long alike, so with one name for both a field that was widened from int to long
    is read by builds from before the change too.
    """
    if isinstance(schema, list):
        return [stripped(branch, keep_enum_default=keep_enum_default) for branch in schema]
    if not isinstance(schema, dict):
        return "long" if schema == "int" else schema
    drop = _STRIPPED if keep_enum_default or schema["type"] != "enum" else _STRIPPED | {"default"}
    out = {key: value for key, value in schema.items() if key not in drop}
    if out["type"] in ("int", "long"):
        return "long"
    for key in ("items", "values"):
        if key in out:
            out[key] = stripped(out[key], keep_enum_default=keep_enum_default)
    if "fields" in out:
        out["fields"] = [
            {
                **{key: value for key, value in field.items() if key != "doc"},
                "type": stripped(field["type"], keep_enum_default=keep_enum_default),
            }
            for field in out["fields"]
        ]
    return out


def _has_meta(schema: Mapping[str, Any]) -> bool:
    """Whether the first field is an envelope that places a record: what readers need has its name and its type."""
    first = schema["fields"][0] if schema.get("fields") else {}
    if first.get("name") != "meta" or not isinstance(first.get("type"), dict):
        return False
    fields = {field["name"]: field["type"] for field in first["type"].get("fields", ())}
    if list(fields)[: len(_PLACING)] != _PLACING:
        return False
    return _is_prev_hash(fields["prev_hash"]) and all(
        _plain(fields.get(name)) in types for name, types in _META_TYPES.items()
    )


def _is_prev_hash(schema: Schema) -> bool:
    if not isinstance(schema, list) or len(schema) != 2 or "null" not in schema:
        return False
    other = next((branch for branch in schema if branch != "null"), None)
    return isinstance(other, dict) and other.get("type") == "fixed" and other.get("size") == _HASH_BYTES


def _plain(schema: Schema) -> str:
    """The name of a type, without the logical type that may stand around it."""
    kind = schema.get("type") if isinstance(schema, dict) else schema
    return kind if isinstance(kind, str) else ""


def _schema_error() -> type[Exception]:
    from fastavro.schema import SchemaParseException

    return SchemaParseException

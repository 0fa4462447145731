"""Rows as others get them: the outbox of changed ones, their topic keys, and their Avro form."""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from dalsegno.errors import Failed, SchemaUnknown
from dalsegno.log.codec import encode, frame
from dalsegno.log.schema_set import SchemaSet, WriterSchema
from dalsegno.projections.base import Projection, RowId, values_of
from dalsegno.state.keys import OUTBOX, TOTAL, outbox_row_key, split_session_row, split_total, take_text, topic_key
from dalsegno.state.kv import STATE, KeyReader, KeyValue, scan_prefix
from dalsegno.state.tables import ProjectionTables, TableSpec


class OutboxItem(NamedTuple):
    """A public row that changed, or vanished, and is not emitted yet. ``token`` changes whenever the row does."""

    projection: str
    key: bytes
    token: bytes


def pending(kv: KeyReader, limit: int, after: OutboxItem | None = None) -> list[OutboxItem]:
    """The next items in key order, at most ``limit``."""
    items: list[OutboxItem] = []
    start = OUTBOX if after is None else after.key + b"\x00"
    for key, token in kv.scan(STATE, start, OUTBOX[:-1] + bytes((OUTBOX[-1] + 1,))):
        items.append(OutboxItem(take_text(key, 1)[0], key, token))
        if len(items) >= limit:
            break
    return items[:limit]


def clear(kv: KeyValue, items: Sequence[OutboxItem]) -> int:
    """Forget those whose token is unchanged; returns how many."""
    batch, cleared = kv.batch(), 0
    for item, token in zip(items, kv.multi_get(STATE, [item.key for item in items]), strict=True):
        if token == item.token:
            batch.delete(STATE, item.key)
            cleared += 1
    if cleared:
        kv.write(batch)
    return cleared


class RowForms:
    """How the rows of these projections look in their topics."""

    def __init__(self, tables: Iterable[ProjectionTables], schemas: SchemaSet) -> None:
        self._specs: dict[str, TableSpec] = {}
        self._writers: dict[str, WriterSchema] = {}
        for each in tables:
            if each.projection.public:
                self._specs[each.name] = each.totals or each.rows
                self._writers[each.name] = row_schema(each.projection, schemas)

    def writers(self) -> list[WriterSchema]:
        """The schemas that the topics' readers need."""
        return list(self._writers.values())

    def topic_key(self, row_key: bytes) -> bytes:
        """``["session", id...]`` of a row, ``[partition, ...]`` of a sum, as canonical JSON."""
        return topic_key(row_id(row_key))

    def value(self, projection: str, row: Any) -> bytes:
        """A row as framed Avro."""
        writer = self._writers[projection]
        return frame(writer, encode(writer, values_of(row)))

    def current(self, kv: KeyReader, item: OutboxItem) -> tuple[bytes, bytes | None]:
        """Topic key and value as they are now; value None where the row is gone."""
        key = outbox_row_key(item.key)
        raw = kv.get(STATE, key)
        spec = self._specs.get(item.projection)
        if raw is None or spec is None:
            return self.topic_key(key), None
        return self.topic_key(key), self.value(item.projection, spec.read(key, raw))

    def public_rows(self, kv: KeyReader, projection: str) -> Iterable[tuple[bytes, Any]]:
        """(row key, row) of every public row, in the order of the row keys."""
        spec = self._specs[projection]
        for key, raw in scan_prefix(kv, STATE, spec.prefix):
            yield key, spec.read(key, raw)


def row_id(row_key: bytes) -> RowId:
    """The parts of a row's key as its topic knows them."""
    if row_key[:1] == TOTAL:
        return split_total(row_key)[1]
    _, session_id, id_ = split_session_row(row_key)
    return (session_id, *id_)


def row_schema(projection: Projection[Any], schemas: SchemaSet) -> WriterSchema:
    """The Avro schema of a projection's public rows: the shipped one, else one made from the row's struct."""
    name = f"dalsegno.row.{projection.name}.v{projection.version}.{projection.row.__name__}"
    try:
        found = schemas.named(name)
    except SchemaUnknown:
        found = None
    if found is not None and found.name == name:
        return found
    return WriterSchema(_avro_record(projection.row, name, set()))


def _avro_record(row: type[Any], name: str, named: set[str]) -> dict[str, Any]:
    hints = get_type_hints(row)
    fields = [
        {"name": field, "type": _avro_type(hints[field], f"{row.__name__}.{field}", field, named)}
        for field in row.__struct_fields__
    ]
    return {"type": "record", "name": name, "fields": fields}


_PLAIN = {int: "long", str: "string", bytes: "bytes", bool: "boolean"}


def _avro_type(hint: Any, where: str, field: str, named: set[str]) -> Any:
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "string"
    if origin in (Union, types.UnionType) and len(args) == 2 and type(None) in args:
        inner = next(arg for arg in args if arg is not type(None))
        return ["null", _avro_type(inner, where, field, named)]
    if origin in (list, tuple):
        return {"type": "array", "items": _avro_type(args[0], where, field, named)}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if hint.__name__ in named:
            return hint.__name__
        named.add(hint.__name__)
        return _avro_record(hint, hint.__name__, named)
    raise Failed(
        f"the row field {where} has the type {hint}",
        wanted="int, str, bytes, bool, a row of them, a list of these, or one of these or None",
        todo="change the row of the projection",
        field=field,
    )

"""A few bytes never cost a reader its stack, its memory or its next record, whatever schema somebody published."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.errors import SchemaIncompatible
from dalsegno.log.codec import event_hash, place
from dalsegno.log.schema_bounds import DEPTH_MAX, EXCESS_MAX
from dalsegno.log.schema_set import SchemaSet, shipped
from dalsegno.model.ids import EventKey, Seq
from dalsegno.model.records import SetAside, Unreadable
from log_samples import meta, toy, writer_of

LEAF = st.sampled_from(["null", "boolean", "long", "double", "string"])
HUGE = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
"""The greatest long there is: as a count, more items than any memory holds."""


def _named(draw: st.DrawFn, kind: str, **rest: Any) -> dict[str, Any]:
    return {"type": kind, "name": f"evil.v1.N{draw(st.integers(0, 2**60))}", **rest}


@st.composite
def types(draw: st.DrawFn, depth: int = 3) -> Any:
    """Any type, those that take no bytes among them."""
    kind = draw(st.sampled_from(["leaf", "fixed", "array", "map", "union", "record"] if depth else ["leaf", "fixed"]))
    if kind == "leaf":
        return draw(LEAF)
    if kind == "fixed":
        return _named(draw, "fixed", size=draw(st.integers(0, 2)))
    if kind == "array":
        return {"type": "array", "items": draw(types(depth - 1))}
    if kind == "map":
        return {"type": "map", "values": draw(types(depth - 1))}
    if kind == "union":
        return ["null", _named(draw, "record", fields=draw(fields(depth - 1)))]
    return _named(draw, "record", fields=draw(fields(depth - 1)))


@st.composite
def fields(draw: st.DrawFn, depth: int) -> list[dict[str, Any]]:
    return [{"name": f"f{n}", "type": draw(types(depth))} for n in range(draw(st.integers(0, 12)))]


def _values(decoded: Any) -> int:
    inside = decoded.values() if isinstance(decoded, dict) else decoded if isinstance(decoded, list) else ()
    return 1 + sum(_values(each) for each in inside)


def _refused(schema: dict[str, Any]) -> str:
    with pytest.raises(SchemaIncompatible) as refused:
        SchemaSet().add(schema)
    return refused.value.found


@given(types(), st.lists(st.binary(max_size=3) | st.just(HUGE), max_size=20))
def test_what_a_schema_may_write_has_a_bound_in_its_bytes(type_: Any, pieces: list[bytes]) -> None:
    body = b"".join(pieces)
    try:
        writer = SchemaSet().add(_with(type_))
    except SchemaIncompatible:
        return
    try:
        decoded = fastavro.schemaless_reader(BytesIO(body), writer.raw, None)
    except Exception:
        return  # a refusal is no cost
    assert _values(decoded) <= (EXCESS_MAX + 3) * (len(body) + 1)


def _with(type_: Any) -> dict[str, Any]:
    return {"type": "record", "name": "evil.v1.Top", "fields": [{"name": "n", "type": type_}]}


@pytest.mark.parametrize(
    "items",
    ["null", {"type": "fixed", "name": "x.F", "size": 0}, {"type": "record", "name": "x.E", "fields": []}],
)
def test_items_without_bytes_are_refused(items: Any) -> None:
    assert "take no bytes" in _refused(_with({"type": "array", "items": items}))


def test_many_values_without_bytes_are_refused() -> None:
    nulls = [{"name": f"n{n}", "type": "null"} for n in range(EXCESS_MAX)]
    record = {"type": "record", "name": "x.Nulls", "fields": [{"name": "b", "type": "boolean"}, *nulls]}
    assert "take no bytes" in _refused(_with({"type": "array", "items": record}))
    record["fields"].pop()  # type: ignore[attr-defined]
    SchemaSet().add(_with({"type": "array", "items": record}))


@pytest.mark.parametrize(
    "around",
    [
        lambda n: n,
        lambda n: ["null", n],
        lambda n: {"type": "array", "items": n},
        lambda n: {"type": "map", "values": ["null", {"type": "array", "items": n}]},
    ],
)
def test_a_type_within_itself_is_refused(around: Any) -> None:
    node = {"type": "record", "name": "x.Node", "fields": [{"name": "next", "type": around("x.Node")}]}
    assert "within itself" in _refused(_with(node))


def test_types_deep_within_each_other_are_refused() -> None:
    deep: Any = "string"
    for _ in range(DEPTH_MAX + 1):
        deep = {"type": "array", "items": deep}
    assert "deep within" in _refused(_with(deep))


def test_what_a_refused_schema_wrote_is_held_and_costs_nothing() -> None:
    """Its bytes would nest a million records, or fill the memory; nobody decodes them."""
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    schemas = SchemaSet.load()
    schema = toy(1, {"name": "n", "type": node})
    _refused(schema)
    value = b"\xc3\x01" + bytes(8) + b"\x02" * 1_000_000
    key = EventKey("s-1", Seq(2), bytes(32)).encode()
    assert place(schemas, key, value, 0, 1) == Unreadable(EventKey("s-1", Seq(2), bytes(32)), "UNKNOWN_SCHEMA")


ODD_TYPES: dict[str, Any] = {
    "session_id": "bytes",
    "seq": "double",
    "epoch": "string",
    "ignorable": "string",
    "prev_hash": ["null", "string"],
}


@pytest.mark.parametrize("field", ODD_TYPES)
def test_an_envelope_of_other_types_is_no_event(field: str) -> None:
    """Nothing behind the door may meet a text where it counts on a number."""
    schema = toy(1, name="Odd")
    schema["namespace"] = "evil.v1"
    for each in schema["fields"][0]["type"]["fields"]:
        if each["name"] == field:
            each["type"] = ODD_TYPES[field]
            each.pop("default", None)
    schemas = SchemaSet.load()
    writer = writer_of(schema)
    assert not writer.is_event
    schemas.add(writer.json)
    odd: dict[str, Any] = {"session_id": b"s", "seq": 2.0, "epoch": "x", "ignorable": "no", "prev_hash": "x" * 32}
    envelope = meta("s", 2, bytes(32), ignorable=True, origin=None, redactions=[]) | {field: odd[field]}
    stream = BytesIO()
    fastavro.schemaless_writer(stream, writer.raw, {"meta": envelope})
    key = EventKey("s", Seq(2), event_hash(writer, stream.getvalue())).encode()
    assert place(schemas, key, writer.prefix + stream.getvalue(), 0, 1) == SetAside("NOT_AN_EVENT")


def test_every_schema_of_this_build_is_within_the_bounds() -> None:
    assert [writer.name for writer in shipped() if writer.name.startswith("dalsegno.event.") != writer.is_event] == []

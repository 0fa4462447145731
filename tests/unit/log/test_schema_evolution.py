"""Versions of a type: what goes together, what is refused, and what readers of either side see. Test-only types."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.errors import SchemaIncompatible
from dalsegno.log.codec import place
from dalsegno.log.compatibility import avro_problems, pair_problems, problems, require
from dalsegno.log.schema_set import SchemaSet, WriterSchema
from dalsegno.log.schema_topic import require_compatible
from dalsegno.model.records import UNKNOWN_SYMBOL, Event, Placed, Unreadable
from log_samples import PARTITIONS, home, knowing, meta, pack, toy, writer_of

KINDS = {"type": "enum", "name": "Kind", "symbols": ["UNKNOWN", "A", "B", "C"], "default": "UNKNOWN"}
COST = {"name": "cost", "type": "long", "default": 0}
TIME = {"type": "long", "logicalType": "timestamp-micros"}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def versions(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> tuple[WriterSchema, WriterSchema]:
    return writer_of(toy(1, *old)), writer_of(toy(2, *new))


def read(writer: WriterSchema, reader: WriterSchema, **fields: Any) -> Placed:
    """What a build that ships only ``reader`` makes of an event of ``writer``."""
    ignorable = fields.pop("ignorable", False)
    known = SchemaSet()
    known.ship(reader)
    known.add(writer.json)
    key, value = pack(writer, {"meta": meta(ignorable=ignorable), **fields})
    return place(known, key, value, home("s-1"), PARTITIONS)


def seen(writer: WriterSchema, reader: WriterSchema, **fields: Any) -> dict[str, Any]:
    event = read(writer, reader, **fields)
    assert isinstance(event, Event)
    assert (event.type, event.known) == ("Toy", True)
    return {name: value for name, value in event.body.items() if name != "meta"}


# --- what may change --------------------------------------------------------------------------------------------------


def test_a_field_may_be_added_with_a_default() -> None:
    old, new = versions([field("a", "string")], [field("a", "string"), field("b", ["null", "long"], default=None)])
    assert problems([old, new]) == []
    assert seen(old, new, a="x") == {"a": "x", "b": None}
    assert seen(new, old, a="x", b=7) == {"a": "x"}


def test_the_hash_is_of_the_stored_bytes_whatever_version_reads_them() -> None:
    old, new = versions([field("a", "string")], [field("a", "string"), COST])
    newer, own = read(old, new, a="x"), read(old, old, a="x")
    assert isinstance(newer, Event)
    assert isinstance(own, Event)
    assert newer.hash == own.hash
    assert newer.body != own.body


def test_a_whole_number_may_be_widened() -> None:
    old, new = versions([field("n", "int")], [field("n", "long")])
    assert problems([old, new]) == []
    assert seen(old, new, n=7) == {"n": 7}
    assert seen(new, old, n=2**40) == {"n": 2**40}, "an older build reads what a newer one wrote, uncut"


def test_symbols_may_be_added_and_moved() -> None:
    # case C28
    newer = {**KINDS, "symbols": ["UNKNOWN", "C", "NEW", "A", "B"]}
    old, new = versions([field("kind", KINDS)], [field("kind", newer)])
    assert problems([old, new]) == []
    for symbol in ("A", "B", "C", "UNKNOWN"):
        assert seen(new, old, kind=symbol) == {"kind": symbol}
        assert seen(old, new, kind=symbol) == {"kind": symbol}
    assert isinstance(read(new, old, kind="NEW"), Unreadable)
    assert read(new, old, kind="NEW").reason == UNKNOWN_SYMBOL  # type: ignore[union-attr]
    assert seen(new, old, kind="NEW", ignorable=True) == {"kind": "UNKNOWN"}
    assert seen(new, new, kind="NEW") == {"kind": "NEW"}


@pytest.mark.parametrize(
    ("kind", "value"),
    [(["null", "dalsegno.event.v1.Kind"], "NEW"), ({"type": "array", "items": "dalsegno.event.v1.Kind"}, ["A", "NEW"])],
    ids=["nullable", "array"],
)
def test_an_unknown_symbol_is_found_wherever_it_stands(kind: Any, value: Any) -> None:
    # case C28
    newer = {**KINDS, "symbols": [*KINDS["symbols"], "NEW"], "namespace": "dalsegno.event.v1"}
    older = {**KINDS, "namespace": "dalsegno.event.v1"}
    old, new = versions([field("first", older), field("second", kind)], [field("first", newer), field("second", kind)])
    placed = read(new, old, first="A", second=value)
    assert isinstance(placed, Unreadable)
    assert placed.reason == UNKNOWN_SYMBOL


def test_a_reader_without_an_enum_default_takes_no_other_symbol_either() -> None:
    # case C28
    bare = {key: value for key, value in KINDS.items() if key != "default"}
    old = writer_of(toy(1, field("kind", bare)))
    new = writer_of(toy(2, field("kind", {**KINDS, "symbols": ["NEW", *KINDS["symbols"]]})))
    assert seen(new, old, kind="B") == {"kind": "B"}
    assert isinstance(read(new, old, kind="NEW"), Unreadable)
    assert any("no default symbol" in str(problem) for problem in problems([old, new], avro=False))


def test_a_field_may_be_renamed_with_an_alias() -> None:
    # case C34
    old, new = versions([COST], [field("price", "long", default=0, aliases=["cost"])])
    assert problems([old, new]) == []
    assert seen(old, new, cost=12) == {"price": 12}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, b"\x01\x02"),
        ({"type": "string", "logicalType": "uuid"}, "0198c7a2-7f7a-7f0e-8f5b-4b0b7b9a0a11"),
        ({"type": "int", "logicalType": "date"}, 20_000),
        (TIME, 1_767_225_600_000_000),
    ],
    ids=["decimal", "uuid", "date", "time"],
)
def test_values_are_read_raw_whatever_logical_type_they_have(kind: Any, value: Any) -> None:
    # case C32
    writer = writer_of(toy(1, field("v", kind)))
    assert seen(writer, writer, v=value) == {"v": value}


# --- what may not -----------------------------------------------------------------------------------------------------

_FIXED = {"type": "fixed", "name": "F", "size": 4}
REFUSED = {
    "renamed without alias or default": ([field("cost", "long")], [field("price", "long")]),
    "renamed without alias, with default": ([COST], [field("price", "long", default=0)]),
    "renamed with alias, older builds lack a default": (
        [field("cost", "long")],
        [field("price", "long", aliases=["cost"])],
    ),
    "added without default": ([], [field("a", "string")]),
    "removed": ([COST], []),
    "default dropped": ([COST], [field("cost", "long")]),
    "default changed": ([COST], [field("cost", "long", default=1)]),
    "millis for micros": ([field("t", TIME)], [field("t", {**TIME, "logicalType": "timestamp-millis"})]),
    "logical type dropped": ([field("t", TIME)], [field("t", "long")]),
    "decimal scale": (
        [field("d", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2})],
        [field("d", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3})],
    ),
    "long to double": ([field("n", "long")], [field("n", "double")]),
    "int to float": ([field("n", "int")], [field("n", "float")]),
    "long to int": ([field("n", "long")], [field("n", "int")]),
    "string to bytes": ([field("s", "string")], [field("s", "bytes")]),
    "made nullable": ([field("s", "string")], [field("s", ["null", "string"])]),
    "branch added": (
        [field("s", ["null", "string"], default=None)],
        [field("s", ["null", "string", "long"], default=None)],
    ),
    "symbol removed": ([field("k", KINDS)], [field("k", {**KINDS, "symbols": ["UNKNOWN", "A", "B"]})]),
    "enum default changed": ([field("k", KINDS)], [field("k", {**KINDS, "default": "A"})]),
    "fixed size": ([field("f", _FIXED)], [field("f", {**_FIXED, "size": 5})]),
    "inner type renamed": (
        [field("r", {"type": "record", "name": "R", "fields": []})],
        [field("r", {"type": "record", "name": "S", "fields": []})],
    ),
    "inner type renamed with an alias, which older builds lack": (
        [field("r", {"type": "record", "name": "R", "fields": []})],
        [field("r", {"type": "record", "name": "S", "aliases": ["dalsegno.event.v1.R"], "fields": []})],
    ),
    "inner namespace changed": (
        [field("r", {"type": "record", "name": "R", "namespace": "a.b", "fields": []})],
        [field("r", {"type": "record", "name": "R", "namespace": "a.c", "fields": []})],
    ),
    "inside an array": (
        [field("l", {"type": "array", "items": {"type": "record", "name": "R", "fields": [field("x", "long")]}})],
        [field("l", {"type": "array", "items": {"type": "record", "name": "R", "fields": [field("x", "double")]}})],
    ),
}


@pytest.mark.parametrize("change", REFUSED)
def test_changes_that_lose_or_guess_are_refused(change: str) -> None:
    # case C34, case C35 (long to double)
    old, new = versions(*REFUSED[change])
    with pytest.raises(SchemaIncompatible) as caught:
        require([old, new])
    assert caught.value.data["problems"]
    assert pair_problems(old, new), "our rules find it without Avro's checker"
    with pytest.raises(SchemaIncompatible):
        require_compatible([old], [new])


def test_the_sum_of_two_fit_steps_is_checked_too() -> None:
    one = writer_of(toy(1, field("a", "string")))
    two = writer_of(toy(2, field("a", "string"), COST))
    three = writer_of(toy(3, field("a", "string"), field("cost", "long", default=0), field("b", "string")))
    assert [str(problem) for problem in problems([one, two, three], avro=False)] == [
        f"dalsegno.event.v3.Toy: b: {text}" for text in ["a new field without a default"] * 2
    ]


def test_a_default_must_fit_its_type() -> None:
    # case C34
    wrong = writer_of(toy(1, field("a", ["null", "string"], default=None)))
    wrong.schema["fields"][1]["default"] = "text"  # fits the second branch only
    assert any("default" in str(problem) for problem in problems([wrong], avro=False))
    assert problems([writer_of(toy(1, field("b", "bytes", default="\u00ff")))]) == []


def test_an_old_schema_whose_default_is_of_another_branch_still_reads() -> None:
    # case C34
    old = writer_of(toy(1, field("a", ["null", "string"], default="text"), COST))
    new = writer_of(toy(2, field("a", ["null", "string"], default="text"), COST, field("b", "long", default=1)))
    assert seen(old, new, a="x") == {"a": "x", "cost": 0, "b": 1}


def test_avros_own_checker_is_asked_both_ways() -> None:
    old, new = versions([], [field("a", "string")])
    assert {str(problem).rpartition("v1: ")[2][:5] for problem in avro_problems(old, new)}
    old, new = versions([field("a", "string")], [])
    assert avro_problems(old, new), "an older reader lacks the field"


def test_two_shapes_of_one_unreleased_version_are_not_compared() -> None:
    require_compatible([writer_of(toy(1, COST))], [writer_of(toy(1, field("price", "long")))])


def test_rows_of_another_version_have_their_own_topic_and_need_not_go_together() -> None:
    """A projection that folds another way may have other columns; within a version nothing is compared either."""
    one, two = (
        writer_of({"type": "record", "name": "R", "namespace": f"dalsegno.row.toy.v{version}", "fields": [only]})
        for version, only in ((1, field("a", "string")), (2, field("b", "long")))
    )
    require_compatible([one], [two])
    assert one.family != two.family
    assert (one.version, two.version) == (1, 2)


def test_of_several_shipped_versions_the_newest_gives_the_shape() -> None:
    known = knowing(toy(2, field("a", "string"), COST), toy(1, field("a", "string")))
    assert known.event("Toy").version == 2
    old = known.by_hash(writer_of(toy(1, field("a", "string"))).schema_hash)
    assert old is not None
    event = place(known, *pack(old, {"meta": meta(), "a": "x"}), home("s-1"), PARTITIONS)
    assert isinstance(event, Event)
    assert event.body["cost"] == 0

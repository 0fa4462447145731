"""Round trips of every type, with records drawn from the schemas themselves."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from avro_strategies import records
from dalsegno.log.codec import (
    check,
    decode_body,
    decode_record,
    encode,
    encode_record,
    event_hash,
    frame,
    place,
    read_meta,
)
from dalsegno.log.schema_set import SchemaSet, WriterSchema
from dalsegno.model.ids import EventKey, Seq
from dalsegno.model.records import Event
from log_samples import PARTITIONS, home, pack

SCHEMAS = SchemaSet.load()
EVENTS = sorted((writer for writer in SCHEMAS if writer.is_event), key=lambda writer: writer.name)
OTHERS = sorted((writer for writer in SCHEMAS if not writer.is_event), key=lambda writer: writer.name)


def per_type() -> settings:
    """A share of the profile's examples for each of the many types."""
    share = max(15, settings.default.max_examples // 20)  # type: ignore[union-attr]
    return settings(max_examples=share, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("writer", EVENTS, ids=lambda writer: writer.type)
def test_every_event_type_comes_back_as_it_was_written(writer: WriterSchema) -> None:
    @per_type()
    @given(records(writer.schema))
    def round_trip(record: dict) -> None:  # type: ignore[type-arg]
        key, value = pack(writer, record)
        placed = place(SCHEMAS, key, value, home(record["meta"]["session_id"]), PARTITIONS)
        assert isinstance(placed, Event)
        assert placed.body == record
        assert placed.meta is placed.body["meta"]
        assert (placed.type, placed.known) == (writer.type, True)
        assert placed.key.encode() == key
        assert read_meta(SCHEMAS, value) == record["meta"]
        assert decode_body(SCHEMAS, writer.schema_hash, placed.key, value[10:]) == placed
        assert check(writer, record) == record, "a checked record passes unchanged"
        assert encode(writer, placed.body) == value[10:], "the same record gives the same bytes"  # type: ignore[arg-type]

    round_trip()


@pytest.mark.parametrize("writer", OTHERS, ids=lambda writer: writer.name)
def test_every_other_record_comes_back_as_it_was_written(writer: WriterSchema) -> None:
    @per_type()
    @given(records(writer.schema))
    def round_trip(record: dict) -> None:  # type: ignore[type-arg]
        assert decode_record(encode_record(writer.name, record)) == (writer.name.rpartition(".")[2], record)

    round_trip()


@given(key=st.none() | st.binary(max_size=90), value=st.none() | st.binary(max_size=60), partition=st.integers(0, 15))
def test_placing_never_raises_on_foreign_bytes(key: bytes | None, value: bytes | None, partition: int) -> None:
    assert not isinstance(place(SCHEMAS, key, value, partition, PARTITIONS), Event)


@given(st.sampled_from(EVENTS), st.binary(max_size=200))
def test_a_body_of_any_bytes_under_a_true_hash_never_raises(writer: WriterSchema, body: bytes) -> None:
    key = EventKey("s-1", Seq(1), event_hash(writer, body))
    placed = place(SCHEMAS, key.encode(), frame(writer, body), home("s-1"), PARTITIONS)
    assert not isinstance(placed, Event) or placed.meta["session_id"] == "s-1"

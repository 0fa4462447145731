"""Whatever somebody wrote, its report fits into a message and can be sent: one that could not would stop them all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dalsegno.log.codec import decode_record, place
from dalsegno.log.record import LogRecord
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.ids import SEQ_MAX, Offset, parse_key
from dalsegno.model.records import SetAside
from dalsegno.streams.quarantine import KEY_BYTES, REPORTS_KEPT, VALUE_BYTES, Report, reports_of

SCHEMAS = SchemaSet.load()
HASH = b"a" * 64
SIZES = st.sampled_from([0, 1, 200, KEY_BYTES, KEY_BYTES + 1, 1_000_000])
KEYS = (
    st.none()
    | st.binary(max_size=40)
    | st.builds(lambda size: b"\xff" * size, SIZES)
    | st.builds(lambda s, n: s + b":%d:" % n + HASH, st.binary(max_size=250), st.integers(0, 10**19 - 1))
)
VALUES = st.none() | st.builds(lambda size: b"v" * size, SIZES)


@given(KEYS, VALUES)
def test_every_record_can_be_reported(key: bytes | None, value: bytes | None) -> None:
    named, report = Report.of(LogRecord(Offset(2**62), key, value, 0, 0), "NO_FRAME").encode(15, "w" * 32)
    assert len(named) + len(report) < 2 * (KEY_BYTES + VALUE_BYTES)
    kind, told = decode_record(report)
    assert kind == "Quarantined"
    assert told["value_size"] == (None if value is None else len(value))


@given(st.integers(SEQ_MAX - 2, 10**19 - 1))
def test_a_seq_that_no_event_can_have_is_no_key_of_ours(seq: int) -> None:
    key = b"s:%d:" % seq + HASH
    assert (parse_key(key) is None) == (seq > SEQ_MAX)
    if seq > SEQ_MAX:
        assert place(SCHEMAS, key, None, 0, 1) == SetAside("BAD_KEY")


def test_of_a_flood_the_newest_are_reported_and_their_bytes_are_let_go() -> None:
    records = [LogRecord(Offset(n), b"k", bytes(VALUE_BYTES + 1), 0, 0) for n in range(REPORTS_KEPT + 5)]
    reports = reports_of(records, {record.offset: "BAD_KEY" for record in records})
    assert [report.offset for report in reports] == list(range(5, REPORTS_KEPT + 5))
    assert max(len(report.value or b"") for report in reports) == VALUE_BYTES

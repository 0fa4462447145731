"""Keys: no two names share one, and all of them come apart again."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from dalsegno.state import keys

TEXTS = st.text(st.characters(codec="utf-8"), max_size=300)
PARTS = st.lists(st.one_of(TEXTS, st.integers(-(2**63), 2**63 - 1)), max_size=4).map(tuple)


@given(TEXTS, TEXTS, PARTS)
def test_row_keys_come_apart(projection: str, session_id: str, row_id: tuple[str | int, ...]) -> None:
    key = keys.session_row_key(keys.ROW, projection, session_id, row_id)
    assert keys.split_session_row(key) == (projection, session_id, row_id)
    outbox = keys.outbox_key(key)
    assert outbox.startswith(keys.family_prefix(keys.OUTBOX, projection))
    assert keys.outbox_row_key(outbox) == key


@given(TEXTS, st.integers(0, 2**64 - 1), st.binary(min_size=32, max_size=32))
def test_index_and_waiting_keys_come_apart(session_id: str, seq: int, hash_: bytes) -> None:
    key = keys.index_key(session_id, seq, hash_)
    prefix = keys.index_prefix(session_id)
    assert key.startswith(prefix)
    assert keys.split_index(key, len(prefix)) == (seq, hash_)
    assert keys.split_waiting(keys.waiting_key(session_id, seq, hash_)) == (session_id, seq, hash_)


@given(TEXTS, TEXTS)
def test_no_session_is_the_prefix_of_another(one: str, other: str) -> None:
    # case C64
    if one != other:
        assert not keys.index_prefix(other).startswith(keys.index_prefix(one))


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_numbers_sort_as_numbers(one: int, other: int) -> None:
    assert (one < other) == (keys.id_part((one,)) < keys.id_part((other,)))


def test_very_long_text() -> None:
    for size in (0xFFFE, 0xFFFF, 0x10000, 200_000):
        key = keys.session_row_key(keys.ROW, "p", "x" * size, ("y" * size, 1))
        assert keys.split_session_row(key) == ("p", "x" * size, ("y" * size, 1))


@given(PARTS)
def test_topic_keys_are_what_the_standard_encoder_writes(parts: tuple[str | int, ...]) -> None:
    written = json.dumps(list(parts), ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    assert keys.topic_key(parts) == written


def test_topic_keys_are_canonical_json() -> None:
    assert keys.topic_key(("s-1", "plan.1/t2/c0")) == b'["s-1","plan.1/t2/c0"]'
    assert keys.topic_key((3, "2026-01-01", "ü\n\x01")) == '[3,"2026-01-01","ü\\n\\u0001"]'.encode()

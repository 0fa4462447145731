"""Session ids that are refused, keys, and the partition that Java's default partitioner would choose too."""

from __future__ import annotations

import pytest

from dalsegno.errors import InvalidSessionId
from dalsegno.model.ids import (
    SEQ_MAX,
    SESSION_ID_MAX_BYTES,
    EventKey,
    Seq,
    check_session_id,
    murmur2,
    parse_key,
    partition_of,
    root_of,
)


@pytest.mark.parametrize("good", ["s", "a b", "a:1", "ü" * 100, "x" * SESSION_ID_MAX_BYTES, "\x80", "!"])
def test_ids_that_a_caller_may_choose(good: str) -> None:
    assert check_session_id(good) == good
    assert check_session_id(f"{good[:90]}~f", fork=True) == f"{good[:90]}~f"


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("", "an empty id"),
        ("x" * (SESSION_ID_MAX_BYTES + 1), "201 bytes"),
        ("ü" * 101, "202 bytes"),
        ("a\x00", "a control character"),
        ("a\x1f", "a control character"),
        ("a\x7f", "a control character"),
        ("\ud800", "a lone surrogate"),
        ("a~b", "'~', which marks forks"),
    ],
)
def test_ids_that_are_refused(bad: str, problem: str) -> None:
    with pytest.raises(InvalidSessionId) as caught:
        check_session_id(bad)
    assert caught.value.found.endswith(f"holds {problem}")


@pytest.mark.parametrize("bad", ["a", "~", "~f"])
def test_a_forks_id_names_its_root(bad: str) -> None:
    with pytest.raises(InvalidSessionId, match="no '<root>~<suffix>'"):
        check_session_id(bad, fork=True)


def test_the_root_ends_at_the_first_mark() -> None:
    assert (root_of("a"), root_of("a~b"), root_of("a~b~c"), root_of("~b")) == ("a", "a", "a", "")


@pytest.mark.parametrize(
    ("key", "hash_"),
    [("21", -973932308), ("foobar", -790332482), ("abc", 479470107), ("a-little-bit-long-string", -985981536)],
)
def test_the_hash_is_that_of_kafkas_java_client(key: str, hash_: int) -> None:
    assert murmur2(key.encode()) == hash_ % 2**32
    for partitions in (1, 3, 16):
        assert partition_of(key, partitions) == (hash_ & 0x7FFFFFFF) % partitions
        assert partition_of(f"{key}~fork", partitions) == partition_of(key, partitions)


def test_a_key_is_read_from_the_right() -> None:
    key = EventKey("a:1", Seq(0), bytes(32))
    assert parse_key(key.encode()) == key
    longest = EventKey("x" * SESSION_ID_MAX_BYTES, Seq(9), b"\xff" * 32)
    assert parse_key(longest.encode()) == longest
    for bad in (
        b"",
        b":1:" + b"0" * 64,
        b"a:01:" + b"0" * 64,
        b"a:1:" + b"0" * 63,
        b"a:1:" + b"A" * 64,
        b"\xff:1:" + b"0" * 64,
    ):
        assert parse_key(bad) is None
    assert parse_key(b"y" + longest.encode()) is None
    assert SEQ_MAX == 9_223_372_036_854_775_807, "an Avro long"
    last = EventKey("a", Seq(SEQ_MAX), bytes(32))
    assert parse_key(last.encode()) == last
    assert parse_key(last._replace(seq=Seq(SEQ_MAX + 1)).encode()) is None

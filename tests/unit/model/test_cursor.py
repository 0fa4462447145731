"""A cursor is accepted by the log it was made from, and by no other."""

from __future__ import annotations

import pytest

from dalsegno.errors import LogHole, OtherHistory
from dalsegno.model.cursor import (
    Commit,
    Cursor,
    FoundRecord,
    LogFacts,
    check,
    format_metadata,
    parse_base,
    parse_metadata,
    read_commit,
)

KEY = b"s-1:7:" + b"ab" * 32
CURSOR = Cursor(
    next_offset=600,
    cluster_id="c1",
    topic_id="t1",
    partition=2,
    partitions=4,
    leader_epoch=3,
    last_offset=599,
    last_key=KEY,
)
FACTS = LogFacts("c1", "t1", 2, 4, low=0, high=900, last=FoundRecord(KEY, 3))


def test_the_log_it_was_made_from_is_accepted() -> None:
    check(CURSOR, FACTS)
    check(CURSOR, FACTS._replace(high=600))


def test_a_last_record_that_is_merely_missing_is_no_difference() -> None:
    check(CURSOR, FACTS._replace(last=None))


def test_a_client_that_does_not_tell_the_leader_epoch_is_accepted() -> None:
    check(CURSOR, FACTS._replace(last=FoundRecord(KEY)))


# case C14: another cluster, a topic made again, an end below the cursor, other records under the same numbers;
# case C16: another number of partitions
@pytest.mark.parametrize(
    ("facts", "difference"),
    [
        (FACTS._replace(cluster_id="c2"), "cluster_id"),
        (FACTS._replace(topic_id="t2"), "topic_id"),
        (FACTS._replace(partition=1), "partition"),
        (FACTS._replace(partitions=5), "partitions"),
        (FACTS._replace(high=599), "end"),
        (FACTS._replace(last=FoundRecord(b"s-2:7:" + b"cd" * 32, 3)), "last_key"),
        (FACTS._replace(last=FoundRecord(None, 3)), "last_key"),
        (FACTS._replace(last=FoundRecord(KEY, 4)), "leader_epoch"),
    ],
)
def test_another_history_is_named(facts: LogFacts, difference: str) -> None:
    with pytest.raises(OtherHistory) as caught:
        check(CURSOR, facts)
    assert caught.value.data["difference"] == difference
    assert caught.value.data["state"] != caught.value.data["log"]


def test_a_hole_names_cursor_log_start_and_size() -> None:
    # case C13
    with pytest.raises(LogHole) as caught:
        check(CURSOR, FACTS._replace(low=750))
    assert caught.value.data == {"partition": 2, "cursor": 600, "log_start": 750, "hole": 150}
    assert "--accept-hole 2=600..750" in str(caught.value)


def test_a_log_that_starts_at_the_cursor_has_no_hole() -> None:
    check(CURSOR, FACTS._replace(low=600))


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        "",
        "ds1",
        "ds1:g",
        "ds1::b",
        "ds1:g:",
        "ds2:g:b",
        "ds1:g:b:",
        "ds1:g:b:C",
        "ds1:g:b:0x",
        "ds1:g:b:c:d",
        "ds1:g:b:" + "0" * 65,
        "ds2:g:b:c",
        "ds1:g.h:b",
        "ds1:g:b@",
        "ds1:g:b@-1",
        "ds1:g:b\n",
    ],
)
def test_metadata_of_others_is_not_ours(metadata: str | None) -> None:
    assert parse_metadata(metadata) is None
    assert read_commit(3, metadata) == Commit(3)


def test_no_commit_is_a_negative_offset() -> None:
    assert read_commit(-1001, None) is None


@pytest.mark.parametrize(("generation", "base"), [("a:b", "-"), ("", "-"), ("g", ""), ("g", "x y"), ("g" * 65, "-")])
def test_names_that_could_not_be_read_back_are_refused(generation: str, base: str) -> None:
    with pytest.raises(ValueError, match="not a generation"):
        format_metadata(generation, base)


def test_a_base_says_its_snapshot_and_its_accepted_hole() -> None:
    assert parse_base("-") == (None, None)
    assert parse_base("abc@17") == ("abc", 17)
    with pytest.raises(ValueError, match="not a base"):
        parse_base("a b")


def test_a_commit_names_the_copy_that_has_emitted() -> None:
    metadata = format_metadata("g", "b@3", "0af1")
    assert metadata == "ds1:g:b@3:0af1"
    assert parse_metadata(metadata) == ("g", "b@3")
    assert read_commit(7, metadata) == Commit(7, "g", "b@3", "0af1")
    assert read_commit(7, "ds1:g:b@3") == Commit(7, "g", "b@3", None)
    with pytest.raises(ValueError, match="not a generation"):
        format_metadata("g", "b", "not hex")

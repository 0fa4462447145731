"""The catalogue reads back what was written, and says which snapshots belong to another log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dalsegno.log.codec import decode_record, encode_record
from dalsegno.snapshots.catalog import (
    NamedShard,
    NamedSnapshot,
    TopicIdentity,
    named_record,
    parse_catalog,
    pointer_record,
)
from dalsegno.snapshots.take import Origin, Taken, freeze, upload
from snapshot_fakes import PREFIX, FakeFolders, FakeShard, FakeStore

SAME = TopicIdentity("c1", "t1", 4)


@contextmanager
def taken_in(folder: Path) -> Iterator[Taken]:
    store, states = FakeStore(), FakeFolders()
    marks = freeze(FakeShard(100, partition=2).checkpoint, folder / "c", states)
    yield upload(
        folder / "c", marks, store, PREFIX, Origin("p.events", "w", "test"), now=lambda: 1.5, publish=lambda *_: None
    )


@pytest.fixture
def taken(tmp_path: Path) -> Iterator[Taken]:
    with taken_in(tmp_path) as found:
        yield found


def test_a_pointer_and_a_named_snapshot_read_back(taken: Taken) -> None:
    named = NamedSnapshot("n1", 4, False, 7, "me", "why", (NamedShard(2, taken.id, "first", 100),))
    table = {key.encode(): value for key, value in (pointer_record(PREFIX, taken, "why"), named_record(named))}
    catalog = parse_catalog(table)
    pointer = catalog.pointers[taken.id]
    assert pointer.cursor == taken.manifest.cursor.cursor()
    assert pointer.projections == taken.manifest.projections
    assert (pointer.partition, pointer.generation, pointer.base, pointer.reason) == (2, "first", "-", "why")
    assert (pointer.size_bytes, pointer.files, pointer.taken_at) == (taken.manifest.size_bytes, 3, 1_500_000)
    assert catalog.named == {"n1": named}
    assert catalog.unread == 0


def test_what_is_unreadable_or_under_a_foreign_key_is_counted_and_left_out(taken: Taken) -> None:
    key, value = pointer_record(PREFIX, taken, "why")
    request = {
        "request_id": "r", "kind": "DRAIN", "requested_at": 1, "requested_by": "me", "timeout_ms": 1, "reason": "",
    }  # fmt: skip
    table = {
        b"shard:other": value,
        b"torn": value[:-3],
        b"noise": b"xyz",
        b"r": encode_record("ControlRequest", request),
    }
    catalog = parse_catalog(table)
    assert (dict(catalog.pointers), catalog.unread) == ({}, 4)
    assert list(parse_catalog({**table, key.encode(): value}).pointers) == [taken.id]


# case C14 and case C16: another cluster, a topic made again, partitions added
@pytest.mark.parametrize(
    ("identity", "why"),
    [
        (SAME, None),
        (SAME._replace(partitions=5), "of another number of partitions: 4, not 5"),
        (SAME._replace(topic_id="t2"), "of another topic id: t1, not t2"),
        (SAME._replace(cluster_id="c2"), "of another cluster: c1, not c2"),
    ],
)
def test_a_snapshot_of_another_log_is_not_usable(taken: Taken, identity: TopicIdentity, why: str | None) -> None:
    key, value = pointer_record(PREFIX, taken, "why")
    (entry,) = parse_catalog({key.encode(): value}).entries(identity)
    assert (entry.usable, entry.reason or None) == (why is None, why)


def test_a_snapshot_that_was_found_bad_is_not_usable(taken: Taken) -> None:
    key, value = pointer_record(PREFIX, taken, "why")
    catalog = parse_catalog({key.encode(): value})
    (entry,) = catalog.entries(SAME, partition=2, bad={taken.id: "torn"})
    assert (entry.usable, entry.reason, entry.next_offset) == (False, "torn", 100)
    assert catalog.entries(SAME, partition=1) == []


@pytest.mark.parametrize(
    "change",
    [
        {"shard_snapshot_id": "../../../etc"},
        {"shard_snapshot_id": "/etc"},
        {"shard_snapshot_id": "A" * 64},
        {"shard_snapshot_id": ""},
        {"generation": "../g"},
        {"generation": ""},
        {"base": "a/b"},
        {"base": "-@x"},
    ],
)
def test_a_pointer_with_names_that_no_worker_gives_is_left_out(taken: Taken, change: dict[str, str]) -> None:
    """Ids become parts of paths here: one that leads elsewhere must not be followed, and not be taken for damage."""
    _, record = decode_record(pointer_record(PREFIX, taken, "why")[1])
    hostile = {**record, **change}
    key = f"shard:{hostile['shard_snapshot_id']}".encode()
    catalog = parse_catalog({key: encode_record("ShardSnapshot", hostile)})
    assert (dict(catalog.pointers), catalog.unread) == ({}, 1)

"""The ladder at its real size: what it costs, what is on it, what an answer from it reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dalsegno.errors import NotFound, SnapshotIncompatible, StoreDamaged
from dalsegno.projections.base import Projection
from dalsegno.projections.registry import built_in
from dalsegno.projections.sessions import Sessions
from dalsegno.projections.tools import Tools
from dalsegno.state.at import RungReader
from dalsegno.state.keys import HEAD, INDEX, LADDER, PRIVATE, ROW, head_key, session_row_key
from dalsegno.state.kv import JOURNAL, STATE, KeyReader, scan_prefix
from dalsegno.state.ladder import (
    NO_WINDOW,
    WINDOW_EVENTS,
    image_key,
    mark_of,
    marked_window,
    read_rung,
    split_image,
    window_of,
)
from dalsegno.state.reads import ShardReads
from dalsegno.state.shard import Shard
from dalsegno.testing.bench_flat import long_session
from dalsegno.testing.builder import SessionBuilder, Written, shipped_schemas
from shard_lab import Lab, apply, folded, reads


def shard_of(records: Sequence[Written], projections: Sequence[Projection[Any]] | None = None) -> Shard:
    return folded(records, projections=projections, window_events=WINDOW_EVENTS)


def read(kv: KeyReader) -> ShardReads:
    return ShardReads(kv, shipped_schemas(), built_in())


def ladder(shard: Shard) -> dict[bytes, bytes]:
    return dict(scan_prefix(shard.kv, STATE, LADDER))


def test_windows_have_256_events_and_end_with_their_rung() -> None:
    places = {0: 0, 1: 0, 256: 0, 257: 1, 512: 1, 513: 2}
    assert {seq: window_of(seq, WINDOW_EVENTS) for seq in places} == places
    assert marked_window(mark_of(70_000) + b"row") == 70_000
    assert split_image(image_key(b"key", 7)) == (b"key", 7)
    with pytest.raises(ValueError, match="window_events"):
        Lab().open(window_events=1)


def test_a_session_that_passes_no_rung_has_no_ladder() -> None:
    shard = shard_of(long_session(WINDOW_EVENTS))
    assert ladder(shard) == {}
    key = session_row_key(ROW, "sessions", "long")
    assert marked_window(shard.kv.get(STATE, key) or b"") == 0


def test_the_first_event_behind_a_rung_leaves_the_rows_it_changes_and_the_lifecycle() -> None:
    records = long_session(3 * WINDOW_EVENTS + 1)
    (rung, behind) = (record.event for record in records[-2:])
    assert rung is not None
    assert behind is not None
    assert behind.type == "ToolCallStarted", "it changes the session's row, the call's, and the operation"
    projections = [Sessions(), Tools()]
    shard = Lab().open(projections, window_events=WINDOW_EVENTS)
    apply(shard, records[:-1])
    before = ladder(shard)
    apply(shard, records[-1:])
    found = {split_image(key): raw for key, raw in ladder(shard).items() if key not in before}
    call = behind.body["tool_call_id"]
    assert set(found) == {
        (head_key("long"), 2),
        (session_row_key(ROW, "sessions", "long"), 3),
        (session_row_key(ROW, "tools", "long", (call,)), 3),
        (session_row_key(PRIVATE, "lifecycle", "long", ("TOOL", call)), 3),
    }
    assert {marked_window(raw) for (key, _), raw in found.items() if key[:1] != HEAD} == {2}
    assert read_rung(found[head_key("long"), 2]).hash == rung.hash
    assert ladder(shard_of(records, projections)) == ladder(shard), "whether or not the rung was the end of a batch"
    assert shard.digests() == shard.recompute_digests()


def test_an_image_is_written_once_and_only_by_the_first_change_in_a_window() -> None:
    records = long_session(3 * WINDOW_EVENTS + 1)
    shard = shard_of(records)
    windows = [
        window for key, window in map(split_image, ladder(shard)) if key == session_row_key(ROW, "sessions", "long")
    ]
    assert windows == [1, 2, 3]
    lab = Lab()
    one_by_one = lab.open(window_events=WINDOW_EVENTS)
    for record in records:
        apply(one_by_one, [record])
    assert ladder(one_by_one) == ladder(shard)


# --- reading ----------------------------------------------------------------------------------------------------------


class Counting:
    """A store that counts what is read of it."""

    def __init__(self, kv: KeyReader) -> None:
        self._kv = kv
        self.got: list[bytes] = []
        self.scanned: list[bytes] = []
        self.records = 0

    def get(self, family: str, key: bytes) -> bytes | None:
        self.records += family == JOURNAL
        self.got.append(key)
        return self._kv.get(family, key)

    def multi_get(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(family, key) for key in keys]

    def scan(
        self, family: str, start: bytes = b"", end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        for row in self._kv.scan(family, start, end, reverse=reverse):
            self.scanned.append(row[0])
            yield row

    def close(self) -> None:
        self._kv.close()


@pytest.mark.parametrize("events", [5_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_any_seq_costs_a_window_whatever_the_session_s_length(events: int) -> None:
    shard = shard_of(long_session(events))
    for seq in (1, 255, 256, 257, events // 2, events - 300, events - 1, events):
        kv = Counting(shard.kv)
        found = read(kv).at("long", seq)
        assert found.row("sessions").last_seq == seq
        rung = (seq - 1) // WINDOW_EVENTS * WINDOW_EVENTS
        assert found.folded == kv.records == seq - rung <= WINDOW_EVENTS
        assert sum(key[:1] == INDEX for key in kv.got) <= WINDOW_EVENTS
        assert not any(key[:1] == INDEX for key in kv.scanned)
        assert len(kv.got) <= 8 * WINDOW_EVENTS
        # Of a row that every window changes there is an image a window; they stand together.
        assert len(kv.scanned) <= 4 * WINDOW_EVENTS + 2 * events // WINDOW_EVENTS


def test_what_was_open_is_read_only_where_something_was() -> None:
    shard = shard_of(long_session(2_000))
    kv = Counting(shard.kv)
    whole_round = 2 + 6 * 100
    found = read(kv).at("long", whole_round)
    before = len(kv.scanned)
    assert found.open() == []
    assert len(kv.scanned) == before
    assert read(shard.kv).at("long", whole_round - 1).open() == [("TOOL", "i100100/c0")]
    assert read(shard.kv).at("long", whole_round + 1).open() == [("INFERENCE", "i100101")]


def test_a_seq_that_the_path_does_not_have_is_refused() -> None:
    builder = SessionBuilder("s-1").begin()
    shard = folded([*builder.records[:5], *builder.records[6:]])
    for seq in (0, -1, 6):
        with pytest.raises(NotFound, match="ends at 5") as caught:
            read(shard.kv).at("s-1", seq)
        assert "held at 6: GAP" in caught.value.todo
    with pytest.raises(NotFound, match="no session s-2"):
        read(shard.kv).at("s-2", 1)
    with pytest.raises(NotFound, match="'nothing'"):
        read(shard.kv).at("s-1", 1).row("nothing")


def test_a_ladder_that_lacks_a_rung_is_damaged() -> None:
    records = long_session(600)
    for key, what in (
        (image_key(head_key("long"), 0), "lacks the rung of window 0"),
        (INDEX + head_key("long")[1:] + (300).to_bytes(8, "big") + records[299].event.hash, "lacks seq 300"),  # type: ignore[union-attr]
    ):
        shard = shard_of(records)
        batch = shard.kv.batch()
        batch.delete(STATE, key)
        shard.kv.write(batch)
        with pytest.raises(StoreDamaged, match=what):
            read(shard.kv).at("long", 300)


@pytest.mark.parametrize("raw", [b"", b"\xc1", b"\x92\xc0\xc4\x00", b"\x92\x90\xc4\x02ab"])
def test_a_rung_of_another_shape_or_history_is_damaged(raw: bytes) -> None:
    shard = shard_of(long_session(300))
    batch = shard.kv.batch()
    batch.put(STATE, image_key(head_key("long"), 0), raw)
    shard.kv.write(batch)
    with pytest.raises(StoreDamaged, match=r"another shape|does not pass its rung"):
        read(shard.kv).at("long", 300)


def test_rows_of_another_version_are_left_out_and_another_lifecycle_is_refused() -> None:
    class Newer(type(built_in()[0])):  # type: ignore[misc]
        version = 99

    shard = shard_of(long_session(300))
    newer = [Newer() if each.name == Newer.name else each for each in built_in()]
    found = ShardReads(shard.kv, shipped_schemas(), newer).at("long", 300)
    with pytest.raises(NotFound, match=f"'{Newer.name}'"):
        found.rows(Newer.name)
    assert found.rows("tools")
    shard._work.position.digests["lifecycle"].version = -1
    shard._work.write()
    with pytest.raises(SnapshotIncompatible, match="lifecycle"):
        read(shard.kv).at("long", 300)


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_a_rung_is_read_as_a_whole_store(where: str, tmp_path: Path) -> None:
    records = long_session(600)
    shard = Lab(tmp_path / "shard" if where == "disk" else None).open(window_events=WINDOW_EVENTS)
    apply(shard, records)
    then = RungReader(shard.kv, 0)
    key = session_row_key(ROW, "sessions", "long")
    assert then.multi_get(STATE, [key, b"nothing"]) == [ladder(shard)[image_key(key, 1)], None]
    tools = session_row_key(ROW, "tools", "long")
    forward, backward = (list(then.scan(STATE, tools, tools + b"\xff", reverse=r)) for r in (False, True))
    assert forward == backward[::-1]
    assert 0 < len(forward) < len(list(scan_prefix(shard.kv, STATE, tools)))
    assert all(marked_window(raw) == 0 for _, raw in forward)
    assert list(then.scan(JOURNAL)) == list(shard.kv.scan(JOURNAL))
    assert then.get(STATE, head_key("long")) == shard.kv.get(STATE, head_key("long"))
    assert list(RungReader(shard.kv, NO_WINDOW).scan(STATE, tools, tools + b"\xff")) == []
    found, plain = read(shard.kv).at("long", 300), reads(folded(records[:300]))
    assert found.rows("tools") == list(plain.rows("tools", "long"))
    assert found.row("sessions") == plain.row("sessions", "long")
    shard.close()


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_rows_that_a_new_version_dropped_take_their_ladder_along(where: str, tmp_path: Path) -> None:
    records = long_session(600)
    lab = Lab(tmp_path / "shard" if where == "disk" else None)
    shard = lab.open(window_events=WINDOW_EVENTS)
    apply(shard, records)
    shard.drop("tools")
    assert not any(b"tools" in key for key in ladder(shard))
    shard.close()
    shard = lab.open(window_events=WINDOW_EVENTS)
    assert ladder(shard) == ladder(shard_of(records))
    assert shard.digests() == shard_of(records).digests() == shard.recompute_digests()
    shard.refold(["lifecycle"])
    assert ladder(shard) == ladder(shard_of(records))
    shard.close()


def test_equal_rows_are_neither_written_nor_announced_again() -> None:
    shard = shard_of(long_session(600))
    shard.clear_outbox(shard.outbox(10_000))
    before = dict(shard.kv.scan(STATE))
    shard.refold(["usage"])
    assert {item.projection for item in shard.outbox(10_000)} == {"usage"}
    after = dict(shard.kv.scan(STATE))
    assert {key for key in before if after.get(key) != before[key]} == {b"mposition"}

"""verify: what differs is named, what is equal passes, what could not be compared is said."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno.errors import LogHole, OtherHistory
from dalsegno.projections.registry import built_in
from dalsegno.projections.sessions import Sessions
from dalsegno.projections.tools import Tools
from dalsegno.readers.compare import Difference, index_differences, journal_differences, row_differences
from dalsegno.readers.verify import Report
from dalsegno.state.keys import HEAD, INDEX, ROW, TOTAL, family_prefix, index_key, journal_key, session_row_key
from dalsegno.state.kv import JOURNAL, STATE, scan_prefix
from dalsegno.state.ladder import image_key
from dalsegno.state.layout import IndexEntry
from dalsegno.testing.bench_flat import long_session
from dalsegno.testing.builder import SessionBuilder, Written, tombstone
from dalsegno.testing.moves import play
from history_lab import requests
from reader_lab import House, damaged_copy, put
from shard_lab import apply, interleaved


def records(sessions: int = 6, seed: int = 1, moves: int = 30) -> list[Written]:
    """Events of some sessions, interleaved."""
    rnd = random.Random(seed)
    rows = [
        list(play(SessionBuilder(f"s-{n}").begin(), [rnd.getrandbits(16) for _ in range(moves)]).records)
        for n in range(sessions)
    ]
    return interleaved(rows, rnd)


EVENTS = records()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path) as found:
        yield found


def named(report: Report, *what: str) -> list[Difference]:
    return [each for each in report.differences if each.what in what]


def clean(report: Report) -> bool:
    return not report.differences and not report.uncompared


# --- equal ------------------------------------------------------------------------------------------------------------


def test_an_untouched_shard_passes_and_everything_was_folded(house: House) -> None:
    house.built(EVENTS)
    report = house.verify()
    assert clean(report)
    assert (report.cursor, report.folded, report.snapshot, report.tail) == (len(EVENTS), len(EVENTS), None, None)
    assert set(report.digests) == {"lifecycle", *(each.name for each in built_in())}


def test_an_empty_shard_passes(house: House) -> None:
    house.shard()
    house.log.append(EVENTS)
    report = house.verify()
    assert clean(report)
    assert (report.cursor, report.folded) == (0, 0)


def test_records_behind_the_cursor_do_not_count(house: House) -> None:
    house.built(EVENTS[:100])
    house.log.append(EVENTS[100:])
    report = house.verify()
    assert clean(report)
    assert report.folded == 100


@pytest.mark.parametrize("behind", ["below the cursor", "above the cursor"])
def test_repeats_and_their_compaction_change_nothing(house: House, behind: str) -> None:
    again = EVENTS[20:120]
    shard = house.built(EVENTS)
    house.log.append(again)
    if behind == "below the cursor":
        apply(shard, again)
    assert clean(house.verify())
    house.log.keep_last_copies()
    report = house.verify()
    assert clean(report)
    assert report.folded == len(EVENTS) - (len(again) if behind == "above the cursor" else 0)


def test_records_erased_behind_the_cursor_are_no_difference(house: House) -> None:
    house.built(EVENTS)
    house.log.append([tombstone(record) for record in EVENTS[30:90]])
    house.log.keep_last_copies()
    assert clean(house.verify())


def test_an_erasure_and_its_expired_tombstones_pass(house: House) -> None:
    builder = SessionBuilder("s-x").begin()
    victim = builder.append("MessageReceived", message_id="m1", role="USER")
    builder.append("MessageReceived", message_id="m2", role="USER")
    amendment = builder.amend([victim], request_id="r-1")
    house.built([*builder.records, amendment, tombstone(victim)])
    house.log.keep_last_copies(tombstones=False)
    report = house.verify(audited=requests([amendment]))
    assert clean(report)


def test_records_that_are_none_of_ours_are_no_difference(house: House) -> None:
    # case C31: beside good events, what is set aside is neither folded nor missed
    value = EVENTS[50].value
    assert value is not None
    keys = [f"s-1:1:{n:064x}".encode() for n in range(4)]
    bad = [b'{"raw": "json"}', b"", value + b"\x00\x01\x02", value[:-2]]
    strangers = [Written(key, damaged, None) for key, damaged in zip(keys, bad, strict=True)]
    house.built([*EVENTS[:60], *strangers, *EVENTS[60:]])
    report = house.verify()
    assert clean(report)
    assert report.folded == len(EVENTS) + 4
    with House(house.data.parent / "other") as other:
        other.built(EVENTS)
        assert other.verify().digests == report.digests


@pytest.mark.parametrize("at", ["below the cursor", "above the cursor"])
def test_bytes_that_took_an_events_key_are_no_difference_before_and_after_compaction(house: House, at: str) -> None:
    shard = house.built(EVENTS)
    taker = [Written(EVENTS[50].key, b"other bytes", None)]
    house.log.append(taker)
    if at == "below the cursor":
        apply(shard, taker)
    assert clean(house.verify())
    house.log.keep_last_copies()
    assert clean(house.verify())


# --- different --------------------------------------------------------------------------------------------------------


def test_one_byte_of_a_row_is_named_with_its_field(house: House, tmp_path: Path) -> None:
    house.built(EVENTS)
    key = session_row_key(ROW, "sessions", "s-3")

    def change(store: Any) -> None:
        row = store.get(STATE, key)
        at = row.index(b"demo")
        put(store, {(STATE, key): row[:at] + b"x" + row[at + 1 :]})

    report = house.verify(data=damaged_copy(house, change, tmp_path / "copy"))
    (found,) = named(report, "sessions")
    assert found == ("sessions", 0, "s-3", "workflow_name", "xemo", "demo", "the log")
    (digest,) = named(report, "digest")
    assert (digest.place, digest.beside) == ("sessions", "its own rows")
    assert clean(house.verify()), "only the copy was changed"


def test_a_changed_row_of_a_call_is_named_with_its_id(house: House, tmp_path: Path) -> None:
    house.built(EVENTS)
    prefix = family_prefix(ROW, "tools")

    def change(store: Any) -> None:
        key, row = next(scan_prefix(store, STATE, prefix))
        put(store, {(STATE, key): row[:-1] + bytes([row[-1] ^ 1])})

    report = house.verify(data=damaged_copy(house, change, tmp_path / "copy"))
    (found,) = named(report, "tools")
    assert found.session in {f"s-{n}" for n in range(6)}
    assert found.place.split(" ")[0]


@pytest.mark.parametrize(("prefix", "what"), [(ROW, "sessions"), (TOTAL, "usage"), (HEAD, "lifecycle")])
@pytest.mark.parametrize("kind", ["deleted", "undecodable", "foreign key"])
def test_rows_that_are_gone_or_are_none_are_named(
    house: House, tmp_path: Path, prefix: bytes, what: str, kind: str
) -> None:
    house.built(EVENTS)
    start = HEAD if prefix == HEAD else family_prefix(prefix, what)

    def change(store: Any) -> None:
        key, row = next(scan_prefix(store, STATE, start))
        place = {"deleted": (key, None), "undecodable": (key, b"\xc1" + row), "foreign key": (start + b"\xff\xff", row)}
        put(store, {(STATE, place[kind][0]): place[kind][1]})

    report = house.verify(data=damaged_copy(house, change, tmp_path / "copy"))
    (found,) = named(report, what)
    if kind == "foreign key":
        assert found.live == "present"
    else:
        assert "whole row" in found.place
        assert (found.session is None) == (prefix == TOTAL)


def test_an_event_dropped_from_the_journal_is_named(house: House, tmp_path: Path) -> None:
    house.built(EVENTS)
    event = EVENTS[50].event
    assert event is not None
    copy = damaged_copy(house, lambda store: put(store, {(JOURNAL, journal_key(50)): None}), tmp_path / "copy")
    report = house.verify(data=copy)
    (found,) = report.differences
    assert found[:5] == ("journal", 0, event.session_id, f"seq {event.seq}", "absent")


def test_an_event_dropped_from_journal_and_index_is_named(house: House, tmp_path: Path) -> None:
    house.built(EVENTS)
    event = EVENTS[50].event
    assert event is not None
    place = index_key(event.session_id, event.seq, event.hash)
    copy = damaged_copy(
        house, lambda store: put(store, {(JOURNAL, journal_key(50)): None, (STATE, place): None}), tmp_path / "copy"
    )
    report = house.verify(data=copy)
    (found,) = report.differences
    assert found[:5] == ("journal", 0, event.session_id, f"seq {event.seq}", "absent")
    assert found.beside == "the log"


@pytest.mark.parametrize("at", [0, 1, 40, -1])
def test_one_byte_of_the_journal_is_named(house: House, tmp_path: Path, at: int) -> None:
    house.built(EVENTS)
    event = EVENTS[7].event
    assert event is not None

    def change(store: Any) -> None:
        raw = bytearray(store.get(JOURNAL, journal_key(7)))
        raw[at] ^= 1
        put(store, {(JOURNAL, journal_key(7)): bytes(raw)})

    report = house.verify(data=damaged_copy(house, change, tmp_path / "copy"))
    found = named(report, "journal")
    assert found
    assert {(each.session, each.place) for each in found} == {(event.session_id, f"seq {event.seq}")}


def test_bytes_that_nothing_names_any_more_are_named(house: House, tmp_path: Path) -> None:
    """An erasure that left its bytes behind."""
    house.built(EVENTS)

    def change(store: Any) -> None:
        put(store, {(JOURNAL, journal_key(900_000)): store.get(JOURNAL, journal_key(7))})

    report = house.verify(data=damaged_copy(house, change, tmp_path / "copy"))
    (found,) = report.differences
    assert (found.what, found.live, found.expected) == ("journal", "present", "absent")
    assert found.place.endswith("at offset 900000")


def test_an_index_row_that_is_none_is_said(house: House, tmp_path: Path) -> None:
    house.built(EVENTS)
    copy = damaged_copy(house, lambda store: put(store, {(STATE, INDEX + b"\x00\x01"): b"?"}), tmp_path / "copy")
    report = house.verify(data=copy)
    assert any("names no record" in reason for reason in report.uncompared)


def test_a_fold_that_is_off_by_one_is_named(house: House) -> None:
    class OffByOne(Sessions):
        def fold(self, rows: Any, event: Any, verdict: Any) -> None:
            super().fold(rows, event, verdict)
            if event.type == "ConfigPinned" and event.session_id == "s-2" and event.seq == 4:
                row = rows.get()
                row.turns += 1
                rows.put((), row)

    wrong = [OffByOne() if each.name == "sessions" else each for each in built_in()]
    shard = house.built(EVENTS, projections=wrong)
    assert shard.recompute_digests() == shard.digests(), "the shard itself sees nothing wrong"
    report = house.verify()
    (found,) = report.differences
    assert found[:4] == ("sessions", 0, "s-2", "turns")
    assert found.live == found.expected + 1
    assert found.beside == "the log"


def test_an_earlier_version_of_a_row_is_compared_too(house: House, tmp_path: Path) -> None:
    house.built(long_session(300))
    image = image_key(session_row_key(ROW, "sessions", "long"), 1)
    rung = image_key(HEAD + b"\x00\x04long", 0)

    def change(store: Any) -> None:
        row = store.get(STATE, image)
        put(store, {(STATE, image): row.replace(b"long", b"lung"), (STATE, rung): None})

    report = house.verify(data=damaged_copy(house, change, tmp_path / "copy"))
    (version,) = named(report, "sessions")
    assert version[2:6] == ("long", "workflow_name, before window 1", "lung", "long")
    (lifecycle,) = named(report, "lifecycle")
    assert lifecycle[2:6] == ("long", "whole row, before window 0", "absent", "present")
    assert clean(house.verify())


def test_digests_that_differ_though_no_row_does(house: House, tmp_path: Path) -> None:
    from dalsegno.state.layout import POSITION_KEY, StoredDigest, decode_position, encode_meta

    house.built(EVENTS)

    def change(store: Any) -> None:
        position = decode_position(store.get(STATE, POSITION_KEY), "-")
        position.digests["tools"] = StoredDigest(position.digests["tools"].version, bytes(32))
        put(store, {(STATE, POSITION_KEY): encode_meta(position)})

    report = house.verify(data=damaged_copy(house, change, tmp_path / "copy"))
    (found,) = report.differences
    assert (found.what, found.place, found.live) == ("digest", "tools", "00" * 32)


def test_an_amendment_that_the_audit_does_not_know_is_named(house: House) -> None:
    # case C64: the amendment of one session leaves ids that look alike alone
    builders = [SessionBuilder(name).begin() for name in ("a", "a:1", "a:1:2", ":", "a:")]
    events = [record for builder in builders for record in builder.records]
    amendment = builders[1].amend([builders[1].records[-1]], request_id="nobody-asked")
    house.built([*events, amendment])
    report = house.verify(audited=requests([builders[0].amend([builders[0].records[-1]], request_id="nobody-asked")]))
    (found,) = report.differences
    assert (found.what, found.session, found.live) == ("amendment", "a:1", "nobody-asked")
    assert found.place.startswith("seq 0")
    assert clean(house.verify(audited=requests([amendment])))


def test_no_more_than_twenty_are_named_of_each_comparison(house: House) -> None:
    class Wrong(Sessions):
        def fold_head(self, rows: Any, head: Any) -> None:
            super().fold_head(rows, head)
            row = rows.get()
            row.epoch += 1
            rows.put((), row)

    wrong = [Wrong() if each.name == "sessions" else each for each in built_in()]
    house.built(records(30, moves=1), projections=wrong)
    assert len(house.verify().differences) == 20


def test_comparing_takes_no_more_memory_for_a_longer_log(tmp_path: Path) -> None:
    def peak(sessions: int) -> int:
        events = [record for n in range(sessions) for record in SessionBuilder(f"s-{n}").begin().records]
        with House(tmp_path / str(sessions)) as house:
            one, other = house.shard(events), house.shard(events, slot=1)
            view = house.reader().views()[0]
            tracemalloc.start()
            try:
                compared = [
                    *journal_differences(view),
                    *index_differences(view, other.kv, "the other"),
                    *row_differences(view, other.kv, one.specs(), "the other"),
                ]
                return tracemalloc.get_traced_memory()[1] + len(compared)
            finally:
                tracemalloc.stop()

    small, large = peak(100), peak(400)
    assert large < 1.2 * small


# --- snapshots --------------------------------------------------------------------------------------------------------


def test_from_a_snapshot_only_the_tail_is_folded(house: House) -> None:
    shard = house.built(EVENTS[:150])
    taken = house.snapshot(shard)
    house.log.append(EVENTS[150:])
    apply(shard, EVENTS[150:])
    report = house.verify(snapshots=True)
    assert clean(report)
    assert (report.snapshot, report.tail) == (taken.id, len(EVENTS) - 150)
    assert report.folded == len(EVENTS)


def test_a_snapshot_of_other_rows_than_the_logs_is_named(house: House) -> None:
    """A fold that was wrong when the snapshot was taken, and is right again now."""

    class Wrong(Sessions):
        def fold(self, rows: Any, event: Any, verdict: Any) -> None:
            super().fold(rows, event, verdict)
            if event.type == "ConfigPinned":
                row = rows.get()
                row.turns += 1
                rows.put((), row)

    wrong = [Wrong() if each.name == "sessions" else each for each in built_in()]
    with House(house.data.parent / "other") as other:
        old = other.shard(EVENTS[:150], projections=wrong)
        house.snapshot(old)
    house.built(EVENTS)
    report = house.verify(snapshots=True)
    assert report.differences
    assert {each.what for each in report.differences} == {"sessions"}
    assert all(each.beside.startswith("snapshot ") for each in report.differences)


def test_a_damaged_snapshot_gives_way_to_an_older_one(house: House) -> None:
    shard = house.built(EVENTS[:100])
    older = house.snapshot(shard)
    house.log.append(EVENTS[100:150])
    apply(shard, EVENTS[100:150])
    newer = house.snapshot(shard)
    (house.store_folder / "p" / "manifests" / f"{newer.id}.json").write_text("{}")
    report = house.verify(snapshots=True)
    assert (report.snapshot, report.tail) == (older.id, 50)
    assert clean(report)
    assert any(newer.id in remark for remark in report.remarks)


def test_a_snapshot_above_the_cursor_is_not_taken(house: House) -> None:
    with House(house.data.parent / "other") as other:
        house.snapshot(other.shard(EVENTS))
    house.built(EVENTS[:150])
    house.log.append(EVENTS[150:])
    report = house.verify(snapshots=True)
    assert clean(report)
    assert report.tail is None
    assert "no good snapshot to fold from" in report.remarks


# --- what could not be compared ---------------------------------------------------------------------------------------


def test_a_log_that_begins_later_is_folded_from_a_snapshot_alone(house: House) -> None:
    shard = house.built(EVENTS[:150])
    house.snapshot(shard)
    house.log.append(EVENTS[150:])
    apply(shard, EVENTS[150:])
    house.log.low = 150
    report = house.verify(snapshots=True)
    assert clean(report)
    assert (report.folded, report.tail) == (0, len(EVENTS) - 150)
    assert any("begins at offset 150" in remark for remark in report.remarks)
    house.log.low = 151
    assert house.verify(snapshots=True).uncompared, "no snapshot reaches the log's start, so nothing was compared"


def test_a_fold_begun_behind_an_accepted_hole_is_compared_from_there(house: House) -> None:
    house.log.append(EVENTS)
    house.log.low = 40
    shard = house.shard(base="-@40")
    shard.apply(shard.generation, 0, 40, [])
    apply(shard, EVENTS[40:])
    report = house.verify()
    assert clean(report)
    assert report.folded == len(EVENTS) - 40


def test_a_cursor_below_the_logs_start_or_behind_its_end_is_refused(house: House) -> None:
    house.built(EVENTS[:50])
    house.log.low = 60
    house.log.ends[0] = 100
    with pytest.raises(LogHole):
        house.verify()
    house.log.low, house.log.ends[0] = 0, 20
    with pytest.raises(OtherHistory):
        house.verify()


def test_rows_of_another_version_are_left_out_by_name(house: House) -> None:
    class Newer(Tools):
        version = 9

    house.built(EVENTS)
    report = house.verify(projections=[Newer() if each.name == "tools" else each for each in built_in()])
    assert report.differences == ()
    assert report.uncompared == (f"the rows of tools are of version {Tools.version}; this build has 9",)


def test_projections_of_one_side_alone_are_left_out_by_name(house: House) -> None:
    house.built(EVENTS, projections=[Sessions()])
    assert set(house.verify().uncompared) == {
        f"the rows of {each.name} are not there yet; this build has {each.version}"
        for each in built_in()
        if each.name != "sessions"
    }
    with House(house.data.parent / "other") as other:
        other.built(EVENTS)
        assert "this build has no projection usage" in other.verify(projections=[Sessions()]).uncompared


def test_records_that_the_live_shard_cannot_read_yet_are_no_difference(house: House) -> None:
    """The schema has reached the log, and no worker has looked since."""
    from dalsegno.log.schema_set import SchemaSet
    from dalsegno.testing.builder import write
    from log_samples import toy, writer_of

    foreign = writer_of(toy(1, {"name": "x", "type": "string"}, name="FromElsewhere"))
    builder = SessionBuilder("s-x").begin()
    tip = builder.tip
    assert tip is not None
    strange = write(foreign, builder.envelope(tip.seq + 1, tip.hash, "FromElsewhere") | {"ignorable": True}, {})
    house.log.extra_schemas = [foreign.json, "no schema at all"]
    house.built([*builder.records, strange])
    assert clean(house.verify())
    with House(house.data.parent / "other") as other:
        knowing = SchemaSet.load()
        knowing.add(foreign.json)
        other.log.extra_schemas = house.log.extra_schemas
        other.built([*builder.records, strange], schemas=knowing)
        report = other.verify()
        assert clean(report)
        assert report.digests != house.verify().digests, "the event was folded here"


def test_index_entries_keep_their_offset_out_of_the_comparison(house: House) -> None:
    """Of a repeat, a rebuilt shard may know the other copy."""
    shard = house.built(EVENTS)
    house.log.append(EVENTS[:5])
    house.log.keep_last_copies()
    apply(shard, EVENTS[:5])
    event = EVENTS[0].event
    assert event is not None
    raw = shard.kv.get(STATE, index_key(event.session_id, event.seq, event.hash))
    assert raw is not None
    assert IndexEntry.decode(raw).offset == 0, "the log holds the copy behind it"
    assert clean(house.verify())

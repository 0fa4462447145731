"""What a shard does with a batch, on either store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno.errors import BatchOutOfPlace, OtherHistory
from dalsegno.log.record import LogRecord
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.ids import Offset
from dalsegno.model.records import Event
from dalsegno.projections.base import ALL, Projection
from dalsegno.projections.rows import NameOfCall
from dalsegno.projections.sessions import Sessions
from dalsegno.state.kv import JOURNAL
from dalsegno.state.shard import Shard
from dalsegno.testing.builder import SessionBuilder, tombstone, write
from dalsegno.testing.strategies import FUTURE, broken_body, future_event, strange_frame
from history_lab import forks_of_each_other
from shard_lab import IDENTITY, Lab, apply, folded, log_of, paths, reads

pytestmark = pytest.mark.usefixtures("small_windows")


@pytest.fixture(params=["memory", "disk"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path / "shard" if request.param == "disk" else None)
    yield lab
    lab.kv.close()


@pytest.fixture
def builder() -> SessionBuilder:
    return SessionBuilder("s-1").begin()


def held(shard: Shard, session_id: str = "s-1") -> tuple[str, int] | None:
    head = reads(shard).head(session_id)
    return None if head is None or head.held_reason is None else (head.held_reason, head.held_seq)


def journal(shard: Shard) -> list[int]:
    return [offset for offset, _ in reads(shard).journal_entries()]


def test_a_batch_must_begin_at_the_cursor(lab: Lab, builder: SessionBuilder) -> None:
    shard = lab.open()
    log = log_of(builder.records)
    shard.apply("g", 0, 5, log[:5])
    before = shard.digests()
    for generation, start, end, records in (
        ("g", 0, 5, log[:5]),
        ("g", 6, 7, log[6:7]),
        ("other", 5, 6, log[5:6]),
        ("g", 5, 6, log[5:7]),
        ("g", 5, 8, [log[6], log[5]]),
        ("g", 5, 6, [log[5], log[5]]),
        ("g", 5, 4, []),
    ):
        with pytest.raises(BatchOutOfPlace):
            shard.apply(generation, start, end, records)
    assert shard.digests() == before
    assert shard.cursor.next_offset == 5
    shard.apply("g", 5, len(log), log[5:])
    assert shard.digests() == folded(builder.records).digests()
    assert (shard.cursor.last_offset, shard.cursor.last_key) == (len(log) - 1, log[-1].key)


def test_offsets_have_holes_and_seqs_must_not(lab: Lab) -> None:
    # case C4
    one, two = SessionBuilder("one").begin(), SessionBuilder("two").begin()
    shard = lab.open()
    offsets = [0, 1, 7, 8, 40]
    log = [
        LogRecord(Offset(offset), record.key, record.value, 0, 0)
        for offset, record in zip(offsets, one.records, strict=False)
    ]
    shard.apply("g", 0, 3, log[:2])  # the cursor points at offset 3, which compaction took
    shard.close()
    shard = lab.open()
    applied = shard.apply("g", 3, 41, log[2:])
    assert applied.records == 3
    assert shard.counts.records == 5
    assert held(shard, "one") is None
    applied = apply(shard, [*two.records[:2], two.records[3]])
    assert applied.held == ("two",)
    assert held(shard, "two") == ("GAP", 3)
    applied = apply(shard, [two.records[2]])
    assert applied.released == ("two",)
    assert reads(shard).head("two").seq == 4  # type: ignore[union-attr]


def test_an_empty_batch_moves_the_cursor(lab: Lab) -> None:
    shard = lab.open()
    shard.apply("g", 0, 12, [])
    assert shard.cursor.next_offset == 12
    assert shard.cursor.last_offset is None


def test_repeats_and_strangers_change_no_row(lab: Lab, builder: SessionBuilder) -> None:
    shard = lab.open()
    other = SessionBuilder("s-2").begin()
    apply(shard, builder.records)
    before = shard.digests()
    start = shard.cursor.next_offset
    strangers: list[tuple[bytes | None, bytes | None]] = [
        (None, b"x"),
        (b"no key of ours", b"x"),
        (other.records[0].key, b"not framed"),
        (other.records[0].key, builder.records[1].value),
    ]
    log = [LogRecord(Offset(start + n), key, value, 0, 0) for n, (key, value) in enumerate(strangers)]
    applied = shard.apply("g", start, start + len(log), log)
    assert [offset - start for offset, _ in applied.set_aside] == [0, 1, 2, 3]
    assert apply(shard, builder.records).repeats == len(builder.records)
    assert shard.digests() == before
    assert len(journal(shard)) == len(builder.records)


def test_other_bytes_under_an_events_key_take_it_as_compaction_would(lab: Lab, builder: SessionBuilder) -> None:
    shard = lab.open()
    apply(shard, builder.records)
    before = shard.digests()
    target = builder.records[4]
    assert target.value is not None
    overwritten = [b"not framed", builder.records[5].value, target.value[:2] + b"12345678" + target.value[10:]]
    for value in overwritten:
        apply(shard, [target._replace(value=value)])
        held_now = held(shard)
        assert held_now is not None
        assert held_now[1] == 5
        kept = [record for record in builder.records if record.key != target.key]
        assert shard.digests() == folded([*kept, target._replace(value=value)]).digests()
        apply(shard, [target])
        assert shard.digests() == before


def test_a_tombstone_leaves_a_gap_and_a_resend_closes_it(lab: Lab, builder: SessionBuilder) -> None:
    shard = lab.open()
    apply(shard, builder.records)
    before, rows = shard.digests(), len(journal(shard))
    assert apply(shard, [tombstone(builder.records[4])]).held == ("s-1",)
    assert held(shard) == ("GAP", 5)
    assert len(journal(shard)) == rows - 1
    assert apply(shard, [builder.records[4]]).released == ("s-1",)
    assert shard.digests() == before


def test_a_session_of_which_nothing_is_left_is_gone(lab: Lab, builder: SessionBuilder) -> None:
    shard = lab.open()
    empty = shard.digests()
    apply(shard, builder.records)
    apply(shard, [tombstone(record) for record in builder.records])
    assert shard.digests() == empty
    assert reads(shard).head("s-1") is None
    assert (shard.counts.sessions, shard.counts.events, journal(shard)) == (0, 0, [])
    item = next(item for item in shard.outbox(10) if item.projection == "sessions")
    assert shard.current(item) == (b'["s-1"]', None)


def test_an_erasure_takes_the_bytes_whenever_they_come(lab: Lab, builder: SessionBuilder) -> None:
    shard = lab.open()
    amendment = builder.amend(builder.records[2:4])
    apply(shard, builder.records)
    apply(shard, [amendment])
    after = shard.digests()
    reader = reads(shard)
    assert [event.stub for event in reader.path("s-1")][1:5] == [None, "ERASED", "ERASED", None]
    assert reader.row("sessions", "s-1").stubs == 2
    assert sorted(journal(shard)) == sorted({*range(len(builder.records) + 1)} - {2, 3})
    apply(shard, [builder.records[2]])
    assert shard.digests() == after
    assert not any(entry.key == builder.records[2].key for _, entry in reads(shard).journal_entries())
    more = builder.append("NoteRecorded", kind="late")
    apply(shard, [more])
    assert shard.digests() == folded([amendment, *builder.records]).digests()


def test_an_erased_session_stays_erased(lab: Lab, builder: SessionBuilder) -> None:
    shard = lab.open()
    amendment = builder.amend(whole_session=True)
    apply(shard, [*builder.records[:5], amendment])
    assert held(shard) == ("ERASED", 1)
    apply(shard, builder.records[5:])
    assert held(shard) == ("ERASED", 1)
    assert [entry.key for _, entry in reads(shard).journal_entries()] == [amendment.key]
    assert shard.digests() == folded([amendment]).digests()
    assert list(reads(shard).path("s-1")) == []


def test_the_higher_epoch_wins_and_the_other_is_superseded(lab: Lab, builder: SessionBuilder) -> None:
    rival = builder.branch(6, writer="rival")
    rival.recover()
    shard = lab.open()
    apply(shard, builder.records)
    apply(shard, rival.records[6:])
    row = reads(shard).row("sessions", "s-1")
    assert (row.last_seq, row.epoch, row.superseded) == (7, 1, len(builder.records) - 6)
    straight = folded([*rival.records, *builder.records])
    assert shard.digests() == straight.digests()
    assert paths(shard) == paths(straight)


def test_a_fork_waits_for_its_parent_and_follows_its_amendments(lab: Lab, builder: SessionBuilder) -> None:
    child = builder.fork(10, "c1")
    child.append("TurnStarted", turn_id="t1")
    grandchild = child.fork(2, "c2")
    shard = lab.open()
    applied = apply(shard, [*grandchild.records, *child.records])
    assert applied.held == (child.session_id, grandchild.session_id)
    assert held(shard, child.session_id) == ("PARENT_MISSING", 2)
    shard.close()
    shard = lab.open()
    assert apply(shard, builder.records[:9]).released == ()
    applied = apply(shard, builder.records[9:])
    assert applied.released == (child.session_id, grandchild.session_id)
    row = reads(shard).row("sessions", child.session_id)
    assert (row.status, row.forked_from, row.forked_at_seq, row.turns) == ("RUNNING", "s-1", 10, 1)
    amendment = builder.amend(builder.records[9:10])
    apply(shard, [amendment])
    everything = [*builder.records, *child.records, *grandchild.records, amendment]
    assert shard.digests() == folded(everything).digests()
    apply(shard, [tombstone(builder.records[0])])
    assert held(shard, grandchild.session_id) == ("PARENT_MISSING", 2)
    assert shard.counts.forks == 3, "the child reads its parent, the grandchild both"


def test_a_record_in_the_dark_is_tried_again(lab: Lab, builder: SessionBuilder) -> None:
    schemas = SchemaSet.load()
    shard = lab.open(schemas=schemas)
    new = future_event(builder, ignorable=True)
    apply(shard, [*builder.records, new])
    seq = len(builder.records) + 1
    assert held(shard) == ("UNKNOWN_SCHEMA", seq)
    assert [(each.seq, each.reason) for each in reads(shard).waiting()] == [(seq, "UNKNOWN_SCHEMA")]
    assert shard.retry_held() == 0
    schemas.add(FUTURE.json)
    assert shard.retry_held() == 1
    assert held(shard) is None
    assert list(reads(shard).waiting()) == []
    assert reads(shard).row("sessions", "s-1").events == seq
    assert shard.retry_held() == 0


def test_what_may_not_be_ignored_holds(lab: Lab, builder: SessionBuilder) -> None:
    schemas = SchemaSet.load()
    schemas.add(FUTURE.json)
    shard = lab.open(schemas=schemas)
    apply(shard, [*builder.records, future_event(builder, ignorable=False)])
    assert held(shard) == ("UNKNOWN_TYPE", len(builder.records) + 1)
    apply(shard, [strange_frame("s-2", 1), broken_body(SessionBuilder("s-3").begin().records[0])])
    assert held(shard, "s-2") == ("UNKNOWN_SCHEMA", 1)
    assert held(shard, "s-3") == ("UNDECODABLE", 1)
    assert shard.held_sessions == 3
    assert shard.counts.waiting == 3


class Faulty(Projection[NameOfCall]):
    """Fails at the event that it is told to fail at."""

    name, version, handles, row = "faulty", 1, ALL, NameOfCall
    at: int | None = None

    def fold(self, rows: Any, event: Event, _: Any) -> None:
        if event.seq == self.at:
            raise ZeroDivisionError
        rows.put((), NameOfCall(tool_call_id=str(event.seq)))


def test_a_failing_fold_leaves_nothing_behind(lab: Lab, builder: SessionBuilder) -> None:
    faulty = Faulty()
    shard = lab.open(projections=[faulty])
    apply(shard, builder.records[:3])
    before, counts = shard.digests(), shard.counts
    faulty.at = 5
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            apply(shard, builder.records[3:])
        assert shard.digests() == before == shard.recompute_digests()
        assert shard.counts == counts
        assert shard.cursor.next_offset == 3
    faulty.at = None
    apply(shard, builder.records[3:])
    straight = folded(builder.records, projections=[Faulty()])
    assert shard.digests() == straight.digests() == shard.recompute_digests()


def test_a_shard_of_another_history_is_refused(lab: Lab) -> None:
    lab.open().close()
    for change in ({"cluster_id": "x"}, {"topic_id": "1" * 32}, {"partitions": 2}, {"generation": "h"}):
        names = ("topic", "cluster_id", "topic_id", "partition", "partitions", "generation", "base")
        values = {name: getattr(IDENTITY, name) for name in names} | change
        kv = lab.store()
        with pytest.raises(OtherHistory) as caught:
            Shard.open(kv, identity=type(IDENTITY)(**values), schemas=SchemaSet.load(), projections=[])
        assert caught.value.data["difference"] in change
        kv.close()


def test_sessions_with_colons_do_not_mix(lab: Lab) -> None:
    # case C64
    names = ["a", "a:1", "a:1:2", ":", "a:"]
    builders = {name: SessionBuilder(name).begin() for name in names}
    for each in builders.values():
        each.append("NoteRecorded", kind="a")
        each.append("NoteRecorded", kind="b")
    shard = lab.open()
    for number in range(12):
        apply(shard, [builders[name].records[number] for name in names])
    found = reads(shard)
    assert sorted(name for name, _ in found.sessions()) == sorted(names)
    assert {name: [event.seq for event in found.path(name)] for name in names} == {
        name: list(range(1, 13)) for name in names
    }
    apply(shard, [builders["a"].amend(whole_session=True)])
    assert held(shard, "a") == ("ERASED", 1)
    for name in names[1:]:
        assert found.row("sessions", name).events == 12
        assert len(list(found.path(name))) == 12


def test_the_outbox_keeps_what_changed_again(lab: Lab, builder: SessionBuilder) -> None:
    shard = lab.open([Sessions()])
    apply(shard, builder.records[:5])
    items = shard.outbox(10)
    assert [item.projection for item in items] == ["sessions"]
    apply(shard, builder.records[5:])
    assert shard.clear_outbox(items) == 0
    assert shard.outbox(1, after=items[0]) == []
    assert shard.clear_outbox(shard.outbox(10)) == 1
    assert shard.outbox(10) == []
    shard.apply("g", shard.cursor.next_offset, shard.cursor.next_offset + 1, [])
    assert shard.outbox(10) == []


def test_a_journal_byte_that_changed_is_found(lab: Lab, builder: SessionBuilder) -> None:
    shard = lab.open()
    apply(shard, builder.records)
    raw = bytearray(shard.kv.get(JOURNAL, (4).to_bytes(8, "big")) or b"")
    raw[-1] ^= 1
    batch = shard.kv.batch()
    batch.put(JOURNAL, (4).to_bytes(8, "big"), bytes(raw))
    shard.kv.write(batch)
    with pytest.raises(Exception, match="seq 5 of session s-1"):
        shard.refold(["sessions"])


def test_forks_that_amendments_make_ancestors_of_each_other_are_held(lab: Lab) -> None:
    records = []
    for fork, stub in forks_of_each_other().values():
        envelope = fork.envelope(0, None, "HistoryAmended") | {"turn_id": None, "stage_id": None}
        fields = {"request_id": "r", "action": "LOST", "whole_session": False, "reason": "x", "targets": [stub]}
        records += [*fork.records, write("HistoryAmended", envelope, fields)]
    shard = lab.open()
    apply(shard, records)
    assert (held(shard, "s~a"), held(shard, "s~b")) == (("PARENT_MISSING", 2), ("PARENT_MISSING", 2))

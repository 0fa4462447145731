"""Attacks on a session's history, each made of a real chain, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dalsegno.log.amend_requests import Request, Requests
from dalsegno.readers.proof import AdminAudit, Anchor
from dalsegno.readers.proof_records import (
    CUT_MIDDLE,
    CUT_TAIL,
    FORGED,
    MISPLACED,
    MISSING_AMENDMENT,
    STRIPPED,
    SWAPPED,
    UNAUDITED,
    Raw,
)
from dalsegno.testing.builder import SessionBuilder, Written, tombstone, write
from history_lab import NO_AUDIT, again, audited, chain, judged, kinds, raw_again, raws
from log_samples import toy, writer_of


def end_of(records: list[Written]) -> Anchor:
    event = records[-1].event
    assert event is not None
    return Anchor("slot 0", event.seq, event.hash)


def test_an_untouched_history_has_no_doubt() -> None:
    builder = chain()
    builder.recover()
    builder.append("MessageReceived", message_id="m", role="USER")
    rival = builder.branch(5, writer="rival/1/b")
    rival.append("MessageReceived", message_id="r", role="USER")
    fork = builder.fork(5, "f")
    records = [*builder.records, rival.records[-1], *builder.records[3:6], *fork.records]
    proof = judged(raws(records), anchors=[end_of(builder.records)])
    assert (proof.doubts, proof.unproven) == ((), ())
    assert proof.path.head.seq == 14
    assert len(proof.path.superseded) == 1
    assert proof.records == 14 + 1 + 3


# --- cut in the middle ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [(1, 1, "seq 1 missing, seq 2 is there"), (5, 5, "seq 5 missing, seq 6 is there"), (4, 9, "seq 4 to 9 missing")],
)
def test_records_cut_out_of_the_middle_are_named(first: int, last: int, text: str) -> None:
    records = raws(chain().records)
    proof = judged(records[: first - 1] + records[last:])
    assert kinds(proof) == {CUT_MIDDLE}
    (doubt,) = proof.doubts
    assert doubt.seq == first
    assert text in doubt.text


def test_a_tombstone_without_an_amendment_is_a_cut_and_with_one_it_is_not() -> None:
    builder = chain()
    gone = tombstone(builder.records[4])
    proof = judged(raws([*builder.records, gone]))
    assert kinds(proof) == {CUT_MIDDLE}
    assert "a tombstone stands there" in proof.doubts[0].text
    amended = builder.amend([builder.records[4]])
    proof = judged(raws([*builder.records, amended, gone]), audit=audited(amended))
    assert proof.doubts == ()
    assert (proof.amendments, proof.path.head.seq) == (1, 12)


# --- cut at the end ---------------------------------------------------------------------------------------------------


def test_a_cut_tail_shows_only_beside_somebody_who_knows_the_end() -> None:
    records = chain().records
    assert judged(raws(records[:9])).doubts == ()
    proof = judged(raws(records[:9]), anchors=[end_of(records)])
    assert kinds(proof) == {CUT_TAIL}
    assert proof.doubts[0].seq == 12
    assert "slot 0 knows seq 12" in proof.doubts[0].text
    assert "end at seq 9" in proof.doubts[0].text
    assert kinds(judged([], anchors=[end_of(records)])) == {CUT_TAIL}


# --- swapped ----------------------------------------------------------------------------------------------------------


def test_two_records_with_each_others_bytes_are_swapped() -> None:
    records = raws(chain().records)
    one, other = records[4], records[6]
    records[4], records[6] = one._replace(value=other.value), other._replace(value=one.value)
    proof = judged(records)
    assert kinds(proof) == {SWAPPED}
    assert [doubt.seq for doubt in proof.doubts] == [5, 7]
    assert "the bytes of seq 7" in proof.doubts[0].text


def test_two_events_that_were_given_each_others_seq_are_swapped() -> None:
    """Written anew, with hashes that follow from their bytes."""
    records = chain().records
    swapped = [again(records[5], seq=5), again(records[4], seq=6)]
    proof = judged(raws([*records[:4], *swapped, *records[6:]]))
    assert SWAPPED in kinds(proof)
    assert {doubt.seq for doubt in proof.doubts if doubt.kind == SWAPPED} == {6}


# --- forged -----------------------------------------------------------------------------------------------------------


def test_bytes_that_do_not_have_the_hash_of_their_key_are_forged() -> None:
    records = raws(chain().records)
    forged = again(chain().records[4], actor_id="somebody else")
    records[4] = records[4]._replace(value=forged.value)
    proof = judged(records)
    assert kinds(proof) == {FORGED}
    assert proof.doubts[0].seq == 5


def test_an_event_written_anew_in_the_place_of_another_is_forged() -> None:
    records = chain().records
    forged = again(records[4], actor_id="somebody else")
    proof = judged(raws([*records[:4], forged, *records[5:]]))
    assert kinds(proof) == {FORGED}
    assert proof.doubts[0].seq == 5
    assert "seq 6 names" in proof.doubts[0].text


def test_the_last_event_written_anew_shows_beside_somebody_who_knows_it() -> None:
    records = chain().records
    forged = raws([*records[:11], again(records[11], actor_id="somebody else")])
    assert judged(forged).doubts == ()
    proof = judged(forged, anchors=[end_of(records)])
    assert kinds(proof) == {FORGED}
    assert proof.doubts[0].seq == 12


def test_a_forged_event_that_outranks_the_others_by_its_epoch_is_named() -> None:
    records = chain().records
    forged = again(records[4], epoch=9)
    proof = judged(raws([*records, forged]))
    assert kinds(proof) == {FORGED}
    assert "raises the epoch from 0 to 9" in proof.doubts[0].text
    assert proof.path.head.seq == 5


def test_a_history_that_begins_above_epoch_0_to_outrank_another_is_named() -> None:
    records = chain().records
    proof = judged(raws([*records, raw_again(records[0], epoch=9)]))
    assert kinds(proof) == {FORGED}
    assert "begins with epoch 9" in proof.doubts[0].text


def test_an_event_of_a_writer_that_was_replaced_is_named_where_it_follows_the_recovery() -> None:
    builder = chain(5)
    builder.recover()
    last = builder.append("MessageReceived", message_id="m", role="USER")
    proof = judged(raws([*builder.records[:-1], again(last, epoch=0)]))
    assert kinds(proof) == {FORGED}
    assert "below that of its predecessor" in proof.doubts[0].text


@pytest.mark.parametrize("value", [b"", b"rubbish", b"\xc3\x01" + bytes(8)])
def test_other_bytes_under_an_events_key_are_forged(value: bytes) -> None:
    records = raws(chain().records)
    records[4] = records[4]._replace(value=value)
    proof = judged(records)
    if value.startswith(b"\xc3"):
        assert proof.unproven, "bytes of a schema that nobody knows may be anything"
        assert proof.doubts == ()
    else:
        assert kinds(proof) == {FORGED}


# --- stripped hashes --------------------------------------------------------------------------------------------------


STRIPS: list[Callable[[Raw], Raw]] = [
    lambda record: record._replace(key=None),
    lambda record: record._replace(key=(record.key or b"")[:-64]),
    lambda record: record._replace(key=(record.key or b"")[:-65]),
    lambda record: record._replace(key=(record.key or b"")[:-1]),
]


@pytest.mark.parametrize("strip", STRIPS)
def test_records_without_their_hash_are_named(strip: Callable[[Raw], Raw]) -> None:
    records = raws(chain().records)
    records[4] = strip(records[4])
    proof = judged(records)
    assert kinds(proof) == {STRIPPED}
    assert proof.doubts[0].seq == 5
    everywhere = judged([strip(record) for record in records])
    assert [doubt.seq for doubt in everywhere.doubts if doubt.kind == STRIPPED] == list(range(1, 13))


def test_a_record_that_lost_hash_and_bytes_is_named_by_what_is_left_of_its_key() -> None:
    records = raws(chain().records)
    records[4] = records[4]._replace(key=b"s-1:5:", value=b"rubbish")
    assert kinds(judged(records)) == {STRIPPED}
    records[4] = records[4]._replace(key=b"s-2:5:")
    assert kinds(judged(records)) == {CUT_MIDDLE}, "another session's"


def test_a_record_that_does_not_name_its_predecessor_is_named() -> None:
    records = chain().records
    stripped = raw_again(records[4], prev_hash=None)
    proof = judged(raws([*records[:4], stripped, *records[5:]]))
    assert kinds(proof) == {STRIPPED}
    assert [doubt.seq for doubt in proof.doubts] == [5]


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_a_record_in_another_partition_is_named() -> None:
    records = raws(chain().records)
    records[4] = records[4]._replace(partition=1)
    proof = judged(records)
    assert kinds(proof) == {MISPLACED}


def test_an_amendment_counts_only_if_the_audit_knows_its_request() -> None:
    builder = chain()
    amended = builder.amend([builder.records[4]], action="SKIPPED")
    proof = judged(raws([*builder.records, amended]), audit=NO_AUDIT)
    assert kinds(proof) == {UNAUDITED}
    assert "request-1" in proof.doubts[0].text
    assert judged(raws([*builder.records, amended]), audit=audited(amended)).doubts == ()


@pytest.mark.parametrize(
    ("attack", "text"),
    [
        (lambda builder: builder.amend([builder.records[6]], action="SKIPPED"), "asks for something else"),
        (lambda builder: builder.amend(builder.records[3:9], action="SKIPPED"), "asks for something else"),
        (lambda builder: builder.amend([builder.records[4]], action="ERASED"), "asks for something else"),
        (lambda builder: builder.amend(whole_session=True), "asks for something else"),
        (lambda builder: _amend_at_another_place(builder), "asks for something else"),
        (lambda builder: builder.amend([builder.records[4]], action="SKIPPED", request_id="r-9"), "is of session s-9"),
    ],
    ids=["another event", "more events", "another action", "all of it", "another predecessor", "of another session"],
)
def test_an_amendment_that_only_names_a_request_of_the_audit_does_not_count(
    attack: Callable[[SessionBuilder], Written], text: str
) -> None:
    builder = chain()
    asked = builder.amend([builder.records[4]], action="SKIPPED")
    other = chain(session_id="s-9")
    known = audited(asked, other.amend([other.records[4]], action="SKIPPED", request_id="r-9"))
    proof = judged(raws([*builder.records, asked, attack(builder)]), audit=known)
    assert kinds(proof) == {UNAUDITED}
    assert text in proof.doubts[0].text


def _amend_at_another_place(builder: SessionBuilder) -> Written:
    asked = builder.amend([builder.records[4]], action="SKIPPED")
    assert asked.event is not None
    (target,) = asked.event.body["targets"]
    body = {**asked.event.body, "targets": [{**target, "prev_hash": builder.events[2].hash}]}
    return write("HistoryAmended", body.pop("meta"), body)


def test_a_request_of_the_audit_without_its_amendment_is_named() -> None:
    builder = chain()
    proof = judged(raws(builder.records), audit=AdminAudit(Requests({"r-9": Request("s-1", {})})))
    assert kinds(proof) == {MISSING_AMENDMENT}
    assert "r-9" in proof.doubts[0].text
    amended = builder.amend([builder.records[4]], action="SKIPPED")
    gone = judged(raws([*builder.records, amended, tombstone(amended)]), audit=NO_AUDIT)
    assert kinds(gone) == {MISSING_AMENDMENT}
    assert judged(raws(builder.records), audit=AdminAudit(Requests({"r-9": Request("s-2", {})}))).doubts == ()


def test_what_cannot_be_read_here_is_not_proven_and_no_doubt() -> None:
    builder = chain(5)
    foreign = writer_of(toy(1, name="Foreign"))
    assert builder.tip is not None
    record = write(foreign, builder.envelope(6, builder.tip.hash, "Foreign"), {})
    proof = judged(raws([*builder.records, record]))
    assert proof.doubts == ()
    assert "UNKNOWN_SCHEMA" in proof.unproven[0]


def test_an_unreadable_record_that_was_stepped_over_needs_no_proof_of_its_own() -> None:
    builder = chain()
    records = raws(builder.records)
    seq_5 = builder.records[4]
    records[4] = records[4]._replace(value=b"\xc3\x01" + bytes(8))
    assert judged(records).unproven
    amended = builder.amend([seq_5], action="SKIPPED")
    proof = judged([*records, *raws([amended], start=12)], audit=audited(amended))
    assert (proof.doubts, proof.unproven, proof.path.head.seq) == ((), (), 12)


def test_an_erased_session_has_nothing_left_to_judge() -> None:
    builder = chain()
    gone = builder.amend(whole_session=True)
    proof = judged(raws([builder.records[3], gone]), audit=audited(gone), anchors=[end_of(builder.records)])
    assert proof.doubts == ()
    assert proof.unproven == ("the path ends before seq 1: ERASED",)


def test_several_attacks_are_all_named() -> None:
    records = raws(chain(20).records)
    one, other = records[4], records[6]
    records[4], records[6] = one._replace(value=other.value), other._replace(value=one.value)
    records[10] = records[10]._replace(key=b"s-1:11")
    records[15] = records[15]._replace(value=again(chain(20).records[15], actor_id="x").value)
    del records[12:14]
    found = judged(records[:-2], anchors=[end_of(chain(20).records)])
    assert kinds(found) == {SWAPPED, STRIPPED, FORGED, CUT_MIDDLE, CUT_TAIL}

"""What an amendment says overrides what a record says of itself; how links follow each other."""

from __future__ import annotations

import pytest

from dalsegno.model.amendments import Amendment, Stub, amended_links, merge_amendments, read_amendment
from dalsegno.model.hashing import first_break, follows, is_well_placed
from dalsegno.model.path import chain_ending_in, choose_path
from dalsegno.model.records import ERASED, SKIPPED, Event, Link, stub_event

A, B, C, D = (bytes([n]) * 32 for n in range(1, 5))
FIRST, SECOND = Link(1, A, None, 0), Link(2, B, A, 0)


def amendment(*stubs: Stub) -> Amendment:
    return Amendment("r", stubs[0].action, stubs, False, 0)


def test_the_stubs_link_stands_instead_of_the_records() -> None:
    liar = Stub(SECOND._replace(epoch=3), "NoteRecorded", SKIPPED)
    links = amended_links([FIRST, SECOND], {B: liar})
    assert sorted(links) == [FIRST, SECOND._replace(epoch=3)]
    assert choose_path(links).head.epoch == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Stub(SECOND, "NoteRecorded", ERASED), Stub(SECOND, "NoteRecorded", SKIPPED)),
        (Stub(FIRST._replace(hash=B), "X", SKIPPED), Stub(SECOND, "X", SKIPPED)),
        (Stub(SECOND._replace(prev_hash=A), "X", SKIPPED), Stub(SECOND._replace(prev_hash=C), "X", SKIPPED)),
        (Stub(SECOND, "X", SKIPPED), Stub(SECOND._replace(epoch=1), "X", SKIPPED)),
        (Stub(SECOND, "X", SKIPPED), Stub(SECOND, "Y", SKIPPED)),
    ],
)
def test_of_two_amendments_of_one_record_one_wins_whatever_their_order(one: Stub, other: Stub) -> None:
    for order in ([one, other], [other, one], [other, one, other]):
        assert merge_amendments(map(amendment, order)).stubs == {B: one}


def test_a_target_that_names_no_possible_place_is_counted_and_ignored() -> None:
    good = {"seq": 2, "hash": B, "prev_hash": A, "epoch": 0, "type": "NoteRecorded"}
    bad = [
        good | {"seq": 0}, good | {"epoch": -1}, good | {"hash": b"short"}, good | {"prev_hash": None},
        good | {"seq": True}, good | {"epoch": None}, good | {"seq": 1}, "text",
    ]  # fmt: skip
    read = read_amendment({"request_id": "r", "action": ERASED, "targets": [*bad, good], "whole_session": False})
    assert (read.refused, [stub.link for stub in read.stubs]) == (len(bad), [SECOND])
    assert read_amendment({"action": "ELSE", "targets": [good]}) == Amendment("", "", (), False, 1)


def test_a_link_follows_its_predecessor_and_nothing_else() -> None:
    assert follows(None, FIRST)
    assert not follows(None, SECOND)
    assert not follows(None, Link(1, A, B, 0))
    assert not follows(None, Link(2, A, None, 0))
    assert follows(FIRST, SECOND)
    for other in (SECOND._replace(seq=3), SECOND._replace(prev_hash=C)):
        assert not follows(FIRST, other)
    assert not follows(FIRST._replace(epoch=1), SECOND)
    assert first_break([FIRST, SECOND]) is None
    assert first_break([SECOND]) == SECOND
    assert first_break([FIRST, SECOND, SECOND]) == SECOND


def test_only_first_and_control_records_have_no_predecessor() -> None:
    assert is_well_placed(0, None)
    assert is_well_placed(1, None)
    assert is_well_placed(2, A)
    for seq, prev_hash in ((0, A), (1, A), (2, None), (2, b"short"), (-1, A), (-1, None)):
        assert not is_well_placed(seq, prev_hash)


def test_a_forks_chain_never_goes_down_in_epoch() -> None:
    later = Link(2, B, A, 1)
    links = {link.hash: link for link in (FIRST, later, Link(3, C, B, 1), Link(3, D, B, 0))}
    assert chain_ending_in(links, C) == (FIRST, later, Link(3, C, B, 1))
    assert chain_ending_in(links, D) is None
    assert chain_ending_in(links, b"?") is None


def test_the_path_of_nothing() -> None:
    path = choose_path([])
    assert (path.hashes, path.held, path.head) == ((), None, (0, None, 0, 0, False))


def test_a_stub_keeps_its_place_and_is_folded_by_every_build() -> None:
    stub = stub_event("s", SECOND, "FutureType", ERASED)
    assert (stub.link, stub.key.encode()) == (SECOND, f"s:2:{B.hex()}".encode())
    assert (stub.known, stub.ignorable, stub.stub, stub.meta, stub.body) == (True, True, ERASED, {}, {})
    assert Event("s", 2, B, A, 0, "T", True, False, {}, {}).stub is None

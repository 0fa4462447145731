"""The path rule, case by case, and its cost."""

from __future__ import annotations

import time
from hashlib import sha256

import pytest

from dalsegno.model.amendments import merge_amendments, read_amendment
from dalsegno.model.hashing import event_hash, first_break, is_well_placed
from dalsegno.model.ids import EventKey, Seq, parse_key
from dalsegno.model.path import Head, Held, chain_ending_in, choose_path, extends
from dalsegno.model.records import Link


def h(name: str) -> bytes:
    return sha256(name.encode()).digest()


def chain(count: int, *, label: str = "", start: Link | None = None, epoch: int = 0) -> list[Link]:
    links: list[Link] = []
    before = start
    for _ in range(count):
        seq = before.seq + 1 if before else 1
        before = Link(seq, h(f"{label}{seq}"), before.hash if before else None, epoch)
        links.append(before)
    return links


def hashes(*links: Link) -> tuple[bytes, ...]:
    return tuple(link.hash for link in links)


def test_no_records_no_path() -> None:
    assert choose_path([]) == ((), frozenset(), None, Head(0, None, 0, 0))


def test_a_plain_chain_is_its_path() -> None:
    links = chain(5)
    path = choose_path(reversed(links))
    assert path.hashes == hashes(*links)
    assert path.held is None
    assert path.head == Head(5, h("5"), 0, 5)


def test_a_jump_in_seq_is_flagged_as_missing() -> None:  # case C4
    links = chain(5)
    without_3 = [link for link in links if link.seq != 3]
    path = choose_path(without_3)
    assert path.hashes == hashes(*links[:2])
    assert path.held == Held("GAP", 3)
    assert choose_path([*without_3, links[2]]).held is None


def test_sessions_whose_ids_hold_colons_do_not_mix() -> None:  # case C64
    ids = ["a", "a:1", "a:1:2", ":", "a:", "a:1:" + "0" * 64]
    seen = set()
    for session_id in ids:
        for seq in range(13):
            key = EventKey(session_id, Seq(seq), h(f"{session_id}/{seq}"))
            assert parse_key(key.encode()) == key
            seen.add(key.encode())
    assert len(seen) == len(ids) * 13


def test_two_writers_of_one_seq_give_one_path_and_one_superseded() -> None:  # case C49
    start = chain(2)
    left, right = Link(3, h("left"), h("2"), 0), Link(3, h("right"), h("2"), 0)
    path = choose_path([*start, left, right, left])
    winner, loser = sorted([left, right], key=lambda link: link.hash)
    assert path.hashes == hashes(*start, winner)
    assert path.superseded == {loser.hash}
    assert path.held is None
    # Compaction keeps one record per key: the set, so the answer, is the same.
    assert choose_path({*start, left, right}) == path


def test_higher_epoch_beats_longer_continuation() -> None:
    start = chain(2)
    zombie = chain(6, label="z", start=start[-1])
    recovered = chain(1, label="r", start=start[-1], epoch=1)
    path = choose_path([*start, *zombie, *recovered])
    assert path.hashes == hashes(*start, *recovered)
    assert path.superseded == set(hashes(*zombie))
    assert path.held is None, "what follows from a superseded record is no missing history"
    assert path.head.highest == 8


def test_longer_continuation_beats_lower_hash() -> None:
    start = chain(1)
    rivals = sorted([Link(2, h("x"), h("1"), 0), Link(2, h("y"), h("1"), 0)], key=lambda link: link.hash)
    longer = chain(1, label="t", start=rivals[1])
    assert choose_path([*start, *rivals, *longer]).hashes == hashes(*start, rivals[1], *longer)


def test_a_continuation_counts_only_where_epochs_do_not_fall() -> None:
    start = chain(1)
    rivals = sorted([Link(2, h("x"), h("1"), 1), Link(2, h("y"), h("1"), 1)], key=lambda link: link.hash)
    fallen = chain(3, label="f", start=rivals[1], epoch=0)
    assert choose_path([*start, *rivals, *fallen]).hashes == hashes(*start, rivals[0])


def test_reasons_for_being_held() -> None:
    links = chain(3)
    stranger = Link(4, h("s"), h("nobody"), 0)
    low = Link(4, h("low"), h("3"), 0)
    raised = [links[0], Link(2, h("2"), h("1"), 1), Link(3, h("3"), h("2"), 1)]
    assert choose_path(links[1:]).held == Held("NO_START", 1)
    assert choose_path([*links, stranger]).held == Held("BROKEN_CHAIN", 4)
    assert choose_path([*raised, low]).held == Held("EPOCH_BELOW", 4)
    assert choose_path(links, unreadable=[(4, "UNDECODABLE")]).held == Held("UNDECODABLE", 4)
    assert choose_path(links, unreadable=[(5, "UNDECODABLE")]).held == Held("GAP", 4)
    assert choose_path(links, unreadable=[(2, "UNKNOWN_SCHEMA")]).held is None
    assert choose_path([], unreadable=[(1, "UNKNOWN_SYMBOL")]).held == Held("UNKNOWN_SYMBOL", 1)
    assert choose_path(links, unfoldable={h("2"): "UNKNOWN_TYPE"}).held == Held("UNKNOWN_TYPE", 2)
    assert choose_path(links, erased=True).held == Held("ERASED", 1)


def test_a_session_that_was_erased_takes_no_more_records() -> None:
    links = chain(2)
    head = choose_path([], erased=True).head
    assert not extends(head, links[0])
    assert choose_path(links, erased=True).hashes == ()


def test_nothing_extends_a_head_below_a_known_record() -> None:
    links = chain(3)
    held = choose_path([links[0], links[2]])
    assert not extends(held.head, links[1])
    assert choose_path(links).held is None


def test_a_fork_reads_its_parents_records_though_the_path_left_them() -> None:
    start = chain(2)
    old = chain(3, label="old", start=start[-1])
    new = chain(1, label="new", start=start[-1], epoch=1)
    links = {link.hash: link for link in [*start, *old, *new]}
    assert chain_ending_in(links, old[1].hash) == (*start, *old[:2])
    del links[start[0].hash]
    assert chain_ending_in(links, old[1].hash) is None
    assert chain_ending_in(links, h("nobody")) is None


def test_a_parents_chain_is_whole_or_none() -> None:
    start, second = chain(2)
    skipping = Link(4, h("4"), second.hash, 0)
    fallen = Link(3, h("3"), second.hash, 0)
    raised = second._replace(epoch=1)
    assert chain_ending_in({link.hash: link for link in (start, second, skipping)}, skipping.hash) is None
    assert chain_ending_in({link.hash: link for link in (start, raised, fallen)}, fallen.hash) is None
    assert chain_ending_in({link.hash: link for link in (start, second, fallen)}, fallen.hash) == (
        start,
        second,
        fallen,
    )


def test_a_record_that_names_a_superseded_one_at_another_seq_is_not_its_follower() -> None:
    start = chain(2)
    rivals = sorted([Link(3, h("x"), h("2"), 0), Link(3, h("y"), h("2"), 0)], key=lambda link: link.hash)
    lost = Link(9, h("9"), rivals[1].hash, 0)
    path = choose_path([*start, *rivals, lost])
    assert path.superseded == {rivals[1].hash}
    assert path.held == Held("GAP", 4)


def test_a_hundred_thousand_records_take_linear_time() -> None:
    def seconds(count: int) -> float:
        links = chain(count)
        rivals = [Link(link.seq, h(f"r{link.seq}"), link.prev_hash, 0) for link in links[::10]]
        began = time.perf_counter()
        path = choose_path([*reversed(links), *rivals])
        assert len(path.hashes) == count
        return time.perf_counter() - began

    small = min(seconds(10_000) for _ in range(3))
    assert seconds(100_000) < 40 * small + 1, "ten times the records, far from a hundred times the work"


def test_a_long_chain_of_superseded_records_is_followed_without_recursion() -> None:
    start = chain(1)
    zombie = chain(50_000, label="z", start=start[0])
    won = chain(1, label="w", start=start[0], epoch=1)
    path = choose_path([*start, *zombie, *won])
    assert len(path.superseded) == 50_000
    assert path.held is None


# --- hashing ------------------------------------------------------------------------------------------------------


def test_event_hash_is_over_schema_hash_and_body() -> None:
    assert event_hash(h("schema"), b"body") == sha256(h("schema") + b"body").digest()
    assert event_hash(h("schema"), b"body") != event_hash(h("other"), b"body")


def test_only_the_first_and_control_events_have_no_predecessor() -> None:
    assert is_well_placed(0, None)
    assert is_well_placed(1, None)
    assert is_well_placed(2, h("1"))
    assert not is_well_placed(0, h("1"))
    assert not is_well_placed(1, h("1"))
    assert not is_well_placed(2, None)
    assert not is_well_placed(2, b"short")
    assert not is_well_placed(-1, h("1"))


def test_first_break_names_the_first_link_out_of_place() -> None:
    links = chain(4)
    assert first_break(links) is None
    assert first_break(links[1:]) == links[1]
    assert first_break([*links[:2], links[3]]) == links[3]
    wrong = links[2]._replace(prev_hash=h("other"))
    assert first_break([*links[:2], wrong, links[3]]) == wrong
    fallen = [links[0]._replace(epoch=1), links[1]]
    assert first_break(fallen) == links[1]


# --- amendments ---------------------------------------------------------------------------------------------------


def target(at: int, **changes: object) -> dict[str, object]:
    place = {
        "seq": at, "hash": h(str(at)), "prev_hash": h(str(at - 1)) if at > 1 else None, "epoch": 0,
        "type": "NoteRecorded",
    }  # fmt: skip
    return place | changes


def amended(action: str = "ERASED", *targets: object, **more: object) -> dict[str, object]:
    return {
        "request_id": "r1",
        "action": action,
        "reason": "asked",
        "targets": list(targets),
        "whole_session": False,
    } | more


def test_an_amendment_gives_a_stub_per_target() -> None:
    amendment = read_amendment(amended("ERASED", target(1), target(2)))
    assert [stub.link for stub in amendment.stubs] == chain(2)
    assert {stub.type for stub in amendment.stubs} == {"NoteRecorded"}
    assert (amendment.request_id, amendment.action, amendment.whole_session, amendment.refused) == (
        "r1",
        "ERASED",
        False,
        0,
    )
    assert read_amendment(amended(whole_session=True)).whole_session


def test_targets_that_name_no_place_change_nothing() -> None:
    bad = [
        target(0), target(-3), target(2, prev_hash=None), target(1, prev_hash=h("0")), target(2, hash=b"short"),
        target(2, hash=None), target(2, seq="2"), target(2, seq=True), target(2, epoch=None), target(2, epoch=-1), None,
        "x",
    ]  # fmt: skip
    amendment = read_amendment(amended("LOST", *bad, target(3)))
    assert [stub.link.seq for stub in amendment.stubs] == [3]
    assert amendment.refused == len(bad)
    assert read_amendment({}).stubs == ()
    assert read_amendment(amended("FORGOTTEN", target(1), whole_session=True)) == ("r1", "", (), False, 1)
    assert read_amendment(amended("ERASED") | {"targets": None}).stubs == ()


def test_the_strongest_action_wins_whatever_came_first() -> None:
    skipped, erased = read_amendment(amended("SKIPPED", target(2))), read_amendment(amended("ERASED", target(2)))
    lost = read_amendment(amended("LOST", target(2)))
    for order in ([skipped, lost, erased], [erased, skipped, lost], [lost, erased, skipped]):
        assert merge_amendments(order).stubs[h("2")].action == "ERASED"
    assert merge_amendments([skipped, lost]).stubs[h("2")].action == "LOST"
    contradicting = read_amendment(amended("ERASED", target(2, epoch=7)))
    assert merge_amendments([erased, contradicting]) == merge_amendments([contradicting, erased])


def test_a_lost_record_is_bridged() -> None:
    links = chain(4)
    stubs = merge_amendments([read_amendment(amended("LOST", target(3)))]).stubs
    held = choose_path([link for link in links if link.seq != 3])
    assert held.held == Held("GAP", 3)
    path = choose_path([*(link for link in links if link.seq != 3), *(stub.link for stub in stubs.values())])
    assert path.hashes == hashes(*links)
    assert path.held is None


REASONS = ("UNKNOWN_SCHEMA", "UNKNOWN_SYMBOL", "UNDECODABLE")


@pytest.mark.parametrize(("one", "other"), [(a, b) for a in REASONS for b in REASONS])
def test_of_several_reasons_at_one_place_the_one_that_is_easiest_to_mend_is_named(one: str, other: str) -> None:
    path = choose_path(chain(2), unreadable=[(3, one), (3, other)])
    assert path.held == Held(min(one, other, key=REASONS.index), 3)


def test_an_unreadable_rival_of_what_was_chosen_holds_nothing() -> None:
    assert choose_path(chain(3), unreadable=[(3, "UNDECODABLE")]).held is None


def test_of_an_erased_session_only_its_height_is_told() -> None:
    path = choose_path(chain(3, epoch=2), erased=True)
    assert path == ((), frozenset(), Held("ERASED", 1), Head(0, None, 0, 3, erased=True))

"""What a fork takes over from its ancestors, and when there is nothing to take over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from dalsegno.model.amendments import Amendment, Stub
from dalsegno.model.history import ForkPoint, Gathered, Prefix, ancestry, fork_origin, gather, know, state_after
from dalsegno.model.ids import EventKey, Seq
from dalsegno.model.records import CONTROL_SEQ, Unreadable
from dalsegno.testing.builder import SessionBuilder, Written, write
from history_lab import forks_of_each_other


def known(*records: Written) -> Gathered:
    return gather(record.event for record in records if record.event is not None)


def ancestors(child: SessionBuilder, sessions: dict[str, Gathered]) -> list[Prefix] | None:
    parent, at = fork_origin(child.events[1])
    assert at is not None
    return ancestry(child.session_id, parent, at, lambda name: sessions.get(name) or known())


def amendment(builder: SessionBuilder, targets: Iterable[dict[str, Any]], action: str = "LOST") -> Written:
    envelope = builder.envelope(CONTROL_SEQ, None, "HistoryAmended") | {"turn_id": None, "stage_id": None}
    fields = {"request_id": "r", "action": action, "whole_session": False, "reason": "x", "targets": list(targets)}
    return write("HistoryAmended", envelope, fields)


def test_a_fork_of_a_fork_takes_over_the_whole_line_up_to_where_each_was_left() -> None:
    root = SessionBuilder("s").begin()
    child = root.fork(len(root.records), "a")
    child.append("TurnStarted", turn_id="t")
    child.append("TurnCompleted", turn_id="t")
    grandchild = child.fork(3, "b")
    sessions = {"s": known(*root.records), "s~a": known(*child.records)}
    prefixes = ancestors(grandchild, sessions)
    assert prefixes is not None
    assert [(p.session_id, len(p.hashes)) for p in prefixes] == [("s", len(root.records)), ("s~a", 3)]
    state = state_after(prefixes)
    assert state == child.branch(3, writer=child.writer).session
    assert state.turn == "t", "the turn was begun at seq 3 and ended behind it"


def test_a_fork_may_leave_its_parent_at_its_first_record_or_at_the_one_that_makes_it_a_fork() -> None:
    root = SessionBuilder("s").begin()
    child, of_the_first = root.fork(4, "a"), root.fork(1, "c")
    sessions = {"s": known(*root.records), "s~a": known(*child.records)}
    for fork, want in ((of_the_first, [("s", 1)]), (child.fork(2, "b"), [("s", 4), ("s~a", 2)])):
        prefixes = ancestors(fork, sessions)
        assert prefixes is not None
        assert [(p.session_id, len(p.hashes)) for p in prefixes] == want


def test_every_place_that_was_looked_at_is_told_also_one_that_is_missing() -> None:
    root = SessionBuilder("s").begin()
    child = root.fork(4, "a")
    grandchild = child.fork(2, "b")
    parent, at = fork_origin(grandchild.events[1])
    assert at is not None
    for sessions in ({"s": known(*root.records), "s~a": known(*child.records)}, {"s~a": known(*child.records)}):
        places: list[tuple[str, ForkPoint]] = []
        ancestry(grandchild.session_id, parent, at, lambda name: sessions.get(name) or known(), places)  # noqa: B023
        assert [(name, place.seq) for name, place in places] == [("s~a", 2), ("s", 4)]


def test_what_cannot_be_read_or_folded_counts_until_an_amendment_names_it() -> None:
    first, second, third = SessionBuilder("s").begin().events[:3]
    later = msgspec.structs.replace(third, known=False, ignorable=False)
    dark = Unreadable(EventKey("s", Seq(2), second.hash), "UNDECODABLE")
    control = Unreadable(EventKey("s", Seq(CONTROL_SEQ), b"\x01" * 32), "UNDECODABLE")
    found = gather([first, dark, later, control]).known
    assert (found.dark, found.unfoldable) == (((2, "UNDECODABLE"),), {later.hash: "UNKNOWN_TYPE"})
    lost = Amendment(
        "r", "LOST", (Stub(second.link, second.type, "LOST"), Stub(later.link, later.type, "LOST")), False, 0
    )
    left = know([first.link, later.link], [(2, second.hash, dark.reason)], found.unfoldable, [lost])
    assert (left.dark, left.unfoldable) == ((), {})
    assert left.choose().held is None


def test_nothing_is_taken_over_from_a_parent_that_is_not_all_there() -> None:
    root = SessionBuilder("s").begin()
    child = root.fork(4, "a")
    assert ancestors(child, {"s": known(*root.records)}) is not None
    for records in (
        root.records[:3],
        root.records[:2] + root.records[3:],
        [*root.records, root.amend(whole_session=True)],
        [],
    ):
        assert ancestors(child, {"s": known(*records)}) is None


def test_a_stub_counts_as_a_record_of_the_parent_and_says_that_something_is_missing() -> None:
    root = SessionBuilder("s").begin()
    child = root.fork(4, "a")
    amended = known(*root.records[:2], *root.records[3:], root.amend(root.records[2:3]))
    prefixes = ancestors(child, {"s": amended})
    assert prefixes is not None
    assert [event.stub for event in prefixes[0].events()] == [None, None, "ERASED", None]
    assert state_after(prefixes).stubs


def test_a_place_that_contradicts_its_hash_another_root_or_a_type_of_a_later_build_gives_nothing() -> None:
    root = SessionBuilder("s").begin()
    sessions = {"s": known(*root.records)}
    tip = root.tip
    assert tip is not None
    right = ForkPoint(tip.seq, tip.hash)
    assert ancestry("s~a", "s", right, sessions.__getitem__) is not None
    assert ancestry("s~a", "s", right._replace(seq=tip.seq - 1), sessions.__getitem__) is None
    assert ancestry("other~a", "s", right, sessions.__getitem__) is None
    assert ancestry("s", "s", right, sessions.__getitem__) is None
    root.append("NoteRecorded", kind="n")
    *before, last = root.events
    later = msgspec.structs.replace(last, known=False, ignorable=False)
    with_later = gather([*before, later])
    assert ancestry("s~a", "s", right, lambda _: with_later) is not None
    assert ancestry("s~a", "s", ForkPoint(later.seq, later.hash), lambda _: with_later) is None


def test_forks_that_amendments_make_ancestors_of_each_other_have_none() -> None:
    forks = forks_of_each_other()
    sessions = {name: known(*fork.records, amendment(fork, [stub])) for name, (fork, stub) in forks.items()}
    for fork, _ in forks.values():
        assert len(sessions[fork.session_id].known.choose().hashes) == 3
        assert ancestors(fork, sessions) is None


def test_a_fork_event_that_names_no_place_has_no_origin() -> None:
    fork = SessionBuilder("s").begin().fork(4, "a").events[1]
    parent, at = fork_origin(fork)
    assert (parent, at is not None and at.seq) == ("s", 4)
    for body in ({}, {"parent_session": "s"}, {"parent_session": "s", "parent_at": {"seq": 0, "hash": b""}}):
        fork.body = body
        assert fork_origin(fork)[1] is None
    fork.body = {"parent_session": 7, "parent_at": {"seq": 1, "hash": b""}}
    assert fork_origin(fork) == ("", None)

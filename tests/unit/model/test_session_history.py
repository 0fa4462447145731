"""What a fork takes over from its ancestors, and when there is nothing to take over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from dalsegno.model.history import ForkPoint, Gathered, Prefix, ancestry, fork_origin, gather, state_after
from dalsegno.model.records import CONTROL_SEQ
from dalsegno.testing.builder import SessionBuilder, Written, digest_of, write


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
    """No record can hold the hash of one that holds its own, but a stub has the hash that its amendment gives it."""
    sessions: dict[str, Gathered] = {}
    forks = []
    for name, other in (("s~a", "s~b"), ("s~b", "s~a")):
        fork = SessionBuilder(name)
        at = {"seq": 3, "hash": digest_of("stub of", other), "event_id": None}
        fork.append("SessionCreated", relation="FORK", parent_session=other, parent_at=at)
        fork.append("SessionForked", parent_session=other, parent_at=at)
        tip = fork.tip
        assert tip is not None
        stub = {"seq": 3, "hash": digest_of("stub of", name), "prev_hash": tip.hash, "epoch": 0, "type": "NoteRecorded"}
        sessions[name] = known(*fork.records, amendment(fork, [stub]))
        forks.append(fork)
    for fork in forks:
        assert len(sessions[fork.session_id].known.choose().hashes) == 3
        assert ancestors(fork, sessions) is None


def test_a_fork_event_that_names_no_place_has_no_origin() -> None:
    fork = SessionBuilder("s").begin().fork(4, "a").events[1]
    parent, at = fork_origin(fork)
    assert (parent, at is not None and at.seq) == ("s", 4)
    for body in ({}, {"parent_session": "s"}, {"parent_session": "s", "parent_at": {"seq": 0, "hash": b""}}):
        fork.body = body
        assert fork_origin(fork)[1] is None

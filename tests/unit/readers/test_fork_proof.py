"""Attacks on a fork, and on what it takes over from its parent and its parent's parent: each is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno.model.records import FIRST_SEQ
from dalsegno.readers.local import View
from dalsegno.readers.proof import Proof
from dalsegno.readers.proof_records import CUT_MIDDLE, CUT_TAIL, FORGED, STRIPPED, SWAPPED, UNAUDITED
from dalsegno.readers.proving import prove_line
from dalsegno.testing.builder import SessionBuilder, Written, digest_of, tombstone
from dalsegno.testing.memory_log import MemoryLog
from history_lab import NO_AUDIT, again, audited, chain, raw_again
from reader_lab import PREFIX, House

Family = dict[str, list[Written]]
LEFT = {"s-1": 7, "s-1~a": 6}
"""Where each session was left by the next."""


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path) as found:
        yield found


def more(builder: SessionBuilder, count: int) -> SessionBuilder:
    for number in range(count):
        builder.append("MessageReceived", message_id=f"x{number}", role="USER", parts=[])
    return builder


def builders() -> list[SessionBuilder]:
    """A session of 12 events; a fork of it behind seq 7, of 9 events; a fork of that one behind its seq 6."""
    root = chain()
    child = more(root.fork(LEFT["s-1"], "a"), 7)
    return [root, child, more(child.fork(LEFT["s-1~a"], "b"), 4)]


def family() -> Family:
    return {each.session_id: list(each.records) for each in builders()}


def proved(records: Family, session_id: str = "s-1~b", view: View | None = None, audit: Any = NO_AUDIT) -> list[Proof]:
    log = MemoryLog(partitions=1)
    for record in (record for session in records.values() for record in session):
        log.put(f"{PREFIX}.events", 0, record.key, record.value)
    return prove_line(log.connect(), PREFIX, session_id, audit, view)


def kinds(proofs: list[Proof]) -> set[tuple[str, str]]:
    return {(proof.session_id, doubt.kind) for proof in proofs for doubt in proof.doubts}


def swap(records: list[Written], seq: int) -> list[Written]:
    one, other = records[seq - 2], records[seq - 1]
    return [*records[: seq - 2], one._replace(value=other.value), other._replace(value=one.value), *records[seq:]]


def forge(records: list[Written], seq: int) -> list[Written]:
    return [*records[: seq - 1], again(records[seq - 1], actor_id="somebody else"), *records[seq:]]


def strip_key(records: list[Written], seq: int) -> list[Written]:
    return [*records[: seq - 1], records[seq - 1]._replace(key=records[seq - 1].key[:-64]), *records[seq:]]


def strip_prev_hash(records: list[Written], seq: int) -> list[Written]:
    return [*records[: seq - 1], raw_again(records[seq - 1], prev_hash=None), *records[seq:]]


ATTACKS: dict[str, tuple[str, Callable[[list[Written], int], list[Written]]]] = {
    "cut in the middle": (CUT_MIDDLE, lambda records, seq: [*records[: seq - 2], *records[seq - 1 :]]),
    "cut at the end": (CUT_TAIL, lambda records, seq: records[: seq - 1]),
    "swapped": (SWAPPED, swap),
    "the last one forged": (FORGED, forge),
    "stripped of its hash": (STRIPPED, strip_key),
    "stripped of its predecessor's": (STRIPPED, strip_prev_hash),
}


def test_an_untouched_line_has_no_doubt_and_each_of_it_is_looked_at() -> None:
    proofs = proved(family())
    assert [(proof.session_id, proof.records) for proof in proofs] == [("s-1~b", 6), ("s-1~a", 9), ("s-1", 12)]
    assert [(proof.doubts, proof.unproven) for proof in proofs] == [((), ())] * 3
    assert len(proved(family(), "s-1")) == 1


@pytest.mark.parametrize("name", list(ATTACKS))
@pytest.mark.parametrize("ancestor", list(LEFT))
def test_each_attack_on_what_a_fork_takes_over_is_named_without_anybody_who_knows_the_end(
    ancestor: str, name: str
) -> None:
    """The fork knows where it left its parent; also where nothing of the parent stands behind that."""
    kind, attack = ATTACKS[name]
    for behind in (True, False):
        records = family()
        end = len(records[ancestor]) if behind and kind != CUT_TAIL else LEFT[ancestor]
        records[ancestor] = attack(records[ancestor][:end], LEFT[ancestor])
        assert (ancestor, kind) in kinds(proved(records))
    below = ["s-1~a"] if ancestor == "s-1" else []
    assert all(kinds(proved(records, session_id)) for session_id in below), "every fork that takes it over"
    assert not kinds(proved(family(), ancestor))


def test_no_record_of_a_prefix_can_go_or_change() -> None:
    def gone(records: list[Written], seq: int) -> list[Written]:
        return [*records[: seq - 1], *records[seq:]]

    for ancestor, left in LEFT.items():
        for seq in range(FIRST_SEQ, left + 1):
            for attack in (gone, forge, strip_key):
                records = family()
                records[ancestor] = attack(records[ancestor], seq)
                assert any(session == ancestor for session, _ in kinds(proved(records))), (ancestor, seq, attack)


@pytest.mark.parametrize("name", list(ATTACKS))
def test_each_attack_on_a_forks_own_records_is_named_beside_a_shard(house: House, name: str) -> None:
    kind, attack = ATTACKS[name]
    records = family()
    house.shard([record for session in records.values() for record in session])
    view = house.reader().of_session("s-1~b")
    assert kinds(proved(records, view=view)) == set()
    records["s-1~b"] = attack(records["s-1~b"], 6)
    assert ("s-1~b", kind) in kinds(proved(records, view=view))


@pytest.mark.parametrize("seq", [1, 2])
@pytest.mark.parametrize("name", ["swapped", "the last one forged", "stripped of its hash"])
def test_the_two_events_that_make_it_a_fork_are_no_weaker_than_the_others(name: str, seq: int) -> None:
    records = family()
    records["s-1~b"] = ATTACKS[name][1](records["s-1~b"], max(seq, 2) if name == "swapped" else seq)
    assert any(session == "s-1~b" for session, _ in kinds(proved(records)))


def test_what_stands_behind_the_place_where_it_was_left_is_no_matter_of_the_fork() -> None:
    records = family()
    records["s-1"] = forge(records["s-1"], 10)
    assert kinds(proved(records)) == set()
    assert kinds(proved(records, "s-1")) == {("s-1", FORGED)}


def test_a_parent_that_is_gone_is_a_cut_and_a_lost_branch_is_none() -> None:
    records = family()
    records["s-1"] = []
    assert kinds(proved(records)) == {("s-1", CUT_TAIL)}
    root = chain()
    rival = root.branch(4, writer="rival/1/b")
    rival.recover()
    more(rival, 1)
    fork = root.fork(7, "a")
    branched = {"s-1": [*root.records, *rival.records[4:]], "s-1~a": fork.records}
    proofs = proved(branched, "s-1~a")
    assert proofs[1].path.head.seq == 6, "the parent's path is the rival's"
    assert kinds(proofs) == set()


def test_an_amendment_of_the_parent_counts_if_the_audit_knows_it() -> None:
    root, child, grandchild = builders()
    gone = root.records[3]
    amended = root.amend([gone])
    records = {"s-1": [*root.records, amended, tombstone(gone)], "a": child.records, "b": grandchild.records}
    assert kinds(proved(records, audit=audited(amended))) == set()
    assert kinds(proved(records)) == {("s-1", UNAUDITED)}


def test_what_cannot_be_looked_into_is_said() -> None:
    root = chain()
    erased = root.amend(whole_session=True)
    fork = root.fork(7, "a")
    proofs = proved({"s-1": [*root.records, erased], "a": fork.records}, "s-1~a", audit=audited(erased))
    assert kinds(proofs) == set()
    assert proofs[1].unproven == ("the path ends before seq 1: ERASED",)
    stray = SessionBuilder("s-1~z")
    at = {"seq": FIRST_SEQ, "hash": digest_of("x"), "event_id": None}
    for type_ in ("SessionCreated", "SessionForked"):
        stray.append(type_, parent_session="other", parent_at=at)
    (proof,) = proved({"z": stray.records}, "s-1~z")
    assert "no place in a session of its root, but 'other'" in proof.unproven[0]

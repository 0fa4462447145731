"""Which records an amendment of some seqs names, what follows from it, and what is refused."""

from __future__ import annotations

import pytest

from dalsegno.errors import Conflict, DalsegnoError, NotFound, Usage
from dalsegno.log.codec import place
from dalsegno.model.amending import TARGETS_MAX, UNKNOWN, Intended, intend
from dalsegno.model.path import GAP, Held
from dalsegno.model.records import UNDECODABLE, UNKNOWN_SCHEMA, Event, Unreadable
from dalsegno.testing.builder import Written, shipped_schemas
from history_lab import SESSION, again, chain


def known(records: list[Written], dark: dict[int, str] | None = None) -> list[Event | Unreadable]:
    """What a reader has of these records; ``dark``: by seq, why one cannot be read."""
    found: list[Event | Unreadable] = []
    for record in records:
        event = record.event
        if event is None:
            continue
        reason = (dark or {}).get(event.seq)
        found.append(event if reason is None else Unreadable(event.key, reason))
    return found


def ask(records: list[Event | Unreadable], first: int, last: int | None = None, action: str = "SKIPPED") -> Intended:
    return intend(SESSION, records, first, last or first, action)


def test_a_record_of_the_path_is_named_by_its_own_link() -> None:
    records = chain().records
    found = ask(known(records), 5, 7)
    assert [target.link for target in found.targets] == [
        record.event.link for record in records[4:7] if record.event is not None
    ]
    assert {target.type for target in found.targets} == {"MessageReceived"}
    assert found.after == found.before, "the chain stays what it was"


@pytest.mark.parametrize("reason", [UNKNOWN_SCHEMA, UNDECODABLE])
@pytest.mark.parametrize("seq", [1, 5, 12])
def test_a_record_that_holds_its_session_is_placed_behind_the_path(reason: str, seq: int) -> None:
    records = chain().records
    found = ask(known(records, {seq: reason}), seq)
    (target,) = found.targets
    event = records[seq - 1].event
    assert event is not None
    assert target.link == event.link
    assert target.type == UNKNOWN
    assert found.before.held == Held(reason, seq)
    assert found.after.held is None
    assert found.after.head.seq == 12


def test_a_lost_record_is_known_by_the_one_that_follows_it() -> None:
    records = chain().records
    lost = records[4].event
    assert lost is not None
    found = ask(known(records[:4] + records[5:]), 5, action="LOST")
    (target,) = found.targets
    assert target.link == lost.link
    assert found.before.held == Held(GAP, 5)
    assert (found.after.held, found.after.head.seq) == (None, 12)


def test_of_several_lost_ones_nobody_knows_all_hashes() -> None:
    records = chain().records
    with pytest.raises(Conflict, match=r"seq 5.*none behind it that names its hash"):
        ask(known(records[:4] + records[6:]), 5, 6, "LOST")


def test_an_event_of_a_replaced_writer_and_a_forged_one_can_be_stepped_over() -> None:
    builder = chain(5)
    builder.recover()
    last = builder.append("MessageReceived", message_id="m", role="USER")
    stale = again(last, epoch=0)
    placed = place(shipped_schemas(), stale.key, stale.value, 0, 1)
    assert isinstance(placed, Event)
    found = ask([*known(builder.records[:-1]), placed], 7)
    (target,) = found.targets
    assert (target.link.hash, target.link.epoch) == (placed.hash, 1), "its place needs the epoch of its predecessor"
    assert found.after.held is None
    assert found.after.head.seq == 7


def test_what_the_next_record_names_is_meant_where_several_stand() -> None:
    builder = chain()
    rival = builder.branch(4, writer="rival/1/b")
    rival.append("MessageReceived", message_id="r", role="USER")
    dark = known(builder.records, {5: UNDECODABLE})
    other = rival.records[-1].event
    assert other is not None
    found = ask([*dark, Unreadable(other.key, UNDECODABLE)], 5)
    assert found.targets[0].link.hash == builder.records[4].event.hash  # type: ignore[union-attr]
    # At the end nothing names either of them.
    with pytest.raises(Conflict, match="several records there"):
        ask([*known(builder.records[:5], {5: UNDECODABLE}), Unreadable(other.key, UNDECODABLE)], 5)


REFUSED: list[tuple[int, int, str, type[DalsegnoError], str]] = [
    (13, 13, "SKIPPED", NotFound, "no seq 13: the last one known is 12"),
    (11, 14, "SKIPPED", NotFound, "no seq 13"),
    (5, 5, "LOST", Conflict, "seq 5: session s-1 has a record there"),
    (3, 3, "SKIPPED", Conflict, "seq 3: session s-1 is amended there already: SKIPPED"),
    (2, 4, "SKIPPED", Conflict, "seq 3: session s-1 is amended there already"),
    (0, 0, "SKIPPED", Usage, "seq 0 to 0"),
    (5, 4, "SKIPPED", Usage, "seq 5 to 4"),
    (1, TARGETS_MAX + 1, "SKIPPED", Usage, "at most 5000"),
]


@pytest.mark.parametrize(("first", "last", "action", "kind", "text"), REFUSED, ids=lambda each: str(each)[:30])
def test_what_is_refused(first: int, last: int, action: str, kind: type[DalsegnoError], text: str) -> None:
    builder = chain()
    amended = builder.amend([builder.records[2]], action="SKIPPED")
    with pytest.raises(kind) as caught:
        ask(known([*builder.records, amended]), first, last, action)
    assert text in str(caught.value)


def test_a_gap_is_not_stepped_over_and_what_lies_behind_one_waits_for_it() -> None:
    records = chain().records
    holed = known(records[:4] + records[5:])
    with pytest.raises(Conflict, match="has no record there"):
        ask(holed, 5)
    with pytest.raises(Conflict, match="is held at seq 5, below it"):
        ask(holed, 9)


def test_an_erased_session_is_not_amended_again() -> None:
    builder = chain()
    with pytest.raises(Conflict, match="was erased as a whole"):
        ask(known([*builder.records, builder.amend(whole_session=True)]), 5)

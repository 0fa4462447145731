"""A session's whole history through forks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dalsegno.errors import NotFound
from dalsegno.log.schema_set import SchemaSet
from dalsegno.readers.lineage import ancestors, forks_of, history_events
from dalsegno.readers.local import LocalReader
from dalsegno.readers.sessions import find_session
from dalsegno.testing.builder import SessionBuilder, Written, write
from history_lab import forks_of_each_other
from log_samples import toy, writer_of
from reader_lab import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path) as found:
        yield found


def turn(builder: SessionBuilder, name: str) -> None:
    builder.append("TurnStarted", turn_id=name)
    builder.append("TurnCompleted", turn_id=name)


def family() -> tuple[SessionBuilder, SessionBuilder, SessionBuilder]:
    """A session of four events and three turns; a fork that leaves it behind its first turn; a fork of that one."""
    root = SessionBuilder("s-1", profile="OBSERVED").begin()
    for name in ("t1", "t2", "t3"):
        turn(root, name)
    at = len(root.records) - 4
    child = root.fork(at, "a")
    turn(child, "x1")
    turn(child, "x2")
    grandchild = child.fork(4, "b")
    turn(grandchild, "y")
    return root, child, grandchild


def places(house: House, session_id: str) -> list[tuple[str, int]]:
    return [(event.session_id, event.seq) for event in history_events(house.reader(), session_id)]


def records(*builders: SessionBuilder) -> list[Written]:
    return [record for builder in builders for record in builder.records]


def own(session_id: str, last: int) -> list[tuple[str, int]]:
    return [(session_id, seq) for seq in range(1, last + 1)]


def test_the_history_of_a_fork_of_a_fork_is_its_own_line(house: House) -> None:
    """Not the parent's later events, and nothing twice: the prefix is read where it stands, it is not copied."""
    root, child, grandchild = family()
    house.shard(records(root, child, grandchild))
    start = len(root.records) - 6
    assert places(house, "s-1") == own("s-1", start + 6)
    assert places(house, "s-1~a") == [*own("s-1", start + 2), *own("s-1~a", 6)]
    assert places(house, "s-1~b") == [*own("s-1", start + 2), *own("s-1~a", 4), *own("s-1~b", 4)]
    turns = [event.body["turn_id"] for event in history_events(house.reader(), "s-1~b") if event.type == "TurnStarted"]
    assert turns == ["t1", "x1", "y"]


def test_without_a_record_of_its_parent_a_fork_has_no_history_behind_its_first_event(house: House) -> None:
    root, child, _ = family()
    house.shard([*root.records[:2], *root.records[3:], *child.records])
    assert places(house, "s-1~a") == [("s-1~a", 1)]
    with pytest.raises(NotFound):
        places(house, "s-9")


def test_events_of_a_schema_that_only_the_log_has_are_read_with_it_and_none_comes_twice(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = writer_of(toy(1, {"name": "x", "type": "string"}, name="FromElsewhere"))
    knowing = SchemaSet.load()
    knowing.add(foreign.json)
    root, child, _ = family()
    assert child.tip is not None
    envelope = child.envelope(child.tip.seq + 1, child.tip.hash, "FromElsewhere") | {"ignorable": True}
    house.shard([*records(root, child), write(foreign, envelope, {})], schemas=knowing)
    asked: list[LocalReader] = []

    def learn(reader: LocalReader) -> int:
        asked.append(reader)
        reader._schemas.add(foreign.json)
        return 1

    monkeypatch.setattr(LocalReader, "learn_schemas", learn)
    found = list(history_events(house.reader(), "s-1~a"))
    assert [event.seq for event in found[-7:]] == list(range(1, 8))
    assert (found[-1].type, len(asked), len({event.hash for event in found})) == ("FromElsewhere", 1, len(found))


def test_lineage_is_known_both_ways(house: House) -> None:
    root, child, grandchild = family()
    start = len(root.records) - 6
    early = root.fork(1, "early")
    alone = SessionBuilder("s-10", profile="OBSERVED").begin()
    house.shard(records(root, child, grandchild, early, alone))
    reader = house.reader()

    def lines(session_id: str) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        found = find_session(reader, session_id)
        forks = [(fork.session_id, seq) for fork, seq in forks_of(found)]
        return [(each.session, each.seq) for each in ancestors(found)], forks

    assert lines("s-1") == ([], [("s-1~a", start + 2), ("s-1~b", start + 2), ("s-1~early", 1)])
    assert lines("s-1~a") == ([("s-1", start + 2)], [("s-1~b", 4)])
    assert lines("s-1~b") == ([("s-1~a", 4), ("s-1", start + 2)], [])
    assert lines("s-1~early") == ([("s-1", 1)], [])
    assert lines("s-10") == ([], [])


def test_forks_that_amendments_make_ancestors_of_each_other_have_none(house: House) -> None:
    house.shard(records(*(fork for fork, _ in forks_of_each_other().values())))
    reader = house.reader()
    for name in ("s~a", "s~b"):
        found = find_session(reader, name)
        assert found.row.held_reason == "PARENT_MISSING"
        assert ancestors(found) == []
        assert [event.seq for event in history_events(reader, name)] == [1]

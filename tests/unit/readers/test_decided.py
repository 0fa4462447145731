"""The decider's rows at any event of a session: what is folded for them, and where a fork's come from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno.errors import NotFound
from dalsegno.model.history import counting
from dalsegno.projections.decider.fold import fold_event
from dalsegno.projections.decider.table import MemoryRows
from dalsegno.readers import decided
from dalsegno.readers.decided import rows_at
from dalsegno.state.folding import Folder
from dalsegno.state.ladder import WINDOW_EVENTS
from dalsegno.testing.builder import SessionBuilder
from reader_lab import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path) as found:
        yield found


@pytest.fixture
def folds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every event that is folded, by the shard's folds or by the decider's alone."""
    found: list[str] = []
    of_shard, of_decider = Folder.fold, decided.fold_event

    def counted(self: Folder, session: Any, event: Any) -> Any:
        found.append(event.type)
        return of_shard(self, session, event)

    def counted_alone(rows: Any, event: Any) -> None:
        found.append(event.type)
        of_decider(rows, event)

    monkeypatch.setattr(Folder, "fold", counted)
    monkeypatch.setattr(decided, "fold_event", counted_alone)
    return found


def talk(events: int, profile: str = "STRICT") -> SessionBuilder:
    builder = SessionBuilder("s", profile=profile).begin()
    turn = 0
    while len(builder.records) < events - 1:
        turn += 1
        builder.append("TurnStarted", turn_id=f"t{turn}")
        builder.append("TurnCompleted", turn_id=f"t{turn}")
    return builder


def turns(rows: MemoryRows) -> int:
    assert rows.head_row is not None
    return rows.head_row.turns


def test_at_the_end_nothing_is_folded_and_anywhere_else_at_most_a_window(house: House, folds: list[str]) -> None:
    talked = talk(5 * WINDOW_EVENTS + 100)
    house.shard(talked.records)
    reader = house.reader()
    folds.clear()
    last = len(talked.records)
    assert turns(rows_at(reader, "s")) == sum(event.type == "TurnStarted" for event in talked.events)
    assert folds == []
    for seq in (1, WINDOW_EVENTS, WINDOW_EVENTS + 1, 3 * WINDOW_EVENTS - 1, last - 1):
        folds.clear()
        started = sum(event.type == "TurnStarted" for event in talked.events[:seq])
        assert turns(rows_at(reader, "s", seq)) == started
        assert 0 < len(folds) <= WINDOW_EVENTS


def test_of_a_fork_its_own_events_are_folded_on_top(house: House, folds: list[str]) -> None:
    talked = talk(4 * WINDOW_EVENTS)
    at = next(event.seq for event in talked.events[2 * WINDOW_EVENTS + 50 :] if event.type == "TurnCompleted")
    fork = talked.fork(at, "a")
    fork.append("TurnStarted", turn_id="x1")
    fork.append("TurnCompleted", turn_id="x1")
    other = fork.fork(4, "b")
    other.append("MessageReceived", message_id="m", role="USER", parts=[])
    house.shard([*talked.records, *fork.records, *other.records])
    reader = house.reader()
    folds.clear()
    rows = rows_at(reader, other.session_id)
    started = sum(event.type == "TurnStarted" for event in talked.events[:at]) + 1
    assert (turns(rows), rows.head_row and rows.head_row.forks) == (started, 2)
    assert "m:m" in rows.family("item")
    assert len(folds) <= WINDOW_EVENTS + 4 + len(other.records)


def test_a_fork_goes_on_from_what_its_parent_left_behind(house: House) -> None:
    """Another writer took the parent over below the fork point: that is not on its path any more."""
    talked = talk(30)
    rival = talked.branch(16, writer="other")
    fork = talked.fork(len(talked.records), "a")
    rival.recover()
    house.shard([*talked.records, *fork.records, *rival.records[16:]])
    reader = house.reader()
    assert turns(rows_at(reader, "s")) < turns(rows_at(reader, fork.session_id))
    whole = MemoryRows()
    for event in counting(reader.of_session("s").reads.history(fork.session_id)):
        fold_event(whole, event)
    assert dict(rows_at(reader, fork.session_id).all()) == dict(whole.all())


def test_a_session_that_was_decided_elsewhere_is_folded_from_its_start(house: House) -> None:
    talked = talk(40, profile="OBSERVED")
    house.shard(talked.records)
    reader = house.reader()
    assert list(reader.of_session("s").reads.rows("decider", "s")) == []
    assert turns(rows_at(reader, "s")) == sum(event.type == "TurnStarted" for event in talked.events)


def test_a_place_that_the_path_lacks_is_said_to_be_missing(house: House) -> None:
    house.shard(talk(12).records)
    for session, seq in (("s", 0), ("s", 99), ("s~a", None)):
        with pytest.raises(NotFound):
            rows_at(house.reader(), session, seq)

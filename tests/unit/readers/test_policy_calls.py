"""Tool calls of chosen sessions, read from shards: which, in which order, and how many are in memory at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from dalsegno.errors import NotFound
from dalsegno.orchestration.documents import Policy
from dalsegno.orchestration.policy_effects import Backtest
from dalsegno.orchestration.policy_history import RecordedCall
from dalsegno.readers.datasets.choosing import Wanted
from dalsegno.readers.policy_calls import RecordedCalls
from dalsegno.storage.blobs import Blobs
from dalsegno.testing.builder import Written
from policy_lab import Calls
from reader_lab import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path) as found:
        yield found


def reading(house: House, wanted: Wanted | None = None) -> RecordedCalls:
    return RecordedCalls(house.reader(), Blobs(house.store), wanted or Wanted(), lambda _: None)


def sessions(count: int) -> list[Written]:
    return [
        record
        for n in range(count)
        for record in Calls(f"s-{n:02}").asked("a").ran("a").asked("b", "web").rejected("b", "POLICY_DENY").records
    ]


def test_no_more_calls_are_in_memory_with_more_sessions(house: House) -> None:
    house.shard(sessions(24))
    calls, tally = reading(house), Backtest(Policy(), 2)
    most, sizes = 0, set[int]()
    for call in calls:
        tally.add(call)
        if calls.sessions in (4, 14, 24) and call.call_id == "b":  # all objects of the process are looked at
            gc.collect()
            most = max(most, sum(type(each) is RecordedCall for each in gc.get_objects()))
            sizes.add(sum(len(cell["examples"]) for cell in tally.as_data()["cells"]))
    assert calls.sessions == 24
    assert most == 1, "only the call that is looked at"
    assert sizes == {4}, "two examples of each of two cells"


def test_the_order_is_that_of_ids_and_each_call_comes_once(house: House) -> None:
    parent = Calls("s-1").asked("a").ran("a").add("ToolReceiptRecorded", tool_call_id="a", status="OK", receipt_id="r")
    fork = parent.fork("f").asked("b").ran("b")
    other = Calls("s-0").asked("a").ran("a")
    house.shard([*other.records, *parent.records, *fork.records])
    found = [(call.session_id, call.call_id) for call in reading(house)]
    assert found == [("s-0", "a"), ("s-1", "a"), (fork.builder.session_id, "b")]
    assert [call.session_id for call in reading(house, Wanted(ids=("s-0",)))] == ["s-0"]


def test_a_call_that_breaks_a_rule_is_none(house: House) -> None:
    session = Calls("s-1").asked("a").add("SessionCompleted", outcome="SUCCESS", open_ops=["a"]).asked("b")
    assert session.builder.verdicts[-1].violations
    house.shard(session.records)
    assert [call.call_id for call in reading(house)] == ["a"]


def test_arguments_come_from_the_store_or_are_missing(house: House) -> None:
    large = b'{"text": "%s"}' % (b"x" * 70_000)
    kept = Blobs(house.store).put(large, "application/json")
    stored = {name: getattr(kept, name) for name in kept.__struct_fields__}
    lost = {**stored, "digest": b"l" * 32, "uri": f"blob:{(b'l' * 32).hex()}"}
    session = Calls("s-1")
    session.add("ToolCallRequested", tool_call_id="a", name="write", arguments=stored)
    session.add("ToolCallRequested", tool_call_id="b", name="write", arguments=lost)
    house.shard(session.records)
    first, second = reading(house)
    assert (first.facts.arguments, first.unfit) == (large, None)
    assert (second.facts.arguments, second.unfit) == (b"", "ARGUMENTS_MISSING")


def test_a_held_session_is_read_up_to_there_and_counted(house: House) -> None:
    session = Calls("s-1").asked("a").ran("a").asked("b").ran("b")
    house.shard([*session.records[:-2], session.records[-1], *Calls("s-2").asked("c").records])
    calls = reading(house)
    assert [(call.call_id, call.then) for call in calls] == [("a", "ran"), ("b", "open"), ("c", "open")]
    assert (calls.sessions, calls.held) == (2, 1)


def test_that_no_session_is_chosen_is_an_error(house: House) -> None:
    house.shard(sessions(1))
    with pytest.raises(NotFound, match="no session is chosen"):
        list(reading(house, Wanted(status="FAILED")))

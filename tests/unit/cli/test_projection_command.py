"""`dalsegno projection`: the list follows the registry; rows per session, single rows, sums over partitions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dalsegno.model.ids import partition_of
from dalsegno.projections import registry
from dalsegno.testing.builder import SessionBuilder
from reader_lab import PREFIX, House

Say = Callable[..., tuple[str, str]]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path, partitions=2) as found:
        yield found


def session(name: str, calls: int) -> SessionBuilder:
    builder = SessionBuilder(name, profile="OBSERVED").begin()
    for number in range(calls):
        builder.append("InferenceRequested", inference_id=f"i{number}", provider="p", model="m")
        builder.append("InferenceCompleted", inference_id=f"i{number}", model="m")
        builder.append("ToolCallRequested", tool_call_id=f"c {number}", name="run")
    return builder


@pytest.fixture
def two(house: House) -> None:
    for name, calls in (("s-1", 3), ("s-3", 2)):
        house.shard(session(name, calls).records, partition=partition_of(name, 2))


def test_the_list_is_the_registry(say: Say) -> None:
    listed = json.loads(say("-o", "json", "projection", "list")[0])
    assert {row["projection"]: row["version"] for row in listed} == {
        each.name: each.version for each in registry.chosen()
    }
    topics = {row["projection"]: row["topic"] for row in listed}
    assert topics["tools"] == f"{PREFIX}.projection.tools.v{registry.chosen(['tools'])[0].version}"
    assert "every event type" in say("projection", "list")[0]


@pytest.mark.usefixtures("two")
def test_rows_of_a_session_and_one_of_them(say: Say) -> None:
    out, err = say("-o", "json", "projection", "get", "tools", "s-1")
    assert [row["id"] for row in json.loads(out)] == [["c 0"], ["c 1"], ["c 2"]]
    assert f"true at p.events:{partition_of('s-1', 2)}@" in err
    (one,) = json.loads(say("-o", "json", "projection", "get", "tools", "s-1", "c 1")[0])
    assert (one["id"], one["name"], one["requested_seq"]) == (["c 1"], "run", json.loads(out)[1]["requested_seq"])
    out, err = say("projection", "get", "tools", "s-1", "--limit", "2")
    assert "c 1" in out
    assert "c 2" not in out
    assert "the first 2; --limit shows more" in err


@pytest.mark.usefixtures("two")
def test_sums_are_added_up_over_partitions(say: Say) -> None:
    out, err = say("-o", "json", "projection", "get", "usage")
    (row,) = json.loads(out)
    assert row["inferences"] == 5
    assert "p" in row["id"]
    assert "0@" in err
    assert "1@" in err


@pytest.mark.usefixtures("two")
def test_wrong_words_say_what_was_wanted(say: Say) -> None:
    assert "there is no projection nothing" in say("projection", "get", "nothing", code=4)[1]
    assert "has rows per session" in say("projection", "get", "tools", code=2)[1]
    assert "is a rollup" in say("projection", "get", "usage", "s-1", code=2)[1]
    assert "has no row c 9 in tools" in say("projection", "get", "tools", "s-1", "c 9", code=4)[1]
    assert "no session 's-9'" in say("projection", "get", "tools", "s-9", code=4)[1]


def test_rows_of_different_shapes_stand_in_one_table(house: House, say: Say) -> None:
    house.shard(SessionBuilder("s-5").begin().records, partition=partition_of("s-5", 2))
    rows = json.loads(say("-o", "json", "projection", "get", "decider", "s-5")[0])
    assert {tuple(row["id"][:1]) for row in rows} >= {(), ("pin",), ("item",)}
    out = say("projection", "get", "decider", "s-5")[0]
    assert "RUNNING" in out
    assert "HARNESS_BUILD" in out

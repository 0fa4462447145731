"""Which snapshot is meant by the beginning of an id, and what is said where none or several are."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.cli import common
from dalsegno.cli.common import full_target, one_snapshot
from dalsegno.errors import NotFound, Usage
from dalsegno.replay.target import parse_target
from dalsegno.snapshots.catalog import Catalog

SHARD = "ab12" + "0" * 60
NAMED = ["20261129-193000-1a2b", "20261129-193000-1a2c", "20261130-070000-ffff"]
ANY: Any = object()
FOUND = Catalog(pointers={SHARD: ANY}, named=dict.fromkeys(NAMED, ANY))


@pytest.mark.parametrize(
    ("given", "meant"),
    [("20261130", NAMED[2]), (NAMED[0], NAMED[0]), ("ab1", SHARD), (SHARD, SHARD), (f"{SHARD[:59]}…", SHARD)],
)
def test_the_beginning_of_an_id_is_enough(given: str, meant: str) -> None:
    assert one_snapshot(given, FOUND) == meant


def test_several_are_named() -> None:
    with pytest.raises(Usage, match=f"20261129 begins 2 ids: {NAMED[1]}, {NAMED[0]}; wanted"):
        one_snapshot("20261129", FOUND)


@pytest.mark.parametrize("given", ["x", "", "…", f"{SHARD}0"])
def test_none_names_those_that_there_are_newest_first(given: str) -> None:
    with pytest.raises(NotFound) as caught:
        one_snapshot(given, FOUND)
    assert caught.value.todo == f"there are: {', '.join([*NAMED[::-1], SHARD])}"


def test_of_many_some_are_named() -> None:
    many = Catalog(pointers={}, named={f"2026-{n}": ANY for n in range(9)})
    with pytest.raises(NotFound, match="there are: 2026-8, 2026-7, 2026-6, 2026-5, 2026-4 and 4 more"):
        one_snapshot("x", many)
    with pytest.raises(NotFound, match="there is no snapshot yet"):
        one_snapshot("x", Catalog({}, {}))


def test_a_shard_snapshot_is_not_meant_where_only_named_ones_can_be() -> None:
    with pytest.raises(NotFound):
        one_snapshot("ab12", FOUND, named=True)


def test_the_place_to_replay_from_is_kept_with_the_whole_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "read_catalog", lambda *_: FOUND)
    assert str(full_target(_Context, parse_target("snapshot:20261130"))) == f"snapshot:{NAMED[2]}"  # type: ignore[arg-type]
    assert str(full_target(ANY, parse_target("latest-snapshot"))) == "latest-snapshot"


class _Context:
    kafka = prefix = None

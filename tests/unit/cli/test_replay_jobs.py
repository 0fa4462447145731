"""Sessions replayed by several processes: the same answers in the same order as by one, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dalsegno.cli import replaying
from dalsegno.cli.replay_jobs import FEW_SESSIONS, jobs_for, spread
from dalsegno.errors import Failed, NotReconstructable
from dalsegno.replay.replayed import Replayed
from reader_lab import House
from replay_lab import altered, decided, dying, failing, records_of

Say = Callable[..., tuple[str, str]]
MODE = ("replay", "run", "--mode", "inference-skipping", "--all")


@pytest.fixture
def twelve(house: House) -> House:
    records = []
    for number in range(12):
        events = altered(decided()) if number == 7 else decided()
        records += records_of(f"s-{number:02}", events).records
    house.shard(records)
    return house


@pytest.mark.usefixtures("twelve")
def test_two_processes_answer_as_one_does_in_the_same_order(say: Say) -> None:
    alone, _ = say("-o", "json", *MODE, "--jobs", "1", code=3)
    together, err = say("-o", "json", *MODE, "--jobs", "2", code=3)
    assert together == alone
    found = json.loads(together)
    assert [each["session"] for each in found] == [f"s-{number:02}" for number in range(12)]
    assert [each["session"] for each in found if each["verdict"] != "EQUAL"] == ["s-07"]
    assert found[7]["divergences"][0]["type"] == "PolicyEvaluated"
    assert "true at" in err


def test_few_sessions_are_replayed_here_and_more_on_every_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert [jobs_for(None, count) for count in (1, FEW_SESSIONS, FEW_SESSIONS + 1)] == [1, 1, 4]
    assert [jobs_for(6, 2), jobs_for(6, 0), jobs_for(3, 100)] == [2, 1, 3]


@pytest.mark.usefixtures("twelve")
def test_an_interrupted_replay_shows_no_half_result_and_says_how_far_it_was(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay: Any = replaying.replay_session

    def interrupted(asked: Any) -> Replayed:
        if asked.session_id == "s-03":
            raise KeyboardInterrupt
        found: Replayed = replay(asked)
        return found

    monkeypatch.setattr(replaying, "replay_session", interrupted)
    for output in ("text", "json", "jsonl"):
        out, err = say("-o", output, *MODE, "--jobs", "1", code=130)
        assert out == ""
        assert "3 of 12 sessions were replayed" in err
        assert "EQUAL" not in err


def test_more_processes_are_refused_where_somebody_is_asked(house: House, say: Say, tmp_path: Path) -> None:
    house.shard(records_of("s", decided()).records)
    script = tmp_path / "script.yaml"
    script.write_text("- {match: work.1/t1/i, text: done}\n")
    asks = ("--inference", "rerun", "--provider", f"scripted:{script}")
    _, err = say("replay", "run", "--mode", "simulation", "--all", *asks, "--jobs", "2", code=2)
    assert "--jobs 2 where somebody is asked" in err


# --- what a process raises, and one that dies -------------------------------------------------------------------------


def _taken(found: Iterator[Replayed], into: list[str]) -> Sequence[str]:
    for each in found:
        into.append(each.session_id)
    return into


def test_an_error_comes_at_its_place_with_what_it_carries() -> None:
    taken: list[str] = []
    with pytest.raises(NotReconstructable) as caught:
        _taken(spread(failing, "c", ["a", "b", "c", "d"], 2), taken)
    assert taken == ["a", "b"]
    assert (caught.value.found, caught.value.todo, caught.value.data) == ("gone", "look", {"seq": 3})


def test_a_process_that_dies_ends_it_with_an_error() -> None:
    with pytest.raises(Failed, match="a process that replayed sessions ended"):
        _taken(spread(dying, "", ["a", "b"], 2), [])

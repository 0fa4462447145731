"""Replays of sessions by a stored plan, on a real broker: Ctrl-C, the command that goes on, stale, written as forks."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from dalsegno.cli import replaying
from dalsegno.replay.replayed import Replayed
from harness_cli import Cli
from harness_worker import World
from replay_lab import altered, decided, records_of

pytestmark = pytest.mark.broker
NAMES = [f"s-{number}" for number in range(6)]
MODE = ("--mode", "inference-skipping", "--all")


@pytest.fixture
def recorded(world: World) -> World:
    """Six sessions, folded; the fifth was decided otherwise than this build does. A worker goes on."""
    for name in NAMES:
        world.send(records_of(name, altered(decided()) if name == "s-4" else decided()).records)
    world.flush()
    world.start()
    world.settle()
    return world


@pytest.mark.usefixtures("recorded")
def test_a_run_that_ctrl_c_ended_goes_on_by_the_command_that_it_names(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay: Any = replaying.replay_session
    seen: list[str] = []

    def third(asked: Any) -> Replayed:
        if len(seen) == 2:
            signal.raise_signal(signal.SIGINT)
        seen.append(asked.session_id)
        found: Replayed = replay(asked)
        return found

    monkeypatch.setattr(replaying, "replay_session", third)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell began this beside it
    try:
        said = cli("replay", "run", *MODE, "--record", "--jobs", "1", code=130)
    finally:
        signal.signal(signal.SIGINT, before)
    assert said.out == ""
    assert "2 of 6 sessions are replayed and kept" in said.err
    id = said.err.partition("to go on: dalsegno replay run ")[2].split()[0]
    shown = cli("replay", "show", id).json
    assert (shown["state"], len([each for each in shown["sessions"] if each["state"] != "PLANNED"])) == ("STARTED", 2)
    monkeypatch.setattr(replaying, "replay_session", replay)
    whole = cli("replay", "run", *MODE, code=3).json
    assert cli("replay", "run", id, "--jobs", "1", code=3).json == whole
    assert sorted(each["session"] for each in whole) == NAMES
    assert [each["session"] for each in whole if each["verdict"] != "EQUAL"] == ["s-4"]
    assert [(each["id"], each["state"]) for each in cli("replay", "list").json] == [(id, "COMPLETED")]


def test_a_plan_is_carried_out_as_forks_and_is_stale_when_a_session_went_on(recorded: World, cli: Cli) -> None:
    Path(recorded.folder / "same.yaml").write_text("{name: same}")
    options = ("--mode", "full", "--session", "s-0", "--policy", recorded.folder / "same.yaml")
    one, two = (cli("replay", "plan", *options).json["id"] for _ in range(2))
    [found] = cli("replay", "run", one).json
    assert found["verdict"] == "EQUAL"
    assert found["fork"].startswith("s-0~")
    [again] = cli("replay", "run", one).json
    assert again == found, "no second fork is written"
    builder = records_of("s-0", decided())
    before = len(builder.records)
    builder.append("NoteRecorded")
    recorded.send(builder.records[before:])
    recorded.flush()
    recorded.settle()
    said = cli("replay", "run", two, code=5)
    assert "session s-0 ended at seq" in said.err

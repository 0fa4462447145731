"""Groups by the command line: Kafka's words, exactly one of --dry-run and --execute, CSV out and in."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_cli import Cli
from harness_worker import World

pytestmark = pytest.mark.broker


def test_groups_are_listed_described_and_reset(world: World, cli: Cli, tmp_path: Path) -> None:
    cli("group", "describe", code=4)
    world.produce(200)
    worker = world.start()
    world.settle()
    snapshot = cli("snapshot", "take").json["id"]
    shards = {s["partition"]: s["next_offset"] for s in cli("snapshot", "show", snapshot).json["shards"]}
    world.produce(50)
    world.settle()

    listed = {each["group"]: each for each in cli("group", "list").json}
    assert listed[world.group]["own"] is True
    described = cli("group", "describe").json
    assert described["state"] == "STABLE"
    assert described["members"][0]["instance"].startswith(world.group)
    assert {row["partition"]: row["current_offset"] for row in described["offsets"]} == world.ends()
    assert {row["lag"] for row in described["offsets"]} == {0}
    assert {row["generation"] for row in described["offsets"]} == {world.topic_id()}
    head = cli("group", "describe", text=True).out.splitlines()[0].split()
    assert head[:6] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]

    for wrong in ((), ("--dry-run", "--execute")):
        assert "exactly one of them" in cli("group", "reset", "--to-earliest", *wrong, code=2).err
    cli("group", "reset", "--dry-run", code=2)
    cli("group", "reset", "--to-earliest", "--to-offset", "0=1", "--dry-run", code=2)
    cli("group", "reset", "--to-datetime", "2026-01-01T00:00:00", "--dry-run", code=2)
    other = cli("group", "reset", "somebody", "--to-earliest", "--dry-run", code=2)
    assert "kafka-consumer-groups --bootstrap-server" in other.err
    assert "--group somebody --reset-offsets --to-earliest" in other.err
    # In use: planned, but not carried out.
    before = world.committed()
    assert worker.process.poll() is None
    assert "has 1 member" in cli("group", "reset", "--to-earliest", "--execute", code=5).err
    assert world.committed() == before

    worker.stop()
    world.wait_until_group_is_empty()
    before = world.committed()
    text = cli("group", "reset", "--to-snapshot", snapshot[:-1], "--dry-run", text=True).out
    assert text.split()[:7] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET", "LOG-END", "RECORDS"]
    exported = cli("group", "reset", "--to-snapshot", snapshot, "--dry-run", "--export", text=True).out
    assert sorted(exported.splitlines()) == [f"{world.events},{n},{at}" for n, at in sorted(shards.items())]
    long_ago = cli("group", "reset", "--to-datetime", "2020-01-01T00:00:00Z", "--dry-run").json
    assert {part["new_offset"] for part in long_ago["parts"]} == {0}
    future = cli("group", "reset", "--to-datetime", "2099-01-01T00:00:00+02:00", "--dry-run").json
    assert all(part["new_offset"] >= shards[part["partition"]] for part in future["parts"])
    assert world.committed() == before, "a dry run sets nothing"

    file = tmp_path / "offsets.csv"
    file.write_text("nonsense\n")
    assert "line 1" in cli("group", "reset", "--from-file", file, "--dry-run", code=2).err
    file.write_text(exported)
    done = cli("group", "reset", "--from-file", file, "--execute").json
    assert {n: commit.offset for n, commit in world.committed().items()} == shards
    world.start()
    world.settle()
    assert {part["generation"] for _, part in world.holders().values()} == {done["id"]}
    world.check()

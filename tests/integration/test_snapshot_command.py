"""Snapshots by the command line, on a real broker: by running workers, and of this machine's shards without one."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import pytest

from harness_cli import Cli
from harness_worker import World, wait_for

pytestmark = pytest.mark.broker


def cursors(named: dict[str, Any]) -> dict[int, int]:
    return {shard["partition"]: shard["next_offset"] for shard in named["shards"]}


def test_running_workers_are_asked_and_every_partition_is_listed(world: World, cli: Cli) -> None:
    world.produce(300)
    world.start()
    world.settle()
    taken = cli("snapshot", "take", "--reason", "before").json
    assert (taken["complete"], taken["partitions"]) == (True, "2/2")
    shown = cli("snapshot", "show", taken["id"][:-1]).json
    assert cursors(shown) == world.ends()
    assert [each["id"] for each in cli("snapshot", "list").json] == [taken["id"]]
    assert "before" in cli("snapshot", "list", text=True).out
    verdicts = cli("snapshot", "verify", taken["id"]).json
    assert [verdict["good"] for verdict in verdicts] == [True, True]
    details = cli("snapshot", "show", shown["shards"][0]["id"]).json
    assert set(details["projections"]) == {"lifecycle", *(each.name for each in world.projections)}
    cli("snapshot", "show", "nothing", code=4)

    # case C20: one flipped byte, one missing file
    damaged = shown["shards"][0]["id"]
    manifest = world.store / world.prefix / "manifests" / f"{damaged}.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"generation"', b'"generetion"'))
    verdicts = {each["id"]: each["good"] for each in json.loads(cli("snapshot", "verify", taken["id"], code=3).out)}
    assert verdicts == {shard["id"]: shard["id"] != damaged for shard in shown["shards"]}
    manifest.unlink()
    assert "its manifest is missing" in cli("snapshot", "verify", taken["id"], code=3).out


def test_without_a_worker_this_machines_shards_are_taken(world: World, cli: Cli) -> None:
    world.produce(200)
    world.start()
    world.settle()
    world.workers[0].stop()
    world.wait_until_group_is_empty()
    said = cli("snapshot", "take")
    assert "no worker is in the group" in said.err
    assert cursors(cli("snapshot", "show", said.json["id"]).json) == world.ends()
    cli("snapshot", "verify", said.json["id"])
    # The shards were given back: the worker goes on with them.
    world.start()
    world.settle()
    world.check()


def test_partitions_without_an_answer_are_named(world: World, cli: Cli) -> None:
    world.produce(200)
    world.start("a", wait=True)
    world.start("b", wait=True)
    wait_for(lambda: len({worker.data for worker, _ in world.holders().values()}) == 2, "one partition each", 40)
    world.settle()
    silent = next(number for number, (worker, _) in world.holders().items() if worker.data.name == "b")
    slow = world.holders()[silent][0]
    slow.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    try:
        said = cli("snapshot", "take", "--timeout-seconds", "3", code=6)
    finally:
        slow.process.send_signal(signal.SIGCONT)
    assert time.monotonic() - began < 20
    assert f"partitions {silent}: no answer" in said.err
    assert (said.json["complete"], said.json["partitions"]) == (False, "1/2")
    # Such a snapshot is no target for the whole group.
    cli("replay", "plan", "--from", f"snapshot:{said.json['id']}", code=4)


def test_nothing_to_take_is_said(cli: Cli) -> None:
    said = cli("snapshot", "take", code=6)
    assert "no shard on this machine" in said.err
    assert cli("snapshot", "list").json == []


def test_pruning_keeps_named_ones_and_bases(world: World, cli: Cli) -> None:
    world.produce(100)
    world.start()
    world.settle()
    named = cli("snapshot", "take").json["id"]
    listed = {shard["id"] for shard in cli("snapshot", "show", named).json["shards"]}
    for _ in range(2):
        world.produce(60)
        world.settle()
        cli("snapshot", "take", "--reason", "again")
    world.workers[0].stop()
    world.wait_until_group_is_empty()
    everything = {shard["id"] for shard in cli("snapshot", "list", "--shards").json}
    later = [each["id"] for each in cli("snapshot", "list").json if each["id"] != named]
    base = next(iter(sorted(everything - listed)))
    number = next(s["partition"] for s in cli("snapshot", "list", "--shards").json if s["id"] == base)
    world.reset({number: 1}, f"ds1:other:{base}")
    arguments = ["snapshot", "prune", "--keep", "1", *(part for name in later for part in ("--drop", name))]
    dry = cli(*arguments, "--dry-run").json
    assert {shard["id"] for shard in cli("snapshot", "list", "--shards").json} == everything
    cli(*arguments, code=2)  # no terminal, and no --yes
    done = cli(*arguments, "--yes").json
    assert done["shard_snapshots_removed"] == dry["shard_snapshots_removed"] != []
    left = {shard["id"] for shard in cli("snapshot", "list", "--shards").json}
    assert listed | {base} <= left
    assert done["files_removed"] == 0, "nothing is older than a day"
    assert [each["id"] for each in cli("snapshot", "list").json] == [named]
    cli("snapshot", "verify")


def test_a_worker_that_is_new_here_begins_from_the_newest_good_snapshot(world: World, cli: Cli) -> None:
    # case C20: the newest is damaged, so the next older one is used, with equal state
    world.produce(200)
    world.start("a")
    world.settle()
    cli("snapshot", "take")
    world.produce(100)
    world.settle()
    newest = cli("snapshot", "show", cli("snapshot", "take").json["id"]).json["shards"]
    world.workers[0].stop()
    for shard in newest:
        (world.store / world.prefix / "manifests" / f"{shard['id']}.json").write_bytes(b"{}")
    world.produce(50)
    other = world.start("b")
    world.settle()
    assert "snapshot_passed_over" in other.log.read_text()
    world.check()

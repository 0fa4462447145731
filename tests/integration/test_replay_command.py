"""Replays by the command line, on a real broker: plan, refuse, reset, build, switch, end, cancel."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from dalsegno.log import kafka as clients
from dalsegno.log.admin import Committed, describe_group
from dalsegno.model.cursor import parse_metadata
from harness_cli import Cli
from harness_worker import World, wait_for

pytestmark = pytest.mark.broker


def prepared(world: World, cli: Cli) -> str:
    """A snapshot with a tail behind it, and no worker any more. The snapshot's id."""
    world.produce(200)
    world.start()
    world.settle()
    snapshot = str(cli("snapshot", "take").json["id"])
    world.produce(100)
    world.settle()
    world.workers[0].stop()
    return snapshot


def generations(world: World) -> set[str]:
    return {found[0] for commit in world.committed().values() if (found := parse_metadata(commit.metadata))}


def test_a_replay_from_a_snapshot_reads_the_tail_and_changes_nothing(world: World, cli: Cli) -> None:
    snapshot = prepared(world, cli)
    shards = cli("snapshot", "show", snapshot).json["shards"]
    size, ends = world.topic_sizes(), world.ends()
    planned = cli("replay", "plan", "--from", f"snapshot:{snapshot[:-1]}", "--reason", "try").json
    assert planned["from"] == f"snapshot:{snapshot}"
    assert planned["state"] == "PLANNED"
    # The worker that has just stopped is a static member for a while: the run waits until it has left.
    done = cli("replay", "run", planned["id"], "--yes").json
    assert done["state"] == "COMPLETED"
    assert {part["partition"]: part["new_offset"] for part in done["parts"]} == {
        shard["partition"]: shard["next_offset"] for shard in shards
    }
    assert done["records"] == sum(ends[s["partition"]] - s["next_offset"] for s in shards)
    assert [run["state"] for run in done["runs"]] == ["STARTED", "RUNNING", "COMPLETED"]
    assert done["runs"][-1]["records"] == done["records"]
    assert generations(world) == {done["id"]}
    assert world.topic_sizes() == size, "equal rows are not emitted again"
    listed = {each["id"]: each["state"] for each in cli("replay", "list").json}
    assert listed == {planned["id"]: "COMPLETED"}
    world.start()
    world.settle()
    world.check()
    cli("replay", "run", done["id"], "--yes", code=5)


def test_a_group_in_use_is_refused_and_its_members_are_named(world: World, cli: Cli) -> None:
    # case C11
    world.produce(100)
    worker = world.start()
    world.settle()
    before = world.committed()
    said = cli("replay", "run", "--from", "earliest", "--yes", code=5)
    (member,) = describe_group(world.config, world.group).members
    assert member.instance_id is not None
    assert "has 1 member" in said.err
    assert member.instance_id in said.err
    assert world.committed() == before
    worker.stop()
    # Right after it stopped: the static member is waited for, and that is said.
    said = cli("replay", "run", "--from", "earliest", "--yes")
    assert "waiting up to 6 s" in said.err
    assert said.json["state"] == "COMPLETED"
    world.wait_until_group_is_empty()
    world.delete_group()
    # The group is gone altogether ("Dead"): it is made again.
    assert describe_group(world.config, world.group).state == "DEAD"
    assert cli("replay", "run", "--from", "latest-snapshot", "--yes").json["state"] == "COMPLETED"
    world.start()
    world.settle()
    world.check()


def test_a_stale_plan_names_what_changed(world: World, cli: Cli) -> None:
    prepared(world, cli)
    world.wait_until_group_is_empty()
    planned = cli("replay", "plan", "--from", "latest-snapshot").json
    fresh = cli("replay", "plan", "--from", "earliest").json
    (number, commit) = next(iter(world.committed().items()))
    world.reset({number: commit.offset - 1}, commit.metadata)
    said = cli("replay", "run", planned["id"], "--yes", code=5)
    assert f"partition {number}: the committed offset was {commit.offset}" in said.err
    assert cli("replay", "show", planned["id"][:-4]).json["runs"] == []
    assert "there is no replay r1" in cli("replay", "show", "r1", code=4).err
    world.reset({number: commit.offset}, commit.metadata)
    # Back as it was, and a log that has only grown: the plan holds.
    world.produce(40)
    assert cli("replay", "run", fresh["id"], "--yes").json["state"] == "COMPLETED"
    world.start()
    world.settle()
    world.check()


def test_without_a_worker_offsets_are_moved_and_the_run_is_followed(world: World, cli: Cli) -> None:
    prepared(world, cli)
    world.wait_until_group_is_empty()
    moved: dict[int, Committed] = {}

    def start_when_reset() -> None:
        old = {world.topic_id()}
        wait_for(lambda: generations(world) and not generations(world) & old, "the offsets are moved")
        moved.update(world.committed())
        world.start("b")

    helper = threading.Thread(target=start_when_reset)
    helper.start()
    said = cli("replay", "run", "--from", "latest-snapshot", "--yes", "--no-worker", "--timeout-seconds", "60")
    helper.join()
    assert "dalsegno worker run" in said.err
    done = said.json
    assert done["state"] == "COMPLETED"
    assert moved == {
        part["partition"]: Committed(part["new_offset"], f"ds1:{done['id']}:{part['snapshot']}")
        for part in done["parts"]
    }
    shown = cli("replay", "show", done["id"]).json
    assert [part["done"] for part in shown["progress"]] == [True, True]
    world.settle()
    world.check()


def test_a_cancelled_replay_leaves_everything_as_it_was(world: World, cli: Cli) -> None:
    prepared(world, cli)
    world.wait_until_group_is_empty()
    before, size = world.committed(), world.topic_sizes()
    cli("replay", "run", "--from", "earliest", "--yes", "--no-worker", "--timeout-seconds", "0")
    (replay_id,) = generations(world)
    cli("replay", "cancel", replay_id, code=2)
    assert cli("replay", "cancel", replay_id, "--yes").json["state"] == "CANCELLED"
    assert world.committed() == before
    cli("replay", "cancel", replay_id, "--yes", code=5)
    cli("replay", "run", replay_id, "--yes", code=5)
    world.start()
    world.settle()
    assert {part["generation"] for _, part in world.holders().values()} == {world.topic_id()}
    assert world.topic_sizes() == size
    world.check()


def test_a_session_and_an_offset_are_places_to_replay_from(world: World, cli: Cli) -> None:
    prepared(world, cli)
    record = world._builders[0].records[4]
    place = f"session:{record.event.session_id}@{record.event.seq}"
    planned = cli("replay", "plan", "--from", place).json
    (part,) = planned["parts"]
    assert part["new_offset"] <= part["target_offset"] < world.ends()[part["partition"]]
    cli("replay", "plan", "--from", "session:nobody@1", code=4)
    above = world.ends()[0] + 1
    assert "above the state's cursor" in cli("replay", "plan", "--from", f"offset:0={above}", code=2).err
    cli("replay", "plan", "--from", "somewhere", code=2)
    cli("replay", "plan", "--mode", "partial", code=2)
    assert "projection-only" in cli("replay", "plan", "--mode", "partial", "--from", "offset:0=1").err


def cut_log(world: World, number: int, below: int) -> None:
    """Delete records, for which the broker wants another clean-up policy for a moment."""
    client = clients.admin(world.config)

    def policy(value: str) -> None:
        change = ConfigEntry("cleanup.policy", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, world.events, incremental_configs=[change])
        for future in client.incremental_alter_configs([resource]).values():
            future.result(20)

    policy("compact,delete")
    for future in client.delete_records([TopicPartition(world.events, number, below)]).values():
        future.result(20)
    policy("compact")


def test_a_hole_is_refused_with_its_size_and_accepted_only_by_name(world: World, cli: Cli) -> None:
    # case C13
    world.produce(200)
    world.start()
    world.settle()
    cli("snapshot", "take")
    world.workers[0].stop()
    world.wait_until_group_is_empty()
    world.produce(200)
    end = world.ends()
    start = world.committed()[0].offset
    low = (start + end[0]) // 2
    assert start < low < end[0]
    cut_log(world, 0, low)
    said = cli("replay", "run", "--from", "earliest", "--yes", code=5)
    assert f"a hole of {low} offsets" in said.err
    assert f"--accept-hole 0=0..{low}" in said.err
    assert generations(world) == {world.topic_id()}
    # A worker stops as well: it neither jumps to the end nor begins at the log's new start.
    worker = world.start()
    part = wait_for(
        lambda: (found := worker.parts().get(0)) and found["state"] == "STOPPED" and found, "a red partition"
    )
    assert "log-hole" in part["reason"]
    assert part["cursor"] in (None, start)
    worker.stop()
    world.wait_until_group_is_empty()
    cli("replay", "run", "--from", "earliest", "--accept-hole", f"0=1..{low}", "--yes", code=5)
    done = cli("replay", "run", "--from", "earliest", "--accept-hole", f"0=0..{low}", "--yes").json
    assert done["state"] == "COMPLETED"
    assert done["accepted_holes"] == [f"0=0..{low}"]
    assert world.committed()[0].offset == end[0]
    assert parse_metadata(world.committed()[0].metadata) == (done["id"], f"-@{low}")


def test_somebodys_reset_without_our_metadata_loses_nothing(world: World, cli: Cli) -> None:
    snapshot = prepared(world, cli)
    world.wait_until_group_is_empty()
    taken = {s["partition"]: s["next_offset"] for s in cli("snapshot", "show", snapshot).json["shards"]}
    size = world.topic_sizes()
    # One partition to the snapshot's cursor, the other far beyond the end.
    world.reset({0: taken[0], 1: world.ends()[1] + 1000})
    world.start()
    world.settle()
    assert world.topic_sizes() == size
    commits = {number: parse_metadata(commit.metadata) for number, commit in world.committed().items()}
    assert None not in commits.values()
    assert world.topic_id() not in generations(world)
    assert len(generations(world)) == 2, "one new generation per partition"
    world.check()

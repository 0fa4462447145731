"""Generations: offsets reset by anybody, builds beside the live state, switches, old shards that come back."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import msgspec
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, ResourceType

from dalsegno.log import admin, topics
from dalsegno.log.kafka import producer
from dalsegno.model.cursor import Cursor, format_metadata, parse_metadata
from dalsegno.projections.sessions import Sessions
from dalsegno.snapshots.catalog import Pointer, read_catalog
from dalsegno.state.generations import current_shards
from dalsegno.state.kv import STATE
from dalsegno.state.layout import POSITION_KEY, decode_position, encode_meta
from dalsegno.state.rocks import RocksStore
from harness_worker import World, wait_for

pytestmark = pytest.mark.broker


def snapshots(world: World) -> dict[int, Pointer]:
    """The newest shard snapshot of each partition, once there is one of each."""

    def newest() -> dict[int, Pointer]:
        found: dict[int, Pointer] = {}
        for pointer in read_catalog(world.config, world.prefix).pointers.values():
            before = found.get(pointer.partition)
            if before is None or pointer.cursor.next_offset >= before.cursor.next_offset:
                found[pointer.partition] = pointer
        return found if len(found) == world.partitions else {}

    found: dict[int, Pointer] = wait_for(newest, "a snapshot of every partition")
    return found


def settled_and_stopped(world: World) -> dict[int, Pointer]:
    """A world whose worker took snapshots, went on, and stopped; the group is empty."""
    world.produce(200)
    worker = world.start()
    world.settle()
    found = snapshots(world)
    world.produce(100)
    world.settle()
    worker.stop()
    world.wait_until_group_is_empty()
    return found


def edit_positions(world: World, change: Callable[[Cursor], Cursor]) -> None:
    """Change the cursors in the shards of the stopped worker a: what a log that was put back looks like from them."""
    for shard in current_shards(world.folder / "a", world.prefix):
        store = RocksStore.open(shard.folder, create=False)
        position = decode_position(store.get(STATE, POSITION_KEY) or b"", "")
        position.cursor = change(position.cursor)
        batch = store.batch()
        batch.put(STATE, POSITION_KEY, encode_meta(position))
        store.write(batch)
        store.close()


def all_stopped(world: World) -> list[str]:
    """Start worker a again, wait until every partition is red, and return the reasons."""
    worker = world.start()
    wait_for(
        lambda: (
            len(found := worker.parts()) == world.partitions and all(p["state"] == "STOPPED" for p in found.values())
        ),
        "every partition is stopped",
    )
    reasons = [part["reason"] for part in worker.parts().values()]
    worker.stop()
    return reasons


def delete_records(world: World, before: dict[int, int]) -> None:
    """Kafka deletes records only where the policy allows deleting, so it does for a moment."""
    client = admin.kafka.admin(world.config)
    for policy in ("compact,delete", "compact"):
        entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, world.events, incremental_configs=[entry])
        for future in client.incremental_alter_configs([resource]).values():
            future.result(20)
        if policy == "compact,delete":
            places = [TopicPartition(world.events, number, offset) for number, offset in before.items()]
            for future in client.delete_records(places).values():
                future.result(20)


def assert_rebuilt(world: World, size: int) -> None:
    """A new generation is current everywhere, equal, without one more record in the topics, with its own snapshot."""
    world.settle()
    world.check()
    assert world.topic_sizes() == size
    assert world.rows_that_went_backwards() == []
    committed = world.committed()
    for number, (worker, part) in world.holders().items():
        assert part["generation"] != world.topic_id()
        assert part["generation"] == (parse_metadata(committed[number].metadata) or ("", ""))[0]
        assert world.folder_of(worker, number).folders() == [part["folder"]], "older folders are deleted"
        assert world.folder_of(worker, number).current() == part["folder"]

    def snapshotted() -> bool:
        taken = {p.generation for p in read_catalog(world.config, world.prefix).pointers.values()}
        return {part["generation"] for _, part in world.holders().values()} <= taken

    wait_for(snapshotted, "a snapshot of each new generation at once")


def test_our_reset_to_a_snapshot_builds_beside_and_switches(world: World) -> None:
    found = settled_and_stopped(world)
    size, generation = world.topic_sizes(), uuid.uuid4().hex
    for number, pointer in found.items():
        world.reset({number: pointer.cursor.next_offset}, format_metadata(generation, pointer.id))
    world.start()
    assert_rebuilt(world, size)
    bases = {number: (parse_metadata(c.metadata) or ("", ""))[1] for number, c in world.committed().items()}
    assert bases == {number: pointer.id for number, pointer in found.items()}


# case C11
@pytest.mark.parametrize(
    "target",
    ["zero", pytest.param("snapshot", marks=pytest.mark.long), pytest.param("forward", marks=pytest.mark.long)],
)
def test_a_reset_by_foreign_tools(world: World, target: str) -> None:
    found = settled_and_stopped(world)
    size = world.topic_sizes()
    at = {
        "snapshot": {number: pointer.cursor.next_offset for number, pointer in found.items()},
        "zero": dict.fromkeys(found, 0),
        "forward": {number: end + 1000 for number, end in world.ends().items()},
    }[target]
    world.reset(at)
    assert all(commit.metadata in (None, "") for commit in world.committed().values())
    world.start()
    assert_rebuilt(world, size)


def test_live_events_during_a_rebuild(world: World) -> None:
    settled_and_stopped(world)
    world.reset(dict.fromkeys(range(world.partitions), 0))
    world.start()
    for _ in range(5):
        world.produce(60)
    world.settle()
    world.check()
    assert world.rows_that_went_backwards() == []


def test_an_old_shard_comes_back_after_another_workers_replay(world: World) -> None:
    settled_and_stopped(world)  # folder a keeps its shards of the first generation
    world.reset(dict.fromkeys(range(world.partitions), 0))
    second = world.start("b")
    world.settle()
    world.produce(100)
    world.settle()
    world.check()
    second.stop()
    world.wait_until_group_is_empty()
    size = world.topic_sizes()
    world.start("a")
    assert_rebuilt(world, size)
    world.produce(60)
    world.settle()
    world.check()
    assert world.rows_that_went_backwards() == []


def test_an_old_shard_of_the_same_generation_is_silent_until_the_commit(world: World) -> None:
    settled_and_stopped(world)
    second = world.start("b")
    world.settle()
    world.produce(200)
    world.settle()
    second.stop()
    world.wait_until_group_is_empty()
    world.start("a")
    world.settle()
    world.produce(60)
    world.settle()
    world.check()
    assert world.rows_that_went_backwards() == []


def test_a_row_that_vanished_is_tombstoned_at_the_switch(world: World) -> None:
    """The topic holds a row that no event explains (an older fold wrote it): after a rebuild it is gone."""
    settled_and_stopped(world)
    writer = producer(world.config)
    writer.produce(
        topics.projection_topic(world.prefix, Sessions.name, Sessions.version),
        key=b'["never-was"]',
        value=b"old",
        partition=0,
    )
    assert writer.flush(20) == 0
    assert ("sessions", b'["never-was"]') in world.topic_rows()
    world.reset(dict.fromkeys(range(world.partitions), 0))
    world.start()
    world.settle()
    world.check()
    assert ("sessions", b'["never-was"]') not in world.topic_rows()


# case C14, case C16
def test_another_history_is_refused_naming_the_difference(world: World) -> None:
    settled_and_stopped(world)
    same: dict[int, Cursor] = {}

    def ahead(cursor: Cursor) -> Cursor:
        same[cursor.partition] = cursor
        return msgspec.structs.replace(cursor, next_offset=cursor.next_offset + 1000)

    edit_positions(world, ahead)
    assert all("other-history" in reason and "ahead of the log's end" in reason for reason in all_stopped(world))

    edit_positions(
        world, lambda cursor: msgspec.structs.replace(same[cursor.partition], last_key=b"s-other:1:" + b"0" * 64)
    )
    assert all("other-history" in reason and "holds another record" in reason for reason in all_stopped(world))

    edit_positions(world, lambda cursor: msgspec.structs.replace(same[cursor.partition], cluster_id="another"))
    assert all("other-history" in reason and "cluster_id" in reason for reason in all_stopped(world))

    edit_positions(world, lambda cursor: same[cursor.partition])
    world.start()
    world.settle()
    world.check()
    world.alive()[0].stop()

    client = admin.kafka.admin(world.config)
    client.create_partitions([NewPartitions(world.events, world.partitions + 1)])[world.events].result(20)
    worker = world.start()
    assert worker.wait_dead() != 0
    assert "partitions is" in worker.tail()


# case C14
def test_a_topic_made_again_is_refused(world: World) -> None:
    world.produce(60)
    world.start()
    world.settle()
    world.alive()[0].stop()
    client = admin.kafka.admin(world.config)
    client.delete_topics([world.events])[world.events].result(20)
    wait_for(lambda: world.events not in admin.describe_topics(client, [world.events]), "the topic is gone")
    topics.apply(world.config, world.prefix, partitions=world.partitions)
    world.produce(40)
    assert all("other-history" in reason and "topic_id" in reason for reason in all_stopped(world))


def test_a_hole_below_the_log_start_stops_the_partition(world: World) -> None:
    """Found at assignment, and again under a running worker, where Kafka says it once and is silent afterwards."""
    world.produce(60)
    broken = world.folder / "fail"
    worker = world.start(fail_while=str(broken))
    world.settle()
    broken.touch()
    number = world.produce_tool_calls(40)
    wait_for(lambda: worker.parts()[number]["failures"] >= 1, "the partition stands still")
    delete_records(world, world.ends())
    broken.unlink()
    wait_for(lambda: "log-hole" in (worker.parts()[number]["reason"] or ""), "the hole is found by reading")
    worker.stop()
    world.produce(60)
    delete_records(world, world.ends())
    assert all("log-hole" in reason for reason in all_stopped(world))

"""Workers in their daily life: start, go on, restart, join, be killed, fail and recover, answer requests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from dalsegno.log.codec import decode_record
from dalsegno.log.kafka import producer
from dalsegno.log.reader import read_compacted
from dalsegno.log.schema_topic import read_schemas
from dalsegno.snapshots.catalog import Pointer, read_catalog
from dalsegno.snapshots.request import ask_for_snapshots
from dalsegno.streams.faults import KILL_VARIABLE, fault_from_environment
from harness_cli import Cli
from harness_worker import World, wait_for

pytestmark = pytest.mark.broker


def test_rows_are_a_straight_fold_and_what_a_plain_consumer_sees(world: World) -> None:
    world.produce(400)
    world.start()
    world.settle()
    world.check()
    world.produce(200)
    world.settle()
    world.check()
    names = [json.loads(text)["name"] for text in read_schemas(world.config, world.prefix)]
    assert {
        f"dalsegno.row.{each.name}.v{each.version}.{each.row.__name__}" for each in world.projections if each.public
    } <= set(names)


def test_a_restart_goes_on_and_is_never_a_replay(world: World) -> None:
    world.produce(300)
    world.start()
    world.settle()
    before, size = world.holders(), world.topic_sizes()
    before[0][0].stop()
    began = time.monotonic()
    world.start()
    world.settle()
    assert time.monotonic() - began < 15, "a static member is back without waiting for its own session"
    after = world.holders()
    for number, (_, part) in after.items():
        assert (part["generation"], part["folder"]) == (before[number][1]["generation"], before[number][1]["folder"])
    assert world.topic_sizes() == size
    world.produce(100)
    world.settle()
    world.check()


# case C17
def test_lost_commits_cost_nothing_where_the_state_is(world: World) -> None:
    world.produce(300)
    worker = world.start()
    world.settle()
    folders = {number: part["folder"] for number, part in worker.parts().items()}
    worker.stop()
    world.wait_until_group_is_empty()
    world.delete_group()
    assert world.committed() == {}
    size = world.topic_sizes()
    world.start()
    world.settle()
    assert world.topic_sizes() == size
    assert {number: part["folder"] for number, (_, part) in world.holders().items()} == folders
    world.produce(40)
    world.settle()
    world.check()


def test_lost_commits_and_lost_state_are_compared_with_the_topics(world: World) -> None:
    world.produce(300)
    worker = world.start()
    world.settle()
    worker.stop()
    world.wait_until_group_is_empty()
    world.delete_group()
    size = world.topic_sizes()
    world.start("b", max_behind_offsets=0)
    world.settle()
    world.check()
    assert world.topic_sizes() == size, "equal rows are not sent again"


def test_kill_one_of_two_workers(world: World) -> None:
    world.produce(400)
    first, second = world.start("a"), world.start("a")  # two slots of one data folder
    wait_for(lambda: len(first.parts()) == len(second.parts()) == 1, "each worker has one partition", 40)
    world.settle()
    world.produce(200)
    first.kill()
    world.produce(100)
    world.settle()
    world.check()
    world.start("a")
    wait_for(lambda: all(len(worker.parts()) == 1 for worker in world.alive()), "each worker has one again", 40)
    world.produce(100)
    world.settle()
    world.check()
    assert world.rows_that_went_backwards() == []


# case C55
def test_workers_come_and_go_while_the_state_is_restored(kafka: Any, tmp_path: Path) -> None:
    world = World(kafka.config, kafka.prefix, tmp_path, partitions=6)
    try:
        world.produce(400)
        world.start("a")
        second = world.start("b")
        world.produce(60)
        wait_for(second.parts, "the second worker has partitions", 40)
        third = world.start("c")
        second.kill()
        world.produce(60)
        wait_for(third.parts, "the third worker has partitions", 40)
        third.stop()
        world.produce(60)
        world.settle()
        world.check()
        assert world.rows_that_went_backwards() == []
    finally:
        world.close()


def test_an_outbox_larger_than_a_transaction_goes_out_in_several(world: World) -> None:
    world.produce(300)
    world.start(rows_per_transaction=3)
    world.settle()
    world.check()
    world.produce(100)
    world.settle()
    world.check()
    assert world.rows_that_went_backwards() == []


# case C25
def test_snapshots_taken_while_events_keep_coming_are_of_one_moment(world: World) -> None:
    world.start(snapshot_every_events=30)

    def enough() -> list[Pointer]:
        world.produce(30)
        found = list(read_catalog(world.config, world.prefix).pointers.values())
        return found if len(found) >= 2 * world.partitions + 2 else []

    pointers: list[Pointer] = wait_for(enough, "some snapshots")
    for pointer in pointers[-3:]:
        _, digests = world.straight_fold({pointer.partition: pointer.cursor.next_offset})
        assert {name: mark.digest for name, mark in pointer.projections.items()} == digests[pointer.partition]


def test_a_failing_fold_stops_its_partition_alone_and_makes_no_hole(world: World, tmp_path: Path) -> None:
    world.produce(300)
    broken = tmp_path / "fail"
    worker = world.start(fail_while=str(broken))
    world.settle()
    good = {number: part["cursor"] for number, part in worker.parts().items()}
    broken.touch()
    number = world.produce_tool_calls(40)
    wait_for(lambda: worker.parts()[number]["failures"] >= 3, "the partition failed three times")
    part = worker.parts()[number]
    assert part["state"] == "STOPPED"
    assert "planted failure" in part["reason"]
    assert part["cursor"] >= good[number]
    assert world.shard_rows(world.folder_of(worker, number).path / part["folder"]), "what was applied stays readable"
    assert status_command(world)[0] == 1, "red also while an attempt is under way"
    other = next(n for n in worker.parts() if n != number)
    world.produce_plain_sessions(other, 5)
    wait_for(lambda: worker.parts()[other]["cursor"] == world.ends()[other], "the other partition goes on")
    broken.unlink()
    world.settle()
    world.check()
    assert status_command(world)[0] == 0


def test_records_that_are_none_of_ours_are_reported_and_nothing_else(world: World) -> None:
    world.produce(60)
    world.start()
    world.settle()
    writer = producer(world.config)
    writer.produce(world.events, key=b"no key of ours", value=b"anything", partition=1)
    writer.produce(world.events, key=b"s-1:1:" + b"0" * 64, value=b"", partition=0)
    assert writer.flush(20) == 0
    world.settle()
    world.check()

    def reported() -> list[tuple[str, dict[str, Any]]]:
        table = read_compacted(world.config, f"{world.prefix}.quarantine")
        return [decode_record(value) for value in table.values()] if len(table) == 2 else []

    found = {record["partition"]: record for _, record in wait_for(reported, "two reports")}
    assert (found[1]["key"], found[1]["value"], found[1]["session_id"]) == (b"no key of ours", b"anything", None)
    assert (found[0]["session_id"], found[0]["seq"]) == ("s-1", 1)
    assert all(record["reason"] for record in found.values())


def test_worker_status_tells_running_stopped_and_gone(world: World) -> None:
    code, _ = status_command(world)
    assert code == 6
    world.produce(40)
    worker = world.start()
    world.settle()
    code, found = status_command(world)
    assert code == 0
    parts = found[0]["partitions"]
    assert {part["state"] for part in parts.values()} == {"LIVE"}
    assert all(part["behind"] == 0 and part["held_sessions"] == 0 for part in parts.values())
    worker.kill()
    code, found = status_command(world)
    assert code == 6
    assert "is gone without having stopped" in found[0]["problem"]
    assert str(worker.process.pid) in found[0]["problem"]


def test_until_ends_by_itself(world: World) -> None:
    world.produce(300)
    worker = world.start(until=world.ends())
    assert worker.wait_dead() == 0, worker.tail()
    assert {number: found.offset for number, found in world.committed().items()} == world.ends()
    assert world.topic_rows() == world.straight_fold()[0]


def test_sigterm_ends_at_a_batch_edge_and_a_second_one_at_once(world: World) -> None:
    world.produce(300)
    worker = world.start()
    world.settle()
    worker.process.send_signal(signal.SIGTERM)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.wait_dead(10) in (0, 130)
    world.start()
    world.settle()
    world.check()


def test_a_group_that_refuses_the_worker_ends_it(world: World) -> None:
    worker = world.start(session_timeout_seconds=0.5)  # less than the broker allows
    assert worker.wait_dead(30) == 1
    assert "INVALID_SESSION_TIMEOUT" in worker.tail()


def test_a_running_worker_takes_snapshots_when_asked(world: World) -> None:
    world.produce(200)
    worker = world.start()
    world.settle()
    firsts = wait_for(
        lambda: (
            (found := read_catalog(world.config, world.prefix).pointers) and len(found) >= world.partitions and found
        ),
        "a first snapshot of every partition",
    )
    world.produce(60)
    world.settle()
    answers = ask_for_snapshots(
        world.config, world.prefix, range(world.partitions),
        request_id=uuid.uuid4().hex, by="test", reason="asked", timeout_seconds=20,
    )  # fmt: skip
    assert (answers.failed, answers.silent) == ({}, ()), worker.tail()
    pointers = read_catalog(world.config, world.prefix).pointers
    for number, snapshot_id in answers.taken.items():
        assert snapshot_id not in firsts
        assert pointers[snapshot_id].cursor.next_offset == world.ends()[number]
        assert pointers[snapshot_id].reason == "asked"


def test_snapshots_are_taken_every_so_many_records(world: World) -> None:
    world.start(snapshot_every_events=50)
    world.produce(200)
    world.settle()
    world.produce(200)
    world.settle()

    def often() -> bool:
        pointers = read_catalog(world.config, world.prefix).pointers.values()
        return all(sum(each.partition == n for each in pointers) >= 2 for n in range(world.partitions))

    wait_for(often, "two snapshots of every partition")


def status_command(world: World) -> tuple[int, list[dict[str, Any]]]:
    """`dalsegno worker status -o json` of data folder a: exit code and what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DALSEGNO_")}
    asked = subprocess.run(
        [sys.executable, "-c", "from dalsegno.cli import main; main()", "--data", str(world.folder / "a"),
         "--prefix", world.prefix, "-o", "json", "worker", "status"],
        env=environment, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    return asked.returncode, json.loads(asked.stdout or "[]")


def test_the_kill_hook_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _pid, number: killed.append(number))
    fault = fault_from_environment({KILL_VARIABLE: "emit.3:2"})
    fault("emit.3")
    fault("emit.2")
    assert killed == []
    fault("emit.3")
    assert killed == [signal.SIGKILL]
    fault_from_environment({})("emit.3")
    assert len(killed) == 1


def test_workers_are_listed_and_drained_from_anywhere(world: World, cli: Cli) -> None:
    world.produce(100)
    first, second = world.start("a"), world.start("b")
    world.settle()
    listed = wait_for(lambda: len(found := cli("worker", "list").json) == 2 and found, "two workers in the list")
    assert {each["pid"] for each in listed} == {first.process.pid, second.process.pid}
    (drained,) = [each["worker_id"] for each in listed if each["pid"] == first.process.pid]
    said = cli("worker", "drain", drained[:8], "--reason", "a new release")
    assert said.json == [{"worker": drained, "state": "STOPPED"}]
    assert first.wait_dead() == 0
    assert "a new release" in first.tail()
    assert [each["pid"] for each in cli("worker", "list").json] == [second.process.pid]
    assert "no running worker" in cli("worker", "drain", drained, code=4).err
    world.settle()
    cli("worker", "drain", "--all")
    assert second.wait_dead() == 0
    assert cli("worker", "list").json == []
    assert {each["state"] for each in cli("worker", "list", "--all").json} == {"STOPPED"}

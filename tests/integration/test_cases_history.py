"""Cases around offsets and histories, by the command line and whole workers: ends, holes, other logs, strays."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions

from cases_lab import assert_stands, built, edit_cursors, send, set_topic
from dalsegno import events
from dalsegno.errors import TopicDrift
from dalsegno.log.codec import decode_record
from dalsegno.log.kafka import producer, shared_admin
from dalsegno.log.publisher import Publisher
from dalsegno.log.reader import read_compacted, stable_offset
from dalsegno.model.ids import partition_of
from dalsegno.testing.builder import SessionBuilder, Written
from harness_cli import Cli
from harness_worker import RunningWorker, World, wait_for

pytestmark = pytest.mark.broker


def session_in(world: World, partition: int, notes: int, mark: str = "s") -> SessionBuilder:
    """A session of that partition with so many notes behind its start."""
    number = next(n for n in range(1000) if partition_of(f"{mark}-{n}", world.partitions) == partition)
    builder = SessionBuilder(f"{mark}-{number}").begin()
    for _ in range(notes):
        builder.append("NoteRecorded", kind="note")
    return builder


def transaction(world: World, partition: int, records: Sequence[Written]) -> Producer:
    """A transaction with these records, all of them in the log, and still open."""
    writer = producer(
        world.config, {"transactional.id": f"{world.prefix}.{partition}", "transaction.timeout.ms": 300_000}
    )
    writer.init_transactions(30)
    writer.begin_transaction()
    for record in records:
        writer.produce(world.events, key=record.key, value=record.value, partition=partition)
    assert writer.flush(30) == 0
    return writer


def worker_by_command(world: World) -> RunningWorker:
    """`dalsegno worker run` with the configuration of this folder and environment, on data folder a."""
    log = world.folder / "worker-by-command.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", "from dalsegno.cli import main; main()", "worker", "run"], stdout=out, stderr=out
        )
    worker = RunningWorker(world, world.folder / "a", process, log)
    world.workers.append(worker)
    return worker


def positions(cli: Cli, replay_id: str) -> dict[int, dict[str, Any]]:
    return {part["partition"]: part for part in cli("replay", "show", replay_id).json["progress"]}


def state_of(cli: Cli, replay_id: str) -> str:
    return str(cli("replay", "show", replay_id).json["state"])


def session_events(cli: Cli) -> dict[str, int]:
    return {row["session"]: row["events"] for row in cli("session", "list").json}


def test_a_replay_comes_to_the_end_of_logs_that_end_with_a_marker(world: World, cli: Cli) -> None:
    # case C2
    seen, unseen = session_in(world, 0, 0), session_in(world, 1, 0)
    transaction(world, 0, seen.records[:3]).commit_transaction(30)
    transaction(world, 1, unseen.records[:3]).abort_transaction(30)
    for place in ("earliest", "latest-snapshot"):
        done = cli("replay", "run", "--from", place, "--yes").json
        assert done["state"] == "COMPLETED"
        assert session_events(cli) == {seen.session_id: 3}
        # Lag 0: the slots of the markers are behind the commits too.
        assert {number: commit.offset for number, commit in world.committed().items()} == world.ends() == {0: 4, 1: 4}
    assert_stands(world, "a")


def test_a_replay_waits_for_an_open_transaction_and_says_so(world: World, cli: Cli) -> None:
    # case C10
    before, hidden, behind = session_in(world, 0, 2), session_in(world, 0, 2, "h"), session_in(world, 0, 48, "b")
    send(world, *before.records)
    built(world)
    hanging = transaction(world, 0, hidden.records)
    pinned = stable_offset(world.config, world.events, 0)
    send(world, *behind.records)
    replay_id = cli("replay", "run", "--from", "earliest", "--yes", "--no-worker", "--timeout-seconds", "0").json["id"]
    worker = world.start()
    wait_for(lambda: worker.parts().get(0, {}).get("cursor") == pinned, "the worker is where the transaction begins")
    part = positions(cli, replay_id)[0]
    assert (part["position"], part["done"]) == (pinned, False)
    assert part["waits"] == f"an open transaction begins at offset {pinned}, below the end bound {world.ends()[0]}"
    assert state_of(cli, replay_id) == "RUNNING"
    assert worker.parts()[0]["state"] == "BUILDING", "what is read is not switched to half a state"
    hanging.abort_transaction(30)
    wait_for(lambda: state_of(cli, replay_id) == "COMPLETED", "the replay is over")
    world.settle()
    world.check()
    assert session_events(cli) == {each.session_id: len(each.records) for each in (before, behind)}


def test_what_is_none_of_ours_is_reported_and_never_folded(world: World, cli: Cli) -> None:
    # case C8
    session, other = session_in(world, 0, 20), session_in(world, 1, 1)
    unsent = session.append("NoteRecorded", kind="never sent")
    send(world, *session.records[:-1])
    send(world, *other.records, partition=1)
    worker = world.start()
    world.settle()
    # A client that trusted its own partitioner; a key that is not ours; a key that does not follow from its bytes.
    foreign = Written(b"order-17", session.records[5].value, None)
    send(world, session.records[4], foreign, partition=1)
    send(world, Written(unsent.key, session.records[6].value, None))
    world.settle()
    world.check()
    wanted = {"WRONG_PARTITION": session.records[4].key, "BAD_KEY": b"order-17", "WRONG_HASH": unsent.key}

    def reported() -> dict[str, bytes]:
        table = read_compacted(world.config, f"{world.prefix}.quarantine")
        records = [decode_record(value)[1] for value in table.values()]
        return {record["reason"]: record["key"] for record in records}

    wait_for(lambda: reported() == wanted, "all three are reported")
    sizes = {session.session_id: len(session.records) - 1, other.session_id: len(other.records)}
    assert session_events(cli) == sizes
    worker.stop()
    # One that comes while no worker runs is seen first by a rebuild, which reports it as well.
    send(world, session.records[7], partition=1)
    assert cli("replay", "run", "--from", "earliest", "--yes").json["state"] == "COMPLETED"
    late = f"1:{world.ends()[1] - 1}".encode()
    assert late in read_compacted(world.config, f"{world.prefix}.quarantine")
    assert_stands(world, "a")
    cli("verify")


def test_a_hole_is_no_reason_to_jump_whatever_reset_policy_is_configured(
    world: World, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # case C13
    session = session_in(world, 0, 30)
    send(world, *session.records[:10])
    built(world)
    cursor = world.ends()[0]
    cli("snapshot", "take")
    send(world, *session.records[10:])
    set_topic(world, {"cleanup.policy": "compact,delete"})
    for done in shared_admin(world.config).delete_records([TopicPartition(world.events, 0, cursor + 8)]).values():
        done.result(30)
    set_topic(world, {"cleanup.policy": "compact"})
    config = tmp_path / "dalsegno.toml"
    config.write_text('[kafka.options]\n"auto.offset.reset" = "latest"\n')
    monkeypatch.chdir(tmp_path)
    said = cli("replay", "run", "--from", "latest-snapshot", "--yes", code=5)
    assert f"goes on at offset {cursor}, but the log starts at {cursor + 8}: a hole of 8 offsets" in said.err
    assert world.committed()[0].offset == cursor
    # A worker of that configuration neither jumps to the end nor begins at the new start.
    worker = worker_by_command(world)
    red = wait_for(lambda: (part := worker.parts().get(0, {})).get("reason") and part, "partition 0 is red")
    assert f"starts at {cursor + 8}: a hole of 8 offsets" in red["reason"]
    assert (red["state"], red["cursor"]) == ("STOPPED", None)
    worker.stop()
    hole = f"0={cursor}..{cursor + 8}"
    done = cli("replay", "run", "--from", "latest-snapshot", "--accept-hole", hole, "--yes").json
    assert (done["state"], done["accepted_holes"], done["runs"][-1]["accepted_holes"]) == ("COMPLETED", [hole], [hole])
    (row,) = cli("session", "list").json
    assert (row["events"], row["held"]) == (10, "GAP at 11")


def test_a_snapshot_of_another_history_is_refused(world: World, cli: Cli) -> None:
    # case C14
    session = session_in(world, 0, 5)
    send(world, *session.records)
    built(world)
    end = world.ends()[0]
    same: dict[int, Any] = {}

    def snapshot_with(**changed: Any) -> str:
        same.update(edit_cursors(world, "a", lambda found: _changed(found, changed)))
        try:
            return str(cli("snapshot", "take").json["id"])
        finally:
            edit_cursors(world, "a", lambda found: same[found.partition])

    def _changed(found: Any, changed: dict[str, Any]) -> Any:
        return msgspec.structs.replace(found, **changed) if found.partition == 0 else found

    before = world.committed()
    # Part 3: of another cluster. It is passed over by name, whoever asks for it.
    elsewhere = snapshot_with(cluster_id="elsewhere")
    plan = cli("replay", "plan", "--from", f"snapshot:{elsewhere}")
    assert "is passed over: of another cluster: elsewhere" in plan.err
    part = plan.json["parts"][0]
    (foreign,) = [each["snapshot"] for each in part["rejected"] if "another cluster" in each["reason"]]
    assert foreign in [each["id"] for each in cli("snapshot", "show", elsewhere).json["shards"]]
    assert part["snapshot"] != foreign
    # Part 1: the log ends before it.
    ahead = snapshot_with(next_offset=end + 4, last_offset=end + 3, last_key=session.records[-1].key)
    for place in (f"snapshot:{ahead}", "latest-snapshot"):
        assert (
            f"stands at {end + 4}, but the log ends at {end}"
            in cli("replay", "run", "--from", place, "--yes", code=5).err
        )
    assert world.committed() == before
    # Part 2: the log has grown again, so that the offset is in range; but it is another record's.
    send(world, *session_in(world, 0, 9, "foreign").records)
    said = cli("replay", "run", "--from", f"snapshot:{ahead}", "--yes", code=5)
    assert f"the log holds another record at offset {end + 3}" in said.err
    failed = cli("replay", "list").json[0]
    assert failed["state"] == "FAILED"
    assert "another record" in cli("replay", "show", failed["id"]).json["runs"][-1]["error"]
    # Nothing of it was read by anybody, and the group goes back to where it was.
    assert session_events(cli) == {session.session_id: len(session.records)}
    cli("replay", "cancel", failed["id"], "--yes")
    world.wait_until_group_is_empty()
    built(world)
    assert_stands(world, "a")


def test_a_topic_that_grew_is_refused_by_everyone_and_cuts_no_session(world: World, cli: Cli) -> None:
    # case C16
    with Publisher(world.config, prefix=world.prefix) as publisher:
        session = publisher.session("s-old")
        session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED")).result(30)
        built(world)
        snapshot = cli("snapshot", "take").json["id"]
        before = world.committed()
        shared_admin(world.config).create_partitions([NewPartitions(world.events, 5)])[world.events].result(30)
        wait_for(lambda: len(world.ends()) == 5, "the topic has grown")
        # A writer that has not noticed: its sessions, old and new ones, stay where the first number put them.
        assert session.append(events.SessionStarted()).result(30).partition == partition_of("s-old", 2)
        fresh = publisher.session("s-new")
        created = fresh.append(events.SessionCreated(workflow_name="w", profile="OBSERVED")).result(30)
        assert created.partition == partition_of("s-new", 2)
    # One that looks now refuses, and so does everything that reads.
    with Publisher(world.config, prefix=world.prefix) as publisher:
        for attempt in (
            lambda: publisher.resume("s-old"),
            lambda: publisher.session("s-3").append(events.SessionCreated(workflow_name="w", profile="OBSERVED")),
        ):
            with pytest.raises(TopicDrift, match=r"has 5 partitions, .*inbox has 2"):
                attempt()
    for place in (f"snapshot:{snapshot}", "earliest"):
        said = cli("replay", "run", "--from", place, "--yes", code=5)
        assert "partitions is 2, wanted 5" in said.err
    assert world.committed() == before
    assert "partitions is 2, wanted 5" in cli("worker", "run", code=5).err


def test_lost_commits_cost_the_new_records_alone_and_are_told_once(world: World) -> None:
    # case C17
    session = session_in(world, 0, 20)
    send(world, *session.records[:-10])
    built(world)
    cursor = world.ends()[0]
    world.wait_until_group_is_empty()
    world.delete_group()
    send(world, *session.records[-10:])
    worker = world.start(until=world.ends())
    assert worker.wait_dead() == 0, worker.tail()
    told = [json.loads(line) for line in worker.log.read_text().splitlines() if '"state_chosen"' in line]
    (mine,) = [line for line in told if line["partition"] == 0]
    assert mine["because"] == "no commit: the current shard goes on at its own cursor"
    # A batch is refused unless it begins at the cursor, so these ten and nothing else were applied.
    assert (mine["action"], mine["offset"], world.ends()[0] - cursor) == ("KEEP", cursor, 10)
    assert_stands(world, "a")


def test_rows_chosen_before_a_long_stop_are_refused_after_it(world: World) -> None:
    # case C56
    world.produce(200)
    first = world.start("a", stop_at="emit.1")
    wait_for(first.is_stopped, "the first worker has chosen rows and stands still")
    world.produce(100)
    second = world.start("b")
    ends = world.ends()
    wait_for(
        lambda: (
            len(parts := second.parts()) == world.partitions
            and all(part["committed"] == ends[n] and part["outbox_empty"] for n, part in parts.items())
        ),
        "the second worker has emitted everything",
    )
    first.process.send_signal(signal.SIGCONT)
    wait_for(lambda: len(first.parts()) == len(second.parts()) == 1, "one partition each")
    world.settle()
    world.check()
    assert world.rows_that_went_backwards() == []

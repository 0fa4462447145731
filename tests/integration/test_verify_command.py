"""`dalsegno verify`, `session` and `doctor` beside whole workers on a real broker."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from dalsegno.errors import TopicDrift
from dalsegno.log import admin, topics
from dalsegno.log.kafka import producer
from dalsegno.model.ids import partition_of
from dalsegno.state.keys import ROW, session_row_key
from dalsegno.state.kv import STATE
from dalsegno.state.rocks import RocksStore
from dalsegno.testing.builder import SessionBuilder, tombstone
from harness_cli import Cli
from harness_worker import World, wait_for
from history_lab import audit_records

pytestmark = pytest.mark.broker


def row_of(reports: list[dict[str, Any]], partition: int) -> dict[str, Any]:
    return next(report for report in reports if report["partition"] == partition)


def test_a_running_workers_state_follows_from_the_log_and_from_a_snapshot(world: World, cli: Cli) -> None:
    world.produce(300)
    world.start()
    world.settle()
    first = world.ends()
    cli("snapshot", "take")
    world.produce(60)
    world.settle()
    said = cli("verify")
    ends = world.ends()
    for number in range(world.partitions):
        report = row_of(said.json, number)
        assert (report["cursor"], report["folded"], report["source"]) == (ends[number], ends[number], "slot 0")
        assert report["snapshot"]
        assert report["tail"] <= ends[number] - first[number], "the tail behind the newest snapshot, not the log"
        assert (report["differing"], report["uncompared"]) == (0, [])
    shown = cli("session", "list").json
    assert len(shown) == sum(len(cli("session", "list", "--status", status).json) for status in _statuses(shown))
    story = cli("session", "show", shown[0]["session"]).json
    assert len(story["events"]) == shown[0]["events"]
    assert cli("session", "show", "last").json["session"]["session"] == shown[0]["session"]


def _statuses(rows: list[dict[str, Any]]) -> set[str]:
    return {row["status"] for row in rows}


def test_a_changed_byte_in_a_copy_is_named_and_repeats_are_not(
    world: World, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = SessionBuilder("s-1").begin()
    world.send(builder.records)
    world.produce(200)
    world.start()
    world.settle()
    world.send(builder.records)  # an importer that ran twice
    world.flush()
    world.settle()
    cli("verify")
    number = partition_of("s-1", world.partitions)
    copy = world.folder / "copy"
    # The worker goes on: a checkpoint that it is sending may be gone before it is copied.
    shutil.copytree(world.folder / "a" / world.prefix, copy / world.prefix, ignore=shutil.ignore_patterns("*.tmp"))
    pointed = next((copy / world.prefix / "slots" / "0").glob(f"*/{number}/CURRENT"))
    store = RocksStore.open(pointed.parent / pointed.read_text().strip(), create=False)
    key = session_row_key(ROW, "sessions", "s-1")
    row = store.get(STATE, key)
    assert row is not None
    batch = store.batch()
    batch.put(STATE, key, row.replace(b"demo", b"dem0", 1))
    store.write(batch)
    store.close()
    monkeypatch.setenv("DALSEGNO_DATA", str(copy))
    said = cli("verify", code=3)
    named = [each for each in row_of(said.json, number)["differences"] if each["what"] == "sessions"]
    assert {(each["session"], each["place"], each["live"], each["expected"]) for each in named} == {
        ("s-1", "workflow_name", "dem0", "demo")
    }
    assert named[0]["beside"] == "the log"
    assert f"the first in sessions: partition {number}, session s-1, workflow_name" in said.err
    other = 1 - number
    assert cli("verify", "--partition", str(other)).json[0]["partition"] == other
    assert not list((copy / world.prefix / "verify").iterdir())
    cli("verify", "--partition", "77", code=4)


def test_an_amendment_is_accepted_when_the_audit_knows_its_request(world: World, cli: Cli) -> None:
    builder = SessionBuilder("s-1").begin()
    victim = builder.append("MessageReceived", message_id="m1", role="USER")
    builder.append("MessageReceived", message_id="m2", role="USER")
    world.send(builder.records)
    world.flush()
    number = partition_of("s-1", world.partitions)
    amendment, gone = builder.amend([victim], request_id="req-7"), tombstone(victim)
    client = producer(world.config, {"acks": "all"})
    for record in (amendment, gone):
        client.produce(world.events, key=record.key, value=record.value, partition=number)
    assert client.flush(30) == 0
    world.start()
    world.settle()
    said = cli("verify", code=3)
    assert f"amendment: partition {number}, session s-1, seq 0" in said.err
    audit = topics.topic_name(world.prefix, "admin-audit")
    client.produce(audit, key=b"stranger", value=b"not a record of ours")
    for key, value in audit_records([amendment]):
        client.produce(audit, key=key, value=value)
    assert client.flush(30) == 0
    cli("verify")
    delete_topic(world, audit)
    said = cli("verify", code=3)
    assert "audit_topic_missing" in said.err
    assert "req-7" in said.err


def delete_topic(world: World, topic: str) -> None:
    client = admin.kafka.admin(world.config)
    client.delete_topics([topic])[topic].result(30)
    wait_for(lambda: topic not in admin.describe_topics(client, [topic]), f"{topic} is gone")


def test_a_topic_that_was_made_again_is_another_history(world: World, cli: Cli) -> None:
    world.produce(100)
    worker = world.start()
    world.settle()
    worker.stop()
    delete_topic(world, world.events)
    names = [(each.name, each.version) for each in world.projections]
    topics.apply(world.config, world.prefix, partitions=world.partitions, projections=names)
    said = cli("verify", code=5)
    assert "topic_id" in said.err
    cli("session", "list")


def test_a_machine_without_workers_reads_and_proves_snapshots(
    world: World, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.produce(200)
    world.start()
    world.settle()
    cli("snapshot", "take")
    here = cli("session", "list").json
    monkeypatch.setenv("DALSEGNO_DATA", str(world.folder / "elsewhere"))
    said = cli("session", "list")
    assert said.json == here
    reports = cli("verify").json
    assert {report["source"].split()[0] for report in reports} == {"snapshot"}
    assert [report["differing"] for report in reports] == [0, 0]


def test_doctor_passes_and_finds_a_clock_that_is_behind(
    world: World, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.produce(20)
    checks = {check["name"]: check for check in cli("doctor").json["checks"]}
    assert {name for name, check in checks.items() if check["ok"] is False} == set()
    assert {"broker", "topics", "clock"} <= {name for name, check in checks.items() if check["ok"]}
    monkeypatch.setattr("dalsegno.cli.doctor.time.time", lambda: 1_000_000_000.0)
    said = cli("doctor", code=1)
    assert "this clock's future" in said.out
    monkeypatch.undo()


def test_doctor_names_a_drifted_topic(world: World, cli: Cli) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, world.events, incremental_configs=[entry])
    client = admin.kafka.admin(world.config)
    client.incremental_alter_configs([resource])[resource].result(30)
    # The broker answers before it has told itself.
    wait_for(lambda: _drifts(world), "the topic has drifted")
    said = cli("doctor", code=1)
    (topic,) = [check for check in said.json["checks"] if check["name"] == "topics"]
    assert topic["ok"] is False
    assert "cleanup.policy" in topic["detail"]
    assert "not ready: topics" in said.err


def _drifts(world: World) -> bool:
    try:
        topics.check(world.config, world.prefix, projections=[(each.name, each.version) for each in world.projections])
    except TopicDrift:
        return True
    return False

"""Cases around a compacted log, with the broker made to compact: erasure, repeats, rivals, gaps in the offsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cases_lab import CLOSING, assert_stands, built, compact, keys, log_of, send
from dalsegno.log.kafka import producer
from dalsegno.log.record import LogRecord
from dalsegno.testing.builder import SessionBuilder, Written, blob, tombstone
from harness_cli import Cli
from harness_worker import World
from history_lab import audit_records

pytestmark = pytest.mark.broker

SECRET = b"mother's maiden name"


@pytest.fixture
def world(kafka: Any, tmp_path: Path) -> Iterator[World]:
    found = World(kafka.config, kafka.prefix, tmp_path, partitions=1)
    send(found, CLOSING)
    yield found
    found.close()


def noted(session_id: str, count: int, text: bytes = b"nothing special") -> SessionBuilder:
    """A session of so many notes behind its start."""
    builder = SessionBuilder(session_id).begin()
    for number in range(count):
        builder.append("NoteRecorded", kind=f"note {number}", data=blob(text))
    return builder


def replayed(cli: Cli, place: str = "earliest") -> dict[str, Any]:
    done = cli("replay", "run", "--from", place, "--yes").json
    assert done["state"] == "COMPLETED"
    return dict(done)


def audit(world: World, *amendments: Written) -> None:
    """What an operator's command leaves where other rights protect it."""
    writer = producer(world.config, {"acks": "all"})
    for key, value in audit_records(amendments):
        writer.produce(f"{world.prefix}.admin-audit", key=key, value=value, partition=0)
    assert writer.flush(30) == 0


def test_what_was_erased_stays_erased_however_old_the_snapshot(world: World, cli: Cli, monkeypatch: Any) -> None:
    # case C5
    erased, partly, other = noted("x-erased", 6, SECRET), noted("y-partly", 9), noted("z-other", 4)
    secret = partly.append("NoteRecorded", kind="note", data=blob(SECRET))
    partly.append("NoteRecorded", kind="note", data=blob(b"after it"))
    send(world, *erased.records, *partly.records, *other.records)
    replayed(cli)
    snapshot = cli("snapshot", "take").json["id"]
    assert cli("session", "show", "x-erased").json["events"]

    # Erased by amendments; the tombstones only free the bytes. Life goes on behind them.
    gone = [*erased.records, secret]
    amendments = erased.amend(whole_session=True), partly.amend([secret], request_id="request-2")
    send(world, *amendments, *map(tombstone, gone))
    send(world, partly.append("NoteRecorded", kind="later"))
    expected = world.straight_fold()
    assert all(SECRET not in value for value in expected[0].values())

    def tombstones_are_gone_too(records: list[LogRecord]) -> bool:
        return not (keys(gone) & {record.key for record in records})

    compact(world, tombstones_are_gone_too)
    assert all(SECRET not in (record.value or b"") for record in log_of(world))
    assert world.straight_fold() == expected

    # The old state itself goes on: it never saw a tombstone.
    built(world)
    assert assert_stands(world, "a") == expected[1]
    # Another machine begins from the old snapshot and reads the tail.
    monkeypatch.setenv("DALSEGNO_DATA", str(world.folder / "b"))
    done = replayed(cli, f"snapshot:{snapshot}")
    assert done["parts"][0]["snapshot"] is not None
    assert assert_stands(world, "b") == expected[1]
    # And one that has nothing but the log.
    replayed(cli)
    assert assert_stands(world, "b") == expected[1]
    # The amendment is all that is left of the session, before compaction and after.
    shown = cli("session", "show", "x-erased").json
    assert shown["events"] == []
    assert shown["session"]["held_reason"] == "ERASED"
    seen = {event["seq"]: event for event in cli("session", "show", "y-partly").json["events"]}
    assert [seq for seq, event in seen.items() if event["stub"] == "ERASED"] == [secret.event.seq]
    assert len(seen) == len(partly.records)
    # Who erases needs a record under other rights.
    assert "request-1" in cli("verify", code=3).err
    audit(world, *amendments)
    cli("verify")


def test_a_whole_replay_gives_the_same_before_and_after_cleaning(world: World, cli: Cli) -> None:
    # case C7: seq 7 three times among 20; case C49: the same bytes twice, and two writers of one seq
    repeated = noted("r-repeated", 14)
    old = noted("w-rivals", 3)
    new = old.branch(len(old.records), writer="builder/1/b")
    new.recover()
    fork_at = len(old.records)
    for builder in (old, new):
        builder.append("NoteRecorded", kind="which")
    assert len(repeated.records) >= 20
    seventh = repeated.records[6]
    rivals = [*old.records[fork_at:], *new.records[fork_at:]]
    send(world, *repeated.records, seventh, seventh, *old.records, old.records[2], *new.records[fork_at:])

    replayed(cli)
    before = assert_stands(world, "a")
    shown = [cli("session", "show", name).json for name in ("r-repeated", "w-rivals")]
    assert [event["seq"] for event in shown[0]["events"]] == list(range(1, len(repeated.records) + 1))
    on_path = [event["hash"] for event in shown[1]["events"]]
    assert on_path == [record.event.hash.hex() for record in new.records]
    assert len(shown[1]["superseded"]) == 1
    (loser,) = shown[1]["superseded"]
    assert (loser["seq"], loser["hash"]) == (fork_at + 1, old.records[-1].event.hash.hex())

    unique = keys([*repeated.records, *old.records, *rivals])

    def each_key_once(records: list[LogRecord]) -> bool:
        held = [record.key for record in records if record.key in unique]
        return len(held) == len(set(held))

    assert not each_key_once(log_of(world)), "the repeats are there before"
    compact(world, each_key_once)
    assert unique <= {record.key for record in log_of(world)}, "no record of its own is lost"
    replayed(cli)
    assert assert_stands(world, "a") == before
    for name, found in zip(("r-repeated", "w-rivals"), shown, strict=True):
        again = cli("session", "show", name).json
        assert again["session"].pop("position") != found["session"].pop("position")
        assert again == found
    cli("verify")

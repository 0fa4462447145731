"""The commands on sessions and events in one world: out, back, proved, amended, followed, on a real broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dalsegno.log.kafka import producer
from dalsegno.model.ids import partition_of
from dalsegno.testing.builder import SessionBuilder, Written, write
from harness_cli import Cli
from harness_worker import DEADLINE_SECONDS, World
from log_samples import toy, writer_of

pytestmark = pytest.mark.broker
FOLLOWED = "s-held"
TAIL = ("session", "tail", FOLLOWED, "--from", "end", "--follow")


def line(type_: str, session_id: str, **fields: Any) -> str:
    return json.dumps({"type": type_, "session_id": session_id, "fields": fields}) + "\n"


def held(session_id: str) -> list[Written]:
    """A session whose third record was written with a schema that nobody knows."""
    builder = SessionBuilder(session_id, profile="OBSERVED")
    builder.append("SessionCreated", profile="OBSERVED", relation="NONE")
    second = builder.append("NoteRecorded", kind="before")
    assert second.event is not None
    foreign = write(writer_of(toy(1, name="Foreign")), builder.envelope(3, second.event.hash, "Foreign"), {})
    hash_ = bytes.fromhex(foreign.key.decode().rpartition(":")[2])
    envelope = builder.envelope(4, hash_, "NoteRecorded")
    return [*builder.records, foreign, write("NoteRecorded", envelope, {"kind": "behind"})]


def with_turns(session_id: str) -> list[str]:
    """Lines of a session of two turns, the second begun with its fifth event."""
    turns = [
        line(type_, session_id, turn_id=turn) for turn in ("t1", "t2") for type_ in ("TurnStarted", "TurnCompleted")
    ]
    created = line("SessionCreated", session_id, workflow_name="w", profile="OBSERVED")
    return [created, line("SessionStarted", session_id), *turns]


def produce(world: World, records: list[Written], session_id: str) -> None:
    client = producer(world.config, {"acks": "all"})
    number = partition_of(session_id, world.partitions)
    for record in records:
        client.produce(world.events, key=record.key, value=record.value, partition=number)
    assert client.flush(30) == 0


def records_of(text: str) -> list[tuple[str, str]]:
    found = [json.loads(each) for each in text.splitlines()]
    return [(each["key"], each["value_base64"]) for each in found if "key" in each]


def spawn(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """The command line as a process; the settings are those of the environment."""
    code = "import sys; from dalsegno.cli import main; sys.argv[0] = 'dalsegno'; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
        # Whoever runs the tests in the background of a shell hands SIGINT down as ignored, and Python leaves it so.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and stderr."""
    _, err = process.communicate(timeout=DEADLINE_SECONDS)
    return process.returncode, err


def test_a_session_goes_out_comes_back_is_proved_amended_and_followed(
    world: World, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # New events from lines; a pipe that a bad line ends says what was stored.
    events = tmp_path / "events.jsonl"
    good = [
        line("SessionCreated", "s-1", workflow_name="w", profile="OBSERVED", goal="look"),
        line("SessionStarted", "s-1"),
    ]
    events.write_text("".join([*good, *(line("NoteRecorded", "s-1", kind=f"n{number}") for number in range(10))]))
    (done,) = cli("event", "publish", events).json
    assert (done["events"], done["last_seq"], done["resumed"]) == (12, 12, False)
    events.write_text(line("NoteRecorded", "s-1", kind="more") + line("NoteRecorded", "s-1", kind=7))
    said = cli("event", "publish", events, code=1)
    assert "line 2: NoteRecorded: kind is 7 (int)" in said.err
    assert "acknowledged: 1 events of s-1, seq 14 to 14" in said.err
    produce(world, held(FOLLOWED), FOLLOWED)
    events.write_text("".join(with_turns("s-5")))
    cli("event", "publish", events)
    world.start()
    world.settle()

    # Out, into another prefix, and out again.
    out = tmp_path / "s-1.jsonl"
    cli("session", "export", "s-1", "--output", out, text=True)
    assert cli("session", "verify", "s-1", "--records", out).json["verdict"] == "proven"
    (tmp_path / "b").mkdir()
    other = World(world.config, f"{world.prefix}b", tmp_path / "b")
    try:
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("DALSEGNO_PREFIX", other.prefix)
            elsewhere.setenv("DALSEGNO_DATA", str(other.folder / "a"))
            elsewhere.setenv("DALSEGNO_STORE", str(other.store))
            (taken,) = cli("event", "publish", "--records", out).json
            assert (taken["session_id"], taken["records"]) == ("s-1", 14)
            other.start()
            other.settle()
            again = cli("session", "export", "s-1", text=True).out
            report = cli("session", "verify", "s-1").json
            assert (report["verdict"], report["path"]) == ("proven", 14)
    finally:
        other.close()
    assert records_of(again) == records_of(out.read_text())

    # Held; amended by a command that is killed between its two steps, and by the same one again.
    assert [row["session"] for row in cli("session", "list", "--has", "held").json] == [FOLLOWED]
    assert "UNKNOWN_SCHEMA" in cli("session", "verify", FOLLOWED, code=1).err
    ask = ("session", "amend", FOLLOWED, "--seq", "3", "--action", "skipped", "--reason", "foreign", "--yes")
    code, err = ended(spawn(*ask, DALSEGNO_TEST_KILL_AT="amend.1"))
    assert code == -signal.SIGKILL, err
    said = cli("session", "verify", FOLLOWED, code=3)
    assert "missing-amendment" in said.err
    amended = cli(*ask).json
    assert (amended["resumed"], amended["after"]) == (True, "4 events, not held")
    assert amended["request_id"] in said.err

    # A fork of a session, and a fork of that: the first from what a worker folded, the second from the log behind it.
    fork = ("session", "fork", "s-5", "--at", "6", "--purpose", "what-if", "--suffix", "a")
    begun = cli(*fork).json
    assert (begun["session"], begun["parent_seq"], begun["turn"], begun["snapped_back"]) == ("s-5~a", 4, "t2", 1)
    assert "in the log already" in cli(*fork, code=5).err
    again = cli("session", "fork", "s-5~a", "--purpose", "debug", "--suffix", "b").json
    assert (again["parent"], again["parent_seq"], again["turn"]) == ("s-5", 2, "t1")
    assert cli("session", "verify", "s-5~b").json["goes_on_from"] == ["s-5"]
    world.settle()
    forks = {row["session"]: row["forked_at_seq"] for row in cli("session", "list", "--forks-of", "s-5").json}
    assert forks == {"s-5~a": 4, "s-5~b": 2}
    assert cli("session", "list", "--has", "held").json == []
    assert cli("session", "verify", FOLLOWED).json["amendments"] == 1
    assert cli("event", "show", FOLLOWED, "3").json["stub"] == "SKIPPED"
    assert cli("event", "show", FOLLOWED, "0").json["event"]["request_id"] == amended["request_id"]
    cli("verify")
    cli(*ask, code=5)

    # Followed in the log: from places in it, as it grows, until Ctrl-C, and until nobody listens.
    seqs = [
        json.loads(each)["seq"] for each in cli("session", "tail", FOLLOWED, "--from", "beginning").out.splitlines()
    ]
    assert seqs == [1, 2, 3, 4, 0]
    assert cli("session", "tail", "--from", "s@2000-01-01T00:00:00Z", "-c", "3", text=True).out.count("\n") == 3
    assert cli("session", "tail", "--from", f"s@{time.gmtime().tm_year + 2}-01-01T00:00:00Z").out == ""
    follow_and_stop(cli, tmp_path)


def follow_and_stop(cli: Cli, tmp_path: Path) -> None:
    note = tmp_path / "note.jsonl"
    note.write_text(line("NoteRecorded", FOLLOWED, kind="news"))
    two = [spawn(*TAIL), spawn("-o", "json", *TAIL)]
    try:
        for process in two:
            assert process.stderr is not None
            assert "following" in process.stderr.readline()
        cli("event", "publish", note)
        for process in two:
            assert process.stdout is not None
            assert "SessionRecovered" in process.stdout.readline()
            assert "NoteRecorded" in process.stdout.readline()
        two[0].send_signal(signal.SIGINT)
        code, err = ended(two[0])
        assert (code, err.splitlines()[-1]) == (130, "interrupted")
        two[1].stdout.close()  # type: ignore[union-attr]
        two[1].stdout = None
        cli("event", "publish", note)
        assert ended(two[1]) == (0, "")
    finally:
        for process in two:
            if process.poll() is None:
                process.kill()
                process.wait(10)

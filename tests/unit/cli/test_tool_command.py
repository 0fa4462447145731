"""`dalsegno tool`: which calls wait for what came of them, and handing it in; the log and the inbox in memory."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dalsegno import events
from dalsegno.cli import inbox_sending
from dalsegno.cli.tool import DID_NOT_RUN
from dalsegno.harness.live import Stopped
from dalsegno.log.inbox import Inbox
from dalsegno.model.events import ToolReceiptRecorded
from dalsegno.model.inbox import Command
from dalsegno.testing.builder import SessionBuilder, blob, digest_of
from dalsegno.testing.memory_log import MemoryLog
from reader_lab import House
from session_lab import World, outcome
from workflow_lab import WIRE, Point, Run, undecided, violations

Say = Callable[..., tuple[str, str]]
CALL = "pay.1/t1/c0"
WAITS = Stopped("WAITING", (CALL,))
ARGUMENTS = b'{"to":"ACME","cents":90000}'


@pytest.fixture(autouse=True)
def _an_empty_inbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_sending, "KafkaTransport", lambda _: MemoryLog().connect())


@pytest.fixture
def say(say: Say, monkeypatch: pytest.MonkeyPatch) -> Say:
    monkeypatch.setenv("DALSEGNO_KAFKA__BOOTSTRAP_SERVERS", "nobody:1")
    # The inbox of the lab's sessions, whose topics have another prefix than the shard here.
    monkeypatch.setattr(inbox_sending, "topic_name", lambda _, name: f"t.{name}")
    monkeypatch.setattr(inbox_sending, "Inbox", lambda transport, **_: Inbox(transport, prefix="t"))
    return say


def known(house: House, log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's shard has all of the log, and commands go into its inbox."""
    shard, records = house.shard(), log.records("t.events")
    records = [record._replace(offset=offset) for offset, record in enumerate(records)]
    shard.apply(shard.generation, 0, len(records), records)
    monkeypatch.setattr(inbox_sending, "KafkaTransport", lambda _: log.connect())


@pytest.fixture
def lost(tmp_path: Path, house: House, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The example that pays a bill, killed when the money had gone and nobody knew, resumed, and waiting."""
    whole = Run(WIRE, tmp_path / "whole", monkeypatch)
    whole.to_its_end()
    received = [event.type for event in whole.recorded()].index("ToolReceiptRecorded") + 1
    found = Run(WIRE, tmp_path / "lost", monkeypatch)
    assert found.to_its_end([Point(received, False)]) == WAITS
    assert len(found.effects()) == 1
    known(house, found.log, monkeypatch)
    return found


def test_a_call_whose_outcome_is_unknown_is_listed_and_its_receipt_ends_the_waiting(lost: Run, say: Say) -> None:
    [row] = json.loads(say("tool", "list", "-o", "json")[0])
    told = {name: row[name] for name in ("session", "call", "state", "name", "arguments", "attempt")}
    assert told == {
        "session": "example", "call": CALL, "state": "outcome unknown", "name": "send_wire",
        "arguments": ARGUMENTS.decode(), "attempt": 1,
    }  # fmt: skip
    assert row["started_at"] is not None

    out, err = say("tool", "receipt", "example", "--text", "sent, says the bank", "--as", "maria", "-o", "json")
    assert (json.loads(out)["call"], json.loads(out)["answer"]) == (CALL, "ok")
    assert "waits for the session's writer" in err
    assert json.loads(say("tool", "list", "-o", "json")[0])[0]["state"] == "answered, not yet taken up"

    assert lost.to_its_end() == Stopped("ENDED")
    recorded = lost.recorded()
    assert undecided(recorded) == violations(recorded) == []
    assert len(lost.effects()) == 1, "it is not run again"
    [receipt] = [event for event in recorded if event.type == "ToolReceiptRecorded"]
    assert (receipt.meta["actor_id"], receipt.body["status"]) == ("maria", "OK")
    assert recorded[-1].body["outcome"] == "SUCCESS"


def test_what_did_not_run_is_told_to_the_model(lost: Run, say: Say) -> None:
    say("tool", "receipt", "example", CALL, "--did-not-run")
    assert lost.to_its_end() == Stopped("ENDED")
    assert len(lost.effects()) == 1
    [receipt] = [event.body for event in lost.recorded() if event.type == "ToolReceiptRecorded"]
    assert (receipt["status"], receipt["result"]["inline"].decode()) == ("ERROR", DID_NOT_RUN)


def test_a_result_comes_from_a_file_or_from_stdin(
    lost: Run, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\x00")
    more = ("--receipt-id", "B-77", "--status", "error")
    say("tool", "receipt", "example", CALL, "--file", str(tmp_path / "bytes"), *more)
    [first] = map(of_command, sent(lost))
    Inbox(lost.log.connect(), prefix="t").take_out(*sent(lost))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"two\nlines\n"), isatty=lambda: False))
    say("tool", "receipt", "example", CALL, "--file", "-")
    [second] = map(of_command, sent(lost))
    assert first.result is not None
    assert (first.result.inline, first.result.media_type) == (b"\xff\x00", "application/octet-stream")
    assert (first.receipt_id, first.status, first.result_digest) == ("B-77", "ERROR", first.result.digest)
    assert second.result is not None
    assert (second.result.inline, second.receipt_id, second.status) == (b"two\nlines\n", f"{CALL}/r1", "OK")


@pytest.mark.parametrize(
    "wrong", [(), ("--text", "a", "--did-not-run"), ("--did-not-run", "--status", "ok"), ("--file", "nowhere")]
)
def test_exactly_one_outcome_is_handed_in(lost: Run, say: Say, wrong: tuple[str, ...]) -> None:
    say("tool", "receipt", "example", *wrong, code=4 if "--file" in wrong else 2)
    assert sent(lost) == []


def test_a_text_that_is_no_utf_8_is_refused(lost: Run, say: Say) -> None:
    assert "lone surrogate" in say("tool", "receipt", "example", "--text", "\udcff", code=1)[1]
    assert sent(lost) == []


def test_a_call_that_nobody_waits_for_takes_no_receipt(lost: Run, say: Say) -> None:
    assert f"has no tool call other; wanted: one that it asked for; it waits for {CALL}" in say(
        "tool", "receipt", "example", "other", "--text", "x", code=4
    )[1]  # fmt: skip
    say("tool", "receipt", "elsewhere", "--text", "x", code=4)
    assert sent(lost) == []


def test_a_call_that_ended_takes_no_receipt_and_is_listed_with_all(house: House, say: Say) -> None:
    house.shard(calls_of(("a", "done"), ("b", "running"), ("c", "timed out"), ("d", "read"), ("e", "wanted")).records)
    assert states(say) == {"b": "running", "c": "outcome unknown"}
    everything = {"a": "ok", "b": "running", "c": "outcome unknown", "d": "failed", "e": "requested"}
    assert states(say, "--all") == everything
    _, err = say("tool", "receipt", "s-1", "a", "--text", "x", code=5)
    assert "tool call a is OK already" in err
    _, err = say("tool", "receipt", "s-1", "--text", "x", code=2)
    assert "session s-1 waits for 2: b, c" in err


def test_calls_left_open_by_a_session_that_ended_are_listed_for_that_session(house: House, say: Say) -> None:
    builder = calls_of(("b", "running"))
    builder.append("SessionCancelled", open_ops=["b"])
    house.shard(builder.records)
    assert states(say) == {}
    assert states(say, "--session", "s-1") == {"b": "running"}


def test_arguments_that_were_changed_are_named_by_their_digest(house: House, say: Say) -> None:
    builder = SessionBuilder("s-1", profile="OBSERVED").begin()
    request(builder, "a")
    builder.append(
        "ToolCallAuthorized", tool_call_id="a", basis="SIMULATED", effective_arguments_digest=digest_of("other")
    )
    builder.append("ToolCallStarted", tool_call_id="a", attempt=1)
    house.shard(builder.records)
    [row] = json.loads(say("tool", "list", "-o", "json")[0])
    assert (row["arguments"], row["arguments_digest"]) == (None, digest_of("other").hex())


def test_a_session_with_nothing_open_says_so(house: House, say: Say) -> None:
    house.shard(SessionBuilder("s-1", profile="OBSERVED").begin().records)
    assert json.loads(say("tool", "list", "-o", "json")[0]) == []
    _, err = say("tool", "receipt", "s-1", "--text", "x", code=4)
    assert "session s-1 waits for no tool call; to do: see 'dalsegno tool list --all'" in err


def test_a_tool_that_gave_no_word_is_waited_for_and_its_receipt_counts(
    tmp_path: Path, house: House, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only a killed process leaves a call without an outcome: a time-out does too."""
    calls = [{"match": "work.1/t1/i", "calls": [{"name": "wire", "arguments": {"cents": 1}}]}, {"text": "done"}]
    world = World(tmp_path, calls)

    monkeypatch.setattr("dalsegno.harness.tools.PythonTools.run", _times_out)
    process = world.process()
    assert process.begin().waits_for == ("work.1/t1/c0",)
    known(house, world.log, monkeypatch)
    assert states(say) == {"work.1/t1/c0": "outcome unknown"}
    say("tool", "receipt", "s-1", "--text", "it went")
    process = world.process()
    assert process.resume().why == "ENDED"
    assert outcome(process.events())["calls"] == {"work.1/t1/c0": ("OK", b"it went")}


def _times_out(*_: Any) -> Any:
    from dalsegno.orchestration.ports import ToolFailed

    raise ToolFailed("TIMEOUT", "no word of it")


# --- what the tests share ---------------------------------------------------------------------------------------------


def states(say: Say, *more: str) -> dict[str, str]:
    return {row["call"]: row["state"] for row in json.loads(say("tool", "list", *more, "-o", "json")[0])}


def sent(run_: Run) -> list[Command]:
    return Inbox(run_.log.connect(), prefix="t").commands_of(["example"]).new()


def of_command(command: Command) -> ToolReceiptRecorded:
    assert isinstance(command.event, events.ToolReceiptRecorded), command.problem
    return command.event


def request(builder: SessionBuilder, call: str, effect: str = "WRITE") -> None:
    builder.append(
        "ToolCallRequested", tool_call_id=call, name="t", effect=effect, arguments=blob(b"{}"),
        arguments_digest=sha256(b"{}").digest(),
    )  # fmt: skip


def calls_of(*calls: tuple[str, str]) -> SessionBuilder:
    """A session with these calls, and how far each of them came."""
    builder = SessionBuilder("s-1", profile="OBSERVED").begin().start()
    for call, came in calls:
        request(builder, call, "READ" if came == "read" else "WRITE")
        if came == "wanted":
            continue
        builder.append("ToolCallAuthorized", tool_call_id=call, basis="SIMULATED")
        builder.append("ToolCallStarted", tool_call_id=call, attempt=1)
        if came == "done":
            builder.append("ToolReceiptRecorded", tool_call_id=call, attempt=1, status="OK", receipt_id="r")
        elif came in ("timed out", "read"):
            builder.append("ToolCallFailed", tool_call_id=call, attempt=1, reason="TIMEOUT")
    return builder

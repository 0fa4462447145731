"""`dalsegno approval`, `input` and `session cancel`: rows of this machine's shards, the inbox over the memory log."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from dalsegno.cli import inbox_sending
from dalsegno.cli.inbox_sending import taken_up
from dalsegno.errors import TopicMissing, WaitTimeout
from dalsegno.log.inbox import Inbox, take_up
from dalsegno.log.record import LogRecord
from dalsegno.model.events import ApprovalGranted, InputProvided
from dalsegno.model.inbox import Command
from dalsegno.model.records import Actor
from dalsegno.testing.builder import SessionBuilder, blob, digest_of
from dalsegno.testing.memory_log import MemoryLog
from inbox_lab import ARGUMENTS, Desk, fits
from reader_lab import PREFIX, House

Say = Callable[..., tuple[str, str]]
FIRST, SECOND = "plan.1/t1/c0/a1", "plan.1/t1/c1/a1"


@pytest.fixture(autouse=True)
def log(say: Say, monkeypatch: pytest.MonkeyPatch) -> MemoryLog:
    """What every command takes for the broker that is named, once ``say`` took away all settings."""
    del say
    found = MemoryLog(partitions=1)
    monkeypatch.setattr(inbox_sending, "KafkaTransport", lambda _: found.connect())
    monkeypatch.setenv("DALSEGNO_KAFKA__BOOTSTRAP_SERVERS", "nobody:1")
    return found


def builder_of(*approvals: str, **fields: Any) -> SessionBuilder:
    builder = SessionBuilder("s-1", profile="OBSERVED").begin()
    for approval in approvals:
        builder.append(
            "ApprovalRequested", approval_id=approval, subject="TOOL_CALL", subject_id=approval[:-3],
            arguments_digest=digest_of(approval), **fields,
        )  # fmt: skip
    return builder


def commands(log: MemoryLog, session: str = "s-1") -> list[Command]:
    return Inbox(log.connect(), prefix=PREFIX).commands_of([session]).new()


def take_out(log: MemoryLog) -> None:
    """The session's writer refused what waited."""
    for command in commands(log):
        Inbox(log.connect(), prefix=PREFIX).take_out(command)


def one(log: MemoryLog) -> Any:
    (command,) = commands(log)
    assert command.event is not None, command.problem
    return command.event


# case C37
def test_c37_an_answer_without_an_id_is_refused_while_more_than_one_waits(
    house: House, say: Say, log: MemoryLog
) -> None:
    house.shard(builder_of(FIRST, SECOND).records)
    _, err = say("approval", "grant", "s-1", code=2)
    assert f"session s-1 waits for 2: {FIRST}, {SECOND}" in err
    assert commands(log) == []
    out, err = say(
        "approval", "grant", "s-1", SECOND, "--scope", "rule", "--reason", "fine", "--as", "maria", "-o", "json"
    )
    assert err == (
        "sent; it waits for the session's writer: where no harness of the session runs, 'dalsegno session resume s-1' "
        "goes on with it\n"
    )
    (command,) = commands(log)
    assert json.loads(out) == {
        "session": "s-1", "approval": SECOND, "answer": "grant", "command_id": command.command_id, "state": "sent",
    }  # fmt: skip
    assert command.actor == Actor("USER", "maria")
    assert command.event == ApprovalGranted(
        approval_id=SECOND, scope="RULE", arguments_digest=digest_of(SECOND), explanation="fine"
    )


def test_c37_an_answer_without_an_id_is_taken_when_exactly_one_waits(house: House, say: Say, log: MemoryLog) -> None:
    builder = builder_of(FIRST, SECOND)
    builder.append("ApprovalGranted", approval_id=SECOND, scope="ONCE", meta={"actor_id": "maria"})
    house.shard(builder.records)
    say("approval", "deny", "s-1", "--reason", "no")
    assert (one(log).approval_id, one(log).explanation, one(log).rejection_source) == (FIRST, "no", "USER")
    _, err = say("approval", "grant", "s-1", SECOND, code=5)
    assert f"approval {SECOND} is GRANTED by maria already" in err


def test_c38_what_was_answered_and_is_not_taken_up_shows(house: House, say: Say) -> None:
    house.shard(builder_of(FIRST, SECOND).records)
    say("approval", "grant", "s-1", FIRST)
    out, _ = say("approval", "list", "-o", "json")
    assert {row["approval"]: row["state"] for row in json.loads(out)} == {
        FIRST: "answered, not yet taken up", SECOND: "open",
    }  # fmt: skip
    assert "answered, not yet taken up" in say("approval", "list", "--session", "s-1")[0]


def test_lists_show_what_waits_and_with_all_what_does_not(house: House, say: Say) -> None:
    builder = builder_of(FIRST, SECOND)
    builder.append("ApprovalDenied", approval_id=FIRST, meta={"actor_id": "otto"})
    house.shard(builder.records)
    rows = json.loads(say("approval", "list", "-o", "json")[0])
    assert [(row["session"], row["approval"], row["subject_id"]) for row in rows] == [("s-1", SECOND, SECOND[:-3])]
    rows = json.loads(say("approval", "list", "--all", "-o", "json")[0])
    assert {(row["approval"], row["state"], row["answered_by"]) for row in rows} == {
        (FIRST, "denied", "otto"), (SECOND, "open", None),
    }  # fmt: skip
    assert json.loads(say("input", "list", "-o", "json")[0]) == []
    assert "no session 's'" in say("approval", "list", "--session", "s", code=4)[1]


def test_an_approver_sees_what_is_to_be_approved_and_why(house: House, say: Say) -> None:
    builder = builder_of()
    for call, view in (
        ("c0", b'{"arguments":{"to":"ACME","cents":90000},"tool":"send_wire","why":"above 500.00 (rule ask)"}'),
        ("c1", b'{"sql":"drop \x1b[31m"}'),  # of another harness: whatever it shows
        ("c2", b'{"sql": "' + b"x" * 2000 + b'"}'),
        ("c3", None),
    ):
        builder.append("ToolCallRequested", tool_call_id=call, name="send_wire", effect="WRITE")
        builder.append(
            "ApprovalRequested", approval_id=f"{call}/a1", subject="TOOL_CALL", subject_id=call,
            view=None if view is None else blob(view),
        )  # fmt: skip
    house.shard(builder.records)
    rows = {row["approval"]: row for row in json.loads(say("approval", "list", "-o", "json")[0])}
    assert [rows["c0/a1"][name] for name in ("tool", "arguments", "why", "seq")] == [
        "send_wire", '{"to": "ACME", "cents": 90000}', "above 500.00 (rule ask)", len(builder.records) - 6,
    ]  # fmt: skip
    assert (rows["c1/a1"]["tool"], rows["c1/a1"]["why"]) == ("send_wire", None)
    assert len(rows["c2/a1"]["arguments"]) == 500
    assert (rows["c3/a1"]["tool"], rows["c3/a1"]["arguments"]) == ("send_wire", None)
    text, _ = say("approval", "list")
    assert '{"to": "ACME", "cents": 90000}' in text
    assert "above 500.00 (rule ask)" in text
    assert "\x1b" not in text


def test_a_second_answer_is_not_sent_while_the_first_one_waits(house: House, say: Say, log: MemoryLog) -> None:
    house.shard(builder_of(FIRST, SECOND).records)
    say("approval", "grant", "s-1", FIRST, "--as", "maria")
    for command in (["grant", "--as", "otto"], ["deny"]):
        _, err = say("approval", command[0], "s-1", FIRST, *command[1:], code=5)
        assert f"{FIRST} is answered already, by maria (ApprovalGranted)" in err
        assert "'dalsegno session resume s-1'" in err
    assert one(log).approval_id == FIRST
    say("approval", "deny", "s-1", SECOND)
    for _ in range(2):  # a cancel is no answer
        say("session", "cancel", "s-1", "--reason", "r")
    take_out(log)
    say("approval", "deny", "s-1", FIRST)
    assert one(log).approval_id == FIRST


def test_what_comes_too_late_is_not_sent_and_the_question_is_listed_as_overdue(
    house: House, say: Say, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = builder_of(FIRST, ttl_ms=5000, on_expiry="DENY")
    recorded_at = builder.records[-1].event.meta["recorded_at"]  # type: ignore[union-attr]
    builder.append("InputRequested", request_id="q", prompt=blob(b"which?"), ttl_ms=5000)
    house.shard(builder.records)
    _, err = say("approval", "grant", "s-1", FIRST, code=5)
    assert f"approval {FIRST} is overdue: it waited for 5000 ms" in err
    say("approval", "deny", "s-1", code=5)
    assert "input q is overdue" in say("input", "answer", "s-1", "--text", "x", code=5)[1]
    assert commands(log) == []
    for what in ("approval", "input"):
        assert [row["state"] for row in json.loads(say(what, "list", "-o", "json")[0])] == ["overdue"], what
    monkeypatch.setattr(inbox_sending, "now", lambda: recorded_at + 5_000_000)
    assert [row["state"] for row in json.loads(say("approval", "list", "-o", "json")[0])] == ["open"]
    say("approval", "grant", "s-1", FIRST)
    monkeypatch.setattr(inbox_sending, "now", lambda: recorded_at + 5_000_001)
    (row,) = json.loads(say("approval", "list", "-o", "json")[0])
    assert row["state"] == "answered, not yet taken up", "it came in time"


def test_forks_in_which_something_is_tried_are_listed_only_where_they_are_asked_for(house: House, say: Say) -> None:
    """Nobody waits for an answer to a replay's question, and it looks like live work."""
    builder = builder_of()
    fork = builder.fork(len(builder.records), "f")
    builder.append("ApprovalRequested", approval_id=FIRST, subject="TOOL_CALL", subject_id="c")
    fork.append("ApprovalRequested", approval_id=SECOND, subject="TOOL_CALL", subject_id="c")
    fork.append("InputRequested", request_id="q", prompt=blob(b"which?"))
    fork.append("ToolCallRequested", tool_call_id="c", name="t", effect="WRITE")
    fork.append("ToolCallAuthorized", tool_call_id="c", basis="SIMULATED")
    fork.append("ToolCallStarted", tool_call_id="c", attempt=1)
    house.shard([*builder.records, *fork.records])
    for what, own, of_fork in (("approval", ["s-1"], "s-1~f"), ("input", [], "s-1~f"), ("tool", [], "s-1~f")):
        out, err = say(what, "list", "-o", "json")
        assert [row["session"] for row in json.loads(out)] == own, what
        assert "not shown: those of 1 fork for debug, dataset or what-if" in err, what
        for more in (["--all"], ["--session", of_fork]):
            out, err = say(what, "list", "-o", "json", *more)
            assert of_fork in {row["session"] for row in json.loads(out)}, (what, more)
            assert "not shown" not in err, (what, more)


def test_a_list_is_given_though_the_inbox_cannot_be_read(
    house: House, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.shard(builder_of(FIRST).records)
    monkeypatch.setattr(inbox_sending, "KafkaTransport", lambda _: MemoryLog(topics=()).connect())
    out, err = say("approval", "list", "-o", "json")
    assert [row["state"] for row in json.loads(out)] == ["open"]
    assert "the inbox cannot be read, so what was answered and is not taken up yet is not shown" in err


def test_only_who_was_asked_may_answer(house: House, say: Say, log: MemoryLog) -> None:
    house.shard(builder_of(FIRST, addressed_to=["maria", "otto"]).records)
    _, err = say("approval", "grant", "s-1", "--as", "eva", code=2)
    assert "is addressed to maria, otto; you are eva" in err
    assert commands(log) == []
    say("approval", "grant", "s-1", "--as", "otto")
    assert one(log).approval_id == FIRST


def test_other_arguments_must_be_json(house: House, say: Say, log: MemoryLog, tmp_path: Path) -> None:
    house.shard(builder_of(FIRST).records)
    bad, good = tmp_path / "bad.json", tmp_path / "good.json"
    bad.write_text("{x")
    good.write_text('{"path": "b"}')
    assert "no JSON" in say("approval", "grant", "s-1", "--arguments", str(bad), code=2)[1]
    for nonsense in ("{", "\udc80"):
        assert "--json: no JSON" in say("input", "answer", "s-1", "--json", nonsense, code=2)[1]
    say("approval", "grant", "s-1", "--arguments", str(good))
    assert one(log).modified_arguments.inline == b'{"path": "b"}'
    assert one(log).arguments_digest == digest_of(FIRST)


@pytest.mark.parametrize("name", ["s", "s-1~x", "last", "nobody", "\udcff"])
def test_an_answer_names_exactly_one_session(house: House, say: Say, log: MemoryLog, name: str) -> None:
    house.shard(builder_of(FIRST).records)
    code = 2 if name == "\udcff" else 4
    say("approval", "grant", name, FIRST, code=code)
    say("session", "cancel", name, "--reason", "r", code=code)
    assert commands(log) == []


def test_what_a_session_never_asked_for_is_not_found(house: House, say: Say) -> None:
    house.shard(builder_of(FIRST).records)
    _, err = say("approval", "grant", "s-1", "other", code=4)
    assert f"session s-1 has no approval other; wanted: one that it asked for; it waits for {FIRST}" in err
    assert "session s-1 waits for no input" in say("input", "answer", "s-1", "--text", "x", code=4)[1]


def test_an_input_is_listed_and_answered(house: House, say: Say, log: MemoryLog) -> None:
    builder = builder_of()
    builder.append("InputRequested", request_id="plan.1/q.file", prompt={
        **blob(b"Which \x1b[31mfile?"), "media_type": "text/plain",
    })  # fmt: skip
    house.shard(builder.records)
    out, _ = say("input", "list")
    assert "Which \\u001b[31mfile?" in out
    for wrong in ((), ("--text", "a", "--decline"), ("--json", "{")):
        say("input", "answer", "s-1", *wrong, code=2)
    assert commands(log) == []
    say("input", "answer", "s-1", "--json", '{"file": 1}')
    event = one(log)
    assert isinstance(event, InputProvided)
    assert (event.request_id, event.outcome) == ("plan.1/q.file", "ACCEPTED")
    assert event.content is not None
    assert (event.content.inline, event.content.media_type) == (b'{"file": 1}', "application/json")
    assert json.loads(say("input", "list", "-o", "json")[0])[0]["state"] == "answered, not yet taken up"
    take_out(log)
    say("input", "answer", "s-1", "--decline")
    assert one(log).outcome == "DECLINED"


def test_a_session_is_cancelled_unless_it_has_ended(house: House, say: Say, log: MemoryLog) -> None:
    builder = builder_of()
    house.shard(builder.records)
    assert "an empty --reason" in say("session", "cancel", "s-1", "--reason", " ", code=2)[1]
    say("session", "cancel", "s-1", "--reason", "no money")
    assert (one(log).reason, commands(log)[0].actor.kind) == ("no money", "OPERATOR")


def test_a_session_that_has_ended_is_not_cancelled(house: House, say: Say, log: MemoryLog) -> None:
    builder = builder_of()
    builder.append("SessionCompleted", outcome="SUCCESS")
    house.shard(builder.records)
    assert "session s-1 is COMPLETED already" in say("session", "cancel", "s-1", "--reason", "r", code=5)[1]
    assert commands(log) == []


# --- waiting ----------------------------------------------------------------------------------------------------------


class Writing:
    """Stands for the follower: when it is polled, the session's writer takes up what waits."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.done = desk, 0

    def __enter__(self) -> Writing:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        return

    def poll(self, _: float) -> list[tuple[int, LogRecord]]:
        for command in self.desk.commands.new():
            take_up(self.desk.session, self.desk.inbox, command, self.desk.state(), fits)
        partition = self.desk.publisher.partition_of("s:1")
        records = self.desk.log.records("t.events", partition)
        new, self.done = records[self.done :], len(records)
        return [(partition, record) for record in new]


@pytest.fixture
def waited(house: House, say: Say, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, str]]:
    """Grants the approval that a living writer asks for, and waits."""
    desk = Desk().begin()
    builder = SessionBuilder("s:1", profile="OBSERVED").begin()
    builder.append(
        "ApprovalRequested", approval_id="a", subject="TOOL_CALL", subject_id="c", arguments_digest=ARGUMENTS
    )
    house.shard(builder.records)
    desk.ask("a")
    monkeypatch.setattr(inbox_sending, "KafkaTransport", lambda _: desk.log.connect())
    monkeypatch.setattr(inbox_sending, "Follower", lambda *_: Writing(desk))
    # The desk's topics have another prefix than the shard here.
    monkeypatch.setattr(inbox_sending, "topic_name", lambda _, name: f"t.{name}")
    monkeypatch.setattr(inbox_sending, "Inbox", lambda transport, **_: Inbox(transport, prefix="t"))

    def command(*more: str, code: int = 0) -> tuple[str, str]:
        return say("approval", "grant", "s:1", "a", "--wait", "5", "-o", "json", *more, code=code)

    return command


def test_with_wait_the_command_says_at_which_seq_it_became_an_event(waited: Callable[..., tuple[str, str]]) -> None:
    found = json.loads(waited()[0])
    assert (found["state"], found["seq"], found["type"]) == ("taken", 4, "ApprovalGranted")


def test_a_refusal_ends_the_wait_with_its_reason(waited: Callable[..., tuple[str, str]]) -> None:
    """The second answer is a repeat: this machine's shard does not know the first yet."""
    waited()
    out, err = waited(code=3)
    assert (json.loads(out)["state"], json.loads(out)["type"]) == ("refused", "NoteRecorded")
    assert "the session's writer refused it at seq 5: APPROVAL a is GRANTED" in err


def test_a_wait_that_is_in_vain_says_that_the_command_stays() -> None:
    with pytest.raises(WaitTimeout, match="did not take up command c within 0") as caught:
        taken_up(lambda _: [], "s", "c", 1, 0.01)
    assert "stays in the inbox" in caught.value.todo
    assert "'dalsegno session resume s'" in caught.value.todo


def test_what_is_no_event_of_the_session_is_passed_over() -> None:
    garbage = [(0, LogRecord(0, key, b"x", 0, 0)) for key in (None, b"x", b"s:1:" + b"0" * 64)]  # type: ignore[arg-type]
    with pytest.raises(WaitTimeout):
        taken_up(lambda _: garbage, "s", "c", 1, 0.01)


def test_the_inbox_topic_must_be_there(house: House, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    house.shard(builder_of(FIRST).records)
    missing = MemoryLog(topics=[f"{PREFIX}.events"])
    monkeypatch.setattr(inbox_sending, "KafkaTransport", lambda _: missing.connect())
    _, err = say("approval", "grant", "s-1", code=TopicMissing.exit_code)
    assert f"topic {PREFIX}.inbox does not exist" in err

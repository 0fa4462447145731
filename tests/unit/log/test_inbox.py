"""Commands through the inbox: what a writer makes of them, over the memory log."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dalsegno import blob, events, inline_blob
from dalsegno.errors import EventTooLarge, InvalidEvent, Unavailable, Usage, WaitTimeout
from dalsegno.log.codec import encode_record
from dalsegno.log.inbox import Inbox, check_command_id
from dalsegno.log.topics import wanted_topics
from dalsegno.model.inbox import Fate, Settled, command_of, settle
from dalsegno.model.lifecycle import config_set_digest
from dalsegno.model.lifecycle.tables import PINNED_AT_START
from dalsegno.projections.approvals import Approvals
from dalsegno.storage.blobs import Blobs
from dalsegno.storage.object_store import FolderStore
from inbox_lab import ARGUMENTS, MARIA, Desk, fits

INBOX = "t.inbox"


@pytest.fixture
def desk() -> Desk:
    return Desk().begin()


def fates(found: list[Settled]) -> list[Fate]:
    return [each.fate for each in found]


def last_note(desk: Desk) -> tuple[str, dict[str, Any]]:
    event = desk.events()[-1]
    assert event.type == "NoteRecorded"
    return event.body["kind"], json.loads(event.body["data"]["inline"])


def test_a_grant_becomes_the_approvers_event_at_the_brokers_time(desk: Desk) -> None:
    desk.ask("a1", addressed_to=["otto", "maria"], ttl_ms=60_000)
    command_id = desk.grant("a1", scope="SESSION", explanation="fine")
    assert desk.waiting() == [command_id]
    assert fates(desk.drain()) == [Fate.TAKEN]
    event = desk.events()[-1]
    assert (event.type, event.body["approval_id"], event.body["scope"]) == ("ApprovalGranted", "a1", "SESSION")
    assert (event.meta["actor_kind"], event.meta["actor_id"]) == MARIA
    assert command_of(event.meta) == command_id
    stored = next(each for each in desk.log.records(INBOX) if each.value is not None)
    assert event.meta["occurred_at"] == stored.timestamp_ms * 1000
    assert desk.waiting() == []
    assert desk.session.operation("APPROVAL", "a1").phase == "GRANTED"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("asked", "answer", "why"),
    [
        ({"addressed_to": ["otto"]}, {}, "maria is not among those who were asked: otto"),
        ({}, {"arguments_digest": b"\x02" * 32}, "it is for other arguments than those that leave was asked for"),
        ({}, {"arguments_digest": None}, "it is for other arguments than those that leave was asked for"),
    ],
)
def test_a_grant_that_does_not_fit_becomes_a_note_that_says_why(
    desk: Desk, asked: dict[str, Any], answer: dict[str, Any], why: str
) -> None:
    desk.ask("a1", **asked)
    command_id = desk.grant("a1", **answer)
    assert fates(desk.drain()) == [Fate.REFUSED]
    kind, said = last_note(desk)
    assert kind == "inbox-refused"
    assert said.pop("why").endswith(why)
    assert said == {
        "command_id": command_id, "event_type": "ApprovalGranted", "subject": "a1", "actor_kind": "USER",
        "actor_id": "maria",
    }  # fmt: skip
    assert desk.session.operation("APPROVAL", "a1").phase == "OPEN"  # type: ignore[union-attr]
    assert desk.waiting() == []


def test_a_grant_that_was_stored_in_time_counts_however_late_it_is_taken_up(desk: Desk) -> None:
    desk.ask("a1", ttl_ms=1000)
    desk.grant("a1")
    (command,) = desk.commands.new()
    asked = desk.state().asked("APPROVAL", "a1")
    assert asked is not None
    at = asked.requested_at + 1_000_000
    assert settle(replace(command, stored_at=at), desk.state(), fits).fate is Fate.TAKEN
    late = settle(replace(command, stored_at=at + 1), desk.state(), fits)
    assert (late.fate, late.why) == (Fate.REFUSED, "it came 1000 ms after the request, which waited for 1000 ms")


def test_the_time_of_a_command_is_the_brokers() -> None:
    inbox = next(each for each in wanted_topics("t", partitions=2, brokers=1) if each.name == INBOX)
    assert (inbox.config["message.timestamp.type"], inbox.partitions) == ("LogAppendTime", 2)


def test_c37_of_two_questions_only_the_answered_one_is_closed(desk: Desk) -> None:
    desk.ask("plan.1/t1/c0/a1", subject_id="plan.1/t1/c0")
    desk.ask("plan.1/t1/c1/a1", subject_id="plan.1/t1/c1")
    desk.grant("plan.1/t1/c1/a1")
    desk.drain()
    live = {id_: row.status for (id_,), row in desk.publisher.rows("approvals", "s:1").items()}
    assert live == {"plan.1/t1/c0/a1": "OPEN", "plan.1/t1/c1/a1": "GRANTED"}
    replayed = {
        id_: row.status
        for (id_,), row in Desk(log=desk.log).publisher.rows("approvals", "s:1", projections=[Approvals()]).items()
    }
    assert replayed == live


def test_c38_a_waiting_approval_outlives_its_writer_and_its_answer_too(desk: Desk) -> None:
    desk.ask("plan.1/t1/c0/a1")
    desk.crash()
    desk.grant("plan.1/t1/c0/a1")
    desk.crash()
    assert fates(desk.drain()) == [Fate.TAKEN]
    assert desk.session.operation("APPROVAL", "plan.1/t1/c0/a1").phase == "GRANTED"  # type: ignore[union-attr]


# case C38
def test_c38_a_second_answer_is_reported_as_a_repeat(desk: Desk) -> None:
    desk.ask("a1")
    desk.grant("a1")
    desk.send(events.ApprovalDenied(approval_id="a1"))
    assert fates(desk.drain()) == [Fate.TAKEN, Fate.REPEAT]
    assert last_note(desk)[0] == "inbox-repeat"
    assert last_note(desk)[1]["why"] == "APPROVAL a1 is GRANTED"


def test_a_crash_between_the_event_and_taking_the_command_out_applies_nothing_twice(desk: Desk) -> None:
    desk.ask_input("q1")
    desk.ask("a1")
    desk.grant("a1")
    (command,) = desk.commands.new()
    settled = settle(command, desk.state(), fits)
    assert settled.event is not None
    desk.session.append(settled.event, **settled.how).result(5)
    desk.crash()
    before = desk.types()
    assert fates(desk.drain()) == [Fate.APPLIED]
    assert desk.types() == before
    assert desk.waiting() == []


def test_the_same_command_sent_twice_is_applied_once(desk: Desk) -> None:
    desk.ask("a1")
    assert desk.grant("a1", command_id="mine") == "mine"
    desk.grant("a1", command_id="mine")
    assert fates(desk.drain()) == [Fate.TAKEN]
    desk.grant("a1", command_id="mine")
    assert fates(desk.drain()) == [Fate.APPLIED]
    assert desk.types().count("ApprovalGranted") == 1
    assert desk.waiting() == []


def test_a_refused_command_is_noted_once(desk: Desk) -> None:
    desk.grant("nobody asked", command_id="mine")
    assert fates(desk.drain()) == [Fate.REFUSED]
    assert last_note(desk)[1]["why"] == "the session knows no APPROVAL nobody asked"
    desk.grant("nobody asked", command_id="mine")
    assert fates(desk.drain()) == [Fate.APPLIED]


def test_an_answer_to_a_question_must_fit_its_schema(desk: Desk) -> None:
    desk.ask_input("q1", schema=inline_blob("ye"))
    give = events.InputProvided
    desk.send(give(request_id="q1", outcome="ACCEPTED", content=inline_blob("no")))
    desk.send(give(request_id="q1", outcome="ACCEPTED"))
    desk.send(give(request_id="q1", outcome="EXPIRED"))
    desk.send(give(request_id="q1", outcome="ACCEPTED", content=inline_blob("yes")))
    found = desk.drain()
    assert [each.why for each in found] == [
        "it does not fit the schema", "it says ACCEPTED and has no content", "EXPIRED is no answer that a person gives",
        "",
    ]  # fmt: skip
    assert desk.events()[-1].body["content"]["inline"] == b"yes"


def test_whoever_is_asked_may_decline_whatever_the_schema_wants(desk: Desk) -> None:
    desk.ask_input("q1", schema=inline_blob("ye"))
    desk.send(events.InputProvided(request_id="q1", outcome="DECLINED"))
    assert fates(desk.drain()) == [Fate.TAKEN]


def receipt(attempt: int = 1) -> events.ToolReceiptRecorded:
    return events.ToolReceiptRecorded(
        tool_call_id="c", attempt=attempt, status="OK", receipt_id="r", result=inline_blob("done"),
        external_ids=[events.ExternalId(key="order", value="7")], started_at=5, ended_at=6, result_digest=b"\x03" * 32,
    )  # fmt: skip


def test_a_late_receipt_closes_a_call_whose_outcome_is_unknown(desk: Desk) -> None:
    desk.call("c")
    desk.send(receipt(2))
    desk.send(receipt())
    desk.send(receipt())
    found = desk.drain()
    assert fates(found) == [Fate.REFUSED, Fate.TAKEN, Fate.REPEAT]
    assert found[0].why == "it is of attempt 2, and 1 were started"
    event = next(each for each in desk.events() if each.type == "ToolReceiptRecorded")
    assert event.body["external_ids"] == [{"key": "order", "value": "7"}]
    assert (event.body["started_at"], event.body["result_digest"]) == (5, b"\x03" * 32)


def test_a_receipt_of_a_call_that_a_crash_left_open_is_taken_after_the_resume(desk: Desk) -> None:
    desk.call("c", resolved=None)
    desk.crash()
    assert desk.session.operation("TOOL", "c").phase == "UNRESOLVED"  # type: ignore[union-attr]
    desk.send(receipt())
    assert fates(desk.drain()) == [Fate.TAKEN]


def test_a_verdict_and_a_cancel_become_events_of_their_sender(desk: Desk) -> None:
    desk.session.append(events.ValidationRequested(validation_id="v", validator="tests"))
    desk.send(events.VerdictReported(validation_id="v", verdict="PASS", score="0.5"), ("VALIDATOR", "ci"))
    desk.send(events.CancelRequested(requested_by="maria", reason="enough"), ("OPERATOR", "maria"))
    assert fates(desk.drain()) == [Fate.TAKEN, Fate.TAKEN]
    verdict, cancel = desk.events()[-2:]
    assert (verdict.body["score"], verdict.meta["actor_id"]) == ("0.5", "ci")
    assert (cancel.type, cancel.body["reason"], cancel.meta["actor_kind"]) == ("CancelRequested", "enough", "OPERATOR")


def test_what_a_session_that_has_not_started_or_has_ended_cannot_take_becomes_a_note() -> None:
    desk = Desk()
    desk.send(events.CancelRequested())
    assert [each.why for each in desk.drain()] == ["the session has not started"]
    desk.begin()
    desk.ask("a1")
    desk.session.append(events.SessionFailed(error=events.ErrorInfo(error_class="E"), open_ops=["a1"]))
    desk.send(events.CancelRequested())
    desk.grant("a1")
    assert [each.why for each in desk.drain()] == ["the session is FAILED"] * 2
    assert desk.types()[-2:] == ["NoteRecorded"] * 2


def test_an_event_that_the_profile_refuses_becomes_a_note() -> None:
    desk = Desk("STRICT")
    for kind in sorted(PINNED_AT_START):
        desk.session.append(
            events.ConfigPinned(kind=kind, name="main", version="1", digest=ARGUMENTS, effective="NOW")  # type: ignore[arg-type]
        )
    pins = [f"{event.body['kind']}:main:{ARGUMENTS.hex()}" for event in desk.events() if event.type == "ConfigPinned"]
    desk.session.append(events.SessionStarted(config_set_digest=config_set_digest(pins), clock_start=1))
    desk.session.append(
        events.ToolCallRequested(
            tool_call_id="c", name="t", effect="WRITE", arguments=inline_blob("{}"), arguments_digest=ARGUMENTS
        )
    )
    desk.session.append(
        events.ToolCallAuthorized(tool_call_id="c", basis="SIMULATED", effective_arguments_digest=ARGUMENTS)
    )
    desk.session.append(events.ToolCallStarted(tool_call_id="c", attempt=1))
    desk.send(events.ToolReceiptRecorded(tool_call_id="c", status="OK", receipt_id="r"))
    (settled,) = desk.drain()
    assert settled.fate is Fate.REFUSED
    assert "breaks F1" in settled.why
    assert last_note(desk)[0] == "inbox-refused"


def command_record(desk: Desk, key: str, value: bytes | None) -> None:
    desk.log.put(INBOX, desk.inbox.partition_of("s:1"), key.encode(), value)


def written(type_: str, payload: bytes, **more: Any) -> bytes:
    record = {
        "session_id": "s:1", "command_id": "x", "event_type": type_, "actor_kind": "USER", "actor_id": "m",
        "sent_at": 1, "payload": msgspec.structs.asdict(inline_blob(payload, "application/json")), **more,
    }  # fmt: skip
    return encode_record("InboxCommand", record)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"garbage", "a value of 7 bytes begins with"),
        (b"", "a value of 0 bytes begins with nothing"),
        (written("CancelRequested", b"{}", command_id="y"), "under its key stands a InboxCommand with another key"),
        (written("SessionCompleted", b"{}"), "no SessionCompleted may be asked for"),
        (written("HistoryAmended", b"{}"), "no HistoryAmended may be asked for"),
        (written("No such", b"{}"), "no No such may be asked for"),
        (written("CancelRequested", b"[]"), "its fields are no JSON: a list is no object"),
        (written("CancelRequested", b"{"), "its fields are no JSON"),
        (written("CancelRequested", b'{"reason": 5}'), "CancelRequested: reason is"),
        (written("CancelRequested", b'{"meta": {}}'), "a field meta"),
        (written("ApprovalGranted", b'{"approval_id": "a", "arguments_digest": "zz"}'), "arguments_digest is 'zz'"),
        (written("ApprovalGranted", b'{"approval_id": "a", "scope": "ALWAYS"}'), "ApprovalGranted: scope is"),
    ],
)
def test_what_is_no_command_is_noted_and_taken_out(desk: Desk, value: bytes, why: str) -> None:
    command_record(desk, "s:1:x", value)
    (settled,) = desk.drain()
    assert settled.fate is Fate.REFUSED
    assert settled.why.startswith(why)
    assert last_note(desk)[1]["command_id"] == "x"
    assert desk.waiting() == []


def test_a_note_fits_into_an_event_whatever_the_command_holds(desk: Desk) -> None:
    large = "x" * 300_000
    desk.grant("x" * 60_000, actor=("USER", large))
    command_record(desk, "s:1:y", written(large, b"{}", command_id="y"))
    desk.ask("a1", addressed_to=[large])
    desk.grant("a1")
    assert fates(desk.drain()) == [Fate.REFUSED] * 3
    notes = [each.body["data"]["size"] for each in desk.events() if each.type == "NoteRecorded"]
    assert max(notes) < 2000
    assert desk.waiting() == []


def test_fields_that_lie_in_a_store_that_nobody_gave_are_refused(desk: Desk, tmp_path: Path) -> None:
    sender = Inbox(desk.publisher.transport, prefix="t", blobs=Blobs(FolderStore(tmp_path)))
    desk.ask("a1")
    event = events.ApprovalGranted(approval_id="a1", arguments_digest=ARGUMENTS, explanation="x" * 70_000)
    sender.send("s:1", event, actor=MARIA)
    assert [each.why for each in desk.drain()] == [
        "its fields are no JSON: they lie in a blob store, and this writer was given none"
    ]


def test_a_store_that_does_not_answer_refuses_nothing(desk: Desk, tmp_path: Path) -> None:
    class Away(Blobs):
        def get(self, blob: Any) -> bytes:
            raise Unavailable(f"no store for {blob['digest'].hex()}")

    desk.ask("a1")
    desk.grant("a1")
    desk.inbox = Inbox(desk.publisher.transport, prefix="t", blobs=Away(FolderStore(tmp_path)))
    desk.commands = desk.inbox.commands_of(["s:1"])
    with pytest.raises(Unavailable, match="no store"):
        desk.drain()
    desk.inbox = Inbox(desk.publisher.transport, prefix="t")
    desk.commands = desk.inbox.commands_of(["s:1"])
    assert fates(desk.drain()) == [Fate.TAKEN]


def test_what_has_no_key_of_a_command_or_another_sessions_is_left_alone(desk: Desk) -> None:
    for key in ("", "s", ":x", "s:1:", "s:2:x", "other:s:1:x", "s:1:" + "x" * 101, "s:1:a\n"):
        command_record(desk, key, b"garbage")
    desk.log.put(INBOX, desk.inbox.partition_of("s:1"), b"\xff:x", b"garbage")
    desk.log.put(INBOX, desk.inbox.partition_of("s:1"), None, b"garbage")
    assert desk.drain() == []


def test_a_look_reads_only_what_came_since_the_last_one(desk: Desk) -> None:
    for _ in range(3):
        desk.grant("a1")
    desk.drain()
    assert desk.commands.records_read == 3
    assert desk.commands.new() == []
    desk.grant("a1", command_id="later")
    assert [each.command_id for each in desk.commands.new()] == ["later"]
    assert desk.commands.records_read == 3 + 3 + 1  # three tombstones of its own


def test_compaction_changes_nothing(desk: Desk) -> None:
    desk.ask("a1")
    desk.grant("a1", command_id="one", explanation="first")
    desk.send(events.CancelRequested(reason="stop"), command_id="two")
    desk.grant("a1", command_id="one", explanation="second")
    before = [(each.command_id, each.event) for each in desk.inbox.commands_of(["s:1"]).new()]
    assert [id_ for id_, _ in before] == ["two", "one"]
    desk.log.compact(INBOX)
    assert [(each.command_id, each.event) for each in desk.inbox.commands_of(["s:1"]).new()] == before


@pytest.mark.parametrize("command_id", ["", "a:b", "x" * 101, "a\n", "ä"])
def test_a_command_id_that_could_not_be_read_back_is_refused(desk: Desk, command_id: str) -> None:
    with pytest.raises(Usage, match="command id"):
        check_command_id(command_id)
    with pytest.raises(Usage, match="command id"):
        desk.grant("a1", command_id=command_id)
    assert desk.log.records(INBOX) == []


def test_what_no_writer_could_append_is_refused_before_it_is_sent(desk: Desk) -> None:
    with pytest.raises(Usage, match="a command that asks for NoteRecorded"):
        desk.send(events.NoteRecorded(kind="k"))
    with pytest.raises(InvalidEvent, match="reason"):
        desk.send(events.CancelRequested(reason="\ud800"))
    with pytest.raises(InvalidEvent, match="scope"):
        desk.grant("a1", scope="ALWAYS")
    with pytest.raises(InvalidEvent, match="actor_kind"):
        desk.grant("a1", actor=("NOBODY", "x"))
    with pytest.raises(InvalidEvent):
        desk.inbox.send("", events.CancelRequested(), actor=MARIA)
    assert desk.log.records(INBOX) == []


def test_a_large_content_goes_through_the_store(desk: Desk, tmp_path: Path) -> None:
    large = events.InputProvided(request_id="q1", outcome="ACCEPTED", content=blob(b"x" * 100_000))
    with pytest.raises((InvalidEvent, EventTooLarge)):
        desk.send(large)
    desk.ask_input("q1")
    blobs = Blobs(FolderStore(tmp_path))
    desk.inbox = Inbox(desk.publisher.transport, prefix="t", blobs=blobs)
    desk.commands = desk.inbox.commands_of(["s:1"])
    desk.send(large)
    assert fates(desk.drain()) == [Fate.TAKEN]
    assert blobs.get(desk.events()[-1].body["content"]) == b"x" * 100_000


def test_a_command_whose_report_is_lost_says_to_send_it_again(desk: Desk) -> None:
    desk.ask("a1")
    desk.publisher.transport.lose_next()  # type: ignore[attr-defined]
    with pytest.raises(WaitTimeout):
        desk.grant("a1", command_id="mine")
    desk.grant("a1", command_id="mine")
    assert fates(desk.drain()) == [Fate.TAKEN]


def test_reports_that_do_not_come_end_the_wait(desk: Desk) -> None:
    desk.publisher.transport.hold()  # type: ignore[attr-defined]
    with pytest.raises(WaitTimeout, match=r"no report on command s:1:mine within 0\.01 s"):
        desk.inbox.send("s:1", events.CancelRequested(), actor=MARIA, command_id="mine", timeout=0.01)
    desk.publisher.transport.release()  # type: ignore[attr-defined]

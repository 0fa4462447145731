"""The writer of a session, over the memory log: order, refusals, what breaks it, what resuming does."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from dalsegno import events, inline_blob
from dalsegno.errors import (
    DalsegnoError,
    EventTooLarge,
    InvalidEvent,
    InvalidSessionId,
    KafkaRefused,
    SessionBroken,
    Unavailable,
    Unsent,
    WaitTimeout,
)
from dalsegno.log.codec import place
from dalsegno.log.publisher import Publisher
from dalsegno.log.session import Session
from dalsegno.log.stored import VALUE_MAX_BYTES
from dalsegno.model.ids import partition_of
from dalsegno.model.path import choose_path
from dalsegno.model.records import Event
from dalsegno.testing.memory_log import MemoryLog, MemoryTransport

TOPIC = "t.events"
BLOB = inline_blob(b"x")


def stored(log: MemoryLog, publisher: Publisher, session_id: str = "s-1") -> list[Event]:
    """Every event of the session in the log, in log order, as a reader gets it."""
    found = []
    for partition in range(4):
        for record in log.records(TOPIC, partition):
            event = place(publisher.schemas, record.key, record.value, partition, 4)
            assert isinstance(event, Event)
            if event.session_id == session_id:
                found.append(event)
    return found


def begin(publisher: Publisher, session_id: str = "s-1", **options: Any) -> Session:
    session = publisher.session(session_id, **options)
    session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
    session.append(events.SessionStarted())
    return session


def note(text: str = "n") -> events.NoteRecorded:
    return events.NoteRecorded(kind=text)


def test_events_are_numbered_linked_and_acknowledged_each(log: MemoryLog, publisher: Publisher) -> None:
    session = begin(publisher)
    receipt = session.append(note()).result(5)
    found = stored(log, publisher)
    assert [(e.seq, e.type) for e in found] == [(1, "SessionCreated"), (2, "SessionStarted"), (3, "NoteRecorded")]
    assert [e.prev_hash for e in found] == [None, found[0].hash, found[1].hash]
    assert receipt == (partition_of("s-1", 4), 2, 3, found[2].hash)
    assert (session.seq, session.head_hash, session.epoch) == (3, found[2].hash, 0)
    assert found[2].meta["ignorable"] is True
    assert found[1].meta["ignorable"] is False


def test_every_schema_is_there_before_the_first_event_that_uses_it(log: MemoryLog) -> None:
    seen: list[int] = []

    class Watching(MemoryTransport):
        def send(self, topic: str, *record: Any) -> None:
            value = record[2]
            assert any(writer.frame_id == value[2:10] for writer in log.schemas.values())
            seen.append(1)
            super().send(topic, *record)

    with Publisher(Watching(log), prefix="t") as publisher:
        begin(publisher)
    assert len(seen) == 2


def test_the_envelope_holds_what_the_append_says(log: MemoryLog, publisher: Publisher) -> None:
    session = begin(publisher, actor=("AGENT", "a"))
    when = datetime(2026, 1, 2, tzinfo=UTC)
    session.append(
        note(),
        occurred_at=when,
        causation_id="c",
        turn_id="plan.1/t1",
        stage_id="plan.1",
        actor=("USER", "ann"),
        origin=events.Origin(importer="inbox", native_ref="cmd-1"),
        redactions=[events.Redaction(pointer="/data", reason="secret")],
    )
    first, *_, last = stored(log, publisher)
    assert last.meta["occurred_at"] == int(when.timestamp()) * 1_000_000
    assert [last.meta[k] for k in ("causation_id", "turn_id", "stage_id")] == ["c", "plan.1/t1", "plan.1"]
    assert (last.meta["actor_kind"], last.meta["actor_id"]) == ("USER", "ann")
    assert (first.meta["actor_kind"], first.meta["actor_id"]) == ("AGENT", "a")
    assert last.meta["origin"]["native_ref"] == "cmd-1"
    assert last.meta["redactions"][0]["pointer"] == "/data"
    assert last.meta["writer"] == "test/1/a"


def test_a_clock_that_is_set_back_does_not_turn_the_session_back(log: MemoryLog, publisher: Publisher) -> None:
    # case C50
    times = iter([1000, 2000, 500, 3000])
    session = begin(publisher, clock=lambda: next(times))
    session.append(note())
    session.append(note())
    assert [e.meta["recorded_at"] for e in stored(log, publisher)] == [1000, 2000, 2000, 3000]


def test_decisions_get_equal_ids_after_equal_histories_and_facts_do_not(log: MemoryLog, publisher: Publisher) -> None:
    session = begin(publisher)
    session.append(note())
    end = session.append(events.SessionCompleted(outcome="SUCCESS")).result(5)
    decided = {e.seq: e.meta["event_id"] for e in stored(log, publisher)}
    assert decided[end.seq][14] == "5"
    assert decided[3][14] == "7"
    assert len(set(decided.values())) == 4


BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    # case C65
    "a lone surrogate": (events.NoteRecorded(kind="\ud800"), {}, "kind"),
    "a lone surrogate deep inside": (
        events.MessageReceived(message_id="m", role="USER", parts=[events.Part(kind="TEXT", text="a\udfff")]),
        {},
        "parts[0].text",
    ),
    "text that is not text": (events.NoteRecorded(kind=b"\xff\xfe"), {}, "kind"),  # type: ignore[arg-type]
    "bytes that are text": (
        events.NoteRecorded(kind="k", data=events.Blob(digest="x" * 32, size=1, media_type="a")),  # type: ignore[arg-type]
        {},
        "data.digest",
    ),
    "a number above int64": (events.SessionStarted(seed=2**63), {}, "seed"),
    "a float": (events.SessionStarted(seed=1.5), {}, "seed"),  # type: ignore[arg-type]
    "not a number": (events.SessionStarted(seed=float("nan")), {}, "seed"),  # type: ignore[arg-type]
    "a bool for a number": (events.SessionStarted(seed=True), {}, "seed"),
    "an enum symbol that there is not": (
        events.MessageReceived(message_id="m", role="ROBOT"),  # type: ignore[arg-type]
        {},
        "role",
    ),
    "a time without a zone": (events.NoteRecorded(kind="k"), {"occurred_at": datetime(2026, 1, 1)}, "meta.occurred_at"),  # noqa: DTZ001
    "a cause that is no text": (events.NoteRecorded(kind="k"), {"causation_id": 7}, "meta.causation_id"),
    "an actor of no kind": (events.NoteRecorded(kind="k"), {"actor": ("ROBOT", "r")}, "meta.actor_kind"),
    "an actor that is no pair": (events.NoteRecorded(kind="k"), {"actor": "USER"}, "meta.actor"),
    "no event": ({"kind": "k"}, {}, "event"),
    "a wrong digest": (
        events.NoteRecorded(kind="k", data=events.Blob(digest=bytes(32), size=1, media_type="a", inline=b"x")),
        {},
        "data.digest",
    ),
    "a large content inline": (
        events.NoteRecorded(
            kind="k", data=events.Blob(digest=bytes(32), size=70_000, media_type="a", inline=bytes(70_000))
        ),
        {},
        "data.inline",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_refused_event_names_its_field_and_does_no_harm(log: MemoryLog, publisher: Publisher, what: str) -> None:
    session = begin(publisher)
    before = (session.seq, session.head_hash)
    event, how, field = BAD[what]
    with pytest.raises(InvalidEvent) as caught:
        session.append(event, **how)
    found = caught.value.data["field"]
    assert found.replace("/", ".").replace(".0.", "[0].") == field
    assert (session.seq, session.head_hash) == before
    assert session.broken is None
    assert session.append(note()).result(5).seq == before[0] + 1
    chain = choose_path([e.link for e in stored(log, publisher)])
    assert len(chain.hashes) == 3


def test_an_event_that_is_too_large_names_its_largest_field(log: MemoryLog, publisher: Publisher) -> None:
    session = begin(publisher)
    part = events.Part(kind="TEXT", text="x" * 600_000)
    with pytest.raises(EventTooLarge) as caught:
        session.append(events.MessageReceived(message_id="m", role="USER", parts=[part, part]))
    assert caught.value.data["field"] == "parts"
    assert caught.value.data["size"] > VALUE_MAX_BYTES
    assert session.append(note()).result(5).seq == 3
    assert len(stored(log, publisher)) == 3


@pytest.mark.parametrize("bad", ["", "~b", "x" * 201, "a\x00b", "\ud800"])
def test_a_bad_session_id_is_refused_at_once(publisher: Publisher, bad: str) -> None:
    with pytest.raises(InvalidSessionId) as caught:
        publisher.session(bad)
    assert caught.value.data["field"] == "session_id"


@pytest.mark.parametrize("relation", ["NONE", "CHILD"])
@pytest.mark.parametrize("options", [{}, {"check_rules": False}])
def test_the_mark_of_forks_in_the_id_of_a_session_that_is_none_is_refused(
    log: MemoryLog, publisher: Publisher, relation: Any, options: dict[str, Any]
) -> None:
    session = publisher.session("a~b", **options)
    with pytest.raises(InvalidSessionId, match="session_id is 'a~b'") as caught:
        session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED", relation=relation))
    assert caught.value.data["field"] == "session_id"
    with pytest.raises(InvalidSessionId):
        session.append(events.SessionStarted())
    assert not log.records(TOPIC, partition_of("a~b", 4))


def test_odd_text_that_utf8_can_hold_is_kept_as_it_is(log: MemoryLog, publisher: Publisher) -> None:
    # case C65
    session = begin(publisher)
    session.append(note("nul \x00, line \u2028, \U0001f600")).result(5)
    assert stored(log, publisher)[-1].body["kind"] == "nul \x00, line \u2028, \U0001f600"


# --- lifecycle rules --------------------------------------------------------------------------------------------------


def strict(publisher: Publisher, session_id: str = "s-1", **options: Any) -> Session:
    session = publisher.session(session_id, **options)
    session.append(events.SessionCreated(workflow_name="w", profile="STRICT"))
    return session


def test_in_a_strict_session_a_broken_rule_refuses_the_event(log: MemoryLog, publisher: Publisher) -> None:
    session = strict(publisher)
    with pytest.raises(InvalidEvent) as caught:
        session.append(events.SessionStarted(clock_start=1, seed=1))
    assert caught.value.data["rule"] == "S2"
    with pytest.raises(InvalidEvent) as caught:
        session.append(events.ToolCallStarted(tool_call_id="c0", executor="e"))
    assert caught.value.data["field"] == "tool_call_id"
    assert {"U3", "S3"} <= set(caught.value.data["rules"])
    with pytest.raises(InvalidEvent) as caught:
        session.append(events.ConfigPinned(kind="WORKFLOW", name="w", version="1", content=BLOB))
    assert (caught.value.data["rule"], caught.value.data["field"]) == ("F1", "digest")
    assert session.append(
        events.ConfigPinned(kind="WORKFLOW", name="w", version="1", digest=bytes(32), content=BLOB)
    ).result(5)
    assert [e.seq for e in stored(log, publisher)] == [1, 2]


def test_a_session_that_begins_with_anything_else_is_refused(publisher: Publisher) -> None:
    with pytest.raises(InvalidEvent) as caught:
        publisher.session("s-1").append(note())
    assert caught.value.data["rule"] == "S1"


def test_an_observed_session_records_what_happened_and_names_the_rule(log: MemoryLog, publisher: Publisher) -> None:
    session = begin(publisher)
    pending = session.append(events.ToolCallStarted(tool_call_id="c0", executor="e"))
    assert "U3" in pending.violations
    assert pending.result(5).seq == 3
    assert session.append(note()).violations == ()
    assert len(stored(log, publisher)) == 4


def test_rules_can_be_switched_off(log: MemoryLog, publisher: Publisher) -> None:
    session = strict(publisher, check_rules=False)
    assert session.append(events.SessionStarted()).violations == ()
    assert len(stored(log, publisher)) == 2


# --- batches ----------------------------------------------------------------------------------------------------------


def test_a_batch_is_sent_whole_or_not_at_all(log: MemoryLog, publisher: Publisher) -> None:
    session = begin(publisher)
    request = events.InferenceRequested(inference_id="i", purpose="AGENT")
    with pytest.raises(InvalidEvent) as caught:
        session.append_batch([request, note(), note("\ud800")])
    assert caught.value.data["index"] == 2
    assert session.seq == 2
    # Neither did the refused batch leave an open inference behind: the same one is not "open already".
    done = session.append_batch([request, (note(), {"causation_id": "c"})])
    assert [p.result(5).seq for p in done] == [3, 4]
    assert [p.violations for p in done] == [(), ()]
    assert stored(log, publisher)[-1].meta["causation_id"] == "c"


def test_a_refused_batch_leaves_the_operations_as_they_were(publisher: Publisher) -> None:
    session = begin(publisher)
    session.append(events.InferenceRequested(inference_id="i", purpose="AGENT"))
    answer = events.InferenceCompleted(inference_id="i", model="m")
    with pytest.raises(InvalidEvent):
        session.append_batch([answer, note("\ud800")])
    assert session.append(answer).violations == ()  # it was still open


# --- what breaks a session --------------------------------------------------------------------------------------------


def test_an_event_that_the_log_refuses_breaks_the_session(transport: MemoryTransport, publisher: Publisher) -> None:
    session = begin(publisher)
    publisher.flush(5)
    transport.fail_next()
    pending = session.append(note())
    with pytest.raises(KafkaRefused):
        pending.result(5)
    with pytest.raises(SessionBroken, match="resume it"):
        session.append(note())
    # Another session of the same publisher goes on.
    assert begin(publisher, "s-2").append(note()).result(5).seq == 3


def test_a_wait_that_ends_is_unknown_and_the_report_still_comes(
    transport: MemoryTransport, publisher: Publisher
) -> None:
    session = begin(publisher)
    publisher.flush(5)
    transport.hold()
    pending = session.append(note())
    with pytest.raises(WaitTimeout, match="may or may not be stored"):
        pending.result(0.01)
    assert session.broken is None
    assert not pending.done()
    transport.release()
    assert pending.result(5).seq == 3


def test_a_receipt_can_be_awaited_and_a_cancelled_wait_cancels_nothing(
    transport: MemoryTransport, publisher: Publisher
) -> None:
    session = begin(publisher)
    publisher.flush(5)

    async def main() -> None:
        assert (await session.append(note())).seq == 3
        transport.hold()
        pending = session.append(note())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_wait(pending), 0.05)
        transport.release()
        assert (await pending).seq == 4

    async def _wait(pending: Any) -> Any:
        return await pending

    asyncio.run(main())
    assert session.broken is None


def test_many_threads_make_one_chain(log: MemoryLog, publisher: Publisher) -> None:
    session = begin(publisher)
    threads = [threading.Thread(target=lambda: [session.append(note()) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert publisher.flush(5) == 0
    path = choose_path([e.link for e in stored(log, publisher)])
    assert (len(path.hashes), path.superseded, path.held) == (202, frozenset(), None)


# --- the publisher's own ----------------------------------------------------------------------------------------------


def test_a_record_without_a_key_of_its_own_never_leaves_the_process(log: MemoryLog, publisher: Publisher) -> None:
    # case C1
    session = begin(publisher)
    good = [session.append(note()), session.append(note())]
    value = good[0].value
    for key in (None, b"", b"s-1", good[1].key.encode(), good[1].key):
        with pytest.raises(InvalidEvent) as caught:
            publisher.send(key, value)
        assert caught.value.data["field"] == ("value" if key in (good[1].key, good[1].key.encode()) else "key")
        assert not caught.value.retryable
    with pytest.raises(InvalidEvent):
        publisher.send(good[0].key, b"rubbish")
    assert [pending.result(5).seq for pending in good] == [3, 4]
    assert len(stored(log, publisher)) == 4


def test_stored_bytes_are_sent_again_as_they_are(log: MemoryLog, publisher: Publisher) -> None:
    # case C49
    session = begin(publisher)
    first = session.append(note())
    again = publisher.send(first.key, first.value)
    assert again.result(5).hash == first.result(5).hash
    events_ = stored(log, publisher)
    assert len(events_) == 4
    assert len(choose_path([e.link for e in events_]).hashes) == 3
    log.compact(TOPIC)
    assert len(stored(log, publisher)) == 3


def test_a_tombstone_can_be_sent(log: MemoryLog, publisher: Publisher) -> None:
    first = begin(publisher).append(note())
    publisher.send(first.key, None).result(5)
    assert log.records(TOPIC, first.partition)[-1].value is None


def test_close_lists_what_was_not_acknowledged_and_it_can_be_sent_again(log: MemoryLog) -> None:
    # case C58
    transport = log.connect()
    publisher = Publisher(transport, prefix="t")
    session = begin(publisher)
    publisher.flush(5)
    transport.hold()
    pendings = [session.append(note(str(n))) for n in range(20)]
    with pytest.raises(Unsent) as caught:
        publisher.close(0.05)
    assert len(caught.value.data["keys"]) == 20
    assert set(caught.value.data["keys"]) == {p.key.encode().decode() for p in pendings}
    assert all(p.error() is not None for p in pendings)
    with pytest.raises(SessionBroken):
        session.append(note())
    with pytest.raises(Unavailable):
        publisher.session("s-2").append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
    with Publisher(log.connect(), prefix="t") as second:
        for pending in second.resend(caught.value):
            pending.result(5)
        found = {e.hash for e in stored(log, second)}
        assert len(found) == 22  # nothing doubled: the log had them already
        log.compact(TOPIC)
        assert len(stored(log, second)) == 22


def test_one_refused_record_is_the_one_that_is_listed(log: MemoryLog) -> None:
    # case C58
    transport = log.connect()
    publisher = Publisher(transport, prefix="t")
    session, other = begin(publisher, "s-1"), begin(publisher, "s-2")
    publisher.flush(5)
    transport.fail_next()
    bad = session.append(note())
    with pytest.raises(DalsegnoError):
        bad.result(5)
    other.append(note()).result(5)
    with pytest.raises(Unsent) as caught:
        publisher.close()
    assert caught.value.data["keys"] == [bad.key.encode().decode()]


def test_a_publisher_that_closes_twice_or_with_nothing_to_say_is_fine(log: MemoryLog) -> None:
    with Publisher(log.connect(), prefix="t") as publisher:
        begin(publisher)
    publisher.close()

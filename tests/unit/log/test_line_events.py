"""New events from JSON lines: what is published, what is refused, and what is said of everything before."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from typing import Any

import pytest

from dalsegno import events
from dalsegno.cli.interrupts import Interrupts
from dalsegno.errors import BadLine, KafkaRefused, SessionSuperseded
from dalsegno.log import line_events
from dalsegno.log.codec import place
from dalsegno.log.line_events import Acknowledged, Nearest, publish_lines
from dalsegno.log.publisher import Publisher
from dalsegno.model.history import gather
from dalsegno.model.ids import Offset
from dalsegno.model.records import Event
from dalsegno.testing.memory_log import MemoryLog, MemoryTransport

TOPIC = "t.events"


def line(type_: str, session_id: str = "s-1", **fields: Any) -> dict[str, Any]:
    return {"type": type_, "session_id": session_id, "fields": fields}


CREATED = line("SessionCreated", workflow_name="w", profile="OBSERVED")
STARTED = line("SessionStarted")


def lines(*found: Any) -> list[bytes]:
    return [each if isinstance(each, bytes) else json.dumps(each).encode() + b"\n" for each in found]


def stored(log: MemoryLog, publisher: Publisher, session_id: str = "s-1") -> list[Event]:
    partition = publisher.partition_of(session_id)
    found = [place(publisher.schemas, r.key, r.value, partition, 4) for r in log.records(TOPIC, partition)]
    return [each for each in found if isinstance(each, Event) and each.session_id == session_id]


def test_lines_become_events_of_their_sessions(log: MemoryLog, publisher: Publisher) -> None:
    other = [{**each, "session_id": "s-2"} for each in (CREATED, STARTED)]
    done = publish_lines(publisher, lines(CREATED, other[0], b"\n", STARTED, other[1]), "f")
    assert [(each.session_id, each.events, each.first_seq, each.last_seq) for each in done] == [
        ("s-1", 2, 1, 2),
        ("s-2", 2, 1, 2),
    ]
    events = stored(log, publisher)
    assert [event.type for event in events] == ["SessionCreated", "SessionStarted"]
    assert gather(events).known.choose().head.seq == 2
    assert events[0].meta["writer"] == "test/1/a"


def test_values_that_json_lacks_are_read_by_the_schema(log: MemoryLog, publisher: Publisher) -> None:
    digest = "ab" * 32
    receipt = line(
        "ToolReceiptRecorded",
        receipt_id="r", tool_call_id="c", attempt=1, status="OK", result="fine, thanks",
        result_digest=digest, started_at="2026-01-02T03:04:05+01:00", ended_at=1_767_225_600_000_000,
        external_ids=[{"key": "k", "value": "v"}],
        side_effects=[{"kind": "file", "resource": "x", "before": digest}],
    )  # fmt: skip
    message = line(
        "MessageReceived",
        message_id="m", role="USER",
        parts=[{"kind": "MEDIA", "blob": {"digest": digest, "size": 3, "media_type": "x/y", "uri": "blob:1"}}],
    )  # fmt: skip
    publish_lines(publisher, lines(CREATED, STARTED, receipt, message), "f")
    *_, told, media = (event.body for event in stored(log, publisher))
    assert told["result"]["inline"] == b"fine, thanks"
    assert told["result"]["media_type"] == "text/plain; charset=utf-8"
    assert told["result_digest"] == told["side_effects"][0]["before"] == bytes.fromhex(digest)
    assert told["started_at"] == 1_767_319_445_000_000
    assert media["parts"][0]["blob"]["digest"] == bytes.fromhex(digest)


def test_a_session_of_the_log_is_taken_over(log: MemoryLog, publisher: Publisher) -> None:
    publish_lines(publisher, lines(CREATED, STARTED), "f")
    note = line("NoteRecorded", kind="k")
    (done,) = publish_lines(publisher, lines(note, note), "g")
    assert (done.resumed, done.first_seq, done.last_seq) == (True, 4, 5)
    assert [event.type for event in stored(log, publisher)][2:] == ["SessionRecovered", "NoteRecorded", "NoteRecorded"]


# As Python's reader of JSON still takes it, wherever the tests run: what walks through it needs more of the stack.
DEEP = b"[" * (sys.getrecursionlimit() * 6 // 10) + b"]" * (sys.getrecursionlimit() * 6 // 10)

REFUSED = [
    (b"{", "", "no JSON"),
    (b"\xff\n", "", "no JSON"),
    ([1], "", "a list"),
    ({**CREATED, "seq": 7}, "seq", "no key of a line"),
    ({**CREATED, "session_id": 7}, "session_id", "a int"),
    ({**CREATED, "session_id": "s~1"}, "session_id", "marks forks"),
    ({**CREATED, "session_id": ""}, "session_id", "an empty id"),
    ({"session_id": "s-9", "fields": {}}, "type", "missing"),
    (line("SessionCreate", "s-9"), "type", "'SessionCreate'"),
    (line("SessionRecovered", "s-9"), "type", "the library writes by itself"),
    (line("SessionForked", "s-9"), "type", "the library writes by itself"),
    (line("HistoryAmended", "s-9"), "type", "the library writes by itself"),
    ({**STARTED, "fields": [1]}, "fields", "a list"),
    ({**STARTED, "fields": None}, "fields", "null"),
    (line("SessionStarted", meta={"seq": 3}), "fields.meta", "the envelope"),
    (line("NoteRecorded"), "kind", "lacks kind"),
    (line("NoteRecorded", kind="k", knd=1), "knd", "no field knd"),
    (line("NoteRecorded", kind=1), "kind", "1 (int)"),
    (line("NoteRecorded", kind="k", data=1), "data", "a int"),
    (line("NoteRecorded", kind="k", data={"digest": "xy"}), "data.digest", "'xy'"),
    (line("MessageReceived", message_id="m", role="KING", parts=[]), "role", "'KING'"),
    (line("MessageReceived", message_id="m", role="USER", parts=7), "parts", "a int"),
    (line("MessageReceived", message_id="m", role="USER", parts=[{"kind": 1}]), "parts[0].kind", "1"),
    (line("SessionStarted", clock_start="2026-01-01T00:00:00"), "clock_start", "without a zone"),
    (line("SessionStarted", clock_start="yesterday"), "clock_start", "'yesterday'"),
    (line("NoteRecorded", "s-9", kind="k"), "type", "the log holds no session 's-9'"),
    (b'{"type": "NoteRecorded", "session_id": "s-1", "fields": {"kind": "a", "kind": "b"}}', "", "'kind' stands twice"),
    (b'{"type": "NoteRecorded", "session_id": "s-1", "fields": {}, "fields": {"kind": "b"}}', "", "'fields' stands"),
    (b'{"type": "NoteRecorded", "session_id": "s-1", "fields": {"kind": "\xed\xa0\x80"}}', "", "no JSON: 'utf-8'"),
    (b"[" * 100_000, "", "nested too deeply"),
    (b'{"type": "NoteRecorded", "session_id": "s-1", "fields": {"kind": %s}}' % DEEP, "event", "nested too deeply"),
    (CREATED, "", "SessionCreated at seq 2 breaks S1"),
]


@pytest.mark.parametrize(("bad", "field", "text"), REFUSED, ids=lambda each: str(each)[:40])
def test_a_line_that_is_refused_is_named_with_what_was_acknowledged(
    log: MemoryLog, publisher: Publisher, bad: Any, field: str, text: str
) -> None:
    first = [{**CREATED, "fields": {**CREATED["fields"], "profile": "STRICT"}}] if bad is CREATED else [CREATED]
    with pytest.raises(BadLine) as caught:
        publish_lines(publisher, lines(*first, bad, line("NoteRecorded", kind="never")), "events.jsonl")
    error = caught.value
    assert error.found.startswith("events.jsonl, line 2: ")
    assert text in error.found
    assert "; acknowledged: 1 events of s-1, seq 1 to 1" in error.found
    if field:
        assert error.data["field"] == field
    assert (error.data["line"], error.data["acknowledged"]) == (2, {"s-1": (1, 1)})
    assert len(stored(log, publisher)) == 1


def test_the_rest_behind_a_refused_line_is_published_as_the_error_says(log: MemoryLog, publisher: Publisher) -> None:
    bad, good = {**STARTED, "fields": {"sed": 1}}, {"type": "SessionStarted", "session_id": "s-1"}
    with pytest.raises(BadLine) as first:
        publish_lines(publisher, lines(bad), "a b.jsonl")
    assert first.value.todo == "correct the line, and publish the file again"
    with pytest.raises(BadLine) as second:
        publish_lines(publisher, lines(CREATED, bad), "a b.jsonl")
    assert second.value.todo.endswith(": tail -n +2 'a b.jsonl' | dalsegno event publish -")
    with pytest.raises(BadLine, match="publish it and what follows it: "):
        publish_lines(Publisher(log.connect(), prefix="t"), lines(bad), "-")
    publish_lines(Publisher(log.connect(), prefix="t"), lines(good), "-")  # it has no fields, and says none
    assert [each.type for each in stored(log, publisher)][-1] == "SessionStarted"


def test_a_takeover_before_a_line_that_is_refused_is_told(log: MemoryLog, publisher: Publisher) -> None:
    """It is in the log, and whoever wrote before is put out."""
    publish_lines(publisher, lines(CREATED), "f")
    with pytest.raises(BadLine, match="acknowledged: no event of s-1, which was taken over"):
        publish_lines(Publisher(log.connect(), prefix="t"), lines(line("NoteRecorded", kind=7)), "g")
    assert stored(log, publisher)[-1].type == "SessionRecovered"


def test_a_session_that_is_there_is_not_begun_again(log: MemoryLog, publisher: Publisher) -> None:
    publish_lines(publisher, lines(CREATED, STARTED), "f")
    with pytest.raises(BadLine, match=r"a session that the log holds already.*acknowledged: nothing"):
        publish_lines(Publisher(log.connect(), prefix="t"), lines(CREATED), "g")
    assert len(stored(log, publisher)) == 2


@pytest.mark.parametrize("first", [CREATED, STARTED], ids=["begun", "taken over"])
def test_of_two_at_once_one_is_told_that_readers_may_follow_the_other(
    log: MemoryLog, publisher: Publisher, first: dict[str, Any]
) -> None:
    if first is STARTED:
        publish_lines(Publisher(log.connect(), prefix="t"), lines(CREATED), "f")

    def given() -> Iterable[bytes]:
        yield from lines(line("SessionCreated", "other", workflow_name="w", profile="OBSERVED"))
        yield from lines(first)
        publisher.flush(10)
        rival = Publisher(log.connect(), prefix="t")
        session = rival.resume("s-1") if first is STARTED else rival.session("s-1")
        event = (
            events.SessionStarted()
            if first is STARTED
            else events.SessionCreated(workflow_name="w", profile="OBSERVED")
        )
        session.append(event).result()
        yield from lines(line("NoteRecorded", kind="perhaps nobody's"))

    with pytest.raises(SessionSuperseded, match=r"s-1 was taken over by .*; acknowledged: .*events of s-1, seq"):
        publish_lines(publisher, given(), "f")


def test_what_comes_after_a_session_was_taken_over_is_no_rival(log: MemoryLog, publisher: Publisher) -> None:
    before = Publisher(log.connect(), prefix="t").session("s-1")
    before.append(events.SessionCreated(workflow_name="w", profile="OBSERVED")).result()

    def given() -> Iterable[bytes]:
        yield from lines(STARTED)
        publisher.flush(10)
        before.append(events.NoteRecorded(kind="of a writer that was put out")).result()

    (done,) = publish_lines(publisher, given(), "f")
    assert (done.first_seq, done.last_seq) == (3, 3)


def test_what_the_log_refuses_is_told_apart_from_what_it_acknowledged(
    publisher: Publisher, transport: MemoryTransport
) -> None:
    def given() -> Iterable[bytes]:
        yield from lines(CREATED, STARTED)
        publisher.flush(10)
        transport.fail_next(KafkaRefused("could not store a record: full"))
        yield from lines(line("NoteRecorded", kind="lost"))

    with pytest.raises(KafkaRefused) as caught:
        publish_lines(publisher, given(), "f")
    assert "f, line 3: could not store" in caught.value.found
    assert "acknowledged: 2 events of s-1, seq 1 to 2; not acknowledged: s-1 seq 3" in caught.value.found


def test_a_pipe_that_never_ends_is_published_as_it_comes(log: MemoryLog, publisher: Publisher) -> None:
    seen: list[int] = []

    def given() -> Iterable[bytes]:
        for each in (CREATED, STARTED, line("NoteRecorded", kind="k")):
            yield from lines(each)
            publisher.flush(10)
            seen.append(len(stored(log, publisher)))

    publish_lines(publisher, given(), "-")
    assert seen == [1, 2, 3]


def test_whether_a_session_is_new_is_asked_of_the_state_and_of_the_log_behind_it_once(
    log: MemoryLog, publisher: Publisher
) -> None:
    """Not once for each session: a file may hold thousands."""
    by_partition: dict[int, list[str]] = {}
    for number in range(40):
        by_partition.setdefault(publisher.partition_of(f"n-{number}"), []).append(f"n-{number}")
    first, second, third, *new = max(by_partition.values(), key=len)

    def created(session_id: str) -> dict[str, Any]:
        return {**CREATED, "session_id": session_id}

    publish_lines(publisher, lines(created(first), created(second)), "f")
    asked: list[str] = []

    def nearest(session_id: str) -> Nearest:
        asked.append(session_id)
        return Nearest(Offset(1), lambda each: each == first)

    log.records_given = 0
    again = Publisher(log.connect(), prefix="t")
    done = publish_lines(again, lines(created(third), *map(created, new)), "g", nearest=nearest)
    assert len(done) == 1 + len(new)
    # At the end what came meanwhile is looked at once, which is here what was written.
    assert (asked, log.records_given) == ([third], 1 + len(done))
    for known in (first, second):
        with pytest.raises(BadLine, match="a session that the log holds already"):
            publish_lines(Publisher(log.connect(), prefix="t"), lines(created(known)), "h", nearest=nearest)


def test_an_interruption_while_an_event_is_sent_counts_it(log: MemoryLog, publisher: Publisher) -> None:
    """Else whoever goes on from there publishes it twice."""
    interrupts = Interrupts()
    sends = publisher.send_checked
    told: list[str] = []

    def send_checked(*given: Any) -> Any:
        pending = sends(*given)
        if pending.seq == 2:
            interrupts.take()  # Ctrl-C, when the record has left
        return pending

    publisher.send_checked = send_checked  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        publish_lines(
            publisher, lines(CREATED, STARTED, line("NoteRecorded", kind="never")), "f",
            tell=told.append, whole=interrupts.whole,
        )  # fmt: skip
    assert told == ["f, line 2: interrupted; acknowledged: 2 events of s-1, seq 1 to 2"]
    assert len(stored(log, publisher)) == 2


def test_the_second_interruption_does_not_wait() -> None:
    interrupts = Interrupts()
    done: list[str] = []

    def work(name: str) -> None:
        with interrupts.whole():
            interrupts.take()
            done.append(name)

    for name in ("first", "second"):
        with pytest.raises(KeyboardInterrupt):
            work(name)
    assert done == ["first"]
    with pytest.raises(KeyboardInterrupt):
        interrupts.take()  # between two events


def test_an_interruption_says_what_was_acknowledged(publisher: Publisher) -> None:
    told: list[str] = []

    def given() -> Iterable[bytes]:
        yield from lines(CREATED, STARTED)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish_lines(publisher, given(), "f", tell=told.append)
    assert told == ["f, line 2: interrupted; acknowledged: 2 events of s-1, seq 1 to 2"]


def test_reports_that_never_come_are_waited_for_together(
    publisher: Publisher, transport: MemoryTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each by itself would keep an interrupted command for hours."""
    monkeypatch.setattr(line_events, "REPORT_TIMEOUT_SECONDS", 0.2)
    session = publisher.session("s-1")
    session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED")).result(5)
    transport.hold()
    acknowledged = Acknowledged()
    for _ in range(50):
        acknowledged.sent(session.append(events.NoteRecorded(kind="n")))
    begun = time.monotonic()
    assert "not acknowledged: s-1 seq 2, s-1 seq 3" in acknowledged.in_the_end()
    assert time.monotonic() - begun < 5.0

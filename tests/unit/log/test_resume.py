"""Resuming a session over the memory log: from where, with which epoch, against rivals, and at which cost."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from dalsegno import events
from dalsegno.errors import (
    KafkaRefused,
    SessionBroken,
    SessionHeld,
    SessionMissing,
    SessionSuperseded,
    SnapshotAheadOfLog,
    Unsent,
    Usage,
    WaitTimeout,
)
from dalsegno.log.codec import place
from dalsegno.log.history import Family, SessionRecords, place_family, read_family
from dalsegno.log.publisher import Publisher
from dalsegno.log.reader import Bounds
from dalsegno.log.record import Batch
from dalsegno.log.session import Session
from dalsegno.model.ids import Offset, parse_key, partition_of, root_of
from dalsegno.model.path import Path, choose_path
from dalsegno.model.records import Event
from dalsegno.testing.memory_log import MemoryLog, MemoryTransport

TOPIC = "t.events"
S1 = partition_of("s-1", 4)


@pytest.fixture
def first(log: MemoryLog) -> Iterator[Publisher]:
    yield from publisher(log, "test/1/first")


@pytest.fixture
def second(log: MemoryLog) -> Iterator[Publisher]:
    yield from publisher(log, "test/1/second")


def publisher(log: MemoryLog, writer: str) -> Iterator[Publisher]:
    found = Publisher(log.connect(), prefix="t", writer=writer)
    yield found
    with suppress(Unsent):
        found.close(1)


def begin(publisher: Publisher, session_id: str = "s-1", profile: Any = "OBSERVED", **options: Any) -> Session:
    session = publisher.session(session_id, **options)
    session.append(events.SessionCreated(workflow_name="w", profile=profile))
    session.append(events.SessionStarted())
    return session


def note(text: str = "n") -> events.NoteRecorded:
    return events.NoteRecorded(kind=text)


def stored(log: MemoryLog, publisher: Publisher, session_id: str = "s-1") -> list[Event]:
    partition = partition_of(session_id, 4)
    found = [place(publisher.schemas, r.key, r.value, partition, 4) for r in log.records(TOPIC, partition)]
    return [event for event in found if isinstance(event, Event) and event.session_id == session_id]


def path(log: MemoryLog, publisher: Publisher) -> Path:
    return choose_path([event.link for event in stored(log, publisher)])


def test_a_resumed_session_goes_on_behind_its_last_event(
    log: MemoryLog, first: Publisher, second: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    last = begin(first).append(note()).result(5)
    with caplog.at_level(logging.INFO, "dalsegno.log"):
        session = second.resume("s-1")
    recovered = stored(log, second)[-1]
    assert (recovered.type, recovered.seq, recovered.epoch) == ("SessionRecovered", 4, 1)
    assert recovered.body["last_good"]["hash"] == last.hash
    assert recovered.body["crashed_instance"] == "test/1/first"
    assert session.append(note()).result(5).seq == 5
    assert len(path(log, second).hashes) == 5
    # Without local state the partition is read from its start: said with the count.
    (said,) = [r for r in caplog.records if r.getMessage() == "session_read_from_log_start"]
    assert (said.levelno, said.__dict__["records"]) == (logging.INFO, 3)


@pytest.mark.parametrize(("limit", "level"), [(4, logging.INFO), (3, logging.WARNING)])
def test_a_long_read_from_the_start_is_a_warning(
    limit: int, level: int, first: Publisher, second: Publisher,
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("dalsegno.log.history.SLOW_READ_RECORDS", limit)
    begin(first).append(note()).result(5)
    with caplog.at_level(logging.INFO, "dalsegno.log"):
        second.resume("s-1")
    (said,) = [r for r in caplog.records if r.getMessage() == "session_read_from_log_start"]
    assert said.levelno == level


def test_the_epoch_is_above_every_epoch_that_was_ever_seen(log: MemoryLog, first: Publisher, second: Publisher) -> None:
    begin(first)
    assert [second.resume("s-1").epoch, first.resume("s-1").epoch, second.resume("s-1").epoch] == [1, 2, 3]
    assert len(path(log, first).hashes) == 5


def test_time_goes_on_from_the_writer_before(log: MemoryLog, first: Publisher, second: Publisher) -> None:
    begin(first, clock=lambda: 5_000)
    second.resume("s-1", clock=lambda: 1_000).append(note())
    assert [e.meta["recorded_at"] for e in stored(log, second)] == [5_000] * 4


def test_a_broken_session_goes_on_once_it_is_resumed(log: MemoryLog, first: Publisher) -> None:
    transport = first.transport
    assert isinstance(transport, MemoryTransport)
    session = begin(first)
    first.flush(5)
    transport.fail_next()
    with pytest.raises(KafkaRefused):
        session.append(note()).result(5)
    with pytest.raises(SessionBroken):
        session.append(note())
    session.resume()
    assert session.append(note()).result(5).seq == 4
    assert path(log, first).superseded == frozenset()


def test_an_event_whose_report_was_lost_is_found_again_by_resuming(log: MemoryLog, first: Publisher) -> None:
    # case C49
    transport = first.transport
    assert isinstance(transport, MemoryTransport)
    session = begin(first)
    first.flush(5)
    transport.lose_next()
    lost = session.append(note("mine"))
    with pytest.raises(WaitTimeout):
        lost.result(5)
    session.resume()
    found = path(log, first)
    assert lost.hash in found.hashes
    assert session.seq == 4
    first.close()  # it was found in the log: nothing is unsent


def test_what_was_sent_behind_a_lost_event_is_left_aside(log: MemoryLog, first: Publisher, second: Publisher) -> None:
    """The records as a writer leaves them that sent on before it knew: 3 is missing, 4 is there."""
    session = begin(first)
    kept = [session.append(note(str(n))) for n in range(2)]
    kept[1].result(5)
    part = log.part(TOPIC, S1)
    part.records = [r for r in part.records if r.key != kept[0].key.encode()]
    resumed = second.resume("s-1")
    assert resumed.seq == 3
    assert path(log, second).superseded == frozenset()
    assert resumed.append(note()).result(5).seq == 4
    assert path(log, second).held is None


def test_of_two_writers_with_one_seq_one_is_on_the_path_before_and_after_compaction(
    log: MemoryLog, first: Publisher, second: Publisher
) -> None:
    # case C49
    old = begin(first)
    new = second.resume("s-1")
    theirs = old.append(note("old")).result(5)
    mine = new.append(note("new")).result(5)
    for _ in range(2):
        found = path(log, second)
        assert mine.hash in found.hashes
        assert found.superseded == {theirs.hash}
        log.compact(TOPIC)
    with pytest.raises(SessionSuperseded):
        old.read_back()
    with pytest.raises(SessionBroken, match="taken over"):
        old.append(note())
    new.read_back()
    assert new.broken is None


class Racing(MemoryTransport):
    """Lets somebody else do something between the reading and the recovery."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log)
        self.before_send: list[Any] = []

    def send(self, *record: Any) -> None:
        if self.before_send:
            self.before_send.pop(0)()
        super().send(*record)


def test_of_two_recoveries_with_one_epoch_the_later_one_gives_up(log: MemoryLog, first: Publisher) -> None:
    begin(first)
    first.flush(5)
    racing = Racing(log)
    rival: list[Session] = []
    racing.before_send = [lambda: rival.append(first.resume("s-1"))]
    loser = Publisher(racing, prefix="t", writer="test/1/loser")
    with pytest.raises(SessionSuperseded) as caught:
        loser.resume("s-1")
    assert caught.value.data["epoch"] == 1
    assert "test/1/first" in caught.value.found
    assert rival[0].append(note()).result(5)
    loser.close(1)


def test_of_two_recoveries_the_earlier_one_stays_though_it_sees_the_later(log: MemoryLog, first: Publisher) -> None:
    begin(first)
    first.flush(5)

    class LateRival(MemoryTransport):
        """Another recovery of the same epoch comes right behind this one's, before this one reads back."""

        def send(self, *record: Any) -> None:
            super().send(*record)
            rival = Publisher(Blind(log, high), prefix="t", writer="test/1/rival")
            with pytest.raises(SessionSuperseded):
                rival.resume("s-1")
            rival.close(1)

    class Blind(MemoryTransport):
        """Takes its high watermark too early."""

        def __init__(self, log: MemoryLog, high: Offset) -> None:
            super().__init__(log)
            self.high: Offset | None = high

        def bounds(self, topic: str, partition: int) -> Bounds:
            high, self.high = self.high, None
            found = super().bounds(topic, partition)
            return found if high is None else found._replace(high=high)

        def read(self, topic: str, partition: int, start: Any, end: Offset, stall_seconds: float) -> Iterator[Batch]:
            for batch in super().read(topic, partition, start, end, stall_seconds):
                yield batch._replace(records=[r for r in batch.records if r.offset < end])

    high = Offset(len(log.records(TOPIC, S1)))
    winner = Publisher(LateRival(log), prefix="t", writer="test/1/winner")
    session = winner.resume("s-1")
    assert [e.epoch for e in stored(log, first)] == [0, 0, 1, 1]
    assert session.broken is None
    winner.close(1)


def test_a_recovery_can_start_again_above_its_rival(log: MemoryLog, first: Publisher) -> None:
    begin(first)
    first.flush(5)
    racing = Racing(log)
    rival: list[Session] = []
    racing.before_send = [lambda: rival.append(first.resume("s-1"))]
    publisher = Publisher(racing, prefix="t", writer="test/1/winner")
    winner = publisher.resume("s-1", retries=1)
    assert winner.epoch == 2
    assert winner.append(note()).result(5)
    with pytest.raises(SessionSuperseded):
        rival[0].read_back()
    publisher.close(1)


# --- what is in flight ------------------------------------------------------------------------------------------------


def busy(publisher: Publisher) -> Session:
    session = begin(publisher)
    session.append(events.InferenceRequested(inference_id="i", purpose="AGENT"))
    session.append(events.InputRequested(request_id="r", prompt=events.Blob(digest=bytes(32), size=0, media_type="a")))
    for call, effect in (("read", "READ"), ("write", "WRITE"), ("asked", "WRITE")):
        arguments = events.Blob(digest=bytes(32), size=0, media_type="a")
        session.append(
            events.ToolCallRequested(tool_call_id=call, name=call, effect=effect, arguments=arguments)  # type: ignore[arg-type]
        )
        if call != "asked":
            session.append(events.ToolCallAuthorized(tool_call_id=call, basis="POLICY_ALLOW"))
            session.append(events.ToolCallStarted(tool_call_id=call, executor="e"))
    session.append(events.ApprovalRequested(approval_id="a", subject="TOOL_CALL", subject_id="asked"))
    first_broken = session.append(note()).violations
    assert first_broken == ()
    publisher.flush(5)
    return session


def in_flight(log: MemoryLog, publisher: Publisher) -> dict[tuple[str, str], str]:
    (recovered,) = [e for e in stored(log, publisher) if e.type == "SessionRecovered"]
    return {(item["kind"], item["id"]): item["resolution"] for item in recovered.body["in_flight"]}


def test_every_open_operation_is_resolved_once_with_care(log: MemoryLog, first: Publisher, second: Publisher) -> None:
    busy(first)
    second.resume("s-1")
    assert in_flight(log, second) == {
        ("APPROVAL", "a"): "KEEP_WAITING",
        ("INFERENCE", "i"): "RETRY",
        ("INPUT", "r"): "KEEP_WAITING",
        ("TOOL", "asked"): "RETRY",
        ("TOOL", "read"): "RETRY",
        ("TOOL", "write"): "UNKNOWN_OUTCOME",
    }


def test_the_caller_may_say_what_becomes_of_them(log: MemoryLog, first: Publisher, second: Publisher) -> None:
    busy(first)
    second.resume("s-1", resolve={("TOOL", "write"): "FAILED"})
    assert in_flight(log, second)["TOOL", "write"] == "FAILED"
    assert in_flight(log, second)["APPROVAL", "a"] == "KEEP_WAITING"


def test_a_resolution_of_what_is_not_open_is_refused(log: MemoryLog, first: Publisher, second: Publisher) -> None:
    busy(first)
    with pytest.raises(Usage, match="TOOL none"):
        second.resume("s-1", resolve={("TOOL", "none"): "FAILED"})
    assert all(e.type != "SessionRecovered" for e in stored(log, second))


def test_a_function_may_resolve_each(log: MemoryLog, first: Publisher, second: Publisher) -> None:
    busy(first)
    second.resume("s-1", resolve=lambda _: "ABANDONED")
    assert set(in_flight(log, second).values()) == {"ABANDONED"}


def test_rules_go_on_from_the_state_that_was_read(first: Publisher, second: Publisher) -> None:
    busy(first)
    session = second.resume("s-1", resolve={("TOOL", "write"): "AWAIT_RECEIPT"})
    result = events.Blob(digest=bytes(32), size=0, media_type="a")
    receipt = events.ToolReceiptRecorded(receipt_id="w", tool_call_id="write", status="OK", result=result)
    assert session.append(receipt).violations == ()
    assert "U4" in session.append(receipt).violations


# --- where the records come from --------------------------------------------------------------------------------------


class StateSource:
    """A stand-in for local state: knows the partition below a cursor, reads only the tail from the log."""

    def __init__(self, publisher: Publisher, log: MemoryLog, cursor: int) -> None:
        self._publisher, self.cursor = publisher, cursor
        self._base = {r.key: r for r in log.records(TOPIC, S1) if r.offset < cursor and r.key is not None}

    def read(self, session_id: str, up_to: Offset) -> SessionRecords:
        tail = Family({}, 0)
        if self.cursor <= up_to:
            transport, root = self._publisher.transport, root_of(session_id)
            tail = read_family(transport, TOPIC, S1, root, Offset(self.cursor), up_to)
        values = {key: record.value for key, record in self._base.items()} | tail.values
        own = [r for r in self._base.values() if r.key is not None and key_session(r.key) == session_id]
        anchor = None
        if own and not any(key_session(key) == session_id for key in tail.values):
            newest = max(own, key=lambda r: r.offset)
            anchor = (newest.offset, newest.key)
        placed = place_family(values, session_id, S1, 4, self._publisher.schemas)
        return SessionRecords(placed, max(up_to, Offset(self.cursor)), tail.records_read, "snap-1", anchor)  # type: ignore[arg-type]


def key_session(key: bytes) -> str:
    parsed = parse_key(key)
    assert parsed is not None
    return parsed.session_id


def test_from_local_state_only_the_tail_of_the_log_is_read(log: MemoryLog, first: Publisher, second: Publisher) -> None:
    session = begin(first)
    for _ in range(500):
        session.append(note())
    first.flush(5)
    source = StateSource(second, log, 480)
    log.records_given = 0
    resumed = second.resume("s-1", source=source)
    assert resumed.seq == 503
    assert resumed.last_resume is not None
    assert resumed.last_resume.records_read == 22
    assert log.records_given == 22 + 1  # the tail, and its own recovery read back
    recovered = stored(log, second)[-1]
    assert recovered.body["snapshot_id"] == "snap-1"
    assert recovered.prev_hash == session.head_hash


def test_a_state_that_is_ahead_of_an_emptied_log_is_refused(log: MemoryLog, first: Publisher) -> None:
    # case C26
    session = begin(first)
    for _ in range(40):
        session.append(note())
    first.flush(5)
    source = StateSource(first, log, 42)
    for emptied in (MemoryLog(4), MemoryLog(4)):
        later = Publisher(emptied.connect(), prefix="t")
        with pytest.raises(SnapshotAheadOfLog):
            later.resume("s-1", source=source)
        assert emptied.records(TOPIC) == []
        later.close(1)


def test_a_state_whose_session_the_log_lost_is_refused_though_the_log_went_on(log: MemoryLog, first: Publisher) -> None:
    # case C26
    begin(first).append(note())
    first.flush(5)
    regrown = MemoryLog(4)
    other = Publisher(regrown.connect(), prefix="t")
    source = StateSource(other, log, 3)
    # The same offsets hold another session's records now.
    name = next(f"o-{n}" for n in range(100) if partition_of(f"o-{n}", 4) == S1)
    stranger = begin(other, name)
    for _ in range(10):
        stranger.append(note())
    other.flush(5)
    with pytest.raises(SnapshotAheadOfLog, match="s-1:3:"):
        other.resume("s-1", source=source)
    assert all(key_session(r.key) == name for r in regrown.records(TOPIC) if r.key)
    regrown.truncate(TOPIC, S1, 3)
    with pytest.raises(SnapshotAheadOfLog):
        other.resume("s-1", source=source)
    other.close(1)


def test_a_worker_that_goes_on_while_the_writer_reads_is_no_state_ahead_of_the_log(log: MemoryLog) -> None:
    class Early(MemoryTransport):
        """Gives the high watermark of a moment before the worker's last batch."""

        def bounds(self, topic: str, partition: int) -> Bounds:
            found = super().bounds(topic, partition)
            early.append(found.high)
            return found if len(early) > 1 else found._replace(high=Offset(found.high - 2))

    early: list[Offset] = []
    writer = Publisher(Early(log), prefix="t")
    begin(writer).append(note())
    writer.flush(5)
    early.clear()
    resumed = writer.resume("s-1", source=StateSource(writer, log, 3))
    assert (resumed.seq, len(early) > 1) == (4, True)
    writer.close(1)


def test_a_record_that_compaction_took_for_its_later_copy_is_not_missing(log: MemoryLog, first: Publisher) -> None:
    last = begin(first).append(note())
    last.result(5)
    known = StateSource(first, log, 3)
    first.send(last.key, last.value).result(5)  # a retry sends the stored bytes again
    log.compact(TOPIC)
    assert [r.offset for r in log.records(TOPIC, S1)] == [0, 1, 3]
    known.cursor = 4  # the state took the copy for the repeat that it is, and keeps the offset it knows
    assert first.resume("s-1", source=known).seq == 4


def test_a_resume_that_did_not_come_to_its_end_leaves_the_session_broken(first: Publisher) -> None:
    transport = first.transport
    assert isinstance(transport, MemoryTransport)
    session = begin(first)
    first.flush(5)
    transport.hold()
    with pytest.raises(WaitTimeout):
        session.resume(timeout=0.05)
    with pytest.raises(SessionBroken, match="resume"):
        session.append(note())
    transport.release()
    session.resume()
    assert session.append(note()).result(5).seq == session.seq


def test_a_session_that_the_log_does_not_know_is_not_made_by_resuming(log: MemoryLog, first: Publisher) -> None:
    begin(first)
    with pytest.raises(SessionMissing):
        first.resume("s-2")
    assert stored(log, first, "s-2") == []


def test_a_session_that_cannot_be_read_to_its_end_here_is_not_taken_over(log: MemoryLog, first: Publisher) -> None:
    session = begin(first)
    pending = session.append(note())
    pending.result(5)
    part = log.part(TOPIC, S1)
    dark = part.records[-1]
    value = dark.value
    assert value is not None
    part.records[-1] = dark._replace(value=value[:2] + bytes(8) + value[10:])  # a schema that nobody published
    with pytest.raises(SessionHeld) as caught:
        first.resume("s-1")
    assert (caught.value.data["reason"], caught.value.data["seq"]) == ("UNKNOWN_SCHEMA", 3)
    assert len(log.records(TOPIC, S1)) == 3


def test_an_amended_event_keeps_its_place(log: MemoryLog, first: Publisher, second: Publisher) -> None:
    session = begin(first)
    gone, last = session.append(note("secret")), session.append(note())
    target = next(e for e in stored(log, first) if e.hash == gone.hash)
    targets = [
        events.AmendmentTarget(seq=3, hash=target.hash, prev_hash=target.prev_hash, epoch=0, type="NoteRecorded")
    ]
    session.append(events.HistoryAmended(request_id="r", action="ERASED", reason="x", targets=targets))
    assert session.append(note()).result(5).seq == 5  # the amendment stands outside the chain
    first.send(gone.key, None).result(5)
    log.compact(TOPIC, drop_tombstones=True)
    resumed = second.resume("s-1")
    assert resumed.seq == 6
    assert last.hash in {e.prev_hash for e in stored(log, second)}


# --- forks ------------------------------------------------------------------------------------------------------------


def fork(publisher: Publisher, parent: Session, at: Any, session_id: str, **options: Any) -> Session:
    child = publisher.session(session_id, **options)
    child.append(
        events.SessionCreated(
            workflow_name="w", profile="STRICT", relation="FORK", parent_session=parent.session_id, parent_at=at
        )
    )
    child.append(events.SessionForked(parent_session=parent.session_id, parent_at=at, purpose="DEBUG"))
    return child


def test_a_fork_lies_beside_its_root_and_takes_over_its_state(
    log: MemoryLog, first: Publisher, second: Publisher
) -> None:
    parent = begin(first)
    at_receipt = parent.append(note()).result(5)
    at = events.Ref(seq=3, hash=at_receipt.hash)
    fork(first, parent, at, "s-1~a")
    first.flush(5)
    assert partition_of("s-1~a", 4) == S1
    assert [e.seq for e in stored(log, first, "s-1~a")] == [1, 2]
    # The parent was started, so the fork is: a message is in place, a second start is not.
    resumed = second.resume("s-1~a")
    assert resumed.append(events.MessageReceived(message_id="m", role="USER")).result(5).seq == 4
    grandchild = fork(second, resumed, events.Ref(seq=4, hash=resumed.head_hash), "s-1~b")
    assert grandchild.seq == 2
    assert first.resume("s-1~b").epoch == 1


def test_a_fork_of_what_the_log_does_not_hold_is_refused(first: Publisher) -> None:
    parent = begin(first)
    first.flush(5)
    with pytest.raises(SessionHeld) as caught:
        fork(first, parent, events.Ref(seq=3, hash=bytes(32)), "s-1~a")
    assert caught.value.data["reason"] == "PARENT_MISSING"


def test_a_resume_does_not_read_while_any_event_has_no_report(
    first: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the first of those that were late has its report by now."""
    session = begin(first)
    settled = session.append(note())
    settled.result(5)
    transport = first.transport
    assert isinstance(transport, MemoryTransport)
    transport.hold()
    waiting = session.append(note())
    monkeypatch.setattr(session, "_flush", lambda _deadline: [settled, waiting])
    with pytest.raises(WaitTimeout, match="2 events of session s-1"):
        session.resume()
    transport.release()
    assert session.last_resume is None

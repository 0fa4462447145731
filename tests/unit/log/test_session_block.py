"""A session as a ``with`` block, and one writer of a session in a process; over the memory log."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

from dalsegno import events
from dalsegno.errors import Conflict, InvalidSessionId, KafkaRefused, SessionBroken, SessionOpen, Unsent
from dalsegno.log.publisher import Publisher
from dalsegno.log.session import Session
from dalsegno.testing.memory_log import MemoryLog, MemoryTransport

TOPIC = "t.events"


def begin(session: Session) -> Session:
    session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
    return session


def note() -> events.NoteRecorded:
    return events.NoteRecorded(kind="n")


def test_a_block_ends_when_every_event_has_its_report(transport: MemoryTransport, publisher: Publisher) -> None:
    transport.hold()
    waited = threading.Event()

    def release() -> None:
        waited.set()
        transport.release()

    with publisher.session("s-1") as session:
        last = begin(session).append(note())
        threading.Timer(0.1, release).start()
    assert waited.is_set()
    assert last.done()
    assert last.result(0).seq == 2


def test_a_block_that_ends_at_its_limit_names_what_has_no_report(
    transport: MemoryTransport, publisher: Publisher
) -> None:
    late = []

    def body() -> None:
        with publisher.session("s-1", close_timeout=0.05) as session:
            begin(session)
            publisher.flush(5)
            transport.hold()
            late.extend([session.append(note()), session.append(note())])

    with pytest.raises(Unsent, match="2 events were not acknowledged: s-1:2, s-1:3") as caught:
        body()
    assert caught.value.data["keys"] == [pending.key.encode().decode() for pending in late]
    assert caught.value.data["pending"] == late
    transport.release()


def test_an_event_that_was_refused_is_named_at_the_end_of_the_block(
    transport: MemoryTransport, publisher: Publisher
) -> None:
    def body() -> None:
        with publisher.session("s-1") as session:
            begin(session)
            publisher.flush(5)
            transport.fail_next()
            session.append(note())

    with pytest.raises(Unsent, match="1 events were not acknowledged: s-1:2"):
        body()


def test_what_a_resume_found_in_the_log_is_not_named(transport: MemoryTransport, publisher: Publisher) -> None:
    with publisher.session("s-1") as session:
        begin(session)
        publisher.flush(5)
        transport.lose_next()
        session.append(note())
        publisher.flush(5)
        session.resume()
    assert session.seq == 3


def test_a_body_that_raises_leaves_what_it_appended_and_no_end(log: MemoryLog, publisher: Publisher) -> None:
    session = publisher.session("s-1")

    def body() -> None:
        with session:
            begin(session).append(note())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        body()
    assert not hasattr(caught.value, "__notes__")
    assert len(log.records(TOPIC)) == 2
    assert session.status == "CREATED"


def test_what_closing_says_is_a_note_on_what_the_body_raised(
    transport: MemoryTransport, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    def body() -> None:
        with publisher.session("s-1") as session:
            begin(session)
            publisher.flush(5)
            transport.fail_next(KafkaRefused("no"))
            session.append(note())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        body()
    assert caught.value.__notes__[0].startswith("on closing: 1 events were not acknowledged: s-1:2")
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == ["closing_failed"]


def test_a_publisher_lets_the_exception_of_its_block_go_on(log: MemoryLog) -> None:
    transport = log.connect()

    def body() -> None:
        with Publisher(transport, prefix="t") as publisher:
            session = begin(publisher.session("s-1"))
            publisher.flush(5)
            transport.fail_next()
            session.append(note())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        body()
    assert len(caught.value.__notes__) == 1


def test_a_closed_session_takes_no_more(publisher: Publisher) -> None:
    with publisher.session("s-1") as session:
        begin(session)
    session.close()
    for use in (lambda: session.append(note()), lambda: session.append_batch([note()]), session.resume):
        with pytest.raises(Conflict, match="session s-1 is closed"):
            use()
    assert publisher.resume("s-1").append(note()).result(5).seq == 3


def test_what_fails_before_an_event_is_sent_leaves_the_session_as_it_was(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = publisher.session("s-1")
    with monkeypatch.context() as patch:
        patch.setattr(publisher, "partition_of", lambda _: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            session.append(events.SessionCreated(workflow_name="w", profile="STRICT"))
    assert session.status == "NEW"
    assert session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED")).violations == ()


@pytest.mark.parametrize("id_", [None, 5, b"s-1"])
def test_an_id_that_is_no_text_is_named(publisher: Publisher, id_: Any) -> None:
    with pytest.raises(InvalidSessionId, match=f"holds a {type(id_).__name__}"):
        publisher.session(id_)


def test_a_session_is_open_once(publisher: Publisher) -> None:
    first = publisher.session("s-1")
    with pytest.raises(SessionOpen, match="session s-1 is open in this process already") as caught:
        publisher.session("s-1")
    assert caught.value.data["session_id"] == "s-1"
    begin(first).append(note()).result(5)
    publisher.session("s-2")
    first.close()
    publisher.session("s-1")


def test_a_session_that_nobody_holds_is_open_no_longer(publisher: Publisher) -> None:
    gc.disable()
    try:
        begin(publisher.session("s-1")).append(note()).result(5)
        publisher.flush(5)
        publisher.session("s-1")  # no cycle keeps the first one
    finally:
        gc.enable()


def test_a_resume_takes_the_session_from_the_writer_that_this_process_had(publisher: Publisher) -> None:
    old = begin(publisher.session("s-1"))
    new = publisher.resume("s-1")
    with pytest.raises(SessionBroken, match="it was resumed in this process"):
        old.append(note())
    new.append(note()).result(5)
    old.close()
    with pytest.raises(SessionOpen):
        publisher.session("s-1")  # the one that resumed is still open
    assert old.broken is not None
    assert new.broken is None


def test_blocks_of_a_coroutine_wait_in_threads(log: MemoryLog) -> None:
    turns = []

    async def turn() -> None:
        for _ in range(3):
            turns.append(threading.current_thread())
            await asyncio.sleep(0.01)

    async def main() -> int:
        transport = log.connect()
        async with Publisher(transport, prefix="t") as publisher, publisher.session("s-1") as session:
            assert log.schemas  # nothing is left for the first append to wait for
            begin(session)
            transport.hold()
            session.append(note())
            asyncio.get_running_loop().call_later(0.1, transport.release)
            ticking = asyncio.create_task(turn())
        await ticking
        return len(log.records(TOPIC))

    assert asyncio.run(main()) == 2
    assert len(turns) == 3


def test_a_coroutine_that_raises_is_heard(publisher: Publisher) -> None:
    async def main() -> None:
        async with publisher.session("s-1") as session:
            begin(session)
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        asyncio.run(main())

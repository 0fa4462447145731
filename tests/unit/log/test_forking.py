"""`Publisher.fork`: where the fork begins, what it takes over, and that its parent stays what it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dalsegno import events
from dalsegno.errors import (
    Conflict,
    InvalidEvent,
    InvalidSessionId,
    NoForkPoint,
    NotFound,
    SessionHeld,
    SessionMissing,
    SessionSuperseded,
    Unavailable,
    Usage,
)
from dalsegno.log.session import Session
from dalsegno.testing import MemoryLog, MemoryPublisher, memory_publisher

TOPIC = "dalsegno.events"
FIRST_TURN = 4
"""Seq of the first TurnStarted of ``scripted``; each turn has five events."""


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(partitions=2)


@pytest.fixture
def publisher(log: MemoryLog) -> Iterator[MemoryPublisher]:
    with memory_publisher(log) as found:
        yield found


def turn(session: Session, name: str) -> None:
    session.append(events.TurnStarted(turn_id=name))
    session.append(events.InferenceRequested(inference_id=f"{name}/i", purpose="AGENT", provider="p", model="m"))
    session.append(events.InferenceCompleted(inference_id=f"{name}/i", model="m", complete=True))
    session.append(events.MessageReceived(message_id=f"{name}/m", role="USER"))
    session.append(events.TurnCompleted(turn_id=name))


def scripted(publisher: MemoryPublisher, session_id: str = "s-1", turns: int = 3, **created: Any) -> None:
    with publisher.session(session_id) as session:
        session.append(events.SessionCreated(**{"workflow_name": "w", "profile": "OBSERVED", **created}))
        session.append(events.SessionStarted())
        session.append(events.NoteRecorded(kind="begun"))
        for number in range(1, turns + 1):
            turn(session, f"t{number}")


def of(log: MemoryLog, session_id: str) -> list[tuple[bytes | None, bytes | None]]:
    """The session's records, byte for byte."""
    start = f"{session_id}:".encode()
    return [(each.key, each.value) for each in log.records(TOPIC) if (each.key or b"").startswith(start)]


def turns_of(publisher: MemoryPublisher, session_id: str) -> list[str]:
    return [event.body["turn_id"] for event in publisher.history(session_id) if event.type == "TurnStarted"]


def test_a_fork_at_every_event_begins_where_its_turn_began_and_the_parent_stays_as_it_was(
    log: MemoryLog, publisher: MemoryPublisher
) -> None:
    scripted(publisher)
    before = of(log, "s-1")
    parent = publisher.events("s-1")
    for at in range(FIRST_TURN, len(parent) + 1):
        number, into = divmod(at - FIRST_TURN, 5)
        left = parent[FIRST_TURN - 2 + 5 * number]
        with publisher.fork("s-1", at, purpose="WHAT_IF", suffix=f"k{at}") as fork:
            assert fork.session_id == f"s-1~k{at}"
            assert fork.forked_at is not None
            assert (fork.forked_at.at, fork.forked_at.snapped_back) == ((left.seq, left.hash), into)
            turn(fork, f"t{number + 1}")
        created, forked, *_ = publisher.events(f"s-1~k{at}")
        for event in (created, forked):
            assert event.body["parent_session"] == "s-1"
            assert event.body["parent_at"] == {
                "seq": left.seq, "hash": left.hash, "event_id": left.meta["event_id"],
            }  # fmt: skip
        assert (created.body["relation"], forked.body["purpose"]) == ("FORK", "WHAT_IF")
        row = publisher.rows("sessions", f"s-1~k{at}")[()]
        assert (row.violations, row.findings, row.forked_from, row.forked_at_seq) == (0, 0, "s-1", left.seq)
        whole = publisher.history(f"s-1~k{at}")
        assert whole[: left.seq] == parent[: left.seq]
        assert len(whole) == left.seq + 2 + 5, "the prefix stands in it once, and is not in the fork"
        assert turns_of(publisher, f"s-1~k{at}") == [f"t{n}" for n in range(1, number + 2)]
    assert of(log, "s-1") == before


def test_a_fork_of_a_fork_keeps_its_own_line(log: MemoryLog, publisher: MemoryPublisher) -> None:
    scripted(publisher)
    with publisher.fork("s-1", FIRST_TURN + 7, purpose="DEBUG", suffix="a") as child:
        turn(child, "x1")
        turn(child, "x2")
    with publisher.fork("s-1~a", purpose="DATASET", suffix="b") as grandchild:
        assert grandchild.forked_at is not None
        assert (grandchild.forked_at.session_id, grandchild.forked_at.at.seq) == ("s-1~a", 7)
        turn(grandchild, "y")
    with publisher.fork("s-1~a", 2, purpose="DEBUG", suffix="c") as beside:
        assert beside.forked_at is not None
        assert beside.forked_at.session_id == "s-1", "the turn below seq 2 of the fork is its parent's"
        turn(beside, "z")
    assert turns_of(publisher, "s-1") == ["t1", "t2", "t3"]
    assert turns_of(publisher, "s-1~a") == ["t1", "x1", "x2"]
    assert turns_of(publisher, "s-1~b") == ["t1", "x1", "y"]
    assert turns_of(publisher, "s-1~c") == ["z"]
    assert publisher.rows("sessions", "s-1~c")[()].forked_from == "s-1"
    # Each of them is taken over as any other session.
    with memory_publisher(log) as other:
        assert other.resume("s-1~b").append(events.NoteRecorded(kind="n")).result(5).seq == 9


def test_a_fork_of_a_recording_is_none(publisher: MemoryPublisher) -> None:
    scripted(publisher, profile="IMPORTED", goal=events.Blob(digest=bytes(32), size=1, media_type="x", uri="u"))
    publisher.fork("s-1", purpose="RETRY", suffix="a", labels=[events.Label(key="k", value="v")]).close()
    created = publisher.events("s-1~a")[0].body
    assert (created["workflow_name"], created["profile"], created["goal"]) == ("w", "OBSERVED", None)
    assert created["labels"] == [{"key": "k", "value": "v"}]


def test_the_suffix_is_made_up_anew_or_used_once(publisher: MemoryPublisher) -> None:
    scripted(publisher)
    made = [publisher.fork("s-1", purpose="DEBUG").session_id for _ in range(3)]
    assert len(set(made)) == 3
    assert all(name.startswith("s-1~") for name in made)
    publisher.fork("s-1", purpose="DEBUG", suffix="a").close()
    with pytest.raises(Conflict, match="s-1~a is in the log already"):
        publisher.fork("s-1", purpose="DEBUG", suffix="a")
    for suffix in ("", "a~b", "a\n", "x" * 200):
        with pytest.raises(InvalidSessionId):
            publisher.fork("s-1", purpose="DEBUG", suffix=suffix)


def test_a_fork_that_a_crash_left_half_begun_stays_so_and_another_is_none_the_worse(
    publisher: MemoryPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(publisher)
    with memory_publisher(publisher.log) as dying:
        send, sent = dying.transport.send, []

        def once(*record: Any) -> None:
            if sent:
                raise Unavailable("the process is dying")
            sent.append(record)
            send(*record)

        monkeypatch.setattr(dying.transport, "send", once)
        with pytest.raises(Unavailable):
            dying.fork("s-1", purpose="DEBUG", suffix="a")
    assert [event.type for event in publisher.events("s-1~a")] == ["SessionCreated"]
    with pytest.raises(Conflict, match="in the log already"):
        publisher.fork("s-1", purpose="DEBUG", suffix="a")
    assert publisher.rows("sessions", "s-1~a")[()].status == "CREATED"
    with publisher.fork("s-1", purpose="DEBUG", suffix="b") as fork:
        turn(fork, "again")
    assert turns_of(publisher, "s-1~b") == ["t1", "t2", "again"]


def test_where_no_fork_may_begin_none_does(log: MemoryLog, publisher: MemoryPublisher) -> None:
    scripted(publisher)
    with publisher.session("s-2") as session:
        session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
    count = len(log.records(TOPIC))
    with pytest.raises(NoForkPoint, match="at seq 3: no turn begins at or below seq 3") as caught:
        publisher.fork("s-1", FIRST_TURN - 1, purpose="DEBUG")
    assert caught.value.data == {"session_id": "s-1", "seq": 3}
    with pytest.raises(NoForkPoint, match="at its end: no turn begins in it"):
        publisher.fork("s-2", purpose="DEBUG")
    for at in (0, -1, 19):
        with pytest.raises(NotFound, match=f"no event at seq {at}"):
            publisher.fork("s-1", at, purpose="DEBUG")
    with pytest.raises(SessionMissing):
        publisher.fork("s-9", purpose="DEBUG")
    for wrong in ("4", 4.0, True):
        with pytest.raises(Usage, match="at is"):
            publisher.fork("s-1", wrong, purpose="DEBUG")  # type: ignore[arg-type]
    with pytest.raises(InvalidEvent, match="purpose is 'FUN'"):
        publisher.fork("s-1", purpose="FUN")  # type: ignore[arg-type]
    assert len(log.records(TOPIC)) == count, "nothing was written"


def test_a_fork_of_what_was_amended_or_lost_is_refused(publisher: MemoryPublisher) -> None:
    scripted(publisher)
    publisher.fork("s-1", purpose="DEBUG", suffix="a").close()
    first, second = publisher.events("s-1")[:2]
    target = events.AmendmentTarget(seq=1, hash=first.hash, prev_hash=None, epoch=0, type=first.type)
    erased = events.HistoryAmended(request_id="r", action="ERASED", reason="x", targets=[target])
    with publisher.resume("s-1") as session:
        session.append(erased)
    with pytest.raises(NoForkPoint, match=r"its first event was amended \(ERASED\)"):
        publisher.fork("s-1", purpose="DEBUG")
    publisher.fork("s-1~a", purpose="DEBUG", suffix="b").close()
    publisher.send(second.key, None).result(5)
    with pytest.raises(SessionHeld) as caught:
        publisher.fork("s-1~a", purpose="DEBUG")
    assert (caught.value.data["reason"], caught.value.data["seq"]) == ("PARENT_MISSING", 2)


def test_below_the_place_at_which_it_is_held_a_session_can_be_forked(publisher: MemoryPublisher) -> None:
    scripted(publisher)
    gone = publisher.events("s-1")[FIRST_TURN + 5]
    publisher.send(gone.key, None).result(5)
    with pytest.raises(NotFound, match=rf"held at {gone.seq}: GAP"):
        publisher.fork("s-1", gone.seq + 1, purpose="RECOVERY")
    with publisher.fork("s-1", purpose="RECOVERY") as fork:
        turn(fork, "again")
    assert turns_of(publisher, fork.session_id) == ["t1", "again"]


def test_of_two_that_begin_one_fork_at_once_the_later_hears_of_it(
    log: MemoryLog, publisher: MemoryPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(publisher)
    with memory_publisher(log) as rival:
        begin = Session.begin

        def after_the_rival(session: Session, *given: Any) -> Any:
            monkeypatch.setattr(Session, "begin", begin)
            rival.fork("s-1", purpose="DEBUG", suffix="a")
            return begin(session, *given)

        monkeypatch.setattr(Session, "begin", after_the_rival)
        with pytest.raises(SessionSuperseded, match="s-1~a was taken over"):
            publisher.fork("s-1", purpose="DEBUG", suffix="a")
        # The one that was first goes on, and is followed.
        with rival.resume("s-1~a") as first:
            first.append(events.NoteRecorded(kind="n"))
    assert [event.type for event in publisher.events("s-1~a")][:2] == ["SessionCreated", "SessionForked"]

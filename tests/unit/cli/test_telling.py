"""What a run tells of its events: in order, and not before the log has them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from dalsegno import events
from dalsegno.cli import telling
from dalsegno.cli.telling import Teller
from dalsegno.errors import DalsegnoError
from dalsegno.harness.writers import LogWriter
from dalsegno.log.session import Session
from dalsegno.testing.in_memory import MemoryPublisher
from dalsegno.testing.memory_log import MemoryLog, MemoryTransport


class Wire:
    """A session whose reports can be kept back, and what is said of it. ``early``: lines that came before the report
    on their event."""

    def __init__(self) -> None:
        self.publisher = MemoryPublisher(MemoryLog(partitions=1), prefix="t")
        self.session: Session = self.publisher.session("s-1")
        self.session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
        self.session.append(events.SessionStarted()).result()
        self.said: list[str] = []
        self.early: list[str] = []
        self._writer = LogWriter(self.session)
        self._under_way: dict[str, Any] = {}
        self.teller = Teller(self.publisher, self._say)

    @property
    def connection(self) -> MemoryTransport:
        assert isinstance(self.publisher.transport, MemoryTransport)
        return self.publisher.transport

    def append(self, line: str) -> None:
        event = self._writer.append(events.NoteRecorded(kind=line))
        self._under_way[line] = self._writer._last
        self.teller.tell(line, event)

    def _say(self, line: str) -> None:
        self.said.append(line)
        if line in self._under_way and not self._under_way[line].done():
            self.early.append(line)


def test_a_line_is_said_when_its_event_is_acknowledged_and_appending_waits_for_none() -> None:
    wire = Wire()
    wire.connection.hold()
    with wire.teller:
        for line in ("a", "b", "c"):
            wire.append(line)
        wire.teller.tell("waits for leave")
        wire.append("d")
        assert wire.said == [], "no report came, and the appends did not wait for one"
        wire.connection.release()
    assert wire.said == ["a", "b", "c", "waits for leave", "d"]
    assert wire.early == []


def test_what_is_stored_already_is_said_at_once() -> None:
    wire = Wire()
    wire.append("a")
    wire.publisher.flush()
    with wire.teller:
        event = wire.publisher.events("s-1")[-1]
        wire.teller.tell("read from the log", event)
    assert wire.said == ["a", "read from the log"]


def test_an_event_that_the_log_does_not_take_is_not_told() -> None:
    wire = Wire()
    with wire.teller:
        wire.append("a")
        wire.publisher.flush()
        wire.connection.fail_next()
        wire.connection.hold()
        wire.append("lost")
        wire.connection.release()
        wire.publisher.flush()
        wire.teller.tell("the last line")
    assert wire.said == ["a", "the last line"]
    with suppress(DalsegnoError):
        wire.publisher.close()


def test_a_failure_that_was_reported_before_the_line_is_not_told_either() -> None:
    wire = Wire()
    wire.connection.fail_next()
    event = wire._writer.append(events.NoteRecorded(kind="lost"))
    wire.publisher.flush()
    with wire.teller:
        wire.teller.tell("lost", event)
    assert wire.said == []
    with suppress(DalsegnoError):
        wire.publisher.close()


def test_a_report_that_never_comes_keeps_nobody_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "LAST_LINES_SECONDS", 0.01)
    wire = Wire()
    wire.connection.hold()
    with wire.teller:
        wire.append("a")
    assert wire.said == []
    wire.connection.release()

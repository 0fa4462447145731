"""Appending costs the same however many events stand before it: nothing of them is read or gone through again."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from dalsegno import events
from dalsegno.log.publisher import Publisher
from dalsegno.log.session import Session


def calls_of(session: Session, count: int) -> int:
    """How many functions, of Python or C, so many appends call."""
    called = 0

    def count_calls(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal called
        called += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count_calls)
    try:
        for _ in range(count):
            session.append(events.NoteRecorded(kind="n"))
    finally:
        sys.setprofile(before)
    return called


def test_an_append_behind_many_events_costs_what_one_behind_few_does(publisher: Publisher) -> None:
    session = publisher.session("s-1")
    session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
    session.append(events.SessionStarted())
    calls_of(session, 100)
    few = calls_of(session, 100)
    calls_of(session, 3_000)
    assert calls_of(session, 100) == pytest.approx(few, rel=0.02)

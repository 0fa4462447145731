"""A harness takes a session over from a state that stands at its end: with the rows and contents of all its events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dalsegno.harness.conductor import Conductor
from dalsegno.harness.sessions import resume, session_of
from dalsegno.log.history import SessionRecords, Standing
from dalsegno.model.ids import Offset
from dalsegno.model.lifecycle import MemoryOps, SessionState, judge
from dalsegno.model.records import Event
from dalsegno.testing import MemoryPublisher
from workflow_lab import CLOCK, PREFIX, SESSION, WIRE, Killed, Point, Run, pinned

TAIL = 5


class StandingState:
    """As a shard that has all but the last events of a session of which nothing else is known."""

    def __init__(self, publisher: MemoryPublisher) -> None:
        self._log = publisher.log_source()

    def read(self, session_id: str, up_to: Offset) -> SessionRecords:
        return self._log.read(session_id, up_to)

    def stand(self, session_id: str, up_to: Offset) -> SessionRecords:
        whole = self._log.read(session_id, up_to)
        events = sorted((each for each in whole.placed.values() if isinstance(each, Event)), key=lambda each: each.seq)
        below, state, ops = events[:-TAIL], SessionState(), MemoryOps()
        for event in below:
            judge(state, ops, event)
        behind: dict[Any, Any] = {event.key: event for event in events[-TAIL:]}
        return whole._replace(placed=behind, standing=Standing(below[-1], state, ops))


def taken_over(run: Run, *, standing: bool) -> tuple[Conductor, Event]:
    with MemoryPublisher(run.log, prefix=PREFIX, writer="lab/1/b") as publisher:
        source = StandingState(publisher) if standing else None
        conductor = resume(publisher, SESSION, clock=CLOCK, documents=pinned(WIRE.name), source=source)
        records = session_of(conductor).last_resume
        assert records is not None
        assert (records.standing is not None, len(records.placed) == TAIL) == (standing, standing)
        return conductor, publisher.events(SESSION)[-1]


def test_it_is_taken_over_as_from_all_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(WIRE, tmp_path / "a", monkeypatch)
    with pytest.raises(Killed):
        run._process(Point(21, stored=True))
    copy = run.copy(tmp_path / "b")
    (plain, recovered), (stood, again) = taken_over(run, standing=False), taken_over(copy, standing=True)
    assert again.type == "SessionRecovered"
    assert again.body["in_flight"] == recovered.body["in_flight"] != []
    assert (again.seq, again.epoch, again.prev_hash) == (recovered.seq, recovered.epoch, recovered.prev_hash)
    assert dict(stood.rows.all()) == dict(plain.rows.all())
    items = stood.rows.family("item").values()
    assert [stood.contents.get(item.digest) for item in items] == [plain.contents.get(item.digest) for item in items]

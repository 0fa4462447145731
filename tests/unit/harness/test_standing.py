"""A harness takes a session over from a state that stands at its end: with the rows and contents of all its events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import session_lab
from dalsegno.harness.conductor import Conductor
from dalsegno.harness.past import Decided, Past, read_past
from dalsegno.harness.sessions import resume, session_of
from dalsegno.log.history import SessionRecords
from dalsegno.model.events import MessageReceived, NewEvent
from dalsegno.model.ids import Offset
from dalsegno.model.records import Event
from dalsegno.orchestration.decider import World, configuration_in_force, next_decision
from dalsegno.orchestration.documents import CompressionRule, Protected, StageLimits, Triggers
from dalsegno.projections.decider.rows import ITEM
from dalsegno.testing import MemoryPublisher
from standing_lab import ShardOfLog
from workflow_lab import CLOCK, CODING, PREFIX, SESSION, TRIAGE, WIRE, Example, Killed, Point, Run, pinned

TAIL = 5


def taken_over(run: Run, *, standing: bool) -> tuple[Conductor, Event]:
    with MemoryPublisher(run.log, prefix=PREFIX, writer="lab/1/b") as publisher:
        source = ShardOfLog(run.log, PREFIX, SESSION, behind=TAIL) if standing else None
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
    check_same(stood, plain)


class OfAnOlderRelease(ShardOfLog):
    """Its rows are of no use here, and its worker follows the log: what it knows is more at every question."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def decided(self, _session_id: str, _tip: Event) -> Decided | None:
        self.meanwhile()
        return None

    def read(self, session_id: str, up_to: Offset) -> SessionRecords:
        high = Offset(self.publisher.high(session_id))
        return super().read(session_id, max(up_to, high))

    def __init__(self, run: Run, publisher: MemoryPublisher) -> None:
        super().__init__(run.log, PREFIX, SESSION, behind=TAIL)
        self.publisher = publisher


def test_what_another_writer_appends_while_it_is_taken_over_is_not_decided_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(WIRE, tmp_path / "a", monkeypatch)
    with pytest.raises(Killed):
        run._process(Point(21, stored=True))
    with (
        MemoryPublisher(run.log, prefix=PREFIX, writer="lab/1/slow") as slow,
        MemoryPublisher(run.log, prefix=PREFIX, writer="lab/1/b") as publisher,
    ):
        other = resume(slow, SESSION, clock=CLOCK)
        source = OfAnOlderRelease(run, publisher)

        def meanwhile() -> None:
            other.append(MessageReceived(message_id="late", role="USER"))
            other.writer.stored()

        source.meanwhile = meanwhile  # type: ignore[method-assign]
        conductor = resume(publisher, SESSION, clock=CLOCK, source=source)
        assert source.stood == 1
        assert "MessageReceived" not in [event.type for event in publisher.events(SESSION)]
        check_same(conductor, read_past(publisher, SESSION))


@pytest.mark.parametrize("example", [TRIAGE, CODING], ids=lambda each: each.name)
def test_wherever_a_session_stands_its_rows_and_the_contents_they_name_are_those_of_all_its_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: Example
) -> None:
    run = Run(example, tmp_path / "run", monkeypatch)
    with MemoryPublisher(run.log, prefix=PREFIX, writer="reader/1/a") as reader:
        source = ShardOfLog(run.log, PREFIX, SESSION)

        def look(point: Point) -> None:
            if not point.stored:
                return
            stood = read_past(reader, SESSION, source)
            plain = read_past(reader, SESSION)
            assert stood.known is plain.known
            assert (stood.end is None, stood.labels, stood.configuration) == (
                plain.end is None, plain.labels, plain.configuration
            )  # fmt: skip
            check_same(stood, plain)

        run.log.watch = look
        run.to_its_end()
    assert source.stood > 100


@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
def test_a_long_session_is_taken_over_by_folding_what_is_still_named(tmp_path: Path, count: int) -> None:
    """Its goal and its documents stand at its beginning, what its model is shown in the last turns."""
    answers = [{"match": "*", "calls": [{"name": "look", "arguments": {"what": "x" * 50}}]}]
    limits = StageLimits(turns=count)
    trim = CompressionRule(id="last-turns", method="TRIM", when=Triggers(turns=20), protect=Protected(turns=4))
    world = session_lab.World(tmp_path, answers, [session_lab.stage("work", limits=limits)], compression=[trim])
    with pytest.raises(session_lab.Killed):
        world.process().begin(after=session_lab.killed_behind(count))
    publisher = world.process().publisher
    source = ShardOfLog(world.log, "t", session_lab.SESSION, behind=TAIL, window_events=256)
    stood, plain = read_past(publisher, session_lab.SESSION, source), read_past(publisher, session_lab.SESSION)
    assert (plain.folded, source.stood) == (count, 1)
    assert stood.folded <= 1_000
    assert len(stood.contents.found) < 400 < len(plain.contents.found)
    check_same(stood, plain)


def check_same(stood: Conductor | Past, plain: Conductor | Past) -> None:
    assert dict(stood.rows.all()) == dict(plain.rows.all())
    named = {item.digest for item in plain.rows.family(ITEM).values()} | contents_named(plain)
    for digest in named & plain.contents.found.keys():  # type: ignore[union-attr]
        assert stood.contents.get(digest) == plain.contents.get(digest)
    assert decision_of(stood) == decision_of(plain)


def decision_of(past: Conductor | Past) -> NewEvent | None:
    head = past.rows.head_row
    if head is None or head.status != "RUNNING":
        return None
    return next_decision(World(past.rows, configuration_in_force(past.rows, past.contents), past.contents))


def contents_named(past: Conductor | Past) -> set[bytes]:
    head, found = past.rows.head_row, set[bytes]()
    if head is not None:
        found |= {digest for digest in (head.goal, head.answer) if digest is not None}
    found |= {pin.digest for pin in past.rows.family("pin").values()}
    for call in past.rows.family("call").values():
        found |= {call.arguments, call.effective}
    for inference in past.rows.family("inference").values():
        found |= {call[3] for call in inference.calls} | ({inference.text} - {None})
    found |= {stage.outputs for stage in past.rows.family("stage").values()} - {None}
    for validation in past.rows.family("validation").values():
        found |= set(validation.evidence)
    return found

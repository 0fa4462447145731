"""The log in memory that a harness tests itself with."""

from __future__ import annotations

import subprocess
import sys

import pytest
from msgspec import Struct

from dalsegno import Event, Projection, Rows, Verdict, events
from dalsegno.errors import NotFound, SessionMissing
from dalsegno.projections.registry import built_in
from dalsegno.testing import MemoryLog, memory_publisher
from dalsegno.testing.in_memory import MemoryPublisher


def write(publisher: MemoryPublisher, session_id: str) -> None:
    with publisher.session(session_id) as session:
        session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
        session.append(events.SessionStarted())
        session.append(events.InferenceRequested(inference_id="i", purpose="OTHER", provider="p", model="m"))
        session.append(
            events.InferenceCompleted(inference_id="i", model="m", usage=events.Usage(input=5, output=2), complete=True)
        )
        session.append(events.SessionCompleted(outcome="SUCCESS"))


def test_what_was_written_is_read_back_and_folded_with_every_projection() -> None:
    with memory_publisher() as publisher:
        for name in ("s-1", "s-2", "s-3"):
            write(publisher, name)
        assert [event.seq for event in publisher.events("s-2")] == [1, 2, 3, 4, 5]
        assert publisher.rows("sessions", "s-2")[()].status == "COMPLETED"
        assert sorted(publisher.rows("sessions")) == [("s-1",), ("s-2",), ("s-3",)]
        sums = publisher.rows("usage")
        assert sum(row.input_tokens for row in sums.values()) == 15
        for projection in built_in():
            assert isinstance(publisher.rows(projection.name), dict)


def test_one_log_of_two_publishers() -> None:
    log = MemoryLog(partitions=1)
    with memory_publisher(log) as first, memory_publisher(log) as second:
        write(first, "s-1")
        assert second.resume("s-1").seq == 6
        assert first.events("s-1")[-1].type == "SessionRecovered"
        assert first.rows("sessions", "s-1")[()].epoch == 1


def test_what_is_not_there_is_named() -> None:
    with memory_publisher() as publisher:
        with pytest.raises(SessionMissing, match="no session s-9"):
            publisher.events("s-9")
        with pytest.raises(NotFound, match="no projection 'nothing'"):
            publisher.rows("nothing")
        assert publisher.rows("sessions") == {}


class Kinds(Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    count: int = 0


class Notes(Projection[Kinds]):
    name = "kinds"
    version = 1
    handles = frozenset({"NoteRecorded"})
    row = Kinds

    def fold(self, rows: Rows[Kinds], event: Event, _verdict: Verdict) -> None:
        row = rows.get((event.body["kind"],)) or Kinds()
        row.count += 1
        rows.put((event.body["kind"],), row)


def test_a_projection_of_ones_own() -> None:
    with memory_publisher() as publisher, publisher.session("s-1") as session:
        session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
        for kind in ("a", "b", "a"):
            session.append(events.NoteRecorded(kind=kind))
        found = publisher.rows("kinds", "s-1", projections=[Notes()])
    assert {key: row.count for key, row in found.items()} == {("a",): 2, ("b",): 1}


PROGRAM = """
import sys
from dalsegno import Redactor, blob, events
from dalsegno.testing import memory_publisher
with memory_publisher(redact=Redactor([])) as publisher, publisher.session("s-1") as session:
    session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
    session.tool_call("t", {})
    assert len(publisher.events("s-1")) == 2
    print(*[name for name in sys.argv[1:] if name in sys.modules])
    assert publisher.rows("sessions", "s-1")
    print(*[name for name in ("faust", "rocksdict") if name in sys.modules])
"""


def test_it_loads_nothing_that_only_workers_need() -> None:
    heavy = ("faust", "rocksdict", "click", "pydantic", "structlog", "aiohttp", "rich", "avro", "opentelemetry")
    command = [sys.executable, "-W", "error", "-c", PROGRAM, *heavy, "dalsegno.state"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []

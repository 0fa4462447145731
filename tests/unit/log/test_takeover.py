"""Rivals whose records a writer cannot read."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import fastavro
import pytest

from dalsegno import events
from dalsegno.errors import SessionBroken, SessionSuperseded
from dalsegno.log.codec import event_hash, frame
from dalsegno.log.publisher import Publisher
from dalsegno.log.schema_set import SchemaSet, WriterSchema
from dalsegno.log.session import Session
from dalsegno.model.ids import EventKey, Seq, partition_of
from dalsegno.testing.memory_log import MemoryLog

TOPIC = "t.events"
S1 = partition_of("s-1", 4)


@pytest.fixture
def session(log: MemoryLog) -> Iterator[Session]:
    """A session that was taken over once, so that its epoch is 1."""
    with Publisher(log.connect(), prefix="t") as publisher:
        begun = publisher.session("s-1")
        begun.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
        begun.append(events.SessionStarted()).result(5)
        yield publisher.resume("s-1")


def of_a_later_build(session_id: str, epoch: int, seq: int = 4) -> tuple[EventKey, bytes, WriterSchema]:
    """A record whose schema this build lacks, as a writer of a later build leaves it."""
    note = json.loads(SchemaSet.load().event("NoteRecorded").json)
    note["fields"].append({"name": "mood", "type": ["null", "string"], "default": None})
    writer = SchemaSet.load().add(json.dumps(note))
    meta = {
        "session_id": session_id, "seq": seq, "prev_hash": bytes(32), "epoch": epoch, "ignorable": True,
        "recorded_at": 0, "occurred_at": None, "event_id": "", "actor_kind": "AGENT", "actor_id": "a",
        "writer": "later", "causation_id": None, "turn_id": None, "stage_id": None, "origin": None, "redactions": [],
    }  # fmt: skip
    out = io.BytesIO()
    fastavro.schemaless_writer(out, writer.raw, {"meta": meta, "kind": "n", "data": None, "mood": "good"})
    return EventKey(session_id, Seq(seq), event_hash(writer, out.getvalue())), frame(writer, out.getvalue()), writer


def test_a_rival_whose_record_cannot_be_read_here_is_a_rival(log: MemoryLog, session: Session) -> None:
    key, value, _ = of_a_later_build("s-1", epoch=2)
    log.put(TOPIC, S1, key.encode(), value)
    with pytest.raises(SessionSuperseded, match="record at seq 4 is UNKNOWN_SCHEMA here") as caught:
        session.read_back()
    assert "epoch" not in caught.value.data
    with pytest.raises(SessionBroken):
        session.append(events.NoteRecorded(kind="n"))


def test_it_is_read_with_the_schema_that_the_log_knows(log: MemoryLog, session: Session) -> None:
    late, value, writer = of_a_later_build("s-1", epoch=0)
    log.schemas[writer.schema_hash] = writer
    log.put(TOPIC, S1, late.encode(), value)
    session.read_back()  # the writer before, who does not know yet
    key, value, _ = of_a_later_build("s-1", epoch=2, seq=5)
    log.put(TOPIC, S1, key.encode(), value)
    with pytest.raises(SessionSuperseded, match="taken over by later: NoteRecorded of epoch 2 at seq 5"):
        session.read_back()


def test_records_of_others_and_what_is_no_record_of_ours_are_no_rivals(log: MemoryLog, session: Session) -> None:
    other = next(f"o-{n}" for n in range(100) if partition_of(f"o-{n}", 4) == S1)
    key, value, _ = of_a_later_build(other, epoch=2)
    log.put(TOPIC, S1, key.encode(), value)
    log.put(TOPIC, S1, b"s-1:4:" + b"0" * 64, b"no frame")
    log.put(TOPIC, S1, b"s-1:4:" + b"1" * 64, None)
    control, value, _ = of_a_later_build("s-1", epoch=0, seq=0)
    log.put(TOPIC, S1, control.encode(), value)
    session.read_back()
    assert session.broken is None

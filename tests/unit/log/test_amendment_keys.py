"""Under the keys of amendments nothing else is ever sent, and they are never taken back."""

from __future__ import annotations

import pytest

from dalsegno.errors import InvalidEvent
from dalsegno.log.publisher import Publisher
from dalsegno.testing.builder import SessionBuilder, Written
from dalsegno.testing.memory_log import MemoryLog
from history_lab import raw_again


def test_an_amendment_goes_out_and_its_tombstone_does_not() -> None:
    builder = SessionBuilder("s-1").begin()
    amended = builder.amend([builder.records[1]])
    log = MemoryLog(partitions=1)
    with Publisher(log.connect(), prefix="t") as publisher:
        publisher.send(amended.key, amended.value).result(5)
        with pytest.raises(InvalidEvent, match="a tombstone under the key") as caught:
            publisher.send(amended.key, None)
        assert caught.value.data["field"] == "key"
        publisher.send(builder.records[1].key, None).result(5)
    assert [record.value for record in log.records("t.events")] == [amended.value, None]


def test_no_other_event_takes_the_place_of_an_amendment() -> None:
    builder = SessionBuilder("s-1", profile="OBSERVED")
    created = builder.append("SessionCreated", profile="OBSERVED")
    note = control(created)
    log = MemoryLog(partitions=1)
    with Publisher(log.connect(), prefix="t") as publisher:
        with pytest.raises(InvalidEvent, match="no amendment under the key"):
            publisher.send(note.key, note.value)
        with pytest.raises(InvalidEvent, match="no amendment"):
            publisher.send(b"s-1:0:" + b"a" * 64, note.value)
    assert log.records("t.events") == []


def control(record: Written) -> Written:
    """The same event at the seq of control events, as no writer of ours would encode it."""
    return raw_again(record, seq=0)

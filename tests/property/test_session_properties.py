"""A session under a log that refuses and loses: what its end names, and what is on its path, whatever happened."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from dalsegno import events
from dalsegno.errors import Unsent
from dalsegno.log.receipts import Pending
from dalsegno.testing import MemoryLog, memory_publisher
from dalsegno.testing.memory_log import MemoryTransport
from examples import examples

NOTE = events.NoteRecorded(kind="n")


@given(st.lists(st.sampled_from(["append", "append", "batch", "refuse", "lose", "resume"]), max_size=14))
@settings(max_examples=examples(100), deadline=None)
def test_the_end_names_exactly_what_was_neither_acknowledged_nor_found(steps: list[str]) -> None:
    publisher = memory_publisher(MemoryLog(partitions=1))
    transport = publisher.transport
    assert isinstance(transport, MemoryTransport)
    session = publisher.session("s")
    sent: list[Pending] = [session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))]
    publisher.flush(5)
    missing: set[bytes] = set()

    def in_log() -> set[bytes | None]:
        return {record.key for record in publisher.log.records(publisher.topic)}

    for step in steps:
        if step == "resume":
            sent.append(session.resume())
            missing -= in_log()
            continue
        if session.broken is not None:
            continue
        if step in ("refuse", "lose"):
            (transport.fail_next if step == "refuse" else transport.lose_next)()
        new = session.append_batch([NOTE, NOTE]) if step == "batch" else [session.append(NOTE)]
        publisher.flush(5)
        sent += new
        missing |= {pending.key.encode() for pending in new if pending.error() is not None}
        assert (session.broken is not None) == any(pending.error() is not None for pending in new)

    named: list[str] = []
    try:
        session.close(5)
    except Unsent as error:
        named = error.data["keys"]
    assert sorted(key.encode() for key in named) == sorted(missing)
    path = [event.hash for event in publisher.events("s")]
    acknowledged = [pending.hash for pending in sent if pending.error() is None]
    assert [hash_ for hash_ in path if hash_ in set(acknowledged)] == acknowledged
    with suppress(Unsent):
        publisher.close(1)

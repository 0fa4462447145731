"""A session's records for its writer, from this machine's shard (or a snapshot) and the tail of the log.

Give it to ``Publisher.resume`` or ``Session``: without it a resume reads the partition from its start.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from dalsegno.errors import NotFound, OtherHistory, SnapshotIncompatible
from dalsegno.harness.past import Decided
from dalsegno.log import admin
from dalsegno.log.history import (
    Family,
    PartitionSource,
    SessionRecords,
    has_unknown_schema,
    place_family,
    read_family,
)
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.schema_set import SchemaSet
from dalsegno.log.topics import EVENTS, topic_name
from dalsegno.log.transport import KafkaTransport
from dalsegno.model.ids import EventKey, Offset, Seq, root_of
from dalsegno.model.records import Event, Unreadable
from dalsegno.projections import registry
from dalsegno.projections.decider.projection import Decider
from dalsegno.readers.local import LocalReader, View
from dalsegno.readers.standing import stood_before
from dalsegno.readers.taking_over import Told, decided_at
from dalsegno.state.history import Journal
from dalsegno.storage.object_store import Store


class ShardSource:
    """Reads what the nearest state knows, and from the log only what came after it."""

    def __init__(self, data: Path, prefix: str, store: Store, kafka: KafkaConfig) -> None:
        self._data, self._prefix, self._store, self._kafka = data, prefix, store, kafka

    def read(self, session_id: str, up_to: Offset) -> SessionRecords:
        """All records of the session below ``up_to``. Where no state of its partition is here, all from the log."""
        return self._read(session_id, up_to, stand=False)

    def stand(self, session_id: str, up_to: Offset) -> SessionRecords:
        """The end of the path as the state has it, and the records behind it; else as ``read``."""
        return self._read(session_id, up_to, stand=True)

    def decided(self, session_id: str, tip: Event) -> Decided | None:
        """What the decisions of a session depend on where it stands, and the contents that are named there."""
        told = Told()
        with LocalReader(self._data, self._prefix, self._store, lambda: self._kafka, [Decider(told.keep)]) as reader:
            try:
                reads = reader.of_session(session_id).reads
                return reader.reading(lambda: decided_at(reads, session_id, tip, told))
            except (NotFound, SnapshotIncompatible):  # a worker took the state away since, or began to fold it anew
                return None

    def _read(self, session_id: str, up_to: Offset, *, stand: bool) -> SessionRecords:
        topic = topic_name(self._prefix, EVENTS)
        with (
            closing(KafkaTransport(self._kafka)) as transport,
            LocalReader(self._data, self._prefix, self._store, lambda: self._kafka, registry.chosen()) as reader,
        ):
            try:
                view = reader.of_session(session_id)
            except NotFound:
                partitions = transport.partitions(topic)
                source = PartitionSource(transport, self._prefix, topic, partitions, SchemaSet.load())
                return source.read(session_id, up_to)
            self._check_same_log(view, topic)
            cursor, tail = Offset(view.cursor.next_offset), Family({}, 0)
            if cursor < up_to:
                tail = read_family(transport, topic, view.partition, root_of(session_id), cursor, up_to)
            later = place_family(
                tail.values, session_id, view.partition, reader.partitions, view.reads.schemas, reader.learn_schemas
            )
            if stand and (found := stood_before(view.reads, session_id, tail.values, later)) is not None:
                anchor = None if later else found.newest
                end = max(cursor, up_to)
                return SessionRecords(later, end, tail.records_read, _snapshot(view), anchor, found.standing)
            known, newest = _known(view, session_id)
            if has_unknown_schema(known) and reader.learn_schemas():
                known, newest = _known(view, session_id)
            if cursor >= up_to:
                return SessionRecords(known, cursor, 0, _snapshot(view), newest)
            # Whatever stands under a key in the tail, also a tombstone, takes the place of what was known.
            kept = {key: placed for key, placed in known.items() if key.encode() not in tail.values}
            anchor = None if newest is None or later or newest[1] in tail.values else newest
            return SessionRecords(kept | later, up_to, tail.records_read, _snapshot(view), anchor)

    def _check_same_log(self, view: View, topic: str) -> None:
        """Raises OtherHistory: a state of another log would give the writer a foreign tip."""
        mine, theirs = view.reads.identity().topic_id, admin.topic_facts(self._kafka, topic).topic_id
        if mine != theirs:
            raise OtherHistory(
                f"{view.source} in {self._data} is of topic id {mine}, but {topic} has {theirs}",
                wanted="state of the log that is written to",
                todo="choose another data folder, or run a worker there first",
                state_topic_id=mine,
                log_topic_id=theirs,
            )


def _known(view: View, session_id: str) -> tuple[dict[EventKey, Event | Unreadable], tuple[Offset, bytes] | None]:
    """What the state has of the session, and offset and key of the newest record of it.

    Raises StoreDamaged where a record is not there: who goes on without it writes over an event that is in the log.
    """
    journal = Journal(view.reads.kv, view.reads.schemas)
    placed: dict[EventKey, Event | Unreadable] = {}
    newest: tuple[Offset, bytes] | None = None
    for seq, hash_, entry in view.reads.index(session_id):
        key = EventKey(session_id, Seq(seq), hash_)
        found = journal.read(session_id, seq, hash_, entry.offset)
        if not isinstance(found, Event | Unreadable):
            found = journal.event(session_id, seq, hash_, entry.offset)  # raises: the index names no such record
        placed[key] = found
        if newest is None or entry.offset > newest[0]:
            newest = (Offset(entry.offset), key.encode())
    return placed, newest


def _snapshot(view: View) -> str | None:
    kind, _, name = view.source.partition(" ")
    return name if kind == "snapshot" else None

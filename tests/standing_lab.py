"""What a worker's shard knows of a log in memory, as a writer's source: all records but those that came last."""

from __future__ import annotations

from dalsegno.harness.past import Decided
from dalsegno.log.history import SessionRecords, place_family
from dalsegno.log.record import LogRecord
from dalsegno.log.schema_set import SchemaSet
from dalsegno.log.topics import EVENTS, topic_name
from dalsegno.model.ids import Offset, partition_of
from dalsegno.model.records import Event
from dalsegno.projections.decider.projection import Decider
from dalsegno.readers.standing import stood_before
from dalsegno.readers.taking_over import Told, decided_at
from dalsegno.state.layout import ShardIdentity
from dalsegno.state.memory import MemoryStore
from dalsegno.state.reads import ShardReads
from dalsegno.state.shard import Shard
from dalsegno.testing.memory_log import MemoryLog


class ShardOfLog:
    """``behind``: how many of the session's records the shard does not have; ``folded``: of the last answer."""

    def __init__(
        self, log: MemoryLog, prefix: str, session_id: str, *, behind: int = 0, window_events: int = 8
    ) -> None:
        self._log, self._topic = log, topic_name(prefix, EVENTS)
        self._behind, self._window = behind, window_events
        partitions = len(log.parts(self._topic))
        self._partition, self._partitions = partition_of(session_id, partitions), partitions
        self._schemas = SchemaSet.load()
        self._store = MemoryStore()
        identity = ShardIdentity(
            topic=self._topic, cluster_id="memory", topic_id="0" * 32, partition=self._partition, partitions=partitions,
            generation="g", base="-",
        )  # fmt: skip
        self._shard = Shard.open(
            self._store,
            identity=identity,
            schemas=self._schemas,
            projections=[Decider()],
            window_events=window_events,
        )
        self.stood = 0
        self.folded = 0

    def read(self, session_id: str, up_to: Offset) -> SessionRecords:
        records = self._records(up_to)
        values = {record.key: record.value for record in records if record.key is not None}
        placed = place_family(values, session_id, self._partition, self._partitions, self._schemas)
        return SessionRecords(placed, up_to, len(records))

    def stand(self, session_id: str, up_to: Offset) -> SessionRecords:
        records = self._records(up_to)
        known = records[: max(0, len(records) - self._behind)]
        self._take(known)
        tail = {record.key: record.value for record in records[len(known) :] if record.key is not None}
        later = place_family(tail, session_id, self._partition, self._partitions, self._schemas)
        found = stood_before(self._reads(Decider()), session_id, tail, later)
        if found is None:
            return self.read(session_id, up_to)
        self.stood += 1
        return SessionRecords(later, up_to, len(tail), None, None, found.standing)

    def decided(self, session_id: str, tip: Event) -> Decided | None:
        told = Told()
        found = decided_at(self._reads(Decider(told.keep)), session_id, tip, told)
        self.folded = 0 if found is None else found.folded
        return found

    def _records(self, up_to: Offset) -> list[LogRecord]:
        return [record for record in self._log.records(self._topic, self._partition) if record.offset < up_to]

    def _take(self, known: list[LogRecord]) -> None:
        start = self._shard.cursor.next_offset
        new = [record for record in known if record.offset >= start]
        if new:
            self._shard.apply(self._shard.generation, start, new[-1].offset + 1, new)

    def _reads(self, decider: Decider) -> ShardReads:
        return ShardReads(self._shard.kv, self._schemas, [decider], window_events=self._window)

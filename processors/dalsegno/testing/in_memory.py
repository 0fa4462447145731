"""A publisher over a log in memory, that can read back what was written and fold it as workers do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dalsegno.errors import SessionMissing
from dalsegno.log.history import place_family, read_family
from dalsegno.log.publisher import Publisher
from dalsegno.log.receipts import CLOSE_TIMEOUT_SECONDS, Pending
from dalsegno.model.history import Gathered, events_along, gather, whole_history
from dalsegno.model.ids import root_of
from dalsegno.model.records import Event
from dalsegno.projections.base import Projection, RowId
from dalsegno.testing.memory_log import MemoryLog


class MemoryPublisher(Publisher):
    """A ``Publisher`` whose log is in memory: ``log``, which several publishers may share, as processes do Kafka's."""

    def __init__(self, log: MemoryLog, **options: Any) -> None:
        super().__init__(log.connect(), **options)
        self.log = log

    def events(self, session_id: str) -> list[Event]:
        """The session's path, as every reader finds it. Raises SessionMissing."""
        gathered = self._gatherer(session_id)(session_id)
        return self._there(session_id, list(_path(session_id, gathered)))

    def history(self, session_id: str) -> list[Event]:
        """The path, behind what the session, as a fork, takes over from its ancestors: each event says by session id
        and seq which record it is. Raises SessionMissing."""
        gather = self._gatherer(session_id)
        return self._there(session_id, list(whole_history(_path(session_id, gather(session_id)), gather)))

    def _gatherer(self, session_id: str) -> Callable[[str], Gathered]:
        """Gives what the log holds of a session, of all that have this one's root."""
        self._wait()
        partition = self.partition_of(session_id)
        high = self.transport.bounds(self.topic, partition).high
        family = read_family(self.transport, self.topic, partition, root_of(session_id), None, high)
        return lambda name: gather(place_family(family.values, name, partition, self.partitions, self.schemas).values())

    def _there(self, session_id: str, found: list[Event]) -> list[Event]:
        if not found:
            raise SessionMissing(f"the log holds no session {session_id}", session_id=session_id)
        return found

    def headers(self, pending: Pending) -> dict[str, bytes]:
        """The headers of a record that was stored."""
        return self.log.headers(self.topic, pending.partition, pending.result().offset)

    def rows(
        self, projection: str, session_id: str | None = None, *, projections: Sequence[Projection[Any]] | None = None
    ) -> dict[RowId, Any]:
        """The rows of a projection that follow from the whole log: of one session by row id, of all by (session id,
        *row id); sums by (partition, *key). ``projections``: those to fold (default: all that are installed).

        Needs no worker, and folds as one does: the same shard, in memory. Raises NotFound for another projection.
        """
        from dalsegno.projections.registry import chosen
        from dalsegno.testing.memory_fold import fold_partition, rows_of

        self._wait()
        folded = list(chosen() if projections is None else projections)
        rollup = any(each.name == projection and each.rollup for each in folded)
        found: dict[RowId, Any] = {}
        one = session_id is not None and not rollup
        wanted = [self.partition_of(session_id or "")] if one else range(self.partitions)
        for partition in wanted:
            reads = fold_partition(self.log, self.topic, partition, self.partitions, self.schemas, folded)
            found.update(rows_of(reads, projection, session_id, rollup=rollup))
        return found

    def _wait(self) -> None:
        self.flush(CLOSE_TIMEOUT_SECONDS)


def _path(session_id: str, gathered: Gathered) -> Iterator[Event]:
    return events_along(session_id, gathered, gathered.known.choose().hashes)


def memory_publisher(log: MemoryLog | None = None, *, partitions: int = 4, **options: Any) -> MemoryPublisher:
    """A publisher for tests. ``options`` as of ``Publisher``; ``log``: that of another one, to write to the same."""
    return MemoryPublisher(MemoryLog(partitions) if log is None else log, **options)

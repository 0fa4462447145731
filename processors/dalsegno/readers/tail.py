"""The records of a session, or of all, as the log has them: from a place on, up to the end, and then as they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nlargest
from typing import NamedTuple

from dalsegno.errors import Usage
from dalsegno.log.codec import FRAME_BYTES, place
from dalsegno.log.history import SCHEMA_TIMEOUT_SECONDS, STALL_SECONDS
from dalsegno.log.record import LogRecord
from dalsegno.log.schema_set import SchemaSet
from dalsegno.log.topics import EVENTS, topic_name
from dalsegno.log.transport import Transport
from dalsegno.model.ids import Offset, parse_key, partition_of
from dalsegno.model.records import UNKNOWN_SCHEMA, Placed, Unreadable
from dalsegno.readers.local import View


class From(NamedTuple):
    """Where to begin: at the beginning or the end, the last ``number`` records, a seq, a time in ms since 1970."""

    kind: str
    number: int = 0


BEGINNING, END, LAST, SEQ, TIME = "beginning", "end", "last", "seq", "time"


class Tailed(NamedTuple):
    """One record; ``placed`` is what it is."""

    partition: int
    record: LogRecord
    placed: Placed


class Tail:
    """Reads what is there up to now, then can be told of what came later. ``offsets_at``: the first offset of each
    partition at a time, as the broker says it."""

    def __init__(
        self,
        transport: Transport,
        prefix: str,
        session_id: str | None,
        start: From,
        *,
        offsets_at: Callable[[int], Mapping[int, int | None]],
        view: View | None = None,
    ) -> None:
        if start.kind == SEQ and session_id is None:
            raise Usage(
                f"--from {start.number} without a session",
                wanted="a seq is of one session",
                todo="name the session, or use beginning, end, -N or s@TIME",
            )
        self._transport, self._prefix = transport, prefix
        self.topic = topic_name(prefix, EVENTS)
        self._session_id, self._start = session_id, start
        self._view = view
        self._schemas = SchemaSet.load()
        self._asked: set[bytes] = set()
        self._partitions = transport.partitions(self.topic)
        self._refresh()
        numbers = range(self._partitions) if session_id is None else [partition_of(session_id, self._partitions)]
        bounds = {number: transport.bounds(self.topic, number) for number in numbers}
        at_time = offsets_at(start.number) if start.kind == TIME else {}
        self._ends = {number: each.high for number, each in bounds.items()}
        self.positions: dict[int, Offset] = {
            number: self._first(number, each.low, each.high, at_time) for number, each in bounds.items()
        }
        """Per partition the next offset to read."""

    def until_now(self) -> Iterator[Tailed]:
        """What the log held when this was made."""
        found = (each for number in self.positions for each in self._read(number))
        if self._start.kind != LAST:
            yield from found
        elif self._session_id is not None:
            yield from deque(found, self._start.number)
        else:
            # The newest of each partition, and of these the newest of all: no more than those are held.
            yield from reversed(nlargest(self._start.number, found, key=_when))

    def take(self, records: Iterable[tuple[int, LogRecord]]) -> Iterator[Tailed]:
        """Those of these records that are wanted; what came later."""
        for number, record in records:
            self.positions[number] = Offset(record.offset + 1)
            if self._is_wanted(record):
                yield Tailed(number, record, self._placed(number, record))

    # --- inside ------------------------------------------------------------------------------------------------------

    def _read(self, number: int) -> Iterator[Tailed]:
        end = self._ends[number]
        if self.positions[number] >= end:
            return
        for batch in self._transport.read(self.topic, number, self.positions[number], end, STALL_SECONDS):
            yield from self.take((number, record) for record in batch.records)
            self.positions[number] = batch.next_offset

    def _first(self, number: int, low: Offset, high: Offset, at_time: Mapping[int, int | None]) -> Offset:
        kind, wanted = self._start
        if kind == END:
            return high
        if kind == TIME:
            found = at_time.get(number)
            return high if found is None else Offset(found)
        if self._session_id is None:
            return Offset(max(low, high - wanted)) if kind == LAST else low
        return max(low, min(high, self._known_from(self._session_id, low)))

    def _known_from(self, session_id: str, low: Offset) -> Offset:
        """Below which offset the shard here knows that there is nothing of what is wanted."""
        if self._view is None:
            return low
        kind, wanted = self._start
        entries = sorted((entry.offset, seq) for seq, _, entry in self._view.reads.index(session_id))
        if kind == SEQ:
            entries = [each for each in entries if each[1] >= wanted]
        elif kind == LAST:
            entries = entries[-wanted:] if wanted else []
        return Offset(entries[0][0] if entries else self._view.cursor.next_offset)

    def _is_wanted(self, record: LogRecord) -> bool:
        if self._session_id is None:
            return True
        key = None if record.key is None else parse_key(record.key)
        if key is None or key.session_id != self._session_id:
            return False
        return self._start.kind != SEQ or key.seq >= self._start.number

    def _placed(self, number: int, record: LogRecord) -> Placed:
        found = place(self._schemas, record.key, record.value, number, self._partitions)
        if isinstance(found, Unreadable) and found.reason == UNKNOWN_SCHEMA:
            frame = (record.value or b"")[:FRAME_BYTES]
            if frame not in self._asked:  # once for each: it may not be explained for a long time
                self._asked.add(frame)
                self._refresh()
                found = place(self._schemas, record.key, record.value, number, self._partitions)
        return found

    def _refresh(self) -> None:
        self._transport.refresh_schemas(self._prefix, self._schemas, SCHEMA_TIMEOUT_SECONDS)


def _when(found: Tailed) -> tuple[int, int, int]:
    return found.record.timestamp_ms, found.partition, found.record.offset

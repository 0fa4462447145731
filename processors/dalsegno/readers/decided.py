"""What the decisions of a session depend on, at any of its events, without folding its whole history.

The shard has the decider's rows of every STRICT session, so that at most a window of the ladder is folded. A fork's are
its parent's at the fork point, with the fork's own events folded on top.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final, NamedTuple

from dalsegno.model.history import FORK_SEQ, counting, fork_origin, is_fork
from dalsegno.model.lifecycle import MemoryOps, SessionState, inherit, judge
from dalsegno.model.lifecycle.tables import STRICT
from dalsegno.model.records import FIRST_SEQ, Event
from dalsegno.projections.decider.fold import fold_event
from dalsegno.projections.decider.projection import Decider
from dalsegno.projections.decider.table import MemoryRows
from dalsegno.readers.local import LocalReader
from dalsegno.state.reads import ShardReads
from dalsegno.state.session import state_of

DECIDER: Final = Decider.name


def rows_at(reader: LocalReader, session_id: str, seq: int | None = None) -> MemoryRows:
    """The decider's rows where the event at ``seq`` (None: the last one) has been folded; of a fork with all that it
    takes over. A session of another profile than STRICT is folded from its start.

    Raises NotFound, SnapshotIncompatible (the shard is of a release without these rows), StoreDamaged.
    """
    reads = reader.of_session(session_id).reads
    return reader.reading(lambda: decider_rows(reads, session_id, seq))


def decider_rows(reads: ShardReads, session_id: str, seq: int | None = None) -> MemoryRows:
    """``rows_at`` of a shard whose schemas are known."""
    head = reads.head_with(session_id, FIRST_SEQ if seq is None else seq)
    place = _Place(session_id, head.seq if seq is None else seq, None)
    forks: list[tuple[_Place, Iterator[Event]]] = []
    while (above := _stored(reads, place)) is None:
        path = reads.path(place.session_id, limit=place.seq)
        beginning = list(islice(path, FORK_SEQ))
        forks.append((place, chain(beginning, path)))
        if len(beginning) < FORK_SEQ or not is_fork(beginning[-1]):
            above = _Stand(MemoryRows(), SessionState(), None)
            break
        parent, at = fork_origin(beginning[-1])
        if at is None or (end := reads.head(parent)) is None or end.seq < at.seq:
            return _whole(reads, session_id, seq)
        place = _Place(parent, at.seq, at.hash)
    else:
        if place.hash not in (None, above.hash):
            return _whole(reads, session_id, seq)
    for place, events in reversed(forks):
        above = _on_top(above, events)
        if place.hash not in (None, above.hash):
            return _whole(reads, session_id, seq)
    return above.rows


class _Place(NamedTuple):
    """An event of a session; ``hash`` is what a fork says that it is."""

    session_id: str
    seq: int
    hash: bytes | None


class _Stand(NamedTuple):
    """What is so at a place of a session."""

    rows: MemoryRows
    state: SessionState
    hash: bytes | None


def _stored(reads: ShardReads, place: _Place) -> _Stand | None:
    """From the shard's own rows; None where it has none of this session."""
    name, seq, _ = place
    head = reads.head_with(name, seq)
    state = state_of(name, head)
    if head.parent is not None or state.relation == "FORK" or state.profile != STRICT:
        return None
    rows = MemoryRows()
    if seq == head.seq:
        stored, hash_ = reads.rows(DECIDER, name), head.hash
    else:
        at = reads.at(name, seq)
        stored, hash_, state = iter(at.rows(DECIDER)), at.event.hash, at.state
    for row_id, row in stored:
        rows.put(row_id, row)
    return _Stand(rows, state, hash_)


def _on_top(above: _Stand, events: Iterable[Event]) -> _Stand:
    """A fork's own events on what it takes over, without those that break a rule."""
    rows, state, ops, hash_ = above.rows, SessionState(), MemoryOps(), None
    for event in events:
        if is_fork(event):
            inherit(above.state, state)
        if not judge(state, ops, event).violations and event.stub is None:
            fold_event(rows, event)
        hash_ = event.hash
    return _Stand(rows, state, hash_)


def _whole(reads: ShardReads, session_id: str, seq: int | None) -> MemoryRows:
    """A fork may go on from a record that is not on its parent's path: then all of its history is folded."""
    rows = MemoryRows()
    for event in counting(reads.history(session_id)):
        if event.session_id == session_id and seq is not None and event.seq > seq:
            break
        if event.stub is None:
            fold_event(rows, event)
    return rows

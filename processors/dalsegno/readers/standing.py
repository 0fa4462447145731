"""Where a shard has a session's end, for a writer that goes on from there without the events below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dalsegno.log.history import Standing, going_on
from dalsegno.model.ids import EventKey, Offset, Seq, parse_key
from dalsegno.model.lifecycle import LIFECYCLE_VERSION, MemoryOps
from dalsegno.model.records import Event, Unreadable
from dalsegno.state.history import Journal
from dalsegno.state.reads import ShardReads
from dalsegno.state.session import state_of
from dalsegno.state.tables import LIFECYCLE


class Stood(NamedTuple):
    """A standing, and offset and key of the session's newest record."""

    standing: Standing
    newest: tuple[Offset, bytes]


def stood_before(
    reads: ShardReads,
    session_id: str,
    tail: Mapping[bytes, bytes | None],
    later: Mapping[EventKey, Event | Unreadable],
) -> Stood | None:
    """The standing that the tail of the log goes on from; None where the tail does more than that: where it takes away,
    repeats, branches or cannot be read. ``later``: the session's records among the tail's values by key."""
    own = [key for key in map(parse_key, tail) if key is not None and key.session_id == session_id]
    found = standing(reads, session_id) if len(own) == len(later) else None
    return found if found is not None and going_on(found.standing.tip, later.values()) is not None else None


def standing(reads: ShardReads, session_id: str) -> Stood | None:
    """None wherever the path could look different to whoever reads all records: a session with amendments, rivals, an
    unreadable record or a gap, a fork (its parent's records count too), rows of another release.

    No event is folded and one is read. In memory are the rows of the session's operations, and one row of the index at
    a time. Raises StoreDamaged.
    """
    head = reads.head(session_id)
    lifecycle = reads.digests().get(LIFECYCLE)
    if head is None or head.hash is None or lifecycle is None or lifecycle.version != LIFECYCLE_VERSION:
        return None
    state = state_of(session_id, head)
    one_line = head.highest == head.seq and not (head.superseded or head.amended or head.erased or head.held_reason)
    if not one_line or head.parent is not None or state.forked or state.relation == "FORK":
        return None
    count, newest = 0, (Offset(-1), b"")
    tip_offset: int | None = None
    for seq, hash_, entry in reads.index(session_id):
        count += 1
        if entry.offset > newest[0]:
            newest = Offset(entry.offset), EventKey(session_id, Seq(seq), hash_).encode()
        if (seq, hash_) == (head.seq, head.hash):
            tip_offset = entry.offset
    if count != head.seq or tip_offset is None:
        return None
    tip = Journal(reads.kv, reads.schemas).event(session_id, head.seq, head.hash, tip_offset)
    ops = MemoryOps()
    for kind, id, op in reads.operations(session_id):
        ops.put(kind, id, op)
    return Stood(Standing(tip, state, ops), newest)

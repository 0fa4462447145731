"""What the next writer of a session decides from, out of a shard: its rows, and the contents that they name.

Rows name contents by digests. The shard knows at which event each content is told of, so that event is folded once
more: at most a window of the ladder for the end of the session, and as much for each older window that a content that
is still named stands in. Nothing is read of what is done with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dalsegno.harness.past import Decided
from dalsegno.model.records import Event
from dalsegno.projections.decider.projection import ContentPlace, Decider
from dalsegno.projections.decider.table import MemoryRows
from dalsegno.state.reads import ShardReads
from dalsegno.state.walk import Walk


class Told:
    """Takes the contents that folds tell of: all, until it is said which are wanted."""

    def __init__(self) -> None:
        self.found: dict[bytes, bytes] = {}
        self._wanted: frozenset[bytes] | None = None

    def keep(self, digest: bytes, content: bytes) -> None:
        if self._wanted is None or digest in self._wanted:
            self.found[digest] = content

    def only(self, wanted: frozenset[bytes]) -> None:
        self._wanted = wanted
        self.found = {digest: content for digest, content in self.found.items() if digest in wanted}


def decided_at(reads: ShardReads, session_id: str, tip: Event, told: Told) -> Decided | None:
    """Where ``tip`` has been folded; None where the shard has no such rows: of another session than one that dalsegno
    decides, of another release, or of records that were amended since. ``told``: what the folds of ``reads`` tell.

    Raises StoreDamaged, SnapshotIncompatible.
    """
    head = reads.head(session_id)
    if head is None or head.amended or head.seq < tip.seq:
        return None
    walk = reads.walk(session_id)
    walk.to(tip.seq)
    rows = MemoryRows()
    for row_id, row in walk.rows(Decider.name):
        rows.put(row_id, row)
    if rows.head_row is None or walk.event(tip.seq).hash != tip.hash:
        return None
    wanted = frozenset(_named(rows))
    told.only(wanted)
    for seq in sorted(_places(walk, wanted - told.found.keys())):
        walk.to(seq)
    return Decided(rows, told.found, walk.folded)


def _places(walk: Walk, digests: frozenset[bytes]) -> set[int]:
    places: list[ContentPlace | None] = [walk.private_row(Decider.name, (digest.hex(),)) for digest in digests]
    return {place.seq for place in places if place is not None}


def _named(rows: MemoryRows) -> Iterator[bytes]:
    """Every digest in the rows, also of what is no content."""
    for _, row in rows.all():
        yield from _digests(msgspec.to_builtins(row, builtin_types=(bytes,)))


def _digests(value: Any) -> Iterator[bytes]:
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _digests(each)

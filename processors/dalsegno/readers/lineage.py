"""Where sessions come from and what came of them: a session's history through forks, its ancestors, its forks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from dalsegno.model.forking import TRIALS
from dalsegno.model.history import FORK_SEQ, counting, is_fork
from dalsegno.model.records import Event
from dalsegno.readers.local import LocalReader
from dalsegno.readers.sessions import SESSIONS, Found


class Ancestor(NamedTuple):
    """A session that a fork goes on from, and the last of its events that the fork takes over."""

    session: str
    seq: int


def ancestors(found: Found) -> list[Ancestor]:
    """What a fork goes on from, the parent first; [] for a session that is none."""
    if found.row.relation != "FORK":
        return []
    return [Ancestor(*place) for place in found.view.reads.ancestors(found.session_id)]


def is_trial(reader: LocalReader, found: Found) -> bool:
    """Whether it is a fork in which something is tried (``TRIALS``), as replays write them. Of a fork one event is
    read."""
    if found.row.forked_from is None:
        return False
    path = found.view.reads.path
    forked = reader.reading(lambda: next(path(found.session_id, after=FORK_SEQ - 1, limit=1), None))
    return forked is not None and is_fork(forked) and forked.body["purpose"] in TRIALS


def forks_of(found: Found) -> Iterator[tuple[Found, int]]:
    """Every session that reads this one, as its fork or through another fork; and the last seq that it reads."""
    reads = found.view.reads
    for fork_id, seq in reads.forks(found.session_id):
        row = reads.row(SESSIONS, fork_id)
        if row is not None:
            yield Found(fork_id, row, found.view), seq


def history_events(reader: LocalReader, session_id: str) -> Iterator[Event]:
    """All that a session stands on, in order: what it takes over from its ancestors, the oldest first, then its path.

    Each event says by ``session_id`` and ``seq`` which record it is; a session that is no fork has its own alone.
    Events are decoded one by one as they are taken. Where a record of an ancestor is missing, it ends before the
    ``SessionForked``, and the session's row says that it is held. An event of a schema that this build does not have is
    read with the one in the log's schema topic; only then is a broker asked. Raises NotFound, StoreDamaged.
    """
    reads = reader.of_session(session_id).reads
    yield from reader.reading_on(lambda done: islice(reads.history(session_id), done, None))


def counting_events(reader: LocalReader, session_id: str) -> Iterator[Event]:
    """``history_events`` without those that break a rule: these have no effect."""
    return counting(history_events(reader, session_id))

"""Questions about sessions: which there are, and what happened in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nlargest
from typing import Any, NamedTuple

from dalsegno.errors import NotFound
from dalsegno.model.ids import partition_of
from dalsegno.model.lifecycle import MemoryOps, SessionState, Verdict, inherit, judge
from dalsegno.model.records import Event
from dalsegno.projections.rows import SessionRow
from dalsegno.readers.local import LocalReader, View
from dalsegno.state.folding import fork_origin, inheritance
from dalsegno.state.history import Journal

SESSIONS = "sessions"
_FORK_TYPE, _FORK_SEQ = "SessionForked", 2


class Found(NamedTuple):
    """One session's row, and where it was read."""

    session_id: str
    row: SessionRow
    view: View


class Step(NamedTuple):
    """One event of a path, and what the lifecycle rules say of it."""

    event: Event
    verdict: Verdict


def list_sessions(reader: LocalReader, limit: int, keep: Callable[[SessionRow], bool] | None = None) -> list[Found]:
    """The ``limit`` sessions with the newest last event first; those without any time stand last."""
    everything = (
        Found(session_id, row, view)
        for view in reader.views().values()
        for session_id, row in all_rows(view)
        if keep is None or keep(row)
    )
    return nlargest(limit, everything, key=lambda found: (found.row.last_event_at or 0, found.session_id))


def all_rows(view: View) -> Iterator[tuple[str, SessionRow]]:
    """Session id and row of every session of a partition."""
    for session_id, _, row in view.reads.all_rows(SESSIONS):
        yield session_id, row


def find_session(reader: LocalReader, name: str) -> Found:
    """One session by its id, by a prefix that no other id has, or ``last``. Raises NotFound."""
    if name == "last":
        newest = list_sessions(reader, 1)
        if newest:
            return newest[0]
        raise NotFound("there is no session yet", todo="publish one, for instance by 'dalsegno workload'")
    view = reader.views().get(_partition(reader, name))
    row = None if view is None else view.reads.row(SESSIONS, name)
    if view is not None and row is not None:
        return Found(name, row, view)
    begun = [
        Found(session_id, row, view)
        for view in reader.views().values()
        for session_id, row in all_rows(view)
        if session_id.startswith(name)
    ]
    if len(begun) == 1:
        return begun[0]
    missing = reader.missing()
    raise NotFound(
        f"{len(begun)} sessions begin with {name!r}" if begun else f"no session {name!r}",
        wanted=", ".join(found.session_id for found in begun[:5]) or f"a session of prefix {reader.prefix}",
        todo="give more of the id"
        if begun
        else "see 'dalsegno session list'" + (f"; partitions {missing} cannot be read here" if missing else ""),
        session=name,
    )


def steps(found: Found) -> Iterator[Step]:
    """The session's events in order, each judged by the rules of its profile."""
    reads, session_id = found.view.reads, found.session_id
    state, ops = SessionState(), MemoryOps()
    for event in reads.path(session_id):
        if event.type == _FORK_TYPE and event.seq == _FORK_SEQ and event.stub is None:
            parent, link = fork_origin(event)
            above = link and inheritance(Journal(reads.kv, reads.schemas), session_id, parent, link, reads.records)
            if above:
                inherit(above.state, state)
        yield Step(event, judge(state, ops, event))


def subject_of(event: Event) -> str:
    """What an event is about, in a few words: its first domain id or name."""
    for name, value in event.body.items():
        if name != "meta" and isinstance(value, str) and value and (name.endswith("_id") or name in _NAMES):
            return value
    return ""


def summary_of(event: Event) -> dict[str, Any]:
    """The small fields of an event: what stands in one line."""
    return {
        name: value
        for name, value in event.body.items()
        if name != "meta" and isinstance(value, str | int | bool) and not name.endswith("_id")
    }


_NAMES = frozenset(
    {"workflow_name", "kind", "timer", "reason", "outcome", "limit", "key", "namespace", "name", "status"}
)


def _partition(reader: LocalReader, session_id: str) -> int:
    return partition_of(session_id, reader.partitions)

"""Questions about sessions: which there are, and what happened in one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from heapq import nlargest
from itertools import islice, takewhile
from typing import Any, NamedTuple

from dalsegno.errors import DalsegnoError, NotFound, Usage
from dalsegno.model.history import is_fork
from dalsegno.model.lifecycle import MemoryOps, SessionState, Verdict, judge
from dalsegno.model.records import AMENDMENT_TYPE, CONTROL_SEQ, Event
from dalsegno.projections.rows import SessionRow
from dalsegno.readers.local import LocalReader, View
from dalsegno.state.folding import take_over
from dalsegno.state.history import Journal

SESSIONS = "sessions"
LAST = "last"
_NAMED_MAX = 5
_TEXT_CHARACTERS = 200


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
    return newest((found for found in _all(reader) if keep is None or keep(found.row)), limit)


def newest(found: Iterable[Found], limit: int) -> list[Found]:
    """As ``list_sessions``, of these."""
    return nlargest(limit, found, key=lambda each: (each.row.last_event_at or 0, each.session_id))


def all_rows(view: View) -> Iterator[tuple[str, SessionRow]]:
    """Session id and row of every session of a partition."""
    for session_id, _, row in view.reads.all_rows(SESSIONS):
        yield session_id, row


def find_session(reader: LocalReader, name: str) -> Found:
    """One session by its id, by a beginning that no other id has, or ``last``. Raises NotFound, Usage where several
    ids begin so, and why the partition that would hold the name as an id could not be asked, if nothing else has it."""
    unasked: DalsegnoError | None = None
    if is_text(name):
        try:
            view = reader.of_session(name)
            row = view.reads.row(SESSIONS, name)
            if row is not None:
                return Found(name, row, view)
        except DalsegnoError as error:  # of that partition: the name may yet be 'last' or a beginning
            unasked = error
    if name == LAST:
        last = list_sessions(reader, 1)
        if last:
            return last[0]
        raise NotFound(
            "there is no session yet", todo=f"publish one, for instance by 'dalsegno workload'{_unread(reader)}"
        )
    begun = list(islice(beginning_with(reader, name), _NAMED_MAX + 1)) if name else []
    if len(begun) == 1:
        return begun[0]
    if begun:
        some = ", ".join(found.session_id for found in begun[:_NAMED_MAX])
        raise Usage(
            f"several sessions begin with {name!r}: {some}{', ...' if len(begun) > _NAMED_MAX else ''}",
            wanted="the id of one session, or a beginning that no other has",
            todo=f"give more of the id{_unread(reader)}",
            session=name,
        )
    if unasked is not None and not isinstance(unasked, NotFound):
        raise unasked
    holding = list(islice((each.session_id for each in _all(reader) if name and name in each.session_id), _NAMED_MAX))
    raise NotFound(
        f"no session {name!r}",
        wanted=f"a session of prefix {reader.prefix}"
        + (f": the id, or its beginning, of {', '.join(holding)}" if holding else ""),
        todo="see 'dalsegno session list'; what was just published is here when a worker has folded it "
        f"('dalsegno worker status'){_unread(reader)}",
        session=name,
    )


def _unread(reader: LocalReader) -> str:
    """Which partitions an answer does not cover."""
    missing = reader.missing()
    return f"; partitions {missing} cannot be read here" if missing else ""


def beginning_with(reader: LocalReader, name: str) -> Iterator[Found]:
    """Sessions whose ids begin so."""
    return (found for found in _all(reader) if found.session_id.startswith(name))


def _all(reader: LocalReader) -> Iterator[Found]:
    for view in reader.views().values():
        for session_id, row in all_rows(view):
            yield Found(session_id, row, view)


def is_text(name: str) -> bool:
    """False for what a shell passes on as undecodable bytes: no session is named so."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def steps(reader: LocalReader, found: Found) -> Iterator[Step]:
    """The session's events in order, each judged by the rules of its profile.

    Events of a schema that this build does not have are read with the one in the log's schema topic; only then is a
    broker asked.
    """
    reads, session_id = found.view.reads, found.session_id
    state, ops = SessionState(), MemoryOps()
    for event in reader.reading_on(lambda done: reads.path(session_id, after=done)):
        reader.reading(partial(_inherit, found, event, state))
        yield Step(event, judge(state, ops, event))


def amendments(found: Found) -> list[Event]:
    """What took events out of the session's history, by time: they stand outside its path, at the control seq."""
    reads = found.view.reads
    journal = Journal(reads.kv, reads.schemas)
    control = takewhile(lambda row: row[0] == CONTROL_SEQ, reads.index(found.session_id))
    read = [journal.read(found.session_id, seq, hash_, entry.offset) for seq, hash_, entry in control]
    amending = [event for event in read if isinstance(event, Event) and event.type == AMENDMENT_TYPE]
    return sorted(amending, key=lambda event: (event.meta.get("recorded_at") or 0, event.hash))


class Superseded(NamedTuple):
    """A record that lost its place to another one: what it says did not become the session's history. ``on_path`` is
    the hash of the record that stands at its seq; None where the path ends before."""

    event: Event
    on_path: bytes | None


def superseded(found: Found) -> Iterator[Superseded]:
    """The session's readable records that are not on its path, by seq and hash; without those that were amended."""
    reads = found.view.reads
    records, path = reads.chosen(found.session_id)
    journal = Journal(reads.kv, reads.schemas)
    for seq, hash_, entry in reads.index(found.session_id):
        if hash_ not in path.superseded or hash_ in records.amended.stubs:
            continue
        event = journal.read(found.session_id, seq, hash_, entry.offset)
        if isinstance(event, Event):
            yield Superseded(event, path.hashes[seq - 1] if seq <= len(path.hashes) else None)


def _inherit(found: Found, event: Event, state: SessionState) -> None:
    """A fork begins with its parent's state."""
    if not is_fork(event):
        return
    reads = found.view.reads
    take_over(Journal(reads.kv, reads.schemas), reads.records, found.session_id, event, state)


def subject_of(event: Event) -> tuple[str, str]:
    """What an event is about: name and value of its first domain id or name; ("", "") if it has none."""
    for name, value in event.body.items():
        if name != "meta" and isinstance(value, str) and value and (is_id(name) or name in _NAMES):
            return name, value
    return "", ""


def summary_of(event: Event) -> dict[str, Any]:
    """The small fields of an event beside its subject, and how its first text begins: what stands in one line."""
    subject, _ = subject_of(event)
    small = {
        name: value
        for name, value in event.body.items()
        if name not in ("meta", subject) and isinstance(value, str | int | bool) and not is_id(name)
    }
    said = ((name, _text_of(value)) for name, value in event.body.items() if name != "meta")
    return {**small, **dict(islice((each for each in said if each[1]), 1))}


def is_id(name: str) -> bool:
    """Whether a field of that name holds an id, not words."""
    return name.endswith("_id")


def _text_of(value: Any) -> str:
    """How a content, an error or a list of parts begins, in one line; "" for what holds no text here."""
    if isinstance(value, list):
        parts = (each for each in value if isinstance(each, Mapping))
        return next((text for each in parts if (text := _text_of(each) or _text_of(each.get("blob")))), "")
    if not isinstance(value, Mapping):
        return ""
    said = value.get("inline") or value.get("text") or value.get("message")
    try:
        text = said.decode() if isinstance(said, bytes) else said if isinstance(said, str) else ""
    except UnicodeDecodeError:
        return ""
    return " ".join(text[:_TEXT_CHARACTERS].split())


_NAMES = frozenset(
    {"workflow_name", "kind", "timer", "reason", "outcome", "limit", "key", "namespace", "name", "status"}
)

"""New events from JSON lines ``{"type": ..., "session_id": ..., "fields": {...}}``; seq and hashes are the library's.

A line is sent as soon as it was read, so a pipe may go on for long: what is held grows with the sessions and their
operations, not with the lines. The first line that is refused ends it, with an error that names line and field and says
of everything before it what was acknowledged.
"""

from __future__ import annotations

import shlex
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from dalsegno.errors import BadLine, DalsegnoError, InvalidEvent, SessionMissing
from dalsegno.log.history import STALL_SECONDS, SessionSource
from dalsegno.log.json_values import strict_json, to_values
from dalsegno.log.publisher import Publisher
from dalsegno.log.receipts import Pending
from dalsegno.log.session import Session
from dalsegno.log.takeover import check_no_rivals
from dalsegno.model import events
from dalsegno.model.catalogue import CATALOGUE
from dalsegno.model.events import NewEvent
from dalsegno.model.ids import Offset, check_session_id, parse_key
from dalsegno.model.naming import likely
from dalsegno.model.records import CONTROL_SEQ

UNDER_WAY_MAX = 5_000
"""Events without a report yet: above this the reports are waited for."""
REPORT_TIMEOUT_SECONDS = 120.0
_NAMED_MAX = 5
FIRST_TYPE = "SessionCreated"

_KEYS = ("type", "session_id", "fields")
# What a session's writer appends by itself, when it takes over and when it begins a fork.
OF_THE_LIBRARY = frozenset({"SessionRecovered", "SessionForked"})


class NewLine(NamedTuple):
    """One line, understood as far as this goes without its schema."""

    session_id: str
    type: str
    fields: Mapping[str, Any]


@dataclass
class Published:
    """What became of one session: the events of it that were acknowledged."""

    session_id: str
    events: int = 0
    first_seq: int = 0
    last_seq: int = 0
    resumed: bool = False
    violations: int = 0

    def __str__(self) -> str:
        if not self.events:
            return f"no event of {self.session_id}, which was taken over"
        return f"{self.events} events of {self.session_id}, seq {self.first_seq} to {self.last_seq}"


class Nearest(NamedTuple):
    """State of a partition that is at hand: up to which offset it knows all sessions, and whether it knows one."""

    next_offset: Offset
    has: Callable[[str], bool]


def publish_lines(
    publisher: Publisher,
    lines: Iterable[bytes],
    name: str,
    *,
    source: SessionSource | None = None,
    nearest: Callable[[str], Nearest | None] = lambda _: None,
    tell: Callable[[str], None] = lambda _: None,
    whole: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> list[Published]:
    """Publish every line of ``lines``; ``name`` is what an error calls the file. A session begins with its
    SessionCreated, and one that is in the log already is taken over with its first line.

    ``source``: where the records of one that is taken over come from. ``nearest``: the state of a session's partition,
    so that only the tail of the log is asked whether a new session is new. ``tell`` is told what was acknowledged when
    the publishing is interrupted; ``whole`` keeps an interruption out of sending an event and noting it.
    Raises BadLine, SessionSuperseded where somebody else wrote one of the sessions meanwhile, and what appending,
    resuming and waiting raise; each says what was acknowledged.
    """
    return _Lines(publisher, name, source, KnownSessions(publisher, nearest), tell, whole).publish(lines)


def read_line(line: bytes) -> NewLine:
    """Understand one line. Raises InvalidEvent, ``data['field']`` says where."""
    try:
        found = strict_json(line)
    except ValueError as error:
        _refuse("", f"no JSON: {error}", "an object with type, session_id and fields")
    if not isinstance(found, dict):
        _refuse("", f"a {type(found).__name__}", "an object with type, session_id and fields")
    for key in found:
        if key not in _KEYS:
            _refuse(str(key), "no key of a line", "type, session_id and fields")
    type_, session_id, fields = found.get("type"), found.get("session_id"), found.get("fields", {})
    if not isinstance(session_id, str):
        _refuse("session_id", "missing" if session_id is None else f"a {type(session_id).__name__}", "text")
    check_session_id(session_id)
    if not isinstance(type_, str) or type_ not in CATALOGUE:
        wanted = likely(type_, CATALOGUE, "an event type") if isinstance(type_, str) else "an event type"
        _refuse("type", "missing" if type_ is None else repr(type_)[:60], f"{wanted}: see 'dalsegno schema list'")
    if type_ in OF_THE_LIBRARY or CATALOGUE[type_].cls == "C":
        _refuse("type", f"{type_}, which the library writes by itself", "another event type")
    if not isinstance(fields, dict):
        _refuse("fields", "null" if fields is None else f"a {type(fields).__name__}", "an object")
    if "meta" in fields:
        _refuse("fields.meta", "the envelope, which is the library's", "the event's own fields")
    return NewLine(session_id, type_, fields)


def _rest_of(name: str, number: int) -> str:
    """How to go on at a line: what stands before it was sent and is not sent again."""
    if name == "-":
        return "correct the line, and publish it and what follows it: what was acknowledged stays"
    if number == 1:
        return "correct the line, and publish the file again"
    command = f"tail -n +{number} {shlex.quote(name)} | dalsegno event publish -"
    return f"correct the line, then publish the rest, since what was acknowledged stays: {command}"


def _refuse(field: str, found: str, wanted: str) -> NoReturn:
    raise InvalidEvent(f"{field or 'the line'} is {found}", wanted=wanted, todo="correct the line", field=field)


class KnownSessions:
    """Which sessions the log held when their partition was first looked at: its state, and the log behind that."""

    def __init__(self, publisher: Publisher, nearest: Callable[[str], Nearest | None]) -> None:
        self._publisher, self._nearest = publisher, nearest
        self._partitions: dict[int, tuple[Nearest | None, set[str]]] = {}

    def has(self, session_id: str) -> bool:
        number = self._publisher.partition_of(session_id)
        if number not in self._partitions:
            near = self._nearest(session_id)
            self._partitions[number] = near, self._behind(number, None if near is None else near.next_offset)
        near, behind = self._partitions[number]
        return session_id in behind or (near is not None and near.has(session_id))

    def _behind(self, number: int, start: Offset | None) -> set[str]:
        transport, topic = self._publisher.transport, self._publisher.topic
        bounds = transport.bounds(topic, number)
        found = transport.read(topic, number, bounds.low if start is None else start, bounds.high, STALL_SECONDS)
        keys = (parse_key(record.key) for batch in found for record in batch.records if record.key is not None)
        return {key.session_id for key in keys if key is not None}


class _Lines:
    def __init__(
        self,
        publisher: Publisher,
        name: str,
        source: SessionSource | None,
        known: KnownSessions,
        tell: Callable[[str], None],
        whole: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._publisher, self._name, self._known, self._tell, self._whole = publisher, name, known, tell, whole
        self._source = source or publisher.log_source()
        self._sessions: dict[str, Session] = {}
        self._acknowledged = Acknowledged()
        self._first_offsets: dict[int, Offset] = {}
        """Of the partitions that were written to: where they ended before."""

    def publish(self, lines: Iterable[bytes]) -> list[Published]:
        at = 0
        try:
            for line in lines:
                at += 1
                if line.strip():
                    self._one(read_line(line))
            self._acknowledged.wait_for_all()
            self._check_no_rivals()
        except DalsegnoError as error:
            raise self._acknowledged.explain(error, self._name, at) from error
        except KeyboardInterrupt:
            self._tell(f"{self._name}, line {at}: interrupted; {self._acknowledged.in_the_end()}")
            raise
        return list(self._acknowledged.sessions.values())

    def _one(self, line: NewLine) -> None:
        writer = self._publisher.schemas.event(line.type)
        event: NewEvent = getattr(events, line.type)(**to_values(writer, line.fields))
        session = self._sessions.get(line.session_id) or self._open(line)
        with self._whole():
            self._acknowledged.sent(session.append(event))
        self._acknowledged.wait_for_some()

    def _check_no_rivals(self) -> None:
        """Of two who begin a session at once, or take it over, readers follow one; the other must not hear that all is
        well."""
        claims = {session_id: session.claim for session_id, session in self._sessions.items()}
        for number, start in self._first_offsets.items():
            end = self._publisher.transport.bounds(self._publisher.topic, number).high
            check_no_rivals(self._publisher, number, claims, start, end, STALL_SECONDS)

    def _open(self, line: NewLine) -> Session:
        session_id, publisher = line.session_id, self._publisher
        number = publisher.partition_of(session_id)
        if number not in self._first_offsets:
            self._first_offsets[number] = publisher.transport.bounds(publisher.topic, number).high
        if line.type == FIRST_TYPE:
            if self._known.has(session_id):
                _refuse("session_id", f"{session_id!r}, a session that the log holds already", "a new session's id")
            session = publisher.session(session_id, source=self._source)
        else:
            try:
                session = publisher.resume(session_id, source=self._source)
            except SessionMissing:
                _refuse("type", f"{line.type}, and the log holds no session {session_id!r}", f"a {FIRST_TYPE} first")
            self._acknowledged.of(session_id).resumed = True
        self._sessions[session_id] = session
        return session


class Acknowledged:
    """What was sent, and what of it the log has acknowledged: for all that an error has to say about it."""

    def __init__(self) -> None:
        self.sessions: dict[str, Published] = {}
        self._under_way: deque[Pending] = deque()
        self._unknown: list[Pending] = []

    def of(self, session_id: str) -> Published:
        return self.sessions.setdefault(session_id, Published(session_id))

    def sent(self, pending: Pending) -> None:
        self._under_way.append(pending)

    def wait_for_some(self) -> None:
        """Wait where too many are under way. Raises what the log says of one."""
        if len(self._under_way) >= UNDER_WAY_MAX:
            self.wait_for_all()

    def wait_for_all(self, until: float | None = None) -> None:
        """``until``: by the monotonic clock; one limit for all, since all were sent by now."""
        limit = time.monotonic() + REPORT_TIMEOUT_SECONDS if until is None else until
        while self._under_way:
            self._settle(self._under_way.popleft(), limit)

    def _settle(self, pending: Pending, until: float) -> None:
        try:
            pending.result(max(0.0, until - time.monotonic()))
        except DalsegnoError:
            self._unknown.append(pending)
            raise
        found = self.of(pending.key.session_id)
        if pending.seq != CONTROL_SEQ:
            found.first_seq = min(found.first_seq or pending.seq, pending.seq)
            found.last_seq = max(found.last_seq, pending.seq)
        found.events += 1
        found.violations += bool(pending.violations)

    def in_the_end(self) -> str:
        """Wait for every report, and say what was acknowledged and what was not."""
        limit = time.monotonic() + REPORT_TIMEOUT_SECONDS
        while self._under_way:
            try:
                self.wait_for_all(limit)
            except DalsegnoError:
                continue  # it is in the list of those that were not
        done = [str(each) for each in self.sessions.values() if each.events or each.resumed]
        text = f"acknowledged: {', '.join(done) or 'nothing'}"
        if self._unknown:
            lost = ", ".join(f"{each.key.session_id} seq {each.seq}" for each in self._unknown[:_NAMED_MAX])
            text += f"; not acknowledged: {lost}" + (" ..." if len(self._unknown) > _NAMED_MAX else "")
        return text

    def explain(self, error: DalsegnoError, name: str, number: int) -> DalsegnoError:
        """The error with the line it comes from, and with what was acknowledged before it."""
        text = f"{name}, line {number}: {error.found}; {self.in_the_end()}"
        done = {each.session_id: (each.first_seq, each.last_seq) for each in self.sessions.values() if each.events}
        facts = {
            **error.data, "file": name, "line": number, "field": error.data.get("field", ""), "acknowledged": done,
        }  # fmt: skip
        if isinstance(error, InvalidEvent):
            todo = _rest_of(name, number) + ("" if error.todo.startswith("correct the") else f" ({error.todo})")
            return BadLine(text, wanted=error.wanted, todo=todo, **facts)
        error.found, error.data = text, facts
        return error

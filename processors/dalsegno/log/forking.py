"""Forks: a session that goes on from a prefix of another one, which is not copied and never written to.

1. the high watermark of the partition, which a session and all its forks share;
2. the parent's records up to it, and its ancestors': the last place at or below the one asked for where a fork may
   begin;
3. the child's ``SessionCreated`` (relation FORK) and ``SessionForked``, both of which name that place by seq and hash;
4. the log up to those: nobody else began the child meanwhile.

A crash in 3 may leave a child of one event, which is of no use: begin the fork again under another suffix. After 3 the
fork is there, and ``Publisher.resume`` takes it over.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from dalsegno.errors import Conflict, DalsegnoError, InvalidSessionId, NoForkPoint, NotFound, SessionMissing, Usage
from dalsegno.log.history import SessionSource, held
from dalsegno.log.session import RESUME_TIMEOUT_SECONDS, Session
from dalsegno.log.takeover import check_log_has
from dalsegno.model.events import Label, Ref, SessionCreated, SessionForked
from dalsegno.model.forking import Boundary, fork_point
from dalsegno.model.history import FORK_SEQ, Gathered, events_along, gather, is_fork, taken_over
from dalsegno.model.ids import FORK_MARK, Offset, check_session_id, root_of
from dalsegno.model.path import NO_START, PARENT_MISSING, Path
from dalsegno.model.records import FIRST_SEQ, Event

if TYPE_CHECKING:
    from dalsegno.log.publisher import Publisher
    from dalsegno.model.payloads import ForkPurpose, Profile

SUFFIX_CHARACTERS = 12
"""Of a suffix that is made up here: the parent's id may be long, and the log is asked whether it is new."""


def begin_fork(
    publisher: Publisher,
    parent_id: str,
    at: int | None = None,
    *,
    purpose: ForkPurpose,
    suffix: str | None = None,
    labels: Sequence[Label] = (),
    timeout: float = RESUME_TIMEOUT_SECONDS,
    **options: Any,
) -> Session:
    """Begin a fork: see ``Publisher.fork``."""
    child_id = fork_id(parent_id, suffix)
    source: SessionSource = options.get("source") or publisher.log_source()
    # (1)
    up_to = publisher.high(parent_id)
    if source.read(child_id, up_to).placed:
        raise Conflict(
            f"session {child_id} is in the log already",
            wanted="a suffix that no fork of this session has",
            todo="choose another suffix, or go on with that fork by publisher.resume(...)",
            session_id=child_id,
        )
    # (2)
    created, boundary = _boundary(publisher, source, parent_id, at, up_to)
    # (3), (4)
    child = publisher.session(child_id, **options)
    try:
        child.begin(_first_events(created, boundary, purpose, labels), up_to, timeout)
    except DalsegnoError:
        publisher.let_go(child_id, child)
        raise
    child.forked_at = boundary
    return child


def fork_id(parent_id: str, suffix: str | None) -> str:
    """The id of a fork; without a suffix, one that is made up. Raises InvalidSessionId."""
    check_session_id(parent_id, fork=FORK_MARK in parent_id)
    named = uuid4().hex[:SUFFIX_CHARACTERS] if suffix is None else suffix
    if not named or FORK_MARK in named:
        raise InvalidSessionId(
            f"the suffix of a fork is {named!r}",
            wanted=f"one character or more, without '{FORK_MARK}'",
            todo="choose another suffix, or leave it out",
            field="suffix",
        )
    return check_session_id(f"{root_of(parent_id)}{FORK_MARK}{named}", fork=True)


def _boundary(
    publisher: Publisher, source: SessionSource, parent_id: str, at: int | None, up_to: Offset
) -> tuple[Event, Boundary]:
    """The parent's first event, and where the fork begins."""
    records = source.read(parent_id, up_to)
    if not records.placed:
        raise SessionMissing(
            f"the log holds no session {parent_id}",
            wanted="a session to fork",
            todo="see 'dalsegno session list'",
            session_id=parent_id,
        )
    check_log_has(publisher, parent_id, records, up_to)

    def ancestor(session_id: str) -> Gathered:
        return gather(source.read(session_id, up_to).placed.values())

    own = gather(records.placed.values())
    path = own.known.choose()
    _check_has(parent_id, path, at)
    beginning = list(events_along(parent_id, own, path.hashes[:FORK_SEQ]))
    prefixes = taken_over(beginning[-1], ancestor) if is_fork(beginning[-1]) else []
    if prefixes is None:
        raise held(parent_id, PARENT_MISSING, FORK_SEQ)
    history = chain(*(prefix.events() for prefix in prefixes), events_along(parent_id, own, path.hashes))
    boundary = fork_point(history, parent_id, at)
    created = beginning[0]
    if isinstance(boundary, str):
        raise _none(parent_id, at, boundary)
    if created.stub is not None:
        raise _none(parent_id, at, f"its first event was amended ({created.stub}), so workflow and profile are unknown")
    return created, boundary


def _check_has(session_id: str, path: Path, at: int | None) -> None:
    """Raises NotFound where the path has no such event, SessionHeld where it has none at all, Usage."""
    if at is not None and type(at) is not int:
        raise Usage(f"at is {at!r}", wanted="a seq, or None for the last", todo="correct it")
    if not path.hashes:
        raise held(session_id, NO_START if path.held is None else path.held.reason, FIRST_SEQ)
    if at is not None and not FIRST_SEQ <= at <= len(path.hashes):
        raise NotFound(
            f"session {session_id} has no event at seq {at}",
            wanted=f"a seq of its path, which ends at {len(path.hashes)}",
            todo="" if path.held is None else f"it is held at {path.held.seq}: {path.held.reason}",
            session_id=session_id,
            seq=at,
        )


def _none(session_id: str, at: int | None, why: str) -> NoForkPoint:
    return NoForkPoint(
        f"session {session_id} cannot be forked {'at its end' if at is None else f'at seq {at}'}: {why}",
        wanted="a turn that begins at or below it while no call, approval, input or other operation is open",
        todo="fork it at a later event, or begin a new session",
        session_id=session_id,
        seq=at,
    )


def _first_events(
    created: Event, boundary: Boundary, purpose: ForkPurpose, labels: Sequence[Label]
) -> tuple[SessionCreated, SessionForked]:
    """The fork is of the parent's workflow and profile, but what it goes on with is no import. The goal stands in the
    prefix: a copy would outlive its erasure there."""
    profile: Profile = created.body["profile"]
    at = Ref(seq=boundary.at.seq, hash=boundary.at.hash, event_id=boundary.event_id)
    return (
        SessionCreated(
            workflow_name=created.body["workflow_name"],
            profile="OBSERVED" if profile == "IMPORTED" else profile,
            relation="FORK",
            parent_session=boundary.session_id,
            parent_at=at,
            labels=labels,
        ),
        SessionForked(parent_session=boundary.session_id, parent_at=at, purpose=purpose),
    )

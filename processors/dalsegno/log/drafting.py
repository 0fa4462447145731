"""From an event that a caller hands in to the bytes that will stand in the log: envelope, checks, encoding, rules.

Everything that can refuse an event is here, and nothing here sends: a refused event leaves no trace.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import NAMESPACE_URL, uuid5

import uuid_utils

from dalsegno.errors import InvalidEvent, InvalidSessionId, Usage
from dalsegno.log.codec import check, encode, event_hash, frame, place
from dalsegno.log.contents import move_out, put_away
from dalsegno.log.receipts import Pending
from dalsegno.log.redaction import Redactor
from dalsegno.log.sender import Sender
from dalsegno.log.stored import VALUE_MAX_BYTES, too_large
from dalsegno.log.tracing import check_traceparent
from dalsegno.model.catalogue import CATALOGUE
from dalsegno.model.events import (
    NewEvent,
    Origin,
    Redaction,
    SessionCancelled,
    SessionCompleted,
    SessionFailed,
    to_record,
)
from dalsegno.model.history import is_fork
from dalsegno.model.ids import FORK_MARK, EventKey, Seq
from dalsegno.model.lifecycle import RULES, MemoryOps, OpState, SessionState, judge
from dalsegno.model.lifecycle.tables import REQUIRED_IN_STRICT, STEPS
from dalsegno.model.naming import likely
from dalsegno.model.payloads import SubSessionOutcome
from dalsegno.model.records import CONTROL_SEQ, Actor, Event

log = logging.getLogger("dalsegno.log")

# Name space of the ids of decisions: equal decisions after equal histories get equal ids.
_NAMESPACE = uuid5(NAMESPACE_URL, "dalsegno:decision")
_OF_ENVELOPE = frozenset({"occurred_at", "causation_id", "turn_id", "stage_id"})

Inherit: TypeAlias = Callable[[Event, SessionState], None]
"""Gives a fork the state of its parent."""


@dataclass(frozen=True)
class Chain:
    """The event that the next one follows. ``recorded_at``: the greatest so far, microseconds since 1970 UTC."""

    seq: int = 0
    hash: bytes | None = None
    epoch: int = 0
    recorded_at: int = 0


@dataclass(frozen=True)
class Draft:
    """An event that passed every check and was not sent yet; ``chain`` is where the session stands behind it."""

    pending: Pending
    chain: Chain
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    outcome: SubSessionOutcome | None = None
    """How the session ends, if this is its end."""


@dataclass(frozen=True)
class Drafter:
    """Makes the drafts of one session.

    ``digests``: of contents that were redacted, the digest of what was written instead. Whoever knows what stood there
    names it by the first; in the log it must be the second, which nobody can test guesses against.
    """

    publisher: Sender
    session_id: str
    check_rules: bool
    actor: Actor
    clock: Callable[[], int]
    traceparent: str | Callable[[], str | None] | None = None
    redact: Redactor | None = None
    digests: dict[bytes, bytes] = field(default_factory=dict)

    def draft(
        self,
        event: NewEvent,
        chain: Chain,
        state: SessionState,
        ops: MemoryOps,
        how: Mapping[str, Any],
        inherit: Inherit,
    ) -> Draft:
        """Raises InvalidEvent or EventTooLarge; ``state`` and ``ops`` then are as before, else behind the event."""
        try:
            return self._draft(event, chain, state, ops, how, inherit)
        except InvalidEvent as error:
            if self.redact is not None:  # what was refused is shown, and ends in the producer's own logs
                error.found = self.redact.clean(error.found)
            raise
        except RecursionError:
            raise _refused("event", "nested too deeply", "fields as the event has them") from None

    def _draft(
        self,
        event: NewEvent,
        chain: Chain,
        state: SessionState,
        ops: MemoryOps,
        how: Mapping[str, Any],
        inherit: Inherit,
    ) -> Draft:
        if not isinstance(event, NewEvent) or event.TYPE not in CATALOGUE:
            raise _no_event(event)
        if chain.seq == 0 and event.CLASS != "C":
            self._check_is_fork(event)
        writer = self.publisher.schemas.event(event.TYPE)
        rest = dict(how)
        traceparent = self._traceparent(rest.pop("traceparent", None))
        given = {"meta": self._meta(event, chain, rest), **to_record(event)}
        if self.redact is not None:
            given = self.redact.apply(writer.type, writer.schema, given, self.digests)
        large: list[dict[str, Any]] = []
        if self.publisher.blobs is not None:
            given = move_out(given, large)
        record = check(writer, given)
        meta = record["meta"]
        body = encode(writer, record)
        value = frame(writer, body)
        if len(value) > VALUE_MAX_BYTES:
            raise too_large(_largest(record), len(value))
        hash_ = event_hash(writer, body)
        key = EventKey(self.session_id, Seq(meta["seq"]), hash_)
        self.publisher.acknowledge_schemas([writer])
        partition = self.publisher.partition_of(self.session_id)
        # Before the event, which must never name what is not there; one that is refused below leaves it unused.
        put_away(self.publisher.blobs, large)
        is_control = meta["seq"] == CONTROL_SEQ
        # Last, since it moves the state on: nothing below may fail.
        broken = self._judge(key, value, state, ops, inherit) if self.check_rules and not is_control else ()
        headers = [
            ("ce_type", writer.name.encode()),
            ("content-type", b"application/avro"),
            ("dalsegno-hash", hash_.hex().encode()),
        ]
        if traceparent is not None:
            headers.append(("traceparent", traceparent))
        pending = Pending(key, value, partition, broken, meta["event_id"])
        behind = chain if is_control else Chain(meta["seq"], hash_, meta["epoch"], meta["recorded_at"])
        return Draft(pending, behind, headers, _outcome(event))

    def _traceparent(self, given: str | None) -> bytes | None:
        found = self.traceparent if given is None else given
        found = found() if callable(found) else found
        return None if found is None else check_traceparent(found)

    def _check_is_fork(self, event: NewEvent) -> None:
        """Only a fork may have an id with ``~``; whether the session is one, its first event says."""
        if FORK_MARK in self.session_id and getattr(event, "relation", None) != "FORK":
            raise InvalidSessionId(
                f"session_id is {self.session_id!r}, with the '{FORK_MARK}' of forks, and the session is none",
                wanted=f"an id without '{FORK_MARK}', or SessionCreated(relation='FORK', parent_session=..., ...)",
                todo="open the session under another id; nothing was written",
                field="session_id",
            )

    def _meta(self, event: NewEvent, chain: Chain, how: Mapping[str, Any]) -> dict[str, Any]:
        rest = dict(how)
        is_control = event.CLASS == "C"
        prev_hash = None if is_control else chain.hash
        actor = rest.pop("actor", None) or self.actor
        if not isinstance(actor, tuple) or len(actor) != 2:
            raise _refused("meta.actor", f"{actor!r}", "Actor(kind, id)")
        origin, redactions = rest.pop("origin", None), rest.pop("redactions", ())
        event_id, epoch = rest.pop("event_id", None), rest.pop("epoch", None)
        cause = rest.pop("cause", None)
        if cause is not None:
            rest["causation_id"] = self._id_of(cause, rest.get("causation_id"))
        meta = {
            "session_id": self.session_id,
            "seq": CONTROL_SEQ if is_control else chain.seq + 1,
            "epoch": chain.epoch if epoch is None else epoch,
            "prev_hash": prev_hash,
            "ignorable": CATALOGUE[event.TYPE].ignorable,
            # A clock that was set back must not make a session run backwards.
            "recorded_at": max(self.clock(), chain.recorded_at),
            "event_id": event_id or self._event_id(event, prev_hash),
            "actor_kind": actor[0],
            "actor_id": actor[1],
            "writer": self.publisher.writer,
            "origin": None if origin is None else _record(origin, "meta.origin"),
            "redactions": [_record(redaction, f"meta.redactions[{n}]") for n, redaction in enumerate(redactions)],
        }
        unknown = sorted(set(rest) - _OF_ENVELOPE)
        if unknown:
            raise Usage(f"append takes no {unknown[0]}", wanted="the keyword arguments of append")
        return {**meta, **rest}

    def _id_of(self, cause: Any, beside: str | None) -> str:
        """The ``causation_id`` that an append stands for: an event of this session, which thereby came before."""
        if not isinstance(cause, Pending) or cause.event_id is None:
            raise _refused("cause", f"a {type(cause).__name__}", "what append gave for the event that caused this one")
        if cause.key.session_id != self.session_id:
            raise _refused("cause", f"an event of session {cause.key.session_id}", "an event of this session")
        if beside is not None and beside != cause.event_id:
            raise _refused("cause", "another event than causation_id", "one of the two")
        return cause.event_id

    def _event_id(self, event: NewEvent, prev_hash: bytes | None) -> str:
        if event.CLASS != "D":
            return str(uuid_utils.uuid7())
        cause = prev_hash.hex() if prev_hash else ""
        return str(uuid5(_NAMESPACE, f"{self.session_id}\n{event.TYPE}\n{cause}\n0"))

    def _judge(
        self, key: EventKey, value: bytes, state: SessionState, ops: MemoryOps, inherit: Inherit
    ) -> tuple[str, ...]:
        """Judge the event as every reader will: from its bytes. In the profile STRICT a broken rule refuses it; in the
        others what happened is recorded all the same, and readers list it."""
        event = place(self.publisher.schemas, key.encode(), value, 0, 1)
        assert isinstance(event, Event), "what was just encoded can be read"
        if is_fork(event):
            inherit(event, state)
        broken = judge(state, ops, event).violations
        if not broken:
            return ()
        if state.profile in ("STRICT", ""):
            raise InvalidEvent(
                f"{event.type} at seq {event.seq} breaks {', '.join(broken)} (the session is {state.status})",
                wanted="; ".join(f"{rule}: {RULES[rule]}" for rule in broken),
                todo="append what is missing before it, or correct the event; nothing was written",
                field=_field_of(event, broken),
                rule=broken[0],
                rules=list(broken),
            )
        log.warning(
            "event_breaks_rules",
            extra={"session_id": self.session_id, "seq": event.seq, "type": event.type, "rules": list(broken)},
        )
        return broken


def _outcome(event: NewEvent) -> SubSessionOutcome | None:
    if isinstance(event, SessionCompleted):
        return event.outcome
    if isinstance(event, SessionFailed):
        return "FAILED"
    return "CANCELLED" if isinstance(event, SessionCancelled) else None


class Overlay(MemoryOps):
    """Operations over others that stay as they are, so that a refused batch leaves nothing behind."""

    def __init__(self, below: MemoryOps) -> None:
        super().__init__()
        self._below = below

    def get(self, kind: str, id: str, /) -> OpState | None:
        found = self.rows.get((kind, id))
        if found is None:
            below = self._below.get(kind, id)
            # Judging changes rows in place: it gets its own.
            found = None if below is None else copy.copy(below)
        return found


def _refused(field: str, found: str, wanted: str) -> InvalidEvent:
    return InvalidEvent(
        f"{field} is {found}", wanted=wanted, todo="correct the event; nothing was written", field=field
    )


def _no_event(given: Any) -> InvalidEvent:
    if isinstance(given, type):
        return _refused("event", f"the class {given.__name__}", f"{given.__name__}(...), an instance")
    type_ = given.TYPE if isinstance(given, NewEvent) else type(given).__name__
    close = likely(type_, CATALOGUE, "one of 'dalsegno schema list'")
    return _refused("event", f"a {type_}", f"an instance of a class of dalsegno.events: {close}")


def _record(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, Origin | Redaction):
        raise _refused(path, f"a {type(value).__name__}", "an Origin or a Redaction of dalsegno.events")
    return to_record(value)  # type: ignore[arg-type]


def _field_of(event: Event, broken: tuple[str, ...]) -> str:
    """The field to look at first: one that the profile wants and that is missing, else the id of the operation."""
    if "F1" in broken:
        missing = [name for name in REQUIRED_IN_STRICT.get(event.type, ()) if event.body.get(name) is None]
        if missing:
            return missing[0]
    step = STEPS.get(event.type)
    return step.id_field if step is not None else "type"


def _largest(record: Mapping[str, Any]) -> str:
    """The field that makes an event large."""
    return max(record, key=lambda name: len(repr(record[name])))

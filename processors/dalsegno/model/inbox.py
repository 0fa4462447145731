"""What becomes of a command that somebody who is not a session's writer put into its inbox. Pure.

``settle`` says it: the event that was asked for, a note that says why not, or nothing, because the command was applied
before. Who appends, and who takes the command out of the inbox afterwards, is the session's writer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, TypeAlias

from dalsegno.model.events import (
    ApprovalGranted,
    Blob,
    InputProvided,
    NewEvent,
    NoteRecorded,
    Origin,
    ToolReceiptRecorded,
)
from dalsegno.model.lifecycle import OpState
from dalsegno.model.lifecycle.state import (
    APPROVAL,
    CREATED,
    DENIED,
    DONE,
    ENDED,
    GRANTED,
    INPUT,
    NEW,
    bounded,
)
from dalsegno.model.lifecycle.tables import AFTER_END, RESULTS_AFTER_END, STEPS
from dalsegno.model.records import Actor, Event

IMPORTER: Final = "inbox"
"""``origin.importer`` of every event that a command became; ``origin.native_ref`` is the command's id."""
NOTE_REFUSED: Final = "inbox-refused"
NOTE_REPEAT: Final = "inbox-repeat"
"""Kinds of the notes: the command does not fit the state; what it answers was answered before."""

ASKABLE: Final = frozenset(
    {"ApprovalGranted", "ApprovalDenied", "InputProvided", "CancelRequested", "ToolReceiptRecorded", "VerdictReported"}
)
"""Types of events that may be asked for."""
_BY_PEOPLE: Final = frozenset({APPROVAL, INPUT})
_WHY_MAX: Final = 500
"""Characters of a reason: it may quote what came from outside."""
_ANSWERED: Final = frozenset({GRANTED, DENIED, DONE})

Fits: TypeAlias = Callable[[Blob, Blob], str | None]
"""(JSON Schema, content) -> why the content does not fit; None if it does."""


@dataclass(frozen=True)
class Command:
    """One command. ``event`` is None where what it holds is no event that may be asked for; ``problem`` then says why.
    ``stored_at``: when the broker stored it, microseconds since 1970 UTC; the sender's own clock never counts."""

    session_id: str
    command_id: str
    event_type: str
    actor: Actor
    stored_at: int
    event: NewEvent | None
    problem: str | None = None

    @property
    def subject(self) -> str:
        """The id of what the command is about; "" for the session itself."""
        return "" if self.event is None else subject_of(self.event)


def subject_of(event: NewEvent) -> str:
    """The id of what an event that is asked for is about; "" for the session itself."""
    step = STEPS.get(event.TYPE)
    return "" if step is None else str(getattr(event, step.id_field))


@dataclass(frozen=True)
class Asked:
    """What a session asked people for, and when: ``requested_at`` is the ``recorded_at`` of the request.
    ``schema``: the JSON Schema that an input must fit."""

    requested_at: int
    ttl_ms: int | None = None
    addressed_to: tuple[str, ...] = ()
    schema: Blob | None = None


@dataclass(frozen=True)
class InboxState:
    """What must be known of the session behind its last event.

    ``status`` and ``operation`` are a writer's own (``session.status``, ``session.operation``); ``asked`` of an
    approval or an input, by kind and id; ``was_applied``: whether an event or a note of this command is on the path.
    """

    status: str
    operation: Callable[[str, str], OpState | None]
    asked: Callable[[str, str], Asked | None]
    was_applied: Callable[[str], bool]


class Fate(StrEnum):
    TAKEN = "taken"
    REFUSED = "refused"
    REPEAT = "repeat"
    """What it answers was answered before, by another command or otherwise."""
    APPLIED = "applied"
    """This very command was applied before: nothing is appended."""


@dataclass(frozen=True)
class Settled:
    """``event`` is to be appended with ``how`` as keyword arguments; None: there is nothing to append."""

    fate: Fate
    event: NewEvent | None
    why: str = ""
    how: Mapping[str, Any] = field(default_factory=dict)


def settle(command: Command, state: InboxState, fits: Fits) -> Settled:
    """What the writer of a session makes of a command.

    An answer counts by the time at which the broker stored its command; that is the event's ``occurred_at``.
    """
    if state.was_applied(command.command_id):
        return Settled(Fate.APPLIED, None, "it was applied before")
    event = command.event
    if event is None:
        return refuse(command, command.problem or "it cannot be read")
    if (why := _against_status(command.event_type, state.status)) is not None:
        return refuse(command, why)
    step = STEPS.get(command.event_type)
    if step is not None:
        kind, id = step.kind, bounded(command.subject)
        op = state.operation(kind, id)
        if op is None:
            return refuse(command, f"the session knows no {kind} {id}")
        if op.phase not in step.before:
            fate = Fate.REPEAT if op.phase in _ANSWERED else Fate.REFUSED
            return refuse(command, f"{kind} {id} is {op.phase}", fate)
        why = _against_answer(command, op, state.asked(kind, id), fits) if kind in _BY_PEOPLE else None
        if isinstance(event, ToolReceiptRecorded) and not 1 <= event.attempt <= op.attempt:
            why = f"it is of attempt {event.attempt}, and {op.attempt} were started"
        if why is not None:
            return refuse(command, why)
    how = {"actor": command.actor, "occurred_at": command.stored_at, "origin": _origin(command)}
    return Settled(Fate.TAKEN, event, how=how)


def refuse(command: Command, why: str, fate: Fate = Fate.REFUSED) -> Settled:
    """A note that says why the command did not become what it asks for. It always fits into an event, whatever the
    command holds: else nobody could get past that command."""
    why = why[:_WHY_MAX]
    said = {
        "command_id": command.command_id, "event_type": bounded(command.event_type),
        "subject": bounded(command.subject), "actor_kind": command.actor.kind, "actor_id": bounded(command.actor.id),
        "why": why,
    }  # fmt: skip
    content = json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
    data = Blob(digest=sha256(content).digest(), size=len(content), media_type="application/json", inline=content)
    note = NoteRecorded(kind=NOTE_REPEAT if fate is Fate.REPEAT else NOTE_REFUSED, data=data)
    return Settled(fate, note, why, {"occurred_at": command.stored_at, "origin": _origin(command)})


def command_of(meta: Mapping[str, Any]) -> str | None:
    """The id of the command that an event or a note came from, by its envelope; None for all others."""
    origin = meta.get("origin")
    return origin["native_ref"] if isinstance(origin, Mapping) and origin.get("importer") == IMPORTER else None


class Remembered:
    """``asked`` and ``was_applied`` of an ``InboxState``, from the session's events in order. For writers that keep no
    state of their own; it grows with the questions and commands of the session."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, str], Asked] = {}
        self._applied: set[str] = set()

    def see(self, event: Event) -> None:
        if event.stub is not None:
            return
        body = event.body
        if (command_id := command_of(event.meta)) is not None:
            self._applied.add(command_id)
        if event.type == "ApprovalRequested":
            about = Asked(event.meta["recorded_at"], body["ttl_ms"], tuple(body["addressed_to"]))
            self._asked[APPROVAL, bounded(body["approval_id"])] = about
        elif event.type == "InputRequested":
            schema = None if body["schema"] is None else Blob(**body["schema"])
            about = Asked(event.meta["recorded_at"], body["ttl_ms"], schema=schema)
            self._asked[INPUT, bounded(body["request_id"])] = about

    def asked(self, kind: str, id: str) -> Asked | None:
        return self._asked.get((kind, id))

    def was_applied(self, command_id: str) -> bool:
        return command_id in self._applied


def _origin(command: Command) -> Origin:
    return Origin(importer=IMPORTER, native_ref=command.command_id)


def _against_status(type_: str, status: str) -> str | None:
    if status in (NEW, CREATED):
        return "the session has not started"
    if status in ENDED and type_ not in AFTER_END | RESULTS_AFTER_END:
        return f"the session is {status}"
    return None


def _against_answer(command: Command, op: OpState, asked: Asked | None, fits: Fits) -> str | None:
    """What speaks against an answer to an open question of the session."""
    event = command.event
    if asked is None:
        return f"when {command.subject} was asked, and whom, is not known"
    if asked.addressed_to and command.actor.id not in asked.addressed_to:
        return f"{command.actor.id} is not among those who were asked: {', '.join(asked.addressed_to)}"
    if asked.ttl_ms is not None and command.stored_at > asked.requested_at + asked.ttl_ms * 1000:
        late_ms = (command.stored_at - asked.requested_at) // 1000
        return f"it came {late_ms} ms after the request, which waited for {asked.ttl_ms} ms"
    if isinstance(event, ApprovalGranted) and event.arguments_digest != op.digest:
        return "it is for other arguments than those that leave was asked for"
    if isinstance(event, InputProvided):
        return _against_input(event, asked.schema, fits)
    return None


def _against_input(event: InputProvided, schema: Blob | None, fits: Fits) -> str | None:
    if event.outcome not in ("ACCEPTED", "DECLINED", "CANCELLED"):
        return f"{event.outcome} is no answer that a person gives"
    if event.outcome != "ACCEPTED":
        return None
    if event.content is None:
        return "it says ACCEPTED and has no content"
    return None if schema is None else fits(schema, event.content)

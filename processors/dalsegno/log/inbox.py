"""The inbox: commands of those who are not a session's writer, in ``<prefix>.inbox`` (``schemas/README.md``, "Inbox").

    inbox = Inbox(KafkaTransport(cfg), prefix="dalsegno")
    inbox.send("s-1", events.CancelRequested(reason="no more money"), actor=("OPERATOR", "maria"))

A session's writer reads the commands of its session, and takes up one after the other where it decides nothing else:

    commands = inbox.commands_of(["s-1"])
    for command in commands.new():
        take_up(session, inbox, command, state, fits)

``take_up``: (1) settle, (2) append the event or the note and wait until it is stored, (3) take the command out. A crash
after (2) leaves a command whose id is on the path: it is not applied again.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import uuid_utils

from dalsegno.errors import DalsegnoError, InvalidEvent, RecordDamaged, Unavailable, Usage, WaitTimeout
from dalsegno.log.codec import check, decode_record, encode_record
from dalsegno.log.contents import move_out, put_away
from dalsegno.log.history import STALL_SECONDS
from dalsegno.log.json_values import strict_json, to_values
from dalsegno.log.record import LogRecord
from dalsegno.log.schema_set import SchemaSet
from dalsegno.log.topics import BESIDE, topic_name
from dalsegno.log.transport import Transport
from dalsegno.log.writer import SessionWriter
from dalsegno.model import events
from dalsegno.model.events import NewEvent, to_record
from dalsegno.model.ids import FORK_MARK, Offset, check_session_id, partition_of
from dalsegno.model.inbox import ASKABLE, Command, Fits, InboxState, Settled, refuse, settle
from dalsegno.model.records import Actor
from dalsegno.storage.blobs import Blobs, blob

log = logging.getLogger("dalsegno.log")

SEND_TIMEOUT_SECONDS = 30.0
COMMAND_ID_MAX_CHARACTERS = 100
# What an event's fields are checked with: its own envelope is its writer's.
_ANY_META = {
    "session_id": "s", "seq": 1, "epoch": 0, "prev_hash": None, "ignorable": True, "recorded_at": 0, "event_id": "",
    "actor_kind": "UNKNOWN", "actor_id": "", "writer": "",
}  # fmt: skip


class Sent(NamedTuple):
    """A command that the inbox holds."""

    command_id: str
    partition: int
    offset: Offset


class Inbox:
    """Sends commands, finds those of a session, and takes out what was taken up."""

    def __init__(self, transport: Transport, *, prefix: str = "dalsegno", blobs: Blobs | None = None) -> None:
        self.transport = transport
        self.topic = topic_name(prefix, BESIDE)
        self._blobs = blobs
        self._schemas = SchemaSet.load()

    def send(
        self,
        session_id: str,
        event: NewEvent,
        *,
        actor: Actor | tuple[str, str],
        command_id: str | None = None,
        timeout: float = SEND_TIMEOUT_SECONDS,
    ) -> Sent:
        """Ask the session's writer to append ``event``; returns when the command is stored.

        ``command_id``: the same command sent again, with the same id, is applied once. ``actor``: who answers; it
        becomes the event's actor. Large contents go to the blob store, where there is one.
        Raises InvalidEvent, EventTooLarge, Usage, WaitTimeout (whether it is stored is unknown then: send it again with
        the same id), and what sending does.
        """
        check_session_id(session_id, fork=FORK_MARK in session_id)
        id_ = str(uuid_utils.uuid7()) if command_id is None else check_command_id(command_id)
        if event.TYPE not in ASKABLE:
            raise Usage(f"a command that asks for {event.TYPE}", wanted=f"one of {', '.join(sorted(ASKABLE))}")
        large: list[dict[str, Any]] = []
        fields = to_record(event) if self._blobs is None else move_out(to_record(event), large)
        content = json.dumps(_checked(self._schemas, event.TYPE, fields), default=bytes.hex, separators=(",", ":"))
        record = {
            "session_id": session_id, "command_id": id_, "event_type": event.TYPE,
            "actor_kind": actor[0], "actor_id": actor[1], "sent_at": time.time_ns() // 1000,
            "payload": msgspec.structs.asdict(blob(content.encode(), "application/json")),
        }  # fmt: skip
        if self._blobs is not None:
            record = move_out(record, large)
        value = encode_record("InboxCommand", record)
        put_away(self._blobs, large)
        partition = self.partition_of(session_id)
        return Sent(id_, partition, self._store(partition, _key(session_id, id_), value, timeout))

    def commands_of(self, session_ids: Collection[str]) -> Commands:
        """The commands of these sessions, as they come. Reads nothing yet."""
        return Commands(self, session_ids)

    def take_out(self, command: Command, timeout: float = SEND_TIMEOUT_SECONDS) -> None:
        """The command became an event or a note, which is stored: it waits no longer."""
        key = _key(command.session_id, command.command_id)
        self._store(self.partition_of(command.session_id), key, None, timeout)

    def partition_of(self, session_id: str) -> int:
        return partition_of(session_id, self.transport.partitions(self.topic))

    def understood(self, record: LogRecord) -> Command | None:
        """The command that a record holds; None for a tombstone and for what has no command's key."""
        named = _parse_key(record.key)
        if record.value is None or named is None:
            return None
        session_id, command_id = named
        unknown = Actor("UNKNOWN", "unknown")
        nobody = Command(session_id, command_id, "UNKNOWN", unknown, record.timestamp_ms * 1000, None)
        try:
            kind, found = decode_record(record.value)
        except RecordDamaged as error:
            return replace(nobody, problem=error.found)
        if kind != "InboxCommand" or (found["session_id"], found["command_id"]) != named:
            return replace(nobody, problem=f"under its key stands a {kind} with another key")
        actor = Actor(found["actor_kind"], found["actor_id"])
        command = replace(nobody, actor=actor, event_type=found["event_type"])
        try:
            return replace(command, event=self._event(found["event_type"], found["payload"]))
        except Unavailable:  # of the blob store: the command waits
            raise
        except (DalsegnoError, ValueError, msgspec.ValidationError) as error:
            problem = error.found if isinstance(error, DalsegnoError) else f"its fields are no JSON: {error}"
            return replace(command, problem=problem)

    def _event(self, type_: str, payload: Mapping[str, Any]) -> NewEvent:
        if type_ not in ASKABLE:
            raise Usage(f"no {type_} may be asked for")
        content = payload["inline"] if self._blobs is None else self._blobs.get(payload)
        if content is None:
            raise ValueError("they lie in a blob store, and this writer was given none")
        fields = strict_json(content)
        if not isinstance(fields, dict):
            raise ValueError(f"a {type(fields).__name__} is no object")
        kind: type[NewEvent] = getattr(events, type_)
        return msgspec.convert(_checked(self._schemas, type_, fields, from_json=True), kind)

    def _store(self, partition: int, key: bytes, value: bytes | None, timeout: float) -> Offset:
        stored: Future[Offset] = Future()

        def done(offset: Offset | None, error: DalsegnoError | None) -> None:
            if error is not None:
                stored.set_exception(error)
            elif offset is not None:
                stored.set_result(offset)

        self.transport.ready()
        self.transport.send(self.topic, partition, key, value, [], done)
        try:
            return stored.result(timeout)
        except TimeoutError:
            raise WaitTimeout(
                f"no report on command {key.decode()} within {timeout:g} s; it may or may not be stored",
                wanted="the broker's report",
                todo="send it again with the same command id: it is applied once",
            ) from None


class Commands:
    """The commands of some sessions. The first look reads their partitions of the inbox from the start, later ones only
    what came since; ``records_read`` is what it cost."""

    def __init__(self, inbox: Inbox, session_ids: Collection[str]) -> None:
        self._inbox, self._sessions = inbox, frozenset(session_ids)
        self._positions: dict[int, Offset | None] = {inbox.partition_of(each): None for each in self._sessions}
        self.records_read = 0

    def new(self) -> list[Command]:
        """Those that came since the last look and still wait, in the order in which they were stored.

        Of several under one id the last counts, and only it: compaction may have taken the others.
        """
        found: dict[bytes, LogRecord] = {}
        for partition, start in self._positions.items():
            bounds = self._inbox.transport.bounds(self._inbox.topic, partition)
            position = bounds.low if start is None else start
            if position < bounds.high:
                for batch in self._inbox.transport.read(
                    self._inbox.topic, partition, position, bounds.high, STALL_SECONDS
                ):
                    self.records_read += len(batch.records)
                    position = batch.next_offset
                    for record in batch.records:
                        if record.key is not None:
                            found.pop(record.key, None)
                            found[record.key] = record
            self._positions[partition] = position
        commands = (self._inbox.understood(record) for record in found.values())
        return [each for each in commands if each is not None and each.session_id in self._sessions]


def take_up(session: SessionWriter, inbox: Inbox, command: Command, state: InboxState, fits: Fits) -> Settled:
    """Make of one command what becomes of it: see the steps above. ``state`` is that behind the session's last event.

    Raises what appending and sending raise; the command then waits, and is settled anew at the next attempt.
    """
    # (1)
    settled = settle(command, state, fits)
    # (2)
    if settled.event is not None:
        try:
            pending = session.append(settled.event, **settled.how)
        except InvalidEvent as error:  # such as a field that its profile wants; nothing was written
            settled = refuse(command, error.found)
            assert settled.event is not None, "a refusal is a note"
            pending = session.append(settled.event, **settled.how)
        pending.result()
    # (3)
    inbox.take_out(command)
    facts = {"session_id": command.session_id, "command_id": command.command_id, "fate": settled.fate.value}
    log.info("command_taken_up", extra={**facts, "event_type": command.event_type, "why": settled.why})
    return settled


def check_command_id(command_id: str) -> str:
    """Raises Usage for an id that could not be told from its session's in a key."""
    good = 0 < len(command_id) <= COMMAND_ID_MAX_CHARACTERS and ":" not in command_id and command_id.isprintable()
    if not good or not command_id.isascii():
        raise Usage(
            f"command id {command_id[:COMMAND_ID_MAX_CHARACTERS]!r}",
            wanted=f"1 to {COMMAND_ID_MAX_CHARACTERS} printable ASCII characters without a colon",
            todo="choose another, or none",
        )
    return command_id


def _key(session_id: str, command_id: str) -> bytes:
    return f"{session_id}:{command_id}".encode()


def _parse_key(key: bytes | None) -> tuple[str, str] | None:
    """Session and command; read from the right, since the id of a session may hold colons."""
    try:
        session_id, _, command_id = (key or b"").decode().rpartition(":")
        check_command_id(command_id)
    except (UnicodeDecodeError, Usage):
        return None
    return (session_id, command_id) if session_id else None


def _checked(schemas: SchemaSet, type_: str, fields: Mapping[str, Any], *, from_json: bool = False) -> dict[str, Any]:
    """The fields of an event, whole and with their defaults, as its schema wants them. Raises InvalidEvent."""
    writer = schemas.event(type_)
    if "meta" in fields:
        raise InvalidEvent("a field meta", wanted="the event's own fields", field="meta")
    checked = check(writer, {"meta": _ANY_META, **(to_values(writer, fields) if from_json else fields)})
    del checked["meta"]
    return checked

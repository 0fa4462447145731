"""What the commands that answer a session share: sending a command into its inbox, waiting for what becomes of it."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import Any, NamedTuple

import click

from dalsegno.cli.common import open_reader, some, whole_id
from dalsegno.cli.context import Context
from dalsegno.cli.numbers import Amount
from dalsegno.cli.output import emit, note
from dalsegno.errors import CommandRefused, Conflict, NotFound, Unavailable, Usage, WaitTimeout
from dalsegno.log.codec import place
from dalsegno.log.follow import Follower
from dalsegno.log.inbox import Inbox
from dalsegno.log.json_values import strict_json
from dalsegno.log.record import LogRecord
from dalsegno.log.schema_set import SchemaSet
from dalsegno.log.topics import EVENTS, topic_name
from dalsegno.log.transport import KafkaTransport
from dalsegno.model.events import Blob, NewEvent
from dalsegno.model.ids import partition_of
from dalsegno.model.inbox import NOTE_REFUSED, NOTE_REPEAT, Command, command_of, subject_of
from dalsegno.model.records import Actor, Event
from dalsegno.projections.rows import ApprovalRow, InputRow
from dalsegno.readers.lineage import is_trial
from dalsegno.readers.local import LocalReader
from dalsegno.readers.rows import session_rows
from dalsegno.readers.sessions import SESSIONS, Found, list_sessions
from dalsegno.storage.blobs import Blobs, blob

POLL_SECONDS = 0.5

wait_option = click.option(
    "--wait",
    "wait_seconds",
    type=Amount(0),
    metavar="SECONDS",
    help="Wait so long for the session's writer: exit code 3 if it refused, 6 if it did not take it up.",
)


class TakenUp(NamedTuple):
    """What a session's writer made of a command: an event, or a note that says why not."""

    seq: int
    type: str
    why: str | None


def session_here(reader: LocalReader, session_id: str) -> Found:
    """The session of exactly this id, so that no other one is ever answered. Raises NotFound."""
    view = reader.of_session(whole_id(session_id))
    row = view.reads.row(SESSIONS, session_id)
    if row is None:
        raise NotFound(
            f"no session {session_id!r}",
            wanted="the whole id of a session",
            todo="see 'dalsegno session list'; what was just published is here when a worker has folded it",
            session=session_id,
        )
    return Found(session_id, row, view)


def open_question(
    rows: Mapping[str, Any], id_: str | None, session_id: str, what: str, command: str | None = None
) -> tuple[str, Any]:
    """The question that is answered: that of the id, or, without one, the only one that is open. Raises NotFound, Usage
    where several are open, Conflict where it is answered already. ``command`` lists them, where it is not ``what``."""
    open_ = [name for name, row in rows.items() if row.status == "OPEN"]
    if id_ is None:
        if not open_:
            raise NotFound(
                f"session {session_id} waits for no {what}", todo=f"see 'dalsegno {command or what} list --all'"
            )
        if len(open_) > 1:
            raise Usage(
                f"session {session_id} waits for {len(open_)}: {some(open_)}",
                wanted=f"the id of one {what}",
                todo="name it",
            )
        id_ = open_[0]
    if id_ not in rows:
        there = f"it waits for {some(open_)}" if open_ else f"it waits for no {what}"
        raise NotFound(f"session {session_id} has no {what} {id_}", wanted=f"one that it asked for; {there}")
    row = rows[id_]
    if row.status != "OPEN":
        by = f" by {row.ended_by}" if row.ended_by else ""
        raise Conflict(f"{what} {id_} is {row.status}{by} already", wanted=f"an open {what}", todo="nothing was sent")
    return id_, row


def asked_in(found: Found, seq: int) -> Event | None:
    """The event that asks, which stands at this seq; None where it is not on the path, or was amended."""
    event = next(found.view.reads.path(found.session_id, after=seq - 1, limit=1), None) if seq else None
    return None if event is None or event.stub is not None else event


def is_overdue(row: ApprovalRow | InputRow, asked: Event | None) -> bool:
    """Whether the time of an open question is over by this machine's clock: its writer takes no answer any more.
    ``asked``: the event that asks."""
    if row.status != "OPEN" or row.ttl_ms is None or asked is None:
        return False
    recorded_at: int = asked.meta["recorded_at"]
    return now() > recorded_at + row.ttl_ms * 1000


def _check_in_time(found: Found, what: str, id_: str, row: ApprovalRow | InputRow) -> None:
    """Raises Conflict where an answer would come too late."""
    if is_overdue(row, asked_in(found, row.requested_seq)):
        raise Conflict(
            f"{what} {id_} is overdue: it waited for {row.ttl_ms} ms, and an answer that comes later is not taken",
            wanted=f"an open {what} whose time is not over",
            todo=f"nothing was sent; {_goes_on(found.session_id)}, and does what is to be done without an answer",
        )


def question_in_time(ctx: Context, session: str, id_: str | None, projection: str, what: str) -> tuple[str, Any]:
    """The id and the row of the question that is answered: see ``open_question``. Raises Conflict, too,
    where an answer would come too late."""
    with open_reader(ctx) as reader:
        found = session_here(reader, session)
        id_, row = open_question(rows_by_id(found, projection), id_, session, what)
        _check_in_time(found, what, id_, row)
    return id_, row


def known_state(row: ApprovalRow | InputRow, asked: Event | None) -> str:
    """Where a question stands, as far as the log says it."""
    return "overdue" if is_overdue(row, asked) else row.status.lower()


def json_blob(given: str | bytes, option: str, *, wanted: str, todo: str) -> Blob:
    """Raises Usage where it is no JSON, which a text that is no UTF-8 is neither."""
    try:
        content = given.encode() if isinstance(given, str) else given
        strict_json(content)
    except ValueError as error:
        raise Usage(f"{option}: no JSON: {error}", wanted=wanted, todo=todo) from None
    return blob(content, "application/json")


def now() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


def _goes_on(session_id: str) -> str:
    return f"where no harness of the session runs, 'dalsegno session resume {shlex.quote(session_id)}' goes on with it"


def rows_by_id(found: Found, projection: str) -> dict[str, Any]:
    return {str(row_id[0]): row for row_id, row in session_rows(found, projection)}


def listed(
    ctx: Context,
    rows_of: Callable[[Found], Mapping[str, Any]],
    session: str | None,
    is_open: Callable[[Any], bool],
    shown: Callable[[Found, str, Any, str | None], dict[str, Any]],
    columns: Iterable[str],
    *,
    everything: bool,
) -> None:
    """Print the questions of a session, or of all that are here, with what waits in the inbox for each.

    Forks in which something is tried are left out and counted, unless the session or ``everything`` is asked for.

    ``rows_of``: the questions of a session, by id. ``is_open``: of the row of a session, whether it waits for an
    answer. ``shown``: is told what waits in the inbox, None if nothing does.
    """
    with open_reader(ctx) as reader:
        if session is not None:
            found = [session_here(reader, session)]
        else:
            found = list_sessions(reader, 1_000_000, None if everything else is_open)
        rows = [
            (each, id_, row)
            for each in found
            for id_, row in rows_of(each).items()
            if everything or row.status == "OPEN"
        ]
        tried: set[str] = set()
        if session is None and not everything:
            asking = {each.session_id: each for each, _, _ in rows}
            tried = {name for name, each in asking.items() if is_trial(reader, each)}
        rows = [(each, id_, row) for each, id_, row in rows if each.session_id not in tried]
        waiting = _waiting(ctx, {each.session_id for each, _, row in rows if row.status == "OPEN"})
        table = [shown(each, id_, row, waiting.get((each.session_id, id_))) for each, id_, row in rows]
        emit(ctx, table, list(columns))
        if tried:
            forks = f"{len(tried)} fork{'s' * (len(tried) > 1)} for debug, dataset or what-if"
            note(f"not shown: those of {forks}, as replays write them; --all shows them, or --session ID")
        missing = reader.missing()
        if session is None and missing:
            note(f"partitions {some(missing)} are neither here nor in a snapshot; their sessions are missing")


def send_and_wait(
    ctx: Context, session_id: str, event: NewEvent, actor: Actor, shown: Mapping[str, Any], wait_seconds: float | None
) -> None:
    """Send a command and say so; with ``wait_seconds`` also what became of it. Raises CommandRefused, WaitTimeout, and
    Conflict where an answer to the same question waits already: of two, the second one is in vain."""
    topic = topic_name(ctx.prefix, EVENTS)
    with closing(KafkaTransport(ctx.kafka)) as transport:
        count = transport.partitions(topic)
        number = partition_of(session_id, count)
        start = transport.bounds(topic, number).high
        inbox = Inbox(transport, prefix=ctx.prefix, blobs=Blobs(ctx.store))
        _check_first(inbox, session_id, event)
        sent = inbox.send(session_id, event, actor=actor)
    record = {"session": session_id, **shown, "command_id": sent.command_id}
    if wait_seconds is None:
        emit(ctx, {**record, "state": "sent"})
        note(f"sent; it waits for the session's writer: {_goes_on(session_id)}")
        return
    with Follower(ctx.kafka, topic, {number: start}) as follower:
        taken = taken_up(follower.poll, session_id, sent.command_id, count, wait_seconds)
    emit(ctx, {**record, "state": "refused" if taken.why else "taken", "seq": taken.seq, "type": taken.type})
    if taken.why is not None:
        raise CommandRefused(
            f"the session's writer refused it at seq {taken.seq}: {taken.why}",
            wanted="a command that fits the session as it is",
            todo=f"see 'dalsegno event show {session_id} {taken.seq}'",
            command_id=sent.command_id,
        )


def _check_first(inbox: Inbox, session_id: str, event: NewEvent) -> None:
    """Raises Conflict where a command about the same thing waits; one about the session itself may come again."""
    subject = subject_of(event)
    before = next((each for each in inbox.commands_of([session_id]).new() if subject and each.subject == subject), None)
    if before is not None:
        raise Conflict(
            f"{subject} is answered already, by {before.actor.id} ({before.event_type}); that waits to be taken up",
            wanted="one answer to a question: the first one counts",
            todo=f"nothing was sent; {_goes_on(session_id)}, and if it refuses that answer, another one may be sent",
            command_id=before.command_id,
        )


def taken_up(
    poll: Callable[[float], list[tuple[int, LogRecord]]],
    session_id: str,
    command_id: str,
    partitions: int,
    seconds: float,
) -> TakenUp:
    """Follow the session's partition until the command became an event or a note. Raises WaitTimeout."""
    schemas, deadline = SchemaSet.load(), time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        for number, record in poll(min(left, POLL_SECONDS)):
            event = place(schemas, record.key, record.value, number, partitions)
            if isinstance(event, Event) and event.session_id == session_id and command_of(event.meta) == command_id:
                return TakenUp(event.seq, event.type, _why(event))
    raise WaitTimeout(
        f"the session's writer did not take up command {command_id} within {seconds:g} s",
        wanted="a writer of the session that is alive",
        todo=f"the command stays in the inbox, and is taken up when the session goes on: {_goes_on(session_id)}",
        command_id=command_id,
    )


def _why(event: Event) -> str | None:
    """Why a command was refused, by the note that says it; None for an event."""
    if event.type != "NoteRecorded" or event.body["kind"] not in (NOTE_REFUSED, NOTE_REPEAT):
        return None
    data = event.body["data"] or {}
    try:
        return str(json.loads(data.get("inline") or b"{}").get("why") or event.body["kind"])
    except (ValueError, AttributeError):
        return str(event.body["kind"])


def _waiting(ctx: Context, sessions: set[str]) -> dict[tuple[str, str], str]:
    """What stands in the inbox, by session and subject."""
    if not sessions:
        return {}
    try:
        with closing(KafkaTransport(ctx.kafka)) as transport:
            found: list[Command] = Inbox(transport, prefix=ctx.prefix).commands_of(sessions).new()
    except (Unavailable, NotFound) as error:
        note(f"the inbox cannot be read, so what was answered and is not taken up yet is not shown: {error.found}")
        return {}
    return {(each.session_id, each.subject): "answered, not yet taken up" for each in found if each.subject}

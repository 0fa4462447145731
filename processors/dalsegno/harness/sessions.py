"""Beginning a session that dalsegno orchestrates, and taking one over after a crash, from its log alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from dalsegno.errors import BlobMissing, Conflict, InvalidEvent, SessionMissing
from dalsegno.harness.conductor import Conductor
from dalsegno.harness.writers import LogWriter
from dalsegno.log.history import SessionRecords, SessionSource
from dalsegno.log.recovery import OpenOperation, default_resolution
from dalsegno.log.sender import Sender
from dalsegno.log.session import Session
from dalsegno.model.events import Blob, Label, Ref, SessionCreated, SessionStarted
from dalsegno.model.history import counting, events_along, gather, whole_history
from dalsegno.model.ids import Offset
from dalsegno.model.lifecycle import config_set_digest
from dalsegno.model.lifecycle.state import ENDED
from dalsegno.model.lifecycle.tables import STATUS_AFTER, STRICT
from dalsegno.model.records import Event
from dalsegno.orchestration import cel
from dalsegno.orchestration.configuration import PinnedDocument, configuration_of, pins
from dalsegno.orchestration.decider import DECIDER_VERSION, MemoryContents
from dalsegno.orchestration.documents import KINDS, Configuration, HarnessBuild
from dalsegno.orchestration.ports import Clock
from dalsegno.orchestration.recovery import resolutions
from dalsegno.projections.decider.rendering import BUILDER_VERSION
from dalsegno.projections.decider.rows import PIN
from dalsegno.projections.decider.table import learn
from dalsegno.storage.blobs import INLINE_MAX_BYTES, SCHEME, Blobs, blob

After = Callable[[Event], None]
"""Is told of every event that is appended."""


def build(harness: str) -> HarnessBuild:
    """What decides here, to be pinned. ``harness``: name and version of the program."""
    return HarnessBuild(harness=harness, decider=DECIDER_VERSION, builder=BUILDER_VERSION, cel_engine=cel.ENGINE)


class StoredContents(MemoryContents):
    """Contents in memory, and behind them a session's store for those that are too large for an event."""

    def __init__(self, blobs: Blobs | None) -> None:
        super().__init__()
        self._blobs = blobs

    def get(self, digest: bytes) -> bytes:
        if digest not in self.found and self._blobs is not None:
            try:
                content = self._blobs.get({"digest": digest, "uri": SCHEME + digest.hex(), "inline": None})
            except BlobMissing:
                return super().get(digest)  # it says what is missing
            self.keep(digest, content)
        return super().get(digest)


def begin(
    session: Session,
    documents: Sequence[PinnedDocument],
    *,
    goal: str | bytes | Blob,
    clock: Clock,
    labels: Sequence[Label] = (),
    seed: int | None = None,
    since: Offset | None = None,
    parent: tuple[str, Ref] | None = None,
    after: After | None = None,
) -> Conductor:
    """Begin a session with this configuration; what it has to do next is due.

    ``since``: where the log ended when it held no record of the session, for an id that others may choose; ``parent``:
    the session whose call this one is, and the event there that started it. Raises InvalidEvent, SessionSuperseded.
    """
    wish = goal if isinstance(goal, Blob) else blob(goal)
    if wish.size > INLINE_MAX_BYTES:
        raise InvalidEvent(
            f"a goal of {wish.size} bytes",
            wanted=f"at most {INLINE_MAX_BYTES}, which agents are shown whole",
            todo="put what is long into a file that a stage retrieves",
            field="goal",
        )
    conductor = Conductor(LogWriter(session), StoredContents(session.publisher.blobs), after=after)
    workflow = next(each for each in documents if each.kind == "WORKFLOW")
    created = SessionCreated(
        workflow_name=workflow.name,
        profile="STRICT",
        relation="NONE" if parent is None else "CHILD",
        parent_session=None if parent is None else parent[0],
        parent_at=None if parent is None else parent[1],
        goal=wish,
        labels=sorted(labels, key=lambda label: label.key),
    )
    if since is None:
        conductor.append(created)
    else:
        [pending] = session.begin([created], since)
        first = LogWriter(session).event_of(pending)
        conductor.take_in([first])
        if after is not None:
            after(first)
    start(conductor, documents, clock, seed)
    return conductor


def resume(
    publisher: Sender,
    session_id: str,
    *,
    clock: Clock,
    documents: Sequence[PinnedDocument] = (),
    seed: int | None = None,
    source: SessionSource | None = None,
    after: After | None = None,
    **options: Any,
) -> Conductor:
    """Take over a session that dalsegno orchestrates, where its history ends; its configuration is the one it pinned.

    Each operation that was under way is resolved once, in ``SessionRecovered``, as ``resolutions`` says. ``documents``
    and ``seed`` are used only where it crashed before it started, for what was not pinned yet. ``options`` as of
    ``Session``. Raises SessionMissing, Conflict (ended, or not of this kind), and what ``Session.resume`` does.
    """
    records = publisher.log_source() if source is None else source
    _check_may_go_on(session_id, history(publisher, session_id, records), documents)
    session = Session(publisher, session_id, source=records, **options)
    past = _Past(session, records, after)
    pending = session.resume(resolve=past.resolution)
    conductor = past.conductor
    recovered = LogWriter(session).event_of(pending)
    conductor.take_in([recovered])
    if after is not None:
        after(recovered)
    head = conductor.rows.head_row
    if head is not None and head.status == "CREATED":
        start(conductor, documents, clock, seed)
    return conductor


def session_of(conductor: Conductor) -> Session:
    """The session of the log that a conductor of ``begin`` or ``resume`` appends to."""
    assert isinstance(conductor.writer, LogWriter)
    return conductor.writer.session


def start(conductor: Conductor, documents: Sequence[PinnedDocument], clock: Clock, seed: int | None) -> None:
    """Append what is missing between a session's creation and its start: documents, and the start."""
    pinned = conductor.rows.family(PIN)
    for pin in pins([each for each in documents if each.kind not in pinned]):
        conductor.append(pin)
    lines = [f"{kind}:{pin.name}:{pin.digest.hex()}" for kind, pin in conductor.rows.family(PIN).items()]
    conductor.append(SessionStarted(config_set_digest=config_set_digest(lines), clock_start=clock.now(), seed=seed))


def history(publisher: Sender, session_id: str, source: SessionSource | None = None) -> list[Event]:
    """What the log has of a session now, in order, with the prefix that a fork takes over; [] if nothing."""
    records = publisher.log_source() if source is None else source
    return _events(session_id, records.read(session_id, publisher.high(session_id)), records)


def end_of(events: Sequence[Event]) -> Event | None:
    """The event by which a session ended; None while it goes on."""
    return next((event for event in reversed(events) if STATUS_AFTER.get(event.type) in ENDED), None)


def configuration_in_log(events: Sequence[Event], blobs: Blobs | None) -> Configuration | None:
    """What a session pinned last of each kind; None where a kind is missing. Raises InvalidDocument, and
    NotReconstructable where a content is missing."""
    pinned, contents = _pinned(events), StoredContents(blobs)
    if not pinned.keys() >= KINDS.keys():
        return None
    for body in pinned.values():
        learn(body["content"], contents.keep)
    return configuration_of({kind: contents.get(pinned[kind]["digest"]) for kind in KINDS})


# --- how it is done ---------------------------------------------------------------------------------------------------


class _Past:
    """The rows of a session as the reading of its resume found it: read once more, they are made once more."""

    def __init__(self, session: Session, source: SessionSource, after: After | None) -> None:
        self._session, self._source, self._after = session, source, after
        self._made: tuple[SessionRecords, Conductor] | None = None

    @property
    def conductor(self) -> Conductor:
        records = self._session.last_resume
        assert records is not None, "its resume reads first"
        if self._made is None or self._made[0] is not records:
            contents = StoredContents(self._session.publisher.blobs)
            conductor = Conductor(LogWriter(self._session), contents, after=self._after)
            name, read = self._session.session_id, records
            if records.standing is not None:  # the contents of what lies below are wanted too
                read = self._source.read(name, records.read_up_to)
            conductor.take_in(_events(name, read, self._source))
            self._made = (records, conductor)
        return self._made[1]

    def resolution(self, operation: OpenOperation) -> str:
        known = resolutions(self.conductor.rows)
        return known.get((operation.kind, operation.id)) or default_resolution(operation)


def _events(session_id: str, records: SessionRecords, source: SessionSource) -> list[Event]:
    own = gather(records.placed.values())
    path = events_along(session_id, own, own.known.choose().hashes)
    up_to = records.read_up_to
    return list(counting(whole_history(path, lambda name: gather(source.read(name, up_to).placed.values()))))


def _pinned(events: Sequence[Event]) -> dict[str, Any]:
    """By kind: what was pinned last."""
    return {event.body["kind"]: event.body for event in events if event.type == "ConfigPinned" and event.stub is None}


_VERSIONS: Final = ("decider", "builder", "cel_engine")


def _check_may_go_on(session_id: str, events: Sequence[Event], documents: Sequence[PinnedDocument]) -> None:
    if not events:
        raise SessionMissing(
            f"the log holds no session {session_id}",
            wanted="a session with a history",
            todo="begin it with 'dalsegno run'",
            session_id=session_id,
        )
    end = end_of(events)
    if end is not None:
        raise _no(session_id, f"ended by {end.type} at seq {end.seq}", "begin another one, or fork it before its end")
    created = [event for event in events if event.type == "SessionCreated" and event.stub is None]
    pinned = _pinned(events)
    started = any(event.type == "SessionStarted" for event in events)
    if not created or created[-1].body["profile"] != STRICT or (started and not pinned.keys() >= KINDS.keys()):
        raise _no(session_id, "decided by another program", "resume it with the harness that began it")
    _check_documents(session_id, pinned, documents, started=started)


def _check_documents(
    session_id: str, pinned: dict[str, Any], documents: Sequence[PinnedDocument], *, started: bool
) -> None:
    if not started:
        given: dict[str, bytes] = {each.kind: each.digest for each in documents}
        missing = [kind for kind in KINDS if kind not in pinned and kind not in given]
        if missing:
            found = f"not begun to its end: it lacks {', '.join(missing)}"
            raise _no(session_id, found, "run its workflow again with --session and its id")
        other = [
            kind
            for kind in KINDS
            if kind in pinned and given.get(kind, pinned[kind]["digest"]) != pinned[kind]["digest"]
        ]
        if other:
            found = f"begun, but not started, with another {', '.join(other)}"
            raise _no(session_id, found, "run the workflow that it was begun with, or begin another session")
    content = pinned.get("HARNESS_BUILD", {}).get("content")
    if content is None or content["inline"] is None:
        return
    try:
        theirs, mine = msgspec.json.decode(content["inline"], type=HarnessBuild), build("")
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _no(session_id, "decided by another program", "resume it with the harness that began it") from None
    for name in _VERSIONS:
        if getattr(theirs, name) != getattr(mine, name):
            found = f"decided with {name} {getattr(theirs, name)}, and this build has {getattr(mine, name)}"
            raise _no(session_id, found, f"resume it with the version it was begun with ({theirs.harness})")


def _no(session_id: str, found: str, todo: str) -> Conflict:
    wanted = "a session of 'dalsegno run' that has not ended"
    return Conflict(f"session {session_id} is {found}", wanted=wanted, todo=todo, session_id=session_id)

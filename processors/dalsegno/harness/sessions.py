"""Beginning a session that dalsegno orchestrates, and taking one over after a crash, from its log alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from dalsegno.errors import Conflict, InvalidEvent, SessionMissing
from dalsegno.harness.conductor import Conductor
from dalsegno.harness.past import Past, StoredContents, past_of
from dalsegno.harness.writers import LogWriter
from dalsegno.log.history import History, SessionRecords, SessionSource
from dalsegno.log.recovery import OpenOperation, default_resolution
from dalsegno.log.sender import Sender
from dalsegno.log.session import Session
from dalsegno.model.events import Blob, Label, Ref, SessionCreated, SessionStarted
from dalsegno.model.forking import TRIALS
from dalsegno.model.ids import Offset
from dalsegno.model.lifecycle import config_set_digest
from dalsegno.model.lifecycle.tables import STRICT
from dalsegno.model.records import Event
from dalsegno.orchestration import cel
from dalsegno.orchestration.configuration import PinnedDocument, pins
from dalsegno.orchestration.decider import DECIDER_VERSION
from dalsegno.orchestration.documents import KINDS, HarnessBuild
from dalsegno.orchestration.ports import Clock
from dalsegno.orchestration.recovery import resolutions
from dalsegno.projections.decider.rendering import BUILDER_VERSION
from dalsegno.projections.decider.rows import PIN, Pin
from dalsegno.storage.blobs import INLINE_MAX_BYTES, blob

After = Callable[[Event], None]
"""Is told of every event that is appended."""


def build(harness: str) -> HarnessBuild:
    """What decides here, to be pinned. ``harness``: name and version of the program."""
    return HarnessBuild(harness=harness, decider=DECIDER_VERSION, builder=BUILDER_VERSION, cel_engine=cel.ENGINE)


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
    act_in_fork: bool = False,
    **options: Any,
) -> Conductor:
    """Take over a session that dalsegno orchestrates, where its history ends; its configuration is the one it pinned.

    Each operation that was under way is resolved once, in ``SessionRecovered``, as ``resolutions`` says. ``documents``
    and ``seed`` are used only where it crashed before it started, for what was not pinned yet. ``act_in_fork``: also a
    fork in which something is tried (``TRIALS``), whose tools and models then really run. ``options`` as of
    ``Session``. Raises SessionMissing, Conflict (ended, such a fork, or not of this kind), and what
    ``Session.resume`` does.
    """
    records_from = publisher.log_source() if source is None else source
    session = Session(publisher, session_id, source=records_from, **options)
    past: Past | None = None
    resolved: Mapping[tuple[str, str], str] = {}

    def examine(records: SessionRecords, found: History) -> None:
        nonlocal past, resolved
        past = past_of(session_id, records, found, records_from, publisher.blobs)
        _check_may_go_on(past, documents, act_in_fork=act_in_fork)
        resolved = resolutions(past.rows)

    def resolution(operation: OpenOperation) -> str:
        assert past is not None, "it is examined first"
        return resolved.get((operation.kind, operation.id)) or default_resolution(operation)

    pending = session.resume(resolve=resolution, examine=examine)
    assert past is not None
    conductor = Conductor(LogWriter(session), past.contents, past.rows, after)
    recovered = LogWriter(session).event_of(pending)
    conductor.take_in([recovered])
    if after is not None:
        after(recovered)
    if not past.started:
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


# --- what may be taken over -------------------------------------------------------------------------------------------


_VERSIONS: Final = ("decider", "builder", "cel_engine")


def _check_may_go_on(past: Past, documents: Sequence[PinnedDocument], *, act_in_fork: bool) -> None:
    if not past.known:
        raise SessionMissing(
            f"the log holds no session {past.session_id}",
            wanted="a session with a history",
            todo="begin it with 'dalsegno run'",
            session_id=past.session_id,
        )
    if past.end is not None:
        found = f"ended by {past.end.type} at seq {past.end.seq}"
        raise _no(past.session_id, found, "begin another one, or fork it before its end")
    if past.purpose in TRIALS and not act_in_fork:
        raise Conflict(
            f"session {past.session_id} is a fork for {past.purpose}, in which something is tried",
            wanted="a session that is meant to act: tools and models of one that goes on really run",
            todo="leave it as it is; if it is to act all the same, say --act-in-fork (in Python: act_in_fork=True)",
            session_id=past.session_id,
        )
    head, pinned = past.rows.head_row, past.pinned
    if head is None or head.profile != STRICT or (past.started and not pinned.keys() >= KINDS.keys()):
        raise _no(past.session_id, "decided by another program", "resume it with the harness that began it")
    if not past.started:
        _check_documents(past.session_id, pinned, documents)
    build_pin = pinned.get("HARNESS_BUILD")
    if build_pin is not None and build_pin.digest is not None:
        _check_build(past.session_id, past.contents.get(build_pin.digest))


def _check_documents(session_id: str, pinned: Mapping[str, Pin], documents: Sequence[PinnedDocument]) -> None:
    """Whether a session that did not start can be started with these."""
    given: dict[str, bytes] = {each.kind: each.digest for each in documents}
    missing = [kind for kind in KINDS if kind not in pinned and kind not in given]
    if missing:
        found = f"not begun to its end: it lacks {', '.join(missing)}"
        raise _no(session_id, found, "run its workflow again with --session and its id")
    other = [kind for kind in KINDS if kind in pinned and given.get(kind, pinned[kind].digest) != pinned[kind].digest]
    if other:
        found = f"begun, but not started, with another {', '.join(other)}"
        raise _no(session_id, found, "run the workflow that it was begun with, or begin another session")


def _check_build(session_id: str, content: bytes) -> None:
    try:
        theirs, mine = msgspec.json.decode(content, type=HarnessBuild), build("")
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _no(session_id, "decided by another program", "resume it with the harness that began it") from None
    for name in _VERSIONS:
        if getattr(theirs, name) != getattr(mine, name):
            found = f"decided with {name} {getattr(theirs, name)}, and this build has {getattr(mine, name)}"
            raise _no(session_id, found, f"resume it with the version it was begun with ({theirs.harness})")


def _no(session_id: str, found: str, todo: str) -> Conflict:
    wanted = "a session of 'dalsegno run' that has not ended"
    return Conflict(f"session {session_id} is {found}", wanted=wanted, todo=todo, session_id=session_id)

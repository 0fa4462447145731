"""Sub-sessions: a session of its own that stands for a tool call of its parent.

1. the parent's ``ToolCallStarted`` names the child;
2. the child's ``SessionCreated`` (relation CHILD) names the parent, and that event of it;
3. the child ends by an event of its own, and all its events are stored;
4. the parent's ``SubSessionEnded`` names the child's outcome and its last hash, and closes the call.

A crash after 1 or 2 leaves an open call that names its child, which the parent's recovery resolves; after 3, only 4 is
left to do. No end is made up: a child that has none yet is refused at 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from dalsegno.errors import Conflict, DalsegnoError, SessionBroken, Usage
from dalsegno.log.calls import ToolCall
from dalsegno.log.receipts import CLOSE_TIMEOUT_SECONDS, Pending
from dalsegno.model.events import Blob, Label, Ref, SessionCreated, SubSessionEnded, ToolCallStarted
from dalsegno.model.ids import FORK_MARK, HASH_BYTES
from dalsegno.model.lifecycle.state import ENDED, SUBSESSION, TOOL
from dalsegno.storage.blobs import blob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dalsegno.log.writer import SessionWriter
    from dalsegno.model.payloads import Profile, SubSessionOutcome

_S = TypeVar("_S", bound="SessionWriter")


def start_child(
    parent: _S,
    call: ToolCall | str,
    *,
    workflow_name: str,
    session_id: str | None = None,
    profile: Profile = "OBSERVED",
    goal: Blob | None = None,
    labels: Sequence[Label] = (),
    executor: str | None = None,
    **options: Any,
) -> _S:
    """Start the child of an authorized call: steps 1 and 2. ``session_id``: without it, ``<parent>/<call>/a<attempt>``.

    ``options`` as of ``Session``; actor, clock, trace and redaction rules are the parent's where they are not given.
    """
    call_id = call.id if isinstance(call, ToolCall) else call
    found = parent.operation(TOOL, call_id)
    attempt = 1 if found is None else found.attempt + 1
    name = session_id or f"{parent.session_id.replace(FORK_MARK, '.')}/{call_id}/a{attempt}"
    child = parent.another(name, **options)

    def created(at: Ref) -> SessionCreated:
        return SessionCreated(
            workflow_name=workflow_name,
            profile=profile,
            relation="CHILD",
            parent_session=parent.session_id,
            parent_at=at,
            goal=goal,
            labels=labels,
        )

    try:
        # Before anything is sent: what the child is refused for must not leave a call that names it.
        child.check(created(Ref(seq=parent.seq + 1, hash=bytes(HASH_BYTES))))
        # (1)
        if isinstance(call, ToolCall):
            started = call.start(child_session=name, executor=executor)
        else:
            started = parent.append(
                ToolCallStarted(tool_call_id=call_id, attempt=attempt, child_session=name, executor=executor)
            )
        # (2)
        child.append(created(Ref(seq=started.seq, hash=started.hash, event_id=started.event_id)))
    except DalsegnoError:
        child.close(0.0)
        raise
    parent.calls_of_children[name] = call_id
    return child


def end_child(
    parent: SessionWriter,
    child: SessionWriter,
    *,
    result: Any = None,
    outcome: SubSessionOutcome | None = None,
    timeout: float = CLOSE_TIMEOUT_SECONDS,
) -> Pending:
    """Close the child and say in the parent how it ended: steps 3 and 4. ``result``: a Blob, or what ``blob`` takes.

    Raises Conflict while the child has not ended, Unsent or SessionBroken where not all of it is stored. ``outcome`` is
    needed only where the child's end was not appended by this process.
    """
    # (3)
    if child.status not in ENDED:
        raise Conflict(
            f"session {child.session_id} is {child.status}",
            wanted="a sub-session that has ended",
            todo="append its SessionCompleted, SessionFailed or SessionCancelled first",
            session_id=child.session_id,
        )
    child.close(timeout)
    if child.broken is not None:
        raise SessionBroken(
            f"session {child.session_id} is broken: {child.broken}",
            wanted="a sub-session whose every event is stored",
            todo="resume it",
            session_id=child.session_id,
        )
    how = outcome or child.outcome
    if how is None:
        raise Usage(
            f"how session {child.session_id} ended is not known here", wanted="outcome=...", todo="look at its end"
        )
    # (4)
    content = result if result is None or isinstance(result, Blob) else blob(result)
    return parent.append(
        SubSessionEnded(
            child_session=child.session_id,
            tool_call_id=_call_of(parent, child.session_id),
            outcome=how,
            child_final_hash=child.head_hash,
            result=content,
        )
    )


def _call_of(parent: SessionWriter, child_id: str) -> str | None:
    """The call that started the child; after a resume, as the lifecycle has it from the log."""
    known = parent.calls_of_children.get(child_id)
    if known is None:
        found = parent.operation(SUBSESSION, child_id)
        known = None if found is None else found.ref
    return known

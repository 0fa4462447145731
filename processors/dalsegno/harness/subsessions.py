"""Sub-sessions: a tool call that is a session of its own, begun once and taken over where it was left."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Final

from dalsegno.errors import DalsegnoError, SessionSuperseded
from dalsegno.harness.conductor import Conductor
from dalsegno.harness.live import Live
from dalsegno.harness.mailbox import Mailbox
from dalsegno.harness.past import Past, outcome_of, read_past
from dalsegno.harness.performing import Ports, Unfinished
from dalsegno.harness.sessions import After, begin, resume, session_of
from dalsegno.log.history import SessionSource
from dalsegno.log.inbox import Inbox
from dalsegno.log.publisher import Publisher
from dalsegno.model.events import Blob, CancelRequested, Label, Ref, SubSessionEnded
from dalsegno.model.ids import Offset
from dalsegno.model.records import Actor, Event
from dalsegno.orchestration.configuration import PinnedDocument
from dalsegno.orchestration.ports import ToolFailed
from dalsegno.projections.decider.calls import CLOSED
from dalsegno.projections.decider.rows import CALL
from dalsegno.projections.decider.table import MemoryRows

log = logging.getLogger("dalsegno.harness")

HARNESS: Final = Actor("HARNESS", "caller")


class SubSessions:
    """Fills ``Ports.sub_session`` for a session and all below it. ``workflows``: their documents, by the name that
    tools give. ``labels``: of the session; those below have them too, for policies look at them. ``see`` must be told
    of every event of the session (``after`` of ``begin`` and ``resume``)."""

    def __init__(
        self,
        publisher: Publisher,
        workflows: Mapping[str, Sequence[PinnedDocument]],
        ports: Ports,
        inbox: Inbox,
        *,
        labels: Sequence[Label] = (),
        source: SessionSource | None = None,
        after: After | None = None,
        live: Callable[[Conductor, Ports, Mailbox], Live] = Live,
    ) -> None:
        self._publisher, self._workflows, self._inbox = publisher, workflows, inbox
        self._labels, self._source, self._after, self._live = labels, source, after, live
        self.ports = replace(
            ports, sub_session=self.run, cancel_below=lambda rows, session_id: cancel_below(rows, session_id, inbox)
        )
        self._lock = threading.Lock()
        self._started: dict[str, tuple[str, Ref]] = {}

    def see(self, event: Event) -> None:
        if event.type == "ToolCallStarted" and event.body["child_session"] is not None:
            at = Ref(seq=event.seq, hash=event.hash, event_id=event.meta.get("event_id"))
            with self._lock:
                self._started[event.body["child_session"]] = (event.session_id, at)
        if self._after is not None:
            self._after(event)

    def run(self, child: str, workflow: str, goal: bytes, call_id: str) -> SubSessionEnded:
        """Raises ToolFailed where there is no such workflow here, Unfinished where it stopped before its end, or where
        another process took the child over: that one brings it to its end."""
        since = self._publisher.high(child)
        past = read_past(self._publisher, child, self._source)
        if past.end is None:
            try:
                conductor = self._opened(child, workflow, goal, known=past.known, since=since)
                with session_of(conductor):
                    stopped = self._live(conductor, self.ports, Mailbox(self._inbox, child)).run()
            except SessionSuperseded as error:  # the caller's own writer is another matter
                log.warning("sub_session_taken_over", extra={"session_id": child, "reason": str(error)})
                raise Unfinished from error
            if stopped.why != "ENDED":
                raise Unfinished
            past = read_past(self._publisher, child, self._source)
        return _ended(call_id, past)

    def _opened(self, child: str, workflow: str, goal: bytes, *, known: bool, since: Offset) -> Conductor:
        documents = self._workflows.get(workflow, ())
        if known:
            return resume(
                self._publisher, child, clock=self.ports.clock, documents=documents, source=self._source, after=self.see
            )
        if not documents:
            raise ToolFailed("INFRA", f"no workflow {workflow!r} is given here", not_started=True)
        with self._lock:
            parent = self._started[child]
        session = self._publisher.session(child, source=self._source)
        return begin(
            session, documents, goal=goal, labels=self._labels, clock=self.ports.clock, since=since, parent=parent,
            after=self.see,
        )  # fmt: skip


def cancel_below(rows: MemoryRows, session_id: str, inbox: Inbox) -> list[str]:
    """A session has ended: ask the sub-sessions of its open calls to end too, through their inboxes, as anybody would:
    each runs here, or wherever it is resumed. Gives those that were asked; to ask again changes nothing."""
    below = [call.child for call in rows.family(CALL).values() if call.child and call.phase not in CLOSED]
    event = CancelRequested(requested_by=HARNESS.id, reason=f"session {session_id}, whose call it is, has ended")
    for child in below:
        # The same command from every process that finds the caller ended: it is applied once.
        id_ = f"caller-ended-{sha256(child.encode()).hexdigest()[:32]}"
        try:
            inbox.send(child, event, actor=HARNESS, command_id=id_)
        except DalsegnoError as error:
            log.warning("sub_session_not_cancelled", extra={"session_id": child, "reason": str(error)})
    return below


def _ended(call_id: str, past: Past) -> SubSessionEnded:
    end, last = past.end, past.last
    assert end is not None, "its loop said so"
    assert last is not None
    result = end.body.get("result")
    return SubSessionEnded(
        child_session=past.session_id,
        tool_call_id=call_id,
        outcome=outcome_of(end),  # type: ignore[arg-type]  # each is one of a sub-session's
        child_final_hash=last.hash,
        result=None if result is None else Blob(**result),
    )

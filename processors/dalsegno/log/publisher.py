"""The publisher: sends events to the log, session by session.

    with Publisher(KafkaConfig("localhost:9092")) as publisher, publisher.session("s-1") as session:
        session.append(SessionCreated(workflow_name="review", profile="OBSERVED"))

One publisher serves many sessions and threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dalsegno.log.forking import begin_fork
from dalsegno.log.sender import Sender
from dalsegno.log.session import Session

if TYPE_CHECKING:
    from dalsegno.model.payloads import ForkPurpose


class Publisher(Sender):
    """Sends events. ``kafka``: where, or another filling of the transport (tests).

    ``delivery_timeout_seconds``: after that, an event without acknowledgement counts as unknown and breaks its session.
    ``blobs``: where contents go that are too large for an event; without it such an event is refused. ``redact``: what
    is taken out of every event of every session before it is hashed.
    Raises TopicMissing or an Unavailable at the first use, not here.
    """

    def session(self, session_id: str, **options: Any) -> Session:
        """A session that nobody has written to yet, which the log is not asked: begun twice, it has two histories, of
        which readers follow one. ``options`` as of ``Session``. Raises InvalidSessionId, and SessionOpen where this
        publisher has the session open already."""
        session = Session(self, session_id, **options)
        self.opened(session_id, session)
        return session

    def resume(self, session_id: str, **options: Any) -> Session:
        """Take over a session that has a history: see ``Session.resume``. ``options`` of both. Where this publisher has
        the session open, that one is broken from then on."""
        of_resume = {name: options.pop(name) for name in ("resolve", "timeout", "retries") if name in options}
        session = Session(self, session_id, **options)
        session.resume(**of_resume)
        return session

    def fork(self, parent_id: str, at: int | None = None, *, purpose: ForkPurpose, **options: Any) -> Session:
        """Begin a session that goes on from a prefix of another one, which is not copied and never written to; the fork
        is stored when this returns, and open.

        ``at``: a seq of the parent (None: its last). A fork begins directly before a turn, where nothing is open: the
        last such place at or below ``at``, of a fork maybe in its ancestor. ``Session.forked_at`` says which. What the
        fork does otherwise is appended by the caller, as ``ConfigPinned``; standing grants of the parent have ended.
        ``suffix``: the fork's id is ``<root>~<suffix>`` (default: one that is new). ``labels``: of the fork.
        ``timeout``: seconds for the reports. ``options`` as of ``Session``. Events of the parent that have no report
        yet are not seen. Raises SessionMissing, NotFound (no such seq), NoForkPoint, SessionHeld, Conflict (the id is
        in the log), InvalidSessionId, SnapshotAheadOfLog, SessionSuperseded, WaitTimeout.
        """
        return begin_fork(self, parent_id, at, purpose=purpose, **options)

"""A session: its one writer, which also takes it over after a crash."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from dalsegno.errors import SessionSuperseded, Usage, WaitTimeout
from dalsegno.log.calls import ToolCall, request_call
from dalsegno.log.children import end_child, start_child
from dalsegno.log.drafting import Chain
from dalsegno.log.history import Examine, SessionRecords, StandingSource, understand
from dalsegno.log.receipts import Pending
from dalsegno.log.recovery import Resolve, recovery_of
from dalsegno.log.takeover import Claim, check_log_has, check_no_rival
from dalsegno.log.writer import SessionWriter
from dalsegno.model.events import NewEvent
from dalsegno.model.forking import Boundary
from dalsegno.model.ids import Offset
from dalsegno.model.records import Actor

log = logging.getLogger("dalsegno.log")

RESUME_TIMEOUT_SECONDS = 60.0


class Session(SessionWriter):
    """The writer of one session; safe to use from several threads, whose events it puts in one order.

        with publisher.session("s-1") as session: ...

    The block ends when every event of the session has its report (``close``); ``async with`` waits in a thread. Where
    the block raises, the events up to there are stored and the exception goes on: no end is made up for the session.

    ``check_rules``: a lifecycle rule that an event breaks refuses it (profile STRICT; in the other profiles the event
    is sent, and ``Pending.violations`` names the rules). ``actor``: who acts where an append does not say. ``clock``:
    microseconds since 1970 UTC. ``source``: where records come from on resume (default: the partition's start).
    ``traceparent``: of the W3C trace that the events belong to, or a function that is asked at every append, such as
    ``current_traceparent``. ``redact``: what is taken out before hashing (default: the publisher's rules).
    ``close_timeout``: seconds that the end of the block waits for reports.
    Raises InvalidSessionId; an id with ``~`` is a fork's, and the first append refuses it where the session is none.
    """

    # Where `read_back` goes on: what lies below was seen by this writer (None: nothing was).
    _seen_to: Offset | None = None
    last_resume: SessionRecords | None = None
    """What the last resume read: ``records_read`` is its cost, ``placed`` what was folded."""
    forked_at: Boundary | None = None
    """Where the session left its parent, if ``Publisher.fork`` began it here."""

    # --- what takes work off a producer ------------------------------------------------------------------------------

    def tool_call(self, name: str, arguments: Any, **options: Any) -> ToolCall:
        """Append a ToolCallRequested and give the call, whose methods append what becomes of it: see
        ``dalsegno.log.calls.request_call`` for what is made by itself, and for ``options``."""
        return request_call(self, name, arguments, **options)

    def child(self, call: ToolCall | str, **options: Any) -> Session:
        """Start a sub-session, which is a tool call of this one: see ``dalsegno.log.children.start_child``."""
        return start_child(self, call, **options)

    def child_ended(self, child: Session, **options: Any) -> Pending:
        """Append the SubSessionEnded of a child that has ended: see ``dalsegno.log.children.end_child``."""
        return end_child(self, child, **options)

    # --- a session whose id others may choose ----------------------------------------------------------------------

    def begin(self, first: Sequence[NewEvent], since: Offset, timeout: float = RESUME_TIMEOUT_SECONDS) -> list[Pending]:
        """Append the first events, wait until they are stored, and look whether somebody else began the session too.

        ``since``: where the log ended when it held no record of the session. Raises SessionSuperseded, WaitTimeout.
        """
        with self._lock:
            begun = self.append_batch(first)
            self._seen_to = Offset(begun[-1].result(timeout).offset + 1)
            self._check_no_rival(since, self._seen_to, timeout)
            return begun

    # --- resume ------------------------------------------------------------------------------------------------------

    def resume(
        self,
        *,
        resolve: Resolve | None = None,
        examine: Examine | None = None,
        timeout: float = RESUME_TIMEOUT_SECONDS,
        retries: int = 0,
        actor: Actor | tuple[str, str] | None = None,
    ) -> Pending:
        """Take the session over where its history in the log ends.

        (1) the high watermark, read uncommitted; (2) the session up to it; (3) ``SessionRecovered`` with an epoch above
        all that were seen, which says of every open operation what becomes of it (``resolve``, else the cautious
        default); (4) read up to that record's own offset: a rival recovery of that epoch or above means
        SessionSuperseded, or to start again as often as ``retries`` says.

        ``examine`` is told what was read before (3), each time; what it raises ends the resume with nothing written.
        ``timeout``: seconds for the reports of this writer's events; the reading in (2) may take longer, as long as
        something comes. A crash after (3) leaves a recovery that the next one raises its epoch above.

        Raises SessionMissing, SessionHeld, SnapshotAheadOfLog, SessionSuperseded, WaitTimeout.
        """
        deadline = time.monotonic() + timeout
        with self._lock:
            self._check_open()
            self._wait_for_reports(deadline)
            for attempt in range(retries + 1):
                try:
                    return self._resume_once(resolve, examine, deadline, actor)
                except SessionSuperseded:
                    if attempt == retries:
                        raise
            raise Usage(f"{retries} retries", wanted="0 or more")

    def read_back(self, timeout: float = RESUME_TIMEOUT_SECONDS) -> None:
        """Learn whether another writer took the session over: SessionSuperseded, and the session is broken.

        Reads what came since the resume, or the last time; for a session that was never resumed, the partition.
        """
        with self._lock:
            self._wait_for_reports(time.monotonic() + timeout)
            high = self.publisher.high(self.session_id)
            self._check_no_rival(self._seen_to, high, timeout)
            self._seen_to = high

    def _wait_for_reports(self, deadline: float) -> None:
        """What this session still has under way could stand behind the reading: wait for its end."""
        self.publisher.transport.ready()
        late = self._flush(deadline)
        if late:
            raise WaitTimeout(
                f"{len(late)} events of session {self.session_id} have no report yet, from seq {late[0].seq} on",
                wanted="the log's report on every event before the session is read",
                todo="try again: the reports still come",
                session_id=self.session_id,
            )

    def _resume_once(
        self,
        resolve: Resolve | None,
        examine: Examine | None,
        deadline: float,
        actor: Actor | tuple[str, str] | None,
    ) -> Pending:
        # (1)
        up_to = self.publisher.high(self.session_id)
        # (2)
        source = self._records_from()
        # Whether the log has what had no report is seen from all records alone.
        missed = self._lost or self.publisher.has_failed(self.session_id)
        if isinstance(source, StandingSource) and not missed:
            records = source.stand(self.session_id, up_to)
        else:
            records = source.read(self.session_id, up_to)
        self.last_resume = records
        check_log_has(self.publisher, self.session_id, records, up_to)
        history = understand(self.session_id, records, source, up_to)
        self.publisher.found_in_log(history.keys)
        for key in history.keys:
            self._lost.pop(key, None)
        if examine is not None:
            examine(records, history)
        recovered = recovery_of(self.session_id, history, records, resolve)
        # Until (4) is done nobody knows whether this writer may go on.
        self._broken = "its resume was not finished"
        self._chain = Chain(history.head.seq, history.head.hash, history.head.epoch, history.recorded_at)
        self._state, self._ops = history.state, history.ops
        # (3)
        how = {"epoch": history.highest_epoch + 1, "actor": actor}
        draft = self._drafter.draft(recovered, self._chain, self._state, self._ops, how, self._inherit)
        pending = self._send(draft)
        receipt = pending.result(max(0.0, deadline - time.monotonic()))
        # (4)
        self._seen_to = Offset(receipt.offset + 1)
        self._check_no_rival(records.read_up_to, self._seen_to, max(1.0, deadline - time.monotonic()))
        self._broken = None
        before = self.publisher.now_written_by(self.session_id, self)
        if before is not None:
            before._broken = "it was resumed in this process, which is now its writer"
        log.info(
            "session_resumed",
            extra={
                "session_id": self.session_id, "seq": self.seq, "epoch": self.epoch, "records": records.records_read,
            },
        )  # fmt: skip
        return pending

    @property
    def claim(self) -> Claim:
        """What this writer holds the session by."""
        return Claim(self.session_id, self.epoch, self._first)

    def _check_no_rival(self, start: Offset | None, end: Offset, stall_seconds: float) -> None:
        try:
            check_no_rival(self.publisher, self.claim, start, end, stall_seconds)
        except SessionSuperseded as error:
            self._broken = error.found
            raise

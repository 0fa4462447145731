"""A session's one writer: numbers, links and sends its events, and takes a session over after a crash.

``append`` refuses by itself, before anything leaves the process, what must not be in a log for ever: wrong types,
numbers out of range, floats, half surrogates, times without a zone, oversize, and (by default) what breaks a lifecycle
rule. A refusal does no harm: the chain is as before, and the next append goes on. What was sent and then not
acknowledged is another matter: its outcome is unknown, so the session is broken until it is resumed.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from dalsegno.errors import (
    DalsegnoError,
    InvalidEvent,
    SessionBroken,
    SessionMissing,
    SessionSuperseded,
    Usage,
    WaitTimeout,
)
from dalsegno.log.drafting import Chain, Draft, Drafter
from dalsegno.log.history import (
    History,
    PartitionSource,
    SessionRecords,
    SessionSource,
    inherit_from_parent,
    understand,
)
from dalsegno.log.publisher import Publisher
from dalsegno.log.receipts import Pending
from dalsegno.log.recovery import Resolve, in_flight
from dalsegno.log.takeover import Claim, check_log_has, check_no_rival
from dalsegno.model.events import NewEvent, Origin, Redaction, Ref, SessionRecovered
from dalsegno.model.ids import FORK_MARK, Offset, check_session_id
from dalsegno.model.lifecycle import MemoryOps, OpState, SessionState
from dalsegno.model.records import Actor, Event

log = logging.getLogger("dalsegno.log")

RESUME_TIMEOUT_SECONDS = 60.0


def now_micros() -> int:
    """The writer's clock: microseconds since 1970 UTC."""
    return time.time_ns() // 1000


class Session:
    """The writer of one session; safe to use from several threads, whose events it puts in one order.

    ``check_rules``: a lifecycle rule that an event breaks refuses it (profile STRICT; in the other profiles the event
    is sent, and ``Pending.violations`` names the rules). ``actor``: who acts where an append does not say. ``clock``:
    microseconds since 1970 UTC. ``source``: where records come from on resume (default: the partition's start).
    Raises InvalidSessionId; an id with ``~`` is a fork's, and the first append refuses it where the session is none.
    """

    def __init__(
        self,
        publisher: Publisher,
        session_id: str,
        *,
        check_rules: bool = True,
        actor: Actor | tuple[str, str] = ("HARNESS", "harness"),
        clock: Callable[[], int] = now_micros,
        source: SessionSource | None = None,
    ) -> None:
        self.session_id = check_session_id(session_id, fork=FORK_MARK in session_id)
        self._publisher = publisher
        self._source = source
        self._drafter = Drafter(publisher, session_id, check_rules, Actor(*actor), clock, self._inherit)
        self._lock = threading.RLock()
        self._chain = Chain()
        self._state, self._ops = SessionState(), MemoryOps()
        self._under_way: dict[bytes, Pending] = {}
        self._broken: str | None = None
        # The first event of this writer's epoch: a rival of the same epoch has another one.
        self._first: bytes | None = None
        # Where `read_back` goes on: what lies below was seen by this writer (None: nothing was).
        self._seen_to: Offset | None = None
        self.last_resume: SessionRecords | None = None
        """What the last resume read: ``records_read`` is its cost."""

    @property
    def seq(self) -> int:
        """The seq of the last event that was sent; 0 before the first."""
        return self._chain.seq

    @property
    def head_hash(self) -> bytes | None:
        """The hash of the last event that was sent: what the next one names as its predecessor."""
        return self._chain.hash

    @property
    def epoch(self) -> int:
        return self._chain.epoch

    @property
    def broken(self) -> str | None:
        """Why the session must be resumed before it appends again; None if it need not."""
        return self._broken

    # --- append ------------------------------------------------------------------------------------------------------

    def append(
        self,
        event: NewEvent,
        *,
        occurred_at: datetime | int | None = None,
        causation_id: str | None = None,
        turn_id: str | None = None,
        stage_id: str | None = None,
        actor: Actor | tuple[str, str] | None = None,
        origin: Origin | None = None,
        redactions: Sequence[Redaction] = (),
        event_id: str | None = None,
    ) -> Pending:
        """Number, link and send one event; returns at once (but for the first, which waits for the schemas).

        Raises InvalidEvent (``data['field']``, ``data['rule']``), EventTooLarge, SessionBroken, and what sending does.
        """
        how = {
            "occurred_at": occurred_at, "causation_id": causation_id, "turn_id": turn_id, "stage_id": stage_id,
            "actor": actor, "origin": origin, "redactions": redactions, "event_id": event_id,
        }  # fmt: skip
        with self._lock:
            self._must_be_whole()
            return self._send(self._drafter.draft(event, self._chain, self._state, self._ops, how))

    def append_batch(self, events: Iterable[NewEvent | tuple[NewEvent, Mapping[str, Any]]]) -> list[Pending]:
        """Append several events, each alone or with the keyword arguments of ``append``: all are sent, or, if one of
        them is refused, none. Raises as ``append``; ``data['index']`` says which event was refused."""
        with self._lock:
            self._must_be_whole()
            chain, state, ops = self._chain, copy.deepcopy(self._state), _Overlay(self._ops)
            drafts: list[Draft] = []
            for index, item in enumerate(events):
                event, how = item if isinstance(item, tuple) else (item, {})
                try:
                    draft = self._drafter.draft(event, chain, state, ops, how)
                except InvalidEvent as error:
                    error.data["index"] = index
                    raise
                chain = draft.chain
                drafts.append(draft)
            self._state = state
            self._ops.rows.update(ops.rows)
            return [self._send(draft) for draft in drafts]

    def _must_be_whole(self) -> None:
        # First: after a fatal error every report is in, so that a session that it broke knows it.
        self._publisher.transport.ready()
        if self._broken is not None:
            raise SessionBroken(
                f"session {self.session_id} is broken: {self._broken}",
                wanted="a session whose every event is known to be stored or under way",
                todo="resume it",
                session_id=self.session_id,
            )

    def _send(self, draft: Draft) -> Pending:
        pending = draft.pending
        self._under_way[pending.hash] = pending
        pending.on_settled = self._settled
        try:
            self._publisher.send_checked(pending, draft.headers)
        except BaseException as error:
            self._under_way.pop(pending.hash, None)
            self._broken = f"seq {pending.seq} was not sent: {error}"
            raise
        if draft.chain.epoch != self._chain.epoch or self._chain.seq == 0:
            self._first = draft.chain.hash
        self._chain = draft.chain
        return pending

    def _settled(self, pending: Pending, error: DalsegnoError | None) -> None:
        """Told by the client's thread: takes no lock, an append may hold it and wait for room in the queue."""
        self._under_way.pop(pending.hash, None)
        if error is not None and self._broken is None:
            self._broken = f"seq {pending.seq} was not acknowledged: {error.found}"

    # --- resume ------------------------------------------------------------------------------------------------------

    def resume(
        self,
        *,
        resolve: Resolve | None = None,
        timeout: float = RESUME_TIMEOUT_SECONDS,
        retries: int = 0,
        actor: Actor | tuple[str, str] | None = None,
    ) -> Pending:
        """Take the session over where its history in the log ends.

        (1) the high watermark, read uncommitted; (2) the session up to it; (3) ``SessionRecovered`` with an epoch above
        all that were seen, which says of every open operation what becomes of it (``resolve``, else the cautious
        default); (4) read up to that record's own offset: a rival recovery of that epoch or above means
        SessionSuperseded, or to start again as often as ``retries`` says.

        A crash after (3) leaves a recovery that the next one raises its epoch above. Raises SessionMissing,
        SessionHeld, SnapshotAheadOfLog, SessionSuperseded, WaitTimeout.
        """
        deadline = time.monotonic() + timeout
        with self._lock:
            self._wait_for_reports(deadline)
            for attempt in range(retries + 1):
                try:
                    return self._resume_once(resolve, deadline, actor)
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
            high = self._high()
            self._check_no_rival(self._seen_to, high, timeout)
            self._seen_to = high

    def _wait_for_reports(self, deadline: float) -> None:
        """What this session still has under way could stand behind the reading: wait for its end."""
        self._publisher.transport.ready()
        for pending in list(self._under_way.values()):
            try:
                pending.result(max(0.0, deadline - time.monotonic()))
            except WaitTimeout:
                if not pending.done():
                    raise
            except DalsegnoError:
                continue  # it broke the session, which is what resuming is for

    def _resume_once(self, resolve: Resolve | None, deadline: float, actor: Actor | tuple[str, str] | None) -> Pending:
        # (1)
        up_to = self._high()
        # (2)
        source = self._source or self._log_source()
        records = source.read(self.session_id, up_to)
        self.last_resume = records
        check_log_has(self._publisher, self.session_id, records, up_to)
        history = understand(self.session_id, records, source, up_to)
        self._publisher.found_in_log(history.keys)
        recovered = self._recovery(history, records, resolve)
        # Until (4) is done nobody knows whether this writer may go on.
        self._broken = "its resume was not finished"
        self._chain = Chain(history.head.seq, history.head.hash, history.head.epoch, history.recorded_at)
        self._state, self._ops = history.state, history.ops
        # (3)
        how = {"epoch": history.highest_epoch + 1, "actor": actor}
        draft = self._drafter.draft(recovered, self._chain, self._state, self._ops, how)
        pending = self._send(draft)
        receipt = pending.result(max(0.0, deadline - time.monotonic()))
        # (4)
        self._seen_to = Offset(receipt.offset + 1)
        self._check_no_rival(records.read_up_to, self._seen_to, max(1.0, deadline - time.monotonic()))
        self._broken = None
        log.info(
            "session_resumed",
            extra={
                "session_id": self.session_id, "seq": self.seq, "epoch": self.epoch, "records": records.records_read,
            },
        )  # fmt: skip
        return pending

    def _recovery(self, history: History, records: SessionRecords, resolve: Resolve | None) -> SessionRecovered:
        if history.tip is None:
            raise SessionMissing(
                f"the log holds no session {self.session_id}",
                wanted="a session with a history",
                todo="begin it with publisher.session(...)",
                session_id=self.session_id,
            )
        tip = history.tip
        return SessionRecovered(
            last_good=Ref(seq=tip.seq, hash=tip.hash, event_id=tip.meta.get("event_id")),
            crashed_instance=tip.meta.get("writer"),
            snapshot_id=records.snapshot_id,
            in_flight=in_flight(history.ops, resolve),
        )

    def _log_source(self) -> SessionSource:
        publisher = self._publisher
        return PartitionSource(
            publisher.transport, publisher.prefix, publisher.topic, publisher.partitions, publisher.schemas
        )

    def _inherit(self, event: Event, child: SessionState) -> None:
        inherit_from_parent(event, child, self._source or self._log_source(), self._high())

    def _check_no_rival(self, start: Offset | None, end: Offset, stall_seconds: float) -> None:
        claim = Claim(self.session_id, self.epoch, self._first)
        try:
            check_no_rival(self._publisher, claim, start, end, stall_seconds)
        except SessionSuperseded as error:
            self._broken = error.found
            raise

    def _high(self) -> Offset:
        """The high watermark of the session's partition, read uncommitted."""
        publisher = self._publisher
        return publisher.transport.bounds(publisher.topic, publisher.partition_of(self.session_id)).high


class _Overlay(MemoryOps):
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


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keyword arguments of ``Session`` apart from those of ``resume``."""
    of_resume = {name: options[name] for name in ("resolve", "timeout", "retries") if name in options}
    return {name: value for name, value in options.items() if name not in of_resume}, of_resume
